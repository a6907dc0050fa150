//! What a fault does.

use super::ends::Later;
use super::{Stage, id};
use crate::actors::node::Node;
use crate::actors::operator::Order;
use crate::actors::store;
use crate::actors::worker::WorkerHost;
use crate::history::What;
use crate::run::fault::Fault;
use crate::run::plan::Plan;
use crate::world::{Disk, Host, Rate, Weather};
use fastrand::Rng;
use ringfence::ids::{PartitionId, WorkerId};
use std::sync::atomic::Ordering;

/// How long an operator tries to exchange a member.
const EXCHANGE_MS: u64 = 8_000;

impl Stage {
    pub(super) fn strike(&mut self, fault: Fault, random: &mut Rng) -> anyhow::Result<()> {
        match fault {
            Fault::Pause(host, for_ms) => drop(self.pause(host, for_ms)),
            Fault::Suspend(host, for_ms) => {
                let more = self.pause(host, for_ms);
                self.suspended(host, more);
            }
            Fault::Kill(host, for_ms) => {
                self.kill(host, false);
                self.undo(for_ms, Later::Start(host));
            }
            Fault::PowerLoss(host, for_ms) => {
                self.kill(host, true);
                self.undo(for_ms, Later::Start(host));
            }
            Fault::PowerLossInWrite(host, writes, for_ms) => {
                self.back.insert(host, for_ms);
                self.disk(host, |trouble| trouble.power_lost_after = Some(writes));
            }
            Fault::KillNodes(for_ms) | Fault::NodesLosePower(for_ms) => {
                let power = matches!(fault, Fault::NodesLosePower(_));
                let nodes: Vec<Host> = self.nodes.keys().copied().collect();
                for host in nodes {
                    self.kill(host, power);
                    let apart = random.u64(0..200);
                    self.undo(for_ms + apart, Later::Start(host));
                }
            }
            Fault::KillLeader(for_ms) => {
                if let Some(host) = self.leader() {
                    self.kill(host, false);
                    self.undo(for_ms, Later::Start(host));
                }
            }
            Fault::Split(keyspace) => {
                let name = Plan::keyspaces()[keyspace].to_owned();
                self.operator.order(Order::Split(name, self.plan.heals));
            }
            Fault::CancelSplit(keyspace) => {
                self.operator.order(Order::CancelSplit(Plan::keyspaces()[keyspace].to_owned()));
            }
            Fault::KillAtRest(host) => self.kill(host, false),
            Fault::OneWay(from, to, for_ms) => self.close(from, to, for_ms),
            Fault::Cut(a, b, for_ms) => {
                self.close(a, b, for_ms);
                self.close(b, a, for_ms);
            }
            Fault::Isolate(host, for_ms) => {
                for other in self.everybody().into_iter().filter(|other| *other != host) {
                    self.close(host, other, for_ms);
                    self.close(other, host, for_ms);
                }
            }
            Fault::LostReplies(host, for_ms) => {
                let nodes: Vec<Host> = self.nodes.keys().copied().collect();
                for node in nodes {
                    self.close(node, host, for_ms);
                }
            }
            Fault::Slow(a, b, for_ms) => {
                let most = random.u64(10..300);
                let loss = random.u8(..40);
                for (from, to) in [(a, b), (b, a)] {
                    self.common.net.change(from, to, |weather| {
                        *weather = Weather { latency: 1..=most, loss, ..weather.clone() };
                    });
                    self.undo(for_ms, Later::Fair(from, to));
                }
            }
            Fault::Reset(a, b) => self.common.net.reset(a, b),
            Fault::DiskFull(host, for_ms) => {
                self.disk(host, |trouble| trouble.full = true);
                self.undo(for_ms, Later::HasRoom(host));
            }
            Fault::FlushFails(host) => self.disk(host, |trouble| trouble.fails_flush = true),
            Fault::SlowDisk(host, for_ms) => {
                let most = random.u64(5_000..900_000);
                self.disk(host, |trouble| trouble.takes_us = most / 4..=most);
                self.undo(for_ms, Later::Fast(host));
            }
            Fault::WallJump(host, by) => {
                if let Some(node) = self.nodes.get(&host) {
                    node.wall.fetch_add(by, Ordering::Relaxed);
                }
            }
            Fault::StoreWeather(host, for_ms) => {
                let most = random.u64(20..1_500);
                let (loss, twice) = (random.u8(..50), random.u8(..30));
                let weather = store::Weather { latency: 1..=most, loss, twice };
                self.common.store.change(host, Some(weather));
                self.undo(for_ms, Later::StoreFair(host));
            }
            Fault::Leave(host, for_ms) => {
                self.back.insert(host, for_ms);
                if let Some(worker) = self.workers.get(&host) {
                    worker.leave();
                }
            }
            Fault::Move(keyspace, partition, to) => {
                let name = Plan::keyspaces()[keyspace].to_owned();
                if let Some(worker) = self.workers.get(&to) {
                    let to = WorkerId::new(&worker.name)?;
                    self.operator.order(Order::Move(name, PartitionId::new(partition), to));
                }
            }
            Fault::Transfer => self.operator.order(Order::Transfer),
            Fault::Decide(choice) => {
                let name = |host| self.workers.get(&host).and_then(|w| WorkerId::new(&w.name).ok());
                if let Some(decision) = choice.decision(name)? {
                    self.operator.order(Order::Decide(decision, self.plan.heals));
                }
            }
            Fault::Restart(host, for_ms) => {
                self.back.insert(host, for_ms);
                if let Some(worker) = self.workers.get(&host) {
                    worker.restart();
                }
            }
            Fault::Roll(host, for_ms) => {
                self.back.insert(host, for_ms);
                if let Some(worker) = self.workers.get(&host) {
                    self.operator.order(Order::Roll(WorkerId::new(&worker.name)?, host, self.plan.heals));
                }
            }
            Fault::Unnoticed(fault) => self.strike(*fault, random)?,
            Fault::Replace(new, old) => {
                self.add_node(new, random)?;
                self.operator.order(Order::Add(id(new)?, new));
                self.operator.order(Order::Remove(id(old)?));
                self.later(6_000, Later::Gone(old));
            }
            Fault::Wipe(host, new) => {
                self.kill(host, true);
                if let Some(node) = self.nodes.get(&host) {
                    node.disk.wipe();
                }
                self.wiped.insert(host);
                self.undo(500, Later::Start(host));
                self.add_node(new, random)?;
                self.operator.order(Order::Remove(id(host)?));
                self.operator.order(Order::Add(id(new)?, new));
            }
            Fault::Recreate(keyspace) => {
                self.operator.order(Order::Delete(Plan::keyspaces()[keyspace].to_owned()));
                self.create(keyspace);
                self.operator.order(Order::SayRecreated);
            }
            Fault::FreezeDisk(host, for_ms) => {
                let until = self.now + for_ms;
                let time = self.common.time.clone();
                self.disk(host, |trouble| {
                    let until = trouble.frozen.take().map_or(until, |(_, longer)| longer.max(until));
                    trouble.frozen = Some((time, until));
                });
            }
            Fault::StickLeader(one, worker, for_ms) => self.stick(one, worker, for_ms),
            Fault::Exchange(comes, leaves) => {
                if let Some(host) = comes {
                    self.add_node(host, random)?;
                }
                let until = (self.now + EXCHANGE_MS).min(self.plan.heals);
                let named = |host: Option<Host>| host.map(|host| Ok::<_, anyhow::Error>((id(host)?, host)));
                let (comes, leaves) = (named(comes).transpose()?, named(leaves).transpose()?);
                self.operator.order(Order::Exchange(comes, leaves, until));
            }
            Fault::CopyDisk(host) => {
                if let Some(node) = self.nodes.get(&host) {
                    self.copies.insert(host, node.disk.copied());
                }
            }
            Fault::OldCopy(host, for_ms) => {
                self.kill(host, false);
                if let (Some(node), Some(copy)) = (self.nodes.get(&host), self.copies.remove(&host)) {
                    node.disk.put_back(copy);
                    self.forgetful.insert(host);
                }
                self.undo(for_ms, Later::Start(host));
            }
            Fault::DiskLies(host) => {
                self.forgetful.insert(host);
                self.disk(host, |trouble| trouble.lies = true);
            }
            Fault::LateAnswers(host, late, for_ms) => {
                let nodes: Vec<Host> = self.nodes.keys().copied().collect();
                for node in nodes {
                    self.common.net.change(node, host, |weather| weather.latency = late..=late + 5);
                    self.undo(for_ms, Later::Fair(node, host));
                }
            }
            Fault::KillWorkers(for_ms) => {
                let workers: Vec<Host> = self.workers.keys().copied().collect();
                for host in workers {
                    self.kill(host, false);
                    self.undo(for_ms, Later::Start(host));
                }
            }
            Fault::RestartNodes(for_ms) => {
                let nodes: Vec<Host> = self.nodes.keys().copied().collect();
                for host in nodes {
                    self.kill(host, false);
                    self.undo(for_ms, Later::Start(host));
                }
            }
            Fault::Twin(of, host, for_ms) => {
                let Some(name) = self.workers.get(&of).map(|worker| worker.name.clone()) else {
                    return Ok(());
                };
                let twin = WorkerHost::twin(&name, host, Rate::default(), &self.common)?;
                self.workers.entry(host).or_insert(twin);
                self.start(host)?;
                self.later(for_ms, Later::Gone(host));
            }
        }
        Ok(())
    }

    pub(super) fn add_node(&mut self, host: Host, random: &mut Rng) -> anyhow::Result<()> {
        let disk = Disk::new(random.fork());
        self.nodes.insert(host, Node::new(host, disk, Rate::default(), self.plan.compaction));
        self.start(host)
    }

    /// Stops a process for so long. Returns by how much longer it stands still than it would have.
    pub(super) fn pause(&mut self, host: Host, for_ms: u64) -> u64 {
        let until = self.paused.entry(host).or_insert(self.now);
        let before = (*until).max(self.now);
        *until = before.max(self.now + for_ms);
        *until - before
    }

    fn suspended(&mut self, host: Host, for_ms: u64) {
        if let Some(process) = self.nodes.get_mut(&host).and_then(|node| node.process.as_mut()) {
            process.suspended(for_ms);
        }
        if let Some(worker) = self.workers.get_mut(&host) {
            worker.suspended(for_ms);
        }
    }

    fn close(&mut self, from: Host, to: Host, for_ms: u64) {
        self.common.net.change(from, to, |weather| weather.closed = true);
        self.undo(for_ms, Later::Open(from, to));
    }

    /// The disk of the leader stands still for good, and it may reach one follower only; a worker is killed, so that there is
    /// something to decide. Without a leader it waits for one.
    pub(super) fn stick(&mut self, one: bool, worker: Host, for_ms: u64) {
        let Some(leader) = self.leader() else {
            return self.later(5, Later::Stick(one, worker, for_ms));
        };
        self.kill(worker, false);
        self.undo(for_ms, Later::Start(worker));
        self.stuck = Some(leader);
        let forever = (self.common.time.clone(), self.plan.ends * 2);
        self.disk(leader, |trouble| trouble.frozen = Some(forever));
        let mut others: Vec<Host> = self.nodes.keys().copied().filter(|host| *host != leader).collect();
        if one {
            others.remove(self.random.usize(..others.len()));
            for other in others {
                for (from, to) in [(leader, other), (other, leader)] {
                    self.common.net.change(from, to, |weather| weather.closed = true);
                }
            }
        }
        self.record(What::Note { text: format!("node {} is stuck, one: {one}", leader.0) });
    }
}
