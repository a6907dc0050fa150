//! For the fuzzer of this repository, and no part of the library: it may change at any time.

pub use crate::router::fuzzing::watch;
pub use crate::worker::fuzzing::attach;
