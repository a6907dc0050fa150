//! The coordinator: the log and the nodes that apply it, and what the shipped leader does on those that believe that they lead.

use super::super::super::world::ms;
use super::super::rules::Rule;
use super::{Committed, Message, NODES, Proposal, Renewal, Round, TTL_MS, Violation, World};
use crate::ids::{Epoch, LogIndex, PartitionKey, Term};
use crate::lead::{Leadership, Settings, Timers};
use crate::lease::Verdict;
use crate::lease::lessee::{Acknowledgement, Assignment, DrainLeft, Held, Lineage};
use crate::state::{Applied, Command, Entry, Outcome, Phase, Session, State};
use crate::time::Instant;
use std::collections::BTreeSet;

impl World {
    pub(super) fn elect(&mut self) {
        self.term += 1;
        self.stats.elections += 1;
        // Often the same one, so that a node leads, is deposed, and leads again.
        let again = self.random.per_mille(300);
        let winner = if again { 0 } else { self.random.below(NODES as u64) as usize };
        self.step_down(winner);
        let (term, now) = (self.term, self.now);
        let node = &mut self.nodes[winner];
        node.leads = Some(term);
        node.paused_until = now;
        node.isolated_until = now;
        self.propose_entry(term, None);
        if self.is(Rule::LeadsBeforeAnEntryOfItsTerm) {
            self.lead(winner);
        }
    }

    pub(super) fn propose(&mut self, term: u64, commands: Vec<Command>) -> u64 {
        self.propose_entry(term, Some(Entry { request: None, proposed_unix_ms: 0, commands }))
    }

    fn propose_entry(&mut self, term: u64, entry: Option<Entry>) -> u64 {
        self.next_id += 1;
        let slow = self.random.per_mille(self.profile.slow_commits);
        let delay = if slow { self.random.between(100, 900) } else { self.random.between(1, 20) };
        let arrives = self.now + delay * 1_000;
        // A few never reach the log, although their leader goes on leading.
        if entry.is_none() || self.healed || !self.random.per_mille(10) {
            self.proposals.push(Proposal { id: self.next_id, term, entry, arrives });
        }
        self.next_id
    }

    pub(super) fn commit(&mut self) -> Result<(), Violation> {
        loop {
            let last = self.log.last().map_or(0, |committed| committed.term);
            self.proposals.retain(|proposal| proposal.term >= last);
            let mut ready: Vec<usize> = Vec::new();
            let mut terms = BTreeSet::new();
            for (at, proposal) in self.proposals.iter().enumerate() {
                // In the order of its term's proposals.
                if terms.insert(proposal.term) && proposal.arrives <= self.now {
                    ready.push(at);
                }
            }
            let Some(at) = self.random.pick(&ready) else { return Ok(()) };
            let Proposal { id, term, mut entry, .. } = self.proposals.remove(at);
            let index = LogIndex::new(self.log.len() as u64 + 1);
            if let Some(entry) = entry.as_mut().filter(|_| self.rule == Some(Rule::ExpiryNamesItsSuspicion)) {
                name_the_current_suspicion(entry, index);
            }
            let applied = match &entry {
                Some(entry) => self.truth.apply(index, entry),
                None => {
                    self.truth.skip(index);
                    Applied { outcome: Ok(Vec::new()), events: Vec::new() }
                }
            };
            self.note(entry.as_ref(), &applied)?;
            self.log.push(Committed { id, term, entry, applied });
            self.check()?;
        }
    }

    /// Looks at what an entry did, as somebody who knows the truth.
    fn note(&mut self, entry: Option<&Entry>, applied: &Applied) -> Result<(), Violation> {
        let commands = entry.into_iter().flat_map(|entry| &entry.commands);
        let mut cooling = Vec::new();
        for (command, outcome) in commands.zip(applied.outcome.iter().flatten()) {
            match (command, outcome) {
                (Command::Grant { partition, .. }, Outcome::Granted(epoch)) => {
                    self.stats.grants += 1;
                    let before = self.granted.insert(*partition, *epoch);
                    if before.is_some_and(|before| before >= *epoch) {
                        return Err(Violation::G2(format!("{partition}: {before:?}, then {epoch}")));
                    }
                }
                (Command::Join(join), Outcome::Joined(session)) => {
                    if join.replaces.is_some() {
                        self.stats.replacements += 1;
                        cooling.extend(self.cooling());
                    }
                    if let Some(process) = self.processes.iter().position(|p| p.nonce == join.nonce) {
                        self.send(Message::Joined { process, session: *session });
                    }
                }
                (Command::Expire { .. }, _) => self.stats.expiries += 1,
                (Command::Clear { .. }, _) => self.stats.clears += 1,
                (Command::DrainOver { .. }, _) => self.stats.drains_over += 1,
                (Command::Split { .. }, _) => self.stats.splits += 1,
                (Command::EndReassert { .. }, Outcome::Done) => self.stats.reasserts += 1,
                _ => {}
            }
        }
        if self.is(Rule::ReplacedPartitionsCool) {
            for (partition, epoch) in cooling {
                self.propose(self.term, vec![Command::EndCooling { partition, epoch }]);
            }
        }
        Ok(())
    }

    fn cooling(&self) -> Vec<(PartitionKey, Epoch)> {
        let keys = self.truth.keyspaces().flat_map(crate::state::Keyspace::keys);
        let cooling = keys.filter_map(|key| {
            let partition = self.truth.partition(key)?;
            matches!(partition.phase(), Phase::Cooling(_)).then_some((key, partition.epoch()?))
        });
        cooling.collect()
    }

    /// A node applies some of what was committed.
    pub(super) fn apply(&mut self, at: usize) -> Result<(), Violation> {
        while self.nodes[at].applied < self.log.len() {
            if self.random.per_mille(if self.healed { 50 } else { self.profile.lag }) {
                return Ok(());
            }
            let node = &mut self.nodes[at];
            let committed = &self.log[node.applied];
            node.applied += 1;
            let index = LogIndex::new(node.applied as u64);
            let applied = match &committed.entry {
                Some(entry) => node.state.apply(index, entry),
                None => {
                    node.state.skip(index);
                    Applied { outcome: Ok(Vec::new()), events: Vec::new() }
                }
            };
            if applied != committed.applied {
                return Err(Violation::G2(format!("node {at} applied {index} differently")));
            }
            node.outstanding.remove(&committed.id);
            let (now, term) = (node.clock.read(self.now), committed.term);
            let drained = committed.entry.iter().flat_map(|entry| &entry.commands);
            let drained = drained.into_iter().any(|command| matches!(command, Command::Drain { .. }));
            let keeps = self.rule == Some(Rule::LessorBelongsToOneTerm);
            if node.leads.is_some_and(|leads| leads < term) {
                self.step_down(at);
            }
            let node = &mut self.nodes[at];
            if let Some(leadership) = node.leadership.as_mut().filter(|_| node.leads.is_some() || keeps) {
                leadership.observe(&applied.events, now, &node.state);
                if drained && self.rule == Some(Rule::DrainIsArmedOnce) {
                    leadership.timers = Timers::new(now, &node.state, &leadership.lessor);
                }
            }
            if node.leads == Some(term) && node.leadership.is_none() {
                self.lead(at);
            }
        }
        Ok(())
    }

    fn lead(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        let Some(term) = node.leads else { return };
        let mut now = node.clock.read(self.now);
        if self.rule == Some(Rule::ArmsInFull) {
            now = now - ms(TTL_MS / 3);
        }
        node.leadership = Some(Leadership::new(Term::new(term), now, &node.state, settings()));
    }

    fn step_down(&mut self, at: usize) {
        let keeps = self.is(Rule::LessorBelongsToOneTerm);
        let node = &mut self.nodes[at];
        node.leads = None;
        if !keeps {
            node.leadership = None;
        }
        node.waiting.clear();
        node.held.clear();
        node.round = None;
        node.outstanding.clear();
    }

    /// A node that believes that it leads, and has begun to.
    pub(super) fn a_leader(&mut self) -> Option<usize> {
        let leading: Vec<usize> = (0..NODES)
            .filter(|at| {
                let node = &self.nodes[*at];
                node.leads.is_some() && node.leadership.is_some() && node.paused_until <= self.now
            })
            .collect();
        self.random.pick(&leading)
    }

    /// The leader's loop. It looks when what it proposed has an outcome, or when it has waited for that long enough.
    pub(super) fn look(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        let Some(term) = node.leads else { return };
        let waits = !node.outstanding.is_empty() && self.now < node.patience;
        let Some(leadership) = node.leadership.as_mut().filter(|_| !waits) else { return };
        let before = leadership.lessor.clone();
        let now = node.clock.read(self.now);
        let mut entries = leadership.due(now, &node.state);
        if self.rule == Some(Rule::MarksWhenItProposes)
            && entries.iter().flatten().any(|c| matches!(c, Command::Suspect { .. }))
        {
            leadership.lessor = before;
        }
        if self.rule == Some(Rule::UnseenDrainLastsATtl) {
            entries.extend(drains_at_their_deadline(leadership, now, &node.state));
        }
        let patience = self.random.between(50, 1_500);
        self.nodes[at].patience = self.now + patience * 1_000;
        self.nodes[at].outstanding.clear();
        for entry in entries {
            let id = self.propose(term, entry);
            self.nodes[at].outstanding.insert(id);
        }
    }

    /// The renewals' task: one round for all that wait.
    pub(super) fn confirm(&mut self, at: usize) {
        let (now, term) = (self.now, self.term);
        let node = &mut self.nodes[at];
        if node.leads.is_none() || node.leadership.is_none() {
            return;
        }
        if node.round.is_none() && (!node.waiting.is_empty() || !node.held.is_empty()) {
            let mut batch = std::mem::take(&mut node.waiting);
            batch.append(&mut node.held);
            let acked_at = now + self.random.between(1, 30) * 1_000;
            node.round = Some(Round { batch, acked_at, read_at: None });
        }
        let Some(round) = node.round.as_mut().filter(|round| round.acked_at <= now) else { return };
        if round.read_at.is_none() {
            let failed = !self.healed && self.random.per_mille(self.profile.failed_rounds);
            if (node.leads != Some(term) || failed) && self.rule != Some(Rule::ConfirmsRenewals) {
                // A later term has been voted for, or there was no quorum in time.
                let batch = std::mem::take(&mut round.batch);
                node.round = None;
                for renewal in batch {
                    if let Some(leadership) = &mut self.nodes[at].leadership {
                        leadership.lessor.dropped(renewal.session);
                    }
                    self.cut(renewal.process);
                }
                return;
            }
            round.read_at = Some(if self.rule == Some(Rule::ConfirmsRenewals) { 0 } else { self.log.len() });
        }
        let early = self.rule == Some(Rule::LeadsBeforeAnEntryOfItsTerm);
        if round.read_at.is_some_and(|read_at| node.applied >= read_at) || early {
            let batch = std::mem::take(&mut round.batch);
            node.round = None;
            for renewal in batch {
                self.answer(at, renewal);
            }
        }
    }

    fn answer(&mut self, at: usize, renewal: Renewal) {
        let node = &mut self.nodes[at];
        let Some(leadership) = &mut node.leadership else { return };
        let Renewal { process, connection, session, number, arrival } = renewal;
        match leadership.lessor.answer(session, arrival) {
            Verdict::Hold if self.rule != Some(Rule::HoldsTheSuspected) => node.held.push(renewal),
            Verdict::Ended => self.send(Message::Ended { process, connection }),
            Verdict::Hold | Verdict::Acknowledge => {
                let Some(live) = node.state.session(session) else { return };
                let drains = leadership.timers.drains_of(session, node.clock.read(self.now)).into_iter();
                let drains = drains.map(|(key, epoch, left)| DrainLeft { key, epoch, left }).collect();
                let acknowledgement = Acknowledgement { number, revision: live.assignment(), drains };
                let picture = picture(&node.state, live);
                self.stats.acknowledgements += 1;
                self.send(Message::Picture { process, connection, picture });
                self.send(Message::Acknowledged { process, connection, acknowledgement });
            }
        }
    }
}

fn settings() -> Settings {
    Settings { settle: ms(300), cool_down: ms(3_000), ..Settings::default() }
}

fn picture(state: &State, session: &Session) -> Assignment<PartitionKey> {
    let held = session.holds().iter().filter_map(|key| {
        let partition = state.partition(*key)?;
        Some(Held {
            key: *key,
            epoch: partition.epoch()?,
            draining: matches!(partition.phase(), Phase::Draining(_)),
            takeover: state.keyspace(key.keyspace)?.policy().takeover(),
            lineage: Lineage::read(state.keyspace(key.keyspace)?, key.partition),
        })
    });
    let held = held.collect();
    Assignment { revision: session.assignment(), complete: true, more: false, held, gone: Vec::new() }
}

/// An expiry that rests on whatever the session's suspicion is when it applies; when there is none, on a new one.
fn name_the_current_suspicion(entry: &mut Entry, index: LogIndex) {
    let Some(Command::Expire { session, suspicion }) = entry.commands.first_mut() else { return };
    *suspicion = index;
    let session = *session;
    let forget = Command::Clear { sessions: vec![session] };
    let suspect = Command::Suspect { sessions: vec![(session, 2)] };
    entry.commands.splice(0..0, [forget, suspect]);
}

/// Every drain at its deadline, whether its owner has learnt of it or not.
fn drains_at_their_deadline(leadership: &Leadership, now: Instant, state: &State) -> Vec<Vec<Command>> {
    let draining = state.keyspaces().flat_map(crate::state::Keyspace::keys).filter_map(|key| {
        match (state.partition(key)?.phase(), state.partition(key)?.epoch()) {
            (Phase::Draining(drain), Some(epoch)) => Some((key, epoch, drain.session, drain.move_id)),
            _ => None,
        }
    });
    let over = draining.filter(|(key, epoch, session, _)| {
        leadership
            .timers
            .drains_of(*session, now)
            .iter()
            .any(|(k, e, left)| k == key && e == epoch && left.is_zero())
    });
    over.map(|(partition, epoch, _, move_id)| vec![Command::DrainOver { partition, epoch, move_id }])
        .collect()
}
