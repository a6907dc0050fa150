//! Named locks: a lease with a queue and a fencing token.
//!
//! ```no_run
//! # async fn example(storage: &ringfence::fence::MemoryFence) -> Result<(), Box<dyn std::error::Error>> {
//! use ringfence::lock::Locks;
//!
//! let locks = Locks::builder("http://127.0.0.1:7600").connect().await?;
//! let guard = locks.lock("nightly").acquire().await?;
//! storage.raise(guard.token())?; // before anything is read
//! let stamp = guard.stamp()?; // when the operation starts
//! storage.guarded(&stamp, || { /* the write */ })?; // refused when a later holder has written
//! guard.release().await?;
//! # locks.close().await?;
//! # Ok(())
//! # }
//! ```
//!
//! | type | what it is |
//! |---|---|
//! | [`Locks`] | a session to take locks on: a worker's ([`Worker::locks`](crate::Worker::locks)), or one of its own |
//! | [`LockGuard`] | a lock that is held: stamps writes, tells when it is lost |
//! | [`EfficiencyGuard`] | the other kind: it saves work, protects nothing, and has no token |
//! | [`Election`], [`Leadership`] | a lock whose holder leads, and who that is |
//!
//! **A lock is a lease.** Its holder cannot know that it still has it: it may be paused after the last look, for as long as it
//! likes. What a lock guards is safe only where each write carries the [stamp](LockGuard::stamp) and the storage checks it.
//! Where the storage checks nothing, the lock makes a double run rare, and an [efficiency lock](Locks::efficiency) says so.
//!
//! **The rules of a holder** are a worker's. Only an acknowledged renewal makes the lease longer, whether a lock is held is a
//! comparison with the clock on the caller's path, and what is lost is lost: a guard never becomes valid again under another
//! epoch, and a lock is never taken anew behind its holder's back. When a session was lost, guards say so, and whoever waits
//! for a lock gets an error; ask anew, and mind that others may have held it meanwhile. A change of the leader, or of the
//! connection, loses nothing.
//!
//! **In one process** two tasks that want the same lock alone exclude each other as two processes do, in the order in which
//! they asked; nobody holds a lock twice, so a task that asks again for what it holds waits for itself. Only the first of them
//! waits at the coordinator: the process has one place in the queue there. Those that [share](LockRequest::shared) a lock on
//! the same terms share the session's grant, with one epoch, and the last of them gives it back; one that shares a lock joins
//! its process' grant even while others wait at the coordinator, so a process in which it never ends keeps them waiting.
//!
//! **What it is not.** Not for rows, and not for what changes hands a thousand times a second: each grant is an entry of the
//! coordinator's log, written to the disks of a majority. Keys by the thousand are what partitions are for.

pub(crate) mod desk;
mod efficiency;
mod election;
mod guard;
pub(crate) mod hold;
mod holder;
mod locks;
mod not_held;
mod observe;
mod request;
mod stamping;

pub use crate::admin::Takeover;
pub use efficiency::{EfficiencyGuard, EfficiencyRequest};
pub use election::{Election, Leadership};
pub use guard::{LockGuard, LockRead};
pub use holder::{Busy, Holder};
pub use locks::{Builder, Locks};
pub use not_held::{NotHeld, Why};
pub use observe::{Leader, Leaders};
pub use request::LockRequest;
pub use stamping::LockStamps;
