//! Own partitions, stamp writes, and lose ownership safely: the ringfence SDK.
//!
//! A coordinator gives every partition of a *keyspace* one owner at a time and raises the partition's *epoch* at every
//! handoff. A worker stamps each write with a *fencing token* that carries the epoch, and a *fence* at the storage
//! refuses a token that is older than one it has seen. So an owner that was replaced cannot write, whatever its clock
//! says. A resource that checks no token is not protected: there the lease is advice.
//!
//! ```no_run
//! use ringfence::{Ownership, Worker, shutdown_signal};
//! # use ringfence::FencingToken;
//! # type Failure = Box<dyn std::error::Error + Send + Sync>;
//! # struct Order;
//! # struct Ledger;
//! # impl Ledger {
//! #     async fn open(_: &FencingToken) -> Result<Ledger, Failure> { Ok(Ledger) }
//! #     async fn next_order(&mut self) -> Order { Order }
//! #     async fn write(&mut self, _: &FencingToken, _: Order) -> Result<(), Failure> { Ok(()) }
//! #     async fn flush(self) -> Result<(), Failure> { Ok(()) }
//! # }
//!
//! #[tokio::main]
//! async fn main() -> Result<(), ringfence::Error> {
//!     let worker = Worker::builder("worker-1")
//!         .coordinator("http://127.0.0.1:7600")
//!         .own("orders", orders)
//!         .join()
//!         .await?;
//!     worker.serve_until(shutdown_signal()).await
//! }
//!
//! /// Owns one partition of `orders`, from its grant until it is wanted back.
//! async fn orders(partition: Ownership) -> Result<(), Failure> {
//!     let mut ledger = Ledger::open(partition.token()).await?; // raises the fence to this epoch, then reads
//!     partition.ready().await?; // callers may come
//!     while let Some(order) = partition.until_revoked(ledger.next_order()).await {
//!         let stamp = partition.stamp()?; // when the operation starts
//!         ledger.write(&stamp, order).await?; // refused by the storage when a newer owner has come
//!     }
//!     ledger.flush().await // and returning gives the partition back
//! }
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | [`worker`] | joins, runs one task for each partition it is granted, gives them back |
//! | [`ownership`] | one partition under one epoch: stamps, leased reads, when to stop |
//! | [`lock`] | named locks with a token, efficiency locks, elections |
//! | [`testkit`] | ownerships for your own tests, without a coordinator |
//! | [`router`] | maps key -> partition -> owner, for those who call the workers |
//! | [`refusals`] | telling of writes that a fence refused |
//! | [`admin`] | what an operator asks of the cluster |
//! | [`net`] | endpoints, and the connections to the coordinator |
//! | [`fence`] | fencing tokens, fences, and a fence for each storage |
//! | [`ids`] | names, ids and epochs |
//!
//! Every call has a deadline and ends with an [`Error`] that says what to do; [`Error::kind`] is for programs.

// One module maps a page to notice a fork; see `fork`.
#![deny(unsafe_code)]

pub mod admin;
mod clock;
mod error;
mod fork;
#[doc(hidden)]
pub mod fuzzing;
pub mod lock;
pub mod net;
pub mod ownership;
pub mod refusals;
pub mod router;
pub mod testkit;
pub mod worker;

pub use error::{Error, ErrorKind};
pub use fence::FencingToken;
pub use lock::{LockGuard, Locks};
pub use ownership::{NotOwner, Ownership};
pub use refusals::{Refusals, StoreRefusals};
pub use ringfence_core::ids;
pub use ringfence_fence as fence;
pub use worker::{Worker, shutdown_signal};

/// The README's example is compiled like any other.
#[cfg(all(doctest, feature = "rusqlite"))]
#[doc = include_str!("../../README.md")]
struct Readme;

/// And so is that of the page about drills.
#[cfg(all(doctest, feature = "rusqlite"))]
#[doc = include_str!("../../docs/drill.md")]
struct DrillPage;

/// And that of the page about locks.
#[cfg(doctest)]
#[doc = include_str!("../../docs/locks.md")]
struct LocksPage;

/// And that of the page about refused writes.
#[cfg(doctest)]
#[doc = include_str!("../../docs/refusals.md")]
struct RefusalsPage;
