//! The worker processes, and what they say: it goes into the history as it comes.

use super::clock::now_us;
use super::network::Network;
use super::process::Process;
use super::tools::{Controls, Tools};
use super::world::KEYSPACES;
use crate::history::{Event, Recorder, What};
use anyhow::Context as _;
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command};
use std::thread::JoinHandle;
use std::time::Duration;

/// A worker that was asked to leave, and whose coordinator is well, leaves sooner.
const LEAVES_WITHIN: Duration = Duration::from_secs(20);

/// One life of a worker.
pub(super) struct Life {
    pub(super) process: Process,
    pub(super) controls: Controls,
    input: ChildStdin,
    reader: JoinHandle<()>,
}

/// What workers are started with.
pub(super) struct Plan {
    pub(super) endpoints: String,
    pub(super) dir: PathBuf,
    pub(super) ttl: Duration,
    pub(super) fence: bool,
}

/// All workers that run.
pub(super) struct Fleet {
    pub(super) alive: BTreeMap<String, Life>,
    plan: Plan,
    recorder: Recorder,
    lives: u32,
}

impl Fleet {
    pub(super) fn new(plan: Plan, recorder: Recorder) -> Fleet {
        Fleet { alive: BTreeMap::new(), plan, recorder, lives: 0 }
    }

    /// Where the workers write.
    pub(super) fn stores(&self) -> &Path {
        &self.plan.dir
    }

    /// Starts a worker of this name.
    pub(super) fn start(
        &mut self,
        name: &str,
        tools: &Tools,
        network: &Network,
        clock: bool,
    ) -> anyhow::Result<()> {
        self.lives += 1;
        let actor = format!("{name}.{}", self.lives);
        let controls = Controls::fair(&self.plan.dir, name)?;
        let mut command = Command::new(std::env::current_exe().context("finding the program's own file")?);
        command.args(["chaos-worker", "--id", name, "--life", &self.lives.to_string()]);
        command.args(["--endpoints", &self.plan.endpoints]);
        for keyspace in &KEYSPACES {
            let of = if keyspace.by_fence { "--fence-keyspace" } else { "--lease-keyspace" };
            command.args([of, keyspace.name]);
        }
        command.args(["--ttl-ms", &self.plan.ttl.as_millis().to_string(), "--stores"]).arg(&self.plan.dir);
        if !self.plan.fence {
            command.arg("--no-fence");
        }
        tools.prepare(&mut command, &controls, clock);
        let mut process = Process::start(name, &self.plan.dir, command)?;
        network.introduce(process.pid(), name);
        let (input, output) = process.pipes()?;
        let recorder = self.recorder.clone();
        let reader = std::thread::Builder::new().name(actor.clone()).spawn(move || {
            // A worker that is killed leaves half a line at the most.
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if let Ok(Event { at, by, what }) = serde_json::from_str(&line) {
                    recorder.record(at, by, what);
                }
            }
            recorder.record(now_us(), "run", What::Died { actor });
        })?;
        self.alive.insert(name.to_owned(), Life { process, controls, input, reader });
        Ok(())
    }

    pub(super) fn life(&mut self, name: &str) -> anyhow::Result<&mut Life> {
        self.alive.get_mut(name).with_context(|| format!("{name} is not running"))
    }

    /// Says something to a worker.
    pub(super) fn tell(&mut self, name: &str, line: &str) -> anyhow::Result<()> {
        writeln!(self.life(name)?.input, "{line}").with_context(|| format!("telling {name} something"))
    }

    /// Kills a worker; all it had said is in the history then, and that it died.
    pub(super) fn kill(&mut self, name: &str) -> anyhow::Result<()> {
        let mut life = self.alive.remove(name).with_context(|| format!("{name} is not running"))?;
        life.process.kill();
        let _ = life.reader.join();
        Ok(())
    }

    /// Asks a worker to leave and waits until it has; false when it had to be killed.
    pub(super) fn leave(&mut self, name: &str) -> anyhow::Result<bool> {
        let life = self.alive.remove(name).with_context(|| format!("{name} is not running"))?;
        let Life { mut process, input, reader, .. } = life;
        drop(input);
        process.resume()?;
        let left = process.end(LEAVES_WITHIN);
        let _ = reader.join();
        Ok(left)
    }

    /// Asks all to leave; returns those that had to be killed.
    pub(super) fn leave_all(&mut self) -> anyhow::Result<Vec<String>> {
        let mut stuck = Vec::new();
        for name in self.alive.keys().cloned().collect::<Vec<_>>() {
            if !self.leave(&name)? {
                stuck.push(name);
            }
        }
        Ok(stuck)
    }
}
