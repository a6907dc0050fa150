//! A log in a file, each entry of which says under which epochs it was written: append-only state for one machine, and
//! segments for file systems that several machines share.
//!
//! ```
//! use ringfence_core::ids::ClusterId;
//! use ringfence_fence::log::FencedLog;
//! use ringfence_fence::{FenceError, FencingToken};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("orders.log");
//! let mut log = FencedLog::install(&path, &ClusterId::new("prod")?)?;
//! let (old, new): (FencingToken, FencingToken) = ("prod/orders/17@33".parse()?, "prod/orders/17@34".parse()?);
//! log.raise(&old)?; // the epoch is on the disk; now the owner reads
//! log.read(|entry| drop(entry.payload))?;
//! log.append(&[old.clone()], b"order 1 is paid")?; // checked, written and flushed, in one step
//!
//! let mut next = FencedLog::open(&path, &ClusterId::new("prod")?)?; // another process
//! next.raise(&new)?;
//! assert!(matches!(log.append(&[old], b"late"), Err(FenceError::Fenced(_)))); // and nothing is written
//! # Ok(())
//! # }
//! ```
//!
//! | | [`FencedLog`] | [`SegmentWriter`] and [`SegmentReader`] |
//! |---|---|---|
//! | where | a disk of one machine | any file system with atomic links, NFS among them |
//! | what excludes | a lock of the file, held over check, write and fsync | nothing: each epoch has a file of its own, and readers refuse what comes late |
//! | a replaced owner's append | is refused | may be *answered* where directories are cached; no reader is shown it |
//! | in the types | [`LogRaiser`] is [`Enforces`](crate::Enforces) | [`SegmentFence`] is not: advisory |
//!
//! # What it rests on
//!
//! - **Lock, check, append and fsync are one step.** Whoever is stopped in the middle keeps the lock, and a raise answers
//!   [`FenceError::Busy`](crate::FenceError::Busy), naming the process; whoever is stopped before it finds the newer epoch when
//!   it goes on. `flock` is advisory: a program that writes without asking is not stopped. Its records do not fit into the
//!   chain, and are found.
//! - **Nothing is answered before its fsync**, and after a failed one the handle writes nothing any more: a second fsync may
//!   succeed although the pages of the first are lost.
//! - **Every record has a checksum, a number, and the checksum of the one before.** What an unfinished write leaves at the
//!   end is cut off by the next writer. Everything else that does not fit is damage: nothing is read past it, nothing is
//!   appended, and the error names file and byte. A whole record is never cut without an operator
//!   ([`FencedLog::cut_damage`]), who finds it set aside.
//! - **A file that takes the place of the log** (a rename, a restore) is noticed by the handles that are open:
//!   [`FenceError::Replaced`](crate::FenceError::Replaced) until they have raised in it. A process that comes later cannot know:
//!   a log that was restored from a copy, or cut at the end of a record, has the fence of its time.
//! - **It only grows.** To begin a new one, stop the owners, and install another file; it has to be raised anew, so nobody
//!   who was replaced before can write to it before its owners have come.
//!
//! The format is a table in the source of `record.rs`, and docs/fences-log.md reads it in thirty lines of Python.

mod chain;
mod disk;
mod file;
mod place;
mod raiser;
mod record;
mod segments;

pub use file::{Entry, FencedLog};
pub use raiser::{LogRaiser, MAX_QUEUED_RAISES};
pub use record::{MAX_PAYLOAD, MAX_STAMPS};
pub use segments::{MAX_SEGMENTS, Reading, SegmentFence, SegmentReader, SegmentWriter};
