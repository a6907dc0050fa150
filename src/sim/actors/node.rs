//! A coordinator node on its disk.

use super::dial::Dials;
use crate::world::{Disk, Host, Net, Process, Rate, TrueTime};
use ringfence_core::time::Instant;
use ringfence_server::clock::{Clock, TokioClock};
use ringfence_server::context::Context;
use ringfence_server::raft::RaftStatus;
use ringfence_server::{Coordinator, Given, Incoming, NodeError, Settings, Surroundings};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio_stream::wrappers::UnboundedReceiverStream;

/// A node, whether it runs or not.
pub(crate) struct Node {
    /// Its id, which is its host's too.
    pub(crate) id: u64,
    /// Where it runs.
    pub(crate) host: Host,
    /// Its disk.
    pub(crate) disk: Disk,
    /// It, while it runs.
    pub(crate) process: Option<Process>,
    /// How its clock runs.
    pub(crate) rate: Rate,
    /// Its log is compacted after so many entries, and keeps so many of them.
    compaction: (u64, u64),
    /// What its wall clock is off by, in milliseconds.
    pub(crate) wall: Arc<AtomicI64>,
    state: Arc<Mutex<State>>,
    context: Option<Context>,
}

#[derive(Default)]
struct State {
    coordinator: Option<Coordinator>,
    ended: Option<NodeError>,
}

/// How a node comes to belong to a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Beginning {
    /// It forms one with these.
    Founds(Vec<Host>),
    /// It waits to be added.
    Joins,
}

impl Node {
    /// A node that does not run yet.
    pub(crate) fn new(host: Host, disk: Disk, rate: Rate, compaction: (u64, u64)) -> Node {
        Node {
            id: u64::from(host.0),
            host,
            disk,
            process: None,
            rate,
            compaction,
            wall: Arc::default(),
            state: Arc::default(),
            context: None,
        }
    }

    /// Starts it, the first time or again.
    ///
    /// # Errors
    /// When the system does not give it a runtime, or its settings are wrong.
    pub(crate) fn start(
        &mut self,
        net: &Net,
        time: &TrueTime,
        beginning: &Beginning,
        seed: u64,
    ) -> anyhow::Result<()> {
        let settings = settings(self.host, beginning, self.compaction)?;
        let process = Process::new(time.now(), self.rate, seed)?;
        self.disk = self.disk.mounted();
        self.state = Arc::default();
        net.begin(self.host);
        let incoming: Incoming = Box::pin(UnboundedReceiverStream::new(net.listen(self.host)));
        let (files, dials, wall) = (self.disk.clone(), Dials::new(net, self.host), Arc::clone(&self.wall));
        let (state, time) = (Arc::clone(&self.state), time.clone());
        process.runtime().spawn(async move {
            let clock = NodeClock { mono: TokioClock::new(), wall, time };
            let surroundings = Surroundings {
                files: Arc::new(files),
                dialer: Arc::new(dials),
                clock: Arc::new(clock),
                seed: Some(seed),
            };
            let launch = Coordinator::with(settings).surroundings(surroundings).incoming(incoming);
            match launch.start().await {
                Ok(coordinator) => lock(&state).coordinator = Some(coordinator),
                Err(error) => lock(&state).ended = Some(error),
            }
        });
        self.process = Some(process);
        Ok(())
    }

    /// Kills it. What it wrote is on its disk, unless the machine lost power.
    pub(crate) fn kill(&mut self, net: &Net, power: bool) {
        let Some(process) = self.process.take() else {
            if power {
                // What a killed process left in the page cache is gone now.
                net.end(self.host, true);
                self.disk.lost_power();
            }
            return;
        };
        net.end(self.host, power);
        if power {
            self.disk.lost_power();
        } else {
            self.disk.killed();
        }
        // Within its own runtime, for what spawns while it is dropped.
        let guard = process.runtime().enter();
        self.context = None;
        let state = std::mem::take(&mut *lock(&self.state));
        drop(state);
        drop(guard);
        drop(process);
    }

    /// What its services work with, once it belongs to a cluster.
    pub(crate) fn context(&mut self) -> Option<&Context> {
        if self.context.is_none() && self.process.is_some() {
            self.context = lock(&self.state).coordinator.as_ref()?.context();
        }
        self.context.as_ref()
    }

    /// Whether it has come to belong to a cluster in this life.
    pub(crate) fn belongs(&self) -> bool {
        self.context.is_some()
    }

    /// Why it ended by itself, if it did.
    pub(crate) fn ended(&self) -> Option<NodeError> {
        let state = lock(&self.state);
        if let Some(why) = &state.ended {
            return Some(why.clone());
        }
        let outcome = state.coordinator.as_ref()?.outcome()?;
        Some(outcome.err().unwrap_or_else(|| NodeError::Failed("it was stopped".to_owned())))
    }

    /// What Raft says of it; `None` while it belongs to no cluster, or does not run.
    pub(crate) fn status(&mut self) -> Option<RaftStatus> {
        self.context().map(|context| context.raft.status().borrow().clone())
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where every node has its data, on its own disk.
pub(crate) const DATA_DIR: &str = "/data";

fn settings(host: Host, beginning: &Beginning, compaction: (u64, u64)) -> anyhow::Result<Settings> {
    let address = host.address();
    let list = |hosts: &[Host]| hosts.iter().map(|host| format!("{}={}", host.0, host.address())).collect();
    let given = Given {
        node: Some(u64::from(host.0)),
        listen: Some(address.clone()),
        advertise: Some(address),
        data_dir: Some(DATA_DIR.into()),
        cluster: match beginning {
            Beginning::Founds(hosts) => Some(list(hosts)),
            Beginning::Joins => None,
        },
        join: Some(*beginning == Beginning::Joins),
        snapshot_entries: Some(compaction.0),
        snapshot_keep_entries: Some(compaction.1),
        settle_ms: Some(300),
        // What an operator moved is balanced again before all is to be quiet.
        cool_down_ms: Some(2_000),
        ..Given::default()
    };
    Ok(given.check()?)
}

/// A node's clocks: tokio's, and a wall clock that may be anywhere.
struct NodeClock {
    mono: TokioClock,
    wall: Arc<AtomicI64>,
    time: TrueTime,
}

impl Clock for NodeClock {
    fn now(&self) -> Instant {
        self.mono.now()
    }

    fn unix_ms(&self) -> u64 {
        (1_800_000_000_000 + self.time.now()).saturating_add_signed(self.wall.load(Ordering::Relaxed))
    }
}
