use super::cursor::{Cursor, PIECE_ENTRIES};
use crate::clock::TokioClock;
use crate::raft::{Machine as _, Position};
use crate::replica::{Replica, ReplicaMachine};
use crate::testing::{self, Cluster, create, until};
use ringfence_api::state::encode_entry;
use ringfence_api::{ErrorKind, Failure, v1};
use ringfence_core::ids::{
    ClusterId, Epoch, KeyspaceName, LogIndex, PartitionId, PartitionKey, Revision, Term, WorkerId,
};
use ringfence_core::placement::{PartitionCount, Weight};
use ringfence_core::state::{Command, Entry, GrantReason, Join, Outcome, Policy};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// A replica that is fed entries by hand.
struct Fed {
    replica: Replica,
    machine: ReplicaMachine,
    index: u64,
}

impl Fed {
    fn new() -> Fed {
        let replica = Replica::new(Arc::new(TokioClock::new()));
        let mut fed = Fed { machine: replica.machine(), replica, index: 0 };
        fed.apply(Command::FormCluster { cluster: ClusterId::new("c1").unwrap(), lineage: 7 });
        fed
    }

    fn apply(&mut self, command: Command) -> Outcome {
        self.index += 1;
        let at = Position { term: Term::new(1), index: LogIndex::new(self.index) };
        let entry = Entry { request: None, proposed_unix_ms: 0, commands: vec![command] };
        let applied = self.machine.apply(at, Some(&encode_entry(&entry))).unwrap();
        applied.outcome.unwrap().remove(0)
    }

    fn create(&mut self, name: &str, partitions: u32) -> PartitionKey {
        let created = self.apply(Command::CreateKeyspace {
            keyspace: KeyspaceName::new(name).unwrap(),
            partitions: PartitionCount::new(partitions).unwrap(),
            policy: Policy::default(),
        });
        let Outcome::Created(keyspace) = created else { panic!("{created:?}") };
        PartitionKey { keyspace, partition: PartitionId::new(0) }
    }

    /// Grants the partition to a new session, again and again.
    fn grant(&mut self, key: PartitionKey) -> Epoch {
        let worker = WorkerId::new(&format!("w{}", self.index)).unwrap();
        let join = Join {
            worker,
            nonce: u128::from(self.index),
            secret_hash: [0; 32],
            address: String::new(),
            weight: Weight::new(1).unwrap(),
            labels: BTreeMap::new(),
            keyspaces: BTreeSet::from([key.keyspace]),
            replaces: None,
            splits: true,
            ends_drain: None,
            ttl: None,
        };
        let Outcome::Joined(to) = self.apply(Command::Join(Box::new(join))) else { panic!("not joined") };
        let replaces = self.replica.lock().state.partition(key).unwrap().epoch();
        let grant = Command::Grant { partition: key, replaces, to, why: GrantReason::First };
        let Outcome::Granted(epoch) = self.apply(grant) else { panic!("not granted") };
        let how = ringfence_core::state::Released::Revoked;
        self.apply(Command::Release { partition: key, epoch, session: to, how });
        epoch
    }

    fn delete(&mut self, key: PartitionKey) {
        self.apply(Command::DeleteKeyspace { keyspace: key.keyspace });
    }

    /// Reads until there is no more.
    fn read(&self, cursor: &mut Cursor) -> Vec<v1::WatchResponse> {
        std::iter::from_fn(|| cursor.next(&self.replica.lock())).collect()
    }
}

fn epochs(responses: &[v1::WatchResponse]) -> Vec<(String, u32, u64)> {
    let entries = responses.iter().flat_map(|r| &r.partitions);
    entries.map(|entry| (entry.keyspace.clone(), entry.partition, entry.epoch)).collect()
}

#[test]
fn f056_a_picture_comes_in_pieces_of_one_revision_and_says_when_it_is_complete() {
    let mut fed = Fed::new();
    fed.create("orders", 10_000);
    fed.create("users", 3);
    let mut cursor = Cursor::new(None);
    let pieces = fed.read(&mut cursor);
    assert!(pieces.len() >= 3 && pieces[0].reset && !pieces.last().unwrap().more);
    assert!(pieces[1..].iter().all(|p| !p.reset && p.revision == pieces[0].revision));
    assert!(pieces[..pieces.len() - 1].iter().all(|p| p.more));
    assert!(pieces.iter().all(|p| p.partitions.len() <= PIECE_ENTRIES && p.lineage == "0000000000000007"));
    assert_eq!(epochs(&pieces).len(), 10_003);
    assert_eq!(pieces.iter().map(|p| p.keyspaces.len()).sum::<usize>(), 2);
    assert_eq!(fed.read(&mut cursor), [], "nothing has changed since");
}

#[test]
fn f085_a_slow_reader_finds_the_latest_and_nothing_was_kept_for_it() {
    let mut fed = Fed::new();
    let key = fed.create("orders", 10_000);
    let mut cursor = Cursor::new(None);
    let first = cursor.next(&fed.replica.lock()).unwrap();
    assert!(first.more);
    // It stops reading in the middle of the picture; a hundred grants later it goes on.
    let mut last = None;
    for _ in 0..100 {
        last = Some(fed.grant(key));
    }
    let rest = fed.read(&mut cursor);
    let seen: Vec<u64> =
        epochs(&rest).iter().filter(|(_, number, _)| *number == 0).map(|(.., e)| *e).collect();
    assert_eq!(
        seen,
        [last.unwrap().get()],
        "partition 0 was in the first piece, and changed once since for it"
    );
    assert!(rest.last().unwrap().revision > first.revision && !rest.last().unwrap().reset);
}

#[test]
fn f033_a_reader_that_resumes_misses_no_deletion_and_no_new_creation_under_a_name() {
    let mut fed = Fed::new();
    let orders = fed.create("orders", 2);
    let seen = Revision::new(fed.index);
    fed.delete(orders);
    fed.create("orders", 5);
    let mut cursor = Cursor::resume(None, seen);
    let responses = fed.read(&mut cursor);
    assert_eq!(responses[0].deleted_keyspaces, ["orders"]);
    assert!(responses[0].more && responses[0].keyspaces.is_empty(), "what is gone goes first");
    assert_eq!(responses[1].keyspaces[0].partitions, 5);
    assert_eq!(epochs(&responses).len(), 5, "partitions that nobody ever owned are told too");
    assert!(responses.iter().all(|r| !r.reset));
}

#[test]
fn f033_a_reader_that_is_too_far_behind_starts_over() {
    let mut fed = Fed::new();
    fed.create("orders", 2);
    let seen = Revision::new(fed.index);
    fed.create("users", 2);
    // A snapshot does not carry what led to it.
    let snapshot = fed.machine.snapshot()();
    let at = Position { term: Term::new(1), index: LogIndex::new(fed.index) };
    fed.machine.restore(at, &snapshot).unwrap();
    let mut cursor = Cursor::resume(None, seen);
    assert!(fed.read(&mut cursor)[0].reset);
    let mut cursor = Cursor::resume(None, Revision::new(fed.index));
    assert_eq!(fed.read(&mut cursor), []);
}

/// What the snapshot does not have is gone, whatever this node had before.
#[test]
fn f072_a_restored_snapshot_replaces_what_was_there() {
    let mut fed = Fed::new();
    let kept = fed.create("kept", 2);
    let deleted = fed.create("deleted", 2);
    let mut ahead = Fed::new();
    ahead.create("kept", 2);
    ahead.create("deleted", 2);
    for fed in [&mut fed, &mut ahead] {
        fed.grant(kept);
        fed.grant(deleted);
    }
    assert_eq!(fed.replica.lock().state, ahead.replica.lock().state);
    // Both sessions leave, a keyspace goes; this node hears of it by a snapshot only.
    let sessions: Vec<_> =
        ahead.replica.lock().state.sessions().map(ringfence_core::state::Session::id).collect();
    assert_eq!(sessions.len(), 2);
    for session in sessions {
        ahead.apply(Command::Leave { session });
    }
    ahead.delete(deleted);
    let at = Position { term: Term::new(1), index: LogIndex::new(ahead.index) };
    fed.machine.restore(at, &ahead.machine.snapshot()()).unwrap();
    assert_eq!(fed.replica.lock().state, ahead.replica.lock().state);
    let names: Vec<String> = epochs(&fed.read(&mut Cursor::new(None))).into_iter().map(|e| e.0).collect();
    assert_eq!(names, ["kept", "kept"]);
}

#[test]
fn a_reader_of_one_keyspace_is_not_told_of_another_and_is_as_far_as_its_revision() {
    let mut fed = Fed::new();
    fed.create("orders", 2);
    let users = fed.create("users", 2);
    let only = BTreeSet::from([KeyspaceName::new("orders").unwrap()]);
    let mut cursor = Cursor::new(Some(only));
    assert_eq!(epochs(&fed.read(&mut cursor)).len(), 2);
    fed.grant(users);
    assert_eq!(fed.read(&mut cursor), []);
}

async fn watch(
    client: &mut v1::map_service_client::MapServiceClient<tonic::transport::Channel>,
    request: v1::WatchRequest,
) -> tonic::Streaming<v1::WatchResponse> {
    client.watch(request).await.unwrap().into_inner()
}

#[tokio::test]
async fn a_watch_resumes_in_its_own_history_and_starts_over_from_another() {
    let node = testing::alone().await;
    testing::admin(&node).await.create_keyspace(create("orders", 4)).await.unwrap();
    let mut client = testing::map(&node).await;
    let mut stream = watch(&mut client, v1::WatchRequest::default()).await;
    let picture = stream.message().await.unwrap().unwrap();
    assert!(picture.reset && picture.partitions.len() == 4);

    testing::join(&node, "w1", "orders").await;
    let mut owned = BTreeSet::new();
    let mut revision = picture.revision;
    while owned.len() < 4 {
        let change = stream.message().await.unwrap().unwrap();
        assert!(!change.reset && change.revision >= revision);
        revision = change.revision;
        owned.extend(change.partitions.iter().filter(|p| p.owner.is_some()).map(|p| p.partition));
    }
    drop(stream);

    let resume =
        v1::WatchRequest { lineage: picture.lineage, revision: picture.revision, ..Default::default() };
    let resumed = watch(&mut client, resume.clone()).await.message().await.unwrap().unwrap();
    assert!(!resumed.reset && resumed.partitions.len() == 4);
    let other = v1::WatchRequest { lineage: "00000000000000ff".into(), ..resume.clone() };
    assert!(watch(&mut client, other).await.message().await.unwrap().unwrap().reset);

    // PROTOCOL 19: a node that is behind what the reader has seen waits, then declines; it never shows an older picture.
    let ahead = v1::WatchRequest { revision: u64::MAX, ..resume };
    let declined = Failure::decode(&client.watch(ahead).await.unwrap_err());
    assert!(
        declined.kind() == ErrorKind::Unavailable && declined.message().contains("revision"),
        "{declined}"
    );
    let absent = v1::WatchRequest { keyspaces: vec!["absent".into()], ..Default::default() };
    assert_eq!(Failure::decode(&client.watch(absent).await.unwrap_err()).kind(), ErrorKind::NotFound);

    let mut stream = watch(&mut client, v1::WatchRequest::default()).await;
    stream.message().await.unwrap();
    node.shutdown().await.unwrap();
    let ended = until("the stream ends", async || stream.message().await.err()).await;
    assert_eq!(Failure::decode(&ended).kind(), ErrorKind::Unavailable, "{ended}");
}

/// One watch whose socket nobody reads, others that are read; far more changes than any buffer between them holds.
#[tokio::test]
async fn f085_a_watch_that_is_not_read_holds_up_no_other_and_ends_with_the_same_picture() {
    let node = testing::alone().await;
    let mut admin = testing::admin(&node).await;
    let mut slow = watch(&mut testing::map(&node).await, v1::WatchRequest::default()).await;
    let mut others = Vec::new();
    for _ in 0..3 {
        others.push(watch(&mut testing::map(&node).await, v1::WatchRequest::default()).await);
    }
    for round in 0..20 {
        let name = format!("k{round:02}");
        admin.create_keyspace(create(&name, 5_000)).await.unwrap();
        for stream in &mut others {
            let mut told = 0;
            while told < 5_000 {
                let change = stream.message().await.unwrap().unwrap();
                told += change.partitions.iter().filter(|entry| entry.keyspace == name).count();
            }
        }
        if round < 19 {
            let delete =
                v1::DeleteKeyspaceRequest { request: testing::request_id(), name, ..Default::default() };
            admin.delete_keyspace(delete).await.unwrap();
        }
    }
    let mut there = BTreeMap::new();
    while there.get("k19") != Some(&5_000) {
        let change = slow.message().await.unwrap().unwrap();
        for name in &change.deleted_keyspaces {
            there.remove(name);
        }
        for entry in change.partitions {
            *there.entry(entry.keyspace).or_insert(0) += 1;
        }
    }
    assert_eq!(there.len(), 1, "{there:?}");
}

#[tokio::test]
async fn f101_watches_that_come_and_go_change_nothing_for_anybody() {
    let node = testing::alone().await;
    testing::admin(&node).await.create_keyspace(create("orders", 4)).await.unwrap();
    let mut client = testing::map(&node).await;
    let mut first = watch(&mut client, v1::WatchRequest::default()).await;
    let revision = first.message().await.unwrap().unwrap().revision;
    let before = node.raft_status().unwrap().last_log;
    for _ in 0..100 {
        let mut other = watch(&mut client, v1::WatchRequest::default()).await;
        assert_eq!(other.message().await.unwrap().unwrap().revision, revision);
    }
    assert_eq!(node.raft_status().unwrap().last_log, before, "nobody is a member for having asked");
    // The next that the first is told is the next change.
    testing::admin(&node).await.create_keyspace(create("users", 1)).await.unwrap();
    assert_eq!(first.message().await.unwrap().unwrap().keyspaces[0].name, "users");
}

#[tokio::test]
async fn f048_a_node_that_hears_of_no_leader_ends_its_streams() {
    let mut cluster = Cluster::formed().await;
    let leader = cluster.leader().await;
    let rest: Vec<u64> = (1..=3).filter(|id| *id != leader).collect();
    let mut client = testing::map(&cluster.nodes[&rest[0]]).await;
    let mut stream = watch(&mut client, v1::WatchRequest::default()).await;
    cluster.crash(leader);
    cluster.crash(rest[1]);
    let ended = tokio::time::timeout(Duration::from_secs(10), async {
        loop {
            if let Err(ended) = stream.message().await {
                return ended;
            }
        }
    });
    let ended = Failure::decode(&ended.await.unwrap());
    assert_eq!(ended.kind(), ErrorKind::NoLeader, "{ended}");
}

#[tokio::test]
async fn a_lookup_finds_the_partition_of_a_key_and_names_what_is_not_there() {
    let node = testing::alone().await;
    testing::admin(&node).await.create_keyspace(create("orders", 4)).await.unwrap();
    let mut client = testing::map(&node).await;
    let mut ask = async |keyspace: &str, target| {
        let request = v1::LookupRequest { keyspace: keyspace.to_owned(), target };
        let answer = client.lookup(request).await;
        answer.map(|a| a.into_inner().entry.unwrap().partition).map_err(|e| Failure::decode(&e).kind())
    };
    use v1::lookup_request::Target;
    let count = PartitionCount::new(4).unwrap();
    let number = ringfence_core::placement::partition_of(b"a key", count).get();
    assert_eq!(ask("orders", Some(Target::Key(b"a key"[..].into()))).await, Ok(number));
    assert_eq!(ask("orders", Some(Target::Partition(3))).await, Ok(3));
    assert_eq!(ask("orders", Some(Target::Partition(u32::MAX))).await, Err(ErrorKind::NotFound));
    assert_eq!(ask("absent", Some(Target::Partition(0))).await, Err(ErrorKind::NotFound));
    assert_eq!(ask("orders", None).await, Err(ErrorKind::Invalid));
    assert_eq!(ask("-", Some(Target::Partition(0))).await, Err(ErrorKind::Invalid));
}

#[tokio::test]
async fn that_there_is_no_such_keyspace_is_said_by_the_leader_and_others_name_it() {
    let cluster = Cluster::formed().await;
    let leader = cluster.leader().await;
    for (id, node) in &cluster.nodes {
        let absent = v1::WatchRequest { keyspaces: vec!["absent".into()], ..Default::default() };
        let said = testing::map(node).await.watch(absent).await.unwrap_err();
        let said = Failure::decode(&said);
        if *id == leader {
            assert_eq!(said.kind(), ErrorKind::NotFound, "{said}");
        } else {
            let named = said.leader().map(|named| named.node.get());
            assert_eq!((said.kind(), named), (ErrorKind::NotLeader, Some(leader)), "{said}");
        }
    }
}
