//! The pure core of ringfence: ids and epochs, the replicated state, leases, and placement.
//!
//! Nothing here is async, does I/O, reads a clock or draws a random number. Time comes in as an argument
//! ([`time::Instant`]) and decisions go out as values, so the same code runs on a coordinator, in the simulator and
//! under a model checker.
//!
//! | module | what it is |
//! |---|---|
//! | [`ids`] | names, ids and epochs; an id gives nothing away |
//! | [`state`] | the replicated state and `State::apply` |
//! | [`lead`] | what a leader decides: timers, presence, repairs and moves |
//! | [`lease`] | the lessor (the leader's side of its clock) and the lessee (the holder's side) |
//! | [`placement`] | which worker should own what, and why |
//! | [`simulation`] | a trace of what happens to workers, replayed against a leader |

#![forbid(unsafe_code)]

pub mod ids;
pub mod lead;
pub mod lease;
mod mutants;
pub mod placement;
pub mod simulation;
pub mod state;
pub mod time;
