//! A trace of what happens to workers, replayed against a leader, to see what a policy would do before it is trusted.
//!
//! There is no second set of rules here. The state and the [`Leadership`](crate::lead::Leadership) are the shipped ones,
//! and only what surrounds them is made up: one leader that is never lost, entries that apply at once, and workers that
//! release and load in a time that the trace states. So budgets, rates, settling, cool-downs, brakes and leases are as
//! in a cluster, and the same trace gives the same report, always.
//!
//! Not simulated: elections, messages that take time, owners that fail or do not release.
//!
//! `docs/placement.md` describes the form of a trace.
//!
//! | file | idea |
//! |---|---|
//! | `json` | the part of JSON that a trace is written in, with places |
//! | `fields` | the fields of one object, each asked for once |
//! | `event` | what a trace says |
//! | `reader` | a trace, line by line |
//! | `replay` | the world around the leader |
//! | `ledger` | what is counted of it |
//! | `report` | what comes out |

mod event;
mod fields;
mod json;
mod ledger;
mod reader;
mod replay;
mod report;

#[cfg(test)]
mod tests;

pub use event::{Event, MAX_COOL_DOWN, MAX_STEP, MIN_STEP, Setup};
pub use reader::{Line, MAX_LINE_BYTES, MAX_NAMED_PARTITIONS, MAX_TRACE, TraceError, TraceReader};
pub use replay::{REST_WITHIN, Simulation, SimulationError};
pub use report::{MAX_SAMPLES, Moves, Report, Sample, Totals};
