//! A log in a directory, with a file for each epoch, for file systems whose locks cannot be relied on.
//!
//! Nobody is kept from writing. Each owner writes to a file of its own, which it makes by an atomic link (the *claim*), and
//! then *seals* the one before: it reads how far that goes, and writes that down as the second record of its own. From then
//! on no reader takes more of it, whatever is still appended there. (BookKeeper closes a ledger, and Kafka truncates to an
//! epoch, in the same way.) A writer looks for newer files after its fsync and before it answers, so where directories are
//! not cached one of the two always sees the other.

use super::Entry;
use super::chain::{Chain, Tail, failed};
use super::place;
use super::record::{Kind, Record, Stamp};
use crate::reply::reply;
use crate::{Fence, FenceError, FenceFuture, Fenced, FencingToken, HighWater};
use ringfence_core::ids::{ClusterId, Epoch, Scope};
use std::fmt;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;

/// How many files a directory may have: one for each epoch that wrote, or tried to.
pub const MAX_SEGMENTS: usize = 100_000;

const ENDING: &str = "rfl";

/// What an owner writes to: one directory, one scope, one epoch.
pub struct SegmentWriter {
    directory: PathBuf,
    token: FencingToken,
    chain: Chain<File>,
}

/// Reads a directory of segments.
#[derive(Clone, Debug)]
pub struct SegmentReader {
    directory: PathBuf,
    cluster: ClusterId,
}

/// What was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The entries that count, in their order. Where each ends is counted within its segment.
    pub entries: Vec<Entry>,
    /// Whether this is settled: nobody has begun to take over. Otherwise the last entries may still be left out, or more may
    /// come before the next owner's.
    pub settled: bool,
    /// How many records stand in the files and do not count: they came after the next owner had sealed.
    pub refused: u64,
}

/// Raises by claiming and sealing; see [`SegmentWriter::raise`]. It is no [`Enforces`](crate::Enforces): it cannot promise
/// that a replaced owner's append is refused, only that readers are.
#[derive(Clone, Debug)]
pub struct SegmentFence {
    directory: PathBuf,
    cluster: ClusterId,
}

/// A newer owner has come, and has not said yet how much of the segment it takes.
#[derive(Debug, thiserror::Error)]
#[error(
    "epoch {0} has come meanwhile and not sealed this segment yet: whether the entry is in it nobody knows so far"
)]
struct BeingSealed(u64);

/// What the second record of a segment says of the one before; none for the first of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seal {
    before: Option<Epoch>,
    end: u64,
    sum: u32,
}

/// A segment as far as it is whole.
struct Segment {
    chain: Chain<File>,
    stamp: Stamp,
    seal: Option<Seal>,
    entries: Vec<Entry>,
}

impl SegmentWriter {
    /// Raises to the token's epoch: claims a file of its own, and seals what is before it. Both are on the disk when this
    /// answers, and then the owner reads. The directory is made where there is none, and none above it.
    ///
    /// Raising again is safe until the first entry; after that an epoch has its one writer.
    ///
    /// # Errors
    /// As [`HighWater::raise`]; [`FenceError::WrongCluster`] and [`FenceError::WrongScope`] when the directory is another's;
    /// [`FenceError::Corrupt`] with the file; [`FenceError::Unfit`] when this epoch has been written under already, or with
    /// more than [`MAX_SEGMENTS`]; [`FenceError::Busy`] and [`FenceError::Store`].
    pub fn raise(directory: impl AsRef<Path>, token: &FencingToken) -> Result<SegmentWriter, FenceError> {
        let directory = directory.as_ref();
        // Not the directories above it: one that is missing may be a file system that is not mounted.
        match fs::create_dir(directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(FenceError::store("making the directory of the segments", error));
            }
            // Also when somebody else has made it: he may have died before he got to this.
            _ => place::sync_directory(directory).map_err(failed("making the directory of the segments"))?,
        }
        let epochs = list(directory)?;
        let row = match epochs.last() {
            Some(highest) => Some(owner_of(directory, *highest, token)?),
            None => None,
        };
        HighWater::raise(row, token)?;
        let path = path(directory, token.epoch());
        let cluster = token.cluster().as_str().into();
        place::make(&path, &Record { kind: Kind::Bind, stamps: vec![Stamp::from(token)], payload: cluster })?;
        let mut own = Segment::open(directory, token.epoch(), Tail::Cut)?;
        if !own.entries.is_empty() {
            let why = format!("{} has entries already, and an epoch has one writer", path.display());
            return Err(FenceError::Unfit { why });
        }
        if own.seal.is_none() {
            // After the claim: what a replaced owner was answered before it could see that is read here.
            let seal = Seal::of_what_is_before(directory, token.epoch())?;
            let record = Record { kind: Kind::Seal, stamps: vec![], payload: seal.payload() };
            own.chain.append("sealing the segment before", &[record])?;
        } else {
            own.chain.sync("sealing the segment before")?;
        }
        match newest(directory)? {
            Some(newest) if newest > token.epoch() => Err(Fenced::new(token.clone(), newest).into()),
            _ => Ok(SegmentWriter { directory: directory.into(), token: token.clone(), chain: own.chain }),
        }
    }

    /// The token it writes under.
    pub fn token(&self) -> &FencingToken {
        &self.token
    }

    /// Appends an entry. When this answers, it is on the disk, and no newer owner was to be seen after that; or one was, and
    /// had taken the entry over.
    ///
    /// # Errors
    /// [`FenceError::Fenced`] when a newer owner has sealed this segment before the entry: no reader is ever shown it.
    /// [`FenceError::Unfit`] for an entry that is too large, and when another writer of this epoch has written; [`FenceError::Busy`]
    /// when the disk is full, or while that one writes; [`FenceError::Store`] when the disk failed, or while a newer owner is taking over: nobody knows.
    pub fn append(&mut self, payload: &[u8]) -> Result<u64, FenceError> {
        let doing = "appending to the segment";
        // Only to leave no more behind than needs be; what counts is the look after the fsync.
        if let Some(newest) = self.newer()? {
            return Err(Fenced::new(self.token.clone(), newest).into());
        }
        let stamps = vec![Stamp::from(&self.token)];
        let record = Record { kind: Kind::Write, stamps, payload: payload.to_vec() };
        let end = self.alone(doing, |chain| chain.append(doing, &[record]))?;
        // From here on the entry is there, so whatever goes wrong, nobody knows.
        let unknown = |error: FenceError| FenceError::store(doing, error);
        let Some(newest) = self.newer().map_err(unknown)? else { return Ok(end) };
        match self.taken().map_err(unknown)? {
            Taken::To(taken) if taken >= end => Ok(end),
            Taken::To(_) => Err(Fenced::new(self.token.clone(), newest).into()),
            Taken::NotYet => Err(FenceError::store(doing, BeingSealed(newest.get()))),
        }
    }

    /// Keeps out another writer of the same epoch, which a raise that is said twice makes: both would write to the same place.
    /// Where locks do not reach, what the other has written shows in the file's length.
    fn alone<T>(
        &mut self,
        doing: &'static str,
        write: impl FnOnce(&mut Chain<File>) -> Result<T, FenceError>,
    ) -> Result<T, FenceError> {
        let lock = match self.chain.disk().try_lock() {
            Err(TryLockError::WouldBlock) => return Err(FenceError::busy(doing, TryLockError::WouldBlock)),
            tried => tried.is_ok(),
        };
        let length = self.chain.disk().metadata().map_err(failed(doing)).map(|file| file.len());
        let written = match length {
            Ok(length) if length != self.chain.end() => Err(FenceError::Unfit {
                why: format!(
                    "another writer of epoch {} has written, and an epoch has one",
                    self.token.epoch().get()
                ),
            }),
            Ok(_) => write(&mut self.chain),
            Err(error) => Err(error),
        };
        if lock {
            // It goes with the handle otherwise.
            let _ = self.chain.disk().unlock();
        }
        written
    }

    fn newer(&self) -> Result<Option<Epoch>, FenceError> {
        Ok(newest(&self.directory)?.filter(|newest| *newest > self.token.epoch()))
    }

    /// What the newest owner takes of this segment; what it passes over it takes nothing of. An older one's seal decides nothing
    /// while a newer one has only claimed: that one may have read this segment before, or may read it after, what was
    /// appended last.
    fn taken(&self) -> Result<Taken, FenceError> {
        let own = self.token.epoch();
        let line = lineage(&self.directory, Some(own))?;
        let sealed = line.first().map(|(epoch, _)| *epoch).filter(|epoch| *epoch > own);
        if sealed.is_none() || sealed != newest(&self.directory)? {
            return Ok(Taken::NotYet);
        }
        let this = line.iter().find(|(epoch, _)| *epoch == own);
        Ok(Taken::To(this.and_then(|(_, taken)| *taken).unwrap_or(0)))
    }
}

/// How much of a segment newer ones take over.
enum Taken {
    To(u64),
    NotYet,
}

impl fmt::Debug for SegmentWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SegmentWriter {} under {}", self.directory.display(), self.token)
    }
}

impl SegmentReader {
    /// Reads a directory of this cluster's.
    pub fn new(directory: impl AsRef<Path>, cluster: &ClusterId) -> SegmentReader {
        SegmentReader { directory: directory.as_ref().into(), cluster: cluster.clone() }
    }

    /// Reads all entries that count.
    ///
    /// # Errors
    /// [`FenceError::WrongCluster`]; [`FenceError::Corrupt`] for damage, and for a segment that is missing or shorter than it
    /// was when it was sealed; [`FenceError::Store`].
    pub fn read(&self) -> Result<Reading, FenceError> {
        let epochs = list(&self.directory)?;
        let line = lineage(&self.directory, None)?;
        let settled_on = line.first().map(|(epoch, _)| *epoch);
        let mut reading = Reading { entries: Vec::new(), settled: true, refused: 0 };
        for (epoch, taken) in line.iter().rev() {
            let segment = Segment::open(&self.directory, *epoch, Tail::Leave)?;
            if *segment.chain.cluster()? != self.cluster {
                let (presented, bound) = (self.cluster.clone(), segment.chain.cluster()?.clone());
                return Err(FenceError::WrongCluster { presented, bound });
            }
            let whole = segment.entries.len();
            let counts = segment.entries.into_iter().filter(|entry| taken.is_none_or(|end| entry.end <= end));
            let before = reading.entries.len();
            reading.entries.extend(counts);
            reading.refused += (whole - (reading.entries.len() - before)) as u64;
        }
        for epoch in epochs.iter().filter(|epoch| line.iter().all(|(counts, _)| counts != *epoch)) {
            // One that was claimed and passed over; it may have been written to all the same.
            let passed = Segment::open(&self.directory, *epoch, Tail::Leave);
            reading.refused += passed.map_or(0, |segment| segment.entries.len() as u64);
        }
        reading.settled = newest(&self.directory)? == settled_on;
        Ok(reading)
    }
}

impl SegmentFence {
    /// The fence of a directory.
    pub fn new(directory: impl AsRef<Path>, cluster: &ClusterId) -> SegmentFence {
        SegmentFence { directory: directory.as_ref().into(), cluster: cluster.clone() }
    }
}

impl Fence for SegmentFence {
    fn raise<'a>(&'a self, token: &'a FencingToken) -> FenceFuture<'a, ()> {
        if let Err(error) = crate::same_cluster(&self.cluster, token) {
            return Box::pin(std::future::ready(Err(error)));
        }
        let (owed, waiting) = reply();
        let (directory, token) = (self.directory.clone(), token.clone());
        // A directory is raised once an epoch: a thread for it costs less than one that waits.
        let raising = thread::Builder::new()
            .name("ringfence-segments".into())
            .spawn(move || owed.send(SegmentWriter::raise(directory, &token).map(drop)));
        match raising {
            Ok(_) => Box::pin(waiting),
            Err(error) => {
                Box::pin(std::future::ready(Err(FenceError::store("starting the fence's thread", error))))
            }
        }
    }

    fn highest<'a>(&'a self, _: &'a Scope) -> FenceFuture<'a, Option<Epoch>> {
        Box::pin(std::future::ready(newest(&self.directory)))
    }
}

impl Seal {
    /// Reads how far the newest sealed segment below an epoch goes. One that was claimed only has no entries.
    fn of_what_is_before(directory: &Path, own: Epoch) -> Result<Seal, FenceError> {
        for epoch in list(directory)?.into_iter().rev().filter(|epoch| *epoch < own) {
            let segment = Segment::open(directory, epoch, Tail::Leave)?;
            if segment.seal.is_some() {
                // What is sealed must not be lost with a machine whose owner died before its own fsync.
                segment.chain.disk().sync_all().map_err(failed("flushing the segment before"))?;
                let (end, sum) = (segment.chain.end(), segment.chain.link().sum);
                return Ok(Seal { before: Some(epoch), end, sum });
            }
        }
        Ok(Seal { before: None, end: 0, sum: 0 })
    }

    fn payload(self) -> Vec<u8> {
        let before = self.before.map_or(0, Epoch::get);
        [&before.to_le_bytes()[..], &self.end.to_le_bytes(), &self.sum.to_le_bytes()].concat()
    }

    fn parse(payload: &[u8]) -> Option<Seal> {
        let (before, rest) = payload.split_first_chunk()?;
        let (end, rest) = rest.split_first_chunk()?;
        let sum = rest.try_into().ok()?;
        let before = match u64::from_le_bytes(*before) {
            0 => None,
            number => Some(Epoch::new(number).ok()?),
        };
        Some(Seal { before, end: u64::from_le_bytes(*end), sum: u32::from_le_bytes(sum) })
    }
}

impl Segment {
    fn open(directory: &Path, epoch: Epoch, tail: Tail) -> Result<Segment, FenceError> {
        Segment::open_to(directory, epoch, tail, None)
    }

    /// Up to byte `until`, or to its end.
    fn open_to(
        directory: &Path,
        epoch: Epoch,
        tail: Tail,
        until: Option<u64>,
    ) -> Result<Segment, FenceError> {
        let path = path(directory, epoch);
        let corrupt =
            |found: &str| FenceError::Corrupt { place: path.display().to_string(), found: found.into() };
        let file = match File::options().read(true).write(tail == Tail::Cut).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(corrupt("nothing: the file is missing, and another one names it"));
            }
            file => file.map_err(failed("opening a segment"))?,
        };
        let mut chain = Chain::new(file, path.display().to_string()).read_by_others();
        let (mut stamp, mut seal, mut entries, mut strange) = (None, None, Vec::new(), false);
        let mut number = 0;
        chain.read_on(tail, until, |end, record, _| {
            match (number, record.kind) {
                (0, Kind::Bind) => stamp = record.stamps.first().cloned(),
                (1, Kind::Seal) => seal = Seal::parse(&record.payload),
                (_, Kind::Write) if seal.is_some() => entries.push(Entry::of(end, record)),
                _ => strange = true,
            }
            number += 1;
        })?;
        let stamp = stamp.filter(|stamp| stamp.epoch == epoch && !strange && (number < 2 || seal.is_some()));
        let stamp = stamp.ok_or_else(|| corrupt("records that are not those of a segment of its epoch"))?;
        Ok(Segment { chain, stamp, seal, entries })
    }
}

/// The newest sealed segment and those below it that count, down to `lowest` or one below; with how far each is taken,
/// which the newest does not say.
fn lineage(directory: &Path, lowest: Option<Epoch>) -> Result<Vec<(Epoch, Option<u64>)>, FenceError> {
    let mut line = Vec::new();
    let mut next = None;
    for epoch in list(directory)?.into_iter().rev() {
        if let Some(seal) = Segment::open(directory, epoch, Tail::Leave)?.seal {
            line.push((epoch, None));
            next = Some(seal);
            break;
        }
    }
    while let Some(Seal { before: Some(epoch), end, sum }) = next {
        let above = line.last().map_or(Epoch::MAX, |(above, _)| *above);
        let place = path(directory, above).display().to_string();
        if epoch >= above {
            return Err(FenceError::Corrupt { place, found: format!("a seal of epoch {}", epoch.get()) });
        }
        line.push((epoch, Some(end)));
        let segment = Segment::open_to(directory, epoch, Tail::Leave, Some(end))?;
        if (segment.chain.end(), segment.chain.link().sum) != (end, sum) {
            let found = format!("a seal of epoch {} up to byte {end}, which ends otherwise", epoch.get());
            return Err(FenceError::Corrupt { place, found });
        }
        next = segment.seal.filter(|_| lowest.is_none_or(|lowest| epoch > lowest));
    }
    Ok(line)
}

/// What the fence remembers by this segment, when it is the token's scope.
fn owner_of(directory: &Path, epoch: Epoch, token: &FencingToken) -> Result<HighWater, FenceError> {
    let segment = Segment::open(directory, epoch, Tail::Leave)?;
    crate::same_cluster(segment.chain.cluster()?, token)?;
    if segment.stamp.scope != *token.scope() {
        return Err(FenceError::WrongScope { token: token.clone(), fence: segment.stamp.scope });
    }
    Ok(HighWater::new(epoch, segment.stamp.session))
}

fn path(directory: &Path, epoch: Epoch) -> PathBuf {
    directory.join(format!("{:016}.{ENDING}", epoch.get()))
}

fn newest(directory: &Path) -> Result<Option<Epoch>, FenceError> {
    Ok(list(directory)?.pop())
}

/// The epochs of which there are files, ascending. Other files are none of ours.
fn list(directory: &Path) -> Result<Vec<Epoch>, FenceError> {
    let failed = failed("listing the segments");
    let mut epochs = Vec::new();
    let files = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(FenceError::NotInstalled),
        files => files.map_err(&failed)?,
    };
    for file in files {
        let name = file.map_err(&failed)?.file_name();
        let number = name.to_str().and_then(|name| name.strip_suffix(ENDING)?.strip_suffix('.'));
        let number = number.filter(|digits| digits.len() == 16 && digits.bytes().all(|b| b.is_ascii_digit()));
        epochs.extend(number.and_then(|digits| Epoch::new(digits.parse().ok()?).ok()));
        if epochs.len() > MAX_SEGMENTS {
            let why = format!(
                "{} has more than {MAX_SEGMENTS} segments (MAX_SEGMENTS): begin another directory",
                directory.display()
            );
            return Err(FenceError::Unfit { why });
        }
    }
    epochs.sort_unstable();
    Ok(epochs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(epoch: u64) -> FencingToken {
        format!("prod/orders/17@{epoch}").parse().unwrap()
    }

    #[test]
    fn b05_t03_a_seal_decides_nothing_while_a_newer_owner_has_only_claimed() {
        let dir = tempfile::tempdir().unwrap();
        let directory = dir.path().join("segments");
        let mut old = SegmentWriter::raise(&directory, &token(33)).unwrap();
        let end = old.append(b"A").unwrap();
        SegmentWriter::raise(&directory, &token(34)).unwrap();
        assert!(matches!(old.taken(), Ok(Taken::To(taken)) if taken == end));
        // 35 has claimed, and has read 33 or will: 34 goes no further.
        let stamps = vec![Stamp::from(&token(35))];
        let claim = Record { kind: Kind::Bind, stamps, payload: b"prod".into() };
        assert!(place::make(&path(&directory, Epoch::new(35).unwrap()), &claim).unwrap());
        assert!(matches!(old.taken(), Ok(Taken::NotYet)));
        assert!(matches!(SegmentWriter::raise(&directory, &token(34)), Err(FenceError::Fenced(_))));
        SegmentWriter::raise(&directory, &token(35)).unwrap();
        assert!(matches!(old.taken(), Ok(Taken::To(taken)) if taken == end));
    }
}
