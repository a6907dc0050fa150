//! Where logs live: making files that are whole from the start, and what a file system promises.

use super::chain::failed;
use super::record::{Link, Record};
use crate::FenceError;
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Makes a file that begins with this record, unless there is one; false then. Nobody ever sees a part of it.
pub(super) fn make(path: &Path, first: &Record) -> Result<bool, FenceError> {
    let doing = "making the log";
    if path.exists() {
        // Whoever has made it may have died before its name was on the disk.
        return sync_directory(path).map(|()| false).map_err(failed(doing));
    }
    let mut bytes = Vec::new();
    first.encode(Link::default(), &mut bytes)?;
    let (unfinished, mut file) = unfinished(path).map_err(failed(doing))?;
    let made = file
        .write_all(&bytes)
        .and_then(|()| file.sync_all())
        // Unlike a rename, a link never takes the place of what another process has made meanwhile.
        .and_then(|()| match fs::hard_link(&unfinished, path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            linked => linked.map(|()| true),
        });
    // What is left of it takes no part in anything.
    let _ = fs::remove_file(&unfinished);
    let made = made.map_err(failed(doing))?;
    sync_directory(path).map_err(failed(doing))?;
    Ok(made)
}

fn unfinished(path: &Path) -> io::Result<(PathBuf, File)> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!(".unfinished-{}-{number}", std::process::id());
        let unfinished = directory(path).join(name);
        match File::options().write(true).create_new(true).open(&unfinished) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            file => return Ok((unfinished, file?)),
        }
    }
}

/// A name is on the disk when its directory is.
pub(super) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(directory(path))?.sync_all()
}

fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Keeps what stands from byte `at` in a file of its own, and cuts it off.
pub(super) fn set_aside(path: &Path, file: &File, at: u64) -> Result<PathBuf, FenceError> {
    let failed = failed("cutting off a damaged end");
    let length = file.metadata().map_err(&failed)?.len();
    let mut bytes = vec![0; usize::try_from(length.saturating_sub(at)).unwrap_or(usize::MAX)];
    file.read_exact_at(&mut bytes, at).map_err(&failed)?;
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".cut-at-{at}"));
    let aside = path.with_file_name(name);
    let mut kept = File::options().write(true).create_new(true).open(&aside).map_err(&failed)?;
    kept.write_all(&bytes).and_then(|()| kept.sync_all()).map_err(&failed)?;
    sync_directory(path).map_err(&failed)?;
    file.set_len(at).and_then(|()| file.sync_all()).map_err(&failed)?;
    Ok(aside)
}

/// A file whose lock says who is next at the log; none where it cannot be made, and then nobody waits in turn.
pub(super) fn turn(path: &Path) -> Option<File> {
    let mut name = path.file_name()?.to_os_string();
    name.push(".turn");
    File::options().create(true).truncate(false).write(true).open(path.with_file_name(name)).ok()
}

/// Refuses a file system whose locks may mean nothing to others.
pub(super) fn must_lock(file: &File, path: &Path) -> Result<(), FenceError> {
    if let Some(name) = of_a_network(file) {
        let why = format!(
            "{} is on {name}, and between machines its locks may not exclude: keep the log on a disk of one machine, or use \
             segments (SegmentWriter), whose readers refuse a replaced owner",
            path.display()
        );
        return Err(FenceError::Unfit { why });
    }
    // Two descriptions of one file are as two processes.
    let doing = "trying the locks of the file system";
    let (one, two) = (File::open(path).map_err(failed(doing))?, File::open(path).map_err(failed(doing))?);
    let tried = flock(&one, FlockOperation::NonBlockingLockExclusive);
    let excluded = match tried {
        // Somebody else has it, and it does exclude.
        Err(rustix::io::Errno::WOULDBLOCK) => true,
        Err(error) => return Err(FenceError::store(doing, error)),
        Ok(()) => flock(&two, FlockOperation::NonBlockingLockExclusive) == Err(rustix::io::Errno::WOULDBLOCK),
    };
    if excluded {
        return Ok(());
    }
    Err(FenceError::Unfit {
        why: format!("the file system of {} has locks that do not exclude", path.display()),
    })
}

#[cfg(target_os = "linux")]
fn of_a_network(file: &File) -> Option<&'static str> {
    let kind = rustix::fs::fstatfs(file).ok()?.f_type;
    named(u32::try_from(kind & 0xffff_ffff).ok()?)
}

#[cfg(not(target_os = "linux"))]
fn of_a_network(_: &File) -> Option<&'static str> {
    None
}

/// By the numbers of `statfs(2)`.
#[cfg(target_os = "linux")]
fn named(kind: u32) -> Option<&'static str> {
    Some(match kind {
        0x6969 => "NFS",
        0x517b | 0xff53_4d42 | 0xfe53_4d42 => "SMB",
        0x00c3_6400 => "Ceph",
        0x0102_1997 => "9p",
        0x6573_5546 => "FUSE",
        0x5346_414f => "AFS",
        _ => return None,
    })
}

/// Who holds the lock, for people: by `/proc/locks`, where there is one.
pub(super) fn holder(file: &File) -> String {
    let find = || {
        let inode = file.metadata().ok()?.ino();
        let locks = fs::read_to_string("/proc/locks").ok()?;
        let line = locks.lines().find(|line| {
            // `1: FLOCK ADVISORY WRITE 1234 fe:00:5678 0 EOF`; those that wait have an arrow.
            line.contains("FLOCK") && line.split_whitespace().any(|w| w.ends_with(&format!(":{inode}")))
        })?;
        line.split_whitespace().nth(4)?.parse::<u32>().ok()
    };
    find().map_or_else(String::new, |process| format!(" by process {process}"))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::log::record::Kind;

    #[test]
    fn file_systems_of_a_network_are_known_by_their_numbers_and_a_disk_is_none() {
        assert_eq!((named(0x6969), named(0xfe53_4d42)), (Some("NFS"), Some("SMB")));
        for local in [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x794c_7630] {
            assert_eq!(named(local), None);
        }
    }

    #[test]
    fn a_file_is_made_once_and_leaves_nothing_unfinished_behind() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let bind = Record { kind: Kind::Bind, stamps: vec![], payload: b"prod".to_vec() };
        assert!(make(&path, &bind).unwrap());
        let first = fs::read(&path).unwrap();
        assert!(!make(&path, &Record { payload: b"test".to_vec(), ..bind }).unwrap());
        assert_eq!(fs::read(&path).unwrap(), first);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        must_lock(&File::open(&path).unwrap(), &path).unwrap();
    }
}
