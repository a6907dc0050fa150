//! An operator with a good connection: changes a policy and reads it back, and looks at who was granted what. What the
//! coordinator acknowledges goes into the history like any other operation.

use super::clock::now_us;
use super::grants::Grants;
use super::world::scopes;
use crate::history::{Recorder, What};
use crate::ledger::Ledger;
use ringfence::admin::Admin;
use ringfence::ids::{Scope, Term};
use std::time::Duration;

const ACTOR: &str = "operator";
const CHANGES_EVERY: Duration = Duration::from_millis(150);
const LOOKS_EVERY: Duration = Duration::from_millis(500);

/// The operator's notebook.
pub(super) struct Operator {
    admin: Admin,
    recorder: Recorder,
    ledger: Ledger<Box<dyn Fn(What) + Send + Sync>>,
    grants: Grants,
    /// The last term of which it noted the leader.
    led: Option<Term>,
}

impl Operator {
    pub(super) fn new(admin: Admin, recorder: Recorder) -> Operator {
        let notes = recorder.clone();
        let say: Box<dyn Fn(What) + Send + Sync> = Box::new(move |what| notes.record(now_us(), ACTOR, what));
        let ledger = Ledger::new(admin.clone(), say);
        Operator { admin, recorder, ledger, grants: Grants::default(), led: None }
    }

    /// Starts a new history: what is there now was written before.
    pub(super) async fn open(&mut self) -> Result<(), ringfence::Error> {
        self.grants.known().for_each(|what| self.say(what.clone()));
        self.ledger.open().await?;
        self.look_at_grants().await
    }

    /// Works until it is dropped.
    pub(super) async fn work(&mut self) {
        let mut looked = tokio::time::Instant::now();
        loop {
            self.ledger.turn().await;
            if looked.elapsed() > LOOKS_EVERY {
                looked = tokio::time::Instant::now();
                // What it did not see now it sees later.
                let _ = self.look_at_grants().await;
                let _ = self.leader().await;
            }
            tokio::time::sleep(CHANGES_EVERY).await;
        }
    }

    /// Notes the grants that were made since it last looked. Of many at once the coordinator remembers the last few.
    pub(super) async fn look_at_grants(&mut self) -> Result<(), ringfence::Error> {
        for (keyspace, partition) in scopes() {
            let detail = self.admin.partition(keyspace.name, partition).await?;
            let scope = Scope::Partition(detail.partition.keyspace.clone(), partition);
            for what in self.grants.look(&scope, detail.history) {
                self.say(what);
            }
        }
        Ok(())
    }

    /// Notes who leads, by the account of whichever node answers.
    async fn leader(&mut self) -> Result<(), ringfence::Error> {
        let status = self.admin.cluster_status().await?;
        if let Some(node) = status.leader
            && self.led.replace(status.term) != Some(status.term)
        {
            self.say(What::Elected { term: status.term, node });
        }
        Ok(())
    }

    fn say(&self, what: What) {
        self.recorder.record(now_us(), ACTOR, what);
    }
}
