//! The negative controls: a layer that compares and a handler that writes afterwards; the pause stands between the two.

use crate::subject::{Mode, RUNTIME, ServiceStore, ServiceSubject, answer_of, cluster, request, token};
use ringfence_fence::conformance::{Handle, Outcome, Rule, run_rule};
use ringfence_fence::{FenceError, FenceErrorKind};
use std::slice::from_ref;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

#[test]
fn t57_t03_a_layer_that_only_compares_is_found_by_the_rule_that_names_it() {
    for subject in [ServiceSubject::in_memory(Mode::LayerOnly), ServiceSubject::in_sqlite(Mode::LayerOnly)] {
        let outcome = run_rule(&subject, Rule::OneStep);
        assert!(matches!(outcome, Outcome::Broken(_)), "{outcome:?}");
    }
    // And it looks right where no gap is tried.
    assert_eq!(run_rule(&ServiceSubject::in_memory(Mode::LayerOnly), Rule::OlderRefused), Outcome::Held);
}

/// A paused handler, a new owner that raises while it stands there, and what the old one's write came to.
fn paused_in_the_handler(mode: Mode) -> (bool, Result<(), FenceError>, Option<String>) {
    let store = ServiceStore::in_memory(mode, &cluster("prod"));
    let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
    let mut next = store.handle();
    next.raise(&old).unwrap();
    let (raised, has_raised) = channel();
    let mut raiser = None;
    let mut raised_meanwhile = false;
    let answer = store.handle().send(request(from_ref(&old), "k=late\n".into()), &mut || {
        let (mut next, new, raised) = (store.handle(), new.clone(), raised.clone());
        raiser = Some(std::thread::spawn(move || {
            next.raise(&new).unwrap();
            let _ = raised.send(());
        }));
        // Not a sleep to be outlasted: a correct service is silent for all of it.
        raised_meanwhile =
            has_raised.recv_timeout(Duration::from_millis(300)) != Err(RecvTimeoutError::Timeout);
    });
    raiser.expect("the handler was paused").join().unwrap();
    let late = next.data().unwrap().remove("k");
    (raised_meanwhile, answer_of(&answer), late)
}

#[test]
fn f009_t03_a18_no_new_owner_raises_between_the_check_and_a_paused_handlers_effect() {
    for mode in [Mode::Guarded, Mode::Holding] {
        let (raised_meanwhile, answer, late) = paused_in_the_handler(mode);
        // It took effect before the new owner could read, which is as good as having been early.
        assert!(!raised_meanwhile && answer.is_ok() && late.is_some(), "{mode:?}: {answer:?}");
    }
    let (raised_meanwhile, answer, late) = paused_in_the_handler(Mode::LayerOnly);
    assert!(raised_meanwhile, "the control must show the gap");
    assert!(
        answer.is_ok() && late.as_deref() == Some("late"),
        "and the stale write in it: {answer:?} {late:?}"
    );
}

/// The pause is before the request is sent, or on the way: the other half of the gap.
#[test]
fn f009_a09_a_request_that_was_stamped_before_its_owner_was_replaced_is_refused_when_it_arrives() {
    for mode in [Mode::Guarded, Mode::Holding] {
        let store = ServiceStore::in_memory(mode, &cluster("prod"));
        let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
        let mut hand = store.handle();
        hand.raise(&old).unwrap();
        let stamped = request(from_ref(&old), "k=late\n".into());
        hand.raise(&new).unwrap();
        let answer = hand.send(stamped, &mut || panic!("a refused handler never runs"));
        let fenced = answer_of(&answer).unwrap_err();
        assert_eq!(fenced.kind(), FenceErrorKind::Fenced, "{mode:?}");
        assert!(hand.data().unwrap().is_empty());
    }
}

/// A caller that goes away in the middle does not let the scope go while its handler still writes.
#[test]
fn f003_a_held_call_runs_to_its_end_when_its_caller_is_gone_and_the_raise_waits_for_it() {
    let store = ServiceStore::in_memory(Mode::Holding, &cluster("prod"));
    let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
    let mut hand = store.handle();
    hand.raise(&old).unwrap();
    let (stopped, stops) = channel();
    let mut call = request(from_ref(&old), "k=33\n".into());
    call.extensions_mut().insert(crate::subject::Pause(stopped));
    let running = RUNTIME.spawn(tower::ServiceExt::oneshot(store.client.clone(), call));
    let go_on = stops.recv().unwrap();
    running.abort();
    assert!(RUNTIME.block_on(running).unwrap_err().is_cancelled());

    let (raised, has_raised) = channel();
    let mut next = store.handle();
    let raiser = std::thread::spawn(move || {
        next.raise(&new).unwrap();
        raised.send(next.data().unwrap()).unwrap();
    });
    assert!(
        has_raised.recv_timeout(Duration::from_millis(200)).is_err(),
        "the raise passed a call under way"
    );
    go_on.send(()).unwrap();
    let read = has_raised.recv().unwrap();
    assert_eq!(read.get("k").map(String::as_str), Some("33"), "what the new owner reads has the write in it");
    raiser.join().unwrap();
}
