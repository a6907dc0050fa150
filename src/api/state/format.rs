//! The format version that every entry and every snapshot begins with.

use super::error::DecodeError;
use crate::v1;
use prost::Message;

/// The format that this version writes, and the newest that it reads.
pub const FORMAT: u32 = 1;

/// The message in these bytes, once its format is one that this version reads.
///
/// The format is looked at before anything else: a newer format may well be a message that reads as an older one, with
/// what is new in it passed over.
pub(super) fn read<M: Message + Default>(what: &'static str, bytes: &[u8]) -> Result<M, DecodeError> {
    let damaged = |e: prost::DecodeError| DecodeError::Damaged { what, why: e.to_string() };
    let found = v1::StateFormat::decode(bytes).map_err(damaged)?.format;
    if found != FORMAT {
        return Err(DecodeError::Format { what, found, reads: FORMAT });
    }
    M::decode(bytes).map_err(damaged)
}
