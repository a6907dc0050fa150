//! What can be broken. Each fault has targets, at which nothing else is broken until it is mended.

use super::mend::{Broken, Mend};
use super::network::Weather;
use super::nodes::{self, Node};
use super::worker::STOP_AFTER_STAMPING;
use super::world::{TTL, WORKERS, World, scopes};
use crate::history::What;
use ringfence::ids::WorkerId;
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    PauseWorker,
    StopAfterStamping,
    KillWorker,
    LeaveWorker,
    WorkerLink,
    WorkerIsland,
    PauseNode,
    PauseLeader,
    KillNode,
    KillLeader,
    KillAllNodes,
    NodeLink,
    NodeIsland,
    HandOverLead,
    Move,
    Disk,
    FullDisk,
    WallClock,
    FewFiles,
    TornFile,
}

/// How often each is chosen.
const KINDS: [(Kind, u32); 20] = [
    (Kind::PauseWorker, 8),
    (Kind::StopAfterStamping, 8),
    (Kind::KillWorker, 6),
    (Kind::LeaveWorker, 3),
    (Kind::WorkerLink, 8),
    (Kind::WorkerIsland, 5),
    (Kind::PauseNode, 4),
    (Kind::PauseLeader, 3),
    (Kind::KillNode, 3),
    (Kind::KillLeader, 4),
    (Kind::KillAllNodes, 1),
    (Kind::NodeLink, 5),
    (Kind::NodeIsland, 3),
    (Kind::HandOverLead, 2),
    (Kind::Move, 8),
    (Kind::Disk, 5),
    (Kind::FullDisk, 2),
    (Kind::WallClock, 3),
    (Kind::FewFiles, 3),
    (Kind::TornFile, 2),
];

/// Processes whose wall clock can be moved, where the machine has the tool. The rest has none of its cost.
pub(super) const MOVABLE_CLOCKS: [&str; 3] = ["n2", "w2", "w3"];

/// What a process without file descriptors is counted as.
pub(super) const NO_FILES: &str = "no file descriptors left";

/// A fault that was made.
pub(super) struct Fault {
    /// What it is counted as.
    kind: String,
    text: String,
    targets: Vec<String>,
    mend: Mend,
}

impl Fault {
    pub(super) fn at(targets: &[String], kind: impl Into<String>, text: String, mend: Mend) -> Fault {
        Fault { kind: kind.into(), text, targets: targets.to_vec(), mend }
    }
}

/// `None`: what was chosen cannot be broken now.
type Done = anyhow::Result<Option<Fault>>;

/// What happens to a link.
type Cut = Box<dyn Fn(&mut Weather)>;

impl World {
    /// Breaks something; false when what was chosen cannot be broken now.
    pub(super) fn break_something(&mut self) -> anyhow::Result<bool> {
        let total: u32 = KINDS.iter().map(|(_, weight)| weight).sum();
        let mut at = self.rng.u32(..total);
        let (kind, _) = KINDS
            .into_iter()
            .find(|(_, weight)| {
                let here = at < *weight;
                at = at.saturating_sub(*weight);
                here
            })
            .unwrap_or(KINDS[0]);
        let Some(Fault { kind, text, targets, mend }) = self.inject(kind)? else { return Ok(false) };
        *self.report.faults.entry(kind).or_default() += 1;
        self.record(What::Fault { text });
        // From far below the TTL to far above.
        let lasts = TTL.mul_f64(0.2 + 2.6 * self.rng.f64() * self.rng.f64());
        self.broken.push(Broken { until: Instant::now() + lasts, targets, mend });
        Ok(true)
    }

    fn inject(&mut self, kind: Kind) -> Done {
        match kind {
            Kind::PauseWorker | Kind::StopAfterStamping | Kind::KillWorker | Kind::LeaveWorker => {
                self.at_worker(kind)
            }
            Kind::WorkerLink | Kind::WorkerIsland | Kind::NodeLink | Kind::NodeIsland => self.at_links(kind),
            Kind::PauseNode | Kind::PauseLeader | Kind::KillNode | Kind::KillLeader | Kind::KillAllNodes => {
                self.at_node(kind)
            }
            Kind::HandOverLead | Kind::Move => Ok(self.by_operator(kind)),
            Kind::Disk | Kind::FullDisk | Kind::WallClock | Kind::FewFiles => self.at_resources(kind),
            Kind::TornFile => self.torn_file(),
        }
    }

    fn at_worker(&mut self, kind: Kind) -> Done {
        let Some(name) = self.free_worker() else { return Ok(None) };
        let (what, mend) = match kind {
            Kind::PauseWorker => {
                self.fleet.life(&name)?.process.stop()?;
                ("SIGSTOP of a worker", Mend::ResumeWorker(name.clone()))
            }
            Kind::StopAfterStamping => {
                self.fleet.tell(&name, STOP_AFTER_STAMPING)?;
                ("SIGSTOP between stamp and write", Mend::ResumeWorker(name.clone()))
            }
            Kind::KillWorker => {
                self.fleet.kill(&name)?;
                ("SIGKILL of a worker", Mend::StartWorker(name.clone()))
            }
            _ => {
                self.leave(&name)?;
                ("a worker leaves", Mend::StartWorker(name.clone()))
            }
        };
        Ok(Some(Fault::at(std::slice::from_ref(&name), what, format!("{what}: {name}"), mend)))
    }

    fn at_node(&mut self, kind: Kind) -> Done {
        if kind == Kind::KillAllNodes {
            let all: Vec<u64> = self.nodes.all.keys().copied().collect();
            let names: Vec<String> = all.iter().map(|node| nodes::name(*node)).collect();
            if names.iter().any(|name| self.is_broken(name)) {
                return Ok(None);
            }
            for node in &all {
                self.nodes.process(*node)?.kill();
            }
            let what = "SIGKILL of all nodes";
            return Ok(Some(Fault::at(&names, what, what.to_owned(), Mend::RestartNodes(all))));
        }
        let node = match kind {
            Kind::PauseLeader | Kind::KillLeader => self.leader().filter(|node| self.is_free(*node)),
            _ => self.free_node(),
        };
        let Some(node) = node else { return Ok(None) };
        let (what, mend) = match kind {
            Kind::PauseNode | Kind::PauseLeader => {
                self.nodes.process(node)?.stop()?;
                (if kind == Kind::PauseNode { "SIGSTOP of a node" } else { "SIGSTOP of the leader" }, {
                    Mend::ResumeNode(node)
                })
            }
            _ => {
                self.nodes.process(node)?.kill();
                (if kind == Kind::KillNode { "SIGKILL of a node" } else { "SIGKILL of the leader" }, {
                    Mend::RestartNodes(vec![node])
                })
            }
        };
        let name = nodes::name(node);
        Ok(Some(Fault::at(std::slice::from_ref(&name), what, format!("{what}: {name}"), mend)))
    }

    fn at_links(&mut self, kind: Kind) -> Done {
        let from_worker = matches!(kind, Kind::WorkerLink | Kind::WorkerIsland);
        let who = if from_worker { self.free_worker() } else { self.free_node().map(nodes::name) };
        let Some(who) = who else { return Ok(None) };
        let others: Vec<u64> =
            self.nodes.all.keys().copied().filter(|node| nodes::name(*node) != who).collect();
        let mut links: Vec<(String, u64)> = others.iter().map(|node| (who.clone(), *node)).collect();
        match kind {
            Kind::WorkerLink | Kind::NodeLink => links = vec![links[self.rng.usize(..links.len())].clone()],
            // An island is cut off from both sides.
            Kind::NodeIsland => {
                let own = who[1..].parse()?;
                links.extend(others.iter().map(|node| (nodes::name(*node), own)));
            }
            _ => {}
        }
        let (kind_of_cut, change) = self.cut();
        for (from, to) in &links {
            self.network.change(from, *to, change.as_ref());
        }
        let far = if links.len() == 1 { nodes::name(links[0].1) } else { "everybody".to_owned() };
        let side = if from_worker { "a worker and" } else { "nodes and" };
        let text = format!("{kind_of_cut}: between {who} and {far}");
        let kind = format!("{side} the net: {kind_of_cut}");
        Ok(Some(Fault::at(&[who], kind, text, Mend::Links(links))))
    }

    fn cut(&mut self) -> (&'static str, Cut) {
        let takes = Duration::from_millis(self.rng.u64(5..300));
        let lost = self.rng.u8(5..50);
        match self.rng.u32(..6) {
            0 => ("requests stall", Box::new(|weather| weather.requests_stall = true)),
            1 => ("replies stall", Box::new(|weather| weather.replies_stall = true)),
            2 => (
                "silence",
                Box::new(|weather| (weather.requests_stall, weather.replies_stall) = (true, true)),
            ),
            3 => ("reset", Box::new(|weather| weather.resets += 1)),
            4 => (
                "reset and refused",
                Box::new(|weather| (weather.resets, weather.refuses) = (weather.resets + 1, true)),
            ),
            _ => (
                "late and lossy",
                Box::new(move |weather| (weather.takes, weather.lost_percent) = (takes, lost)),
            ),
        }
    }

    fn by_operator(&mut self, kind: Kind) -> Option<Fault> {
        if kind == Kind::HandOverLead {
            let to = self.runtime.block_on(self.hasty.transfer_leadership(None)).ok()?;
            let what = "the lead is handed over";
            return Some(Fault::at(&[], what, format!("{what} to {to}"), Mend::Nothing));
        }
        let (keyspace, partition) = scopes().nth(self.rng.usize(..scopes().count()))?;
        let to = WorkerId::new(WORKERS[self.rng.usize(..WORKERS.len())]).ok()?;
        let moved = self.hasty.move_partition(keyspace.name, partition, &to);
        self.runtime.block_on(moved).ok()?.move_id?;
        let what = "a partition is moved";
        let text = format!("{what}: {}/{partition} to {to}", keyspace.name);
        Some(Fault::at(&[], what, text, Mend::Nothing))
    }

    fn at_resources(&mut self, kind: Kind) -> Done {
        let Some(name) = self.free_process() else { return Ok(None) };
        match kind {
            Kind::WallClock => {
                let name = MOVABLE_CLOCKS[self.rng.usize(..MOVABLE_CLOCKS.len())].to_owned();
                if !self.tools.has_clock() || self.is_broken(&name) {
                    return Ok(None);
                }
                let to = ["+3600", "-3600", "+31536000", "-7"][self.rng.usize(..4)];
                self.controls(&name)?.clock(to)?;
                let text = format!("the wall clock of {name} is off by {to} s");
                let targets = [name.clone()];
                Ok(Some(Fault::at(&targets, "a wall clock jumps", text, Mend::Clock(name))))
            }
            Kind::FewFiles if !self.tools.has_shim() => Ok(None),
            Kind::FewFiles => {
                let free = self.rng.usize(..3);
                // It counts them before anything can be refused.
                let before = self.controls(&name)?.files_refused()?;
                let process = self.process(&name)?;
                let limit = process.limit_files(free)?;
                // What is left is taken by callers that say nothing.
                let address =
                    nodes::number(&name).and_then(|node| self.nodes.all.get(&node)).map(Node::listen);
                let silent: Vec<TcpStream> = address
                    .map(|at| (0..8).filter_map(|_| TcpStream::connect(at).ok()).collect())
                    .unwrap_or_default();
                let text = format!("{name} may open {free} more files");
                let mend = Mend::Files { name: name.clone(), limit, silent, before };
                Ok(Some(Fault::at(&[name], NO_FILES, text, mend)))
            }
            Kind::FullDisk => self.full_disk(),
            _ if !self.tools.has_shim() => Ok(None),
            _ => {
                let slow = self.rng.bool();
                let wish = if slow { format!("slow {}", self.rng.u64(20..500)) } else { "fail 5".to_owned() };
                self.controls(&name)?.disk(&wish)?;
                let what = if slow { "a slow disk" } else { "a disk that fails" };
                let text = format!("{what}: {name}: {wish}");
                let targets = [name.clone()];
                Ok(Some(Fault::at(&targets, what, text, Mend::Disk { name, restart: !slow })))
            }
        }
    }

    /// Fills the small disk, or lets another node's disk say that it is full.
    fn full_disk(&mut self) -> Done {
        let what = "a full disk";
        let small = 3;
        if self.tools.mounts && self.is_free(small) && self.rng.bool() {
            let filler = self.nodes.all[&small].data.join("filler");
            fill(&filler);
            let name = nodes::name(small);
            let mend = Mend::Filler { node: small, filler };
            let text = format!("{what}: {name}");
            return Ok(Some(Fault::at(&[name], what, text, mend)));
        }
        let Some(name) = self.free_node().map(nodes::name).filter(|_| self.tools.has_shim()) else {
            return Ok(None);
        };
        self.controls(&name)?.disk("full 28")?;
        let mend = Mend::Disk { name: name.clone(), restart: true };
        let text = format!("{what}: {name}, by shim");
        Ok(Some(Fault::at(&[name], what, text, mend)))
    }
}

fn fill(path: &Path) {
    use std::io::Write as _;
    let Ok(mut file) = std::fs::File::create(path) else { return };
    let mut piece = vec![0x5a_u8; 1 << 20];
    // Down to the last byte.
    while !piece.is_empty() {
        if file.write_all(&piece).is_err() {
            piece.truncate(piece.len() / 2);
        }
    }
}
