//! What goes wrong, and what operators ask for meanwhile.

use super::super::super::world::ms;
use super::{Clock, Message, NODES, PARTITIONS, Process, TTL_MS, WORKERS, World, name};
use crate::ids::{Epoch, KeyspaceId, PartitionKey};
use crate::placement::PartitionCount;
use crate::state::{Command, GrantReason};

impl World {
    pub(super) fn trouble(&mut self) {
        let profile = self.profile;
        if self.random.per_mille(profile.elections) {
            self.elect();
        }
        if self.random.per_mille(profile.pauses) {
            let node = self.random.below(NODES as u64) as usize;
            self.nodes[node].paused_until = self.now + self.random.between(100, TTL_MS * 3 / 2) * 1_000;
        }
        if self.random.per_mille(profile.isolations) {
            // Its majority goes on without it.
            if let Some(node) = self.a_leader() {
                self.nodes[node].isolated_until = self.now + self.random.between(500, TTL_MS * 2) * 1_000;
                self.elect();
            }
        }
        let alive: Vec<usize> =
            (0..self.processes.len()).filter(|process| self.processes[*process].alive).collect();
        let some = self.random.pick(&alive);
        if let Some(process) = some.filter(|_| self.random.per_mille(profile.sleeps)) {
            self.processes[process].paused_until =
                self.now + self.random.between(100, TTL_MS * 3 / 2) * 1_000;
        }
        if let Some(process) = some.filter(|_| self.random.per_mille(profile.cuts)) {
            self.cut(process);
        }
        if let Some(process) = some.filter(|_| self.random.per_mille(profile.deaths)) {
            self.kill(process);
        }
        if self.random.per_mille(profile.replacements) {
            // A second process under the name of one that may well be alive.
            let worker = self.random.below(WORKERS as u64) as usize;
            self.start(worker);
        } else if self.random.per_mille(20) {
            let missing: Vec<usize> = (0..WORKERS).filter(|worker| !self.runs(*worker)).collect();
            if let Some(worker) = self.random.pick(&missing) {
                self.start(worker);
            }
        }
        if self.random.per_mille(profile.drains) {
            self.drain();
        }
        if profile.splits > 0 && self.random.per_mille(profile.splits) {
            self.split();
        }
        if profile.reasserts > 0 && self.random.per_mille(profile.reasserts) {
            self.reassert();
        }
    }

    pub(super) fn heal(&mut self) {
        self.healed = true;
        for node in &mut self.nodes {
            node.paused_until = 0;
            node.isolated_until = 0;
        }
        for process in 0..self.processes.len() {
            self.processes[process].paused_until = 0;
        }
        for worker in 0..WORKERS {
            if !self.runs(worker) {
                self.start(worker);
            }
        }
        self.elect();
    }

    fn runs(&self, worker: usize) -> bool {
        self.processes.iter().any(|process| process.alive && process.worker == name(worker))
    }

    pub(super) fn start(&mut self, worker: usize) {
        let process = Process {
            worker: name(worker),
            clock: Clock::new(&mut self.random),
            nonce: u128::from(self.random.next()),
            alive: true,
            paused_until: 0,
            session: None,
            lessee: None,
            stream: None,
            todo: Vec::new(),
            next_join: self.now,
        };
        self.processes.push(process);
    }

    fn kill(&mut self, process: usize) {
        self.cut(process);
        self.processes[process].alive = false;
    }

    /// An operator moves a partition, and perhaps says so twice.
    fn drain(&mut self) {
        let Some(node) = self.a_leader() else { return };
        let (state, term) = (&self.nodes[node].state, self.nodes[node].leads.unwrap_or(0));
        let keys: Vec<PartitionKey> = state.keyspaces().flat_map(crate::state::Keyspace::keys).collect();
        let Some(partition) = self.random.pick(&keys) else { return };
        let to = name(self.random.below(WORKERS as u64) as usize);
        let again = self.random.per_mille(500);
        let Some(epoch) =
            self.nodes[node].state.partition(partition).and_then(crate::state::Partition::epoch)
        else {
            return;
        };
        let deadline = ms(self.profile.drain_deadline_ms);
        let drain = Command::Drain { partition, epoch, to, deadline, why: GrantReason::Operator };
        self.propose(term, vec![drain.clone()]);
        if again {
            // About when the first one's deadline passes.
            let later = self.random.between(0, self.profile.drain_deadline_ms);
            self.next_id += 1;
            self.messages.insert((self.now + later * 1_000, self.next_id), Message::DrainAgain(drain));
        }
    }

    /// An operator has a keyspace split, or thinks better of it.
    fn split(&mut self) {
        let Some(node) = self.a_leader() else { return };
        let ids: Vec<KeyspaceId> =
            self.nodes[node].state.keyspaces().map(crate::state::Keyspace::id).collect();
        let Some(keyspace) = self.random.pick(&ids) else { return };
        let term = self.nodes[node].leads.unwrap_or(0);
        let command = match self.random.per_mille(200) {
            true => Command::CancelSplit { keyspace },
            false => Command::StartSplit { keyspace, from: PartitionCount::new(PARTITIONS).unwrap() },
        };
        self.propose(term, vec![command]);
    }

    /// An operator has the fences of a keyspace raised again, or of one partition, or says what its storage has seen.
    fn reassert(&mut self) {
        let Some(node) = self.a_leader() else { return };
        let state = &self.nodes[node].state;
        let keys: Vec<PartitionKey> = state.keyspaces().flat_map(crate::state::Keyspace::keys).collect();
        let Some(key) = self.random.pick(&keys) else { return };
        let term = self.nodes[node].leads.unwrap_or(0);
        let partition = self.random.per_mille(500).then_some(key.partition);
        let order = Command::Reassert { keyspace: key.keyspace, partition };
        let above = self.nodes[node].state.partition(key).and_then(crate::state::Partition::epoch);
        let above = above.filter(|_| self.random.per_mille(200));
        let above = above.and_then(|epoch| Epoch::new(epoch.get() + self.random.below(1_000)).ok());
        let above = above.map(|above| Command::RaiseAbove { partition: key, above });
        self.propose(term, above.into_iter().chain([order]).collect());
    }

    pub(super) fn splits(&self) -> bool {
        self.truth.keyspaces().any(|keyspace| keyspace.split().is_some())
    }

    /// Partitions are owned under a grant from before an order to raise their fences again.
    pub(super) fn reasserts(&self) -> bool {
        self.truth.reasserts().any(|order| !order.handed_out)
    }
}
