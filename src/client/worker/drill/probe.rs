//! The application's probe write, and what became of it.

use crate::fence::{FenceError, FencingToken};
use futures_util::future::BoxFuture;
use std::fmt::Display;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

/// What the storage said to the probe write of a drill.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Probed {
    /// It took the write.
    Accepted,
    /// It refused the write because it has seen a newer epoch.
    Refused,
}

impl Probed {
    /// Reads what a fence of this project answered to a guarded write. Only "fenced" is a refusal: a fence that was busy
    /// or whose storage failed has said nothing about the epoch.
    ///
    /// # Errors
    /// Every other failure of the fence, as it is.
    pub fn from_fence<T>(answer: Result<T, FenceError>) -> Result<Probed, FenceError> {
        match answer {
            Ok(_) => Ok(Probed::Accepted),
            Err(FenceError::Fenced(_)) => Ok(Probed::Refused),
            Err(error) => Err(error),
        }
    }
}

/// A probe function.
pub(in crate::worker) type Probe =
    Arc<dyn Fn(FencingToken) -> BoxFuture<'static, Result<Probed, String>> + Send + Sync>;

pub(in crate::worker) fn boxed<F, Fut, E>(probe: F) -> Probe
where
    F: Fn(FencingToken) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Probed, E>> + Send + 'static,
    E: Display,
{
    Arc::new(move |token| {
        let write = probe(token);
        Box::pin(async move { write.await.map_err(|error| format!("{error:#}")) })
    })
}

/// Makes one probe write on the application's runtime, by `deadline`, which is the end of the drill's time. An error
/// says that nobody knows what became of it. Dropping the future drops the probe's.
pub(super) async fn write(
    runtime: &Handle,
    probe: &Probe,
    stamp: FencingToken,
    deadline: Instant,
) -> Result<Probed, String> {
    let probe = Arc::clone(probe);
    // A set of one: it aborts what is left when it is dropped.
    let mut task = JoinSet::new();
    task.spawn_on(async move { probe(stamp).await }, runtime);
    match timeout_at(deadline, task.join_next()).await {
        Ok(Some(Ok(probed))) => probed,
        Ok(Some(Err(error))) if error.is_panic() => Err("the probe panicked".to_owned()),
        Ok(Some(Err(_)) | None) => Err("the application's runtime was shut down".to_owned()),
        Err(_) => Err("the probe did not answer within the drill's time".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fence::MemoryFence;
    use crate::testkit::Granted;

    #[tokio::test]
    async fn only_the_fences_own_no_is_a_refusal() {
        let (owner, mut control) = Granted::new("orders", 17).start().unwrap();
        let fence = MemoryFence::new(owner.token().cluster().clone());
        let stamp = owner.stamp().unwrap();
        let never_raised = Probed::from_fence(fence.guarded(&stamp, || ()));
        assert!(matches!(never_raised, Err(FenceError::NotRaised { .. })));
        fence.raise(&stamp).unwrap();
        assert_eq!(Probed::from_fence(fence.guarded(&stamp, || ())).unwrap(), Probed::Accepted);
        fence.raise(control.next_epoch().unwrap().token()).unwrap();
        assert_eq!(Probed::from_fence(fence.guarded(&stamp, || ())).unwrap(), Probed::Refused);
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_that_fails_panics_or_hangs_has_an_unknown_outcome() {
        let stamp = Granted::new("orders", 17).start().unwrap().0.stamp().unwrap();
        let here = Handle::current();
        let by = Instant::now() + std::time::Duration::from_secs(60);
        let fails = boxed(|_| async { Err::<Probed, _>("no route to the database") });
        assert_eq!(write(&here, &fails, stamp.clone(), by).await.unwrap_err(), "no route to the database");
        let panics = boxed(|_| -> std::future::Ready<Result<Probed, String>> { panic!("at once") });
        assert_eq!(write(&here, &panics, stamp.clone(), by).await.unwrap_err(), "the probe panicked");
        let hangs = boxed(|_| std::future::pending::<Result<Probed, String>>());
        assert!(write(&here, &hangs, stamp, by).await.unwrap_err().contains("within the drill's time"));
    }
}
