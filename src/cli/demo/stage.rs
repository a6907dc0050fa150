//! The processes together, and waiting for what they do. A wait ends when a state is reached, and says which state was
//! not when it takes too long.

use super::children::{Child, Heard};
use super::cluster::Cluster;
use super::ledger::Ledger;
use super::messages::Tell;
use super::timeline::{Timeline, Tone};
use anyhow::{Context as _, bail};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::mpsc;

/// The keyspace of the demo.
pub(super) const KEYSPACE: &str = "orders";
/// Its partitions.
pub(super) const PARTITIONS: u32 = 12;
/// No state of the demo takes longer to reach, on a busy machine either.
pub(super) const PATIENCE: Duration = Duration::from_secs(40);

/// Everything that runs.
pub(super) struct Stage<'a> {
    pub(super) cluster: Cluster,
    pub(super) ledger: Ledger,
    pub(super) timeline: &'a Timeline,
    workers: BTreeMap<String, Child>,
    fence: bool,
    dir: PathBuf,
    told: mpsc::Receiver<Heard>,
    teller: mpsc::Sender<Heard>,
}

impl<'a> Stage<'a> {
    /// Starts the nodes; workers come later.
    pub(super) async fn set(dir: &Path, fence: bool, timeline: &'a Timeline) -> anyhow::Result<Stage<'a>> {
        let cluster = Cluster::start(dir).await?;
        let (teller, told) = Child::channel();
        Ok(Stage {
            cluster,
            ledger: Ledger::default(),
            timeline,
            workers: BTreeMap::new(),
            fence,
            dir: dir.to_path_buf(),
            told,
            teller,
        })
    }

    /// Where the workers write.
    pub(super) fn database(&self) -> PathBuf {
        self.dir.join("records.sqlite")
    }

    pub(super) fn say(&self, tone: Tone, text: impl AsRef<str>) {
        self.timeline.say(tone, text.as_ref());
    }

    /// Starts a worker process.
    pub(super) fn start_worker(&mut self, name: &str) -> anyhow::Result<()> {
        let database = self.database();
        let mut args = vec![
            "demo-worker".to_string(),
            "--endpoints".to_string(),
            self.cluster.endpoints.clone(),
            "--id".to_string(),
            name.to_string(),
            "--keyspace".to_string(),
            KEYSPACE.to_string(),
            "--database".to_string(),
            database.to_str().context("the temporary folder's name is not UTF-8")?.to_string(),
        ];
        if !self.fence {
            args.push("--no-fence".to_string());
        }
        let child = Child::worker(name, &self.dir, &args, self.teller.clone())?;
        self.workers.insert(name.to_string(), child);
        Ok(())
    }

    /// The process of a worker.
    pub(super) fn worker(&mut self, name: &str) -> anyhow::Result<&mut Child> {
        self.workers.get_mut(name).with_context(|| format!("no worker {name}"))
    }

    /// Tells a worker something.
    pub(super) async fn tell(&mut self, name: &str, tell: Tell) -> anyhow::Result<()> {
        self.worker(name)?.tell(tell).await
    }

    /// Reads what workers say until `reached`, and fails when that takes too long or a worker cannot go on.
    pub(super) async fn until(
        &mut self,
        what: &str,
        reached: impl Fn(&Ledger) -> bool,
    ) -> anyhow::Result<()> {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while !reached(&self.ledger) {
            let next = tokio::time::timeout_at(deadline, self.told.recv()).await;
            let Ok(Some((worker, told))) = next else {
                let words: Vec<String> = self.workers.values().map(Child::last_words).collect();
                bail!("this was not reached within {PATIENCE:?}: {what}\n{}", words.join("\n"));
            };
            self.ledger.note(&worker, told);
            if let Some(error) = &self.ledger.failed {
                bail!("a worker cannot go on: {error}");
            }
        }
        Ok(())
    }

    /// Reads what workers say while something else is done.
    pub(super) async fn meanwhile<T>(&mut self, other: impl Future<Output = T>) -> T {
        let mut other = std::pin::pin!(other);
        loop {
            tokio::select! {
                done = &mut other => return done,
                Some((worker, told)) = self.told.recv() => self.ledger.note(&worker, told),
            }
        }
    }

    /// Waits until every worker named writes its fair share, and every partition is written.
    pub(super) async fn balanced(&mut self, workers: &[&str]) -> anyhow::Result<()> {
        let share = PARTITIONS as usize / workers.len();
        let what = format!("{} workers write {share} partitions each", workers.len());
        self.until(&what, |ledger| workers.iter().all(|worker| ledger.written_by(worker).len() == share))
            .await
    }

    /// Waits until the process of a worker is stopped by the kernel's own account.
    pub(super) async fn stopped(&mut self, name: &str) -> anyhow::Result<()> {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while !self.worker(name)?.is_stopped() {
            if tokio::time::Instant::now() > deadline {
                bail!("{name} did not stop");
            }
            self.meanwhile(tokio::time::sleep(Duration::from_millis(5))).await;
        }
        Ok(())
    }

    /// Asks all workers to leave, and waits until their processes have ended and all they said is read.
    pub(super) async fn leave_all(&mut self) -> anyhow::Result<()> {
        let mut workers = std::mem::take(&mut self.workers);
        for worker in workers.values_mut() {
            worker.tell(Tell::Leave).await?;
        }
        for worker in workers.values_mut() {
            let ended = self.meanwhile(tokio::time::timeout(PATIENCE, worker.ended())).await;
            let status = ended.with_context(|| format!("{} did not leave", worker.name))??;
            if !status.success() {
                bail!("{} left with {status}; {}", worker.name, worker.last_words());
            }
        }
        // The readers hold the other senders; they end with the pipes.
        let (teller, _) = Child::channel();
        drop(std::mem::replace(&mut self.teller, teller));
        while let Some((worker, told)) = self.told.recv().await {
            self.ledger.note(&worker, told);
        }
        Ok(())
    }
}
