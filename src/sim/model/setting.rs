//! What every small world begins with: one keyspace of one partition, two workers, and a first grant.

use ringfence_core::ids::{KeyspaceId, KeyspaceName, PartitionId, PartitionKey, SessionId, WorkerId};
use ringfence_core::placement::{PartitionCount, Weight};
use ringfence_core::state::{Command, Entry, GrantReason, Join, Policy, PolicyChange};
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
