//! Worker processes, driven through their pipes, and what they said.

use super::{Cluster, PATIENCE, Process, SharedFile};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{ChildStdin, ExitStatus};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// The keyspace that all workers serve.
pub(crate) const KEYSPACE: &str = "orders";

/// A write that a worker was told about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Write {
    pub(crate) partition: u64,
    pub(crate) epoch: u64,
    pub(crate) seq: u64,
}

impl Write {
    pub(crate) fn of(body: &Value) -> Write {
        let number = |field: &str| body[field].as_u64().unwrap();
        Write { partition: number("partition"), epoch: number("epoch"), seq: number("seq") }
    }
}

/// The workers of a test. Each writes numbered records to one file, a partition at a time.
pub(crate) struct Fleet {
    workers: BTreeMap<String, (Process, ChildStdin)>,
    sender: Sender<(String, Value)>,
    told: Receiver<(String, Value)>,
    /// What was acknowledged, in the order in which it was told.
    pub(crate) acks: Vec<Write>,
    /// Who wrote each partition under its highest epoch so far.
    pub(crate) writers: BTreeMap<u64, (String, u64)>,
    /// Everything else that was told: who, what, and the particulars.
    pub(crate) events: Vec<(String, String, Value)>,
    endpoints: String,
    pub(crate) file: SharedFile,
}

impl Fleet {
    /// Nobody yet, for this cluster.
    pub(crate) fn of(cluster: &Cluster, fenced: bool) -> Fleet {
        let (sender, told) = channel();
        Fleet {
            workers: BTreeMap::new(),
            sender,
            told,
            acks: Vec::new(),
            writers: BTreeMap::new(),
            events: Vec::new(),
            endpoints: cluster.endpoints.clone(),
            file: SharedFile::create(cluster.dir(), fenced),
        }
    }

    /// Starts a process that is the worker of the same name.
    pub(crate) fn start(&mut self, name: &str) {
        self.start_as(name, name);
    }

    /// Starts a process `name` that says it is the worker `id`.
    pub(crate) fn start_as(&mut self, name: &str, id: &str) {
        let endpoints = self.endpoints.clone();
        let file = self.file.path.to_str().unwrap().to_owned();
        let address = format!("{name}.test:1");
        let mut args = vec!["demo-worker", "--endpoints", &endpoints, "--id", id, "--address", &address];
        args.extend(["--keyspace", KEYSPACE, "--database", &file]);
        if !self.file.fenced {
            args.push("--no-fence");
        }
        let mut process = Process::start(name, self.file.path.parent().unwrap(), &args);
        let (input, output) = process.pipes();
        let (sender, name) = (self.sender.clone(), name.to_owned());
        self.workers.insert(name.clone(), (process, input));
        std::thread::spawn(move || {
            // A worker that is killed leaves half a line at the most.
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let Ok(line) = serde_json::from_str(&line) else { return };
                if sender.send((name.clone(), line)).is_err() {
                    return;
                }
            }
        });
    }

    pub(crate) fn process(&mut self, name: &str) -> &mut Process {
        &mut self.workers.get_mut(name).unwrap().0
    }

    /// Tells a worker to stop itself the next time it has stamped a write and not sent it.
    pub(crate) fn stop_after_stamping(&mut self, name: &str) {
        writeln!(self.workers.get_mut(name).unwrap().1, "{}", json!("stop_after_stamping")).unwrap();
    }

    /// Reads what the workers say until `reached`.
    #[track_caller]
    pub(crate) fn until<T>(&mut self, what: &str, mut reached: impl FnMut(&mut Fleet) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = reached(self) {
                return found;
            }
            assert!(Instant::now() < deadline, "not reached within {PATIENCE:?}: {what}");
            self.read(Instant::now() + Duration::from_millis(200));
        }
    }

    /// Reads what the workers say for so long: something is shown not to happen.
    pub(crate) fn go_on(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.read(end);
        }
    }

    /// Waits until every worker named writes, each partition is written, and the shares are fair.
    #[track_caller]
    pub(crate) fn balanced(&mut self, names: &[&str], partitions: usize) {
        self.until(&format!("{names:?} write {partitions} partitions"), |fleet| {
            let share = |name: &str| fleet.writers.values().filter(|(by, _)| by == name).count();
            names.iter().all(|name| share(name) == partitions / names.len()).then_some(())
        });
    }

    /// Waits until so many more writes are acknowledged.
    #[track_caller]
    pub(crate) fn more_acks(&mut self, count: usize) {
        let enough = self.acks.len() + count;
        self.until("the workers go on writing", |fleet| (fleet.acks.len() >= enough).then_some(()));
    }

    /// The first event of this kind of this worker, with its particulars.
    pub(crate) fn event(&self, name: &str, kind: &str) -> Option<Value> {
        let found = self.events.iter().find(|(by, what, _)| by == name && what == kind);
        found.map(|(_, _, body)| body.clone())
    }

    /// Waits for one message at the most, and notes it.
    fn read(&mut self, until: Instant) {
        if let Ok(told) = self.told.recv_timeout(until.saturating_duration_since(Instant::now())) {
            self.note(told);
        }
    }

    fn note(&mut self, (name, told): (String, Value)) {
        let (kind, body) = told.as_object().unwrap().iter().next().unwrap();
        if kind != "acked" {
            return self.events.push((name, kind.clone(), body.clone()));
        }
        let write = Write::of(body);
        self.acks.push(write);
        if self.writers.get(&write.partition).is_none_or(|(_, epoch)| *epoch < write.epoch) {
            self.writers.insert(write.partition, (name, write.epoch));
        }
    }

    /// Asks a worker to leave, and waits until it has.
    pub(crate) fn leave(&mut self, name: &str) -> ExitStatus {
        let (mut process, input) = self.workers.remove(name).unwrap();
        drop(input);
        process.ended()
    }

    /// Asks all to leave, reads the rest of what they said, and holds the file against it.
    #[track_caller]
    pub(crate) fn audit(&mut self) -> super::Audit {
        for name in self.workers.keys().cloned().collect::<Vec<_>>() {
            let status = self.leave(&name);
            assert!(status.success(), "{name} left with {status}");
        }
        // The readers hold the other senders, and end with the pipes.
        self.sender = channel().0;
        while let Ok(told) = self.told.recv() {
            self.note(told);
        }
        self.file.audit(&self.acks)
    }
}
