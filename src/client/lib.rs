//! Own partitions, stamp writes, and lose ownership safely: the ringfence SDK.
//!
//! A coordinator gives every partition of a *keyspace* one owner at a time and raises the partition's *epoch* at every
//! handoff. A worker stamps each write with a *fencing token* that carries the epoch, and a *fence* at the storage
//! refuses a token that is older than one it has seen. So an owner that was replaced cannot write, whatever its clock
//! says. A resource that checks no token is not protected: there the lease is advice.
//!
//! | module | what it is |
//! |---|---|
//! | [`router`] | maps key -> partition -> owner, for those who call the workers |
//! | [`admin`] | what an operator asks of the cluster |
//! | [`net`] | endpoints, and the connections to the coordinator |
//! | [`fence`] | fencing tokens, fences, and a fence for each storage |
//! | [`ids`] | names, ids and epochs |
//!
//! Every call has a deadline and ends with an [`Error`] that says what to do; [`Error::kind`] is for programs.

#![forbid(unsafe_code)]

pub mod admin;
mod error;
pub mod net;
pub mod router;

pub use error::{Error, ErrorKind};
pub use ringfence_core::ids;
pub use ringfence_fence as fence;
