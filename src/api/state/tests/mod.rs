//! Entries and snapshots as bytes: the same behind the bytes, pinned for ever, and never a panic.

mod golden;
mod hostile;
mod round_trip;
pub(crate) mod sample;

/// Random commands that fit the state they meet; the core's own tests are made of them too.
#[path = "../../../core/state/tests/random.rs"]
mod random;

/// What `random` is written against.
mod core {
    pub(super) use ringfence_core::{ids, placement, state};
}
