//! The folder, through descriptors: each step below it opens one segment and follows no link, so nobody who swaps a folder for a
//! link leads it elsewhere.

use super::FilePath;
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, RawMode};
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Where the gateway keeps its own things. No path of a file begins with a dot.
pub(super) const OWN: &str = ".ringfence";
const STAGED: &str = "staged";

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const FOLDER_MODE: Mode = Mode::from_raw_mode(0o755);
const FILE_MODE: Mode = Mode::from_raw_mode(0o644);

#[derive(Debug)]
pub(super) struct Disk {
    root: OwnedFd,
    staged: OwnedFd,
    // Locked for as long as it is open.
    _lock: OwnedFd,
    next: AtomicU64,
    lasting: Lasting,
}

/// Folders that this gateway has synced into their parents. Before, nobody knows of a folder that is there whether it would be after
/// a power cut: it may be another program's, or ours from before a sync that failed.
#[derive(Debug, Default)]
struct Lasting {
    known: Mutex<HashSet<(u64, u64)>>,
    /// For the tests: the folders that were synced.
    #[cfg(test)]
    synced: Mutex<Vec<u64>>,
}

/// How many folders are remembered as lasting. Beyond, all are synced anew.
const KNOWN_FOLDERS: usize = 65_536;

/// A file that is written and synced, and stands nowhere yet. Dropped, it is gone.
#[derive(Debug)]
pub(super) struct Staged<'a> {
    disk: &'a Disk,
    name: Option<String>,
}

/// What has to be synced before the change is certain to last.
pub(super) struct Changed {
    folder: OwnedFd,
}

impl Disk {
    /// Opens the folder, and makes what the gateway needs in it. `None` when another gateway has it.
    pub(super) fn open(dir: &Path) -> io::Result<Option<Disk>> {
        let root = rustix::fs::open(dir, FOLDER - OFlags::NOFOLLOW, Mode::empty())?;
        let lasting = Lasting::default();
        let own = lasting.folder_in(root.as_fd(), OWN)?;
        let lock = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let lock = rustix::fs::openat(&own, "lock", lock, FILE_MODE)?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            other => other?,
        }
        let staged = lasting.folder_in(own.as_fd(), STAGED)?;
        let disk = Disk { root, staged, _lock: lock, next: AtomicU64::new(0), lasting };
        disk.sweep()?;
        Ok(Some(disk))
    }

    /// The path of a file of the gateway's own, for a library that takes no descriptors.
    pub(super) fn own(dir: &Path, name: &str) -> PathBuf {
        dir.join(OWN).join(name)
    }

    /// Removes what a crash has left half written. Nothing of it was answered, and nobody else writes here.
    fn sweep(&self) -> io::Result<()> {
        for entry in rustix::fs::Dir::read_from(&self.staged)? {
            let entry = entry?;
            if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
                rustix::fs::unlinkat(&self.staged, entry.file_name(), AtFlags::empty())?;
            }
        }
        Ok(())
    }

    /// Writes and syncs a file that stands nowhere yet: these pieces, one after another.
    pub(super) fn stage(&self, pieces: &mut [&mut dyn Read]) -> io::Result<Staged<'_>> {
        let name = format!("{:x}", self.next.fetch_add(1, Ordering::Relaxed));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.staged, &name, flags, FILE_MODE)?;
        let staged = Staged { disk: self, name: Some(name) };
        let mut file = File::from(file);
        for piece in pieces {
            io::copy(*piece, &mut file)?;
        }
        file.flush()?;
        file.sync_all()?;
        Ok(staged)
    }

    /// Opens a plain file to read it; `None` when there is none.
    pub(super) fn read(&self, path: &FilePath) -> io::Result<Option<File>> {
        let (folders, name) = path.parts();
        let Some(folder) = self.walk(folders, false)? else { return Ok(None) };
        plain_file(folder.as_fd(), name)
    }

    /// Renames a staged file to its place, in one step of the file system, with the permissions of the file that it replaces.
    pub(super) fn place(&self, mut staged: Staged<'_>, path: &FilePath) -> io::Result<Changed> {
        let (folders, name) = path.parts();
        let folder = self.walk(folders, true)?.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        let from = staged.name.as_deref().unwrap_or_default();
        if let Some(before) = plain_file(folder.as_fd(), name)? {
            let mode = rustix::fs::fstat(&before)?.st_mode as RawMode & 0o777;
            rustix::fs::chmodat(&self.staged, from, Mode::from_raw_mode(mode), AtFlags::empty())?;
        }
        rustix::fs::renameat(&self.staged, from, &folder, name)?;
        staged.name = None;
        Ok(Changed { folder })
    }

    /// Takes a file away; `None` when there is none.
    pub(super) fn remove(&self, path: &FilePath) -> io::Result<Option<Changed>> {
        let (folders, name) = path.parts();
        let Some(folder) = self.walk(folders, false)? else { return Ok(None) };
        if plain_file(folder.as_fd(), name)?.is_none() {
            return Ok(None);
        }
        rustix::fs::unlinkat(&folder, name, AtFlags::empty())?;
        Ok(Some(Changed { folder }))
    }

    /// The folder at the end of these segments. Where it is to be made, each that is not known to last is synced into its parent.
    fn walk<'a>(&self, segments: impl Iterator<Item = &'a str>, make: bool) -> io::Result<Option<OwnedFd>> {
        let mut folder = rustix::fs::openat(&self.root, ".", FOLDER, Mode::empty())?;
        for segment in segments {
            folder = match rustix::fs::openat(&folder, segment, FOLDER, Mode::empty()) {
                Ok(below) if make => {
                    self.lasting.make_last(folder.as_fd(), &below)?;
                    below
                }
                Err(rustix::io::Errno::NOENT) if make => self.lasting.folder_in(folder.as_fd(), segment)?,
                Err(rustix::io::Errno::NOENT) => return Ok(None),
                // A link is answered with either of the two, as the system likes.
                Err(rustix::io::Errno::LOOP | rustix::io::Errno::NOTDIR) => {
                    return Err(io::ErrorKind::NotADirectory.into());
                }
                other => other?,
            };
        }
        Ok(Some(folder))
    }
}

impl Changed {
    /// Makes the change last.
    pub(super) fn sync(self) -> io::Result<()> {
        rustix::fs::fsync(&self.folder).map_err(io::Error::from)
    }
}

impl Drop for Staged<'_> {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            // Should it fail, the next start removes it.
            let _ = rustix::fs::unlinkat(&self.disk.staged, name.as_str(), AtFlags::empty());
        }
    }
}

impl Lasting {
    /// Makes a folder if it is missing, and opens it.
    fn folder_in(&self, parent: BorrowedFd<'_>, name: &str) -> io::Result<OwnedFd> {
        match rustix::fs::mkdirat(parent, name, FOLDER_MODE) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(other) => return Err(other.into()),
        }
        let folder = rustix::fs::openat(parent, name, FOLDER, Mode::empty())?;
        self.make_last(parent, &folder)?;
        Ok(folder)
    }

    /// Syncs a folder into its parent, unless that was done.
    fn make_last(&self, parent: BorrowedFd<'_>, folder: &OwnedFd) -> io::Result<()> {
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let stat = rustix::fs::fstat(folder)?;
        let this = (stat.st_dev as u64, stat.st_ino as u64);
        if known().contains(&this) {
            return Ok(());
        }
        rustix::fs::fsync(parent)?;
        #[cfg(test)]
        self.synced.lock().unwrap().push(rustix::fs::fstat(parent)?.st_ino);
        let mut known = known();
        if known.len() >= KNOWN_FOLDERS {
            known.clear();
        }
        known.insert(this);
        Ok(())
    }
}

/// A plain file, opened to read; `None` when there is none. Anything else is an error, and a pipe is not waited for.
fn plain_file(folder: BorrowedFd<'_>, name: &str) -> io::Result<Option<File>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(folder, name, flags, Mode::empty()) {
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(rustix::io::Errno::LOOP | rustix::io::Errno::NXIO) => {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        other => other?,
    };
    let file = File::from(file);
    if file.metadata()?.is_file() { Ok(Some(file)) } else { Err(io::ErrorKind::IsADirectory.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_folder_that_was_there_already_is_synced_into_its_parent_once() {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| dir.path().join(path);
        std::fs::create_dir_all(at("orders/17")).unwrap();
        let disk = Disk::open(dir.path()).unwrap().unwrap();
        let synced = || std::mem::take(&mut *disk.lasting.synced.lock().unwrap());
        let inode = |path: &str| std::fs::metadata(at(path)).unwrap().ino();
        // The gateway's own.
        assert_eq!(synced(), [inode(""), inode(".ringfence")]);
        let put = |path: &str| {
            let staged = disk.stage(&mut [&mut &b"x"[..]]).unwrap();
            disk.place(staged, &path.parse().unwrap()).unwrap().sync().unwrap();
        };
        put("orders/17/new/a");
        assert_eq!(synced(), [inode(""), inode("orders"), inode("orders/17")]);
        put("orders/17/new/a");
        put("orders/17/new/b");
        assert!(synced().is_empty());
        put("orders/18/a");
        assert_eq!(synced(), [inode("orders")]);
        // Reading makes nothing last.
        assert!(disk.read(&"orders/17/new/a".parse().unwrap()).unwrap().is_some());
        assert!(synced().is_empty());
    }
}
