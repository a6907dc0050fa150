//! Entries, snapshots and files as nodes write them.

use super::numbered;
use crate::fuzz::scratch;
use crate::fuzz::targets::disk::{Log, Row};
use crate::fuzz::targets::state::History;
use bytes::Bytes;
use prost::Message as _;
use ringfence_api::state::{encode_entry, encode_state};
use ringfence_api::v1;
use ringfence_core::ids::{
    ClusterId, Epoch, KeyspaceId, KeyspaceName, LogIndex, NodeId, PartitionId, PartitionKey, SessionId, Term,
    WorkerId,
};
use ringfence_core::placement::{PartitionCount, Weight};
use ringfence_core::state::{
    Command, Entry, GrantReason, Join, Policy, PolicyChange, Released, Request, State, Takeover,
};
use ringfence_server::files::SystemFiles;
use ringfence_server::fuzzing;
use ringfence_server::identity::{Belonging, IdentityStore, Member};
use ringfence_server::raft::{Position, Snapshot};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::Arc;
use std::time::Duration;

const ENTRIES: &str = include_str!("../../../api/golden/entries-1.txt");
const SNAPSHOT: &str = include_str!("../../../api/golden/snapshot-1.txt");

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<char> = text.chars().filter(|c| !c.is_whitespace()).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap()).collect()
}

pub(super) fn entries() -> Vec<(String, Vec<u8>)> {
    let lines = ENTRIES.lines().filter_map(|line| line.split_once(' '));
    lines.map(|(name, bytes)| (name.to_owned(), unhex(bytes))).collect()
}

pub(super) fn snapshots() -> Vec<(String, Vec<u8>)> {
    let mut story = State::new();
    for (index, bytes) in (1..).zip(story_of_a_cluster()) {
        story.apply(LogIndex::new(index), &bytes);
    }
    numbered([unhex(SNAPSHOT), encode_state(&State::new()), encode_state(&story)])
}

pub(super) fn histories() -> Vec<(String, Vec<u8>)> {
    let golden: Vec<Vec<u8>> = entries().into_iter().map(|(_, bytes)| bytes).collect();
    let story: Vec<Vec<u8>> = story_of_a_cluster().iter().map(|entry| encode_entry(entry).to_vec()).collect();
    numbered([
        History { snapshot: unhex(SNAPSHOT), entries: golden.clone() }.encode_to_vec(),
        History { snapshot: Vec::new(), entries: golden }.encode_to_vec(),
        History { snapshot: Vec::new(), entries: story.clone() }.encode_to_vec(),
        History { snapshot: unhex(SNAPSHOT), entries: story }.encode_to_vec(),
    ])
}

/// A cluster is formed, workers come, own, hand over, fail, fall silent and leave.
fn story_of_a_cluster() -> Vec<Entry> {
    let keyspace = KeyspaceId::new(1);
    let key = |partition| PartitionKey { keyspace, partition: PartitionId::new(partition) };
    let session = |number| SessionId::new(number).unwrap();
    let epoch = |number| Epoch::new(number).unwrap();
    let worker = |number| WorkerId::new(&format!("w{number}")).unwrap();
    let join = |number: u32, replaces| {
        Command::Join(Box::new(Join {
            worker: worker(number),
            nonce: number.into(),
            secret_hash: [9; 32],
            address: format!("10.0.0.{number}:80"),
            weight: Weight::ONE,
            labels: BTreeMap::from([("zone".to_owned(), "a".to_owned())]),
            keyspaces: BTreeSet::from([keyspace]),
            replaces,
            splits: true,
            ends_drain: None,
            ttl: None,
        }))
    };
    let grant = |partition, replaces: Option<u64>, to| Command::Grant {
        partition: key(partition),
        replaces: replaces.map(epoch),
        to: session(to),
        why: GrantReason::First,
    };
    let release = |partition, of, number, how| Command::Release {
        partition: key(partition),
        epoch: epoch(number),
        session: session(of),
        how,
    };
    let drain = Command::Drain {
        partition: key(1),
        epoch: epoch(1),
        to: worker(2),
        deadline: Duration::from_secs(4),
        why: GrantReason::Operator,
    };
    let change = PolicyChange { takeover: Some(Takeover::Fence), ..PolicyChange::default() };
    let suspect = |thirds| Command::Suspect { sessions: vec![(session(2), thirds)] };
    let of_session = |number| Some(Request::Session { session: session(1), number, settled_below: number });
    let of_operator = |id| Some(Request::Operator { id, seen: LogIndex::new(1) });
    let name = KeyspaceName::new("orders").unwrap();
    let partitions = PartitionCount::new(4).unwrap();
    let form = Command::FormCluster { cluster: ClusterId::new("c1").unwrap(), lineage: 9 };
    let policy = Policy::default();
    let entries: Vec<(Option<Request>, Vec<Command>)> = vec![
        (None, vec![form, Command::NoteNode { node: NodeId::new(1).unwrap() }]),
        (of_operator(1), vec![Command::CreateKeyspace { keyspace: name, partitions, policy }]),
        (None, vec![join(1, None)]),
        (None, vec![join(2, None)]),
        (None, vec![grant(0, None, 1), grant(1, None, 1), grant(2, None, 2), grant(3, None, 2)]),
        (of_session(1), vec![Command::Ready { partition: key(0), epoch: epoch(1), session: session(1) }]),
        (of_operator(2), vec![drain]),
        (None, vec![Command::RevokeSeen { partition: key(1), epoch: epoch(1), session: session(1) }]),
        (None, vec![release(1, 1, 1, Released::Revoked), grant(1, Some(1), 2)]),
        (of_session(2), vec![release(0, 1, 1, Released::Failed("it broke".to_owned()))]),
        (None, vec![Command::EndCooling { partition: key(0), epoch: epoch(1) }, grant(0, Some(1), 1)]),
        (None, vec![suspect(1)]),
        (None, vec![Command::Clear { sessions: vec![session(2)] }]),
        (None, vec![suspect(2)]),
        (
            None,
            vec![Command::Expire { session: session(2), suspicion: LogIndex::new(14) }, grant(1, Some(2), 1)],
        ),
        (None, vec![join(1, Some(session(1)))]),
        (of_operator(3), vec![Command::UpdateKeyspace { keyspace, change }]),
        (None, vec![Command::Seize { partition: key(1), epoch: epoch(3), session: session(1) }]),
        (None, vec![Command::Withdraw { session: session(3) }, Command::Leave { session: session(3) }]),
        (of_operator(4), vec![Command::DeleteKeyspace { keyspace }]),
    ];
    entries
        .into_iter()
        .map(|(request, commands)| Entry { request, proposed_unix_ms: 1_700_000_000_000, commands })
        .collect()
}

pub(super) fn logs() -> Vec<(String, Vec<u8>)> {
    use v1::raft_entry::Payload;
    let id = |index| v1::RaftLogId { term: 3, index };
    let row = |index, payload| Row {
        index,
        entry: Some(v1::RaftEntry { id: Some(id(index)), payload: Some(payload) }),
    };
    let membership =
        v1::RaftStoredMembership::decode(&*super::contract::sample("RaftStoredMembership", 0)).unwrap();
    let rows = vec![
        row(0, Payload::Membership(membership.membership.unwrap())),
        row(1, Payload::Blank(v1::RaftBlank {})),
        row(2, Payload::Normal(vec![1; 20].into())),
    ];
    let vote = Some(v1::RaftVote { term: 3, node: 1, committed: true });
    let later = Log {
        rows: vec![row(21, Payload::Blank(v1::RaftBlank {}))],
        vote,
        purged: Some(id(20)),
        committed: Some(id(21)),
        raw: None,
    };
    let raw =
        fuzzing::record(&v1::RaftEntry { id: Some(id(22)), payload: Some(Payload::Normal(Bytes::new())) });
    numbered([
        Log { rows, vote, ..Default::default() }.encode_to_vec(),
        later.encode_to_vec(),
        Log { raw: Some(raw), ..later }.encode_to_vec(),
        Log::default().encode_to_vec(),
    ])
}

pub(super) fn snapshot_files() -> Vec<(String, Vec<u8>)> {
    let dir = scratch::fresh("seeds");
    let at = Position { term: Term::new(3), index: LogIndex::new(20) };
    let membership = super::contract::sample("RaftStoredMembership", 0).into();
    let snapshot = Snapshot { at, membership, data: unhex(SNAPSHOT).into() };
    fuzzing::snapshot_files(&dir).unwrap().save(&snapshot).unwrap();
    let bytes = fs::read(dir.join("00000000000000000020.snap")).unwrap();
    numbered([[b"sealed 20\n", &bytes[..]].concat(), [b"as-is 20\n", &bytes[..]].concat()])
}

pub(super) fn identities() -> Vec<(String, Vec<u8>)> {
    let dir = scratch::fresh("seeds");
    let node = |number| NodeId::new(number).unwrap();
    let mut store = IdentityStore::open(Arc::new(SystemFiles), &dir, node(1)).unwrap();
    let first = fs::read(dir.join("node.json")).unwrap();
    let member = |number| (node(number), Member { address: format!("n{number}:7600"), incarnation: None });
    let cluster = ClusterId::new("c1").unwrap();
    store.belong(Belonging { cluster, members: [member(1), member(2)].into(), founder: true }).unwrap();
    numbered([first, fs::read(dir.join("node.json")).unwrap()])
}
