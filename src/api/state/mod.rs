//! What coordinator nodes write down: log entries and snapshots as bytes, and back.
//!
//! The bytes are protobuf with a format version (`proto/ringfence/v1/state.proto`), and the same state gives the same
//! bytes on every node. It is not the public contract: that is [`crate::convert`].
//!
//! The rule: what cannot be read in full is refused, never guessed. A reader that passed over what it does not know
//! would go on from another state than its peers.

mod command;
mod directive;
mod entry;
mod error;
mod fields;
mod format;
mod lock;
mod outcome;
mod partition;
mod plan;
mod refusal;
mod session;
mod snapshot;
mod workers;

#[cfg(test)]
pub(crate) mod tests;

pub use entry::{decode_entry, encode_entry};
pub use error::DecodeError;
pub use format::FORMAT;
pub use snapshot::{decode_state, encode_state};
