//! The ringfence coordinator: a replicated map from partitions to owners, with an epoch for every grant.
//!
//! `ringfence serve` is this library with a data directory; `ringfence dev` is it in memory.
//!
//! | module | what it is |
//! |---|---|
//! | [`raft`] | the replicated log, and the only place that names openraft |
//! | [`replica`] | the state as applied here, with what follows it entry by entry |
//! | [`context`] | what the services work with |
//! | [`leader`] | the loop that carries out what a leader decides |
//! | [`workers`] | the service for workers: sessions, renewals, reports |
//! | [`clock`] | the coordinator's clock |

pub mod clock;
pub mod context;
pub mod leader;
pub mod raft;
pub mod refusal;
pub mod replica;
pub mod workers;
