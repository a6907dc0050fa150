//! The lessee's rules as stories. `p..` tells a counterexample that a model found (`p03` is the third hole in the
//! review of the protocol, `p00` a rule of its table): what one worker believed under the rule that was taken out,
//! and what it believes now. Where a test names a moment at which "the coordinator grants", that is the earliest that
//! the rules of the lessor allow.

use super::*;
use proptest::prelude::*;
use std::time::Duration;

const TTL_MS: u64 = 10_000;
/// What an acknowledgement is worth, from its sending: 10 s less a percent and the margin.
const LEASE_MS: u64 = 9_880;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn at(at_ms: u64) -> Instant {
    Instant::from_nanos(0) + ms(at_ms)
}

fn e(number: u64) -> Epoch {
    Epoch::new(number).unwrap()
}

fn held(key: u32, epoch: u64) -> Held<u32> {
    let lineage = Lineage::default();
    Held { key, epoch: e(epoch), draining: false, takeover: Takeover::Lease, lineage }
}

fn draining(key: u32, epoch: u64) -> Held<u32> {
    Held { draining: true, ..held(key, epoch) }
}

fn by_fence(key: u32, epoch: u64) -> Held<u32> {
    Held { takeover: Takeover::Fence, ..held(key, epoch) }
}

fn gone(key: u32, epoch: u64) -> Gone<u32> {
    Gone { key, epoch: e(epoch) }
}

/// A lessee and the handful of verbs the stories are told in. Every time is in milliseconds.
struct Worker(Lessee<u32>);

impl Worker {
    /// Joined at 0 and connected.
    fn joined() -> Worker {
        let mut lessee = Lessee::new(Timing::new(ms(TTL_MS)).unwrap(), at(0));
        lessee.connected(at(0));
        Worker(lessee)
    }

    /// Joined, with partition 7 under epoch 1 at revision 10, and a lease from 0.
    fn holding() -> Worker {
        let mut worker = Worker::joined();
        worker.picture(1, 10, vec![held(7, 1)]);
        worker.renewed(0, 5, 10);
        assert_eq!(worker.events(), [granted(7, 1)]);
        worker
    }

    /// Sends a renewal, whether one was due or not.
    fn send(&mut self, at_ms: u64) -> u64 {
        self.0.connection.next_renewal = at(at_ms);
        self.0.renew(at(at_ms), 0).expect("a live session over a connection that is up")
    }

    fn acked(&mut self, at_ms: u64, number: u64, revision: u64, drains: &[(u32, u64, u64)]) {
        let drains =
            drains.iter().map(|&(key, epoch, left)| DrainLeft { key, epoch: e(epoch), left: ms(left) });
        let ack = Acknowledgement { number, revision: LogIndex::new(revision), drains: drains.collect() };
        self.0.acknowledge(at(at_ms), ack);
    }

    fn renewed(&mut self, sent_ms: u64, acked_ms: u64, revision: u64) {
        let number = self.send(sent_ms);
        self.acked(acked_ms, number, revision, &[]);
    }

    fn picture(&mut self, at_ms: u64, revision: u64, held: Vec<Held<u32>>) {
        self.piece(at_ms, revision, true, false, held, vec![]);
    }

    fn change(&mut self, at_ms: u64, revision: u64, held: Vec<Held<u32>>, gone: Vec<Gone<u32>>) {
        self.piece(at_ms, revision, false, false, held, gone);
    }

    fn piece(
        &mut self,
        at_ms: u64,
        revision: u64,
        complete: bool,
        more: bool,
        held: Vec<Held<u32>>,
        gone: Vec<Gone<u32>>,
    ) {
        let revision = LogIndex::new(revision);
        self.0.assign(at(at_ms), Assignment { revision, complete, more, held, gone });
    }

    /// Whether the worker would answer "I own it" at that moment. Asking changes nothing.
    fn believes(&self, at_ms: u64, key: u32, epoch: u64) -> bool {
        self.0.valid_until(&key, e(epoch)).is_some_and(|until| at(at_ms) < until)
    }

    fn time(&mut self, at_ms: u64) {
        self.0.handle_timeout(at(at_ms));
    }

    fn events(&mut self) -> Vec<Event<u32>> {
        std::iter::from_fn(|| self.0.poll_event()).collect()
    }
}

fn granted(key: u32, epoch: u64) -> Event<u32> {
    Event::Granted { key, epoch: e(epoch), takeover: Takeover::Lease, lineage: Lineage::default() }
}

fn revoked(key: u32, epoch: u64) -> Event<u32> {
    Event::Revoked { key, epoch: e(epoch) }
}

fn bounded(key: u32, epoch: u64, until_ms: u64) -> Event<u32> {
    Event::Bounded { key, epoch: e(epoch), until: at(until_ms) }
}

fn lost(key: u32, epoch: u64, why: Loss) -> Event<u32> {
    Event::Lost { key, epoch: e(epoch), why }
}

// The lease: what extends it, and from when.

#[test]
fn t24_a_slow_reply_does_not_move_the_deadline() {
    for reply_ms in [1, TTL_MS / 2, 9_000] {
        let mut worker = Worker::joined();
        worker.picture(0, 10, vec![held(7, 1)]);
        worker.renewed(0, reply_ms, 10);
        assert!(worker.believes(LEASE_MS - 1, 7, 1));
        assert!(!worker.believes(LEASE_MS, 7, 1));
    }
}

#[test]
fn p00_a_deadline_counted_from_the_receipt_outlives_the_coordinators() {
    let mut worker = Worker::joined();
    worker.picture(0, 10, vec![held(7, 1)]);
    // The renewal arrives at 10 ms, the answer travels for 8 s, and nothing is heard any more.
    worker.renewed(0, 8_000, 10);
    let coordinator_grants = 10 + TTL_MS;
    let counted_from_receipt = 8_000 + LEASE_MS;
    assert!(counted_from_receipt > coordinator_grants, "the rule taken out is a hole");
    assert!(!worker.believes(coordinator_grants, 7, 1));
}

#[test]
fn p00_without_the_drift_margin_a_slow_clock_outlives_the_coordinators() {
    let worker = Worker::holding();
    // When the coordinator's 10 s have passed, this clock, 1 % slow, shows 9.9 s.
    assert!(!worker.believes(9_900, 7, 1));
}

#[test]
fn p08_the_answer_to_a_join_and_a_grant_carry_no_lease() {
    let mut worker = Worker::joined();
    worker.picture(0, 10, vec![held(7, 1)]);
    assert_eq!(worker.events(), [granted(7, 1)]);
    assert!(!worker.believes(0, 7, 1) && worker.0.lease_until().is_none());

    worker.renewed(10, 20, 10);
    worker.change(5_000, 11, vec![held(8, 4)], vec![]);
    assert!(worker.believes(5_000, 8, 4), "the session's lease covers what it is granted");
    assert!(!worker.believes(10 + LEASE_MS, 8, 4), "and the grant does not lengthen it");
}

#[test]
fn f028_failed_attempts_give_nothing_and_the_successful_one_counts_from_its_own_sending() {
    let mut worker = Worker::joined();
    worker.picture(0, 10, vec![held(7, 1)]);
    for sent in [0, 7_000, 14_000] {
        worker.send(sent);
        worker.0.disconnected(at(sent + 5_000));
        worker.0.connected(at(sent + 6_000));
    }
    worker.picture(20_000, 10, vec![held(7, 1)]);
    worker.renewed(20_000, 28_000, 10);
    assert!(worker.believes(20_000 + LEASE_MS - 1, 7, 1));
    assert!(!worker.believes(20_000 + LEASE_MS, 7, 1));
}

#[test]
fn f028_an_acknowledgement_that_comes_after_its_own_deadline_gives_no_lease() {
    let mut worker = Worker::joined();
    worker.picture(0, 10, vec![held(7, 1)]);
    worker.renewed(0, LEASE_MS, 10);
    assert!(!worker.believes(LEASE_MS, 7, 1));
    assert_eq!(worker.events(), [granted(7, 1), lost(7, 1, Loss::Expired)]);
}

#[test]
fn an_acknowledgement_counts_for_the_renewal_it_names_and_once() {
    let mut worker = Worker::holding();
    let first = worker.send(1_000);
    let second = worker.send(2_000);
    worker.acked(3_000, second, 10, &[]);
    assert_eq!(worker.0.lease_until(), Some(at(2_000 + LEASE_MS)));
    assert_eq!(
        worker.0.oldest_unanswered(),
        None,
        "an answer to a later one shows that the connection lives"
    );
    // Overtaken, repeated, and never sent: none moves the deadline back or on.
    worker.acked(3_000, first, 10, &[]);
    worker.acked(4_000, second, 10, &[]);
    worker.acked(4_000, 99, 10, &[]);
    assert_eq!(worker.0.lease_until(), Some(at(2_000 + LEASE_MS)));
}

#[test]
fn f024_a_late_acknowledgement_does_not_bring_an_expired_lease_back() {
    let mut worker = Worker::holding();
    let number = worker.send(9_000);
    // Nobody looked at the clock in between: the process was stopped.
    worker.acked(12_000, number, 10, &[]);
    assert_eq!(worker.events(), [lost(7, 1, Loss::Expired)]);
    assert!(worker.0.is_over() && !worker.believes(12_000, 7, 1));
    worker.picture(12_000, 11, vec![held(7, 2)]);
    assert_eq!(worker.events(), []);
}

#[test]
fn f036_a_jump_of_the_clock_ends_the_lease_at_the_next_look() {
    let mut worker = Worker::holding();
    assert!(!worker.believes(600_000, 7, 1), "even before anybody handled the timeout");
    worker.time(600_000);
    assert_eq!(worker.events(), [lost(7, 1, Loss::Expired)]);
    worker.time(700_000);
    worker.0.session_ended();
    assert_eq!(worker.events(), [], "one loss for one tenure");
}

#[test]
fn f022_b12_renewals_go_on_after_each_kind_of_failure_until_the_deadline() {
    let mut worker = Worker::holding();
    worker.send(1_000);
    worker.0.disconnected(at(2_000));
    assert_eq!(worker.0.renew(at(3_000), 0), None, "there is no connection");
    worker.0.connected(at(3_000));
    assert_eq!(worker.0.renew(at(3_000), 0), Some(1), "the first renewal of a connection is due at once");
    assert_eq!(worker.0.renew(at(3_001), 0), None);
    assert!(worker.0.poll_timeout().unwrap() <= at(3_000) + ms(TTL_MS) / 6);
    worker.acked(3_010, 1, 10, &[]);
    assert_eq!(worker.0.lease_until(), Some(at(3_000 + LEASE_MS)));
    assert_eq!(worker.events(), [], "reconnecting is not losing");
}

/// The cut falls anywhere between two renewals, and is noticed at once, late or never. Nothing is added to the lease for it.
#[test]
fn f047_however_late_a_cut_is_noticed_the_lease_counts_from_the_last_confirmed_renewal() {
    for cut in (0..3_300).step_by(100) {
        for noticed in [0, 700, 5_000, 30_000] {
            let mut worker = Worker::holding();
            let mut confirmed = 0;
            for sent in [1_600, 3_200] {
                let number = worker.send(sent);
                if sent + 5 < cut {
                    worker.acked(sent + 5, number, 10, &[]);
                    confirmed = sent;
                }
            }
            for now in (3_205..20_000).step_by(50) {
                // It tries again and again, over new connections.
                if now >= cut + noticed && now.is_multiple_of(250) {
                    worker.0.disconnected(at(now));
                    worker.0.connected(at(now));
                    let _ = worker.0.renew(at(now), 0);
                }
                worker.time(now);
                assert_eq!(worker.believes(now, 7, 1), now < confirmed + LEASE_MS, "cut at {cut}, now {now}");
            }
        }
    }
}

#[test]
fn f095_a_renewal_whose_answer_was_lost_is_followed_by_one_that_counts() {
    let mut worker = Worker::holding();
    let lost = worker.send(1_600);
    let next = worker.send(3_200);
    worker.acked(3_205, next, 10, &[]);
    assert_eq!(worker.0.lease_until(), Some(at(3_200 + LEASE_MS)));
    // It was on its way all the time, and takes nothing back.
    worker.acked(4_000, lost, 10, &[]);
    assert_eq!(worker.0.lease_until(), Some(at(3_200 + LEASE_MS)));
    assert_eq!(worker.events(), []);
}

#[test]
fn f017_no_leader_is_not_a_loss() {
    let mut worker = Worker::holding();
    for again in 1..=5 {
        worker.0.disconnected(at(again * 1_500));
        worker.0.connected(at(again * 1_500 + 1_000));
        assert!(worker.believes(again * 1_500 + 1_000, 7, 1));
    }
    assert_eq!(worker.events(), []);
}

#[test]
fn t36_a_renewal_that_is_put_off_lets_the_lease_run_down() {
    let mut worker = Worker::holding();
    for now in (2_000..9_880).step_by(10) {
        worker.0.defer_renewal(at(now + 50));
        assert_eq!(worker.0.renew(at(now), 0), None);
    }
    worker.time(LEASE_MS);
    assert_eq!(worker.events(), [lost(7, 1, Loss::Expired)]);
}

#[test]
fn f035_what_was_never_answered_is_bounded() {
    let mut worker = Worker::holding();
    for n in 0..1_000 {
        worker.send(100 + n);
    }
    assert_eq!(worker.0.unanswered.len(), MAX_UNANSWERED);
    assert_eq!(worker.0.oldest_unanswered(), Some(at(1_099 - MAX_UNANSWERED as u64 + 1)));
}

// The picture: revisions, high-water marks, pieces.

#[test]
fn p03_an_acknowledgement_extends_nothing_while_the_picture_is_behind_it() {
    let mut worker = Worker::holding();
    // At revision 11 the partition was taken; the push is lost, and the session is renewed and renewed.
    for n in 1..=9 {
        worker.renewed(n * 1_000, n * 1_000 + 10, 11);
    }
    let without_revisions = 9_000 + LEASE_MS;
    let coordinator_granted = 1_000;
    assert!(without_revisions > coordinator_granted + TTL_MS, "the rule taken out is a hole");
    assert_eq!(worker.0.lease_until(), Some(at(LEASE_MS)), "counted from the last one it could rely on");
    assert!(!worker.believes(LEASE_MS, 7, 1));
}

#[test]
fn p03_an_acknowledgement_that_was_ahead_extends_when_its_picture_arrives() {
    let mut worker = Worker::holding();
    worker.renewed(4_000, 4_010, 12);
    worker.change(4_020, 11, vec![held(8, 1)], vec![]);
    assert_eq!(worker.0.lease_until(), Some(at(LEASE_MS)));
    worker.change(4_030, 12, vec![held(9, 1)], vec![gone(7, 1)]);
    assert_eq!(
        worker.0.lease_until(),
        Some(at(4_000 + LEASE_MS)),
        "from its sending, not from the picture's arrival"
    );
    assert_eq!(worker.events(), [granted(8, 1), lost(7, 1, Loss::Taken), granted(9, 1)]);
}

#[test]
fn p03_acknowledgements_that_wait_are_bounded_and_the_newest_stay() {
    let mut worker = Worker::holding();
    for n in 1..=8 {
        worker.renewed(n * 1_000, n * 1_000 + 10, 10 + n);
    }
    assert_eq!(worker.0.waiting.len(), MAX_WAITING);
    worker.change(8_100, 18, vec![], vec![]);
    assert_eq!(worker.0.lease_until(), Some(at(8_000 + LEASE_MS)));
}

#[test]
fn p03_a_late_grant_after_a_release_is_not_believed() {
    let mut worker = Worker::joined();
    worker.renewed(0, 5, 10);
    worker.change(10, 10, vec![held(7, 1)], vec![]);
    worker.0.give_back(&7, e(1));
    assert!(!worker.believes(20, 7, 1));
    // The release is on its way; a reconnect shows the picture from before it.
    worker.picture(30, 11, vec![held(7, 1)]);
    assert!(!worker.believes(30, 7, 1));
    worker.picture(40, 12, vec![held(7, 2)]);
    assert!(worker.believes(40, 7, 2));
    assert_eq!(worker.events(), [granted(7, 1), granted(7, 2)], "given back is not lost");
}

#[test]
fn t45_the_picture_only_moves_forward() {
    let mut worker = Worker::holding();
    worker.change(20, 14, vec![held(7, 3)], vec![]);
    worker.events();
    // Overtaken pushes, duplicates, and the picture of a leader that was deposed.
    worker.change(30, 12, vec![held(8, 1)], vec![gone(7, 1)]);
    worker.change(30, 14, vec![held(8, 1)], vec![gone(7, 3)]);
    worker.picture(30, 13, vec![]);
    assert_eq!(worker.events(), []);
    assert!(worker.believes(30, 7, 3) && !worker.believes(30, 8, 1));
}

#[test]
fn f033_t45_a_reconnect_heals_a_push_that_was_lost() {
    let mut worker = Worker::holding();
    worker.0.disconnected(at(100));
    worker.0.connected(at(150));
    worker.picture(200, 15, vec![held(8, 2)]);
    assert_eq!(worker.events(), [lost(7, 1, Loss::Taken), granted(8, 2)]);
}

#[test]
fn f053_away_and_back_is_a_loss_and_a_grant() {
    for deliver in ["complete", "merged", "held alone"] {
        let mut worker = Worker::holding();
        match deliver {
            "complete" => worker.picture(500, 14, vec![held(7, 3)]),
            "merged" => worker.change(500, 14, vec![held(7, 3)], vec![gone(7, 1)]),
            _ => worker.change(500, 14, vec![held(7, 3)], vec![]),
        }
        assert_eq!(worker.events(), [lost(7, 1, Loss::Taken), granted(7, 3)], "{deliver}");
        assert!(!worker.believes(500, 7, 1) && worker.believes(500, 7, 3));
    }
}

#[test]
fn f013_the_first_picture_of_a_session_is_all_it_needs() {
    let mut worker = Worker::joined();
    worker.picture(1, 40, (0..10).map(|p| held(p, 2)).collect());
    assert_eq!(worker.events(), (0..10).map(|p| granted(p, 2)).collect::<Vec<_>>());
}

#[test]
fn a_picture_in_pieces_counts_when_its_last_piece_has_arrived() {
    let mut worker = Worker::holding();
    worker.piece(10, 11, true, true, vec![held(7, 1), held(8, 1)], vec![]);
    assert_eq!(worker.events(), []);
    worker.piece(11, 11, true, false, vec![held(9, 1)], vec![]);
    assert_eq!(worker.events(), [granted(8, 1), granted(9, 1)]);

    // Its end was cut off: what came is nothing, and nobody is lost for not being named in it.
    worker.piece(20, 12, true, true, vec![held(7, 1)], vec![]);
    worker.0.disconnected(at(21));
    worker.0.connected(at(22));
    worker.piece(23, 12, true, false, vec![held(7, 1), held(8, 1)], vec![]);
    assert_eq!(worker.events(), [lost(9, 1, Loss::Taken)]);
}

#[test]
fn f051_what_is_not_held_any_more_is_not_claimed_after_a_long_cut() {
    let mut worker = Worker::holding();
    worker.0.disconnected(at(100));
    worker.time(3 * TTL_MS);
    assert_eq!(worker.events(), [lost(7, 1, Loss::Expired)]);
    worker.0.connected(at(3 * TTL_MS));
    assert_eq!(worker.0.renew(at(3 * TTL_MS), 0), None, "a session that is over is not renewed");
    assert_eq!(worker.0.holds().count(), 0);
}

#[test]
fn f026_the_end_of_the_session_is_said_once_for_each_partition() {
    let mut worker = Worker::holding();
    worker.change(20, 11, vec![held(8, 5)], vec![]);
    worker.events();
    worker.0.session_ended();
    worker.0.session_ended();
    worker.time(60_000);
    assert_eq!(worker.events(), [lost(7, 1, Loss::SessionEnded), lost(8, 5, Loss::SessionEnded)]);
}

// Drains.

#[test]
fn p04_a_drain_named_in_an_acknowledgement_bounds_the_partition_and_no_other() {
    let mut worker = Worker::holding();
    worker.change(20, 11, vec![draining(7, 1), held(8, 1)], vec![]);
    assert_eq!(worker.events(), [revoked(7, 1), granted(8, 1)]);
    assert!(worker.believes(9_000, 7, 1), "a push has no moment to count from, so it bounds nothing");

    let number = worker.send(1_000);
    worker.acked(1_500, number, 11, &[(7, 1, 2_000)]);
    // 1 s + 2 s less a percent and the margin.
    assert_eq!(worker.events(), [bounded(7, 1, 2_960)]);
    assert!(worker.believes(2_959, 7, 1) && !worker.believes(2_960, 7, 1));
    assert!(worker.believes(9_000, 8, 1));
    assert_eq!(worker.0.poll_timeout(), Some(worker.0.connection.next_renewal.min(at(2_960))));
    worker.time(2_960);
    assert_eq!(worker.events(), [lost(7, 1, Loss::DrainOver)]);
    assert!(!worker.0.is_over(), "one partition is lost, not the session");
}

#[test]
fn p04_what_is_left_counts_from_the_sending_not_from_the_receipt() {
    let mut worker = Worker::holding();
    let number = worker.send(1_000);
    // The drain was applied at 1 s with a deadline of 2 s; the renewal was answered at 1.1 s and travels for 5 s.
    worker.acked(6_000, number, 10, &[(7, 1, 1_900)]);
    let coordinator_grants = 3_000;
    assert!(6_000 + 1_900 > coordinator_grants, "the rule taken out is a hole");
    assert!(!worker.believes(coordinator_grants, 7, 1));
    assert_eq!(worker.events(), [revoked(7, 1), bounded(7, 1, 2_861), lost(7, 1, Loss::DrainOver)]);
}

#[test]
fn p04_without_a_bound_a_short_drain_deadline_leaves_two_believers() {
    let mut worker = Worker::holding();
    worker.change(20, 11, vec![draining(7, 1)], vec![]);
    let deadline = 20 + 1_000;
    assert!(
        worker.believes(deadline, 7, 1),
        "which is why the coordinator waits a whole ttl for a revoke not seen"
    );
    let number = worker.send(100);
    worker.acked(110, number, 11, &[(7, 1, 900)]);
    assert!(!worker.believes(deadline, 7, 1), "and only the deadline for one that was");
}

#[test]
fn p04_a_bound_never_moves_back() {
    let mut worker = Worker::holding();
    let number = worker.send(1_000);
    worker.acked(1_010, number, 10, &[(7, 1, 3_000)]);
    worker.events();
    // A second drain would arm it anew, a new leader arms it in full, and an acknowledgement may be without it.
    let number = worker.send(2_000);
    worker.acked(2_010, number, 10, &[(7, 1, 9_000)]);
    worker.renewed(3_000, 3_010, 10);
    assert_eq!(worker.events(), []);
    assert_eq!(worker.0.valid_until(&7, e(1)), Some(at(3_950)));
    let number = worker.send(3_100);
    worker.acked(3_110, number, 10, &[(7, 1, 500)]);
    assert_eq!(worker.events(), [bounded(7, 1, 3_575)]);
}

#[test]
fn p03_drains_without_a_revision_would_extend_a_partition_whose_drain_is_over() {
    let mut worker = Worker::holding();
    // Drained at revision 11 and granted to another at 12. Both pushes are lost; no drain is in progress any more.
    for n in 1..=9 {
        worker.renewed(n * 1_000, n * 1_000 + 10, 12);
    }
    let coordinator_granted = 900 + TTL_MS;
    assert!(9_000 + LEASE_MS > coordinator_granted, "the rule taken out is a hole");
    assert!(!worker.believes(coordinator_granted, 7, 1));
}

#[test]
fn p04_a_drain_of_a_partition_that_the_picture_has_not_shown_bounds_it_when_it_does() {
    let mut worker = Worker::holding();
    let number = worker.send(1_000);
    worker.acked(1_010, number, 12, &[(8, 4, 2_000)]);
    assert_eq!(worker.events(), []);
    worker.change(1_020, 12, vec![draining(8, 4)], vec![]);
    assert_eq!(worker.events(), [granted(8, 4), revoked(8, 4), bounded(8, 4, 2_960)]);
    assert!(worker.believes(2_959, 8, 4) && !worker.believes(2_960, 8, 4));
}

#[test]
fn a_drain_of_another_epoch_says_nothing_about_this_one() {
    let mut worker = Worker::holding();
    worker.change(100, 14, vec![held(7, 3)], vec![]);
    worker.events();
    let number = worker.send(1_000);
    worker.acked(1_010, number, 14, &[(7, 1, 10), (7, 9, 10), (99, 1, 10)]);
    assert_eq!(worker.events(), []);
    assert!(worker.believes(9_000, 7, 3));
}

#[test]
fn what_was_lost_to_its_deadline_is_not_believed_again_under_that_epoch() {
    let mut worker = Worker::holding();
    let number = worker.send(1_000);
    worker.acked(1_010, number, 10, &[(7, 1, 500)]);
    worker.time(1_475);
    worker.events();
    worker.picture(1_500, 11, vec![draining(7, 1)]);
    assert_eq!(worker.events(), []);
    assert!(!worker.believes(1_500, 7, 1));
}

// Keyspaces that are taken over by fence.

#[test]
fn by_fence_a_lost_connection_ends_belief_after_the_grace_until_a_new_one_is_acknowledged() {
    let mut worker = Worker::joined();
    worker.picture(0, 10, vec![held(7, 1), by_fence(8, 1)]);
    worker.renewed(0, 5, 10);
    let in_flight = worker.send(900);
    worker.0.disconnected(at(1_000));
    assert!(worker.believes(1_199, 8, 1) && !worker.believes(1_200, 8, 1));
    assert!(worker.believes(5_000, 7, 1), "the keyspace that kept its lease");

    // Connected is not confirmed, and an answer of the connection that was lost is not one of the new.
    worker.0.connected(at(1_500));
    worker.acked(1_510, in_flight, 10, &[]);
    assert!(!worker.believes(1_520, 8, 1));
    worker.0.disconnected(at(1_600));
    assert_eq!(worker.0.grace_until(), Some(at(1_200)), "losing it again does not renew the grace");

    worker.0.connected(at(1_700));
    worker.renewed(1_700, 1_710, 10);
    assert!(worker.believes(1_720, 8, 1));
    worker.events();
    worker.time(1_720);
    assert_eq!(worker.events(), [], "a pause is not a loss");
}

#[test]
fn by_fence_an_acknowledgement_ahead_of_the_picture_does_not_end_the_pause() {
    let mut worker = Worker::joined();
    worker.picture(0, 10, vec![by_fence(8, 1)]);
    worker.renewed(0, 5, 10);
    worker.0.disconnected(at(1_000));
    worker.0.connected(at(2_000));
    // It was taken while the connection was gone.
    worker.renewed(2_000, 2_010, 11);
    assert!(!worker.believes(2_020, 8, 1));
    worker.events();
    worker.picture(2_030, 11, vec![]);
    assert_eq!(worker.events(), [lost(8, 1, Loss::Taken)]);
}

// Whatever happens.

#[derive(Clone, Debug)]
enum Step {
    Wait(u64),
    Send,
    Ack { which: usize, revision: u64, drain: Option<(u32, u64, u64)> },
    Assign { revision: u64, complete: bool, held: Vec<(u32, u64, bool)>, gone: Vec<(u32, u64)> },
    GiveBack(u32, u64),
    Disconnect,
    Connect,
}

fn step() -> impl Strategy<Value = Step> {
    let place = || (0..3u32, 1..6u64);
    prop_oneof![
        (0..4_000u64).prop_map(Step::Wait),
        Just(Step::Send),
        (0..4usize, 1..12u64, proptest::option::of((0..3u32, 1..6u64, 0..9_000u64)))
            .prop_map(|(which, revision, drain)| Step::Ack { which, revision, drain }),
        (
            1..12u64,
            any::<bool>(),
            proptest::collection::vec((0..3u32, 1..6u64, any::<bool>()), 0..3),
            proptest::collection::vec(place(), 0..2)
        )
            .prop_map(|(revision, complete, held, gone)| Step::Assign {
                revision,
                complete,
                held,
                gone
            }),
        place().prop_map(|(key, epoch)| Step::GiveBack(key, epoch)),
        Just(Step::Disconnect),
        Just(Step::Connect),
    ]
}

proptest! {
    // A file of failures would be written beside the crates, where the workspace looks for more of them.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Messages of any content in any order: a coordinator with bugs must not get more belief out of a lessee than its
    /// acknowledgements are worth, nor make it break its word to the shell.
    #[test]
    fn no_order_of_messages_extends_a_lease_or_repeats_an_event(steps in proptest::collection::vec(step(), 1..60)) {
        let mut worker = Worker::joined();
        let mut now = 0;
        let mut sent: Vec<(u64, u64)> = Vec::new();
        let mut best = 0;
        let mut told: BTreeMap<(u32, Epoch), Vec<&'static str>> = BTreeMap::new();
        let mut highest: BTreeMap<u32, Epoch> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Wait(by) => { now += by; worker.time(now); }
                Step::Send => {
                    worker.0.connection.next_renewal = at(now);
                    if let Some(number) = worker.0.renew(at(now), 0) {
                        sent.push((number, now));
                    }
                }
                Step::Ack { which, revision, drain } => {
                    if let Some(&(number, when)) = sent.get(which) {
                        best = best.max(when + LEASE_MS);
                        worker.acked(now, number, revision, drain.as_slice());
                    }
                }
                Step::Assign { revision, complete, held: h, gone: g } => {
                    let h = h.into_iter().map(|(key, epoch, d)| Held { draining: d, ..held(key, epoch) });
                    let g = g.into_iter().map(|(key, epoch)| gone(key, epoch));
                    worker.piece(now, revision, complete, false, h.collect(), g.collect());
                }
                Step::GiveBack(key, epoch) => worker.0.give_back(&key, e(epoch)),
                Step::Disconnect => { worker.0.disconnected(at(now)); sent.clear(); }
                Step::Connect => { worker.0.connected(at(now)); sent.clear(); }
            }
            if let Some(until) = worker.0.lease_until() {
                prop_assert!(until <= at(best), "{until:?} > {best}");
            }
            for event in worker.events() {
                let (key, epoch, what) = match event {
                    Event::Granted { key, epoch, .. } => {
                        prop_assert!(highest.insert(key, epoch).is_none_or(|earlier| earlier < epoch));
                        (key, epoch, "granted")
                    }
                    Event::Revoked { key, epoch } => (key, epoch, "revoked"),
                    Event::Bounded { key, epoch, .. } => (key, epoch, "bounded"),
                    Event::Lost { key, epoch, .. } => (key, epoch, "lost"),
                };
                let story = told.entry((key, epoch)).or_default();
                let allowed = match what {
                    "granted" => story.is_empty(),
                    "revoked" => story.ends_with(&["granted"]),
                    "bounded" => story.contains(&"revoked") && !story.contains(&"lost"),
                    _ => story.first() == Some(&"granted") && !story.contains(&"lost"),
                };
                prop_assert!(allowed, "{what} after {story:?}");
                story.push(what);
            }
            // What is believed was granted and not lost.
            for (key, epoch) in worker.0.holds() {
                prop_assert!(!told[&(*key, epoch)].contains(&"lost"));
            }
        }
    }
}
