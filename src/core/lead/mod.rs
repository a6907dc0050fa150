//! What a leader decides: a pure machine over the applied state and one clock.
//!
//! [`Leadership`] belongs to one term. It is told what was applied, which renewals and streams came and went, and what
//! time it is; it answers with entries to propose. It proposes nothing itself and remembers nothing that its successor
//! would need: whatever it forgets at the end of its term a new leader finds in the state, and counts in full.

mod placing;
mod presence;
mod release;
mod timers;

#[cfg(test)]
mod tests;

pub use placing::{Placing, Settings};
pub use presence::{GRACE, Presence};
pub use release::release;
pub use timers::Timers;

use crate::ids::{PartitionKey, SessionId, Term};
use crate::lease::Lessor;
use crate::state::{Command, Event, State, Takeover};
use crate::time::Instant;
use std::collections::BTreeSet;

/// The most commands of one log entry: it keeps an entry well below the limit of a message.
pub const MAX_COMMANDS: usize = 1_000;

/// One node's leadership in one term.
#[derive(Clone, Debug)]
pub struct Leadership {
    /// The leases.
    pub lessor: Lessor,
    /// What waits.
    pub timers: Timers,
    /// Who is connected.
    pub presence: Presence,
    /// What goes where.
    pub placing: Placing,
}

impl Leadership {
    /// Begins to lead. The caller has applied an entry of `term` (checked by its term, not by its index) and leads in
    /// it: what earlier leaders committed is in `state`.
    pub fn new(term: Term, now: Instant, state: &State, settings: Settings) -> Leadership {
        let lessor = Lessor::new(term, now, state);
        let timers = Timers::new(now, state, &lessor);
        Leadership { lessor, timers, presence: Presence::new(now), placing: Placing::new(now, settings) }
    }

    /// The term it belongs to.
    pub fn term(&self) -> Term {
        self.lessor.term()
    }

    /// Takes note of what an entry changed, at the moment it was applied.
    pub fn observe(&mut self, events: &[Event], now: Instant, state: &State) {
        for event in events {
            self.lessor.observe(event, now, state);
            match event {
                Event::Partition { key, .. } => self.timers.observe(*key, now, state, &self.lessor),
                Event::Ended { session, .. } => self.presence.ended(*session),
                _ => {}
            }
            self.placing.observe(event, now);
        }
    }

    /// What to propose now, as entries that each make sense alone. Ask again when they were applied, or refused.
    pub fn due(&mut self, now: Instant, state: &State) -> Vec<Vec<Command>> {
        let mut entries = Vec::new();
        let leases = self.lessor.due(now, state);
        if !leases.suspect.is_empty() {
            entries.push(vec![Command::Suspect { sessions: leases.suspect }]);
        }
        if !leases.clear.is_empty() {
            entries.push(vec![Command::Clear { sessions: leases.clear }]);
        }

        // What these commands vacate is granted on in the same entry, as far as the size of an entry allows.
        let mut expiring = BTreeSet::new();
        let mut endings: Vec<Ending> = Vec::new();
        for (session, suspicion) in leases.expire {
            expiring.insert(session);
            let frees =
                state.session(session).map(|s| s.holds().iter().copied().collect()).unwrap_or_default();
            endings.push(Ending { command: Command::Expire { session, suspicion }, frees });
        }
        for command in self.timers.due(now, state) {
            if let Command::DrainOver { partition, .. } | Command::EndCooling { partition, .. } = &command {
                let frees = vec![*partition];
                endings.push(Ending { command, frees });
            }
        }
        endings.extend(self.seizures(now, state, &expiring));

        let freed: BTreeSet<PartitionKey> = endings.iter().flat_map(|e| e.frees.iter().copied()).collect();
        let grants = self.placing.grants(now, state, &expiring, &freed);
        entries.extend(pack(endings, grants));
        entries.extend(self.placing.moves(now, state));
        entries
    }

    fn seizures(&mut self, now: Instant, state: &State, expiring: &BTreeSet<SessionId>) -> Vec<Ending> {
        let mut seizures = Vec::new();
        for id in self.presence.gone(now, state) {
            let Some(session) = state.session(id).filter(|_| !expiring.contains(&id)) else { continue };
            for key in session.holds() {
                let by_fence =
                    state.keyspace(key.keyspace).is_some_and(|k| k.policy().takeover() == Takeover::Fence);
                let epoch = state.partition(*key).and_then(crate::state::Partition::epoch);
                if let (true, Some(epoch)) = (by_fence, epoch) {
                    let command = Command::Seize { partition: *key, epoch, session: id };
                    seizures.push(Ending { command, frees: vec![*key] });
                }
            }
        }
        seizures
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
fn pack(
    endings: Vec<Ending>,
    mut grants: std::collections::BTreeMap<PartitionKey, Command>,
) -> Vec<Vec<Command>> {
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
