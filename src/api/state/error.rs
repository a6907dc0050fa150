//! Why bytes are no log entry or no snapshot.

use crate::convert::InvalidField;
use ringfence_core::state::PartsError;

/// Bytes that cannot be read. The node that meets them stops: passing over an entry would make its state differ from
/// the others'.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// It is of a format that this node does not read.
    #[error(
        "the {what} is of format {found} and this node reads formats 1 to {reads}; {}",
        if .found > .reads { "a newer node wrote it: upgrade this node" } else { "it is damaged, or no node wrote it" }
    )]
    Format {
        /// What was read: `log entry` or `snapshot`.
        what: &'static str,
        /// Its format.
        found: u32,
        /// The newest format that this node reads; it reads all from 1 up to it.
        reads: u32,
    },
    /// It is not a message at all.
    #[error("the {what} is damaged: {why}")]
    Damaged {
        /// What was read.
        what: &'static str,
        /// Where it breaks off.
        why: String,
    },
    /// A field is missing or wrong.
    #[error("the {what} is damaged, or a newer node wrote it: {why}")]
    Field {
        /// What was read.
        what: &'static str,
        /// The field, by its path.
        why: InvalidField,
    },
    /// Every field is right and together they are no state.
    #[error("the snapshot contradicts itself: {0}")]
    Parts(#[from] PartsError),
}
