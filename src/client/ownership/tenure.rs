//! One tenure: a partition or a lock under one epoch, from its grant to its end. What the handles share.

use super::lease::{Look, SessionLease};
use super::{NotOwner, Why};
use crate::fence::FencingToken;
use ringfence_core::ids::{KeyspaceName, PartitionId, SessionId};
use ringfence_core::mutant;
use ringfence_core::placement::Share;
use ringfence_core::time::Instant;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;

/// No bound of its own: valid as long as the session's lease.
const UNBOUNDED: u64 = u64::MAX;
/// It has ended.
const ENDED: u64 = 0;
/// The application has not said what the partition counts for.
const NOT_REPORTED: u64 = u64::MAX;

/// Written by every operation, on a cache line of its own: the checks of other threads read what stands beside it.
#[repr(align(128))]
struct Counter(AtomicU64);

/// Where an ownership is in its life. It only moves forward, and may leave phases out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Phase {
    /// The partition was granted; its task waits for a lease, or for the task of an earlier epoch to end.
    Granted,
    /// The declared fences are being raised to this epoch. Nothing was read yet.
    Fencing,
    /// The task runs: it opens what the partition needs.
    Loading,
    /// The task has said that it is ready, and the coordinator has taken note: callers may come.
    Active,
    /// The partition is wanted back: take no new work, flush, return.
    Revoked,
    /// It is over.
    Ended,
}

/// Who tells the coordinator that an owner is ready.
pub(crate) trait Desk: Send + Sync {
    /// Called at most once for each tenure; whoever implements it calls [`Tenure::noted`] when the coordinator has
    /// taken note.
    fn say_ready(&self, tenure: &Tenure);
}

/// What waiters are woken for.
#[derive(Debug)]
struct Progress {
    phase: Phase,
    /// How it ended.
    why: Option<Why>,
    /// The coordinator knows that it is ready.
    noted: bool,
}

/// What the handles of one ownership share; `X` is what a partition has, or a lock.
pub(crate) struct Tenure<X = Owned> {
    token: FencingToken,
    session: SessionId,
    lease: Arc<SessionLease>,
    /// It is taken over by fence.
    by_fence: bool,
    /// Nanoseconds of the lease's clock. Only falls.
    until: AtomicU64,
    progress: watch::Sender<Progress>,
    /// The last answer was that it is not valid now, and may be again.
    paused: AtomicBool,
    of: X,
}

/// What a tenure of a partition has besides.
pub(crate) struct Owned {
    keyspace: KeyspaceName,
    partition: PartitionId,
    /// Which keys it has; `None` in a test that does not say.
    share: Option<Share>,
    /// What its fences are raised to beside its own token.
    ancestors: Box<[FencingToken]>,
    /// Its task has said that it is ready.
    said_ready: AtomicBool,
    desk: Arc<dyn Desk>,
    /// What the application says that the partition counts for.
    reported_load: AtomicU64,
    operations: Counter,
}

/// What a tenure is made from.
pub(crate) struct Grant {
    pub(crate) token: FencingToken,
    pub(crate) keyspace: KeyspaceName,
    pub(crate) partition: PartitionId,
    pub(crate) session: SessionId,
    pub(crate) by_fence: bool,
    pub(crate) share: Option<Share>,
    pub(crate) ancestors: Box<[FencingToken]>,
}

impl Tenure {
    pub(crate) fn new(grant: Grant, lease: Arc<SessionLease>, desk: Arc<dyn Desk>) -> Tenure {
        let Grant { token, keyspace, partition, session, by_fence, share, ancestors } = grant;
        let owned = Owned {
            keyspace,
            partition,
            share,
            ancestors,
            said_ready: AtomicBool::new(false),
            desk,
            reported_load: AtomicU64::new(NOT_REPORTED),
            operations: Counter(AtomicU64::new(0)),
        };
        Tenure::of(token, session, by_fence, lease, owned)
    }

    pub(crate) fn ancestors(&self) -> &[FencingToken] {
        &self.of.ancestors
    }

    pub(super) fn covers(&self, key: &[u8]) -> bool {
        self.of.share.is_none_or(|share| share.contains(key))
    }

    pub(crate) fn keyspace(&self) -> &KeyspaceName {
        &self.of.keyspace
    }

    pub(crate) fn partition(&self) -> PartitionId {
        self.of.partition
    }

    /// Counts an operation that began.
    #[inline]
    pub(super) fn count(&self) {
        self.of.operations.0.fetch_add(1, Ordering::Relaxed);
    }

    /// How many operations have begun.
    pub(crate) fn operations(&self) -> u64 {
        self.of.operations.0.load(Ordering::Relaxed)
    }

    pub(super) fn report_load(&self, units: u64) {
        self.of.reported_load.store(units.min(NOT_REPORTED - 1), Ordering::Relaxed);
    }

    /// What the application says that the partition counts for, when it says so.
    pub(crate) fn reported_load(&self) -> Option<u64> {
        Some(self.of.reported_load.load(Ordering::Relaxed)).filter(|units| *units != NOT_REPORTED)
    }

    /// See [`Ownership::ready`](super::Ownership::ready).
    pub(super) async fn ready(&self) -> Result<(), NotOwner> {
        match self.check() {
            Err(over) if over.is_final() => return Err(over),
            _ => {}
        }
        if !self.of.said_ready.swap(true, Ordering::AcqRel) {
            self.of.desk.say_ready(self);
        }
        let known = |now: &Progress| now.noted || now.phase == Phase::Ended;
        // It cannot fail: the sender is in `self`.
        let _ = self.progress.subscribe().wait_for(known).await;
        self.ended().map_or(Ok(()), Err)
    }
}

impl<X> Tenure<X> {
    pub(crate) fn of(
        token: FencingToken,
        session: SessionId,
        by_fence: bool,
        lease: Arc<SessionLease>,
        of: X,
    ) -> Tenure<X> {
        Tenure {
            token: token.held_by(session),
            session,
            lease,
            by_fence,
            until: AtomicU64::new(UNBOUNDED),
            progress: watch::Sender::new(Progress { phase: Phase::Granted, why: None, noted: false }),
            paused: AtomicBool::new(false),
            of,
        }
    }

    /// What it has as a partition, or as a lock.
    pub(crate) fn particulars(&self) -> &X {
        &self.of
    }

    pub(crate) fn token(&self) -> &FencingToken {
        &self.token
    }

    pub(crate) fn session(&self) -> SessionId {
        self.session
    }

    pub(crate) fn phase(&self) -> Phase {
        self.progress.borrow().phase
    }

    /// Moves on to a phase; does nothing when it is there already, or beyond. True when it moved.
    pub(crate) fn enter(&self, phase: Phase) -> bool {
        self.progress.send_if_modified(|now| {
            let forward = now.phase < phase;
            if forward {
                now.phase = phase;
            }
            forward
        })
    }

    /// The coordinator knows that it is ready.
    pub(crate) fn noted(&self) {
        self.progress.send_modify(|now| {
            now.noted = true;
            now.phase = now.phase.max(Phase::Active);
        });
    }

    /// Valid until then at most. A later moment than one given before changes nothing.
    pub(crate) fn bound(&self, until: Instant) {
        if mutant!("drain-bound-not-checked") {
            return;
        }
        self.until.fetch_min(until.as_nanos(), Ordering::AcqRel);
    }

    /// Whether the coordinator knows that it is ready.
    pub(crate) fn is_noted(&self) -> bool {
        self.progress.borrow().noted
    }

    /// Ends it. The first reason stands; true when this was it.
    pub(crate) fn end(&self, why: Why) -> bool {
        // The comparison first: whoever is woken must find it over.
        self.until.store(ENDED, Ordering::Release);
        self.progress.send_if_modified(|now| {
            let first = now.phase != Phase::Ended;
            if first {
                now.phase = Phase::Ended;
                now.why = Some(why);
            }
            first
        })
    }

    /// Whether the last answer was that it is not valid now, and may be again.
    pub(crate) fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Acquire)
    }

    /// One clock read and two or three comparisons.
    #[inline]
    pub(crate) fn check(&self) -> Result<(), NotOwner> {
        // Read before the loads: see `SessionLease::holds`.
        let now = self.lease.clock.now();
        if !self.holds(now) {
            return self.explain(now);
        }
        if self.paused.load(Ordering::Relaxed) {
            self.paused.store(false, Ordering::Release);
        }
        Ok(())
    }

    /// Allocates nothing and takes no lock.
    #[inline]
    pub(super) fn holds(&self, now: Instant) -> bool {
        self.lease.holds(now, self.by_fence) && now.as_nanos() < self.until.load(Ordering::Acquire)
    }

    /// How long it holds if nothing more is heard of the coordinator. The grace is left out: it may pass.
    pub(crate) fn time_left(&self) -> Duration {
        // Read before the loads, so that what is renewed in between only counts for more.
        let now = self.lease.clock.now();
        let elsewhere = self.lease.is_elsewhere();
        let lease = self.lease.until().filter(|_| !elsewhere).map_or(ENDED, Instant::as_nanos);
        let until = lease.min(self.until.load(Ordering::Acquire));
        Duration::from_nanos(until.saturating_sub(now.as_nanos()))
    }

    /// Why it is not valid, and makes final what is.
    #[cold]
    fn explain(&self, now: Instant) -> Result<(), NotOwner> {
        let look = self.lease.look(now, self.by_fence);
        if look == Look::Forked {
            // Nothing is changed: parent and child share no memory any more, and the parent owns.
            return Err(self.not_owner(Why::Forked));
        }
        let until = self.until.load(Ordering::Acquire);
        if until == ENDED {
            // Somebody is about to say why.
            return Err(self.ended().unwrap_or_else(|| self.not_owner(Why::TaskEnded)));
        }
        if now.as_nanos() >= until {
            self.end(Why::DrainOver);
        } else if look == Look::Over {
            self.end(Why::Expired);
        } else if look == Look::Disconnected {
            self.paused.store(true, Ordering::Release);
            return Err(self.not_owner(Why::Disconnected));
        } else {
            // It was extended between the two looks.
            return Ok(());
        }
        Err(self.ended().unwrap_or_else(|| self.not_owner(Why::Expired)))
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&self) -> Option<NotOwner> {
        let why = self.progress.borrow().why;
        why.map(|why| self.not_owner(why))
    }

    /// Waits for a phase, or a later one. Cancel safe.
    pub(crate) async fn reached(&self, phase: Phase) {
        // It cannot fail: the sender is in `self`.
        let _ = self.progress.subscribe().wait_for(|now| now.phase >= phase).await;
    }

    fn not_owner(&self, why: Why) -> NotOwner {
        NotOwner::new(self.token.clone(), why)
    }
}

impl<X> fmt::Debug for Tenure<X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:?})", self.token.short(), self.phase())
    }
}
