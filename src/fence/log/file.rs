//! A log in one file that several processes of one machine append to, one at a time.

use super::chain::{Chain, Tail, failed};
use super::place;
use super::record::{Kind, Record, Stamp};
use crate::high_water::{Decide, decide_all};
use crate::token::in_lock_order;
use crate::{FenceError, FencingToken, HighWater, same_cluster};
use ringfence_core::ids::{ClusterId, Epoch, Scope};
use rustix::fs::{FlockOperation, flock};
use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// How long a call waits for others that append, unless told otherwise.
const WAIT: Duration = Duration::from_secs(5);

/// How often the lock is tried while it is waited for. There is no way to wait for it with a limit.
const POLL: Duration = Duration::from_millis(1);

/// How a log is locked by who appends, and by who only reads.
const ALONE: FlockOperation = FlockOperation::NonBlockingLockExclusive;
const SHARED: FlockOperation = FlockOperation::NonBlockingLockShared;

/// How long the turn is waited for.
const TURN: Duration = Duration::from_millis(100);

/// One handle to a log file. Every process, and every thread that writes, opens its own.
///
/// Calls block: they wait for the lock and for the disk. An async owner raises through
/// [`LogRaiser`](super::LogRaiser).
pub struct FencedLog {
    path: PathBuf,
    cluster: ClusterId,
    chain: Chain<File>,
    turn: Option<File>,
    wait: Duration,
    /// The file was replaced under this handle; only what was raised since is believed.
    distrusted: bool,
    raised: BTreeSet<Scope>,
}

/// An entry of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where it ends, in bytes from the start of the log.
    pub end: u64,
    /// The scopes and epochs it was written under.
    pub stamps: Vec<(Scope, Epoch)>,
    /// What was appended.
    pub payload: Vec<u8>,
}

/// Why nothing was done at the end of the log.
enum Miss {
    /// Another file is in its place, since before or since something was written to this one.
    Replaced {
        written: bool,
    },
    Fence(FenceError),
}

impl From<FenceError> for Miss {
    fn from(error: FenceError) -> Miss {
        Miss::Fence(error)
    }
}

/// Another process is at work on the log, or stopped in the middle of it.
#[derive(Debug, thiserror::Error)]
#[error(
    "{} is locked{by}, and was for {} ms: a process that is stopped while it appends holds the lock until it goes on or is \
     killed", .path.display(), .waited.as_millis()
)]
struct Locked {
    path: PathBuf,
    waited: Duration,
    by: String,
}

/// The log's file was replaced in the middle of a call.
#[derive(Debug, thiserror::Error)]
#[error("another file took the place of the log meanwhile")]
struct Moved;

impl FencedLog {
    /// Makes the log where there is none, bound to the cluster, and opens it. Every process does so at its start.
    ///
    /// It reads the whole log once; the calls after that read what is new.
    ///
    /// # Errors
    /// [`FenceError::WrongCluster`] when it is bound to another; [`FenceError::Corrupt`] when it is damaged, or no log;
    /// [`FenceError::Unfit`] on a file system whose locks may not exclude other machines, or do not exclude at all;
    /// [`FenceError::Busy`] and [`FenceError::Store`].
    pub fn install(path: impl AsRef<Path>, cluster: &ClusterId) -> Result<FencedLog, FenceError> {
        let path = path.as_ref();
        place::make(path, &Record { kind: Kind::Bind, stamps: vec![], payload: cluster.as_str().into() })?;
        FencedLog::open(path, cluster)
    }

    /// Opens a log that is there.
    ///
    /// # Errors
    /// As [`FencedLog::install`], and [`FenceError::NotInstalled`] without one.
    pub fn open(path: impl AsRef<Path>, cluster: &ClusterId) -> Result<FencedLog, FenceError> {
        let path = path.as_ref().to_path_buf();
        let file = open(&path)?;
        place::must_lock(&file, &path)?;
        let chain = Chain::new(file, path.display().to_string());
        let (cluster, raised, turn) = (cluster.clone(), BTreeSet::new(), place::turn(&path));
        let mut log = FencedLog { path, cluster, chain, turn, wait: WAIT, distrusted: false, raised };
        match log.locked("opening the log", |_| Ok(())) {
            Ok(()) => Ok(log),
            Err(Miss::Fence(error)) => Err(error),
            Err(Miss::Replaced { .. }) => Err(FenceError::busy("opening the log", Moved)),
        }
    }

    /// How long a call waits for others before it answers [`FenceError::Busy`]; five seconds unless this says otherwise.
    #[must_use]
    pub fn waiting(mut self, wait: Duration) -> FencedLog {
        self.wait = wait;
        self
    }

    /// The cluster it is bound to.
    pub fn cluster(&self) -> &ClusterId {
        &self.cluster
    }

    /// Raises the fence of the token's scope: the epoch is on the disk when it answers, and then the owner reads.
    ///
    /// # Errors
    /// As [`HighWater::raise`]; [`FenceError::WrongCluster`]; [`FenceError::NotInstalled`]; [`FenceError::Corrupt`];
    /// [`FenceError::Busy`] while another process holds the log for longer than the limit, and when the disk is full;
    /// [`FenceError::Store`], after which it may have been raised or not: open the log again and raise again.
    pub fn raise(&mut self, token: &FencingToken) -> Result<(), FenceError> {
        self.raise_all(std::slice::from_ref(token))
    }

    /// Raises several scopes in one record: all or none.
    ///
    /// # Errors
    /// As [`FencedLog::raise`]; no scope is raised then.
    pub fn raise_all(&mut self, tokens: &[FencingToken]) -> Result<(), FenceError> {
        self.raise_by(tokens, Kind::Raise, HighWater::raise)
    }

    /// Raises past the bound on a jump ([`MAX_JUMP`](crate::MAX_JUMP)), for an operator who knows why. It does not move a
    /// fence back either.
    ///
    /// # Errors
    /// As [`FencedLog::raise`], without [`FenceError::Implausible`].
    pub fn force_raise(&mut self, token: &FencingToken) -> Result<(), FenceError> {
        self.raise_by(std::slice::from_ref(token), Kind::Force, HighWater::force_raise)
    }

    fn raise_by(&mut self, tokens: &[FencingToken], kind: Kind, decide: Decide) -> Result<(), FenceError> {
        let doing = "raising the fence";
        let tokens: Vec<&FencingToken> = tokens.iter().collect();
        self.of_this_cluster(&tokens)?;
        if tokens.is_empty() {
            return Ok(());
        }
        let raise = |chain: &mut Chain<File>| {
            let changes = decided(chain, &tokens, decide)?;
            if !changes {
                // What is there may have been written by a process that died before its fsync.
                return chain.sync(doing);
            }
            let stamps = tokens.iter().map(|token| Stamp::from(*token)).collect();
            chain.append(doing, &[Record { kind, stamps, payload: vec![] }]).map(drop)
        };
        match self.locked(doing, raise) {
            // The file that took the place of this one is opened now, and the raise is made there.
            Err(Miss::Replaced { .. }) => {
                let again = FencedLog::open(&self.path, &self.cluster)?;
                (self.chain, self.distrusted) = (again.chain, true);
                self.raised.clear();
                self.locked(doing, raise).map_err(|miss| miss.or(doing, FenceError::busy(doing, Moved)))?;
            }
            raised => raised.map_err(|miss| miss.or(doing, FenceError::busy(doing, Moved)))?,
        }
        self.raised.extend(tokens.iter().map(|token| token.scope().clone()));
        Ok(())
    }

    /// Appends an entry under the tokens of all scopes that it touches. It is on the disk when this answers, with where it
    /// ends.
    ///
    /// # Errors
    /// As [`HighWater::check`]; [`FenceError::Unstamped`] without any token; [`FenceError::Replaced`] when another file has
    /// taken the place of the one in which this handle had raised; [`FenceError::Unfit`] for an entry that is too large;
    /// [`FenceError::WrongCluster`], [`FenceError::NotInstalled`], [`FenceError::Corrupt`], [`FenceError::Busy`]: nothing was
    /// written. [`FenceError::Store`]: nobody knows, and this handle writes nothing any more.
    pub fn append(&mut self, tokens: &[FencingToken], payload: &[u8]) -> Result<u64, FenceError> {
        self.append_with(tokens, || vec![payload.to_vec()])
    }

    /// Appends several entries with one fsync: all or none.
    ///
    /// # Errors
    /// As [`FencedLog::append`].
    pub fn append_all<P: AsRef<[u8]>>(
        &mut self,
        tokens: &[FencingToken],
        payloads: &[P],
    ) -> Result<u64, FenceError> {
        self.append_with(tokens, || payloads.iter().map(|payload| payload.as_ref().to_vec()).collect())
    }

    /// Checks the tokens, then asks for the entries, then appends them. Between check and append nobody else raises or
    /// appends, also not while `make` runs.
    ///
    /// # Errors
    /// As [`FencedLog::append`].
    pub fn append_with(
        &mut self,
        tokens: &[FencingToken],
        make: impl FnOnce() -> Vec<Vec<u8>>,
    ) -> Result<u64, FenceError> {
        let doing = "appending to the log";
        let tokens = in_lock_order(tokens).ok_or(FenceError::Unstamped)?;
        self.of_this_cluster(&tokens)?;
        if let Some(token) = tokens.iter().find(|t| self.distrusted && !self.raised.contains(t.scope())) {
            return Err(FenceError::Replaced { token: (*token).clone() });
        }
        let appended = self.locked(doing, |chain| {
            let changes = decided(chain, &tokens, HighWater::check)?;
            let stamps: Vec<Stamp> = tokens.iter().map(|token| Stamp::from(*token)).collect();
            let record = |kind, payload| Record { kind, stamps: stamps.clone(), payload };
            let mut records: Vec<Record> = make().into_iter().map(|p| record(Kind::Write, p)).collect();
            if records.is_empty() && changes {
                // A higher epoch is remembered also where nothing is written under it.
                records.push(record(Kind::Raise, Vec::new()));
            }
            chain.append(doing, &records)
        });
        appended.map_err(|miss| miss.or(doing, FenceError::Replaced { token: tokens[0].clone() }))
    }

    /// Checks the tokens and appends nothing. The answer is about the past: anybody may raise between it and what follows,
    /// so it protects nothing. It is for [observing](crate::ObserveOnly).
    ///
    /// # Errors
    /// As [`FencedLog::append`].
    pub fn check(&mut self, tokens: &[FencingToken]) -> Result<(), FenceError> {
        self.append_with(tokens, Vec::new).map(drop)
    }

    /// Shows every entry from the start, in order. An owner raises first, or it may miss what a replaced one still appends.
    ///
    /// It reads with a lock of its own, without holding up those that append for longer than the reading takes; what an owner
    /// has appended meanwhile is not in it.
    ///
    /// # Errors
    /// [`FenceError::NotInstalled`], [`FenceError::Corrupt`] with the place, after what stands before it was shown,
    /// [`FenceError::WrongCluster`], [`FenceError::Store`].
    pub fn read(&mut self, mut show: impl FnMut(Entry)) -> Result<(), FenceError> {
        // To the end of a whole record, which no later one changes.
        let end = self.locked("reading the log", |chain| Ok(chain.end()));
        let end = match end {
            Err(Miss::Replaced { .. }) => None,
            Err(Miss::Fence(error)) => return Err(error),
            Ok(end) => Some(end),
        };
        let mut chain = Chain::new(open(&self.path)?, self.path.display().to_string());
        chain.read_on(Tail::Leave, end, |end, record, accepted| {
            if accepted && record.kind == Kind::Write {
                show(Entry::of(end, record));
            }
        })?;
        of_cluster(&chain, &self.cluster)
    }

    /// Shows every entry to somebody who may read the file and no more, such as a report. It is no owner's read: the next
    /// entry may come at once, and the last one may be of a process that died before it was flushed.
    ///
    /// # Errors
    /// As [`FencedLog::read`], and [`FenceError::Busy`] while somebody appends for longer than five seconds.
    pub fn read_only(
        path: impl AsRef<Path>,
        cluster: &ClusterId,
        mut show: impl FnMut(Entry),
    ) -> Result<(), FenceError> {
        let path = path.as_ref();
        let file = File::open(path).map_err(opening)?;
        let end = {
            // Nobody is in the middle of an append now.
            let _lock = Lock::within(&file, SHARED, path, Instant::now(), WAIT)?;
            file.metadata().map_err(failed("reading the log"))?.len()
        };
        let mut chain = Chain::new(file, path.display().to_string());
        chain.read_on(Tail::Leave, Some(end), |end, record, accepted| {
            if accepted && record.kind == Kind::Write {
                show(Entry::of(end, record));
            }
        })?;
        of_cluster(&chain, cluster)
    }

    /// The highest epoch seen of a scope; `None` when it was never raised.
    ///
    /// # Errors
    /// As [`FencedLog::read`], and [`FenceError::Busy`].
    pub fn highest(&mut self, scope: &Scope) -> Result<Option<Epoch>, FenceError> {
        let row = match self.locked("reading the fence", |chain| Ok(chain.row(scope))) {
            Err(Miss::Replaced { .. }) => FencedLog::open(&self.path, &self.cluster)?.chain.row(scope),
            Err(Miss::Fence(error)) => return Err(error),
            Ok(row) => row,
        };
        Ok(row.map(HighWater::epoch))
    }

    /// How many records this handle has read that the fence's rule refuses: some process wrote past the fence, and no
    /// reader is shown them.
    pub fn refused_records(&self) -> u64 {
        self.chain.refused()
    }

    /// Cuts a damaged end off, as an operator who has looked at it: from byte `at`, which is the one that
    /// [`FenceError::Corrupt`] names. What is cut is kept beside the log, and its path is answered.
    ///
    /// Entries that had been answered may be in it. The owners' raises may be too, so let all of them raise again.
    ///
    /// # Errors
    /// [`FenceError::Unfit`] when the log is not damaged there; [`FenceError::Busy`] and [`FenceError::Store`].
    pub fn cut_damage(path: impl AsRef<Path>, at: u64) -> Result<PathBuf, FenceError> {
        let path = path.as_ref();
        let doing = "cutting off a damaged end";
        let file = open(path)?;
        let _lock = Lock::of(&file, None, path, WAIT)?;
        let mut chain = Chain::new(file.try_clone().map_err(failed(doing))?, path.display().to_string());
        let damaged =
            matches!(chain.read_on(Tail::Leave, None, |_, _, _| ()), Err(FenceError::Corrupt { .. }));
        if !damaged || chain.end() != at {
            let why = format!("{} is not damaged at byte {at}, so nothing was cut", path.display());
            return Err(FenceError::Unfit { why });
        }
        place::set_aside(path, &file, at)
    }

    fn of_this_cluster(&self, tokens: &[&FencingToken]) -> Result<(), FenceError> {
        tokens.iter().try_for_each(|token| same_cluster(&self.cluster, token))
    }

    /// Runs `work` while nobody else is at the log, at its very end.
    fn locked<T>(
        &mut self,
        doing: &'static str,
        work: impl FnOnce(&mut Chain<File>) -> Result<T, FenceError>,
    ) -> Result<T, Miss> {
        let file = self.chain.disk().try_clone().map_err(failed(doing))?;
        let _lock = Lock::of(&file, self.turn.as_ref(), &self.path, self.wait)?;
        if !in_place(&file, &self.path, doing)? {
            return Err(Miss::Replaced { written: false });
        }
        self.chain.read_on(Tail::Cut, None, |_, _, _| ())?;
        of_cluster(&self.chain, &self.cluster)?;
        let before = self.chain.end();
        let done = work(&mut self.chain)?;
        // What was written to a file that is in its place no more is answered to nobody.
        match in_place(&file, &self.path, doing) {
            Ok(true) => Ok(done),
            Ok(false) | Err(FenceError::NotInstalled) => {
                Err(Miss::Replaced { written: self.chain.end() > before })
            }
            Err(error) => Err(error.into()),
        }
    }
}

impl Miss {
    /// The fence's error; this one where the file had been replaced before anything was written.
    fn or(self, doing: &'static str, replaced: FenceError) -> FenceError {
        match self {
            Miss::Replaced { written: false } => replaced,
            Miss::Replaced { written: true } => FenceError::store(doing, Moved),
            Miss::Fence(error) => error,
        }
    }
}

impl Entry {
    pub(super) fn of(end: u64, record: &Record) -> Entry {
        let stamps = record.stamps.iter().map(|stamp| (stamp.scope.clone(), stamp.epoch)).collect();
        Entry { end, stamps, payload: record.payload.clone() }
    }
}

impl fmt::Debug for FencedLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FencedLog {} of {}", self.path.display(), self.cluster)
    }
}

fn of_cluster<D: super::disk::Disk>(chain: &Chain<D>, cluster: &ClusterId) -> Result<(), FenceError> {
    let bound = chain.cluster()?;
    if bound == cluster {
        return Ok(());
    }
    Err(FenceError::WrongCluster { presented: cluster.clone(), bound: bound.clone() })
}

/// Whether the tokens change a row; or the refusal of one of them.
fn decided(chain: &Chain<File>, tokens: &[&FencingToken], decide: Decide) -> Result<bool, FenceError> {
    let after = decide_all(tokens.iter().copied(), |scope| chain.row(scope), decide)?;
    Ok(after.iter().any(|(scope, row)| chain.row(scope) != Some(*row)))
}

/// Whether the path still leads to this file.
fn in_place(file: &File, path: &Path, doing: &'static str) -> Result<bool, FenceError> {
    let there = match std::fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(FenceError::NotInstalled),
        there => there.map_err(failed(doing))?,
    };
    let here = file.metadata().map_err(failed(doing))?;
    Ok((there.dev(), there.ino()) == (here.dev(), here.ino()))
}

fn open(path: &Path) -> Result<File, FenceError> {
    File::options().read(true).write(true).open(path).map_err(opening)
}

fn opening(error: io::Error) -> FenceError {
    match error.kind() {
        io::ErrorKind::NotFound => FenceError::NotInstalled,
        _ => FenceError::store("opening the log", error),
    }
}

/// The file's lock; it ends when this is dropped.
struct Lock<'a>(&'a File);

impl<'a> Lock<'a> {
    fn of(
        file: &'a File,
        turn: Option<&'a File>,
        path: &Path,
        wait: Duration,
    ) -> Result<Lock<'a>, FenceError> {
        let start = Instant::now();
        // Whoever appends without a break leaves the lock alone for microseconds only, and would keep all that poll out. Who waits
        // takes the turn first, and whoever comes then waits for it; but not for long, or one that is stopped while it waits
        // would hold up everybody.
        let _turn = match turn {
            Some(turn) => Lock::until(turn, ALONE, start, wait.min(TURN))?,
            None => None,
        };
        Lock::within(file, ALONE, path, start, wait)
    }

    fn within(
        file: &'a File,
        how: FlockOperation,
        path: &Path,
        start: Instant,
        wait: Duration,
    ) -> Result<Lock<'a>, FenceError> {
        Lock::until(file, how, start, wait)?.ok_or_else(|| {
            let (path, by) = (path.to_path_buf(), place::holder(file));
            FenceError::busy("waiting for the log", Locked { path, waited: wait, by })
        })
    }

    fn until(
        file: &'a File,
        how: FlockOperation,
        start: Instant,
        wait: Duration,
    ) -> Result<Option<Lock<'a>>, FenceError> {
        loop {
            let lock = Lock::try_of(file, how)?;
            if lock.is_some() || start.elapsed() >= wait {
                return Ok(lock);
            }
            thread::sleep(POLL);
        }
    }

    fn try_of(file: &'a File, how: FlockOperation) -> Result<Option<Lock<'a>>, FenceError> {
        match flock(file, how) {
            Ok(()) => Ok(Some(Lock(file))),
            Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => Ok(None),
            Err(error) => Err(FenceError::store("locking the log", error)),
        }
    }
}

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        // Should it fail, the descriptor's last copy takes the lock along.
        let _ = flock(self.0, FlockOperation::Unlock);
    }
}
