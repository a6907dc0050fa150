//! What a leader decides: a pure machine over the applied state and one clock.
//!
//! [`Leadership`] belongs to one term. It is told what was applied, which renewals and streams came and went, and what
//! time it is; it answers with entries to propose. It proposes nothing itself, and what must hold beyond its term is in
//! the state: a new leader finds there what waits, and counts it in full. Three things start anew with it, and none of
//! them keeps a promise: how many moves began in the last minute, how many sessions ran out lately (the brake), and the
//! loads that were measured.

mod agenda;
mod approved;
mod brake;
mod budget;
mod evenness;
mod forgiveness;
mod holds;
mod loads;
mod locks;
mod ownerless;
mod pace;
mod picture;
mod placing;
mod presence;
mod reasserts;
mod receive;
mod release;
mod splitting;
mod survey;
mod timers;

#[cfg(test)]
mod tests;

pub use approved::{Approved, Hindrance, Prospect, prospect};
pub use brake::{Brake, Share};
pub use budget::Budget;
pub use forgiveness::{FORGIVEN_AFTER, Forgiveness};
pub use holds::Holds;
pub use loads::{LoadSource, Loads, Weights};
pub use locks::{HeldTooLong, LockTimers};
pub use ownerless::Ownerless;
pub use picture::{Outlook, ZONE_LABEL};
pub use placing::{Placing, Settings};
pub use presence::{GRACE, Presence};
pub use receive::{NoMove, PinElsewhere, Unfit, operators_move, pinned_elsewhere, receive, unfit};
pub use release::release;
pub use survey::{PinTrouble, Stays, Survey, WhatIf};
pub use timers::Timers;

use crate::ids::{PartitionKey, SessionId, Term};
use crate::lease::Lessor;
use crate::mutant;
use crate::state::{Command, Event, Keyspace, Phase, State, Takeover};
use crate::time::Instant;
use std::collections::{BTreeMap, BTreeSet};

/// The most commands of one log entry: it keeps an entry well below the limit of a message.
pub const MAX_COMMANDS: usize = 1_000;

/// One node's leadership in one term.
#[derive(Clone, Debug, Hash)]
pub struct Leadership {
    /// The leases.
    pub lessor: Lessor,
    /// What waits.
    pub timers: Timers,
    /// Who is connected.
    pub presence: Presence,
    /// What goes where.
    pub placing: Placing,
    /// The plan that an operator approved.
    pub approved: Approved,
    /// How many planned moves may begin.
    pub budget: Budget,
    /// How much the partitions count, where that is measured.
    pub loads: Loads,
    /// Workers that were restarted, and have come back.
    holds: Holds,
    /// Setbacks that owners have outlived.
    forgiveness: Forgiveness,
    /// Lost locks that wait, and locks that are held for too long.
    pub locks: LockTimers,
    /// Fences that are raised again.
    reasserts: reasserts::Reasserts,
    /// Who was without a connection at the last look.
    absent: BTreeSet<SessionId>,
}

impl Leadership {
    /// Begins to lead. The caller has applied an entry of `term` (checked by its term, not by its index) and leads in
    /// it: what earlier leaders committed is in `state`.
    pub fn new(term: Term, now: Instant, state: &State, settings: Settings) -> Leadership {
        let lessor = Lessor::new(term, now, state);
        let timers = Timers::new(now, state, &lessor);
        let (presence, placing) = (Presence::new(now), Placing::new(now, state, settings));
        let (approved, budget, absent) = (Approved::default(), Budget::new(now, state), BTreeSet::new());
        let holds = Holds::new(state);
        let (loads, forgiveness) = (Loads::new(now, state), Forgiveness::new(now, state));
        let locks = LockTimers::new(now, state, &lessor);
        let reasserts = reasserts::Reasserts::default();
        Leadership {
            lessor,
            timers,
            presence,
            placing,
            approved,
            budget,
            loads,
            holds,
            forgiveness,
            locks,
            reasserts,
            absent,
        }
    }

    /// The term it belongs to.
    pub fn term(&self) -> Term {
        self.lessor.term()
    }

    /// Takes note of what an entry changed, at the moment it was applied.
    pub fn observe(&mut self, events: &[Event], now: Instant, state: &State) {
        if !events.iter().all(|event| matches!(event, Event::Lock(_) | Event::LockOf { .. })) {
            self.approved.look_again();
        }
        for event in events {
            self.lessor.observe(event, now, state);
            match event {
                Event::Partition { key, .. } => {
                    self.timers.observe(*key, now, state, &self.lessor);
                    self.budget.observe(*key, now, state);
                    self.forgiveness.observe(*key, now, state);
                }
                Event::KeyspaceDeleted(id, _) => {
                    self.timers.keyspace_deleted(*id);
                    self.budget.forget(*id);
                    self.loads.forget(*id);
                    self.forgiveness.forget(*id);
                }
                // One created again under a name that was used before begins by cooling, and all of it does: a million
                // partitions that do not cool are not looked at one by one.
                Event::Keyspace(id) => {
                    if let Some(keyspace) = state.keyspace(*id) {
                        self.loads.keyspace_changed(keyspace, now);
                    }
                    let cools = |keyspace: &&Keyspace| {
                        keyspace.partitions().first().is_some_and(|p| matches!(p.phase(), Phase::Cooling(_)))
                    };
                    for key in state.keyspace(*id).filter(cools).into_iter().flat_map(Keyspace::keys) {
                        self.timers.observe(key, now, state, &self.lessor);
                    }
                }
                Event::Joined(id) => {
                    self.presence.joined(*id, now);
                    if let Some(session) = state.session(*id) {
                        self.placing.joined(session);
                        self.holds.joined(session);
                    }
                }
                Event::Ended { session, .. } => self.presence.ended(*session),
                Event::Lock(name) => self.locks.observe(name, now, state, &self.lessor),
                Event::WorkerSet { worker, weight } => {
                    if let Some(session) = state.session_of(worker).filter(|_| *weight) {
                        self.placing.reweighted(session);
                    }
                }
                _ => {}
            }
            self.placing.observe(event, now, state);
        }
    }

    /// Takes in what a worker has measured of a partition, in units a second. What is not for it to say is passed over:
    /// the partition may have moved on while the message was on its way.
    pub fn measure(
        &mut self,
        now: Instant,
        state: &State,
        session: SessionId,
        key: PartitionKey,
        units: u64,
    ) {
        let every = self.placing.settings().measure_every;
        if self.loads.measure(now, every, state, session, key, units) {
            // Loads change all the time, and a plan takes a while: what changes meanwhile is looked at together.
            self.placing.balance_from(key.keyspace, now + every);
        }
    }

    /// What to propose now, as entries that each make sense alone.
    ///
    /// They are to be handed to the log in this order, before what the next call returns, and for this term only. Ask
    /// again when they were applied or refused, or when their fate is unknown: what did not take effect comes again.
    pub fn due(&mut self, now: Instant, state: &State) -> Vec<Vec<Command>> {
        let mut entries = Vec::new();
        let leases = self.lessor.due(now, state);
        if !leases.suspect.is_empty() {
            entries.push(vec![Command::Suspect { sessions: leases.suspect }]);
        }
        if !leases.clear.is_empty() {
            entries.push(vec![Command::Clear { sessions: leases.clear }]);
        }
        let gone = self.presence.gone(now, state);
        let absent = self.presence.absent(now);
        if !self.absent.is_subset(&absent) {
            self.placing.somebody_is_back();
            self.approved.look_again();
        }
        self.absent = absent;

        let locks = self.locks.due(now, state, &gone);
        let expiring: BTreeSet<SessionId> = leases.expire.iter().map(|(session, _)| *session).collect();
        let mut endings = Endings::default();
        for (session, suspicion) in leases.expire {
            let holds = state.session(session).into_iter().flat_map(crate::state::Session::holds);
            endings.add(Command::Expire { session, suspicion }, holds.copied().collect());
        }
        for command in self.timers.due(now, state) {
            if let Command::DrainOver { partition, .. } | Command::EndCooling { partition, .. } = command {
                endings.add(command, vec![partition]);
            }
        }
        for (partition, epoch) in self.holds.due(state, &self.absent, self.timers.cooling()) {
            endings.add(Command::EndCooling { partition, epoch }, vec![partition]);
        }
        for id in gone.into_iter().filter(|id| !expiring.contains(id)) {
            seize(state, id, &mut endings);
        }

        let outlook = Outlook { absent: &self.absent, expiring: &expiring, freed: &endings.freed };
        let grants = self.placing.grants(now, state, outlook, &self.loads, &mut self.budget);
        entries.extend(pack(endings.list, grants));
        entries.extend(locks);
        // Under the brake nothing moves that has an owner: what moves is what was lost.
        let calm =
            self.placing.brake_with(now, state, expiring.len()).is_none() || mutant!("moves-under-the-brake");
        let (absent, budget) = (&self.absent, &mut self.budget);
        entries.extend(self.reasserts.due(now, state, budget));
        if calm {
            entries.extend(self.approved.due(now, state, absent, budget));
        }
        if mutant!("plan-has-a-budget-of-its-own") {
            budget.look_ends();
        }
        entries.extend(splitting::due(now, state, absent, calm, budget));
        if calm {
            entries.extend(self.placing.moves(now, state, absent, &self.loads, budget));
        }
        self.budget.look_ends();
        let forgiven = self.forgiveness.due(now, state);
        entries.extend(forgiven.chunks(MAX_COMMANDS).map(<[Command]>::to_vec));
        entries
    }
}

/// Takes from a session whose connection is lost what keyspaces that take over by fence have given it.
fn seize(state: &State, id: SessionId, endings: &mut Endings) {
    for key in state.session(id).into_iter().flat_map(crate::state::Session::holds) {
        let takeover = state.keyspace(key.keyspace).map(|keyspace| keyspace.policy().takeover());
        let epoch = state.partition(*key).and_then(crate::state::Partition::epoch);
        if let (Some(Takeover::Fence), Some(epoch)) = (takeover, epoch) {
            endings.add(Command::Seize { partition: *key, epoch, session: id }, vec![*key]);
        }
    }
}

/// Commands that free partitions, each partition once: the second of two that take the same one would be refused, and
/// would take its entry with it.
#[derive(Debug, Default)]
struct Endings {
    list: Vec<Ending>,
    freed: BTreeSet<PartitionKey>,
}

impl Endings {
    fn add(&mut self, command: Command, frees: Vec<PartitionKey>) {
        if frees.iter().any(|key| self.freed.contains(key)) {
            return;
        }
        self.freed.extend(&frees);
        self.list.push(Ending { command, frees });
    }
}

/// A command that frees partitions.
#[derive(Debug)]
struct Ending {
    command: Command,
    frees: Vec<PartitionKey>,
}

/// Puts each command that frees partitions into one entry with the grants that follow from it, and cuts where the entry
/// would become too large. An entry that was cut makes sense alone: what it leaves vacant the next one grants.
fn pack(endings: Vec<Ending>, mut grants: BTreeMap<PartitionKey, Command>) -> Vec<Vec<Command>> {
    let mut entries = Vec::new();
    let mut entry = Vec::new();
    for ending in endings {
        // An expiry may be refused, and takes its entry with it: it shares the entry with its own grants only.
        let alone = matches!(ending.command, Command::Expire { .. });
        let of: Vec<Command> = ending.frees.iter().filter_map(|key| grants.remove(key)).collect();
        if !entry.is_empty() && (alone || entry.len() + 1 + of.len() > MAX_COMMANDS) {
            entries.push(std::mem::take(&mut entry));
        }
        entry.push(ending.command);
        for grant in of {
            if entry.len() == MAX_COMMANDS {
                entries.push(std::mem::take(&mut entry));
            }
            entry.push(grant);
        }
        if alone {
            entries.push(std::mem::take(&mut entry));
        }
    }
    for grant in grants.into_values() {
        if entry.len() == MAX_COMMANDS {
            entries.push(std::mem::take(&mut entry));
        }
        entry.push(grant);
    }
    if !entry.is_empty() {
        entries.push(entry);
    }
    entries
}
