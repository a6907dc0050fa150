//! The ringfence coordinator: a replicated map from partitions to owners, with an epoch for every grant.
//!
//! `ringfence serve` is this library with a data directory; `ringfence dev` is it in memory.
//!
//! | module | what it is |
//! |---|---|
//! | [`coordinator`] | a node inside a program, in three lines |
//! | [`Surroundings`], [`files`] | what a node takes from its machine, so that a simulator can bring its own |
//! | [`settings`] | how a node is run, checked as a whole |
//! | `node` | the life of a node, from its data directory to its end |
//! | `port` | the one port: what is served on it, and within which limits |
//! | [`identity`] | who a node is, across its restarts |
//! | `formation` | how nodes become one cluster, and how a node is added |
//! | [`raft`] | the replicated log, and the only place that names openraft |
//! | [`replica`] | the state as applied here, with what follows it entry by entry |
//! | [`context`] | what the services work with |
//! | `credentials` | who may speak for a session: protocol version, cluster and secret |
//! | `contact` | whether this node still hears of a leader |
//! | [`leader`] | the loop that carries out what a leader decides |
//! | `leaderless` | when a missing leader is worth a word in the log |
//! | [`workers`] | the service for workers: sessions, renewals, reports |
//! | `json` | the same calls over HTTP with JSON |
//! | [`map`] | the service for callers: watch and lookup |
//! | `locks` | the service for named locks |
//! | `admin` | the service for operators |
//! | [`drills`] | a worker that is replaced on purpose, to see its late write refused |
//! | [`fences`] | writes that storage refused, and fences that are raised again |
//! | [`refusal`] | what a refusal of the state means to a client |
//! | `readiness` | whether the node is worth sending calls to |
//! | `text` | foreign text, made fit to show |
//! | `late` | the place of a service that comes later |
//! | [`clock`] | the coordinator's clock |
//! | [`simulation`] | a trace replayed against a leader, without a coordinator |

mod admin;
pub mod clock;
mod contact;
pub mod context;
pub mod coordinator;
mod credentials;
pub mod drills;
pub mod fences;
pub mod files;
mod formation;
#[doc(hidden)]
pub mod fuzzing;
#[cfg(test)]
mod golden;
pub mod identity;
mod json;
mod late;
pub mod leader;
mod leaderless;
mod locks;
pub mod map;
mod node;
mod placement;
mod port;
pub mod raft;
mod readiness;
pub mod refusal;
pub mod replica;
pub mod settings;
mod surroundings;
#[cfg(test)]
mod testing;
mod text;
pub mod workers;

pub use coordinator::{Coordinator, Launch};
pub use formation::FormationError;
pub use node::NodeError;
pub use ringfence_core::simulation;
pub use settings::{Given, LogFormat, LogSettings, Settings, SettingsError};
pub use surroundings::{Connection, Incoming, Surroundings};
