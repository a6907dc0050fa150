//! What a coordinator, and a bad day, do to an ownership.

use super::granted::epoch;
use crate::clock::Clock;
use crate::error::{Error, ErrorKind};
use crate::fence::FencingToken;
use crate::ownership::{Desk, Grant, NotOwner, Ownership, Phase, SessionLease, Tenure, Why};
use ringfence_core::ids::{ClusterId, Epoch, KeyspaceName, PartitionId, Scope, SessionId};
use ringfence_core::lease::lessee::{CONNECTION_GRACE, Timing};
use ringfence_core::placement::Share;
use ringfence_core::time::Instant;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// The other end of an [`Ownership`] from the test kit.
///
/// Dropping it changes nothing: the ownership stays as it is.
#[derive(Debug)]
pub struct Control {
    cluster: ClusterId,
    keyspace: KeyspaceName,
    partition: PartitionId,
    timing: Timing,
    by_fence: bool,
    share: Option<Share>,
    clock: Clock,
    sessions: u64,
    session: SessionId,
    lease: Arc<SessionLease>,
    tenure: Arc<Tenure>,
    /// Since when the connection is gone.
    cut: Option<Instant>,
}

/// A coordinator that takes note at once.
struct Obliging;

impl Desk for Obliging {
    fn say_ready(&self, tenure: &Tenure) {
        tenure.noted();
    }
}

impl Control {
    pub(super) fn grant(
        cluster: ClusterId,
        keyspace: KeyspaceName,
        partition: PartitionId,
        epoch: Epoch,
        ttl: Duration,
        by_fence: bool,
        share: Option<Share>,
    ) -> Result<(Ownership, Control), Error> {
        let invalid = |error: String| Error::own(ErrorKind::Invalid, error);
        let timing = Timing::new(ttl).map_err(|error| invalid(error.to_string()))?;
        let clock = Clock::Manual(Arc::new(AtomicU64::new(1_000_000_000)));
        let session = SessionId::new(1).ok_or_else(|| invalid("a session has a number".to_owned()))?;
        let lease = Arc::new(SessionLease::new(clock.clone()));
        let grant = Grant {
            token: FencingToken::new(cluster.clone(), Scope::Partition(keyspace.clone(), partition), epoch),
            keyspace: keyspace.clone(),
            partition,
            session,
            by_fence,
            share,
            ancestors: Box::default(),
        };
        let tenure = Arc::new(Tenure::new(grant, Arc::clone(&lease), Arc::new(Obliging)));
        tenure.enter(Phase::Loading);
        let control = Control {
            cluster,
            keyspace,
            partition,
            timing,
            by_fence,
            share,
            clock,
            sessions: 1,
            session,
            lease,
            tenure: Arc::clone(&tenure),
            cut: None,
        };
        control.renew();
        Ok((Ownership::new(tenure), control))
    }

    /// The coordinator wants the partition back: `revoked()` returns, and the ownership stays valid.
    pub fn revoke(&self) {
        self.tenure.enter(Phase::Revoked);
    }

    /// The coordinator gave the partition to another: the ownership is over.
    pub fn lose(&self) {
        self.tenure.end(Why::Taken);
    }

    /// The process stands still for so long, its renewals with it, and goes on. When that is longer than the lease, the
    /// ownership is over at its next call; otherwise the lease is renewed.
    pub fn pause(&self, pause: Duration) {
        self.clock.advance(pause);
        if Ownership::new(Arc::clone(&self.tenure)).is_valid() && self.cut.is_none() {
            self.renew();
        }
    }

    /// The connection to the coordinator breaks: renewals stop, and a later [`Control::pause`] counts against the lease
    /// in full. In a keyspace that is taken over by fence the ownership pauses after 200 ms.
    pub fn disconnect(&mut self) {
        let cut = *self.cut.get_or_insert(self.clock.now());
        // The lease is as it was; only a lease that is over refuses this, and then there is nothing to pause.
        let _ = self.lease.publish(None, Some(cut + CONNECTION_GRACE));
    }

    /// The connection is back and the coordinator has acknowledged a renewal.
    pub fn reconnect(&mut self) {
        self.cut = None;
        self.renew();
    }

    /// Grants the partition anew, under the next epoch. An earlier ownership is over for good; when the lease was over,
    /// this one is of a new session.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] when epochs are used up.
    pub fn next_epoch(&mut self) -> Result<Ownership, Error> {
        let next = epoch(self.tenure.token().epoch().get().saturating_add(1))?;
        self.tenure.end(Why::Taken);
        if self.lease.until().is_none_or(|until| self.clock.now() >= until) {
            self.sessions += 1;
            self.session = SessionId::new(self.sessions).unwrap_or(self.session);
            self.lease = Arc::new(SessionLease::new(self.clock.clone()));
        }
        let scope = Scope::Partition(self.keyspace.clone(), self.partition);
        let grant = Grant {
            token: FencingToken::new(self.cluster.clone(), scope, next),
            keyspace: self.keyspace.clone(),
            partition: self.partition,
            session: self.session,
            by_fence: self.by_fence,
            share: self.share,
            ancestors: Box::default(),
        };
        self.tenure = Arc::new(Tenure::new(grant, Arc::clone(&self.lease), Arc::new(Obliging)));
        self.tenure.enter(Phase::Loading);
        self.cut = None;
        self.renew();
        Ok(Ownership::new(Arc::clone(&self.tenure)))
    }

    /// Whether the ownership has said that it is ready.
    pub fn is_ready(&self) -> bool {
        self.tenure.is_noted()
    }

    /// How the ownership ended, if it has.
    pub fn ended(&self) -> Option<NotOwner> {
        self.tenure.ended()
    }

    fn renew(&self) {
        let until = self.timing.lease_from(self.clock.now());
        // A lease that is over stays over; the calls on the ownership say so.
        let _ = self.lease.publish(Some(until), None);
    }
}

#[cfg(test)]
mod tests {
    use super::super::Granted;
    use super::*;

    fn granted() -> (Ownership, Control) {
        Granted::new("orders", 17).epoch(42).start().unwrap()
    }

    #[test]
    fn t22_a_pause_shorter_than_the_lease_changes_nothing_and_a_longer_one_ends_it() {
        let (owner, control) = granted();
        for _ in 0..5 {
            control.pause(Duration::from_secs(9));
            assert!(owner.stamp().is_ok(), "renewed after each pause");
        }
        control.pause(Duration::from_secs(10));
        assert_eq!(owner.stamp().unwrap_err().why(), Why::Expired);
        assert_eq!(owner.read(|| 1).unwrap_err().why(), Why::Expired);
    }

    #[test]
    fn t05_an_ownership_is_never_refreshed() {
        let (old, mut control) = granted();
        let stamp = old.stamp().unwrap();
        control.lose();
        let new = control.next_epoch().unwrap();
        assert_eq!((stamp.epoch().get(), new.epoch().get()), (42, 43));
        assert_eq!(old.stamp().unwrap_err().why(), Why::Taken);
        assert!(new.stamp().is_ok());
        assert_eq!(old.token().epoch().get(), 42, "it can always be named");
    }

    #[test]
    fn a_cut_connection_pauses_only_what_is_taken_over_by_fence() {
        let (owner, mut control) = Granted::new("orders", 17).takeover_by_fence().start().unwrap();
        control.disconnect();
        control.pause(Duration::from_millis(199));
        assert!(owner.is_valid());
        control.pause(Duration::from_millis(1));
        let pause = owner.stamp().unwrap_err();
        assert!(!pause.is_final() && pause.why() == Why::Disconnected);
        control.reconnect();
        assert!(owner.is_valid());

        let (owner, mut control) = granted();
        control.disconnect();
        control.pause(Duration::from_secs(9));
        assert!(owner.is_valid());
        control.pause(Duration::from_secs(1));
        assert_eq!(owner.stamp().unwrap_err().why(), Why::Expired);
    }

    #[test]
    fn what_cannot_be_granted_is_an_error_and_says_why() {
        for (granted, part) in [
            (Granted::new("Orders", 1), "keyspace"),
            (Granted::new("orders", 1).epoch(0), "epoch"),
            (Granted::new("orders", 1).cluster(""), "cluster"),
            (Granted::new("orders", 1).ttl(Duration::ZERO), "ttl"),
        ] {
            let error = granted.start().unwrap_err();
            assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains(part), "{error}");
        }
    }
}
