//! How what was broken is mended.

use super::faults::{Fault, MOVABLE_CLOCKS, NO_FILES};
use super::nodes;
use super::process::Process;
use super::tools::Controls;
use super::worker::GO_ON;
use super::world::{WORKERS, World};
use crate::history::What;
use anyhow::Context as _;
use rustix::process::Rlimit;
use std::fs::OpenOptions;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Something that is broken now.
pub(super) struct Broken {
    pub(super) until: Instant,
    pub(super) targets: Vec<String>,
    pub(super) mend: Mend,
}

/// What has to be done about it.
pub(super) enum Mend {
    Nothing,
    ResumeWorker(String),
    StartWorker(String),
    ResumeNode(u64),
    RestartNodes(Vec<u64>),
    Links(Vec<(String, u64)>),
    /// After a failed write a node ends, or serves no more: it has to be started again.
    Disk {
        name: String,
        restart: bool,
    },
    Filler {
        node: u64,
        filler: PathBuf,
    },
    Clock(String),
    /// Few file descriptors, and callers that take what is left.
    Files {
        name: String,
        limit: Rlimit,
        silent: Vec<TcpStream>,
        /// How many were refused to the process before.
        before: u64,
    },
}

impl World {
    pub(super) fn is_broken(&self, name: &str) -> bool {
        self.broken.iter().any(|broken| broken.targets.iter().any(|target| target == name))
    }

    pub(super) fn is_free(&self, node: u64) -> bool {
        !self.is_broken(&nodes::name(node))
    }

    pub(super) fn free_node(&mut self) -> Option<u64> {
        let free: Vec<u64> = self.nodes.all.keys().copied().filter(|node| self.is_free(*node)).collect();
        self.rng.choice(free)
    }

    pub(super) fn free_worker(&mut self) -> Option<String> {
        let free: Vec<&str> = WORKERS.into_iter().filter(|name| !self.is_broken(name)).collect();
        self.rng.choice(free).map(str::to_owned)
    }

    pub(super) fn free_process(&mut self) -> Option<String> {
        if self.rng.bool() { self.free_worker() } else { self.free_node().map(nodes::name) }
    }

    pub(super) fn process(&mut self, name: &str) -> anyhow::Result<&mut Process> {
        match nodes::number(name) {
            Some(node) => self.nodes.process(node),
            None => Ok(&mut self.fleet.life(name)?.process),
        }
    }

    pub(super) fn controls(&mut self, name: &str) -> anyhow::Result<Controls> {
        match nodes::number(name) {
            Some(node) => Ok(self.nodes.all.get(&node).context("no such node")?.controls.clone()),
            None => Ok(self.fleet.life(name)?.controls.clone()),
        }
    }

    /// Mends what is due, or everything.
    pub(super) fn mend(&mut self, everything: bool) -> anyhow::Result<()> {
        let now = Instant::now();
        let (due, stays) = std::mem::take(&mut self.broken)
            .into_iter()
            .partition(|broken| everything || broken.until <= now);
        self.broken = stays;
        let due: Vec<Broken> = due;
        for broken in due {
            self.mend_one(broken.mend)?;
        }
        Ok(())
    }

    fn mend_one(&mut self, mend: Mend) -> anyhow::Result<()> {
        match mend {
            Mend::Nothing => {}
            Mend::ResumeWorker(name) => {
                // Had it nothing to stamp, it is not to stop any more.
                self.fleet.tell(&name, GO_ON)?;
                self.fleet.life(&name)?.process.resume()?;
            }
            Mend::StartWorker(name) => self.start_worker(&name)?,
            Mend::ResumeNode(node) => self.nodes.process(node)?.resume()?,
            Mend::RestartNodes(nodes) => nodes.into_iter().try_for_each(|node| self.restart(node))?,
            Mend::Links(links) => links.iter().for_each(|(from, to)| self.network.heal(from, *to)),
            Mend::Disk { name, restart } => {
                self.controls(&name)?.disk("")?;
                if let Some(node) = nodes::number(&name).filter(|_| restart) {
                    self.restart(node)?;
                }
            }
            Mend::Filler { node, filler } => {
                std::fs::remove_file(&filler)?;
                self.restart(node)?;
            }
            Mend::Clock(name) => self.controls(&name)?.clock("+0")?,
            Mend::Files { name, limit, silent, before } => {
                drop(silent);
                let refused = self.controls(&name)?.files_refused()?.saturating_sub(before);
                if refused == 0 {
                    *self.report.without_effect.entry(NO_FILES.to_owned()).or_default() += 1;
                }
                self.report.files_refused += refused;
                let text = format!("{name} was refused {refused} file descriptors (EMFILE)");
                self.record(What::Note { text });
                // A node may have ended over it.
                if self.process(&name)?.has_ended().is_none() {
                    self.process(&name)?.unlimit_files(limit)?;
                } else if let Some(node) = nodes::number(&name) {
                    self.restart(node)?;
                }
            }
        }
        Ok(())
    }

    /// Starts a node again on what its disk holds; one that runs is killed first.
    pub(super) fn restart(&mut self, node: u64) -> anyhow::Result<()> {
        self.nodes.process(node)?.kill();
        let clock = MOVABLE_CLOCKS.contains(&nodes::name(node).as_str());
        self.nodes.run(node, &self.tools, &self.network, clock)
    }

    pub(super) fn start_worker(&mut self, name: &str) -> anyhow::Result<()> {
        self.fleet.start(name, &self.tools, &self.network, MOVABLE_CLOCKS.contains(&name))
    }

    /// Damages the end of a killed node's log. It recovers everything that was acknowledged, or refuses to start; then it
    /// gets its log back as it was. Were it to lie, the judge would see it.
    pub(super) fn torn_file(&mut self) -> anyhow::Result<Option<Fault>> {
        const ANSWERS_WITHIN: Duration = Duration::from_secs(5);
        let Some(node) = self.free_node() else { return Ok(None) };
        self.nodes.process(node)?.kill();
        let log = self.nodes.all[&node].data.join("log.redb");
        // Beside the node's disk, which may be a small one.
        let kept = self.dir.join(format!("log-{node}.kept"));
        std::fs::copy(&log, &kept)?;
        let how = tear(&log, &mut self.rng)?;
        self.record(What::Fault { text: format!("the log of {} is torn: {how}", nodes::name(node)) });
        self.restart(node)?;
        let refused = self.nodes.process(node)?.ends_within(ANSWERS_WITHIN);
        if refused {
            std::fs::copy(&kept, &log)?;
            self.restart(node)?;
        }
        let became = if refused { "refused" } else { "served" };
        let text = format!("{} {became} its torn log", nodes::name(node));
        let kind = format!("a torn log, {became}");
        Ok(Some(Fault::at(&[nodes::name(node)], kind, text, Mend::Nothing)))
    }
}

fn tear(path: &Path, rng: &mut fastrand::Rng) -> anyhow::Result<&'static str> {
    let mut file = OpenOptions::new().read(true).write(true).open(path)?;
    let length = file.metadata()?.len();
    let tail = rng.u64(1..8_192).min(length);
    let mut garbage = vec![0; usize::try_from(tail)?];
    rng.fill(&mut garbage);
    Ok(match rng.u32(..3) {
        0 => {
            file.set_len(length - tail)?;
            "its end is missing"
        }
        1 => {
            file.seek(SeekFrom::End(0))?;
            file.write_all(&garbage)?;
            "garbage follows it"
        }
        _ => {
            file.seek(SeekFrom::Start(length - tail))?;
            file.write_all(&garbage)?;
            "its end is garbage"
        }
    })
}
