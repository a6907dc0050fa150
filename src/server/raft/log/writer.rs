//! The thread that makes writes durable; a task where threads would not be deterministic.
//!
//! Rule: the first failed commit is the last one. What the disk holds after a failed fsync is not known (the kernel may
//! drop the pages and call the next fsync a success), so everything that waits and everything that comes later is
//! answered with the failure, until the process ends.

use super::{LogBackend, LogOp};
use crate::raft::health::Health;
use crate::raft::limits;
use ringfence_core::mutant;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{mpsc, oneshot};

/// Told how the write ended.
pub(super) type Done = Box<dyn FnOnce(io::Result<()>) + Send>;

/// What the thread is told.
pub(super) enum Message {
    Write(LogOp, Option<Done>),
    Close(oneshot::Sender<()>),
}

/// Where writes go.
#[derive(Clone)]
pub(super) enum Writer {
    /// To a thread that may block, or a task that takes its time.
    Queue(mpsc::Sender<Message>),
    /// To a backend that never blocks, at once.
    Inline(Arc<Mutex<Committer>>),
}

impl Writer {
    pub(super) fn start(backend: Box<dyn LogBackend>, health: Arc<Health>) -> io::Result<Writer> {
        let (blocks, takes_time) = (backend.blocks(), backend.takes().is_some());
        let committer = Committer { backend: Some(backend), failed: None, idle: None, health };
        if !blocks && !takes_time {
            return Ok(Writer::Inline(Arc::new(Mutex::new(committer))));
        }
        let (tx, rx) = mpsc::channel(limits::LOG_QUEUE);
        if blocks {
            std::thread::Builder::new().name("ringfence-log".to_string()).spawn(move || committer.run(rx))?;
        } else {
            tokio::spawn(committer.take_time(rx));
        }
        Ok(Writer::Queue(tx))
    }

    /// Queues a write. It waits while the queue is full, which is what slows proposers down to the speed of the disk.
    pub(super) async fn write(&self, op: LogOp, mut done: Option<Done>) -> io::Result<()> {
        if mutant!("acknowledged-before-fsync") {
            done.take().into_iter().for_each(|told| told(Ok(())));
        }
        match self {
            Writer::Queue(tx) => tx.send(Message::Write(op, done)).await.map_err(|_| closed()),
            Writer::Inline(committer) => {
                committer
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .commit(vec![op], done.into_iter().collect());
                Ok(())
            }
        }
    }

    /// Queues a write and waits until it is durable.
    pub(super) async fn write_through(&self, op: LogOp) -> io::Result<()> {
        let (tx, rx) = oneshot::channel();
        let done: Done = Box::new(move |result| drop(tx.send(result)));
        self.write(op, Some(done)).await?;
        rx.await.map_err(|_| closed())?
    }

    /// Commits what is queued, then closes the backend: its files are free when this returns.
    pub(super) async fn close(&self) {
        match self {
            Writer::Queue(tx) => {
                let (done, closed) = oneshot::channel();
                if tx.send(Message::Close(done)).await.is_ok() {
                    // An error means that the thread is gone, and the backend with it.
                    let _ = closed.await;
                }
            }
            Writer::Inline(committer) => {
                committer.lock().unwrap_or_else(PoisonError::into_inner).backend = None;
            }
        }
    }
}

fn closed() -> io::Error {
    io::Error::other("the log is closed")
}

/// What becomes durable in one step.
struct Turn {
    ops: Vec<LogOp>,
    done: Vec<Done>,
    close: Option<oneshot::Sender<()>>,
}

/// The backend and whether it can still be trusted.
pub(super) struct Committer {
    backend: Option<Box<dyn LogBackend>>,
    failed: Option<String>,
    /// A commit point alone is not worth a commit: losing it only makes the next start slower.
    idle: Option<LogOp>,
    health: Arc<Health>,
}

impl Committer {
    fn run(mut self, mut rx: mpsc::Receiver<Message>) {
        while let Some(first) = rx.blocking_recv() {
            let turn = self.gather(first, &mut rx);
            if let Some(told) = self.finish(turn) {
                drop(rx);
                let _ = told.send(());
                return;
            }
        }
    }

    /// The same for a backend that does not block and yet takes its time.
    async fn take_time(mut self, mut rx: mpsc::Receiver<Message>) {
        while let Some(first) = rx.recv().await {
            let turn = self.gather(first, &mut rx);
            if !turn.ops.is_empty() {
                self.health.flush_began();
                tokio::time::sleep(self.backend.as_ref().and_then(|b| b.takes()).unwrap_or_default()).await;
            }
            if let Some(told) = self.finish(turn) {
                drop(rx);
                let _ = told.send(());
                return;
            }
        }
    }

    /// One write and all that wait behind it.
    fn gather(&mut self, first: Message, rx: &mut mpsc::Receiver<Message>) -> Turn {
        let mut turn = Turn { ops: Vec::new(), done: Vec::new(), close: None };
        let mut next = Some(first);
        while let Some(message) = next {
            match message {
                Message::Write(op @ LogOp::Committed(_), None) => self.idle = Some(op),
                Message::Write(op, told) => {
                    turn.ops.push(op);
                    turn.done.extend(told);
                }
                Message::Close(told) => {
                    turn.close = Some(told);
                    break;
                }
            }
            next = if turn.ops.len() < limits::LOG_QUEUE { rx.try_recv().ok() } else { None };
        }
        if !turn.ops.is_empty() || turn.close.is_some() {
            turn.ops.extend(self.idle.take());
        }
        turn
    }

    /// Commits them as one step. Returns whom to tell when the log is to close.
    fn finish(&mut self, turn: Turn) -> Option<oneshot::Sender<()>> {
        let Turn { ops, done, close } = turn;
        if !ops.is_empty() {
            self.health.flush_began();
            self.commit(ops, done);
            self.health.flush_ended();
        }
        if close.is_some() {
            self.backend = None;
        }
        close
    }

    fn commit(&mut self, ops: Vec<LogOp>, done: Vec<Done>) {
        let result = match (&self.failed, &mut self.backend) {
            (Some(why), _) => Err(why.clone()),
            (None, None) => Err("the log is closed".to_string()),
            (None, Some(backend)) => backend.commit(&ops).map_err(|e| {
                let place = backend.place();
                let place = place.display();
                format!(
                    "{place} could not be written ({e}); free or replace the disk, then start the node again"
                )
            }),
        };
        if let Err(why) = &result
            && self.backend.is_some()
            && !mutant!("failed-flush-forgiven")
        {
            self.failed.get_or_insert_with(|| why.clone());
            self.health.stop(why);
        }
        for told in done {
            told(result.clone().map_err(io::Error::other));
        }
    }
}
