//! One value that the coordinator acknowledges and is asked for again: the drain deadline of a keyspace that nobody serves.
//!
//! What is said of it goes into the history like any other operation, so that "nothing acknowledged is lost" (G5) is judged
//! of the coordinator as it is of the stores. Simulated worlds and real processes keep the same ledger.

use crate::history::{Call, OpId, Outcome, What};
use ringfence::ErrorKind;
use ringfence::admin::{Admin, PolicyChange};
use std::ops::Range;
use std::time::Duration;

/// The keyspace whose policy is changed. Nobody serves it.
pub(crate) const LEDGER: &str = "ledger";
/// The key by which a history knows that policy.
const KEY: &str = "coordinator/ledger";
/// Its operations are numbered from here: those of workers are below.
const FIRST_OP: OpId = 1 << 62;
/// Values are milliseconds of a drain deadline, which is at most an hour; and not the one that it has at first.
const VALUES: Range<u64> = 100_000..3_500_000;
/// Before something that failed is tried again.
const RETRY: Duration = Duration::from_millis(100);

/// Writes the value and reads it, and says what became of it.
pub(crate) struct Ledger<S> {
    admin: Admin,
    say: S,
    next: u64,
}

impl<S: Fn(What)> Ledger<S> {
    pub(crate) fn new(admin: Admin, say: S) -> Ledger<S> {
        Ledger { admin, say, next: 0 }
    }

    /// Makes the keyspace, and says what its value is at first; as often as it takes.
    pub(crate) async fn create(&mut self) {
        loop {
            match self.admin.create_keyspace(LEDGER, 1, &PolicyChange::default()).await {
                Ok(_) => break,
                // By an earlier asking, of which nobody knew.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => break,
                Err(_) => tokio::time::sleep(RETRY).await,
            }
        }
        while self.open().await.is_err() {
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Begins a history: what is there now was written before.
    ///
    /// # Errors
    /// When the coordinator cannot be asked.
    pub(crate) async fn open(&mut self) -> Result<(), ringfence::Error> {
        for value in self.look_up().await? {
            let op = self.begin(Call::Write(value));
            self.end(op, Outcome::Ok(vec![]));
        }
        Ok(())
    }

    /// Writes a new value, then reads.
    pub(crate) async fn turn(&mut self) {
        let value = VALUES.start + self.next % (VALUES.end - VALUES.start);
        let op = self.begin(Call::Write(value));
        let change =
            PolicyChange { drain_deadline: Some(Duration::from_millis(value)), ..PolicyChange::default() };
        let written = self.admin.update_keyspace(LEDGER, &change).await;
        self.end(op, outcome(written.map(|_| vec![])));
        let op = self.begin(Call::Read);
        let read = self.look_up().await;
        self.end(op, read.map_or(Outcome::Unknown, Outcome::Ok));
    }

    /// The value; none where there is no such keyspace, which says that its creation was lost.
    async fn look_up(&self) -> Result<Vec<u64>, ringfence::Error> {
        match self.admin.keyspace(LEDGER).await {
            Ok(keyspace) => {
                let deadline = keyspace.policy.drain_deadline();
                Ok(vec![u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX)])
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(vec![]),
            Err(error) => Err(error),
        }
    }

    fn begin(&mut self, call: Call) -> OpId {
        let op = FIRST_OP + self.next;
        self.next += 1;
        (self.say)(What::Invoked { op, key: KEY.into(), call, token: None });
        op
    }

    fn end(&self, op: OpId, outcome: Outcome) {
        (self.say)(What::Returned { op, outcome });
    }
}

/// What became of a change.
fn outcome(changed: Result<Vec<u64>, ringfence::Error>) -> Outcome {
    match changed {
        Ok(found) => Outcome::Ok(found),
        // These say that nothing was done, and are held to it.
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::Unreachable | ErrorKind::NoLeader | ErrorKind::Unavailable
            ) =>
        {
            Outcome::Refused
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Outcome::Refused,
        Err(_) => Outcome::Unknown,
    }
}
