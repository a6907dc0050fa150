//! What the fuzzer reads of a node's own: the messages of its peers, and the records and files of its disk.
//!
//! Each function reads as the node does, and writes again what it has read. What then reads as something else is a panic,
//! because it is a defect here and no input of a peer's.

use super::error::StartError;
use super::health::Health;
use super::log::{LogBackend, LogOp, LogStore, Stored};
use super::net::Assembly;
use super::snapshot::{FileSnapshots, SnapshotStore};
use super::types::Entry;
use super::{Disk, record, wire};
use crate::files::SystemFiles;
use bytes::Bytes;
use futures_util::FutureExt as _;
use openraft::storage::RaftLogReader as _;
use prost::Message;
use ringfence_api::v1;
use std::fmt::{Debug, Display};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Reads a message of a peer by its name in `raft.proto`; `None` when there is none of that name.
pub fn peer_message(name: &str, bytes: &[u8]) -> Option<Result<(), String>> {
    Some(match name {
        "RaftAppendRequest" => again(bytes, |m: v1::RaftAppendRequest| {
            let envelope = m.envelope.clone().unwrap_or_default();
            wire::append_in(m).map(|read| wire::append_out(&read, envelope))
        }),
        "RaftAppendResponse" => again(bytes, |m: v1::RaftAppendResponse| {
            let store = m.store;
            wire::appended_in(m).map(|read| wire::appended_out(&read, store))
        }),
        "RaftVoteRequest" => again(bytes, |m: v1::RaftVoteRequest| {
            let envelope = m.envelope.clone().unwrap_or_default();
            wire::ask_in(m).map(|read| wire::ask_out(&read, envelope))
        }),
        "RaftVoteResponse" => again(bytes, |m| wire::voted_in(m).map(|read| wire::voted_out(&read))),
        "RaftTransferRequest" => again(bytes, |m: v1::RaftTransferRequest| {
            let envelope = m.envelope.clone().unwrap_or_default();
            wire::transfer_in(m).map(|read| wire::transfer_out(&read, envelope))
        }),
        "RaftEntry" => again(bytes, |m| wire::entry_in(m).map(|read| wire::entry_out(&read))),
        "RaftStoredMembership" => {
            again(bytes, |m| wire::stored_membership_in(m).map(|read| wire::stored_membership_out(&read)))
        }
        _ => return None,
    })
}

/// Puts a snapshot together that a leader sends in these messages.
///
/// # Errors
/// Why it is none.
pub fn snapshot_stream(chunks: Vec<v1::RaftSnapshotChunk>) -> Result<Bytes, String> {
    use v1::raft_snapshot_chunk::Part;
    let mut parts = chunks.into_iter().map(|chunk| chunk.part);
    let Some(Some(Part::Header(header))) = parts.next() else { return Err("the header is missing".into()) };
    let mut assembly = Assembly::begin(header).map_err(text)?;
    for part in parts {
        let Some(Part::Data(data)) = part else { return Err("a second header".into()) };
        assembly.push(&data).map_err(text)?;
    }
    assembly.finish().map(|(_, snapshot)| snapshot.snapshot).map_err(text)
}

/// A message as a record of the log.
pub fn record(message: &impl Message) -> Bytes {
    record::encode(message)
}

/// Reads a log as a node does that starts. The log as it would be written again.
///
/// # Errors
/// Why it is damaged.
pub fn log(stored: Stored) -> Result<Stored, String> {
    let entries = entries(stored.clone()).map_err(text)?;
    let records = entries.iter().map(|e| (e.log_id.index(), record::encode(&wire::entry_out(e)))).collect();
    let again = Stored { entries: records, ..stored };
    assert_eq!(
        self::entries(again.clone()).as_ref().ok(),
        Some(&entries),
        "what is written is not what was read"
    );
    Ok(again)
}

fn entries(stored: Stored) -> Result<Vec<Entry>, StartError> {
    let mut log = LogStore::open(Box::new(Loaded(stored)), Arc::new(Health::new()), |_| Ok(()))?;
    let read = log.try_get_log_entries(..).now_or_never().expect("the log is in memory");
    Ok(read.expect("the log is in memory"))
}

/// A log that is read once.
struct Loaded(Stored);

impl LogBackend for Loaded {
    fn load(&mut self) -> io::Result<Stored> {
        Ok(std::mem::take(&mut self.0))
    }

    fn commit(&mut self, _: &[LogOp]) -> io::Result<()> {
        Ok(())
    }

    fn blocks(&self) -> bool {
        false
    }
}

/// The two stores of a node, apart.
pub fn stores(disk: Disk) -> (Box<dyn LogBackend>, Box<dyn SnapshotStore>) {
    (disk.log, disk.snapshots)
}

/// A directory of snapshot files.
///
/// # Errors
/// When it cannot be read.
pub fn snapshot_files(dir: &Path) -> io::Result<Box<dyn SnapshotStore>> {
    Ok(Box::new(FileSnapshots::open(Arc::new(SystemFiles), dir)?))
}

/// Reads a message, writes it, and reads it again.
fn again<M, E>(bytes: &[u8], pass: impl Fn(M) -> Result<M, E>) -> Result<(), String>
where
    M: Message + Default + PartialEq + Debug,
    E: Display + Debug,
{
    let first = pass(M::decode(bytes).map_err(text)?).map_err(text)?;
    let written = M::decode(&*first.encode_to_vec()).expect("what is written is a message");
    let second = pass(written).expect("what is written is accepted");
    assert!(first == second, "what is written is not what was read: {second:?} after {first:?}");
    Ok(())
}

fn text(error: impl Display) -> String {
    error.to_string()
}
