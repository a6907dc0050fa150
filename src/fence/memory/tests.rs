//! The fence in memory, case by case.

use super::*;
use crate::MAX_JUMP;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::thread;

fn fence() -> MemoryFence {
    MemoryFence::new(ClusterId::new("prod").unwrap())
}

fn token(text: &str) -> FencingToken {
    text.parse().unwrap()
}

#[test]
fn f099_every_call_of_a_replaced_owner_gets_the_same_error_with_both_epochs() {
    let fence = fence();
    let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
    fence.raise(&new).unwrap();
    let handle = fence.scope(old.scope());
    let answers = [
        fence.check(&old),
        fence.guarded(&old, || ()),
        fence.guarded_all(std::slice::from_ref(&old), || ()),
        fence.raise(&old),
        handle.check(&old),
        handle.guarded(&old, || ()),
        handle.raise(&old),
    ];
    for answer in answers {
        match answer {
            Err(FenceError::Fenced(f)) => {
                assert_eq!((f.own().get(), f.highest().get(), f.scope()), (33, 34, old.scope()));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn f076_a_refused_call_leaves_no_trace() {
    let fence = fence();
    let never = token("prod/orders/1@5");
    assert!(matches!(fence.check(&never), Err(FenceError::NotRaised { .. })));
    assert!(matches!(fence.raise(&token("test/orders/1@5")), Err(FenceError::WrongCluster { .. })));
    let far = format!("prod/orders/1@{}", MAX_JUMP + 1);
    assert!(matches!(fence.raise(&token(&far)), Err(FenceError::Implausible { .. })));
    assert_eq!(format!("{fence:?}"), "MemoryFence of prod (0 scopes)");
}

#[test]
fn t03_a_raise_does_not_return_while_an_older_write_is_running() {
    let fence = fence();
    let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
    fence.raise(&old).unwrap();
    let (began, has_begun) = mpsc::channel();
    let (raised, has_raised) = mpsc::channel();
    let raiser = {
        let fence = fence.clone();
        thread::spawn(move || {
            has_begun.recv().unwrap();
            fence.raise(&new).unwrap();
            raised.send(()).unwrap();
        })
    };
    fence
        .guarded(&old, || {
            began.send(()).unwrap();
            // Not a sleep to be outlasted: a correct fence is silent for all of it.
            has_raised.recv_timeout(std::time::Duration::from_millis(100)).unwrap_err();
        })
        .unwrap();
    has_raised.recv().unwrap();
    raiser.join().unwrap();
    assert!(matches!(fence.guarded(&old, || ()), Err(FenceError::Fenced(_))));
}

#[test]
fn t03_the_lock_free_answer_follows_every_raise() {
    let fence = fence();
    let first = token("prod/orders/17@1");
    fence.raise(&first).unwrap();
    let handle = fence.scope(first.scope());
    for epoch in 2..100 {
        let next = token(&format!("prod/orders/17@{epoch}"));
        handle.check(&next).unwrap();
        assert_eq!(handle.highest(), Some(next.epoch()));
        assert!(matches!(fence.check(&first), Err(FenceError::Fenced(_))));
    }
}

#[test]
fn t13_a_refused_scope_leaves_the_others_unraised_in_either_order() {
    let fence = fence();
    let (a, b) = (token("prod/a/1@5"), token("prod/b/1@5"));
    for first in [&a, &b, &token("prod/b/1@6")] {
        fence.raise(first).unwrap();
    }
    let newer = token("prod/a/1@9");
    for tokens in [[newer.clone(), b.clone()], [b.clone(), newer.clone()]] {
        let refused = fence.guarded_all(&tokens, || panic!("a refused write never runs"));
        assert!(matches!(refused, Err(FenceError::Fenced(f)) if f.scope() == b.scope()));
        assert_eq!(fence.highest(a.scope()).map(Epoch::get), Some(5));
    }
    assert!(matches!(fence.guarded_all(&[], || ()), Err(FenceError::Unstamped)));
}

#[test]
fn t13_one_scope_named_twice_counts_as_its_newest_and_does_not_wait_for_itself() {
    let fence = fence();
    let (old, new) = (token("prod/a/1@5"), token("prod/a/1@6"));
    fence.raise(&old).unwrap();
    assert!(fence.guarded_all(&[old.clone(), old.clone()], || ()).is_ok());
    for tokens in [[old.clone(), new.clone()], [new, old]] {
        assert!(matches!(fence.guarded_all(&tokens, || ()), Err(FenceError::Fenced(_))));
    }
}

#[test]
fn a_token_of_another_scope_is_not_mistaken_for_this_one() {
    let fence = fence();
    let (this, other) = (token("prod/orders/17@5"), token("prod/orders/18@5"));
    fence.raise(&this).unwrap();
    let handle = fence.scope(this.scope());
    assert!(matches!(handle.check(&other), Err(FenceError::WrongScope { .. })));
    assert!(matches!(handle.check(&token("test/orders/17@5")), Err(FenceError::WrongCluster { .. })));
}

#[test]
fn f042_another_session_under_the_same_epoch_is_refused_before_the_write() {
    let session = |n| ringfence_core::ids::SessionId::new(n).unwrap();
    let fence = fence();
    let mine = token("prod/orders/17@5").held_by(session(1));
    let forged = token("prod/orders/17@5").held_by(session(2));
    fence.raise(&mine).unwrap();
    assert!(matches!(fence.guarded(&forged, || ()), Err(FenceError::OtherSession { .. })));
    assert!(matches!(fence.raise(&forged), Err(FenceError::OtherSession { .. })));
    assert!(fence.guarded(&mine, || ()).is_ok());
}

#[test]
fn a_write_that_panics_leaves_a_usable_fence() {
    let fence = fence();
    let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
    fence.raise(&old).unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| fence.guarded(&new, || panic!("the user's bug")))).is_err());
    assert!(matches!(fence.check(&old), Err(FenceError::Fenced(_))));
    assert!(fence.guarded(&new, || ()).is_ok());
}
