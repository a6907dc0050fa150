//! The thread that raises. Raises of an async owner never wait for a thread behind writes: those may fill every thread that a
//! runtime has for what waits.

use super::FileGateway;
use crate::reply::{Reply, reply};
use crate::{FenceError, FencingToken};
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

/// How many raises may wait; one beyond is answered as busy.
pub const MAX_QUEUED_RAISES: usize = 1024;

type Ask = (FileGateway, FencingToken, Reply<()>);

/// The thread's queue. It ends soon after this was dropped.
pub(super) struct Raises(SyncSender<Ask>);

#[derive(Debug, thiserror::Error)]
#[error("{MAX_QUEUED_RAISES} raises are waiting already (MAX_QUEUED_RAISES)")]
struct QueueFull;

#[derive(Debug, thiserror::Error)]
#[error("the gateway's thread has ended")]
struct Ended;

impl Raises {
    pub(super) fn start() -> io::Result<Raises> {
        let (queue, asks) = sync_channel(MAX_QUEUED_RAISES);
        std::thread::Builder::new().name("ringfence-raise".into()).spawn(move || serve(&asks))?;
        Ok(Raises(queue))
    }

    pub(super) async fn raise(&self, files: FileGateway, token: FencingToken) -> Result<(), FenceError> {
        let doing = "raising the fence";
        let (answer, waiting) = reply();
        match self.0.try_send((files, token, answer)) {
            Ok(()) => waiting.await,
            Err(TrySendError::Full(_)) => Err(FenceError::busy(doing, QueueFull)),
            Err(TrySendError::Disconnected(_)) => Err(FenceError::store(doing, Ended)),
        }
    }
}

fn serve(asks: &Receiver<Ask>) {
    for (files, token, answer) in asks {
        let raised = files.raise(&token);
        // Before it is answered: who hears it may close the gateway and open it again.
        drop(files);
        answer.send(raised);
    }
}
