//! The waits of an ownership for threads without a runtime.

use super::{NotOwner, Ownership};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

impl Ownership {
    /// [`Ownership::revoked`] for a thread: waits at most so long; true when the partition is wanted back, or lost.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let (ownership, control) = ringfence::testkit::Granted::new("orders", 17).start()?;
    /// let flusher = std::thread::spawn(move || {
    ///     while !ownership.blocking_revoked(Duration::from_millis(100)) {
    ///         // flush what has gathered
    ///     }
    /// });
    /// control.revoke();
    /// flusher.join().unwrap();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn blocking_revoked(&self, timeout: Duration) -> bool {
        block_on(self.revoked(), timeout).is_some()
    }

    /// [`Ownership::lost`] for a thread: waits at most so long; `None` when the ownership is not over by then.
    pub fn blocking_lost(&self, timeout: Duration) -> Option<NotOwner> {
        block_on(self.lost(), timeout)
    }

    /// [`Ownership::ready`] for a thread: waits at most so long; `None` when the coordinator has not answered by then.
    /// It is told all the same, and the call may be repeated.
    ///
    /// # Errors
    /// As [`Ownership::ready`].
    pub fn blocking_ready(&self, timeout: Duration) -> Option<Result<(), NotOwner>> {
        block_on(self.ready(), timeout)
    }
}

/// Wakes a thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Drives a future that needs no runtime on this thread, for at most so long.
fn block_on<F: Future>(future: F, timeout: Duration) -> Option<F::Output> {
    let begun = Instant::now();
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
        // A park may end for no reason, so the time left is counted anew. Looked at after the poll, so that a timeout
        // of zero asks once.
        let left = timeout.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return None;
        }
        std::thread::park_timeout(left);
    }
}
