//! The fence for an async owner: a thread with a handle of its own.

use super::FencedLog;
use crate::reply::{Reply, reply};
use crate::{Enforces, Fence, FenceError, FenceFuture, FencingToken};
use ringfence_core::ids::{ClusterId, Epoch, Scope};
use std::fmt;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;

/// How many raises may wait for the thread; the next one is answered [`FenceError::Busy`].
pub const MAX_QUEUED_RAISES: usize = 16_384;

/// A [`FencedLog`] that raises on a thread of its own. Clones share it; it ends with the last one.
#[derive(Clone)]
pub struct LogRaiser {
    cluster: ClusterId,
    queue: SyncSender<Ask>,
}

enum Ask {
    Raise(FencingToken, Reply<()>),
    Highest(Scope, Reply<Option<Epoch>>),
}

#[derive(Debug, thiserror::Error)]
#[error("{MAX_QUEUED_RAISES} raises wait already (MAX_QUEUED_RAISES)")]
struct QueueFull;

#[derive(Debug, thiserror::Error)]
#[error("the fence's thread has ended")]
struct Ended;

impl LogRaiser {
    /// Opens the log for the thread, as [`FencedLog::install`] does.
    ///
    /// # Errors
    /// As [`FencedLog::install`].
    pub fn install(path: impl AsRef<Path>, cluster: &ClusterId) -> Result<LogRaiser, FenceError> {
        let path = path.as_ref().to_path_buf();
        let mut log = FencedLog::install(&path, cluster)?;
        let (queue, asks) = sync_channel(MAX_QUEUED_RAISES);
        let bound = cluster.clone();
        thread::Builder::new()
            .name("ringfence-log".into())
            .spawn(move || serve(&mut log, &path, &bound, &asks))
            .map_err(|error| FenceError::store("starting the fence's thread", error))?;
        Ok(LogRaiser { cluster: cluster.clone(), queue })
    }

    fn ask<T: Send + 'static>(&self, ask: impl FnOnce(Reply<T>) -> Ask) -> FenceFuture<'static, T> {
        let (owed, waiting) = reply();
        let refused = match self.queue.try_send(ask(owed)) {
            Ok(()) => return Box::pin(waiting),
            Err(TrySendError::Full(_)) => FenceError::busy("queueing a raise", QueueFull),
            Err(TrySendError::Disconnected(_)) => FenceError::store("queueing a raise", Ended),
        };
        Box::pin(std::future::ready(Err(refused)))
    }
}

impl Fence for LogRaiser {
    fn raise<'a>(&'a self, token: &'a FencingToken) -> FenceFuture<'a, ()> {
        self.ask(|owed| Ask::Raise(token.clone(), owed))
    }

    fn highest<'a>(&'a self, scope: &'a Scope) -> FenceFuture<'a, Option<Epoch>> {
        self.ask(|owed| Ask::Highest(scope.clone(), owed))
    }
}

impl Enforces for LogRaiser {}

impl fmt::Debug for LogRaiser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LogRaiser of {}", self.cluster)
    }
}

fn serve(log: &mut FencedLog, path: &Path, cluster: &ClusterId, asks: &Receiver<Ask>) {
    while let Ok(ask) = asks.recv() {
        match ask {
            Ask::Raise(token, owed) => {
                let raised = log.raise(&token);
                let failed = matches!(raised, Err(FenceError::Store { .. }));
                owed.send(raised);
                // The handle may be closed for good after that; whoever raises again gets another.
                if failed && let Ok(again) = FencedLog::open(path, cluster) {
                    *log = again;
                }
            }
            Ask::Highest(scope, owed) => owed.send(log.highest(&scope)),
        }
    }
}
