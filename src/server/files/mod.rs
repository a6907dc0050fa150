//! The files of a node's data directory: what the node asks of a disk, and the system's disk.
//!
//! Everything durable goes through [`Files`], so that a simulator can lose what was not flushed, fill the disk, or let a
//! flush fail, under the formats that are shipped. The rules of a disk stand here once: what was written is durable
//! after a flush of the file *and*, when the file is new or renamed, a flush of its directory.

mod system;

pub use system::SystemFiles;

use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// A disk.
pub trait Files: Send + Sync + 'static {
    /// Makes the directory and those above it, if they are missing.
    ///
    /// # Errors
    /// As the disk says, here and below.
    fn create_dir_all(&self, dir: &Path) -> io::Result<()>;

    /// What is in the directory.
    ///
    /// # Errors
    /// As the disk says.
    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>>;

    /// Whether there is such a file.
    fn exists(&self, path: &Path) -> bool;

    /// The length of a file, in bytes.
    ///
    /// # Errors
    /// As the disk says.
    fn len(&self, path: &Path) -> io::Result<u64>;

    /// A whole file.
    ///
    /// # Errors
    /// As the disk says.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// Makes a file of these parts, in place of one of that name, and flushes it.
    ///
    /// # Errors
    /// When it is not certain that the file is durable; there may be a part of it.
    fn write(&self, path: &Path, parts: &[&[u8]]) -> io::Result<()>;

    /// Gives a file another name, in place of one of that name.
    ///
    /// # Errors
    /// As the disk says.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// As the disk says.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Flushes a directory: the names in it are durable when this returns.
    ///
    /// # Errors
    /// When that is not certain.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Locks a file, which is made if there is none, for as long as the answer lives; `None` when another process has it.
    ///
    /// # Errors
    /// As the disk says.
    fn lock(&self, path: &Path) -> io::Result<Option<Held>>;

    /// Opens a file for reading and writing at any place, or makes it.
    ///
    /// What is read from it then is what the disk has. A system marks what it could not write as written after a flush
    /// that failed (Rebello and others, "Can applications recover from fsync failures?", USENIX ATC 2020), and goes on
    /// showing it from its memory: a process that is started again would take for durable what is not, and say so to
    /// others. So that memory is given up first.
    ///
    /// # Errors
    /// As the disk says.
    fn open(&self, path: &Path) -> io::Result<Opened>;

    /// True when calls may block, so that the executor must not make them. A simulator says no, since threads are not
    /// deterministic.
    fn blocks(&self) -> bool {
        true
    }

    /// How long the disk takes for its next flush, where calls do not block: what it is slow by, and nothing else.
    fn takes(&self) -> Duration {
        Duration::ZERO
    }
}

/// A lock, released when it is dropped.
pub type Held = Box<dyn Send + Sync>;

/// A file that is read and written at any place.
pub enum Opened {
    /// A file of the system, to be opened at this path.
    System(PathBuf),
    /// One of the simulator's.
    Given(Box<dyn BlockFile>),
}

/// A file that is read and written at any place.
pub trait BlockFile: Debug + Send + Sync + 'static {
    /// Its length, in bytes.
    ///
    /// # Errors
    /// As the disk says, here and below.
    fn len(&self) -> io::Result<u64>;

    /// True when it has no byte.
    ///
    /// # Errors
    /// As the disk says.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Fills `out` with what is at `offset`.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`] beyond the end.
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()>;

    /// Cuts the file, or lengthens it with zeros.
    ///
    /// # Errors
    /// As the disk says.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Writes at `offset`. It is not durable yet.
    ///
    /// # Errors
    /// As the disk says.
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Makes durable what was written.
    ///
    /// # Errors
    /// When that is not certain.
    fn sync(&self) -> io::Result<()>;
}

/// Makes a file durable under its name in one step: after a crash there is the earlier file or this one, whole.
///
/// # Errors
/// When it is not certain which of the two is there after a crash.
pub(crate) fn replace(files: &dyn Files, path: &Path, tmp: &Path, parts: &[&[u8]]) -> io::Result<()> {
    files.write(tmp, parts)?;
    files.rename(tmp, path)?;
    // The rename is in the directory, and survives a power cut only when the directory was flushed.
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    files.sync_dir(dir.unwrap_or(Path::new(".")))
}

/// Does what may block where it may.
///
/// # Errors
/// When the task was cancelled with its runtime.
pub(crate) async fn away<T: Send + 'static>(
    files: &Arc<dyn Files>,
    work: impl FnOnce(&Arc<dyn Files>) -> T + Send + 'static,
) -> io::Result<T> {
    if !files.blocks() {
        return Ok(work(files));
    }
    let files = Arc::clone(files);
    tokio::task::spawn_blocking(move || work(&files)).await.map_err(io::Error::other)
}
