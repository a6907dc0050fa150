//! The handle of one ownership.

use super::{NotOwner, Phase, ReadGuard, Tenure};
use crate::fence::FencingToken;
use ringfence_core::ids::{Epoch, KeyspaceName, PartitionId, SessionId};
use ringfence_core::mutant;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// One partition, owned under one epoch.
///
/// A worker's owner function gets one for each grant, and gives the partition back by returning. It is cheap to clone
/// and may be handed to other tasks and threads; when the owner function has returned, every clone of it refuses.
///
/// It is bound to its epoch for good. When the partition comes back to this worker after it was lost, that is another
/// ownership with a higher epoch, and this one stays over.
///
/// | to | use |
/// |---|---|
/// | write | [`stamp`](Ownership::stamp) when the operation *starts*; the storage checks the token |
/// | read from memory | [`read`](Ownership::read) or [`guard`](Ownership::guard) |
/// | say how busy it is, where that is not how often it is written and read | [`report_load`](Ownership::report_load) |
/// | know whether a key is the partition's | [`covers`](Ownership::covers) |
/// | know when to stop | [`revoked`](Ownership::revoked), [`until_revoked`](Ownership::until_revoked), [`lost`](Ownership::lost) |
/// | work on a thread without a runtime | the `blocking_` calls |
#[derive(Clone)]
pub struct Ownership {
    tenure: Arc<Tenure>,
}

impl Ownership {
    pub(crate) fn new(tenure: Arc<Tenure>) -> Ownership {
        Ownership { tenure }
    }

    pub(super) fn tenure(&self) -> &Tenure {
        &self.tenure
    }

    /// The keyspace.
    pub fn keyspace(&self) -> &KeyspaceName {
        self.tenure.keyspace()
    }

    /// The partition in it.
    pub fn partition(&self) -> PartitionId {
        self.tenure.partition()
    }

    /// The epoch of this ownership.
    pub fn epoch(&self) -> Epoch {
        self.tenure.token().epoch()
    }

    /// Whether a key belongs to the partition, under this epoch.
    ///
    /// A caller that asks the wrong worker has an old map: refuse it, and write nothing. When a keyspace grows, half of a
    /// partition's keys go to a new one; an owner from before the split has them all, and its epoch ends with it.
    ///
    /// ```
    /// # let (ownership, _control) = ringfence::testkit::Granted::new("orders", 1).partitions(2).start()?;
    /// let keys = ["a", "b", "c", "d"];
    /// let (mine, other): (Vec<&str>, Vec<&str>) = keys.into_iter().partition(|key| ownership.covers(key));
    /// assert!(!mine.is_empty() && !other.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn covers(&self, key: impl AsRef<[u8]>) -> bool {
        self.tenure.covers(key.as_ref())
    }

    /// The partitions that this one was split from, each as the token to which its fences are raised: whoever owned the keys
    /// before may still write them under that scope.
    ///
    /// The SDK raises all declared fences to them before the owner function is called. An owner that opens a store itself
    /// raises that one to each of these, and to its own token, before it reads anything. A store that has seen a higher epoch
    /// of one of them refuses ([`Fenced`](crate::fence::FenceErrorKind::Fenced)), and that is as good.
    pub fn ancestors(&self) -> &[FencingToken] {
        self.tenure.ancestors()
    }

    /// The session that the partition was granted to.
    pub fn session(&self) -> SessionId {
        self.tenure.session()
    }

    /// Where it is in its life. For display: it may have moved on by the time it is read.
    pub fn phase(&self) -> Phase {
        self.tenure.phase()
    }

    /// The token, whether the ownership is valid or not: to open a store, which raises its fence to this epoch, and to
    /// name this ownership in logs.
    ///
    /// To stamp a write take [`Ownership::stamp`], which refuses when the ownership is over. Writing under this token
    /// is as safe, since the fence decides; but a paused owner then finds out from the fence only.
    pub fn token(&self) -> &FencingToken {
        self.tenure.token()
    }

    /// The token for an operation that starts now. Take it at the start and pass it on to the storage, which refuses it
    /// when a newer owner has come meanwhile; never take one at the moment of sending for work that began before.
    ///
    /// Costs one clock read and a few comparisons.
    ///
    /// # Errors
    /// [`NotOwner`] when the ownership is not valid on this clock, now. See [`NotOwner::is_final`].
    #[inline]
    pub fn stamp(&self) -> Result<FencingToken, NotOwner> {
        if mutant!("stamp-unchecked") {
            return Ok(self.token().clone());
        }
        self.tenure.check()?;
        self.tenure.count();
        Ok(self.tenure.token().clone())
    }

    /// Whether the ownership is valid, now. True only until the next instant; [`Ownership::stamp`] and
    /// [`Ownership::read`] do more with the same look.
    #[inline]
    pub fn is_valid(&self) -> bool {
        self.tenure.check().is_ok()
    }

    /// How long the ownership holds if nothing is heard of the coordinator any more; zero when it is over. A renewal makes it
    /// longer. When the partition is wanted back, it is no longer than what is left of the drain.
    ///
    /// It is for whoever has to end something elsewhere in time, such as a process that works under this ownership: look again
    /// before it is over, and act on what is left then. It runs on through a suspend of the machine. In a keyspace that is taken
    /// over by fence, another may own the partition before: there it bounds nothing.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let (ownership, control) = ringfence::testkit::Granted::new("orders", 17).start()?;
    /// assert!(ownership.time_left() > Duration::ZERO);
    /// control.lose();
    /// assert_eq!(ownership.time_left(), Duration::ZERO);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn time_left(&self) -> Duration {
        self.tenure.time_left()
    }

    /// Answers a read from memory under the lease: checks, computes, and checks again.
    ///
    /// ```
    /// # let (ownership, control) = ringfence::testkit::Granted::new("orders", 17).start()?;
    /// let balance = 7;
    /// assert_eq!(ownership.read(|| balance)?, 7);
    /// control.lose();
    /// assert!(ownership.read(|| balance).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`NotOwner`] when the ownership was not valid before, or is not after: the answer is dropped.
    pub fn read<T>(&self, answer: impl FnOnce() -> T) -> Result<T, NotOwner> {
        let guard = self.guard()?;
        guard.confirm(answer())
    }

    /// The same for an answer that takes an `await`, or more than a closure: begin here, compute, and give the answer
    /// out with [`ReadGuard::confirm`].
    ///
    /// # Errors
    /// [`NotOwner`] when the ownership is not valid.
    #[inline]
    pub fn guard(&self) -> Result<ReadGuard<'_>, NotOwner> {
        ReadGuard::begin(self)
    }

    /// Tells the coordinator that the fences are raised and the state is loaded: callers may come. Returns when it has
    /// taken note. Saying it again changes nothing.
    ///
    /// Dropping the future takes nothing back.
    ///
    /// # Errors
    /// [`NotOwner`] when the ownership ended before. While no coordinator can be reached it waits, until the lease
    /// ends.
    pub async fn ready(&self) -> Result<(), NotOwner> {
        self.tenure.ready().await
    }

    /// Says what this partition counts for now, where a keyspace balances by load: bytes, rows, milliseconds of work, in
    /// a unit of your own. It stands until the next call, and goes before what is counted otherwise: how often
    /// [`stamp`](Ownership::stamp), [`read`](Ownership::read) and [`guard`](Ownership::guard) succeed in a second. All
    /// owners of a keyspace should use one unit, best such that a usual load has two digits or more.
    ///
    /// The coordinator takes an average over about eight measurements, made every few seconds, and nothing moves for
    /// noise; above 1 000 000 counts as that. Costs one store, and is sent with others later. Where a keyspace balances by
    /// count it is not sent at all.
    pub fn report_load(&self, units: u64) {
        self.tenure.report_load(units);
    }

    /// Waits until the partition is wanted back, or is lost already: take no new work, flush, and return from the owner
    /// function. Until then the ownership stays valid.
    ///
    /// Cancel safe, and any number may wait.
    pub async fn revoked(&self) {
        self.tenure.reached(Phase::Revoked).await;
    }

    /// Whether [`Ownership::revoked`] would return at once.
    pub fn is_revoked(&self) -> bool {
        self.tenure.phase() >= Phase::Revoked
    }

    /// Runs a future until the partition is wanted back: `None` when it is, and then the future is dropped where it
    /// stands. For the wait for the next piece of work, not for the work itself.
    ///
    /// ```
    /// # async fn serve(partition: ringfence::Ownership, mut queue: tokio::sync::mpsc::Receiver<u64>) {
    /// while let Some(Some(order)) = partition.until_revoked(queue.recv()).await {
    ///     println!("{order}");
    /// }
    /// # }
    /// ```
    pub async fn until_revoked<F: Future>(&self, work: F) -> Option<F::Output> {
        tokio::select! {
            biased;
            () = self.revoked() => None,
            done = work => Some(done),
        }
    }

    /// Waits until the ownership is over, and says why. The owner function is not called back: its task is aborted at
    /// its next `await`. This is for what the task has started elsewhere, such as a thread.
    ///
    /// Cancel safe, and any number may wait. When it returns every check has begun to refuse; a check may refuse a
    /// moment before it returns.
    pub async fn lost(&self) -> NotOwner {
        loop {
            self.tenure.reached(Phase::Ended).await;
            if let Some(ended) = self.tenure.ended() {
                return ended;
            }
        }
    }
}

/// The short token and the phase: `orders/17@42 (Active)`.
impl fmt::Debug for Ownership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.tenure, f)
    }
}
