//! Messages between nodes.

use crate::fuzz::mutate::split_name;
use prost::Message;
use ringfence_api::v1;
use ringfence_server::fuzzing;

/// A message under its name in `raft.proto` or `formation.proto`.
pub(super) fn message(input: &[u8]) -> Result<(), String> {
    let (name, bytes) = split_name(input);
    let name = String::from_utf8_lossy(name);
    let read = fuzzing::peer_message(&name, bytes).or_else(|| fuzzing::formation_message(&name, bytes));
    read.unwrap_or_else(|| Err("no message of that name".to_owned()))
}

/// A snapshot that a leader sends.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Sent {
    #[prost(message, repeated, tag = "1")]
    pub(crate) chunks: Vec<v1::RaftSnapshotChunk>,
}

pub(super) fn snapshot_stream(input: &[u8]) -> Result<(), String> {
    use v1::raft_snapshot_chunk::Part;
    let wire = Sent::decode(input).map_err(|e| e.to_string())?;
    let data = |chunk: &v1::RaftSnapshotChunk| match &chunk.part {
        Some(Part::Data(data)) => data.to_vec(),
        _ => Vec::new(),
    };
    let sent: Vec<u8> = wire.chunks.iter().flat_map(data).collect();
    let taken = fuzzing::snapshot_stream(wire.chunks)?;
    assert!(taken == sent, "a snapshot is not what was sent");
    Ok(())
}
