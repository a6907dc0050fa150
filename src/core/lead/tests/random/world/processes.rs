//! The processes with the shipped lessee, and the network between them and the coordinator.

use super::super::holder::Holder;
use super::{Message, Renewal, Stream, TAKEOVERS, TTL_MS, Todo, World};
use crate::ids::{Epoch, PartitionKey};
use crate::lead::release;
use crate::lease::lessee;
use crate::placement::Weight;
use crate::state::{Command, Join, Released, Session};
use crate::time::Instant;
use std::collections::{BTreeMap, BTreeSet};

impl World {
    // The network.

    /// Sends a message that is late, or lost; of two sent one after the other either may arrive first.
    pub(super) fn send(&mut self, message: Message) {
        if !self.healed && self.random.per_mille(self.profile.losses) {
            return;
        }
        let slow = !self.healed && self.random.per_mille(self.profile.slow_messages);
        let delay = if slow { self.random.between(50, TTL_MS / 2) } else { self.random.between(0, 8) };
        self.next_id += 1;
        self.messages.insert((self.now + delay * 1_000, self.next_id), message);
    }

    pub(super) fn deliver(&mut self, message: Message) {
        match message {
            Message::Renew { node: at, term, mut renewal } => {
                let node = &mut self.nodes[at];
                if node.paused_until > self.now {
                    return;
                }
                if let Some(leadership) = node.leadership.as_mut().filter(|_| node.leads == Some(term)) {
                    renewal.arrival = node.clock.read(self.now);
                    leadership.lessor.arrived(renewal.session);
                    node.waiting.push(renewal);
                }
            }
            Message::Picture { process, connection, picture } => {
                self.with_lessee(process, connection, |lessee, now| lessee.assign(now, picture));
            }
            Message::Acknowledged { process, connection, acknowledgement } => {
                self.with_lessee(process, connection, |lessee, now| lessee.acknowledge(now, acknowledgement));
            }
            Message::Ended { process, connection } => {
                self.with_lessee(process, connection, |lessee, _| lessee.session_ended());
            }
            Message::Joined { process: at, session } => {
                let process = &mut self.processes[at];
                if process.alive && process.session.is_none() {
                    process.session = Some(session);
                    process.lessee = Some(match self.naive {
                        true => Holder::naive(self.rule),
                        false => Holder::shipped(process.clock.read(self.now)),
                    });
                    process.todo.clear();
                }
            }
            Message::Report { process, todo } => self.report(process, todo),
            Message::DrainAgain(drain) => {
                if let Some(node) = self.a_leader() {
                    self.propose(self.nodes[node].leads.unwrap_or(0), vec![drain]);
                }
            }
        }
    }

    fn with_lessee(&mut self, at: usize, connection: u64, f: impl FnOnce(&mut Holder, Instant)) {
        let process = &mut self.processes[at];
        let open = process.stream.is_some_and(|stream| stream.connection == connection);
        // What reaches a paused process is read when it wakes up; here it is simply lost.
        if process.alive
            && process.paused_until <= self.now
            && open
            && let Some(lessee) = &mut process.lessee
        {
            f(lessee, process.clock.read(self.now));
        }
    }

    /// The stream breaks; both ends notice.
    pub(super) fn cut(&mut self, at: usize) {
        let process = &mut self.processes[at];
        let Some(stream) = process.stream.take() else { return };
        if let Some(lessee) = &mut process.lessee {
            lessee.disconnected(process.clock.read(self.now));
        }
        let node = &mut self.nodes[stream.node];
        let now = node.clock.read(self.now);
        let led = node.leadership.as_mut().filter(|_| node.leads == Some(stream.term));
        if let (Some(leadership), Some(session)) = (led, process.session) {
            leadership.presence.disconnected(session, now);
        }
    }

    // Processes.

    pub(super) fn live(&mut self, at: usize) {
        if self.processes[at].session.is_none() {
            return self.join(at);
        }
        if self.processes[at].lessee.as_ref().is_some_and(Holder::is_over) {
            return self.start_over(at);
        }
        self.attach(at);
        let process = &mut self.processes[at];
        let (Some(lessee), Some(session)) = (&mut process.lessee, process.session) else { return };
        let now = process.clock.read(self.now);
        lessee.handle_timeout(now);
        if let (Some(number), Some(stream)) = (lessee.renew(now, self.random.next() as u32), process.stream) {
            let arrival = Instant::from_nanos(0);
            let renewal = Renewal { process: at, connection: stream.connection, session, number, arrival };
            self.send(Message::Renew { node: stream.node, term: stream.term, renewal });
        }
        self.hear(at);
        self.act(at);
    }

    fn join(&mut self, at: usize) {
        if self.processes[at].next_join > self.now {
            return;
        }
        self.processes[at].next_join = self.now + self.random.between(100, 500) * 1_000;
        let Some(node) = self.a_leader() else { return };
        let (process, state) = (&self.processes[at], &self.nodes[node].state);
        if state.keyspaces().count() < TAKEOVERS.len() {
            return;
        }
        let join = Join {
            worker: process.worker.clone(),
            nonce: process.nonce,
            secret_hash: [0; 32],
            address: String::new(),
            weight: Weight::ONE,
            labels: BTreeMap::new(),
            keyspaces: state.keyspaces().map(crate::state::Keyspace::id).collect(),
            replaces: state.session_of(&process.worker).map(Session::id),
            splits: true,
            ends_drain: None,
            ttl: None,
        };
        let term = self.nodes[node].leads.unwrap_or(0);
        self.propose(term, vec![Command::Join(Box::new(join))]);
    }

    /// The session is over. Another one is opened, unless another process lives under the name.
    fn start_over(&mut self, at: usize) {
        self.cut(at);
        let worker = self.processes[at].worker.clone();
        let taken = self.processes.iter().skip(at + 1).any(|other| other.alive && other.worker == worker);
        let process = &mut self.processes[at];
        process.alive = !taken;
        process.session = None;
        process.lessee = None;
        process.nonce = u128::from(self.random.next());
        process.next_join = self.now;
    }

    fn attach(&mut self, at: usize) {
        if let Some(stream) = self.processes[at].stream {
            let node = &self.nodes[stream.node];
            let serves = node.leads == Some(stream.term) && node.leadership.is_some();
            // A stream to a node that is paused looks alive for a while.
            let silent = node.paused_until > self.now && self.random.per_mille(10);
            if !serves || silent {
                self.cut(at);
            }
            return;
        }
        if !self.random.per_mille(200) {
            return;
        }
        let Some(node) = self.a_leader() else { return };
        let process = &mut self.processes[at];
        let (Some(session), Some(lessee)) = (process.session, &mut process.lessee) else { return };
        let term = self.nodes[node].leads.unwrap_or(0);
        let Some(leadership) = &mut self.nodes[node].leadership else { return };
        self.next_id += 1;
        process.stream = Some(Stream { node, term, connection: self.next_id });
        lessee.connected(process.clock.read(self.now));
        leadership.presence.connected(session);
    }

    /// Follows what the lessee tells.
    fn hear(&mut self, at: usize) {
        let now = self.now;
        let process = &mut self.processes[at];
        let Some(lessee) = &mut process.lessee else { return };
        while let Some(event) = lessee.poll_event() {
            match event {
                lessee::Event::Granted { key, epoch, .. } => {
                    let when = now + self.random.between(0, 200) * 1_000;
                    process.todo.push((when, Todo::Ready(key, epoch)));
                }
                lessee::Event::Revoked { key, epoch } => {
                    // Every other task overruns its deadline.
                    let flush = if self.random.per_mille(500) { 100 } else { 3 * TTL_MS };
                    let when = now + self.random.between(0, flush) * 1_000;
                    process.todo.push((when, Todo::Return(key, epoch)));
                }
                lessee::Event::Bounded { key, epoch, .. } => process.todo.push((now, Todo::Seen(key, epoch))),
                lessee::Event::Lost { key, epoch, .. } => {
                    process.todo.retain(|(_, todo)| *todo != Todo::Return(key, epoch));
                }
            }
        }
    }

    fn act(&mut self, at: usize) {
        let (due, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.processes[at].todo).into_iter().partition(|(when, _)| *when <= self.now);
        self.processes[at].todo = later;
        for (_, todo) in due {
            let todo = match todo {
                Todo::Return(key, epoch) => {
                    if let Some(lessee) = &mut self.processes[at].lessee {
                        lessee.give_back(key, epoch);
                    }
                    Todo::Release(key, epoch)
                }
                other => other,
            };
            // Said again until it is known to be done.
            if !self.is_done(at, todo) {
                let again = self.now + self.random.between(200, 600) * 1_000;
                self.processes[at].todo.push((again, todo));
                self.send(Message::Report { process: at, todo });
            }
        }
    }

    fn is_done(&self, at: usize, todo: Todo) -> bool {
        let (Todo::Ready(key, epoch)
        | Todo::Seen(key, epoch)
        | Todo::Return(key, epoch)
        | Todo::Release(key, epoch)) = todo;
        let partition = self.truth.partition(key);
        let holds =
            partition.is_some_and(|p| p.epoch() == Some(epoch) && p.owner() == self.processes[at].session);
        !holds || (matches!(todo, Todo::Ready(..)) && partition.is_some_and(crate::state::Partition::ready))
    }

    fn report(&mut self, at: usize, todo: Todo) {
        let Some(node) = self.a_leader() else { return };
        let Some(session) = self.processes[at].session else { return };
        let with_grant = self.random.per_mille(800);
        let commands = match todo {
            Todo::Ready(partition, epoch) => vec![Command::Ready { partition, epoch, session }],
            Todo::Seen(partition, epoch) => vec![Command::RevokeSeen { partition, epoch, session }],
            Todo::Return(partition, epoch) | Todo::Release(partition, epoch) => {
                let how = self.ends(partition, epoch);
                let state = &self.nodes[node].state;
                let (command, follows) = release(state, partition, epoch, session, how, &BTreeSet::new());
                std::iter::once(command).chain(follows.into_iter().filter(|_| with_grant)).collect()
            }
        };
        let term = self.nodes[node].leads.unwrap_or(0);
        self.propose(term, commands);
    }
    /// How an owner gives a partition back: now and then its storage has seen more. Once, for what says so again waits longer
    /// each time, and there is to be peace.
    fn ends(&mut self, key: PartitionKey, epoch: Epoch) -> Released {
        let often = if self.profile.reasserts > 0 { 100 } else { 0 };
        let first = self.truth.partition(key).is_some_and(|partition| partition.setback().is_none());
        if often == 0 || !first || !self.random.per_mille(often) {
            return Released::Revoked;
        }
        let seen = epoch.get() + 1 + self.random.below(crate::state::MAX_SEEN_JUMP + 1_000);
        Epoch::new(seen).map_or(Released::Revoked, Released::Behind)
    }
}
