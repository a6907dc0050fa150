//! A state with helpers, for stories that read top to bottom.

use crate::ids::{Epoch, KeyspaceId, KeyspaceName, LogIndex, PartitionId, PartitionKey, SessionId, WorkerId};
use crate::placement::{PartitionCount, Weight};
use crate::state::{
    Applied, Command, Cooling, Entry, GrantReason, Join, Outcome, Partition, Phase, Policy, PolicyChange,
    Refused, Released, Request, Session, State, Takeover,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub(super) const TTL: Duration = Duration::from_secs(10);

/// A state, and the log index that comes next.
pub(super) struct World {
    pub(super) state: State,
    index: u64,
}

pub(super) fn worker(name: &str) -> WorkerId {
    WorkerId::new(name).unwrap()
}

pub(super) fn epoch(number: u64) -> Epoch {
    Epoch::new(number).unwrap()
}

pub(super) fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

pub(super) fn join(name: &str, nonce: u128, keyspace: KeyspaceId) -> Join {
    Join {
        worker: worker(name),
        nonce,
        secret_hash: [7; 32],
        address: format!("{name}:80"),
        weight: Weight::ONE,
        labels: BTreeMap::new(),
        keyspaces: BTreeSet::from([keyspace]),
        replaces: None,
        splits: true,
        ends_drain: None,
        ttl: None,
    }
}

impl World {
    pub(super) fn new() -> World {
        World { state: State::new(), index: 0 }
    }

    /// One keyspace `orders` of one partition under the policy, and workers `a` and `b`.
    pub(super) fn with_two_workers(change: PolicyChange) -> (World, PartitionKey, SessionId, SessionId) {
        let mut world = World::new();
        let keyspace = world.create("orders", 1, change);
        let a = world.join("a", keyspace);
        let b = world.join("b", keyspace);
        (world, PartitionKey { keyspace, partition: PartitionId::new(0) }, a, b)
    }

    /// The same, and `a` owns the partition.
    pub(super) fn owned(change: PolicyChange) -> (World, PartitionKey, SessionId, SessionId, Epoch) {
        let (mut world, key, a, b) = World::with_two_workers(change);
        let epoch = world.grant(key, a);
        (world, key, a, b, epoch)
    }

    pub(super) fn next_index(&self) -> LogIndex {
        LogIndex::new(self.index + 1)
    }

    pub(super) fn apply(&mut self, request: Option<Request>, commands: Vec<Command>) -> Applied {
        self.index += 1;
        let entry = Entry { request, proposed_unix_ms: self.index, commands };
        let applied = self.state.apply(LogIndex::new(self.index), &entry);
        assert_eq!(
            State::from_parts(self.state.to_parts()).as_ref(),
            Ok(&self.state),
            "the state agrees with itself"
        );
        applied
    }

    /// One command that is not refused.
    pub(super) fn ok(&mut self, command: Command) -> Outcome {
        let outcome = self.apply(None, vec![command.clone()]).outcome;
        let mut outcomes = outcome.unwrap_or_else(|refusal| panic!("{command:?}: {}", refusal.why));
        outcomes.pop().expect("one outcome a command")
    }

    /// One command that is refused, and changes nothing.
    pub(super) fn refused(&mut self, command: Command) -> Refused {
        let before = self.state.clone();
        let applied = self.apply(None, vec![command.clone()]);
        self.assert_same_but_for_the_index(before);
        assert!(applied.events.is_empty());
        applied.outcome.expect_err(&format!("{command:?}")).why
    }

    /// One command that is taken and changes nothing.
    pub(super) fn unchanged(&mut self, command: Command) {
        let before = self.state.clone();
        assert_eq!(self.ok(command), Outcome::Unchanged);
        self.assert_same_but_for_the_index(before);
    }

    pub(super) fn assert_same_but_for_the_index(&self, mut before: State) {
        before.counters.applied = self.state.counters.applied;
        assert_eq!(self.state, before);
    }

    pub(super) fn create(&mut self, name: &str, partitions: u32, change: PolicyChange) -> KeyspaceId {
        let created = self.ok(Command::CreateKeyspace {
            keyspace: KeyspaceName::new(name).unwrap(),
            partitions: PartitionCount::new(partitions).unwrap(),
            policy: Policy::default().with(&change).unwrap(),
        });
        let Outcome::Created(id) = created else { panic!("{created:?}") };
        id
    }

    pub(super) fn join(&mut self, name: &str, keyspace: KeyspaceId) -> SessionId {
        let nonce = u128::from(self.index) + 1;
        self.joined(join(name, nonce, keyspace))
    }

    pub(super) fn joined(&mut self, join: Join) -> SessionId {
        let joined = self.ok(Command::Join(Box::new(join)));
        let Outcome::Joined(id) = joined else { panic!("{joined:?}") };
        id
    }

    pub(super) fn grant(&mut self, key: PartitionKey, to: SessionId) -> Epoch {
        let granted = self.ok(self.a_grant(key, to));
        let Outcome::Granted(epoch) = granted else { panic!("{granted:?}") };
        epoch
    }

    /// The grant that a leader would propose now.
    pub(super) fn a_grant(&self, key: PartitionKey, to: SessionId) -> Command {
        let replaces = self.partition(key).epoch();
        Command::Grant { partition: key, replaces, to, why: GrantReason::First }
    }

    pub(super) fn suspect(&mut self, session: SessionId, thirds: u8) -> LogIndex {
        self.ok(Command::Suspect { sessions: vec![(session, thirds)] });
        self.state.session(session).and_then(Session::suspicion).expect("suspected").at
    }

    pub(super) fn partition(&self, key: PartitionKey) -> &Partition {
        self.state.partition(key).expect("it exists")
    }

    pub(super) fn phase(&self, key: PartitionKey) -> &Phase {
        self.partition(key).phase()
    }

    pub(super) fn cooling(&self, key: PartitionKey) -> Cooling {
        match self.phase(key) {
            Phase::Cooling(cooling) => *cooling,
            other => panic!("it does not cool: {other:?}"),
        }
    }
}

pub(super) fn by_fence() -> PolicyChange {
    PolicyChange { takeover: Some(Takeover::Fence), ..PolicyChange::default() }
}

pub(super) fn drain(partition: PartitionKey, epoch: Epoch, to: &str) -> Command {
    let why = GrantReason::Balance;
    Command::Drain { partition, epoch, to: worker(to), deadline: secs(5), why }
}

pub(super) fn release(partition: PartitionKey, epoch: Epoch, session: SessionId) -> Command {
    Command::Release { partition, epoch, session, how: Released::Revoked }
}

pub(super) fn failed(partition: PartitionKey, epoch: Epoch, session: SessionId, error: &str) -> Command {
    Command::Release { partition, epoch, session, how: Released::Failed(error.to_owned()) }
}
