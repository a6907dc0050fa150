//! A gateway in front of files: the one way to write a folder, with a fence in it. Feature `gateway`, on Unix.
//!
//! For a store that knows no tokens: files that another program reads, or once wrote by itself. Nothing in a file system compares
//! an epoch, so a worker that was paused overwrites what its successor wrote, and the file looks as if nothing had happened. The
//! gateway takes each write with its token, and checks and writes in one step.
//!
//! ```
//! use ringfence_core::ids::ClusterId;
//! use ringfence_fence::FencingToken;
//! use ringfence_fence::gateway::{FileGateway, FilePath};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let dir = dir.path();
//! let files = FileGateway::open(dir, &ClusterId::new("prod")?)?;
//! let (old, new): (FencingToken, FencingToken) = ("prod/reports/17@33".parse()?, "prod/reports/17@34".parse()?);
//! let path: FilePath = "reports/17/daily.csv".parse()?;
//!
//! files.raise(&old)?;
//! files.put(&[old.clone()], &path, b"by 33")?;
//! files.raise(&new)?; // the partition has a new owner, who reads
//! assert!(files.put(&[old], &path, b"late").is_err());
//! assert_eq!(std::fs::read(dir.join("reports/17/daily.csv"))?, b"by 33"); // a file like any other
//! # Ok(())
//! # }
//! ```
//!
//! # What it rests on
//!
//! - **It is the only way in.** A program that writes the folder by itself is not fenced, and the gateway does not see it. Give the folder
//!   to a user of its own. One gateway serves a folder, and a second one is refused; on a network file system, that and everything
//!   below are worth what its `flock`, `rename` and `fsync` are.
//! - **A file belongs to a scope,** by its place: `orders/17/...` is written with a token of partition 17 of `orders`,
//!   `@locks/nightly/...` with one of that lock. Where the layout of the folder is not ours, the whole of it belongs to one
//!   scope ([`Layout::Whole`]).
//! - **Check and write are one step.** The bytes are staged and on disk before; then, under the fence's lock, the token is compared
//!   and the file renamed into place. A raise waits for a write that has begun, and writes wait behind a raise.
//! - **A crash leaves the old file or the new one,** whole. What was answered is on disk: the file and its folder were synced, and an
//!   epoch that came with a write was remembered before the file changed.
//! - **Names** are plain: segments of letters, digits and `. _ -` that do not begin with a dot. Links are not followed, wherever they
//!   lead.
//! - The fence is in `.ringfence/` in the folder. **Never delete it:** whoever raises first would be believed. Back it up, and restore
//!   it, with the files.
//!
//! A failure after the rename is *unknown*: read before writing again.

mod body;
mod disk;
mod error;
mod files;
mod front;
mod path;
mod raises;
mod turn;

pub use body::GatewayBody;
pub use error::GatewayError;
pub use files::{FileGateway, GatewayOptions};
pub use front::{ANSWER_TIMEOUT, BODY_TIMEOUT, FileService, MAX_IN_FLIGHT, front};
pub use path::{FilePath, Layout, MAX_PATH_BYTES, MAX_SEGMENT_BYTES, MAX_SEGMENTS, PathError};
pub use raises::MAX_QUEUED_RAISES;
