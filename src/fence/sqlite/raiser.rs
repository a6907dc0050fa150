//! The fence for an async owner: one thread with a connection of its own raises for all partitions.
//!
//! A raise waits for the disk, which no executor should. Raises that arrive while one is being synced share the next
//! transaction, so a worker that is granted a thousand partitions at once pays for a few syncs and not for a thousand.

use super::durable;
use super::with_rusqlite::{SqliteFence, raise_row};
use crate::reply::{Reply, reply};
use crate::{Enforces, Fence, FenceError, FenceFuture, FencingToken, HighWater};
use ringfence_core::ids::{Epoch, Scope};
use rusqlite::Connection;
use std::fmt;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;

/// How many raises may wait; one beyond is answered as busy. A worker owns fewer partitions than this in practice, and each
/// waiting raise is a few hundred bytes.
pub const MAX_QUEUED_RAISES: usize = 16_384;

/// How many raises share a transaction, so that one does not hold the write lock for long.
const BATCH: usize = 256;

enum Ask {
    Raise(FencingToken, Reply<()>),
    Highest(Scope, Reply<Option<Epoch>>),
}

/// A [`SqliteFence`] that raises on a thread of its own. Made by [`SqliteFence::raiser`].
///
/// Clones share the thread. It ends, and its connection closes, soon after the last of them is dropped.
#[derive(Clone)]
pub struct SqliteRaiser {
    fence: SqliteFence,
    queue: SyncSender<Ask>,
}

#[derive(Debug, thiserror::Error)]
#[error("{MAX_QUEUED_RAISES} raises are waiting already (MAX_QUEUED_RAISES)")]
struct QueueFull;

#[derive(Debug, thiserror::Error)]
#[error("the fence's thread has ended")]
struct Ended;

impl SqliteRaiser {
    pub(super) fn start(fence: SqliteFence, conn: Connection) -> Result<SqliteRaiser, FenceError> {
        let (queue, asks) = sync_channel(MAX_QUEUED_RAISES);
        let worker = fence.clone();
        thread::Builder::new()
            .name("ringfence-fence".into())
            .spawn(move || serve(&worker, &conn, &asks))
            .map_err(|error| FenceError::store("starting the fence's thread", error))?;
        Ok(SqliteRaiser { fence, queue })
    }

    /// The fence it raises.
    pub fn fence(&self) -> &SqliteFence {
        &self.fence
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

impl Fence for SqliteRaiser {
    fn raise<'a>(&'a self, token: &'a FencingToken) -> FenceFuture<'a, ()> {
        self.ask(|owed| Ask::Raise(token.clone(), owed))
    }

    fn highest<'a>(&'a self, scope: &'a Scope) -> FenceFuture<'a, Option<Epoch>> {
        self.ask(|owed| Ask::Highest(scope.clone(), owed))
    }
}

impl Enforces for SqliteRaiser {}

impl fmt::Debug for SqliteRaiser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SqliteRaiser of {}", self.fence.cluster())
    }
}

fn serve(fence: &SqliteFence, conn: &Connection, asks: &Receiver<Ask>) {
    while let Ok(first) = asks.recv() {
        let mut raises = Vec::new();
        for ask in std::iter::once(first).chain(asks.try_iter()).take(BATCH) {
            match ask {
                Ask::Raise(token, owed) => raises.push((token, owed)),
                Ask::Highest(scope, owed) => owed.send(fence.highest(conn, &scope)),
            }
        }
        if !raises.is_empty() {
            raise(conn, raises);
        }
    }
}

/// Raises a batch. Each gets its own decision; nobody is answered before the commit.
fn raise(conn: &Connection, raises: Vec<(FencingToken, Reply<()>)>) {
    let decided = durable::durably::<_, FenceError>(conn, "raising the fence", |tx| {
        Ok(raises.iter().map(|(token, _)| raise_row(tx, token, HighWater::raise)).collect::<Vec<_>>())
    });
    match decided {
        Ok(decisions) => {
            for ((_, owed), decision) in raises.into_iter().zip(decisions) {
                owed.send(decision);
            }
        }
        Err(error) => {
            for (_, owed) in raises {
                owed.send(Err(error.clone()));
            }
        }
    }
}
