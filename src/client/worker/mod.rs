//! A worker: joins, is granted partitions, runs one task for each, and gives them back.
//!
//! | file | what it is |
//! |---|---|
//! | `builder` | what a worker is made of, checked as a whole |
//! | `handle` | [`Worker`]: serve until a signal, leave |
//! | `keeper` | the thread that keeps the session: joins, and joins anew after a loss |
//! | `life` | one session, from join to its end: the loop |
//! | `tasks` | one task for each ownership, from grant to release |
//! | `link` | the stream to the coordinator: renewals out, acknowledgements and assignments in |
//! | `outbox` | what the coordinator is to be told, in batches, until it knows |
//! | `host` | whether this process deserves to be renewed for |
//! | `drill` | its part in a drill: it is replaced on purpose, and sends a late write |
//! | `session`, `wire` | the join; the messages in the lessee's terms |
//!
//! Its rules. Nothing is granted to a task before every declared fence is raised. A partition is released when its
//! task has ended, and never before; one whose task has not ended is left to its lease. The lease is renewed while
//! tasks drain. A stream that ends is a reconnect; only the coordinator's word, or the lease's end, is a loss. A
//! session that was lost is not revived: the worker joins anew, and never over a live session of its name.
//!
//! Who does what where: all of this runs on one thread of its own, so that a busy executor cannot starve the renewals.
//! The owners' tasks, and the raising of fences, run on the runtime in which [`Builder::join`] was called.

mod builder;
mod drill;
pub(crate) mod fuzzing;
mod handle;
mod host;
mod keeper;
mod life;
mod link;
mod meter;
mod outbox;
mod owner;
mod session;
mod signal;
mod tasks;
mod wire;

#[cfg(test)]
mod tests;

pub use builder::Builder;
pub use drill::Probed;
pub use handle::Worker;
pub use signal::shutdown_signal;
