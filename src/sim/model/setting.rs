//! What every small world begins with: one keyspace of one partition, or one lock, two workers, and a first grant.

use ringfence_core::ids::{
    KeyspaceId, KeyspaceName, LockName, PartitionId, PartitionKey, SessionId, WorkerId,
};
use ringfence_core::placement::{PartitionCount, Weight};
use ringfence_core::state::{Command, Entry, GrantReason, Join, LockMode, LockWish, Policy, PolicyChange};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The partition.
pub(super) fn partition() -> PartitionKey {
    PartitionKey { keyspace: KeyspaceId::new(1), partition: PartitionId::new(0) }
}

/// The workers, by the letters of the alphabet.
pub(super) fn name(worker: usize) -> WorkerId {
    WorkerId::new(["a", "b"][worker]).expect("a letter is a name")
}

/// How the keyspace is run: nothing is balanced.
pub(super) fn policy(ttl: Duration, deadline: Duration) -> Policy {
    let change = PolicyChange {
        ttl: Some(ttl),
        drain_deadline: Some(deadline),
        balance: Some(false),
        ..PolicyChange::default()
    };
    Policy::default().with(&change).expect("a policy that works")
}

/// The first entries, one command each.
pub(super) fn founding(policy: &Policy) -> Vec<Command> {
    let create = Command::CreateKeyspace {
        keyspace: KeyspaceName::new("orders").expect("a name"),
        partitions: PartitionCount::new(1).expect("one is enough"),
        policy: policy.clone(),
    };
    let to = SessionId::new(1).expect("not zero");
    let grant = Command::Grant { partition: partition(), replaces: None, to, why: GrantReason::First };
    vec![create, join(0, 1, None), join(1, 2, None), grant]
}

/// The same with a lock instead of the partition: the first worker holds it, and the second waits.
pub(super) fn founding_of_a_lock(ttl: Duration) -> Vec<Command> {
    let acquire = |session| Command::AcquireLock {
        lock: lock(),
        session: SessionId::new(session).expect("not zero"),
        request: 1,
        wish: LockWish::new(LockMode::Exclusive),
        waits: true,
    };
    vec![join_for_locks(0, 1, None, ttl), join_for_locks(1, 2, None, ttl), acquire(1), acquire(2)]
}

/// The lock.
pub(super) fn lock() -> LockName {
    LockName::new("nightly").expect("a name")
}

/// A session that serves nothing.
pub(super) fn join_for_locks(
    worker: usize,
    nonce: u128,
    replaces: Option<SessionId>,
    ttl: Duration,
) -> Command {
    let mut command = join(worker, nonce, replaces);
    if let Command::Join(join) = &mut command {
        join.keyspaces.clear();
        join.ttl = Some(ttl);
    }
    command
}

/// What a process under this worker's name says when it joins.
pub(super) fn join(worker: usize, nonce: u128, replaces: Option<SessionId>) -> Command {
    Command::Join(Box::new(Join {
        worker: name(worker),
        nonce,
        secret_hash: [0; 32],
        address: String::new(),
        weight: Weight::ONE,
        labels: BTreeMap::new(),
        keyspaces: BTreeSet::from([partition().keyspace]),
        replaces,
        splits: true,
        ends_drain: None,
        ttl: None,
    }))
}

/// An entry of these commands.
pub(super) fn entry(commands: Vec<Command>) -> Entry {
    Entry { request: None, proposed_unix_ms: 0, commands }
}
