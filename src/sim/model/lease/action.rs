//! What can happen next.

use super::leader::Leader;
use super::rules::Rule;
use super::scene::Scene;
use super::worker::Worker;
use super::world::World;
use crate::model::setting::{lock, partition};
use ringfence_core::state::Phase;

/// One step. Terms name leaders, numbers workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Time passes for everybody.
    Tick,
    /// A node is voted leader of the next term. The leader before may not notice.
    Elect,
    /// The oldest proposal of a term is committed.
    Commit(u64),
    /// The leader of a term applies the next entry.
    Apply(u64),
    /// The leader of a term looks at what is due, and proposes it.
    Look(u64),
    /// A worker sends a renewal. One that is still under way is lost.
    Renew(usize),
    /// A worker's stream breaks, and it opens one to the leader of this term.
    Connect(usize, u64),
    /// A worker's renewal arrives.
    Arrive(usize),
    /// A quorum tells the leader of a term that there is no later one. The round began after every arrival it had noted.
    Confirm(u64),
    /// The leader of a term answers a worker's renewal. An answer that is still under way is lost.
    Answer(u64, usize),
    /// A worker gets the acknowledgement.
    TakeAnswer(usize),
    /// A worker gets the picture as of so many entries.
    TakePicture(usize, usize),
    /// A worker's task returns: it gives back what it was told to, or releases its lock, and says so.
    GiveBack(usize),
    /// A worker says that it knows until when what it gives back is valid.
    SaySeen(usize),
    /// An operator asks to drain the partition, or to break the lock.
    Drain,
    /// Another process joins under the first worker's name.
    Join,
}

impl World {
    pub(super) fn list_actions(&self, scene: &Scene, actions: &mut Vec<Action>) {
        // In a world of progress only the newest leader counts, and what is due is done before time passes.
        let urgent = self.list_of_log(scene, actions);
        if self.progress.is_none() {
            for worker in 0..scene.workers.len() {
                self.list_of_worker(scene, worker, actions);
            }
            self.list_of_operators(scene, actions);
        }
        let lasted = scene.leaders.last().is_none_or(|leader| leader.age >= self.leaders_last());
        if scene.term < self.terms && lasted {
            actions.push(Action::Elect);
        }
        if !(self.progress.is_some() && urgent) {
            actions.push(Action::Tick);
        }
    }

    fn list_of_log(&self, scene: &Scene, actions: &mut Vec<Action>) -> bool {
        let mut urgent = false;
        let mut last = 0;
        for proposal in &scene.pending {
            if proposal.term != last {
                last = proposal.term;
                actions.push(Action::Commit(last));
                urgent |= last == scene.term;
            }
        }
        for leader in &scene.leaders {
            if leader.applied < scene.log.len() {
                actions.push(Action::Apply(leader.term));
                urgent |= leader.term == scene.term;
            }
            // The one that leads again slept between.
            let sleeps = self.lacks(Rule::LessorBelongsToOneTerm) && leader.term < scene.term;
            if leader.led.is_none() || sleeps {
                continue;
            }
            if self.looks(scene, leader) {
                actions.push(Action::Look(leader.term));
                urgent |= self.progress.is_some() && self.take(scene, Action::Look(leader.term)).is_some();
            }
            let unconfirmed = leader.inbox.iter().flatten().any(|renewal| !renewal.confirmed);
            if unconfirmed && (leader.term == scene.term || self.lacks(Rule::ConfirmsRenewals)) {
                actions.push(Action::Confirm(leader.term));
            }
            for (worker, renewal) in leader.inbox.iter().enumerate() {
                if renewal.is_some_and(|renewal| renewal.confirmed) {
                    actions.push(Action::Answer(leader.term, worker));
                }
            }
        }
        urgent
    }

    /// The loop of the leader waits for all that it proposed before it looks again.
    fn looks(&self, scene: &Scene, leader: &Leader) -> bool {
        let mine = |proposal: &super::log::Proposal| proposal.term == leader.term && proposal.awaited;
        // A world without this rule is small enough when it looks only at the node that leads again.
        let again = !self.lacks(Rule::LessorBelongsToOneTerm) || leader.term == self.terms;
        let waits = scene.pending.iter().any(|proposal| mine(proposal))
            || scene.log.after(leader.applied).iter().any(|committed| mine(&committed.proposal));
        // What a deposed leader proposes once an entry of a later term is committed is refused.
        again && scene.log.last_term() <= leader.term && (self.impatient || !waits)
    }

    fn list_of_worker(&self, scene: &Scene, at: usize, actions: &mut Vec<Action>) {
        let worker = &scene.workers[at];
        let lenient = self.lacks(Rule::WhatIsOverStaysOver);
        if worker.lessee.is_over() && !lenient {
            return;
        }
        let now = scene.clocks.worker(scene.tick);
        let due = if lenient {
            worker.sent.last().is_none_or(|(_, sent)| *sent < now)
        } else {
            worker.lessee.renewal_due(now)
        };
        if worker.renewals > 0 && due {
            actions.push(Action::Renew(at));
        }
        for leader in
            scene.leaders.iter().filter(|leader| leader.led.is_some() && self.may_connect(scene, at, leader))
        {
            if worker.renewals > 0 {
                actions.push(Action::Connect(at, leader.term));
            }
        }
        if worker.request.is_some() && scene.leader(worker.stream).is_some_and(|leader| leader.led.is_some())
        {
            actions.push(Action::Arrive(at));
        }
        if worker.answer.is_some() {
            actions.push(Action::TakeAnswer(at));
        }
        let mut told = worker.told;
        for applied in 1..=scene.log.len() {
            let state = scene.log.state(applied);
            if let Some(session) = state.session(worker.session).filter(|session| session.assignment() > told)
            {
                told = session.assignment();
                actions.push(Action::TakePicture(at, applied));
            }
        }
        if self.a_leader(scene).is_some() && self.has_room(scene, 1) {
            self.list_of_reports(worker, at, actions);
        }
    }

    /// To the leader that it had, when something was under way that is lost with the stream.
    fn may_connect(&self, scene: &Scene, at: usize, leader: &Leader) -> bool {
        let worker = &scene.workers[at];
        let under_way = worker.request.is_some() || worker.answer.is_some() || leader.inbox[at].is_some();
        leader.term > worker.stream
            || self.cuts && leader.term == worker.stream && under_way && scene.term == leader.term
    }

    fn list_of_reports(&self, worker: &Worker, at: usize, actions: &mut Vec<Action>) {
        if self.lock {
            if worker.to_release().is_some() && !self.lacks(Rule::WhatIsOverStaysOver) {
                actions.push(Action::GiveBack(at));
            }
            return;
        }
        let Some((key, epoch)) = worker.revoked else { return };
        if worker.lessee.holds().any(|held| held == (&key, epoch)) && !self.lacks(Rule::WhatIsOverStaysOver) {
            actions.push(Action::GiveBack(at));
        }
        let may_say = worker.bounded || self.lacks(Rule::SaysSeenWhenBounded);
        if may_say && !worker.said_seen && self.deadline < self.ttl {
            actions.push(Action::SaySeen(at));
        }
    }

    fn list_of_operators(&self, scene: &Scene, actions: &mut Vec<Action>) {
        let Some(leader) = self.a_leader(scene).filter(|_| self.has_room(scene, 1)) else { return };
        let state = scene.log.state(leader.applied);
        if scene.drains > 0 && state.lock(&lock()).is_some_and(|lock| lock.holders().next().is_some()) {
            actions.push(Action::Drain);
        }
        let phase = state.partition(partition()).map(ringfence_core::state::Partition::phase);
        if scene.drains > 0 && matches!(phase, Some(Phase::Owned { .. } | Phase::Draining(_))) {
            actions.push(Action::Drain);
        }
        if scene.joins > 0 {
            actions.push(Action::Join);
        }
    }

    /// Where reports and requests end up: at the newest leader.
    pub(super) fn a_leader<'a>(&self, scene: &'a Scene) -> Option<&'a Leader> {
        scene.leader(scene.term).filter(|leader| leader.led.is_some())
    }

    /// May so many more entries be proposed?
    pub(super) fn has_room(&self, scene: &Scene, more: usize) -> bool {
        scene.entries() + more <= self.founding() + self.entries
    }
}
