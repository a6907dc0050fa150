//! The fence on a thread of its own, as an async owner raises it.

use crate::subject::{Database, token};
use ringfence_fence::{DeclaredFence, Enforcement, Fence, FenceError, FenceFuture};
use rusqlite::TransactionBehavior::Immediate;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The smallest executor there is.
fn wait<T>(mut answer: FenceFuture<'_, T>) -> Result<T, FenceError> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match answer.as_mut().poll(&mut context) {
            Poll::Ready(answer) => return answer,
            Poll::Pending => thread::park(),
        }
    }
}

#[test]
fn b05_a_raiser_is_an_enforcing_fence_and_raises_durably_from_any_runtime() {
    let db = Database::new("wal");
    let raiser = db.fence.raiser(db.open()).unwrap();
    let declared = DeclaredFence::enforced("ledger", raiser.clone());
    assert_eq!(declared.enforcement(), Enforcement::Enforced);
    let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
    wait(declared.raise(&new)).unwrap();
    assert!(matches!(wait(declared.raise(&old)), Err(FenceError::Fenced(_))));
    assert_eq!(wait(declared.highest(old.scope())).unwrap(), Some(new.epoch()));
    assert_eq!(db.fence.highest(&db.open(), old.scope()).unwrap(), Some(new.epoch()));
}

#[test]
fn a_thousand_raises_at_once_each_get_their_own_answer() {
    let db = Database::new("wal");
    let raiser = db.fence.raiser(db.open()).unwrap();
    wait(raiser.raise(&token("prod/orders/500@9"))).unwrap();
    let tokens: Vec<_> = (0..1000).map(|p| token(&format!("prod/orders/{p}@5"))).collect();
    let answers: Vec<_> = tokens.iter().map(|token| raiser.raise(token)).collect();
    let refused: Vec<_> =
        answers.into_iter().map(wait).zip(&tokens).filter(|(answer, _)| answer.is_err()).collect();
    let [(Err(FenceError::Fenced(f)), _)] = refused.as_slice() else { panic!("{refused:?}") };
    assert_eq!(f.scope(), token("prod/orders/500@1").scope());
}

#[test]
fn a_busy_database_is_answered_as_busy_and_the_thread_lives_on() {
    let db = Database::new("wal");
    let conn = db.open();
    conn.busy_timeout(Duration::ZERO).unwrap();
    let raiser = db.fence.raiser(conn).unwrap();
    let mut other = db.open();
    let owner = token("prod/orders/17@5");
    let held = other.transaction_with_behavior(Immediate).unwrap();
    assert!(wait(raiser.raise(&owner)).unwrap_err().is_retryable());
    drop(held);
    wait(raiser.raise(&owner)).unwrap();
}
