//! An operator with a good connection: changes a policy and reads it back, and looks at who was granted what. What the
//! coordinator acknowledges goes into the history like any other operation.

use super::clock::now_us;
use super::grants::Grants;
use super::world::scopes;
use crate::history::{Call, OpId, Outcome, Recorder, What};
use ringfence::ErrorKind;
use ringfence::admin::{Admin, PolicyChange};
use ringfence::ids::{Scope, Term};
use std::time::Duration;

/// The keyspace whose policy is changed. Nobody serves it.
pub(super) const LEDGER: &str = "ledger";
/// The key by which the history knows that policy.
const KEY: &str = "coordinator/ledger";
const ACTOR: &str = "operator";
/// Values are milliseconds of a drain deadline, which is at most an hour; and not the one that it has at first.
const FIRST: OpId = 100_000;
const CHANGES_EVERY: Duration = Duration::from_millis(150);
const LOOKS_EVERY: Duration = Duration::from_millis(500);

/// The operator's notebook.
pub(super) struct Operator {
    admin: Admin,
    recorder: Recorder,
    /// The next operation, and the value that it writes.
    next: OpId,
    grants: Grants,
    /// The last term of which it noted the leader.
    led: Option<Term>,
}

impl Operator {
    pub(super) fn new(admin: Admin, recorder: Recorder) -> Operator {
        Operator { admin, recorder, next: FIRST, grants: Grants::default(), led: None }
    }

    /// Starts a new history: what is there now was written before.
    pub(super) async fn open(&mut self) -> Result<(), ringfence::Error> {
        self.grants.known().for_each(|what| self.say(what.clone()));
        for value in self.look_up().await? {
            let op = self.op();
            self.say(What::Invoked { op, key: KEY.into(), call: Call::Write(value), token: None });
            self.say(What::Returned { op, outcome: Outcome::Ok(vec![]) });
        }
        self.look_at_grants().await
    }

    /// Works until it is dropped.
    pub(super) async fn work(&mut self) {
        let mut looked = tokio::time::Instant::now();
        loop {
            self.change().await;
            self.read().await;
            if looked.elapsed() > LOOKS_EVERY {
                looked = tokio::time::Instant::now();
                // What it did not see now it sees later.
                let _ = self.look_at_grants().await;
                let _ = self.leader().await;
            }
            tokio::time::sleep(CHANGES_EVERY).await;
        }
    }

    async fn change(&mut self) {
        let op = self.op();
        let call = Call::Write(op);
        self.say(What::Invoked { op, key: KEY.into(), call, token: None });
        let change =
            PolicyChange { drain_deadline: Some(Duration::from_millis(op)), ..PolicyChange::default() };
        let outcome = match self.admin.update_keyspace(LEDGER, &change).await {
            Ok(_) => Outcome::Ok(vec![]),
            // These say that nothing was done, and are held to it.
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::Unreachable | ErrorKind::NoLeader | ErrorKind::Unavailable
                ) =>
            {
                Outcome::Refused
            }
            Err(_) => Outcome::Unknown,
        };
        self.say(What::Returned { op, outcome });
    }

    async fn read(&mut self) {
        let op = self.op();
        self.say(What::Invoked { op, key: KEY.into(), call: Call::Read, token: None });
        let outcome = self.look_up().await.map_or(Outcome::Unknown, Outcome::Ok);
        self.say(What::Returned { op, outcome });
    }

    async fn look_up(&self) -> Result<Vec<u64>, ringfence::Error> {
        let deadline = self.admin.keyspace(LEDGER).await?.policy.drain_deadline();
        Ok(vec![u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX)])
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

    fn op(&mut self) -> OpId {
        self.next += 1;
        self.next - 1
    }

    fn say(&self, what: What) {
        self.recorder.record(now_us(), ACTOR, what);
    }
}
