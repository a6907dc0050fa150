//! One session, from join to its end.
//!
//! The decisions are the lessee's; this loop reads the clock, moves messages, and starts and ends tasks. Each turn of
//! the loop settles everything first: what the lessee says has happened, the published lease, tasks to start, the
//! renewal that is due. Then it waits for the next thing.

mod locks;
mod orders;

use super::handle::Wish;
use super::keeper::{ABORT_GRACE, Keeper, LAST_WORD, Lost};
use super::link::{Link, LinkEvent};
use super::meter::Meter;
use super::outbox::{Item, Outbox, Sent, What};
use super::session::Session;
use super::tasks::{Finished, How};
use super::wire::{self, Key, Place};
use crate::error::Error;
use crate::fence::FencingToken;
use crate::ownership::{Grant, Phase, SessionLease, Tenure, Why};
use locks::Locks;
use ringfence_api::v1::attach_response::Message;
use ringfence_core::ids::{Epoch, Scope};
use ringfence_core::lease::lessee::{Event, Lessee, Lineage, Loss};
use ringfence_core::mutant;
use ringfence_core::placement::Share;
use ringfence_core::state::{Born, Takeover};
use ringfence_core::time::Instant;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

pub(super) use locks::{Caller, Return};

/// How soon to look again whether the process is fit to be renewed for.
const UNFIT_AGAIN: Duration = Duration::from_millis(50);
/// The least time that a coordinator has for an answer to a renewal before its connection counts as dead.
const LEAST_SILENCE: Duration = Duration::from_millis(250);

/// How a session ended.
pub(super) enum End {
    /// As it was asked to.
    Left(Result<(), Error>),
    /// Nobody wants it any more: it was left to its lease.
    Abandoned,
    Lost(Lost),
}

pub(super) struct Life<'k> {
    keeper: &'k mut Keeper,
    session: Session,
    lessee: Lessee<Key>,
    lease: Arc<SessionLease>,
    link: Link,
    outbox: Outbox,
    meter: Meter,
    /// What the lessee believes, or did until an event that is about to be handled.
    held: BTreeMap<Place, Holding>,
    /// Of those, what has no task yet.
    waiting: BTreeSet<Place>,
    locks: Locks,
    stage: Stage,
    /// The coordinator has ended the session.
    confirmed_over: bool,
    /// Releases of what was held when the lease ran out.
    owed: Vec<Item>,
    /// How many partitions were lost with the session.
    lost: usize,
}

struct Holding {
    tenure: Arc<Tenure>,
    since: Instant,
    /// The coordinator was told that an acknowledgement with the drain has arrived.
    drain_seen: bool,
}

/// What the worker is about.
enum Stage {
    Serving,
    /// Its tasks are ending; at the deadline they are aborted, and the coordinator is waited for no longer.
    Leaving {
        since: tokio::time::Instant,
        deadline: Option<tokio::time::Instant>,
    },
    /// They were aborted, and have until then to end and to be told of.
    Aborting {
        deadline: tokio::time::Instant,
    },
    /// Nothing is renewed or said any more.
    Abandoned,
}

impl<'k> Life<'k> {
    pub(super) fn new(keeper: &'k mut Keeper, session: Session) -> Life<'k> {
        let lease = Arc::new(SessionLease::new(keeper.clock.clone()));
        let lessee = Lessee::new(session.timing, keeper.clock.now());
        let drills = keeper.profile.probes.keys().map(ToString::to_string).collect();
        let link = Link::new(keeper.coordinator.clone(), &session, drills);
        let outbox = Outbox::new(keeper.coordinator.clone(), &session);
        let locks = Locks::new(keeper, &session, &lease);
        Life {
            keeper,
            session,
            lessee,
            lease,
            link,
            outbox,
            meter: Meter::default(),
            held: BTreeMap::new(),
            waiting: BTreeSet::new(),
            locks,
            stage: Stage::Serving,
            confirmed_over: false,
            owed: Vec::new(),
            lost: 0,
        }
    }

    pub(super) async fn run(mut self) -> End {
        loop {
            self.settle();
            if self.lessee.is_over() {
                if !self.confirmed_over {
                    tracing::error!(session = %self.session.id, owned = self.owed.len(), "the lease ran out");
                }
                let Life {
                    session, confirmed_over: confirmed, mut outbox, mut owed, lost, mut locks, ..
                } = self;
                let untold = outbox.take_given_back();
                let partitions = lost + untold.len();
                owed.extend(untold);
                let owed_locks = locks.end(confirmed);
                return End::Lost(Lost { session, confirmed, owed, owed_locks, partitions });
            }
            match self.stage {
                Stage::Abandoned if self.keeper.tasks.running().len() == 0 && self.locks.is_empty() => {
                    return End::Abandoned;
                }
                Stage::Leaving { .. } | Stage::Aborting { .. } if self.is_done() => {
                    return self.leave().await;
                }
                _ => {}
            }
            let look_again = self.look_again();
            tokio::select! {
                event = self.link.next() => self.on_link(event),
                sent = self.outbox.next() => self.on_sent(sent),
                finished = self.keeper.tasks.next() => self.on_finished(finished),
                Some((place, epoch)) = self.keeper.ready.recv() => self.on_ready(place, epoch),
                Some(command) = self.keeper.lock_commands.recv() => self.on_lock_command(command),
                called = self.locks.next() => self.on_lock_called(called),
                _ = self.keeper.wish.changed(), if matches!(self.stage, Stage::Serving) => {}
                () = self.keeper.host.ran() => {}
                () = sleep(look_again) => {}
            }
        }
    }

    /// Brings everything up to date with the clock.
    fn settle(&mut self) {
        self.look_at_wish();
        let now = self.keeper.clock.now();
        self.lessee.handle_timeout(now);
        self.handle_events(now);
        // After the bounds and the losses: a lease that was made longer must not show without them.
        if self.lease.publish(self.lessee.lease_until(), self.lessee.grace_until()).is_err() {
            self.lessee.expire();
            self.handle_events(now);
        }
        if self.lessee.is_over() {
            self.lease.end();
            return;
        }
        self.start_tasks(now);
        self.settle_locks(now);
        self.renew();
        self.measure(now);
        // The clock was read again for the renewal: a pause right here is found by it, and whoever owns is told now.
        if self.lessee.is_over() {
            self.handle_events(now);
            self.lease.end();
        }
    }

    fn look_at_wish(&mut self) {
        match self.stage {
            Stage::Serving if self.keeper.is_abandoned() => {
                tracing::warn!(session = %self.session.id, "the worker was dropped; its lease runs out");
                self.stage = Stage::Abandoned;
                self.keeper.drilling.cancel();
                self.keeper.tasks.revoke_all();
                self.link.hang_up();
                let now = self.keeper.clock.now();
                self.lessee.disconnected(now);
                self.outbox.clear();
                self.locks.let_go(now);
            }
            Stage::Serving if *self.keeper.wish.borrow_and_update() != Wish::Serve => {
                tracing::info!(session = %self.session.id, owned = self.held.len(), "leaving");
                let limit = self.keeper.profile.shutdown_limit;
                let since = tokio::time::Instant::now();
                self.stage =
                    Stage::Leaving { since, deadline: limit.and_then(|limit| since.checked_add(limit)) };
                self.keeper.drilling.cancel();
                // First of all, or what is given back would be granted to this worker again.
                self.outbox.withdraw();
                self.keeper.tasks.revoke_all();
                for place in std::mem::take(&mut self.waiting) {
                    self.give_back(&place, What::Released);
                }
            }
            Stage::Leaving { deadline: Some(deadline), .. }
                if tokio::time::Instant::now() >= deadline && self.keeper.tasks.running().len() > 0 =>
            {
                let tasks = self.keeper.tasks.running().len();
                tracing::warn!(tasks, "owners did not return within the shutdown limit and are aborted");
                self.keeper.tasks.abort_all();
                self.stage = Stage::Aborting { deadline: tokio::time::Instant::now() + ABORT_GRACE };
            }
            _ => {}
        }
        // Not before: what the tasks do to the end may need its locks.
        if matches!(self.stage, Stage::Leaving { .. } | Stage::Aborting { .. })
            && self.keeper.tasks.running().len() == 0
        {
            self.locks.close(self.keeper.clock.now());
        }
    }

    fn handle_events(&mut self, now: Instant) {
        while let Some(event) = self.lessee.poll_event() {
            match event {
                Event::Granted { key: Key::Partition(place), epoch, takeover, lineage } => {
                    self.on_granted(place, epoch, takeover, &lineage, now);
                }
                Event::Granted { key: Key::Lock(key), epoch, takeover, .. } => {
                    self.locks.granted(key, epoch, takeover, now);
                }
                Event::Revoked { key: Key::Partition(place), .. } => self.on_revoked(&place),
                Event::Bounded { key: Key::Partition(place), epoch, until } => {
                    let Some(holding) = self.held.get_mut(&place) else { continue };
                    holding.tenure.bound(until);
                    if !std::mem::replace(&mut holding.drain_seen, true) {
                        self.outbox.push(Item { place, epoch, what: What::RevokeSeen });
                    }
                }
                // Locks are not drained.
                Event::Revoked { key: Key::Lock(_), .. } | Event::Bounded { key: Key::Lock(_), .. } => {}
                Event::Lost { key: Key::Partition(place), epoch, why } => self.on_lost(place, epoch, why),
                Event::Lost { key: Key::Lock(key), epoch, why } => self.locks.lost(&key, epoch, why, now),
            }
        }
    }

    fn on_granted(
        &mut self,
        place: Place,
        epoch: Epoch,
        takeover: Takeover,
        lineage: &Lineage,
        now: Instant,
    ) {
        let token = FencingToken::new(self.session.cluster.clone(), place.scope(), epoch);
        // Without a session: each later owner of the partition raises them to the same epochs.
        let ancestor = |born: &Born| {
            let scope = Scope::Partition(place.keyspace.clone(), born.parent);
            FencingToken::new(self.session.cluster.clone(), scope, born.epoch)
        };
        let ancestors = lineage.ancestors.iter().filter(|_| !mutant!("child-forgets-parent"));
        let share = lineage.of.filter(|_| !mutant!("owner-keeps-split-keys"));
        let share = share.or_else(|| self.session.count(&place));
        tracing::debug!(token = %token.short(), session = %self.session.id, "granted");
        let grant = Grant {
            token,
            keyspace: place.keyspace.clone(),
            partition: place.partition,
            session: self.session.id,
            by_fence: takeover == Takeover::Fence,
            share: share.map(|of| Share { partition: place.partition, of }),
            ancestors: ancestors.map(ancestor).collect(),
        };
        let desk = Arc::clone(&self.keeper.desk);
        let tenure = Arc::new(Tenure::new(grant, Arc::clone(&self.lease), desk));
        self.held.insert(place.clone(), Holding { tenure, since: now, drain_seen: false });
        match self.stage {
            Stage::Serving | Stage::Abandoned => {
                self.waiting.insert(place);
            }
            Stage::Leaving { .. } | Stage::Aborting { .. } => self.give_back(&place, What::Released),
        }
    }

    fn on_revoked(&mut self, place: &Place) {
        let Some(holding) = self.held.get(place) else { return };
        tracing::debug!(token = %holding.tenure.token().short(), "revoked");
        holding.tenure.enter(Phase::Revoked);
        if mutant!("revoke-seen-by-a-push") {
            let epoch = holding.tenure.token().epoch();
            self.outbox.push(Item { place: place.clone(), epoch, what: What::RevokeSeen });
        }
        // Nothing of it runs: there is nothing to wait for.
        if self.waiting.remove(place) || mutant!("released-before-its-task-ends") {
            self.give_back(place, What::Released);
        }
    }

    fn on_lost(&mut self, place: Place, epoch: Epoch, loss: Loss) {
        let Some(holding) = self.held.remove(&place) else { return };
        self.waiting.remove(&place);
        let tenure = holding.tenure;
        let overran = tenure.phase() == Phase::Revoked;
        tenure.end(match loss {
            Loss::Taken => Why::Taken,
            Loss::DrainOver => Why::DrainOver,
            Loss::Expired => Why::Expired,
            Loss::SessionEnded => Why::SessionEnded,
        });
        let runs = self.keeper.tasks.runs(&place, epoch);
        let token = tenure.token().short();
        match loss {
            // The session's end was reported once, for all of them.
            Loss::Expired | Loss::SessionEnded => {
                self.lost += 1;
                tracing::debug!(%token, ?loss, aborted = runs, "lost");
            }
            Loss::Taken | Loss::DrainOver => {
                tracing::warn!(%token, ?loss, overran, aborted = runs, "lost before it was given back");
            }
        }
        if runs {
            self.keeper.tasks.abort(&place);
        }
        if loss == Loss::Expired {
            self.owed.push(Item { place, epoch, what: What::Released });
        }
    }

    /// Starts the tasks of what is held and valid, unless one of an earlier epoch has not ended.
    fn start_tasks(&mut self, now: Instant) {
        if self.waiting.is_empty() || !matches!(self.stage, Stage::Serving) {
            return;
        }
        for place in self.waiting.clone() {
            let Some(holding) = self.held.get(&place) else { continue };
            let epoch = holding.tenure.token().epoch();
            let valid = self.lessee.valid_until(&Key::Partition(place.clone()), epoch);
            let valid = valid.is_some_and(|until| now < until);
            let valid = valid || mutant!("starts-without-a-lease");
            let earlier = self.keeper.tasks.epoch_of(&place).filter(|_| !mutant!("two-tasks-at-once"));
            let owner = self.keeper.profile.owners.get(&place.keyspace);
            match (owner, earlier) {
                (None, _) => {
                    self.waiting.remove(&place);
                    self.give_back(
                        &place,
                        What::Failed("this worker has no owner function for it".to_owned()),
                    );
                }
                // Somebody else may be able to serve it meanwhile.
                (_, Some(earlier)) if now.since(holding.since) > self.session.timing.ttl() => {
                    self.waiting.remove(&place);
                    let error = format!("the task of epoch {} has not ended on this worker", earlier.get());
                    self.give_back(&place, What::Failed(error));
                }
                (Some(owner), None) if valid => {
                    let (tenure, owner) = (Arc::clone(&holding.tenure), owner.clone());
                    self.waiting.remove(&place);
                    self.keeper.tasks.start(&self.keeper.host.runtime, place, tenure, owner);
                }
                _ => {}
            }
        }
    }

    fn renew(&mut self) {
        let now = self.keeper.clock.now();
        let timing = self.session.timing;
        self.keeper.host.probe(now, timing.renew_every() / 2);
        if self.lessee.oldest_unanswered().is_some_and(|sent| now.since(sent) >= self.silence()) {
            tracing::warn!(session = %self.session.id, "the coordinator does not answer; connecting anew");
            self.link.silent();
            self.lessee.disconnected(now);
        }
        if !self.lessee.renewal_due(now) {
            return;
        }
        if self.keeper.drilling.stalls(now) || !self.keeper.host.is_fit(now, timing.ttl()) {
            self.lessee.defer_renewal(now + UNFIT_AGAIN);
            return;
        }
        // Read again: what the renewal is worth counts from here, and the health check may have taken its time.
        let sending = self.keeper.clock.now();
        if let Some(number) = self.lessee.renew(sending, fastrand::u32(..))
            && !self.link.renew(number)
        {
            self.link.silent();
            self.lessee.disconnected(sending);
        }
    }

    /// Tells what the partitions count for, when that was asked for. A process that plays one that stands still does not.
    fn measure(&mut self, now: Instant) {
        if !matches!(self.stage, Stage::Serving) {
            return;
        }
        let owned = self.held.iter().map(|(place, holding)| (place, &*holding.tenure));
        if let Some(loads) = self.meter.due(now, owned).filter(|_| !self.keeper.drilling.stalls(now)) {
            self.link.tell(loads);
        }
    }

    fn silence(&self) -> Duration {
        (self.session.timing.ttl() / 4).max(LEAST_SILENCE)
    }

    /// How long to sleep at most. tokio's timers stand still while the machine sleeps, so never for long.
    fn look_again(&self) -> Duration {
        let now = self.keeper.clock.now();
        let silence = self.lessee.oldest_unanswered().map(|sent| sent + self.silence());
        let measure = self.meter.poll_timeout().filter(|_| matches!(self.stage, Stage::Serving));
        let next = [self.lessee.poll_timeout(), measure, silence].into_iter().flatten().min();
        let deadline = match self.stage {
            Stage::Leaving { deadline, .. } => deadline,
            Stage::Aborting { deadline } => Some(deadline),
            Stage::Serving | Stage::Abandoned => None,
        };
        let most = self.session.timing.renew_every() / 2;
        let next = next.map_or(most, |next| next.since(now)).min(most);
        deadline.map_or(next, |deadline| {
            next.min(deadline.saturating_duration_since(tokio::time::Instant::now()))
        })
    }

    fn on_link(&mut self, event: LinkEvent) {
        let now = self.keeper.clock.now();
        match event {
            LinkEvent::Opened => {
                tracing::debug!(session = %self.session.id, "connected");
                self.lessee.connected(now);
                self.meter.connected();
            }
            LinkEvent::Message(Message::Assignment(assignment)) => {
                match wire::assignment(assignment, &self.session.keyspaces) {
                    Ok(assignment) => {
                        self.lessee.assign(now, assignment);
                        self.locks.picture_changed();
                    }
                    Err(error) => self.on_nonsense(&error),
                }
            }
            LinkEvent::Message(Message::Acknowledgement(mut acknowledgement)) => {
                self.meter.asked(now, acknowledgement.measure.take());
                match wire::acknowledgement(acknowledgement, &self.session.keyspaces) {
                    Ok(acknowledgement) => {
                        self.link.is_good();
                        self.lessee.acknowledge(now, acknowledgement);
                    }
                    Err(error) => self.on_nonsense(&error),
                }
            }
            LinkEvent::Message(Message::Drill(order)) => self.on_drill(order),
            LinkEvent::Closed { why } => {
                tracing::info!(session = %self.session.id, why, "reconnecting");
                self.lessee.disconnected(now);
            }
            LinkEvent::SessionOver { why } => self.on_session_over(&why),
        }
    }

    fn on_nonsense(&mut self, error: &ringfence_api::convert::InvalidField) {
        tracing::error!(%error, "the coordinator's message makes no sense to this client; are their versions apart?");
        self.link.reset();
        self.lessee.disconnected(self.keeper.clock.now());
    }

    fn on_session_over(&mut self, why: &str) {
        tracing::error!(session = %self.session.id, why, owned = self.held.len(), "the session is over");
        self.confirmed_over = true;
        self.lessee.session_ended();
    }

    fn on_sent(&mut self, sent: Sent) {
        match sent {
            Sent::Known(items) => {
                for Item { place, epoch, what } in items {
                    let of_now = self.held.get(&place).filter(|h| h.tenure.token().epoch() == epoch);
                    if let (What::Ready, Some(holding)) = (what, of_now) {
                        tracing::debug!(token = %holding.tenure.token().short(), "ready");
                        holding.tenure.noted();
                    }
                }
            }
            Sent::Delayed => {}
            Sent::SessionOver { why } => self.on_session_over(&why),
        }
    }

    fn on_ready(&mut self, place: Place, epoch: Epoch) {
        let holds = self.held.get(&place).is_some_and(|holding| holding.tenure.token().epoch() == epoch);
        if holds && !matches!(self.stage, Stage::Abandoned) {
            self.outbox.push(Item { place, epoch, what: What::Ready });
        }
    }

    fn on_finished(&mut self, finished: Finished) {
        let Finished { place, tenure, how } = finished;
        let token = tenure.token().short().to_string();
        let epoch = tenure.token().epoch();
        // An owner that ends because the coordinator was out of reach for a moment, with the error it was given or without
        // one, has not failed: the partition is no worse for it, and need not wait longer each time.
        let gave_up = matches!(how, How::Failed(_) | How::Returned) && tenure.is_paused();
        match &how {
            How::Failed(error) if gave_up => {
                tracing::info!(token, error, "the owner's task ended while the connection was gone");
            }
            How::Behind(seen, error) if tenure.phase() != Phase::Ended => {
                tracing::error!(token, %seen, error, "storage has seen a higher epoch than this owner's, which is not started");
            }
            How::Failed(error) | How::Panicked(error) if tenure.phase() != Phase::Ended => {
                tracing::error!(token, error, "the owner's task failed");
            }
            How::Dropped if !mutant!("dropped-task-released") => {
                tracing::error!(
                    token,
                    "the owner's task was dropped with its runtime; it is left to the lease"
                );
                return self.keeper.host.has_gone();
            }
            how => tracing::debug!(token, ?how, "the owner's task has ended"),
        }
        if matches!(self.stage, Stage::Abandoned) {
            tenure.end(Why::TaskEnded);
            return;
        }
        let held = self.held.get(&place).is_some_and(|holding| Arc::ptr_eq(&holding.tenure, &tenure));
        if held {
            let asked = tenure.phase() >= Phase::Revoked;
            let what = match how {
                How::Failed(_) if gave_up => What::Released,
                How::Failed(error) | How::Panicked(error) => What::Failed(error),
                How::Behind(seen, error) => {
                    What::Behind { seen, cluster: tenure.token().cluster().clone(), error }
                }
                How::Returned if !asked && !gave_up => What::Returned,
                How::Returned | How::Aborted | How::Dropped => What::Released,
            };
            self.give_back(&place, what);
        } else if tenure.session() == self.session.id
            && tenure.ended().is_some_and(|ended| ended.why() == Why::DrainOver)
        {
            // Too late for its validity, and early enough, perhaps, to be granted on before the coordinator's deadline.
            self.outbox.push(Item { place, epoch, what: What::Released });
        }
    }

    /// Gives a partition back. Its task has ended, or never began.
    fn give_back(&mut self, place: &Place, what: What) {
        let Some(holding) = self.held.remove(place) else { return };
        let what = match what {
            What::Released if *self.keeper.wish.borrow() == Wish::Restart => What::Restarting,
            what => what,
        };
        let epoch = holding.tenure.token().epoch();
        // In this order: when the coordinator hears of it, nobody here can stamp with it any more.
        holding.tenure.end(Why::TaskEnded);
        self.lessee.give_back(&Key::Partition(place.clone()), epoch);
        self.outbox.push(Item { place: place.clone(), epoch, what });
    }

    /// Nothing is left to wait for, or it was waited for long enough.
    fn is_done(&self) -> bool {
        let now = tokio::time::Instant::now();
        let ended = self.keeper.tasks.running().len() == 0;
        match self.stage {
            Stage::Aborting { deadline } => now >= deadline || (ended && self.is_told()),
            Stage::Leaving { since, deadline } => {
                // Without a limit, the end of the lease is one. A session that never had a lease gets as long.
                let no_lease =
                    || self.lessee.lease_until().is_none() && now >= since + self.session.timing.ttl();
                let too_late = || deadline.is_some_and(|deadline| now >= deadline) || no_lease();
                ended && (self.is_told() || too_late())
            }
            Stage::Serving | Stage::Abandoned => false,
        }
    }

    /// The coordinator knows everything.
    fn is_told(&self) -> bool {
        self.outbox.is_empty() && self.locks.is_empty()
    }

    /// How long the coordinator has to be told of the end.
    fn last_word(&self) -> Duration {
        // What the lease is worth is how long anybody would wait for it.
        let now = self.keeper.clock.now();
        let lease = self.lessee.lease_until().map_or(Duration::ZERO, |until| until.since(now));
        let limit = match self.stage {
            Stage::Leaving { deadline: Some(deadline), .. } | Stage::Aborting { deadline } => {
                deadline.saturating_duration_since(tokio::time::Instant::now())
            }
            Stage::Leaving { deadline: None, .. } | Stage::Serving | Stage::Abandoned => lease,
        };
        lease.min(limit).max(LAST_WORD)
    }

    async fn leave(mut self) -> End {
        // Before the coordinator hears of it: a task that is stuck stamps nothing more.
        self.lease.end();
        let told = self.is_told();
        let given_back = self.outbox.take_given_back().len();
        let locks = self.locks.unreleased();
        let left = self.keeper.leave(&self.session, self.last_word()).await;
        if let Err(error) = &left {
            tracing::warn!(%error, "the coordinator could not be told that this worker leaves");
        }
        if self.keeper.tasks.running().len() > 0 {
            return End::Left(self.keeper.not_released("owners did not return within the shutdown limit"));
        }
        // A session that has ended is granted nothing, whether or not it said that it takes no more.
        if given_back + locks > 0 || (left.is_err() && !told) {
            let why = format!(
                "the coordinator could not be told in time that this worker leaves ({given_back} partitions and {locks} \
                 locks were given back)"
            );
            return End::Left(self.keeper.not_released(&why));
        }
        tracing::info!(session = %self.session.id, "left");
        End::Left(Ok(()))
    }
}
