//! Streams as a coordinator sends them.

use super::numbered;
use crate::fuzz::targets::nodes::Sent;
use crate::fuzz::targets::wire::{Attached, Watched};
use prost::Message as _;
use ringfence_api::v1::{self, attach_response, raft_snapshot_chunk::Part};

fn keyspace(name: &str, partitions: u32) -> v1::Keyspace {
    let policy = v1::KeyspacePolicy {
        ttl_ms: 10_000,
        takeover: v1::Takeover::Lease.into(),
        max_moves_in_flight: 64,
        ..Default::default()
    };
    v1::Keyspace { name: name.to_owned(), partitions, policy: Some(policy), ..Default::default() }
}

fn entry(partition: u32, epoch: u64, owner: Option<u64>) -> v1::MapEntry {
    let phase = if owner.is_some() { v1::Phase::Owned } else { v1::Phase::Vacant };
    let owner =
        |session| v1::Owner { worker: format!("w{session}"), session, address: "10.0.0.1:80".to_owned() };
    v1::MapEntry {
        keyspace: "orders".to_owned(),
        partition,
        epoch,
        phase: phase.into(),
        ready: epoch.is_multiple_of(2),
        owner: (phase == v1::Phase::Owned).then(|| owner(1)),
    }
}

pub(super) fn watched() -> Vec<(String, Vec<u8>)> {
    let message = |revision, partitions| v1::WatchResponse {
        cluster: "c1".to_owned(),
        lineage: "99".to_owned(),
        revision,
        partitions,
        ..Default::default()
    };
    let full = |revision| v1::WatchResponse {
        reset: true,
        keyspaces: vec![keyspace("orders", 600), keyspace("events", 2)],
        ..message(revision, vec![entry(0, 1, Some(1)), entry(1, 2, Some(2)), entry(300, 0, None)])
    };
    let first = v1::WatchResponse { more: true, ..full(5) };
    let pieces = vec![first, message(5, vec![entry(2, 3, Some(1))]), message(6, vec![entry(0, 2, Some(2))])];
    let again = v1::WatchResponse {
        deleted_keyspaces: vec!["orders".to_owned()],
        keyspaces: vec![keyspace("orders", 4)],
        ..message(7, vec![entry(3, 9, Some(3))])
    };
    let restored = v1::WatchResponse { lineage: "100".to_owned(), ..full(3) };
    numbered([
        Watched { stream: vec![full(5), message(6, vec![entry(0, 2, None)])] }.encode_to_vec(),
        Watched { stream: pieces }.encode_to_vec(),
        Watched { stream: vec![full(5), again] }.encode_to_vec(),
        Watched { stream: vec![full(50), restored] }.encode_to_vec(),
    ])
}

pub(super) fn attached() -> Vec<(String, Vec<u8>)> {
    use attach_response::Message;
    let joined = v1::JoinResponse {
        cluster: "c1".to_owned(),
        session: 1,
        ttl_ms: 10_000,
        keyspaces: vec![keyspace("orders", 4), keyspace("events", 4)],
    };
    let held = |partition, epoch, draining| v1::Held {
        keyspace: "orders".to_owned(),
        partition,
        epoch,
        ready: false,
        draining,
        divisor: 4,
        ancestors: vec![v1::Ancestor { partition: 0, epoch: 1 }],
    };
    let picture = |revision, complete, held| {
        Message::Assignment(v1::Assignment { revision, complete, held, ..Default::default() })
    };
    let acknowledged = |number, revision, drains| {
        Message::Acknowledgement(v1::Acknowledgement { number, revision, drains, measure: None })
    };
    let drain = v1::DrainLeft { keyspace: "orders".to_owned(), partition: 1, epoch: 2, left_ms: 4_000 };
    let gone = v1::Gone { keyspace: "orders".to_owned(), partition: 0, epoch: 1 };
    let lost = Message::Assignment(v1::Assignment { revision: 9, gone: vec![gone], ..Default::default() });
    let nightly = v1::HeldLock {
        lock: "nightly".to_owned(),
        epoch: 9,
        mode: v1::LockMode::Shared.into(),
        takeover: v1::Takeover::Lease.into(),
        number: 1,
    };
    let locked = Message::Assignment(v1::Assignment {
        revision: 7,
        complete: true,
        locks: vec![nightly],
        ..Default::default()
    });
    let gone = v1::GoneLock { lock: "nightly".to_owned(), epoch: 9, number: 1 };
    let unlocked =
        Message::Assignment(v1::Assignment { revision: 8, gone_locks: vec![gone], ..Default::default() });
    let stream = |messages: Vec<Message>| {
        let stream = messages.into_iter().map(|message| v1::AttachResponse { message: Some(message) });
        Attached { joined: Some(joined.clone()), stream: stream.collect() }.encode_to_vec()
    };
    numbered([
        stream(vec![picture(5, true, vec![held(0, 1, false)]), acknowledged(1, 5, vec![]), lost.clone()]),
        stream(vec![
            acknowledged(1, 0, vec![]),
            picture(5, true, vec![held(0, 1, false), held(1, 2, false)]),
            picture(6, false, vec![held(1, 2, true)]),
            acknowledged(2, 6, vec![drain]),
            lost,
            picture(12, false, vec![held(0, 7, false)]),
            acknowledged(3, 12, vec![]),
        ]),
        stream(vec![locked, acknowledged(1, 7, vec![]), unlocked, acknowledged(2, 8, vec![])]),
    ])
}

pub(super) fn sent() -> Vec<(String, Vec<u8>)> {
    let data = [5_u8; 90];
    let membership =
        v1::RaftStoredMembership::decode(&*super::contract::sample("RaftStoredMembership", 0)).unwrap();
    let header = v1::RaftSnapshotHeader {
        envelope: Some(v1::RaftEnvelope { cluster: "c1".to_owned(), from: 1, to: 2, to_store: 0 }),
        vote: Some(v1::RaftVote { term: 3, node: 1, committed: true }),
        last: Some(v1::RaftLogId { term: 3, index: 20 }),
        membership: Some(membership),
        length: data.len() as u64,
        crc32c: crc32c::crc32c(&data),
    };
    let chunk = |part| v1::RaftSnapshotChunk { part: Some(part) };
    let halves = data.chunks(45).map(|half| chunk(Part::Data(half.to_vec().into())));
    let whole = std::iter::once(chunk(Part::Header(header.clone()))).chain(halves).collect();
    let empty = v1::RaftSnapshotHeader { length: 0, crc32c: 0, ..header };
    numbered([
        Sent { chunks: whole }.encode_to_vec(),
        Sent { chunks: vec![chunk(Part::Header(empty))] }.encode_to_vec(),
    ])
}
