//! The frame of everything on disk: a format version, a checksum, then one message.
//!
//! The store below checks its pages; this checks that what it gives back is what was put in, and that this version of
//! the program knows the format. An unknown version is refused, never guessed at.

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;

/// The format written. A reader knows this one and all before it.
const VERSION: u8 = 1;

const HEADER: usize = 5;

/// A record that cannot be taken for what was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum RecordError {
    #[error("a record is cut short")]
    Short,
    #[error(
        "a record has format {0}, and this version knows formats up to {VERSION}: run the version that wrote it, or a newer one"
    )]
    Version(u8),
    #[error("a record's checksum is {found:08x} and should be {wanted:08x}")]
    Checksum { found: u32, wanted: u32 },
    #[error("a record cannot be read: {0}")]
    Message(String),
}

/// Frames a message.
pub(super) fn encode(message: &impl Message) -> Bytes {
    let mut out = BytesMut::with_capacity(HEADER + message.encoded_len());
    out.put_u8(VERSION);
    out.put_u32_le(0);
    // A growable buffer takes any message.
    message.encode_raw(&mut out);
    let sum = crc32c::crc32c(&out[HEADER..]);
    out[1..HEADER].copy_from_slice(&sum.to_le_bytes());
    out.freeze()
}

/// Takes a message out of its frame.
pub(super) fn decode<M: Message + Default>(record: &Bytes) -> Result<M, RecordError> {
    let Some((&[version, a, b, c, d], _)) = record.split_first_chunk::<HEADER>() else {
        return Err(RecordError::Short);
    };
    if version != VERSION {
        return Err(RecordError::Version(version));
    }
    let (wanted, found) = (u32::from_le_bytes([a, b, c, d]), crc32c::crc32c(&record[HEADER..]));
    if wanted != found {
        return Err(RecordError::Checksum { found, wanted });
    }
    M::decode(record.slice(HEADER..)).map_err(|e| RecordError::Message(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_api::v1::RaftLogId;

    #[test]
    fn a_record_is_read_back_and_a_changed_one_is_refused() {
        let id = RaftLogId { term: 7, index: 300 };
        let record = encode(&id);
        assert_eq!(decode::<RaftLogId>(&record), Ok(id));
        for at in 0..record.len() {
            let mut changed = record.to_vec();
            changed[at] ^= 4;
            let error = decode::<RaftLogId>(&Bytes::from(changed)).expect_err("a flipped bit");
            assert_eq!(matches!(error, RecordError::Version(5)), at == 0, "{error}");
        }
        assert_eq!(decode::<RaftLogId>(&record.slice(..3)), Err(RecordError::Short));
    }
}
