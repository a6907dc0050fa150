//! Ownerships for your own tests, without a coordinator.
//!
//! [`Granted`] makes an [`Ownership`](crate::Ownership) like the one an owner function gets, and a [`Control`] that
//! does to it what a coordinator and a bad day would: revoke it, lose it, pause the process, cut the connection,
//! grant it anew.
//!
//! Time stands still unless [`Control::pause`] moves it, so a test of what happens after a lease ran out takes no time
//! and never flickers. As in a real process, a pause is noticed by the very next call.
//!
//! ```
//! use ringfence::fence::{FenceError, MemoryFence};
//! use ringfence::testkit::Granted;
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (owner, mut control) = Granted::new("orders", 17).epoch(42).start()?;
//! let storage = MemoryFence::new(owner.token().cluster().clone());
//! storage.raise(owner.token())?;
//!
//! // An operation of yours begins, the process is paused for longer than its lease, and goes on.
//! let stamp = owner.stamp()?;
//! control.pause(Duration::from_secs(60));
//! assert!(owner.stamp().is_err(), "a new operation does not begin");
//!
//! // Another owner has come meanwhile. The write that was begun is on its way, and the fence is what stops it.
//! let next = control.next_epoch()?;
//! storage.raise(next.token())?;
//! let late = storage.guarded(&stamp, || panic!("a refused write never runs"));
//! assert!(matches!(late, Err(FenceError::Fenced(_))));
//! # Ok(())
//! # }
//! ```

mod control;
mod granted;
mod simulated;

pub use control::Control;
pub use granted::Granted;
pub use simulated::SimulatedMachine;
