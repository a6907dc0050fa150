//! A chain of records on a disk, and what its fences remember at its end. It does not lock: whoever appends or cuts has seen
//! to it that nobody else does.

use super::disk::Disk;
use super::record::{self, Found, Kind, Link, MAX_RECORD, Record, SUM_END, Stamp};
use crate::{FenceError, FencingToken, HighWater};
use ringfence_core::ids::{ClusterId, Scope};
use std::collections::BTreeMap;

/// An fsync failed on this handle: what it has written since the last good one may be gone without another error.
#[derive(Debug, thiserror::Error)]
#[error("an earlier fsync of this log failed, so this handle is closed for writing; open the log again")]
struct Poisoned;

pub(super) struct Chain<D> {
    disk: D,
    /// For messages.
    place: String,
    /// The cluster it is bound to, when its first record was read.
    cluster: Option<ClusterId>,
    /// Where the last record begins, when there is one, and where the next one goes.
    last: u64,
    end: u64,
    link: Link,
    rows: BTreeMap<Scope, HighWater>,
    refused: u64,
    poisoned: bool,
    /// Others may have read, and built on, what was written and not flushed.
    read_by_others: bool,
}

/// What is done with what was left unfinished at the end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Tail {
    Cut,
    Leave,
}

impl<D: Disk> Chain<D> {
    pub(super) fn new(disk: D, place: String) -> Chain<D> {
        let (cluster, link, rows) = (None, Link::default(), BTreeMap::new());
        Chain {
            disk,
            place,
            cluster,
            last: 0,
            end: 0,
            link,
            rows,
            refused: 0,
            poisoned: false,
            read_by_others: false,
        }
    }

    /// Others read it at any time, not only when this handle lets go of a lock.
    pub(super) fn read_by_others(mut self) -> Chain<D> {
        self.read_by_others = true;
        self
    }

    pub(super) fn disk(&self) -> &D {
        &self.disk
    }

    pub(super) fn end(&self) -> u64 {
        self.end
    }

    pub(super) fn link(&self) -> Link {
        self.link
    }

    pub(super) fn row(&self, scope: &Scope) -> Option<HighWater> {
        self.rows.get(scope).copied()
    }

    /// How many records were refused by the rule when they were read: somebody wrote past the fence.
    pub(super) fn refused(&self) -> u64 {
        self.refused
    }

    /// Reads on from where it was, up to the end or to `until`, and shows each record with where it ends, and whether the
    /// rule accepts it.
    ///
    /// # Errors
    /// [`FenceError::Corrupt`] for damage, and for a file that is shorter than it was.
    pub(super) fn read_on(
        &mut self,
        tail: Tail,
        until: Option<u64>,
        mut show: impl FnMut(u64, &Record, bool),
    ) -> Result<(), FenceError> {
        let length = self.disk.length().map_err(failed("reading the log"))?;
        let length = length.min(until.unwrap_or(u64::MAX));
        if length < self.end {
            return Err(self.corrupt(format!("{length} bytes, and had {} before: it was cut", self.end)));
        }
        self.must_be_as_it_was()?;
        let (mut window, mut at) = (Vec::new(), 0);
        loop {
            let left = length - self.end;
            if ((window.len() - at) as u64) < left.min(MAX_RECORD as u64) {
                // Room for any record, and as much again, so that small ones are not read over and over.
                window.resize(usize::try_from(left.min(2 * MAX_RECORD as u64)).unwrap_or(usize::MAX), 0);
                at = 0;
                self.disk.read_at(self.end, &mut window).map_err(failed("reading the log"))?;
            }
            let rest = &window[at..];
            match Record::decode(self.link, rest) {
                Found::Record { record, length, next } => {
                    let accepted = self.take(&record)?;
                    at += length;
                    self.last = self.end;
                    (self.end, self.link) = (self.end + length as u64, next);
                    show(self.end, &record, accepted);
                }
                Found::End => return Ok(()),
                // Nobody writes so much at once.
                Found::Torn if (rest.len() as u64) < left => {
                    return Err(self.corrupt(format!("no record, at byte {}", self.end)));
                }
                Found::Torn if tail == Tail::Leave => return Ok(()),
                Found::Torn => {
                    self.disk.cut(self.end).map_err(failed("cutting off an unfinished record"))?;
                    return self.sync("cutting off an unfinished record");
                }
                Found::Damaged(what) => return Err(self.corrupt(format!("{what}, at byte {}", self.end))),
            }
        }
    }

    /// Refuses to go on behind a record that is no longer there: a copy that was written over the log grows to the same length
    /// again, and what is appended would follow on nothing. Each sum has those before it in it.
    fn must_be_as_it_was(&self) -> Result<(), FenceError> {
        if self.link.number == 0 {
            return Ok(());
        }
        let mut start = [0; SUM_END];
        self.disk.read_at(self.last, &mut start).map_err(failed("reading the log"))?;
        if record::sum(start) == Some(self.link.sum) {
            return Ok(());
        }
        Err(self.corrupt(format!(
            "another record at byte {} than it had before: it was restored in its place under those that have it open. Open it again, \
             raise and read",
            self.last
        )))
    }

    /// Remembers a record; false when the rule refuses it.
    fn take(&mut self, record: &Record) -> Result<bool, FenceError> {
        if self.cluster.is_none() {
            let name = std::str::from_utf8(&record.payload).ok().filter(|_| record.kind == Kind::Bind);
            let cluster = name.and_then(|name| ClusterId::new(name).ok());
            let cluster = cluster.ok_or_else(|| self.corrupt("no cluster in its first record".into()))?;
            self.cluster = Some(cluster);
        }
        let accepted = match record.kind {
            Kind::Bind | Kind::Seal => Ok(()),
            Kind::Raise => self.remember(&record.stamps, HighWater::raise),
            Kind::Force => self.remember(&record.stamps, HighWater::force_raise),
            Kind::Write => self.remember(&record.stamps, HighWater::check),
        };
        self.refused += u64::from(accepted.is_err());
        Ok(accepted.is_ok())
    }

    /// All stamps or none.
    fn remember(
        &mut self,
        stamps: &[Stamp],
        decide: fn(Option<HighWater>, &FencingToken) -> Result<HighWater, FenceError>,
    ) -> Result<(), FenceError> {
        let cluster = self.cluster.clone().ok_or(FenceError::NotInstalled)?;
        let mut after: BTreeMap<&Scope, HighWater> = BTreeMap::new();
        for stamp in stamps {
            let mut token = FencingToken::new(cluster.clone(), stamp.scope.clone(), stamp.epoch);
            if let Some(session) = stamp.session {
                token = token.held_by(session);
            }
            let row = after.get(&stamp.scope).copied().or_else(|| self.row(&stamp.scope));
            after.insert(&stamp.scope, decide(row, &token)?);
        }
        let after: Vec<_> = after.into_iter().map(|(scope, row)| (scope.clone(), row)).collect();
        self.rows.extend(after);
        Ok(())
    }

    /// The cluster it is bound to.
    ///
    /// # Errors
    /// [`FenceError::NotInstalled`] while it has no record.
    pub(super) fn cluster(&self) -> Result<&ClusterId, FenceError> {
        self.cluster.as_ref().ok_or(FenceError::NotInstalled)
    }

    /// Appends records that the rule has accepted, and answers when they are on the disk. Everything before was read.
    ///
    /// # Errors
    /// [`FenceError::Unfit`]; [`FenceError::Busy`] when the disk took not all of it and it was taken back; and
    /// [`FenceError::Store`], after which this handle writes nothing any more.
    pub(super) fn append(&mut self, doing: &'static str, records: &[Record]) -> Result<u64, FenceError> {
        self.must_be_sound(doing)?;
        if records.is_empty() {
            return Ok(self.end);
        }
        let (mut bytes, mut link, mut last) = (Vec::new(), self.link, self.last);
        for record in records {
            last = self.end + bytes.len() as u64;
            link = record.encode(link, &mut bytes)?;
        }
        if let Err(error) = self.disk.write_at(self.end, &bytes) {
            // A beginning of it may be there. No reader takes it for more than that; but of several records some may be whole.
            return match self.disk.cut(self.end) {
                Ok(()) => Err(FenceError::busy(doing, error)),
                Err(_) => {
                    self.poisoned = true;
                    Err(FenceError::store(doing, error))
                }
            };
        }
        self.sync(doing)?;
        for record in records {
            self.take(record)?;
        }
        (self.last, self.end, self.link) = (last, self.end + bytes.len() as u64, link);
        Ok(self.end)
    }

    /// Brings everything that was read or written to the disk. A failure is never tried again: a second fsync may succeed
    /// although the pages of the first one are lost.
    pub(super) fn sync(&mut self, doing: &'static str) -> Result<(), FenceError> {
        self.must_be_sound(doing)?;
        self.disk.sync().map_err(|error| {
            self.poisoned = true;
            if !self.read_by_others {
                // As far as this machine can see it was never there; after a crash it may be.
                let _ = self.disk.cut(self.end);
            }
            FenceError::store(doing, error)
        })
    }

    fn must_be_sound(&self, doing: &'static str) -> Result<(), FenceError> {
        if self.poisoned { Err(FenceError::store(doing, Poisoned)) } else { Ok(()) }
    }

    pub(super) fn corrupt(&self, found: String) -> FenceError {
        FenceError::Corrupt { place: self.place.clone(), found }
    }
}

pub(super) fn failed(doing: &'static str) -> impl Fn(std::io::Error) -> FenceError {
    move |error| FenceError::store(doing, error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FenceErrorKind;
    use std::cell::{Cell, RefCell};
    use std::io;

    /// A disk in memory with a limit, and an fsync that can fail.
    #[derive(Default)]
    struct Faulty {
        bytes: RefCell<Vec<u8>>,
        limit: Cell<Option<usize>>,
        fails_to_sync: Cell<bool>,
        fails_to_cut: Cell<bool>,
        syncs: Cell<usize>,
    }

    impl Disk for Faulty {
        fn length(&self) -> io::Result<u64> {
            Ok(self.bytes.borrow().len() as u64)
        }

        fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
            let at = at as usize;
            into.copy_from_slice(&self.bytes.borrow()[at..at + into.len()]);
            Ok(())
        }

        fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
            let mut all = self.bytes.borrow_mut();
            let room = self.limit.get().unwrap_or(usize::MAX).saturating_sub(at as usize);
            let taken = &bytes[..bytes.len().min(room)];
            all.truncate(at as usize);
            all.extend(taken);
            if taken.len() == bytes.len() { Ok(()) } else { Err(io::ErrorKind::StorageFull.into()) }
        }

        fn cut(&self, to: u64) -> io::Result<()> {
            if self.fails_to_cut.get() {
                return Err(io::Error::other("no cut"));
            }
            self.bytes.borrow_mut().truncate(to as usize);
            Ok(())
        }

        fn sync(&self) -> io::Result<()> {
            self.syncs.set(self.syncs.get() + 1);
            if self.fails_to_sync.get() { Err(io::Error::other("EIO")) } else { Ok(()) }
        }
    }

    fn write(epoch: u64) -> Record {
        let token: FencingToken = format!("prod/orders/17@{epoch}").parse().unwrap();
        Record { kind: Kind::Write, stamps: vec![Stamp::from(&token)], payload: b"entry".to_vec() }
    }

    fn chain() -> Chain<Faulty> {
        let mut chain = Chain::new(Faulty::default(), "the log".into());
        let bind = Record { kind: Kind::Bind, stamps: vec![], payload: b"prod".to_vec() };
        let raise = Record { kind: Kind::Raise, ..write(5) };
        chain.append("testing", &[bind, raise]).unwrap();
        chain
    }

    fn entries(chain: &Chain<Faulty>) -> usize {
        let copy = Faulty { bytes: RefCell::new(chain.disk.bytes.borrow().clone()), ..Faulty::default() };
        let (mut again, mut count) = (Chain::new(copy, "the log".into()), 0);
        again
            .read_on(Tail::Cut, None, |_, record, _| count += usize::from(record.kind == Kind::Write))
            .unwrap();
        count
    }

    #[test]
    fn f075_a_full_disk_takes_nothing_of_several_records_and_is_busy() {
        let mut chain = chain();
        chain.append("testing", &[write(5)]).unwrap();
        let one = chain.disk.length().unwrap();
        // Of two records, one and a half fit.
        let record = chain.end() as usize - {
            let mut b = Vec::new();
            write(5).encode(Link::default(), &mut b).unwrap();
            b.len()
        };
        let size = one as usize - record;
        chain.disk.limit.set(Some(one as usize + size + size / 2));
        let error = chain.append("testing", &[write(5), write(6)]).unwrap_err();
        assert_eq!(error.kind(), FenceErrorKind::Busy);
        assert_eq!(chain.disk.length().unwrap(), one);
        assert_eq!(chain.row(&write(5).stamps[0].scope).unwrap().epoch().get(), 5);
        chain.disk.limit.set(None);
        chain.append("testing", &[write(5)]).unwrap();
        assert_eq!(entries(&chain), 2);
        // What cannot be taken back is unknown, and the handle writes no more.
        chain.disk.limit.set(Some(chain.end() as usize + 10));
        chain.disk.fails_to_cut.set(true);
        assert_eq!(chain.append("testing", &[write(5)]).unwrap_err().kind(), FenceErrorKind::Store);
        chain.disk.limit.set(None);
        assert_eq!(chain.append("testing", &[write(5)]).unwrap_err().kind(), FenceErrorKind::Store);
        assert_eq!(entries(&chain), 2);
    }

    #[test]
    fn f039_f075_after_a_failed_fsync_nothing_is_acknowledged_remembered_or_written_again() {
        let mut chain = chain();
        let scope = write(5).stamps[0].scope.clone();
        chain.disk.fails_to_sync.set(true);
        assert_eq!(chain.append("testing", &[write(6)]).unwrap_err().kind(), FenceErrorKind::Store);
        assert_eq!(chain.row(&scope).unwrap().epoch().get(), 5);
        assert_eq!(entries(&chain), 0);
        // The next fsync would succeed, and prove nothing.
        chain.disk.fails_to_sync.set(false);
        let (before, syncs) = (chain.disk.length().unwrap(), chain.disk.syncs.get());
        for error in [chain.append("testing", &[write(5)]).unwrap_err(), chain.sync("testing").unwrap_err()] {
            assert_eq!(error.kind(), FenceErrorKind::Store);
            assert!(std::error::Error::source(&error).unwrap().to_string().contains("open the log again"));
        }
        assert_eq!((chain.disk.length().unwrap(), chain.disk.syncs.get()), (before, syncs));
    }

    #[test]
    fn t48_an_append_is_answered_after_its_fsync_and_a_torn_tail_is_cut_before_the_next() {
        let mut chain = chain();
        let before = chain.disk.syncs.get();
        chain.append("testing", &[write(5)]).unwrap();
        assert_eq!(chain.disk.syncs.get(), before + 1);
        let whole = chain.disk.length().unwrap();
        chain.disk.bytes.borrow_mut().extend(b"RFL1 and no more");
        chain.read_on(Tail::Leave, None, |_, _, _| ()).unwrap();
        assert!(chain.disk.length().unwrap() > whole);
        chain.read_on(Tail::Cut, None, |_, _, _| ()).unwrap();
        assert_eq!(chain.disk.length().unwrap(), whole);
        chain.disk.cut(whole - 1).unwrap();
        assert_eq!(chain.read_on(Tail::Cut, None, |_, _, _| ()).unwrap_err().kind(), FenceErrorKind::Corrupt);
    }
}
