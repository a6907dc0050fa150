//! Who looks: at what everybody answers for, and at what ended by itself or did not come back.

use super::Kind;
use super::Stage;
use super::ends::Later;
use crate::actors::node::Node;
use crate::actors::operator::Done;
use crate::history::What;
use crate::world::Host;
use std::collections::BTreeSet;

/// How long a supervisor waits before it starts a process again that ended by itself.
const RESTART_MS: u64 = 300;
/// How long after the last fault what it broke may still end.
const SETTLES_MS: u64 = 3_000;

impl Stage {
    pub(super) fn look(&mut self) {
        let (at, now) = (self.common.time.us(), self.now);
        for node in self.nodes.values_mut() {
            if self.wiped.contains(&node.host) && node.belongs() && self.taken_in.insert(node.host) {
                self.broken.push(format!("node {} came back without its data and was taken in", node.host.0));
            }
            self.witness.look(node, at, &self.common.recorder);
        }
        let paused = |host: &Host| self.paused.get(host).is_some_and(|until| *until > now);
        for worker in self.workers.values_mut().filter(|worker| !paused(&worker.host)) {
            worker.look(at);
        }
    }

    /// Starts again what ended by itself.
    pub(super) fn supervise(&mut self) {
        let mut again = Vec::new();
        // Where a log may forget, nodes stop that meet what contradicts their own, and nobody promises workers a cluster.
        let promised = self.plan.kind != Kind::Forgetful;
        let healthy = promised && self.now > self.plan.heals + SETTLES_MS;
        let members = if healthy { self.members() } else { BTreeSet::new() };
        for node in self.nodes.values_mut() {
            if let Some(error) = node.process.as_ref().and_then(|_| node.ended()) {
                let host = node.host;
                let text = format!("{} ended: {error}", host.0);
                let excused = self.wiped.contains(&host) || self.forgetful.contains(&host);
                if error.has_forgotten() && excused {
                    self.gone.insert(host);
                } else if (error.is_damage() || error.has_forgotten())
                    && !excused
                    && !self.gone.contains(&host)
                {
                    self.broken.push(text.clone());
                } else if members.contains(&host)
                    && !excused
                    && !self.gone.contains(&host)
                    && self.stuck != Some(host)
                {
                    self.broken.push(format!("with nothing broken any more, node {text}"));
                }
                self.common.recorder.record(self.common.time.us(), "world", What::Note { text });
                node.kill(&self.common.net, false);
                again.push((host, RESTART_MS));
            }
        }
        for worker in self.workers.values_mut() {
            if worker.process.is_some() && worker.ended() {
                // Until all is steady it may hear that its session was over, and come back.
                if promised && self.witness.steady && !worker.was_told() && !self.gone.contains(&worker.host)
                {
                    let text = format!("with nothing broken any more, worker {} ended", worker.name);
                    self.broken.push(text);
                }
                worker.kill(&self.common.net, false);
                again.push((worker.host, self.back.remove(&worker.host).unwrap_or(RESTART_MS)));
            }
        }
        for (host, after) in again {
            self.later(after, Later::Start(host));
        }
        for done in self.operator.take_done() {
            match done {
                Done::Removed(host) => {
                    // It runs on for a while, as one that does not know it yet.
                    let after = self.random.u64(1..5_000);
                    self.later(after, Later::Gone(host));
                }
                Done::Emptied(host) => {
                    if let Some(worker) = self.workers.get(&host) {
                        worker.leave();
                    }
                }
                Done::Recreated => {
                    // A session serves the keyspaces that were there when it was opened, so the workers are started anew;
                    // earlier they would find the old one again where its end takes its time.
                    let workers: Vec<Host> = self.workers.keys().copied().collect();
                    for host in workers {
                        let after = self.random.u64(1..3_000);
                        self.later(after, Later::Leave(host));
                    }
                }
            }
        }
    }

    /// Machines whose disk lost power in the middle of a write are off from that very moment.
    pub(super) fn darken(&mut self) {
        let dark = self.nodes.values().filter(|node| node.process.is_some() && node.disk.is_dark());
        let dark: Vec<Host> = dark.map(|node| node.host).collect();
        for host in dark {
            self.kill(host, true);
            let after = self.back.remove(&host).unwrap_or(RESTART_MS);
            self.undo(after, Later::Start(host));
        }
    }

    /// The members, as whoever leads has them; all nodes where nobody does.
    fn members(&mut self) -> BTreeSet<Host> {
        let leader = self.leader().and_then(|leader| self.nodes.get_mut(&leader)?.status());
        let is = |node: &Node| match &leader {
            Some(status) => status.members.iter().any(|(id, _)| id.get() == node.id),
            None => true,
        };
        self.nodes.values().filter(|node| is(node)).map(|node| node.host).collect()
    }

    /// When all is steady every founder that nobody let go of belongs to the cluster.
    pub(super) fn all_are_back(&mut self) {
        for host in self.plan.nodes.clone() {
            let excused = self.gone.contains(&host) || self.wiped.contains(&host);
            if let Some(node) = self.nodes.get_mut(&host).filter(|_| !excused)
                && node.context().is_none()
            {
                self.broken.push(format!("node {} did not come back after the last fault", host.0));
            }
        }
    }

    /// When all is steady, everybody who is a member knows the same members.
    pub(super) fn members_agree(&mut self) {
        let Some(leader) = self.leader() else {
            return self.broken.push("nobody leads although all is steady".to_owned());
        };
        let stuck = self.stuck;
        let voters = |node: &mut Node| {
            let members = node.status()?.members;
            Some(members.into_iter().map(|(id, member)| (id, member.voter)).collect::<Vec<_>>())
        };
        let Some(told) = self.nodes.get_mut(&leader).and_then(voters) else {
            return self
                .broken
                .push(format!("node {} leads, and does not say who the members are", leader.0));
        };
        for (id, _) in &told {
            let node = self.nodes.values_mut().find(|node| node.id == id.get());
            let excused = |host: &Host| {
                self.gone.contains(host) || self.wiped.contains(host) || self.stuck == Some(*host)
            };
            let silent = node.is_none_or(|node| !excused(&node.host) && node.status().is_none());
            if silent {
                self.broken.push(format!("node {id} is a member, and is not there although all is steady"));
            }
        }
        for node in self.nodes.values_mut() {
            let member = told.iter().any(|(id, _)| id.get() == node.id);
            if member
                && Some(node.host) != stuck
                && let Some(known) = voters(node)
                && known != told
            {
                let (id, leader) = (node.id, leader.0);
                self.broken.push(format!(
                    "to node {id} the members are {known:?}, to {leader}, who leads, {told:?}"
                ));
            }
        }
    }
}
