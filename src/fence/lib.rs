//! Fencing tokens, the contract of a fence, and a fence for each storage.
//!
//! A [`FencingToken`] names a cluster, a scope (a partition or a lock) and an epoch; every write carries one. A *fence*
//! at the storage remembers the highest epoch it has seen of each scope and refuses anything older, so a replaced owner
//! cannot write, however long it slept and whatever its clock says.
//!
//! ```
//! use ringfence_core::ids::ClusterId;
//! use ringfence_fence::{FenceError, FencingToken, MemoryFence};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let fence = MemoryFence::new(ClusterId::new("prod")?);
//! let old: FencingToken = "prod/orders/17@33".parse()?;
//! let new: FencingToken = "prod/orders/17@34".parse()?;
//!
//! fence.raise(&old)?; // an owner raises the fence before it reads anything
//! fence.guarded(&old, || { /* its write */ })?;
//!
//! fence.raise(&new)?; // the next owner has come, and the old one has not heard of it
//! match fence.guarded(&old, || unreachable!("a refused write never runs")) {
//!     Err(FenceError::Fenced(f)) => assert_eq!((f.own().get(), f.highest().get()), (33, 34)),
//!     other => panic!("{other:?}"),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # The contract
//!
//! 1. A **check** accepts an epoch that is not below the highest seen and remembers it; equal is the owner going on. It
//!    refuses the lower one with both numbers, and a refusal changes nothing.
//! 2. A **raise** is a check without a write. Only a raise makes the first row of a scope: a write to a scope that nobody
//!    has raised is refused. The owner raises before it reads, or it may read what a replaced owner is about to change.
//! 3. Check and write are **one step in the storage**. What stands between them is where a replaced owner slips through.
//! 4. A raise is **durable before it answers**. A fence only moves forward and is **never deleted**, expired or collected.
//! 5. A fence belongs to **one cluster**; a write without a token is refused.
//!
//! The rule itself is [`HighWater`], a pure function that every adapter calls. Each adapter passes [`conformance`],
//! which is public: run it against storage of your own.
//!
//! | module or type | what it is |
//! |---|---|
//! | [`FencingToken`] | what a write carries |
//! | [`HighWater`] | what a fence remembers of a scope, and the rule |
//! | [`FenceError`], [`Fenced`] | why a fence said no |
//! | [`Fence`], [`Enforces`], [`DeclaredFence`] | how an owner raises the fences it declared; what enforces and what only advises |
//! | [`ObserveOnly`] | the first rung of adoption: count, refuse nothing |
//! | [`MemoryFence`] | a fence in this process |
//! | `sqlite` (features `rusqlite`, `sqlx-sqlite`) | a fence in SQLite, in the user's own transaction |
//! | `postgres` (features `tokio-postgres`, `sqlx-postgres`) | a fence in PostgreSQL, in the user's own transaction |
//! | `mysql` (feature `sqlx-mysql`) | a fence in MariaDB and MySQL, in the user's own transaction |
//! | `redis` (feature `redis`) | a fence in Redis or Valkey, in one script with the user's own commands |
//! | `etcd` (feature `etcd`) | a fence in etcd, in one transaction with the user's own |
//! | `log` (feature `log`, Unix) | a log in a file, checked under its lock; segments whose readers refuse |
//! | `object` (feature `object-store`) | a fence in an object store (S3, GCS, Azure, a local folder), in the manifest that names the data |
//! | [`effects`] | what no fence can refuse, such as a payment: a key that every owner derives alike, and a record of what may have happened |
//! | `service` (features `tower`, `tonic`) | between two services: layers that stamp requests, and that refuse them |
//! | `gateway` (feature `gateway`) | a folder of files that has one way in, with a fence in it |
//! | [`header`] | how tokens travel beside a request, in every language |
//! | [`conformance`] | the rules as tests, and broken storages that they find |
//!
//! A write that timed out is *unknown*, not "not written": read before deciding to write it again.

#![forbid(unsafe_code)]

pub mod conformance;
pub mod effects;
mod error;
#[cfg(feature = "etcd")]
pub mod etcd;
mod fence;
#[cfg(all(feature = "gateway", unix))]
pub mod gateway;
pub mod header;
mod high_water;
#[cfg(all(feature = "log", unix))]
pub mod log;
mod memory;
#[cfg(feature = "sqlx-mysql")]
pub mod mysql;
#[cfg(feature = "object-store")]
pub mod object;
mod observe;
#[cfg(any(feature = "tokio-postgres", feature = "sqlx-postgres"))]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(any(feature = "rusqlite", all(feature = "log", unix)))]
mod reply;
#[cfg(feature = "tower")]
pub mod service;
#[cfg(any(feature = "rusqlite", feature = "sqlx-sqlite"))]
pub mod sqlite;
mod token;

pub use error::{Blocked, FenceError, FenceErrorKind, Fenced};
pub use fence::{AdvisoryRefused, CannotCheck, DeclaredFence, Enforcement, Enforces, Fence, FenceFuture};
pub use high_water::{HighWater, MAX_JUMP, same_cluster};
pub use memory::{MemoryFence, ScopeFence};
pub use observe::{ObserveOnly, Observed, ObservedCounts};
pub use token::{FencingToken, Short, TokenError};
