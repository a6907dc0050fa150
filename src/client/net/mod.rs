//! Connections to the coordinator.
//!
//! A client is given [`Endpoints`], learns the other nodes and the leader from the cluster's answers, and asks until a
//! deadline: [`Coordinator`]. What a call meets on its way decides whether it is sent again; that decision is made in
//! one place (`attempts`), for reads, for calls that may be repeated, and for those that may not.
//!
//! It keeps no lease and no map. Its rules: every call has a deadline that fires whatever the network does, a wait
//! between rounds is jittered, and each node is asked once a round, so that no chain of hints goes in a circle.

mod attempts;
mod backoff;
mod coordinator;
mod dial;
mod endpoints;
#[cfg(test)]
pub(crate) mod fake;
mod pool;
#[cfg(test)]
mod tests;
mod trouble;

pub use coordinator::Coordinator;
pub use dial::{Dial, TcpDial};
pub use endpoints::{Endpoint, Endpoints, EndpointsError, MAX_ENDPOINTS, without_secrets};

pub(crate) use attempts::{Call, Effect, GaveUp, Route};
pub(crate) use backoff::Backoff;
pub(crate) use coordinator::{admin, fences, locks, map, placement, worker};
pub(crate) use pool::Target;
pub(crate) use trouble::Trouble;
