//! Snapshots as files, `<index>.snap`.
//!
//! A file is a magic number, a format version, the lengths of two parts, the parts (a header message and the machine's
//! bytes), and a CRC-32C of all before it. It appears under its name only when it is complete and durable: written
//! beside, synced, renamed, and the directory synced. The newest two are kept, the older one for an operator; the program
//! reads the newest or nothing, because the log behind an older one may be gone.

use super::{Snapshot, SnapshotStore};
use crate::files::{self, Files};
use crate::raft::error::Damaged;
use crate::raft::limits;
use crate::raft::machine::Position;
use bytes::{Buf, Bytes};
use ringfence_core::ids::{LogIndex, Term};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const MAGIC: &[u8; 8] = b"RFSNAP\r\n";
const VERSION: u32 = 1;
/// Magic, version, term, index, and the lengths of membership and data.
const HEADER: usize = 8 + 4 + 8 + 8 + 8 + 8;
const KEPT: usize = 2;

/// A directory of snapshots.
pub(in crate::raft) struct FileSnapshots {
    files: Arc<dyn Files>,
    dir: PathBuf,
}

impl FileSnapshots {
    /// Opens the directory, or makes it. What an interrupted write left is removed.
    pub(in crate::raft) fn open(files: Arc<dyn Files>, dir: &Path) -> io::Result<FileSnapshots> {
        files.create_dir_all(dir)?;
        for path in files.list(dir)? {
            if path.extension().is_some_and(|e| e == "tmp") {
                files.remove(&path)?;
            }
        }
        Ok(FileSnapshots { files, dir: dir.to_path_buf() })
    }

    /// True without a single snapshot.
    pub(in crate::raft) fn is_empty(&self) -> io::Result<bool> {
        Ok(self.list()?.is_empty())
    }

    /// All snapshots, oldest first.
    fn list(&self) -> io::Result<Vec<(u64, PathBuf)>> {
        let mut found = Vec::new();
        for path in self.files.list(&self.dir)? {
            let index = path.file_stem().and_then(|s| s.to_str()).and_then(|s| s.parse().ok());
            if let (Some(index), true) = (index, path.extension().is_some_and(|e| e == "snap")) {
                found.push((index, path));
            }
        }
        found.sort();
        Ok(found)
    }
}

impl SnapshotStore for FileSnapshots {
    fn newest(&self) -> io::Result<Option<Snapshot>> {
        match self.list()?.pop() {
            Some((index, path)) => read(self.files.as_ref(), &path, index).map(Some),
            None => Ok(None),
        }
    }

    fn save(&self, snapshot: &Snapshot) -> io::Result<()> {
        let name = format!("{:020}", snapshot.at.index.get());
        let (tmp, path) = (self.dir.join(format!("{name}.tmp")), self.dir.join(format!("{name}.snap")));
        write(self.files.as_ref(), &path, &tmp, snapshot)?;
        // Only now that the new one cannot be lost.
        let files = self.list()?;
        for (_, old) in files.iter().take(files.len().saturating_sub(KEPT)) {
            self.files.remove(old)?;
        }
        Ok(())
    }

    fn place(&self) -> PathBuf {
        self.dir.clone()
    }

    fn blocks(&self) -> bool {
        self.files.blocks()
    }
}

fn write(files: &dyn Files, path: &Path, tmp: &Path, snapshot: &Snapshot) -> io::Result<()> {
    let mut header = Vec::with_capacity(HEADER);
    header.extend_from_slice(MAGIC);
    header.extend_from_slice(&VERSION.to_le_bytes());
    header.extend_from_slice(&snapshot.at.term.get().to_le_bytes());
    header.extend_from_slice(&snapshot.at.index.get().to_le_bytes());
    header.extend_from_slice(&(snapshot.membership.len() as u64).to_le_bytes());
    header.extend_from_slice(&(snapshot.data.len() as u64).to_le_bytes());
    let mut sum = crc32c::crc32c(&header);
    for part in [&snapshot.membership, &snapshot.data] {
        sum = crc32c::crc32c_append(sum, part);
    }
    let parts = [&header[..], &snapshot.membership, &snapshot.data, &sum.to_le_bytes()];
    files::replace(files, path, tmp, &parts)
}

fn read(files: &dyn Files, path: &Path, index: u64) -> io::Result<Snapshot> {
    let wrong = |why: String| Damaged::error(path, why);
    let length = files.len(path)?;
    if length < (HEADER + 4) as u64 || length > limits::SNAPSHOT_BYTES + (1 << 20) {
        return Err(wrong(format!("{length} bytes cannot be a snapshot")));
    }
    let bytes = Bytes::from(files.read(path)?);
    let body = bytes.slice(..bytes.len().saturating_sub(4));
    let mut header = body.clone();
    if header.len() < HEADER || header.split_to(8) != MAGIC[..] {
        return Err(wrong("it does not begin like a snapshot".to_string()));
    }
    let version = header.get_u32_le();
    if version == 0 || version > VERSION {
        return Err(wrong(format!(
            "it has format {version}, and this version knows formats up to {VERSION}: run the version that wrote it"
        )));
    }
    let (found, wanted) = (crc32c::crc32c(&body), bytes.slice(body.len()..).get_u32_le());
    if found != wanted {
        return Err(wrong(format!("its checksum is {found:08x} and should be {wanted:08x}")));
    }
    let at = Position { term: Term::new(header.get_u64_le()), index: LogIndex::new(header.get_u64_le()) };
    let (membership, data) = (header.get_u64_le(), header.get_u64_le());
    if at.index.get() != index || membership.checked_add(data) != Some(header.len() as u64) {
        return Err(wrong("its header does not fit it".to_string()));
    }
    let membership = header.split_to(usize::try_from(membership).unwrap_or(usize::MAX).min(header.len()));
    Ok(Snapshot { at, membership, data: header })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::SystemFiles;
    use std::fs;

    fn snapshot(index: u64, data: &'static [u8]) -> Snapshot {
        let at = Position { term: Term::new(3), index: LogIndex::new(index) };
        Snapshot { at, membership: Bytes::from_static(b"members"), data: Bytes::from_static(data) }
    }

    #[test]
    fn the_newest_is_read_back_and_two_are_kept() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = FileSnapshots::open(Arc::new(SystemFiles), dir.path()).expect("opens");
        assert_eq!(store.newest().expect("empty"), None);
        for index in [9, 10, 11] {
            store.save(&snapshot(index, b"state")).expect("saved");
        }
        assert_eq!(store.newest().expect("read"), Some(snapshot(11, b"state")));
        assert_eq!(store.list().expect("listed").iter().map(|(i, _)| *i).collect::<Vec<_>>(), [10, 11]);
    }

    #[test]
    fn any_flipped_bit_or_cut_is_refused_with_the_file_named_and_the_older_one_is_not_used() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = FileSnapshots::open(Arc::new(SystemFiles), dir.path()).expect("opens");
        store.save(&snapshot(1, b"older")).expect("saved");
        store.save(&snapshot(2, b"newer")).expect("saved");
        let path = store.list().expect("listed").pop().expect("two").1;
        let whole = fs::read(&path).expect("read");
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            fs::write(&path, &bytes).expect("written");
            let error = store.newest().expect_err("a flipped bit").to_string();
            assert!(error.contains("00000000000000000002.snap"), "{error}");
        }
        for length in 0..whole.len() {
            fs::write(&path, &whole[..length]).expect("written");
            assert!(store.newest().is_err(), "cut to {length}");
        }
    }

    #[test]
    fn what_an_interrupted_write_left_is_removed() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::write(dir.path().join("00000000000000000007.tmp"), b"half").expect("written");
        let store = FileSnapshots::open(Arc::new(SystemFiles), dir.path()).expect("opens");
        assert_eq!(store.newest().expect("read"), None);
        assert_eq!(fs::read_dir(dir.path()).expect("listed").count(), 0);
    }
}
