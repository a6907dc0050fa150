//! A snapshot as a stream of messages: one header, then chunks.

use crate::raft::applier::{LibrarySnapshot, Meta};
use crate::raft::limits;
use crate::raft::types::Vote;
use crate::raft::wire::{self, WireError};
use bytes::{Bytes, BytesMut};
use ringfence_api::v1;
use ringfence_api::v1::raft_snapshot_chunk::Part;

/// Cuts a snapshot into messages. The bytes are shared, not copied.
pub(super) fn chunks(
    envelope: v1::RaftEnvelope,
    vote: &Vote,
    snapshot: &LibrarySnapshot,
) -> Result<impl Iterator<Item = v1::RaftSnapshotChunk> + Send + 'static + use<>, WireError> {
    let data = snapshot.snapshot.clone();
    let last = snapshot.meta.last_log_id.as_ref().ok_or(WireError::Missing("last"))?;
    let header = v1::RaftSnapshotHeader {
        envelope: Some(envelope),
        vote: Some(wire::vote_out(vote)),
        last: Some(wire::log_id_out(last)),
        membership: Some(wire::stored_membership_out(&snapshot.meta.last_membership)),
        length: data.len() as u64,
        crc32c: crc32c::crc32c(&data),
    };
    let parts = (0..data.len()).step_by(limits::SNAPSHOT_CHUNK_BYTES).map(move |start| {
        let end = (start + limits::SNAPSHOT_CHUNK_BYTES).min(data.len());
        Part::Data(data.slice(start..end))
    });
    Ok(std::iter::once(Part::Header(header))
        .chain(parts)
        .map(|part| v1::RaftSnapshotChunk { part: Some(part) }))
}

/// Puts a snapshot together again.
#[derive(Debug)]
pub(in crate::raft) struct Assembly {
    vote: Vote,
    meta: Meta,
    length: usize,
    crc32c: u32,
    data: BytesMut,
}

impl Assembly {
    /// Begins with the header, whose envelope has been checked.
    pub(in crate::raft) fn begin(header: v1::RaftSnapshotHeader) -> Result<Assembly, WireError> {
        if header.length > limits::SNAPSHOT_BYTES {
            let limit = limits::SNAPSHOT_BYTES;
            return Err(WireError::Bad(
                "length",
                format!("{} bytes are above the limit of {limit}", header.length),
            ));
        }
        let vote = wire::vote_in(header.vote)?;
        let last = wire::log_id_in(&header.last.ok_or(WireError::Missing("last"))?)?;
        if !vote.committed || last.committed_leader_id().term > vote.leader_id.term {
            return Err(WireError::Bad(
                "last",
                "the snapshot is of a later term than its sender's".to_string(),
            ));
        }
        let membership = header.membership.ok_or(WireError::Missing("membership"))?;
        let meta = Meta { last_log_id: Some(last), last_membership: wire::stored_membership_in(membership)? };
        let length = usize::try_from(header.length).map_err(|e| WireError::Bad("length", e.to_string()))?;
        // Not allocated at once: a header alone must not cost memory.
        Ok(Assembly { vote, meta, length, crc32c: header.crc32c, data: BytesMut::new() })
    }

    /// Takes the next chunk.
    pub(in crate::raft) fn push(&mut self, chunk: &Bytes) -> Result<(), WireError> {
        if self.data.len() + chunk.len() > self.length {
            return Err(WireError::Bad("data", "the chunks are longer than the header says".to_string()));
        }
        self.data.extend_from_slice(chunk);
        Ok(())
    }

    /// The vote of the sender and the whole snapshot.
    pub(in crate::raft) fn finish(self) -> Result<(Vote, LibrarySnapshot), WireError> {
        if self.data.len() != self.length || crc32c::crc32c(&self.data) != self.crc32c {
            return Err(WireError::Bad("data", "the chunks are not what the header says".to_string()));
        }
        Ok((self.vote, LibrarySnapshot { meta: self.meta, snapshot: self.data.freeze() }))
    }
}
