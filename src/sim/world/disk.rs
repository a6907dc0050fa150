//! A disk that tells the truth about what a crash may take.
//!
//! What was written is durable after a flush of the file; a name is durable after a flush of its directory. A crash keeps
//! that, and of the rest whatever chance decides: each write since the last flush is there, missing, or torn at a sector.
//! It can also be full, slow, stand still, or fail its next flush, and it can lose power in the middle of a write. One that lies
//! acknowledges flushes that it does not do: then a loss of power takes everything since it began to, or some of it.

use super::{Ms, TrueTime};
use fastrand::Rng;
use ringfence_server::files::{BlockFile, Files, Held, Opened};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A disk writes this many bytes or none of them.
const SECTOR: usize = 512;

/// A disk. A clone is the same disk, used by whoever runs on its machine now.
#[derive(Clone)]
pub struct Disk {
    inner: Arc<Mutex<Inner>>,
    /// The life of the machine that this handle belongs to; handles of an earlier one do nothing.
    life: u64,
}

struct Inner {
    life: u64,
    random: Rng,
    names: BTreeMap<PathBuf, u64>,
    durable_names: BTreeMap<PathBuf, u64>,
    files: BTreeMap<u64, File>,
    locked: BTreeSet<PathBuf>,
    next: u64,
    trouble: Trouble,
    /// It lost power; everything fails until the machine comes back.
    dark: bool,
}

/// What is wrong with a disk.
#[derive(Clone)]
pub struct Trouble {
    /// How long a flush takes, in microseconds.
    pub takes_us: RangeInclusive<u64>,
    /// The log's flushes stand still until then.
    pub frozen: Option<(TrueTime, Ms)>,
    /// Writes that need room fail.
    pub full: bool,
    /// The next flush fails, and what was written since the last one may be lost.
    pub fails_flush: bool,
    /// Flushes are acknowledged and not done.
    pub lies: bool,
    /// Power is lost at this write or flush from now.
    pub power_lost_after: Option<u32>,
}

impl Default for Trouble {
    fn default() -> Trouble {
        Trouble {
            takes_us: 200..=3_000,
            frozen: None,
            full: false,
            fails_flush: false,
            lies: false,
            power_lost_after: None,
        }
    }
}

#[derive(Clone, Default)]
struct File {
    now: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Write>,
}

#[derive(Clone)]
enum Write {
    At(usize, Vec<u8>),
    Length(usize),
}

impl Disk {
    /// An empty disk.
    pub fn new(random: Rng) -> Disk {
        let inner = Inner {
            life: 0,
            random,
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            files: BTreeMap::new(),
            locked: BTreeSet::new(),
            next: 0,
            trouble: Trouble::default(),
            dark: false,
        };
        Disk { inner: Arc::new(Mutex::new(inner)), life: 0 }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The disk as the machine's next life sees it.
    #[must_use]
    pub fn mounted(&self) -> Disk {
        let mut inner = self.lock();
        inner.life += 1;
        inner.locked.clear();
        inner.dark = false;
        Disk { inner: Arc::clone(&self.inner), life: inner.life }
    }

    /// Changes what is wrong with it.
    pub fn trouble(&self, change: impl FnOnce(&mut Trouble)) {
        change(&mut self.lock().trouble);
    }

    /// Whether it lost power by itself, in the middle of a write.
    pub fn is_dark(&self) -> bool {
        self.lock().dark
    }

    /// The process is gone and the machine is not: what was written is there.
    pub fn killed(&self) {
        self.lock().life += 1;
    }

    /// The machine lost power.
    pub fn lost_power(&self) {
        self.lock().lose_power();
    }

    /// Removes everything.
    pub fn wipe(&self) {
        let mut inner = self.lock();
        inner.files.clear();
        inner.names.clear();
        inner.durable_names.clear();
    }

    /// What is on it now.
    pub fn copied(&self) -> Copied {
        let inner = self.lock();
        let now = |id: &u64| inner.files.get(id).map(|file| file.now.clone()).unwrap_or_default();
        Copied { names: inner.names.iter().map(|(path, id)| (path.clone(), now(id))).collect() }
    }

    /// Everything on it is what was copied, durably. Nobody may be using it.
    pub fn put_back(&self, copy: Copied) {
        self.wipe();
        let mut inner = self.lock();
        for (path, bytes) in copy.names {
            let id = inner.next_id();
            inner.files.insert(id, File { now: bytes.clone(), durable: bytes, pending: Vec::new() });
            inner.names.insert(path.clone(), id);
            inner.durable_names.insert(path, id);
        }
    }

    /// The disk, for an operation of a process that lives.
    fn used(&self) -> io::Result<MutexGuard<'_, Inner>> {
        let inner = self.lock();
        if inner.life != self.life || inner.dark {
            return Err(io::Error::other("the machine is off"));
        }
        Ok(inner)
    }

    /// The same, for one that changes what is on it.
    fn written(&self) -> io::Result<MutexGuard<'_, Inner>> {
        let mut inner = self.used()?;
        if let Some(left) = &mut inner.trouble.power_lost_after {
            *left = left.saturating_sub(1);
            if *left == 0 {
                inner.trouble.power_lost_after = None;
                inner.lose_power();
                return Err(io::Error::other("the machine is off"));
            }
        }
        Ok(inner)
    }
}

impl Inner {
    fn next_id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn lose_power(&mut self) {
        self.life += 1;
        self.dark = true;
        // A journal may have written the names down by itself.
        if self.random.bool() {
            self.durable_names = self.names.clone();
        }
        self.names = self.durable_names.clone();
        // The cache of a disk that lies is gone as a whole, as often as not.
        let all = self.trouble.lies && self.random.bool();
        for file in self.files.values_mut() {
            if all {
                file.pending.clear();
            }
            file.lose_power(&mut self.random);
        }
        self.tidy();
    }

    fn tidy(&mut self) {
        let used: BTreeSet<u64> = self.names.values().chain(self.durable_names.values()).copied().collect();
        self.files.retain(|id, _| used.contains(id));
    }

    fn file(&mut self, id: u64) -> io::Result<&mut File> {
        self.files.get_mut(&id).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn room(&self) -> io::Result<()> {
        if self.trouble.full { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn flush(&mut self, id: u64) -> io::Result<()> {
        if std::mem::take(&mut self.trouble.fails_flush) {
            // As on a real system: the pages are marked clean although they never reached the disk. A file's length is
            // not in its pages; it is written with the next flush.
            self.file(id)?.pending.retain(|write| matches!(write, Write::Length(_)));
            return Err(io::Error::other("the flush failed"));
        }
        if !self.trouble.lies {
            self.file(id)?.flush();
        }
        Ok(())
    }
}

/// What was on a disk at one moment, as a copy of a running machine has it.
#[derive(Clone)]
pub struct Copied {
    /// The files, by name.
    pub names: BTreeMap<PathBuf, Vec<u8>>,
}

impl File {
    fn write(&mut self, write: Write) {
        apply(&mut self.now, &write);
        self.pending.push(write);
    }

    fn flush(&mut self) {
        for write in std::mem::take(&mut self.pending) {
            apply(&mut self.durable, &write);
        }
    }

    fn lose_power(&mut self, random: &mut Rng) {
        for write in std::mem::take(&mut self.pending) {
            match (random.u8(..4), write) {
                (0, _) => {}
                (1, Write::At(at, bytes)) if bytes.len() > SECTOR => {
                    let torn = SECTOR * random.usize(..bytes.len() / SECTOR);
                    apply(&mut self.durable, &Write::At(at, bytes[..torn].to_vec()));
                }
                (_, write) => apply(&mut self.durable, &write),
            }
        }
        self.now = self.durable.clone();
    }
}

fn apply(bytes: &mut Vec<u8>, write: &Write) {
    match write {
        Write::Length(length) => bytes.resize(*length, 0),
        Write::At(at, new) => {
            if bytes.len() < at + new.len() {
                bytes.resize(at + new.len(), 0);
            }
            bytes[*at..at + new.len()].copy_from_slice(new);
        }
    }
}

fn missing(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, path.display().to_string())
}

impl Files for Disk {
    fn create_dir_all(&self, _: &Path) -> io::Result<()> {
        self.used().map(drop)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        let inner = self.used()?;
        Ok(inner.names.keys().filter(|path| path.parent() == Some(dir)).cloned().collect())
    }

    fn exists(&self, path: &Path) -> bool {
        self.lock().names.contains_key(path)
    }

    fn len(&self, path: &Path) -> io::Result<u64> {
        Ok(self.read(path)?.len() as u64)
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let mut inner = self.used()?;
        let id = *inner.names.get(path).ok_or_else(|| missing(path))?;
        Ok(inner.file(id)?.now.clone())
    }

    fn write(&self, path: &Path, parts: &[&[u8]]) -> io::Result<()> {
        let mut inner = self.written()?;
        inner.room()?;
        let id = inner.next_id();
        inner.files.insert(id, File::default());
        inner.names.insert(path.to_owned(), id);
        inner.file(id)?.write(Write::At(0, parts.concat()));
        drop(inner);
        self.written()?.flush(id)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut inner = self.written()?;
        let id = inner.names.remove(from).ok_or_else(|| missing(from))?;
        inner.names.insert(to.to_owned(), id);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut inner = self.written()?;
        inner.names.remove(path).map(drop).ok_or_else(|| missing(path))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut inner = self.written()?;
        let inside = |path: &Path| path.parent() == Some(dir);
        inner.durable_names.retain(|path, _| !inside(path));
        let names: Vec<_> =
            inner.names.iter().filter(|(path, _)| inside(path)).map(|(p, id)| (p.clone(), *id)).collect();
        inner.durable_names.extend(names);
        inner.tidy();
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Held>> {
        let mut inner = self.used()?;
        let taken = !inner.locked.insert(path.to_owned());
        let held = Lock { disk: self.clone(), path: path.to_owned() };
        if taken {
            std::mem::forget(held);
            return Ok(None);
        }
        Ok(Some(Box::new(held)))
    }

    /// As the system's: what is not on the disk after a flush is not shown any more.
    fn open(&self, path: &Path) -> io::Result<Opened> {
        let mut inner = self.used()?;
        let id = match inner.names.get(path).copied() {
            Some(id) => {
                if !inner.file(id)?.pending.is_empty() {
                    drop(inner);
                    inner = self.written()?;
                    inner.flush(id)?;
                }
                // A disk that lies shows from its cache what it has not written.
                if !inner.trouble.lies {
                    let file = inner.file(id)?;
                    file.now = file.durable.clone();
                }
                id
            }
            None => {
                let id = inner.next_id();
                inner.files.insert(id, File::default());
                inner.names.insert(path.to_owned(), id);
                id
            }
        };
        Ok(Opened::Given(Box::new(Block { disk: self.clone(), id })))
    }

    fn blocks(&self) -> bool {
        false
    }

    fn takes(&self) -> Duration {
        let mut inner = self.lock();
        let range = inner.trouble.takes_us.clone();
        let takes = Duration::from_micros(inner.random.u64(range));
        let thaws = inner.trouble.frozen.as_ref().map_or(0, |(time, until)| until.saturating_sub(time.now()));
        takes + Duration::from_millis(thaws)
    }
}

struct Lock {
    disk: Disk,
    path: PathBuf,
}

impl Drop for Lock {
    fn drop(&mut self) {
        let mut inner = self.disk.lock();
        if inner.life == self.disk.life {
            inner.locked.remove(&self.path);
        }
    }
}

struct Block {
    disk: Disk,
    id: u64,
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "file {}", self.id)
    }
}

impl BlockFile for Block {
    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.used()?.file(self.id)?.now.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let mut inner = self.disk.used()?;
        let from = usize::try_from(offset).map_err(io::Error::other)?;
        let bytes = inner.file(self.id)?.now.get(from..from + out.len());
        out.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut inner = self.disk.written()?;
        let len = usize::try_from(len).map_err(io::Error::other)?;
        if len > inner.file(self.id)?.now.len() {
            inner.room()?;
        }
        inner.file(self.id)?.write(Write::Length(len));
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut inner = self.disk.written()?;
        inner.room()?;
        let at = usize::try_from(offset).map_err(io::Error::other)?;
        inner.file(self.id)?.write(Write::At(at, data.to_vec()));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.written()?.flush(self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: &str = "/data";
    const FILE: &str = "/data/file";

    fn opened(disk: &Disk) -> Box<dyn BlockFile> {
        match disk.open(Path::new(FILE)).unwrap() {
            Opened::Given(file) => file,
            Opened::System(path) => panic!("{} is the system's", path.display()),
        }
    }

    fn content(disk: &Disk) -> Vec<u8> {
        disk.read(Path::new(FILE)).unwrap()
    }

    /// A disk with a file that is durable, name and all.
    fn durable(seed: u64, bytes: &[u8]) -> (Disk, Box<dyn BlockFile>) {
        let disk = Disk::new(Rng::with_seed(seed));
        let file = opened(&disk);
        file.write(0, bytes).unwrap();
        file.sync().unwrap();
        disk.sync_dir(Path::new(DIR)).unwrap();
        (disk, file)
    }

    #[test]
    fn a_power_loss_takes_only_what_was_not_flushed_and_tears_at_sectors() {
        let mut sectors = BTreeSet::new();
        for seed in 0..200 {
            let (disk, file) = durable(seed, &[1; 4 * SECTOR]);
            file.write(0, &[2; 4 * SECTOR]).unwrap();
            disk.lost_power();
            let left = content(&disk.mounted());
            let new = left.iter().take_while(|byte| **byte == 2).count();
            assert!(left.len() == 4 * SECTOR && new.is_multiple_of(SECTOR));
            assert!(left[new..].iter().all(|byte| *byte == 1));
            sectors.insert(new / SECTOR);
        }
        assert_eq!(sectors, (0..=4).collect::<BTreeSet<_>>(), "missing, torn and whole all happen");
    }

    #[test]
    fn a_name_outlasts_a_power_loss_once_its_directory_was_flushed() {
        let survives = |flushed: bool| -> BTreeSet<bool> {
            let one = |seed| {
                let disk = Disk::new(Rng::with_seed(seed));
                disk.write(Path::new(FILE), &[&b"x"[..]]).unwrap();
                if flushed {
                    disk.sync_dir(Path::new(DIR)).unwrap();
                }
                disk.lost_power();
                disk.mounted().exists(Path::new(FILE))
            };
            (0..50).map(one).collect()
        };
        assert_eq!(survives(true), BTreeSet::from([true]));
        assert_eq!(survives(false), BTreeSet::from([false, true]));
    }

    #[test]
    fn what_a_failed_flush_lost_the_next_one_does_not_bring_back() {
        let (disk, file) = durable(1, &[1]);
        disk.trouble(|trouble| trouble.fails_flush = true);
        file.write(0, &[2]).unwrap();
        assert!(file.sync().is_err());
        file.sync().unwrap();
        assert_eq!(content(&disk), [2], "the cache has it");
        disk.lost_power();
        assert_eq!(content(&disk.mounted()), [1]);
    }

    #[test]
    fn f039_whoever_opens_a_file_sees_what_the_disk_has_and_not_the_cache() {
        let (disk, file) = durable(1, &[1]);
        disk.trouble(|trouble| trouble.fails_flush = true);
        file.write(0, &[2]).unwrap();
        file.set_len(3).unwrap();
        assert!(file.sync().is_err());
        disk.killed();
        let next = disk.mounted();
        drop(opened(&next));
        assert_eq!(content(&next), [1, 0, 0], "a length is not in the pages that were lost");
        next.lost_power();
        assert_eq!(content(&next.mounted()), [1, 0, 0]);
    }

    #[test]
    fn a_killed_process_can_do_nothing_more_and_cannot_release_the_next_ones_lock() {
        let before = Disk::new(Rng::with_seed(1));
        let path = Path::new("/data/lock");
        let held = Files::lock(&before, path).unwrap();
        assert!(held.is_some() && Files::lock(&before, path).unwrap().is_none());
        before.killed();
        assert!(before.write(Path::new(FILE), &[&b"x"[..]]).is_err());
        let after = before.mounted();
        let next = Files::lock(&after, path).unwrap();
        assert!(next.is_some());
        drop(held);
        assert!(Files::lock(&after, path).unwrap().is_none());
    }

    #[test]
    fn power_is_lost_at_the_write_that_was_said() {
        let (disk, file) = durable(1, &[1]);
        disk.trouble(|trouble| trouble.power_lost_after = Some(2));
        file.write(0, &[2]).unwrap();
        assert!(!disk.is_dark());
        assert!(file.sync().is_err() && disk.is_dark() && file.len().is_err());
        let back = disk.mounted();
        assert!(!back.is_dark() && opened(&back).sync().is_ok());
    }

    #[test]
    fn a_frozen_disk_takes_until_it_thaws() {
        let disk = Disk::new(Rng::with_seed(1));
        let time = TrueTime::default();
        disk.trouble(|trouble| trouble.frozen = Some((time.clone(), 5_000)));
        time.set(2_000);
        assert!(disk.takes() >= Duration::from_secs(3));
        time.set(5_000);
        assert!(disk.takes() <= Duration::from_millis(3));
    }

    #[test]
    fn a_disk_that_lies_forgets_what_it_acknowledged() {
        let mut left = BTreeSet::new();
        for seed in 0..40 {
            let (disk, file) = durable(seed, &[1]);
            disk.trouble(|trouble| trouble.lies = true);
            file.write(0, &[2]).unwrap();
            file.sync().unwrap();
            assert_eq!(content(&disk), [2], "nobody notices before power is lost");
            disk.lost_power();
            left.insert(content(&disk.mounted())[0]);
        }
        assert_eq!(left, BTreeSet::from([1, 2]));
    }

    #[test]
    fn a_copy_that_is_put_back_is_what_was_there_and_is_durable() {
        let (disk, file) = durable(1, &[1]);
        file.write(0, &[2]).unwrap();
        let copy = disk.copied();
        file.write(0, &[3]).unwrap();
        disk.write(Path::new("/data/later"), &[&b"x"[..]]).unwrap();
        disk.killed();
        disk.put_back(copy);
        disk.lost_power();
        let back = disk.mounted();
        assert_eq!(content(&back), [2]);
        assert!(!back.exists(Path::new("/data/later")));
    }

    #[test]
    fn a_full_disk_can_be_read_and_cut_and_takes_nothing() {
        let (disk, file) = durable(1, &[1; 8]);
        disk.trouble(|trouble| trouble.full = true);
        assert_eq!(file.write(0, &[2]).unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert!(file.set_len(9).is_err());
        file.set_len(4).unwrap();
        assert_eq!(content(&disk), [1; 4]);
    }
}
