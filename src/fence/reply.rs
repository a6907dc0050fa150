//! An answer that a thread owes to a future, on any runtime.

use crate::FenceError;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

type Answer<T> = Result<T, FenceError>;

struct Slot<T> {
    answer: Option<Answer<T>>,
    waker: Option<Waker>,
}

/// The side that answers. Dropped without an answer, it answers that the thread is gone, so nobody waits for ever.
pub(crate) struct Reply<T>(Arc<Mutex<Slot<T>>>);

/// The side that waits.
pub(crate) struct Waiting<T>(Arc<Mutex<Slot<T>>>);

/// The thread that owed the answer has ended.
#[derive(Debug, thiserror::Error)]
#[error("the fence's thread has ended")]
struct Ended;

pub(crate) fn reply<T>() -> (Reply<T>, Waiting<T>) {
    let slot = Arc::new(Mutex::new(Slot { answer: None, waker: None }));
    (Reply(Arc::clone(&slot)), Waiting(slot))
}

impl<T> Reply<T> {
    pub(crate) fn send(self, answer: Answer<T>) {
        self.put(answer);
    }

    /// The first answer counts.
    fn put(&self, answer: Answer<T>) {
        let waker = {
            let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            slot.answer.get_or_insert(answer);
            slot.waker.take()
        };
        // Outside the lock: waking may poll at once.
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Drop for Reply<T> {
    fn drop(&mut self) {
        // Answered already in the usual case; the waiting side may even have taken it, and then nobody looks again.
        self.put(Err(FenceError::store("waiting for the fence", Ended)));
    }
}

impl<T> Future for Waiting<T> {
    type Output = Answer<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer<T>> {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match slot.answer.take() {
            Some(answer) => Poll::Ready(answer),
            None => {
                slot.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;

    #[test]
    fn an_answer_wakes_and_a_thread_that_is_gone_is_an_error() {
        let mut context = Context::from_waker(Waker::noop());
        let (answered, waiting) = reply();
        let mut waiting = pin!(waiting);
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        answered.send(Ok(7));
        assert!(matches!(waiting.poll(&mut context), Poll::Ready(Ok(7))));

        let (dropped, waiting) = reply::<()>();
        drop(dropped);
        assert!(matches!(pin!(waiting).poll(&mut context), Poll::Ready(Err(FenceError::Store { .. }))));
    }
}
