//! What a step does.

use super::action::Action;
use super::leader::{Leader, Renewal};
use super::log::{Committed, Proposal};
use super::rules::Rule;
use super::scene::Scene;
use super::worker::Worker;
use super::world::{World, settings};
use crate::model::setting::{entry, join, join_for_locks, lock, name, partition};
use ringfence_core::ids::{LogIndex, SessionId, Term};
use ringfence_core::lead::{Leadership, Timers, release};
use ringfence_core::lease::Verdict;
use ringfence_core::lease::lessee::{Acknowledgement, Assignment, DrainLeft, Held, Lessee, Lineage};
use ringfence_core::state::{Command, Entry, Event, GrantReason, Phase, Released, State};
use ringfence_core::time::Instant;
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

impl World {
    pub(super) fn take(&self, before: &Scene, action: Action) -> Option<Scene> {
        let mut scene = before.clone();
        match action {
            Action::Tick => self.tick(&mut scene),
            Action::Elect => self.elect(&mut scene),
            Action::Commit(term) => self.commit(&mut scene, term)?,
            Action::Apply(term) => self.apply(&mut scene, term)?,
            Action::Look(term) => self.look(&mut scene, term)?,
            Action::Renew(worker) => self.renew(&mut scene, worker)?,
            Action::Connect(worker, term) => self.connect(&mut scene, worker, term),
            Action::Arrive(worker) => self.arrive(&mut scene, worker)?,
            Action::Confirm(term) => {
                let inbox = &mut scene.leader_mut(term)?.inbox;
                inbox.iter_mut().flatten().for_each(|renewal| renewal.confirmed = true);
            }
            Action::Answer(term, worker) => self.answer(&mut scene, term, worker)?,
            Action::TakeAnswer(worker) => self.take_answer(&mut scene, worker)?,
            Action::TakePicture(worker, applied) => self.take_picture(&mut scene, worker, applied)?,
            Action::GiveBack(worker) => self.give_back(&mut scene, worker)?,
            Action::SaySeen(worker) => self.say_seen(&mut scene, worker)?,
            Action::Drain => self.drain(&mut scene)?,
            Action::Join => self.join(&mut scene)?,
        }
        self.forget_the_powerless(&mut scene);
        Some(scene)
    }

    fn tick(&self, scene: &mut Scene) {
        scene.tick += 1;
        let now = scene.clocks.worker(scene.tick);
        for worker in &mut scene.workers {
            // Each call to it does so first. Done at once, two scenes do not differ in a lease that is over unnoticed.
            if worker.lessee.poll_timeout().is_some_and(|when| now >= when) {
                worker.with(|lessee| lessee.handle_timeout(now));
            }
        }
        if self.progress.is_some() {
            scene
                .leaders
                .iter_mut()
                .for_each(|leader| leader.age = leader.age.saturating_add(1).min(self.leaders_last()));
            scene.kept = scene.kept.saturating_add(1);
        }
    }

    fn elect(&self, scene: &mut Scene) {
        scene.term += 1;
        let term = scene.term;
        let everybody = || scene.log.truth().sessions().map(ringfence_core::state::Session::id).collect();
        let forgets = self.lacks(Rule::SuspicionsOutliveTheirLeader);
        let first = forgets.then(|| entry(vec![Command::Clear { sessions: everybody() }]));
        scene.pending.push(Arc::new(Proposal { term, entry: first, awaited: false }));
        let mut leader = Leader::new(term, scene.log.len(), scene.workers.len());
        if self.lacks(Rule::LessorBelongsToOneTerm)
            && let Some(at) = scene.leaders.iter().position(|leader| leader.term + 2 == term)
        {
            // The same node again, and it has not noticed the term between.
            let earlier = scene.leaders.remove(at);
            (leader.applied, leader.led) = (earlier.applied, earlier.led);
        }
        if self.lacks(Rule::LeadsAfterAnEntryOfItsTerm) {
            self.lead(scene, &mut leader);
        }
        if self.progress.is_some() {
            scene.leaders.clear();
        }
        scene.leaders.push(leader);
    }

    fn lead(&self, scene: &Scene, leader: &mut Leader) {
        let mut now = scene.clocks.leader(leader.term, scene.tick);
        if self.lacks(Rule::ArmsInFull) {
            now = now - self.ttl() / 3;
        }
        let state = scene.log.state(leader.applied);
        leader.led = Some(Arc::new(Leadership::new(Term::new(leader.term), now, state, settings())));
    }

    fn commit(&self, scene: &mut Scene, term: u64) -> Option<()> {
        let at = scene.pending.iter().position(|proposal| proposal.term == term)?;
        let mut proposal = scene.pending.remove(at);
        if self.lacks(Rule::ExpiryNamesItsSuspicion) {
            let index = LogIndex::new(scene.log.len() as u64 + 1);
            name_the_current_suspicion(Arc::make_mut(&mut proposal), index);
        }
        scene.log.commit(proposal);
        let last = scene.log.last_term();
        scene.pending.retain(|proposal| proposal.term >= last);
        if self.lacks(Rule::LostLocksCool)
            && let Some(lost) = scene.log.truth().lock(&lock()).and_then(|lock| lock.grants.first())
            && lost.cooling.is_some()
        {
            let (epoch, session) = (lost.epoch, lost.session);
            let at_once = entry(vec![Command::EndLockCooling { lock: lock(), epoch, session }]);
            scene.log.commit(Arc::new(Proposal { term: last, entry: Some(at_once), awaited: false }));
        }
        if self.lacks(Rule::ReplacedPartitionsCool)
            && let Some(partition_state) = scene.log.truth().partition(partition())
            && let (Phase::Cooling(_), Some(epoch)) = (partition_state.phase(), partition_state.epoch())
        {
            let at_once = entry(vec![Command::EndCooling { partition: partition(), epoch }]);
            scene.log.commit(Arc::new(Proposal { term: last, entry: Some(at_once), awaited: false }));
        }
        Some(())
    }

    fn apply(&self, scene: &mut Scene, term: u64) -> Option<()> {
        let committed = Arc::clone(scene.log.get(scene.leader(term)?.applied)?);
        let now = scene.clocks.leader(term, scene.tick);
        let mut leader = scene.leader(term)?.clone();
        leader.applied += 1;
        if committed.proposal.term > term {
            // It learns that it leads no more. Its unanswered renewals go with it.
            scene.leaders.retain(|leader| leader.term != term);
            return Some(());
        }
        if let Some(led) = &mut leader.led {
            self.observe(Arc::make_mut(led), &committed, now);
        } else if committed.proposal.term == term {
            self.lead(scene, &mut leader);
        }
        *scene.leader_mut(term)? = leader;
        Some(())
    }

    fn observe(&self, led: &mut Leadership, committed: &Committed, now: Instant) {
        led.observe(&committed.applied.events, now, &committed.state);
        for event in &committed.applied.events {
            if let Event::Joined(session) = event {
                led.presence.connected(*session);
            }
        }
        let entry = committed.proposal.entry.as_ref();
        let drains = |command: &Command| matches!(command, Command::Drain { .. });
        if self.lacks(Rule::DrainIsArmedOnce) && entry.is_some_and(|entry| entry.commands.iter().any(drains))
        {
            led.timers = Timers::new(now, &committed.state, &led.lessor);
        }
    }

    fn look(&self, scene: &mut Scene, term: u64) -> Option<()> {
        let now = scene.clocks.leader(term, scene.tick);
        let leader = scene.leader(term)?;
        let state = scene.log.state(leader.applied);
        let mut led = Leadership::clone(leader.led.as_ref()?);
        for session in state.sessions().map(ringfence_core::state::Session::id) {
            if !self.expiry || !scene.workers.iter().any(|worker| worker.session == session) {
                hear(&mut led, session, now);
            }
        }
        let before = led.lessor.clone();
        let mut entries = led.due(now, state);
        if self.lacks(Rule::MarksWhenItProposes)
            && entries.iter().flatten().any(|c| matches!(c, Command::Suspect { .. }))
        {
            led.lessor = before;
        }
        if self.lacks(Rule::UnseenDrainLastsATtl) && entries.is_empty() {
            entries.extend(drain_at_its_deadline(&led, now, state));
        }
        // A leader that found nothing to do is as good as one that did not look, but where it may forget to look again.
        let nothing = entries.is_empty() && (self.progress.is_none() || same(scene, leader, &led));
        if nothing || !self.has_room(scene, entries.len()) {
            return None;
        }
        let awaited = true;
        let proposals =
            entries.into_iter().map(|commands| Proposal { term, entry: Some(entry(commands)), awaited });
        for proposal in proposals {
            propose(scene, proposal);
        }
        scene.leader_mut(term)?.led = Some(Arc::new(led));
        Some(())
    }

    fn renew(&self, scene: &mut Scene, at: usize) -> Option<()> {
        let now = scene.clocks.worker(scene.tick);
        let worker = &mut scene.workers[at];
        worker.renewals -= 1;
        let number = if self.lacks(Rule::WhatIsOverStaysOver) {
            worker.sent.push((u64::from(worker.renewals), now));
            u64::from(worker.renewals)
        } else if self.lacks(Rule::CountsFromSending) {
            // It is taken when its answer comes.
            0
        } else {
            worker.with(|lessee| lessee.renew(now, 0))?
        };
        worker.request = Some(number);
        Some(())
    }

    fn connect(&self, scene: &mut Scene, at: usize, term: u64) {
        let now = scene.clocks.worker(scene.tick);
        let (session, before) = (scene.workers[at].session, scene.workers[at].stream);
        if let Some(leader) = scene.leader_mut(before)
            && leader.inbox[at].take().is_some()
            && let Some(led) = &mut leader.led
        {
            Arc::make_mut(led).lessor.dropped(session);
        }
        let worker = &mut scene.workers[at];
        (worker.stream, worker.request, worker.answer) = (term, None, None);
        worker.with(|lessee| {
            lessee.disconnected(now);
            lessee.connected(now);
        });
    }

    fn arrive(&self, scene: &mut Scene, at: usize) -> Option<()> {
        let worker = &mut scene.workers[at];
        let (session, term, number) = (worker.session, worker.stream, worker.request.take()?);
        let arrival = scene.clocks.leader(term, scene.tick);
        if self.lacks(Rule::RemembersNoAcknowledgement) && scene.leader(term)?.acknowledged[at] {
            let revision = scene.log.state(scene.leader(term)?.applied).session(session)?.assignment();
            scene.workers[at].answer = Some(Acknowledgement { number, revision, drains: Vec::new() });
            return Some(());
        }
        let leader = scene.leader_mut(term)?;
        let lessor = &mut Arc::make_mut(leader.led.as_mut()?).lessor;
        if leader.inbox[at].is_some() {
            lessor.dropped(session);
        }
        lessor.arrived(session);
        leader.inbox[at] = Some(Renewal { session, number, arrival, confirmed: false });
        Some(())
    }

    fn answer(&self, scene: &mut Scene, term: u64, at: usize) -> Option<()> {
        let now = scene.clocks.leader(term, scene.tick);
        let mut leader = scene.leader(term)?.clone();
        let state = scene.log.state(leader.applied);
        let led = Arc::make_mut(leader.led.as_mut()?);
        let mut renewal = leader.inbox[at].take()?;
        let (session, number) = (renewal.session, renewal.number);
        match led.lessor.answer(session, renewal.arrival) {
            Verdict::Hold if !self.lacks(Rule::HoldsTheSuspected) => {
                // It is answered by a later round, when a clear has applied.
                renewal.confirmed = false;
                leader.inbox[at] = Some(renewal);
            }
            Verdict::Ended => {}
            Verdict::Hold | Verdict::Acknowledge => {
                let mut revision = state.session(session)?.assignment();
                if self.lacks(Rule::AcknowledgementsNameTheRevision) {
                    revision = LogIndex::new(0);
                }
                let drains = led.timers.drains_of(session, now).into_iter();
                let drains = drains.map(|(key, epoch, left)| DrainLeft { key, epoch, left });
                let drains = drains.filter(|_| !self.lacks(Rule::AcknowledgementsNameDrains)).collect();
                let acknowledgement = Acknowledgement { number, revision, drains };
                leader.acknowledged[at] = true;
                let worker = &mut scene.workers[at];
                if worker.stream == term {
                    worker.answer = Some(acknowledgement);
                }
            }
        }
        *scene.leader_mut(term)? = leader;
        Some(())
    }

    fn take_answer(&self, scene: &mut Scene, at: usize) -> Option<()> {
        let now = scene.clocks.worker(scene.tick);
        if self.lacks(Rule::WhatIsOverStaysOver) {
            return self.begin_anew(scene, at);
        }
        let worker = &mut scene.workers[at];
        let mut answer = worker.answer.take()?;
        worker.with(|lessee| {
            if self.lacks(Rule::CountsFromSending) {
                answer.number = lessee.renew(now, 0).unwrap_or(0);
            }
            lessee.acknowledge(now, answer);
        });
        Some(())
    }

    /// What the acknowledgement says, and nothing of what was before it.
    fn begin_anew(&self, scene: &mut Scene, at: usize) -> Option<()> {
        let now = scene.clocks.worker(scene.tick);
        let Worker { session, told, .. } = scene.workers[at];
        let as_of_told = |applied: &usize| {
            scene.log.state(*applied).session(session).is_some_and(|session| session.assignment() == told)
        };
        let applied = (1..=scene.log.len()).find(as_of_told)?;
        let picture = picture(scene.log.state(applied), session)?;
        let worker = &mut scene.workers[at];
        let answer = worker.answer.take()?;
        let (_, sent) = *worker.sent.iter().find(|(number, _)| *number == answer.number)?;
        worker.sent.retain(|(_, other)| *other > sent);
        worker.lessee = Arc::new(Lessee::new(worker.lessee.timing(), sent));
        worker.with(|lessee| {
            lessee.connected(sent);
            let number = lessee.renew(sent, 0).unwrap_or(0);
            lessee.assign(sent, picture);
            lessee.acknowledge(now, Acknowledgement { number, ..answer });
        });
        Some(())
    }

    fn take_picture(&self, scene: &mut Scene, at: usize, applied: usize) -> Option<()> {
        let now = scene.clocks.worker(scene.tick);
        let picture = picture(scene.log.state(applied), scene.workers[at].session)?;
        let worker = &mut scene.workers[at];
        worker.told = picture.revision;
        worker.with(|lessee| lessee.assign(now, picture));
        Some(())
    }

    fn give_back(&self, scene: &mut Scene, at: usize) -> Option<()> {
        let leader = self.a_leader(scene)?;
        if self.lock {
            return self.release_the_lock(scene, at);
        }
        let (key, epoch) = scene.workers[at].revoked?;
        let session = scene.workers[at].session;
        let state = scene.log.state(leader.applied);
        let (command, grant) = release(state, key, epoch, session, Released::Revoked, &BTreeSet::new());
        let term = leader.term;
        let commands = std::iter::once(command).chain(grant).collect();
        propose(scene, Proposal { term, entry: Some(entry(commands)), awaited: false });
        let worker = &mut scene.workers[at];
        worker.revoked = None;
        if !self.lacks(Rule::GivesBackBeforeItReleases) {
            worker.with(|lessee| lessee.give_back(&key, epoch));
        }
        Some(())
    }

    fn release_the_lock(&self, scene: &mut Scene, at: usize) -> Option<()> {
        let term = self.a_leader(scene)?.term;
        let worker = &mut scene.workers[at];
        let ((key, epoch), session) = (worker.to_release()?, worker.session);
        worker.revoked = None;
        if !self.lacks(Rule::ReleasesNoLockThatItBelievesIn) {
            worker.with(|lessee| lessee.give_back(&key, epoch));
        }
        let release = Command::ReleaseLock { lock: lock(), epoch, session };
        propose(scene, Proposal { term, entry: Some(entry(vec![release])), awaited: false });
        Some(())
    }

    fn say_seen(&self, scene: &mut Scene, at: usize) -> Option<()> {
        let term = self.a_leader(scene)?.term;
        let worker = &mut scene.workers[at];
        let ((partition, epoch), session) = (worker.revoked?, worker.session);
        worker.said_seen = true;
        let seen = Command::RevokeSeen { partition, epoch, session };
        propose(scene, Proposal { term, entry: Some(entry(vec![seen])), awaited: false });
        Some(())
    }

    fn drain(&self, scene: &mut Scene) -> Option<()> {
        let leader = self.a_leader(scene)?;
        let (term, state) = (leader.term, scene.log.state(leader.applied));
        if self.lock {
            let break_it = Command::BreakLock { lock: lock(), epoch: None, at_once: false };
            propose(scene, Proposal { term, entry: Some(entry(vec![break_it])), awaited: false });
            scene.drains -= 1;
            return Some(());
        }
        let epoch = state.partition(partition())?.epoch()?;
        let owner = state.session(state.partition(partition())?.owner()?)?;
        let to = name(usize::from(*owner.worker() == name(0)));
        let (partition, deadline, why) = (partition(), self.deadline(), GrantReason::Operator);
        let drain = Command::Drain { partition, epoch, to, deadline, why };
        propose(scene, Proposal { term, entry: Some(entry(vec![drain])), awaited: false });
        scene.drains -= 1;
        Some(())
    }

    fn join(&self, scene: &mut Scene) -> Option<()> {
        let leader = self.a_leader(scene)?;
        let (term, state) = (leader.term, scene.log.state(leader.applied));
        let replaces = state.session_of(&name(0)).map(ringfence_core::state::Session::id);
        let nonce = 100 + u128::from(scene.joins);
        let join =
            if self.lock { join_for_locks(0, nonce, replaces, self.ttl()) } else { join(0, nonce, replaces) };
        propose(scene, Proposal { term, entry: Some(entry(vec![join])), awaited: false });
        scene.joins -= 1;
        Some(())
    }

    /// A leader that can commit nothing and has nothing to say is as good as gone.
    fn forget_the_powerless(&self, scene: &mut Scene) {
        if self.lacks(Rule::ConfirmsRenewals) || self.lacks(Rule::LessorBelongsToOneTerm) {
            return;
        }
        let last = scene.log.last_term();
        scene.leaders.retain(|leader| leader.term >= last || leader.has_something_to_say());
    }
}

/// Hands a proposal to the log, behind those of its term.
fn propose(scene: &mut Scene, proposal: Proposal) {
    let at = scene.pending.partition_point(|other| other.term <= proposal.term);
    scene.pending.insert(at, Arc::new(proposal));
}

/// What a session holds, as of a state.
pub(super) fn picture(
    state: &State,
    session: SessionId,
) -> Option<Assignment<ringfence_core::ids::PartitionKey>> {
    let session = state.session(session)?;
    let held = session.holds().iter().filter_map(|key| {
        let partition = state.partition(*key)?;
        Some(Held {
            key: *key,
            epoch: partition.epoch()?,
            draining: matches!(partition.phase(), Phase::Draining(_)),
            takeover: state.keyspace(key.keyspace)?.policy().takeover(),
            lineage: Lineage::default(),
        })
    });
    let locks = session.locks().iter().filter_map(|name| {
        let grant = state.lock(name)?.held_by(session.id())?;
        let (key, epoch, takeover) = (partition(), grant.epoch, grant.wish.takeover());
        Some(Held { key, epoch, draining: false, takeover, lineage: Lineage::default() })
    });
    let held = held.chain(locks).collect();
    Some(Assignment { revision: session.assignment(), complete: true, more: false, held, gone: Vec::new() })
}

/// A worker that is taken for granted has been heard from just now.
fn hear(led: &mut Leadership, session: SessionId, now: Instant) {
    led.lessor.arrived(session);
    if led.lessor.answer(session, now) == Verdict::Hold {
        led.lessor.dropped(session);
    }
}

fn same(scene: &Scene, leader: &Leader, led: &Leadership) -> bool {
    let print = |led: &Leadership| {
        let mut hasher = DefaultHasher::new();
        let now = scene.clocks.leader(leader.term, scene.tick);
        led.hash(&mut super::clock::Relative::new(&mut hasher, now, scene.clocks.longest));
        hasher.finish()
    };
    leader.led.as_ref().is_some_and(|before| print(before) == print(led))
}

/// An expiry that rests on whatever suspicion there is when it applies; when there is none, on a new one.
fn name_the_current_suspicion(proposal: &mut Proposal, index: LogIndex) {
    let Some(Entry { commands, .. }) = &mut proposal.entry else { return };
    let Some(Command::Expire { session, suspicion }) = commands.first_mut() else { return };
    *suspicion = index;
    let session = *session;
    let forget = Command::Clear { sessions: vec![session] };
    let suspect = Command::Suspect { sessions: vec![(session, 2)] };
    commands.splice(0..0, [forget, suspect]);
}

/// A drain at its deadline, whether its owner has learnt of it or not.
fn drain_at_its_deadline(led: &Leadership, now: Instant, state: &State) -> Option<Vec<Command>> {
    let (partition, found) = (partition(), state.partition(partition())?);
    let (Phase::Draining(drain), Some(epoch)) = (found.phase(), found.epoch()) else { return None };
    let mut running = led.timers.drains_of(drain.session, now).into_iter();
    let over = running.any(|(key, of, left)| key == partition && of == epoch && left.is_zero());
    over.then(|| vec![Command::DrainOver { partition, epoch, move_id: drain.move_id }])
}
