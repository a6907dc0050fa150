//! Who leads, followed across failures.

use crate::net::{Backoff, Call, Coordinator, Effect, Route, locks};
use ringfence_api::convert::LockHolder;
use ringfence_api::v1::{ObserveLockRequest, ObserveLockResponse};
use ringfence_core::ids::{Epoch, LockName, SessionId, WorkerId};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};

/// A stream that lasted so long had no part in why the next one is needed: the wait before it is a first one again.
const LASTING: Duration = Duration::from_secs(30);

/// Who leads, as a coordinator's node said.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// The leader's worker.
    pub worker: WorkerId,
    /// Its session.
    pub session: SessionId,
    /// Where it is reached, as it said when it connected; may be empty.
    pub address: String,
    /// The epoch under which it leads.
    pub epoch: Epoch,
}

/// Who leads, now and whenever it changes. Dropping it ends the following.
///
/// It is for finding the leader, never for being it: what it says may be late, above all while no coordinator can be reached, when
/// it keeps saying the last that it heard. It never goes back to an earlier leader, and one that came and went in between may be
/// left out.
#[derive(Debug)]
pub struct Leaders {
    seen: watch::Receiver<Option<Option<Leader>>>,
    /// The first word was given out.
    begun: bool,
    task: AbortHandle,
}

impl Leaders {
    /// On the runtime of the caller.
    pub(super) fn follow(coordinator: Coordinator, lock: LockName) -> Leaders {
        let (said, seen) = watch::channel(None);
        let task = tokio::spawn(run(coordinator, lock, said)).abort_handle();
        Leaders { seen, begun: false, task }
    }

    /// The leader as last heard of; `None` when nobody leads, or nothing was heard yet.
    pub fn current(&self) -> Option<Leader> {
        self.seen.borrow().clone().flatten()
    }

    /// Waits until something new is heard: who leads, or `None` for nobody. The first call returns as soon as anything is
    /// known. Cancel safe.
    pub async fn next(&mut self) -> Option<Leader> {
        let heard = match self.begun {
            false => self.seen.wait_for(Option::is_some).await.map(drop),
            true => self.seen.changed().await,
        };
        // The runtime is going, with everything on it.
        if heard.is_err() {
            return std::future::pending().await;
        }
        self.begun = true;
        self.seen.borrow_and_update().clone().flatten()
    }
}

impl Drop for Leaders {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn run(coordinator: Coordinator, lock: LockName, said: watch::Sender<Option<Option<Leader>>>) {
    let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
    let mut heard = Heard::default();
    loop {
        let began = Instant::now();
        follow(&coordinator, &lock, &mut heard, &said).await;
        if began.elapsed() >= LASTING {
            backoff.reset();
        }
        sleep(backoff.wait()).await;
    }
}

/// One stream, to its end.
async fn follow(
    coordinator: &Coordinator,
    lock: &LockName,
    heard: &mut Heard,
    said: &watch::Sender<Option<Option<Leader>>>,
) {
    let open = |channel| {
        let request = ObserveLockRequest { lock: lock.to_string() };
        async move { locks(channel).observe(request).await }
    };
    let (target, mut messages) = match coordinator.call_at(Call::new(Route::Any, Effect::Read), open).await {
        Ok(opened) => opened,
        Err(error) => {
            tracing::warn!(%error, %lock, "an election cannot be followed; the last leader heard of stays");
            return;
        }
    };
    loop {
        let ended = match messages.message().await {
            Ok(Some(message)) => match heard.take(message) {
                Ok(None) => continue,
                Ok(Some(leader)) => {
                    said.send_if_modified(|now| {
                        let changed = now.as_ref() != Some(&leader);
                        *now = Some(leader);
                        changed
                    });
                    continue;
                }
                Err(error) => {
                    tracing::warn!(%error, %lock, "the coordinator's message makes no sense to this client");
                    coordinator.stream_silent(&target);
                    return;
                }
            },
            Ok(None) => None,
            Err(status) => Some(status),
        };
        let trouble = coordinator.stream_ended(&target, ended.as_ref());
        tracing::debug!(%lock, reason = trouble.reason(), "a stream of an election ended");
        return;
    }
}

/// What was heard, over all streams: another node may be behind the one before.
#[derive(Debug, Default)]
struct Heard {
    index: u64,
    epoch: Option<Epoch>,
}

impl Heard {
    /// Takes a message; `None` when it is older than what was heard.
    fn take(
        &mut self,
        message: ObserveLockResponse,
    ) -> Result<Option<Option<Leader>>, ringfence_api::convert::InvalidField> {
        let mut leader = None;
        for (at, holder) in message.holders.into_iter().enumerate() {
            let holder = LockHolder::try_from(holder).map_err(|error| error.at("holders", at))?;
            if holder.cooling.is_none() && leader.is_none() {
                let LockHolder { worker, session, address, epoch, .. } = holder;
                leader = Some(Leader { worker, session, address, epoch });
            }
        }
        let epoch = leader.as_ref().map(|leader| leader.epoch);
        // A cluster that was restored from a copy counts its log anew, and its epochs never.
        let newer = message.index >= self.index || epoch > self.epoch;
        if !newer {
            return Ok(None);
        }
        self.index = message.index;
        self.epoch = self.epoch.max(epoch);
        Ok(Some(leader))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_api::convert::wish_to_wire;
    use ringfence_api::v1;
    use ringfence_core::state::{LockMode, LockWish};

    fn holder(epoch: u64) -> v1::LockHolder {
        v1::LockHolder {
            worker: "w1".to_owned(),
            session: 7,
            epoch,
            wish: Some(wish_to_wire(LockWish::new(LockMode::Exclusive))),
            ..Default::default()
        }
    }

    fn message(index: u64, epochs: &[u64]) -> ObserveLockResponse {
        ObserveLockResponse { index, holders: epochs.iter().copied().map(holder).collect() }
    }

    fn take(heard: &mut Heard, message: ObserveLockResponse) -> Option<Option<u64>> {
        heard.take(message).unwrap().map(|leader| leader.map(|leader| leader.epoch.get()))
    }

    #[test]
    fn t45_a_node_that_is_behind_takes_nothing_back_and_a_restored_cluster_is_believed() {
        let mut heard = Heard::default();
        assert_eq!(take(&mut heard, message(10, &[])), Some(None));
        assert_eq!(take(&mut heard, message(20, &[5])), Some(Some(5)));
        assert_eq!(take(&mut heard, message(15, &[4])), None);
        assert_eq!(take(&mut heard, message(15, &[])), None);
        assert_eq!(take(&mut heard, message(3, &[1 << 21])), Some(Some(1 << 21)));
        assert_eq!(take(&mut heard, message(4, &[])), Some(None));
    }

    #[test]
    fn whoever_has_lost_it_and_may_still_believe_leads_no_more() {
        let cooling = Some(v1::LockCooling { lease_ms: 1_000, then_ms: 0 });
        let message =
            ObserveLockResponse { index: 1, holders: vec![v1::LockHolder { cooling, ..holder(5) }] };
        assert_eq!(take(&mut Heard::default(), message), Some(None));
        assert!(Heard::default().take(ObserveLockResponse { index: 1, holders: vec![holder(0)] }).is_err());
    }
}
