//! Stale writes under raises that never stop: none takes effect, and some do where check and write are two steps.

use ringfence_fence::{FenceError, FencingToken};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Whoever owns a partition for a while, on a connection of its own.
pub(crate) trait Owner: Send + 'static {
    fn raise(&mut self, token: &FencingToken) -> impl Future<Output = Result<(), FenceError>> + Send;

    /// A write under the token that changes what is read.
    fn write(&mut self, token: &FencingToken) -> impl Future<Output = Result<(), FenceError>> + Send;

    fn read(&mut self) -> impl Future<Output = String> + Send;
}

/// One that raises, and three that write. Each may keep a thread of the runtime busy.
pub(crate) const OWNERS: usize = 4;

fn token(partition: u32, epoch: u64) -> FencingToken {
    format!("prod/orders/{partition}@{epoch}").parse().unwrap()
}

/// A new owner comes again and again: it raises, and reads what is there. The writers of all the earlier ones go on; one of
/// them is taken for stale when it commits under an epoch below one that was raised before it checked, or when what a new
/// owner has read after its raise is changed by somebody else.
///
/// Answers how many tries were made and how many stale ones took effect.
async fn storm<O: Owner>(owners: Vec<O>, partition: u32, tries: u64) -> (u64, u64) {
    let [mut newest, writers @ ..] = <[O; OWNERS]>::try_from(owners).unwrap_or_else(|_| panic!("{OWNERS}"));
    let (raised, tried) = (Arc::new(AtomicU64::new(1)), Arc::new(AtomicU64::new(0)));
    newest.raise(&token(partition, 1)).await.unwrap();
    let mut tasks = Vec::new();
    for (number, mut writer) in (0..).zip(writers) {
        let (raised, tried) = (Arc::clone(&raised), Arc::clone(&tried));
        tasks.push(tokio::spawn(async move {
            let mut accepted = 0;
            while tried.load(Ordering::Relaxed) < tries {
                // An owner of a while ago, or the one that is just being replaced.
                let before = raised.load(Ordering::SeqCst);
                let own = before.saturating_sub(number).max(1);
                if own < before {
                    tried.fetch_add(1, Ordering::Relaxed);
                }
                match writer.write(&token(partition, own)).await {
                    Ok(()) if own < before => accepted += 1,
                    Ok(()) | Err(FenceError::Fenced(_) | FenceError::Busy { .. }) => {}
                    Err(other) => panic!("{other}"),
                }
            }
            accepted
        }));
    }
    let still = Arc::clone(&tried);
    tasks.push(tokio::spawn(async move {
        let (mut changed, mut epoch) = (0, 1);
        while still.load(Ordering::Relaxed) < tries {
            epoch += 1;
            newest.raise(&token(partition, epoch)).await.unwrap();
            // No writer knows of this epoch yet, so nobody may write until it is told.
            let first = newest.read().await;
            for _ in 0..20 {
                if newest.read().await != first {
                    changed += 1;
                    break;
                }
            }
            raised.store(epoch, Ordering::SeqCst);
        }
        changed
    }));
    let mut accepted = 0;
    for task in tasks {
        accepted += task.await.unwrap();
    }
    (tried.load(Ordering::Relaxed), accepted)
}

pub(crate) async fn nothing_stale<O: Owner>(owners: Vec<O>, tries: u64) {
    let (tried, accepted) = storm(owners, 17, tries).await;
    println!(
        "{tried} stale writes tried under raises, {accepted} took effect; nothing is drawn, so there is no seed"
    );
    assert!(tried >= tries);
    assert_eq!(accepted, 0);
}

/// The control. The first round has done on every machine so far; a machine may be unlucky.
pub(crate) async fn some_stale<O: Owner>(mut owners: impl AsyncFnMut() -> Vec<O>, tries: u64) {
    let mut tried = 0;
    for partition in 0..20 {
        let (some, accepted) = storm(owners().await, partition, tries).await;
        tried += some;
        if accepted > 0 {
            println!("{tried} stale writes tried under raises in two steps, {accepted} took effect");
            return;
        }
    }
    panic!("in {tried} tries none took effect: this control controls nothing");
}
