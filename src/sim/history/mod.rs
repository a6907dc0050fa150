//! What happened, as a list of events that an observer wrote down, whoever ran it: the seeded world, or real processes.
//!
//! A history judges nothing; [`crate::checker`] does. Its times are microseconds of one clock, the observer's: true time,
//! which no actor of the history has to know. Its rule is on the order of the list: **the events of one actor stand in
//! the order in which they happened to that actor**. Between actors only the times count, so that what processes report
//! late may be put in wherever it fits.

mod event;
mod fact;
mod grants;
mod recorder;
mod transcript;
mod wire;

pub(crate) use grants::{Grant, unseen};
pub(crate) use transcript::Values;

pub use event::{Call, Ending, Event, OpId, Outcome, What};
pub use fact::Fact;
pub use recorder::{History, HistoryError, Recorder};
