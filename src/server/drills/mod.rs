//! Drills: a worker that is replaced on purpose sends one write that it stamped before, and the storage must refuse it.
//!
//! A drill lives in the memory of the node that leads, and ends with its leadership, with the operator's call, and with
//! the worker's stream, whichever is first; nothing of it is in the replicated state. What moves a partition is what
//! always does: a planned move, or a lease that ran out. So a drill can break no rule, and one that was cut short leaves
//! nothing to clean up.
//!
//! | module | what it is |
//! |---|---|
//! | `desk` | who takes part, and the one drill that runs |
//! | `cast` | who plays whom, and what forbids a drill up front |
//! | `course` | one drill, from the order to the finding |

mod cast;
mod course;
mod desk;

#[cfg(test)]
mod tests;

pub(crate) use course::run;
pub use desk::Drills;
pub(crate) use desk::{DrillId, Seat};
