//! The worker's part in a drill: it is replaced on purpose, and then sends a write that it stamped before.
//!
//! Only a worker that was built with [`Builder::allow_drill`](super::Builder::allow_drill) takes part, and in one drill
//! at a time. A drill changes nothing about leases and epochs: it stops renewing, or is moved from, like any worker, and
//! what it holds is a stamp like any other.
//!
//! | file | what it is |
//! |---|---|
//! | `probe` | the application's probe write, and what became of it |
//! | `course` | one drill, from the order to the finding |
//! | `desk` | the one drill that runs, and whether it stalls the renewals |
//!
//! Its rule: a drill is bounded on this side. It ends at its limit, when the stream to the coordinator ends, when the
//! worker leaves, and with the worker; then the held write is dropped, unsent, and the renewals go on.

mod course;
mod desk;
mod probe;

pub use probe::Probed;

pub(super) use course::Course;
pub(super) use desk::Drilling;
pub(super) use probe::{Probe, boxed};
