//! One good history, and for every rule a bad one that must be found.

use super::{Rule, Rules, Verdict, check};
use crate::history::{Call, Ending, History, OpId, Outcome, What};
use ringfence_core::ids::{Epoch, NodeId, Scope, SessionId, Term, WorkerId};

fn scope() -> Scope {
    "orders/0".parse().unwrap()
}

fn epoch(number: u64) -> Epoch {
    Epoch::new(number).unwrap()
}

fn worker(name: &str) -> WorkerId {
    name.parse().unwrap()
}

/// A history in the making. Every event comes a millisecond after the one before.
#[derive(Default)]
struct Story {
    history: History,
    now: u64,
}

impl Story {
    fn then(&mut self, by: &str, what: What) -> &mut Story {
        self.now += 1_000;
        self.history.push(self.now, by, what);
        self
    }

    fn granted(&mut self, e: u64, session: u64, to: &str) -> &mut Story {
        let session = SessionId::new(session).unwrap();
        let (scope, epoch, worker) = (scope(), epoch(e), worker(to));
        self.then("log", What::Granted { scope, epoch, session, worker, entry: None })
    }

    fn began(&mut self, by: &str, e: u64) -> &mut Story {
        self.then(by, What::Began { scope: scope(), epoch: epoch(e), worker: worker(by) })
    }

    fn ready(&mut self, by: &str, e: u64) -> &mut Story {
        self.then(by, What::Ready { scope: scope(), epoch: epoch(e) })
    }

    fn ended(&mut self, by: &str, e: u64) -> &mut Story {
        self.then(by, What::Ended { scope: scope(), epoch: epoch(e), why: Ending::Revoked })
    }

    fn believed(&mut self, by: &str, e: u64) -> &mut Story {
        let asked = self.now + 500;
        self.then(by, What::Believed { scope: scope(), epoch: epoch(e), asked })
    }

    fn claims(&mut self, by: &str, e: u64, from: u64, to: u64) -> &mut Story {
        self.then(by, What::Claims { scope: scope(), epoch: epoch(e), from, to })
    }

    fn raised(&mut self, e: u64) -> &mut Story {
        self.then("store", What::Raised { scope: scope(), epoch: epoch(e) })
    }

    /// Somebody asked for it, too, when the story does not say who.
    fn applied(&mut self, op: OpId, e: u64) -> &mut Story {
        let asked = |what: &What| matches!(what, What::Invoked { op: of, .. } if *of == op);
        if !self.history.events.iter().any(|event| asked(&event.what)) {
            let (call, token) = (Call::Write(op), Some((scope(), epoch(e))));
            self.history.push(self.now, format!("w{e}"), What::Invoked { op, key: "k".into(), call, token });
        }
        self.then("store", What::Applied { op, key: "k".into(), scope: scope(), epoch: epoch(e), value: op })
    }

    fn stale(&mut self, by: &str, op: OpId, e: u64, highest: u64) -> &mut Story {
        let what = What::RefusedStale { op, scope: scope(), epoch: epoch(e), highest: epoch(highest) };
        self.then(by, what)
    }

    /// The value of a write is the number of its operation.
    fn write(&mut self, by: &str, op: OpId, e: u64) -> &mut Story {
        self.call(by, op, e, Call::Write(op))
    }

    fn call(&mut self, by: &str, op: OpId, e: u64, call: Call) -> &mut Story {
        let token = (e > 0).then(|| (scope(), epoch(e)));
        self.then(by, What::Invoked { op, key: "k".into(), call, token })
    }

    fn returned(&mut self, by: &str, op: OpId, outcome: Outcome) -> &mut Story {
        self.then(by, What::Returned { op, outcome })
    }

    fn done(&mut self, by: &str, op: OpId) -> &mut Story {
        self.returned(by, op, Outcome::Ok(vec![]))
    }

    fn read(&mut self, by: &str, op: OpId, e: u64, found: &[u64]) -> &mut Story {
        self.call(by, op, e, Call::Read).returned(by, op, Outcome::Ok(found.to_vec()))
    }

    fn check(&self) -> Verdict {
        check(&self.history, &Rules::default())
    }

    /// The rule is found broken, and nothing else is.
    fn only(&self, rule: Rule) -> Verdict {
        let verdict = self.check();
        assert!(!verdict.held() && verdict.violations.iter().all(|v| v.rule == rule), "{rule:?}: {verdict}");
        for violation in &verdict.violations {
            assert!(violation.events.iter().all(|at| *at < self.history.events.len()), "{violation}");
        }
        verdict
    }
}

/// Two owners, a handoff, a zombie that the fence refuses, a crash.
fn good() -> Story {
    let mut story = Story::default();
    story.then("log", What::KeyspaceCreated { keyspace: "orders".parse().unwrap(), partitions: 1 });
    story.then("n1", What::Elected { term: Term::new(1), node: NodeId::new(1).unwrap() });
    story.then("n2", What::Elected { term: Term::new(1), node: NodeId::new(1).unwrap() });
    story.granted(1, 1, "a").began("a", 1).raised(1).ready("a", 1).believed("a", 1);
    story.write("a", 1, 1).applied(1, 1).done("a", 1).read("a", 2, 1, &[1]).believed("a", 1);
    // Stamped, and then it was paused.
    story.write("a", 3, 1).then("net", What::Fault { text: "a is paused".into() });
    story.then("log", What::Vacated { scope: scope(), epoch: epoch(1), why: "expired".into() });
    story.granted(4, 2, "b").began("b", 4).raised(4).read("b", 4, 4, &[1]).ready("b", 4).believed("b", 4);
    story.stale("a", 3, 1, 4).returned("a", 3, Outcome::Refused).ended("a", 1);
    story.write("b", 5, 4).applied(5, 4).believed("b", 4).then("net", What::Died { actor: "b".into() });
    story.then("net", What::Healed).granted(5, 1, "a").began("a", 5).raised(5).read("a", 6, 5, &[5]);
    story.ready("a", 5).then("r", What::Routed { scope: scope(), epoch: epoch(5), worker: worker("a") });
    story.then("net", What::Steady);
    story.then("net", What::End).ended("a", 5);
    story
}

fn in_time(story: &Story, bound: u64) -> Verdict {
    check(&story.history, &Rules { progress_us: Some(bound), ..Rules::default() })
}

#[test]
fn a_good_history_holds() {
    let verdict = in_time(&good(), 10_000);
    assert!(verdict.held(), "{verdict}");
}

#[test]
fn g2_an_epoch_that_does_not_grow_is_found() {
    let verdict = good().granted(5, 1, "a").only(Rule::EpochsGrow);
    assert!(verdict.to_string().contains("under e5, having granted it under e5 before"), "{verdict}");
    Story::default().granted(3, 1, "a").granted(2, 1, "a").only(Rule::EpochsGrow);
}

#[test]
fn g2_an_epoch_granted_to_two_sessions_is_found() {
    let mut story = Story::default();
    story.granted(3, 1, "a");
    // Another node's log.
    let session = SessionId::new(2).unwrap();
    let (scope, epoch, worker) = (scope(), epoch(3), worker("a"));
    story.then("log of n2", What::Granted { scope, epoch, session, worker, entry: None });
    story.only(Rule::GrantedOnce);
}

#[test]
fn i3_an_epoch_of_two_owners_is_found() {
    let mut story = good();
    story.then("r2", What::Routed { scope: scope(), epoch: epoch(4), worker: worker("a") });
    story.only(Rule::OneOwner);
}

#[test]
fn an_epoch_out_of_thin_air_is_found() {
    let mut story = good();
    story.began("b", 9).only(Rule::Ungranted);
    assert!(check(&story.history, &Rules { all_grants: false, ..Rules::default() }).held());
}

#[test]
fn two_leaders_of_a_term_are_found() {
    let mut story = good();
    story.then("n2", What::Elected { term: Term::new(1), node: NodeId::new(2).unwrap() });
    story.only(Rule::OneLeader);
}

#[test]
fn a_router_that_goes_back_is_found() {
    let mut story = good();
    story.then("r", What::Routed { scope: scope(), epoch: epoch(4), worker: worker("b") });
    story.only(Rule::RoutesForward);
}

#[test]
fn g3_two_processes_that_both_own_are_found() {
    // The first answers once more, after the second has answered.
    let mut story = Story::default();
    story.believed("a", 1).believed("b", 2);
    assert!(story.check().held());
    story.believed("a", 1).only(Rule::TwoOwners);
}

#[test]
fn g3_claims_overlap_by_a_microsecond_or_do_not() {
    assert!(Story::default().claims("a", 1, 10, 20).claims("b", 2, 20, 30).check().held());
    let verdict = Story::default().claims("a", 1, 10, 21).claims("b", 2, 20, 30).only(Rule::TwoOwners);
    assert_eq!(verdict.violations.len(), 1);
    // Not only neighbours; and an old claim that comes back after a newer one has gone.
    let three = |e1_to| {
        let mut story = Story::default();
        story.claims("a", 1, 10, e1_to).claims("b", 2, 12, 14).claims("a", 3, 15, 30).claims("c", 4, 31, 40);
        story.check().count(Rule::TwoOwners)
    };
    assert_eq!((three(12), three(13), three(35)), (0, 1, 2));
    Story::default().claims("a", 1, 50, 60).claims("b", 2, 20, 30).only(Rule::TwoOwners);
    // Two under one epoch.
    Story::default().claims("a", 1, 10, 20).claims("b", 1, 15, 30).only(Rule::TwoOwners);
}

#[test]
fn g3_is_not_asked_of_keyspaces_that_take_over_by_fence_or_of_clocks_beyond_the_bound() {
    let mut story = Story::default();
    story.claims("a", 1, 10, 21).claims("b", 2, 20, 30);
    let fence_takeover = ["orders".parse().unwrap()].into();
    assert!(check(&story.history, &Rules { fence_takeover, ..Rules::default() }).held());
    assert!(check(&story.history, &Rules { leases: false, ..Rules::default() }).held());
}

#[test]
fn g1_a_stale_write_that_is_taken_is_found() {
    let verdict = good().applied(3, 1).check();
    assert_eq!(verdict.count(Rule::StaleAccepted), 1, "{verdict}");
    assert_eq!(verdict.count(Rule::RefusedApplied), 1, "it had been told otherwise: {verdict}");
    // Raised is enough; no write under the higher epoch is needed.
    Story::default().applied(1, 1).raised(2).applied(2, 1).only(Rule::StaleAccepted);
    // Another store has its own fence.
    let mut other = Story::default();
    other.raised(2).then("other", What::Raised { scope: scope(), epoch: epoch(1) });
    assert!(other.check().held());
}

#[test]
fn i1_a_fence_that_goes_back_is_found() {
    Story::default().raised(2).raised(1).only(Rule::FenceWentBack);
}

#[test]
fn i1_a_write_that_nobody_asked_for_is_found() {
    let took = |key: &str, e: u64, value: u64| What::Applied {
        op: 1,
        key: key.into(),
        scope: scope(),
        epoch: epoch(e),
        value,
    };
    let after = |asks: bool, what: What| {
        let mut story = Story::default();
        if asks {
            story.write("a", 1, 2);
        }
        story.then("store", what);
        story
    };
    assert!(after(true, took("k", 2, 1)).check().held());
    for (asks, what) in [
        (false, took("k", 2, 1)),
        (true, took("other", 2, 1)),
        (true, took("k", 3, 1)),
        (true, took("k", 2, 7)),
    ] {
        after(asks, what).only(Rule::TakenUnasked);
    }
    // A read is taken by nobody.
    let mut read = Story::default();
    read.call("a", 1, 2, Call::Read).then("store", took("k", 2, 1)).only(Rule::TakenUnasked);
}

#[test]
fn i1_an_epoch_that_two_processes_use_is_found() {
    let mut story = Story::default();
    story.write("a.1", 1, 4).write("a.1", 2, 4).write("a.2", 3, 5);
    assert!(story.check().held());
    story.write("a.2", 4, 4).only(Rule::TwoUsers);
    // Where a log may forget, it is no promise.
    assert!(check(&story.history, &Rules { only_fences: true, ..Rules::default() }).held());
}

#[test]
fn a_wrong_refusal_is_found() {
    Story::default().raised(2).stale("a", 1, 2, 2).only(Rule::WronglyRefused);
    Story::default().raised(2).stale("a", 1, 1, 9).only(Rule::WronglyRefused);
}

#[test]
fn i8_an_operation_that_is_applied_twice_is_found() {
    Story::default().applied(1, 1).applied(1, 1).only(Rule::AppliedTwice);
}

#[test]
fn i7_a_refused_operation_that_took_effect_is_found() {
    let mut story = Story::default();
    story.write("a", 1, 1).applied(1, 1).returned("a", 1, Outcome::Refused).only(Rule::RefusedApplied);
}

#[test]
fn g5_an_acknowledged_write_that_is_lost_is_found() {
    let mut story = Story::default();
    story.write("a", 1, 1).done("a", 1).write("a", 2, 1).done("a", 2).read("a", 3, 1, &[1]);
    let verdict = story.only(Rule::Lost);
    assert!(verdict.to_string().contains("a's #3 (read [1], "), "{verdict}");
    // Nobody reads it, and the store says what it took.
    let mut unread = Story::default();
    unread.write("a", 1, 1).applied(1, 1).done("a", 1);
    assert!(unread.check().held());
    unread.write("a", 2, 1).done("a", 2).only(Rule::Lost);
    // A value that nobody wrote, and one that somebody was told was refused.
    Story::default().read("a", 1, 0, &[7]).only(Rule::Lost);
    let mut refused = Story::default();
    refused.write("a", 1, 1).returned("a", 1, Outcome::Refused).read("a", 2, 1, &[1]).only(Rule::Lost);
    // An append that is missing, and two in the wrong order.
    let append = |found: &[u64]| {
        let mut story = Story::default();
        story.call("a", 1, 1, Call::Append(1)).done("a", 1).call("a", 2, 1, Call::Append(2)).done("a", 2);
        story.read("b", 3, 0, found).check()
    };
    assert!(append(&[1, 2]).held());
    assert_eq!(append(&[2]).count(Rule::Lost), 1);
    assert_eq!(append(&[2, 1]).count(Rule::Lost), 1);
}

#[test]
fn g5_an_unknown_write_may_take_effect_late_or_never_but_not_be_undone() {
    let unknown = |reads: &[&[u64]]| {
        let mut story = Story::default();
        story.write("a", 1, 1).done("a", 1);
        story.write("a", 2, 1).returned("a", 2, Outcome::Unknown);
        // This one never returns at all.
        story.write("a", 3, 1);
        for (op, found) in (10..).zip(reads) {
            story.read("b", op, 0, found);
        }
        story.check().held()
    };
    assert!(unknown(&[&[1], &[1]]));
    assert!(unknown(&[&[1], &[2], &[3]]));
    assert!(unknown(&[&[3], &[2]]));
    assert!(!unknown(&[&[2], &[1]]), "it was seen, and then it was not");
    assert!(!unknown(&[&[2], &[3], &[2]]), "it took effect twice");
}

/// On keys of its own and under no epoch, what the coordinator acknowledges is judged like the rest.
#[test]
fn g5_what_a_coordinator_acknowledged_and_forgot_is_found() {
    let ledger = |found: &[u64]| {
        let mut story = Story::default();
        story.write("ledger", 1, 0).done("ledger", 1).write("ledger", 2, 0).done("ledger", 2);
        story.read("ledger", 3, 0, found).check()
    };
    assert!(ledger(&[2]).held());
    assert_eq!(ledger(&[1]).count(Rule::Lost), 1, "the last change is gone");
    assert_eq!(ledger(&[]).count(Rule::Lost), 1, "the keyspace is gone");
    // It said that nothing was done, and it was.
    let mut refused = Story::default();
    refused.write("ledger", 1, 0).done("ledger", 1).write("ledger", 2, 0).returned(
        "ledger",
        2,
        Outcome::Refused,
    );
    refused.read("ledger", 3, 0, &[2]).only(Rule::Lost);
}

#[test]
fn g5_operations_at_the_same_time_fit_in_either_order() {
    let at_once = |reads: &[&[u64]]| {
        let mut story = Story::default();
        story.write("a", 1, 1).write("b", 2, 0).done("a", 1).done("b", 2);
        for (op, found) in (10..).zip(reads) {
            story.read("c", op, 0, found);
        }
        story.check().held()
    };
    assert!(at_once(&[&[1], &[1]]) && at_once(&[&[2], &[2]]));
    assert!(!at_once(&[&[1], &[2]]) && !at_once(&[&[]]));
}

#[test]
fn i4_an_acknowledged_write_that_the_next_owner_does_not_see_is_found() {
    // The acknowledgement arrives after the next owner's read, so by time alone the read may come first. By epochs not.
    let late = |e: u64, found: &[u64]| {
        let mut story = Story::default();
        let reader = if e == 1 { "a" } else { "b" };
        story.write("a", 1, 1).read(reader, 2, e, found).done("a", 1);
        story
    };
    late(2, &[]).only(Rule::HiddenFromNextOwner);
    assert!(late(2, &[1]).check().held());
    assert!(late(1, &[]).check().held(), "the same owner's read may come first");
    assert!(late(0, &[]).check().held(), "and so may anybody's");
    let mut begun_later = Story::default();
    begun_later.read("b", 1, 2, &[]).write("a", 2, 1).done("a", 2).only(Rule::HiddenFromNextOwner);
}

#[test]
fn i9_a_tenure_that_begins_or_ends_twice_is_found() {
    Story::default().began("a", 1).ended("a", 1).began("a", 1).only(Rule::BeganTwice);
    Story::default().began("a", 1).ended("a", 1).ended("a", 1).only(Rule::EndedTwice);
    Story::default().ended("a", 1).only(Rule::EndedTwice);
}

#[test]
fn i9_tenures_of_one_process_that_overlap_are_found() {
    Story::default().began("a", 1).began("a", 2).only(Rule::TenuresOverlap);
    // After a death it is another process.
    let died = What::Died { actor: "a".into() };
    assert!(Story::default().began("a", 1).then("net", died).began("a", 2).check().held());
    assert!(Story::default().began("a", 1).began("b", 2).ended("a", 1).check().held(), "a was paused");
}

#[test]
fn i9_a_tenure_that_never_ends_is_found() {
    let after = |ends: bool| {
        let mut story = Story::default();
        story.began("a", 1).ready("a", 1).granted(1, 1, "a").then("net", What::Healed).granted(2, 2, "b");
        if ends {
            story.ended("a", 1);
        }
        story.began("b", 2).then("net", What::End);
        story
    };
    assert!(after(true).check().held());
    let verdict = after(false).only(Rule::NeverEnded);
    assert!(verdict.to_string().contains("a still had orders/0 e1 at the end"), "{verdict}");
    // It has only just been replaced; its process is no more; or it is the last who was granted it.
    assert!(check(&after(false).history, &Rules { ends_us: 10_000, ..Rules::default() }).held());
    let mut dead = Story::default();
    dead.granted(1, 1, "a")
        .began("a", 1)
        .granted(2, 2, "b")
        .then("net", What::Died { actor: "a".into() })
        .then("net", What::End);
    assert!(dead.check().held());
    assert!(Story::default().granted(1, 1, "a").began("a", 1).then("net", What::End).check().held());
}

#[test]
fn g4_an_owner_that_was_replaced_or_stopped_saying_that_it_owns_is_none() {
    let begin = || {
        let mut story = Story::default();
        story.then("log", What::KeyspaceCreated { keyspace: "orders".parse().unwrap(), partitions: 1 });
        story.granted(1, 1, "a").began("a", 1).ready("a", 1).then("net", What::Healed);
        story
    };
    // Its successor never comes, and it goes on as if it owned.
    let mut replaced = begin();
    replaced.granted(2, 2, "b").then("net", What::End);
    let rules = Rules { progress_us: Some(500), ends_us: 60_000_000, ..Rules::default() };
    let verdict = check(&replaced.history, &rules);
    assert_eq!((verdict.count(Rule::NoOwner), verdict.violations.len()), (1, 1), "{verdict}");
    // It is asked, and has not said so for long.
    let silent = |claims_to: u64| {
        let mut story = begin();
        story.claims("a", 1, 4_000, claims_to);
        story.history.push(3_000_000, "net", What::End);
        check(&story.history, &rules).count(Rule::NoOwner)
    };
    assert_eq!((silent(4_500), silent(2_999_000)), (1, 0));
}

#[test]
fn g4_what_a_dead_owner_left_when_all_was_well_is_granted_in_time_or_found() {
    let story = |what: &dyn Fn(&mut Story)| {
        let mut story = Story::default();
        let other: Scope = "orders/1".parse().unwrap();
        let has = What::Began { scope: other, epoch: epoch(1), worker: worker("b") };
        story.granted(1, 1, "a").began("a", 1).then("b", has).then("net", What::Steady);
        story.history.push(100_000, "net", What::Fault { text: "a is killed".into() });
        story.history.push(100_000, "net", What::Died { actor: "a".into() });
        story.now = 100_000;
        what(&mut story);
        story.history.push(500_000, "net", What::End);
        let rules = Rules { granted_us: Some(10_000), ..Rules::default() };
        let verdict = check(&story.history, &rules);
        assert_eq!(verdict.count(Rule::GrantedLate), verdict.violations.len(), "{verdict}");
        verdict.violations.len()
    };
    let late = |story: &mut Story| {
        story.now = 110_000;
        story.granted(2, 2, "b");
    };
    let in_time = |story: &mut Story| {
        story.granted(2, 2, "b");
    };
    assert_eq!(story(&in_time), 0);
    assert_eq!(story(&late), 1);
    assert_eq!(story(&|_| ()), 1, "it never was");
    // Another fault, another leader, or nobody to grant it to.
    let with = |what: What| {
        story(&|story| {
            story.then("n2", what.clone());
            late(story);
        })
    };
    assert_eq!(with(What::Fault { text: "x".into() }), 0);
    assert_eq!(with(What::Elected { term: Term::new(2), node: NodeId::new(2).unwrap() }), 0);
    assert_eq!(with(What::Died { actor: "b".into() }), 0);
    assert_eq!(with(What::Note { text: "x".into() }), 1);
}

#[test]
fn g4_a_partition_that_was_given_back_is_granted_in_time_or_found() {
    let story = |why: Ending, steady: bool| {
        let mut story = Story::default();
        let other: Scope = "orders/1".parse().unwrap();
        let has = What::Began { scope: other, epoch: epoch(1), worker: worker("b") };
        story.granted(1, 1, "a").began("a", 1).then("b", has);
        if steady {
            story.then("net", What::Steady);
        }
        story.then("a", What::Ended { scope: scope(), epoch: epoch(1), why });
        story.history.push(500_000, "net", What::End);
        check(&story.history, &Rules { granted_us: Some(10_000), ..Rules::default() })
            .count(Rule::GrantedLate)
    };
    assert_eq!(story(Ending::Revoked, true), 1);
    assert_eq!(story(Ending::Lost, true), 1);
    assert_eq!(story(Ending::Failed, true), 0, "it is held back");
    assert_eq!(story(Ending::Revoked, false), 0, "while much is broken nobody can tell");
}

#[test]
fn a_world_in_which_nothing_happens_is_found() {
    let expected = [("orders".parse().unwrap(), 1), ("fast".parse().unwrap(), 1)].into();
    let rules = Rules { expected, progress_us: Some(500), ..Rules::default() };
    let mut nothing = Story::default();
    nothing.then("net", What::Healed).then("net", What::Steady).then("net", What::End);
    let verdict = check(&nothing.history, &rules);
    assert_eq!((verdict.count(Rule::Inert), verdict.count(Rule::NoOwner)), (5, 2), "{verdict}");
    // One keyspace that never came, beside another in which all is well.
    let verdict = check(&good().history, &Rules { progress_us: Some(10_000), ..rules.clone() });
    assert_eq!((verdict.count(Rule::Inert), verdict.count(Rule::NoOwner)), (1, 1), "{verdict}");
    assert!(verdict.to_string().contains("the keyspace fast was never created"), "{verdict}");
    // It is asked of worlds in which logs may forget, too; and who looks from time to time may have seen no election.
    let verdict = check(&nothing.history, &Rules { only_fences: true, ..rules.clone() });
    assert_eq!((verdict.count(Rule::Inert), verdict.violations.len()), (5, 5), "{verdict}");
    let verdict = check(&nothing.history, &Rules { all_grants: false, ..rules });
    assert_eq!(verdict.count(Rule::Inert), 4, "{verdict}");
}

#[test]
fn i6_that_it_never_grew_calm_is_found_unless_the_observer_was_late_too() {
    let never = |late_us| {
        let mut story = Story::default();
        story.then("run", What::NeverCalm { late_us });
        check(&story.history, &Rules { busy_us: 666_666, ..Rules::default() }).count(Rule::NeverCalm)
    };
    assert_eq!((never(0), never(666_666), never(666_667)), (1, 1, 0));
}

#[test]
fn g4_a_partition_without_an_owner_is_found() {
    // In the good history it takes six milliseconds.
    assert_eq!(in_time(&good(), 5_999).count(Rule::NoOwner), 1);
    assert_eq!(in_time(&good(), 6_000).count(Rule::NoOwner), 0);
    // The owner goes away later on, and nobody comes.
    let mut gone = Story::default();
    gone.then("log", What::KeyspaceCreated { keyspace: "orders".parse().unwrap(), partitions: 1 });
    gone.began("a", 1).ready("a", 1).then("net", What::Healed).then("net", What::Died { actor: "a".into() });
    gone.then("net", What::End);
    let verdict = in_time(&gone, 500);
    assert!(
        verdict.count(Rule::NoOwner) == 1 && !verdict.to_string().contains("watch for longer"),
        "{verdict}"
    );
    // Nobody can tell.
    let verdict = in_time(&gone, 60_000_000);
    assert!(
        verdict.count(Rule::NoOwner) == 1 && verdict.to_string().contains("watch for longer"),
        "{verdict}"
    );
    // Of a keyspace that is deleted nothing is asked.
    gone.then("log", What::KeyspaceDeleted { keyspace: "orders".parse().unwrap() });
    assert!(in_time(&gone, 500).held());
    // Without the mark the bound means nothing.
    assert_eq!(in_time(&Story::default(), 500).count(Rule::Unreadable), 1);
}

#[test]
fn i6_a_grant_when_all_is_steady_is_found() {
    let steady = What::Steady;
    Story::default().granted(1, 1, "a").then("net", steady.clone()).granted(2, 1, "a").only(Rule::NotQuiet);
    let fault = What::Fault { text: "x".into() };
    assert!(Story::default().then("net", steady).then("net", fault).granted(2, 1, "a").check().held());
}

#[test]
fn a_history_that_contradicts_itself_is_found() {
    Story::default().done("a", 1).only(Rule::Unreadable);
    Story::default().write("a", 1, 1).done("a", 1).done("a", 1).only(Rule::Unreadable);
    Story::default().write("a", 1, 1).write("a", 1, 1).only(Rule::Unreadable);
    Story::default().claims("a", 1, 20, 20).only(Rule::Unreadable);
}

#[test]
fn thousands_of_operations_on_one_key_are_judged() {
    // Four at a time, some unknown, and reads that see them: the search must not try all orders.
    let mut story = Story::default();
    let (mut op, mut content) = (0, vec![]);
    for round in 0..2_000 {
        let batch: Vec<OpId> = (0..4).map(|i| op + i + 1).collect();
        op += 4;
        for write in &batch {
            story.call("a", *write, 1, Call::Append(*write));
        }
        for write in &batch {
            // Every eighth is unknown; half of those took effect.
            match write % 8 {
                0 => story.returned("a", *write, Outcome::Unknown),
                _ => story.done("a", *write),
            };
        }
        content.extend(batch.iter().rev().filter(|write| *write % 16 != 0));
        if round % 10 == 9 {
            op += 1;
            story.read("b", op, 0, &content);
        }
    }
    assert!(story.check().held());
    content.swap(100, 4_000);
    story.read("b", op + 1, 0, &content).only(Rule::Lost);
}

/// Where a log may forget, an epoch may be granted twice and owned by two; what a store takes is judged all the same.
#[test]
fn where_logs_forget_only_the_fences_are_held_to_account() {
    let rules = Rules { only_fences: true, ..Rules::default() };
    let mut forgot = Story::default();
    forgot.granted(4, 1, "w1").granted(4, 2, "w2").began("w1", 4).began("w2", 4);
    forgot.claims("w1", 4, 0, 9_000).claims("w2", 4, 0, 9_000).raised(4).applied(1, 4);
    assert!(!forgot.check().held());
    assert_eq!(check(&forgot.history, &rules), Verdict::default());

    forgot.raised(5).applied(2, 4);
    let verdict = check(&forgot.history, &rules);
    assert_eq!((verdict.count(Rule::StaleAccepted), verdict.violations.len()), (1, 1), "{verdict}");
    let mut lost = Story::default();
    lost.raised(4).write("w1", 1, 4).applied(1, 4).done("w1", 1).read("w1", 2, 4, &[]);
    assert_eq!(check(&lost.history, &rules).count(Rule::Lost), 1);
}
