//! Stories of one lessor, or of several in a row. The TTL is 9 s, so a third of it is 3 s.

use super::*;
use crate::ids::{KeyspaceId, KeyspaceName, WorkerId};
use crate::lease::lessee::Timing;
use crate::placement::{PartitionCount, Weight};
use crate::state::{Applied, Command, Entry, Join, Policy, PolicyChange, Refused};
use std::collections::BTreeSet;

const TTL_MS: u64 = 9_000;

fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// The end of the lease that a renewal sent at `sent` is worth to its holder, whose clock runs as fast as ours.
fn holder_stops(sent: u64) -> Instant {
    Timing::new(ms(TTL_MS)).unwrap().lease_from(at(sent))
}

/// The log, and the lessor of the latest term. What is proposed waits in no queue: a story applies it when it likes.
struct Log {
    state: State,
    index: u64,
    term: u64,
    lessor: Lessor,
}

impl Log {
    /// Sessions of these TTLs, one worker each, joined before the lessor of term 1 began at 0.
    fn of(ttls_ms: &[u64]) -> (Log, Vec<SessionId>) {
        let state = State::new();
        let lessor = Lessor::new(Term::new(1), at(0), &state);
        let mut log = Log { state, index: 0, term: 1, lessor };
        let sessions = ttls_ms.iter().enumerate().map(|(i, ttl)| {
            let keyspace = log.create(&format!("k{i}"), *ttl);
            log.join(&format!("w{i}"), &[keyspace])
        });
        let sessions = sessions.collect();
        log.elect(0);
        (log, sessions)
    }

    fn one() -> (Log, SessionId) {
        let (log, sessions) = Log::of(&[TTL_MS]);
        (log, sessions[0])
    }

    fn create(&mut self, name: &str, ttl_ms: u64) -> KeyspaceId {
        let policy = Policy::default().with(&PolicyChange { ttl: Some(ms(ttl_ms)), ..Default::default() });
        let keyspace = KeyspaceName::new(name).unwrap();
        let partitions = PartitionCount::new(1).unwrap();
        self.apply(
            0,
            Command::CreateKeyspace { keyspace: keyspace.clone(), partitions, policy: policy.unwrap() },
        );
        self.state.keyspace_named(&keyspace).unwrap().id()
    }

    fn join(&mut self, name: &str, keyspaces: &[KeyspaceId]) -> SessionId {
        self.join_at(0, name, keyspaces)
    }

    fn join_at(&mut self, now: u64, name: &str, keyspaces: &[KeyspaceId]) -> SessionId {
        let worker = WorkerId::new(name).unwrap();
        let join = Join {
            worker: worker.clone(),
            nonce: u128::from(self.index),
            secret_hash: [0; 32],
            address: String::new(),
            weight: Weight::ONE,
            labels: BTreeMap::new(),
            keyspaces: keyspaces.iter().copied().collect::<BTreeSet<_>>(),
            replaces: self.state.session_of(&worker).map(Session::id),
            splits: true,
            ends_drain: None,
            ttl: None,
        };
        self.apply(now, Command::Join(Box::new(join)));
        self.state.session_of(&worker).unwrap().id()
    }

    fn apply(&mut self, now: u64, command: Command) -> Applied {
        self.index += 1;
        let entry = Entry { request: None, proposed_unix_ms: 0, commands: vec![command] };
        let applied = self.state.apply(LogIndex::new(self.index), &entry);
        for event in &applied.events {
            self.lessor.observe(event, at(now), &self.state);
        }
        applied
    }

    fn elect(&mut self, now: u64) {
        self.term += 1;
        self.lessor = Lessor::new(Term::new(self.term), at(now), &self.state);
    }

    fn due(&mut self, now: u64) -> LeasesDue {
        self.lessor.due(at(now), &self.state)
    }

    /// Looks, and applies at once what is due.
    fn look(&mut self, now: u64) -> LeasesDue {
        let due = self.due(now);
        if !due.suspect.is_empty() {
            self.apply(now, Command::Suspect { sessions: due.suspect.clone() });
        }
        if !due.clear.is_empty() {
            self.apply(now, Command::Clear { sessions: due.clear.clone() });
        }
        for (session, suspicion) in &due.expire {
            self.apply(now, Command::Expire { session: *session, suspicion: *suspicion });
        }
        due
    }

    fn renew(&mut self, session: SessionId, now: u64) -> Verdict {
        self.lessor.arrived(session);
        self.lessor.answer(session, at(now))
    }

    fn lives(&self, session: SessionId) -> bool {
        self.state.session(session).is_some()
    }

    /// Looks every 100 ms until the session has ended; returns when.
    fn until_it_ends(&mut self, session: SessionId, from: u64, to: u64) -> Option<u64> {
        for now in (from..to).step_by(100) {
            self.look(now);
            if !self.lives(session) {
                return Some(now);
            }
        }
        None
    }
}

fn suspect(session: SessionId, thirds: u8) -> Command {
    Command::Suspect { sessions: vec![(session, thirds)] }
}

fn clear(session: SessionId) -> Command {
    Command::Clear { sessions: vec![session] }
}

#[test]
fn a_silent_session_is_suspected_twice_and_ends_with_its_ttl() {
    let (mut log, a) = Log::one();
    assert_eq!(log.look(2_999), LeasesDue::default());
    assert_eq!(log.look(3_000).suspect, [(a, 1)]);
    assert_eq!(log.look(3_001), LeasesDue::default());
    assert_eq!(log.look(6_000).suspect, [(a, 2)]);
    assert_eq!(log.look(8_999), LeasesDue::default());
    let latest = log.state.session(a).unwrap().suspicion().unwrap();
    assert_eq!(log.look(9_000).expire, [(a, latest.at)]);
    assert!(!log.lives(a));
}

#[test]
fn f084_a_session_that_renews_costs_no_log_entry() {
    let (mut log, a) = Log::one();
    for now in (0..60_000).step_by(100) {
        if now % 1_500 == 0 {
            assert_eq!(log.renew(a, now), Verdict::Acknowledge);
        }
        assert_eq!(log.due(now), LeasesDue::default(), "at {now}");
    }
}

#[test]
fn t24_a_lease_counts_from_the_arrival_not_from_the_answer() {
    let (mut log, a) = Log::one();
    log.lessor.arrived(a);
    // The confirmation round took 2 s.
    assert_eq!(log.lessor.answer(a, at(1_000)), Verdict::Acknowledge);
    assert_eq!(log.until_it_ends(a, 3_000, 20_000), Some(10_000));
    assert!(holder_stops(1_000) < at(10_000));
}

#[test]
fn p08_f095_t34_each_renewal_counts_for_itself_and_an_older_one_takes_nothing_back() {
    let (mut log, a) = Log::one();
    for _ in 0..2 {
        log.lessor.arrived(a);
    }
    assert_eq!(log.lessor.answer(a, at(2_000)), Verdict::Acknowledge);
    assert_eq!(log.lessor.answer(a, at(1_000)), Verdict::Acknowledge);
    assert_eq!(log.until_it_ends(a, 2_000, 20_000), Some(11_000));
}

#[test]
fn p01_expiry_cannot_see_an_unlogged_renewal() {
    let (mut log, a) = Log::one();
    log.look(3_000);
    log.look(6_000);
    let due = log.due(9_000);
    // The expiry is on its way. A renewal arrives, and its round confirms that this node leads.
    assert_eq!(
        log.renew(a, 9_100),
        Verdict::Hold,
        "or its holder would believe until {:?}",
        holder_stops(9_100)
    );
    let (session, suspicion) = due.expire[0];
    log.apply(9_200, Command::Expire { session, suspicion });
    assert_eq!(log.lessor.answer(a, at(9_100)), Verdict::Ended);
}

#[test]
fn p01_an_expiry_is_refused_when_its_suspicion_was_taken_back() {
    let (mut log, a) = Log::one();
    log.look(3_000);
    log.look(6_000);
    let (session, suspicion) = log.due(9_000).expire[0];
    log.lessor.arrived(a);
    assert_eq!(log.due(9_050).clear, [a]);
    // Both are on their way, and the clear comes first.
    log.apply(9_100, clear(a));
    assert_eq!(log.lessor.answer(a, at(9_010)), Verdict::Acknowledge);
    let refused = log.apply(9_200, Command::Expire { session, suspicion }).outcome.unwrap_err();
    assert!(matches!(refused.why, Refused::SuspicionMovedOn { latest: None, .. }), "{refused:?}");
    assert!(log.lives(a));
}

#[test]
fn p01_an_expiry_that_rests_on_an_earlier_suspicion_is_refused() {
    let (mut log, a) = Log::one();
    log.look(3_000);
    let first = log.state.session(a).unwrap().suspicion().unwrap();
    log.lessor.arrived(a);
    log.look(3_100);
    assert_eq!(log.lessor.answer(a, at(3_050)), Verdict::Acknowledge);
    log.look(6_100);
    let refused = log.apply(9_000, Command::Expire { session: a, suspicion: first.at }).outcome.unwrap_err();
    assert!(matches!(refused.why, Refused::SuspicionMovedOn { latest: Some(_), .. }), "{refused:?}");
}

#[test]
fn p02_renewal_acknowledged_while_the_suspicion_is_in_flight() {
    let (mut log, a) = Log::one();
    assert_eq!(log.due(3_000).suspect, [(a, 1)]);
    // Not applied yet: the state says nothing against the session.
    assert_eq!(log.state.session(a).unwrap().suspicion(), None);
    assert_eq!(log.renew(a, 3_010), Verdict::Hold);
    log.apply(3_020, suspect(a, 1));
    assert_eq!(log.lessor.answer(a, at(3_010)), Verdict::Hold);
    assert_eq!(log.due(3_030).clear, [a]);
    log.apply(3_040, clear(a));
    assert_eq!(log.lessor.answer(a, at(3_010)), Verdict::Acknowledge);
}

#[test]
fn p02_a_renewal_that_waits_for_its_round_forbids_a_suspicion() {
    let (mut log, a) = Log::one();
    log.lessor.arrived(a);
    assert_eq!(log.due(3_500), LeasesDue::default());
    // The round failed; the holder was told nothing.
    log.lessor.dropped(a);
    assert_eq!(log.due(3_600).suspect, [(a, 1)]);
}

#[test]
fn p02_a_clear_that_applies_below_a_later_suspicion_does_not_take_it_back() {
    let (mut log, a) = Log::one();
    // No quorum for a while: the fate of what is proposed is unknown.
    assert_eq!(log.due(3_000).suspect, [(a, 1)]);
    log.lessor.arrived(a);
    assert_eq!(log.due(3_100).clear, [a]);
    log.lessor.dropped(a);
    assert_eq!(log.due(3_200).suspect, [(a, 1)]);
    // The quorum is back, and the three apply in the order in which they were proposed.
    log.apply(8_000, suspect(a, 1));
    log.apply(8_010, clear(a));
    assert_eq!(log.renew(a, 8_015), Verdict::Hold, "the second suspicion is about to be committed");
    log.apply(8_020, suspect(a, 1));
    // A leader elected now would give the session two thirds of its TTL.
    assert_eq!(log.lessor.answer(a, at(8_015)), Verdict::Hold);
    log.look(8_030);
    assert_eq!(log.lessor.answer(a, at(8_015)), Verdict::Acknowledge);
}

#[test]
fn p02_a_clear_that_never_reached_the_log_costs_another_one() {
    let (mut log, a) = Log::one();
    log.look(3_000);
    log.lessor.arrived(a);
    assert_eq!(log.due(3_100).clear, [a]);
    log.lessor.dropped(a);
    log.look(6_000);
    assert_eq!(log.renew(a, 6_050), Verdict::Hold);
    for (now, then) in [(6_100, Verdict::Hold), (6_200, Verdict::Acknowledge)] {
        assert_eq!(log.look(now).clear, [a]);
        assert_eq!(log.lessor.answer(a, at(6_050)), then);
    }
}

#[test]
fn p02_a_clear_that_somebody_else_proposed_takes_no_mark_away() {
    let (mut log, a) = Log::one();
    assert_eq!(log.due(3_000).suspect, [(a, 1)]);
    log.apply(3_010, clear(a));
    assert_eq!(log.renew(a, 3_020), Verdict::Hold);
}

#[test]
fn p06_a_lessor_belongs_to_one_term_and_its_successor_takes_nothing_over() {
    let (mut log, a) = Log::one();
    let first = log.lessor.clone();
    log.lessor.arrived(a);
    log.elect(5_000);
    assert_eq!(log.lessor.term(), Term::new(3));
    // Renewed under term 3; the node that led in term 2 leads again in term 4, and its old deadline would be 9 s.
    assert_eq!(log.renew(a, 8_000), Verdict::Acknowledge);
    log.elect(8_500);
    assert_eq!(first.leases[&a].end(), at(TTL_MS));
    assert_eq!(log.due(9_000), LeasesDue::default());
    assert_eq!(log.until_it_ends(a, 9_000, 30_000), Some(17_500));
    assert!(holder_stops(8_000) < at(17_500));
}

#[test]
fn t28_a_new_leader_counts_a_full_ttl_from_its_own_beginning() {
    let (mut log, a) = Log::one();
    // Renewed 2.9 s ago when the leader died, and the election took 2 s.
    assert_eq!(log.renew(a, 0), Verdict::Acknowledge);
    log.elect(4_900);
    assert_eq!(log.until_it_ends(a, 4_900, 30_000), Some(13_900));
}

#[test]
fn f017_elections_end_no_session_that_goes_on_renewing() {
    let (mut log, a) = Log::one();
    for term in 0..10u64 {
        let began = term * 4_000;
        log.elect(began);
        // The first renewal under each leader comes late: the worker had to find it.
        for now in (began..began + 4_000).step_by(100) {
            if now == began + 3_500 {
                log.lessor.arrived(a);
            }
            log.look(now);
            if now >= began + 3_500 {
                assert_eq!(log.lessor.answer(a, at(began + 3_500)), Verdict::Acknowledge);
            }
        }
        assert!(log.lives(a));
    }
}

#[test]
fn a_renewal_in_the_very_moment_of_the_arming_counts_in_full() {
    let (mut log, a) = Log::one();
    log.look(3_000);
    log.look(6_000);
    log.elect(7_000);
    log.lessor.arrived(a);
    log.look(7_000);
    assert_eq!(log.lessor.answer(a, at(7_000)), Verdict::Acknowledge);
    assert_eq!(log.until_it_ends(a, 7_000, 30_000), Some(16_000));
    assert!(holder_stops(7_000) < at(16_000));
}

#[test]
fn f027_t29_a_dead_session_ends_however_often_leaders_change_as_long_as_they_last_a_third_of_its_ttl() {
    // A TTL of 20 s and a leader change every 8 s, as in the incident; and what leaders that last just longer than a
    // third need.
    for (ttl, lasts) in [(20_000, 8_000), (20_000, 6_800), (20_000, 12_000), (20_000, 21_000)] {
        let (mut log, sessions) = Log::of(&[ttl]);
        let a = sessions[0];
        assert_eq!(log.renew(a, 0), Verdict::Acknowledge);
        let mut began = 0;
        let ended = loop {
            if let Some(ended) = log.until_it_ends(a, began, began + lasts) {
                break ended;
            }
            began += lasts;
            log.elect(began);
        };
        assert!(ended >= ttl && ended <= 2 * ttl, "leaders of {lasts} ms: ended at {ended}");
    }
}

#[test]
fn p13_repeated_elections_thirds_add_up_to_no_more_than_was_measured() {
    let (mut log, a) = Log::one();
    assert_eq!(log.renew(a, 0), Verdict::Acknowledge);
    // The first leader measured 5 s and could say a third of it; 1 s later the second begins.
    log.look(3_000);
    log.elect(6_000);
    assert_eq!(log.look(8_900), LeasesDue::default());
    assert_eq!(log.look(9_000).suspect, [(a, 2)]);
    log.elect(11_000);
    assert_eq!(log.look(13_900), LeasesDue::default());
    assert_eq!(log.look(14_000).expire.len(), 1);
    assert!(holder_stops(0) < at(14_000));
}

#[test]
fn p13_leaders_that_do_not_last_a_third_of_a_ttl_make_no_progress() {
    let (mut log, a) = Log::one();
    for term in 0..30 {
        log.elect(term * 2_900);
        assert_eq!(log.until_it_ends(a, term * 2_900, (term + 1) * 2_900), None);
    }
    assert_eq!(log.state.session(a).unwrap().suspicion(), None);
}

#[test]
fn p13_a_session_suspected_under_an_earlier_leader_has_it_cleared_before_it_is_acknowledged() {
    let (mut log, a) = Log::one();
    log.look(3_000);
    log.elect(4_000);
    assert_eq!(log.renew(a, 4_500), Verdict::Hold);
    assert_eq!(log.look(4_600).clear, [a]);
    assert_eq!(log.lessor.answer(a, at(4_500)), Verdict::Acknowledge);
    assert_eq!(log.until_it_ends(a, 4_600, 30_000), Some(13_500));
}

#[test]
fn p13_what_was_measured_counts_on_when_the_renewal_behind_a_clear_was_never_answered() {
    let (mut log, a) = Log::one();
    log.look(3_000);
    log.elect(4_000);
    log.lessor.arrived(a);
    log.look(4_100);
    log.lessor.dropped(a);
    // Nobody acknowledged anything since 0.
    assert_eq!(log.look(4_200).suspect, [(a, 1)]);
    assert_eq!(log.until_it_ends(a, 4_300, 30_000), Some(10_000));
}

#[test]
fn f002_a_stale_expiry_ends_nobody_who_was_heard_from_since() {
    let (mut log, a) = Log::one();
    log.look(3_000);
    log.look(6_000);
    // The leader of term 2 decides, and is paused before it proposes.
    let (session, suspicion) = log.due(9_000).expire[0];
    log.elect(9_500);
    log.lessor.arrived(a);
    log.look(9_600);
    assert_eq!(log.lessor.answer(a, at(9_550)), Verdict::Acknowledge);
    // It wakes up, and its decision reaches the log all the same.
    assert!(log.apply(12_000, Command::Expire { session, suspicion }).outcome.is_err());
    assert!(log.lives(a));
}

/// Each leader counts on its own clock, which may show anything.
#[test]
fn f034_a_new_leader_whose_clock_is_far_behind_neither_hurries_nor_stands_still() {
    const AHEAD: u64 = 1_000_000_000;
    let (mut log, a) = Log::one();
    let keyspace = *log.state.session(a).unwrap().keyspaces().first().unwrap();
    log.elect(AHEAD);
    assert_eq!(log.renew(a, AHEAD + 2_000), Verdict::Acknowledge);
    log.elect(50);
    let b = log.join_at(4_500, "new", &[keyspace]);
    assert_eq!(log.until_it_ends(a, 50, 30_000), Some(50 + TTL_MS));
    assert_eq!(
        log.until_it_ends(b, 50 + TTL_MS, 60_000).map(|ended| ended / 100),
        Some((4_500 + TTL_MS) / 100)
    );
    // And back, with a session that lives on.
    let c = log.join_at(20_000, "last", &[keyspace]);
    log.elect(2 * AHEAD);
    assert_eq!(log.renew(c, 2 * AHEAD + 1_000), Verdict::Acknowledge);
    assert_eq!(log.until_it_ends(c, 2 * AHEAD + 1_000, 2 * AHEAD + 30_000), Some(2 * AHEAD + 1_000 + TTL_MS));
}

/// A plan that takes for ever, or a machine that stands still: the renewals of those who live wait at the door.
#[test]
fn f087_a_leader_that_could_not_look_for_five_ttls_expires_nobody_whose_renewal_waits() {
    for waits in [false, true] {
        let (mut log, a) = Log::one();
        assert_eq!(log.renew(a, 1_000), Verdict::Acknowledge);
        let later = 1_000 + 5 * TTL_MS;
        let first = log.look(later);
        assert_eq!((first.suspect, first.expire), (vec![(a, 2)], vec![]), "nobody ends at the first look");
        if waits {
            log.lessor.arrived(a);
        }
        log.look(later + 20);
        log.look(later + 40);
        assert_eq!(log.lives(a), waits);
    }
}

#[test]
fn f038_a16_each_session_is_judged_by_the_ttl_it_was_granted() {
    let (mut log, sessions) = Log::of(&[30_000, 3_000]);
    for session in &sessions {
        assert_eq!(log.renew(*session, 0), Verdict::Acknowledge);
    }
    assert_eq!(log.until_it_ends(sessions[1], 0, 10_000), Some(3_000));
    assert_eq!(log.until_it_ends(sessions[0], 3_100, 60_000), Some(30_000));
}

#[test]
fn t33_a_session_keeps_its_ttl_when_its_keyspace_gets_a_shorter_one() {
    let (mut log, a) = Log::one();
    let keyspace = *log.state.session(a).unwrap().keyspaces().first().unwrap();
    let change = PolicyChange { ttl: Some(ms(1_000)), ..Default::default() };
    log.apply(0, Command::UpdateKeyspace { keyspace, change });
    log.elect(500);
    assert_eq!(log.until_it_ends(a, 500, 30_000), Some(9_500));
}

#[test]
fn f054_t38_a_thousand_sessions_armed_in_one_moment_are_suspected_in_one_command() {
    let (mut log, sessions) = Log::of(&vec![TTL_MS; 900]);
    let renewing: BTreeSet<SessionId> = sessions.iter().copied().step_by(10).collect();
    for session in &renewing {
        assert_eq!(log.renew(*session, 1_000), Verdict::Acknowledge);
    }
    let due = log.look(3_000);
    assert_eq!(due.suspect.len(), 810);
    assert!(due.suspect.iter().all(|(session, thirds)| *thirds == 1 && !renewing.contains(session)));
    // All of them come back within one look.
    for session in sessions.iter().filter(|session| !renewing.contains(session)) {
        log.lessor.arrived(*session);
    }
    assert_eq!(log.look(3_100).clear.len(), 810);
    assert_eq!(log.due(3_200), LeasesDue::default());
}

#[test]
fn p05_the_lease_of_a_session_that_was_replaced_runs_from_its_last_renewal() {
    let (mut log, a) = Log::one();
    assert_eq!(log.renew(a, 1_000), Verdict::Acknowledge);
    let keyspace = *log.state.session(a).unwrap().keyspaces().first().unwrap();
    let b = log.join("w0", &[keyspace]);
    assert_ne!(a, b);
    let ttl = ms(TTL_MS);
    assert_eq!(log.lessor.lease_end(a, ttl, at(4_000)), at(10_000));
    assert_eq!(log.renew(a, 4_000), Verdict::Ended);
    // Whoever did not see it counts in full.
    log.elect(5_000);
    assert_eq!(log.lessor.lease_end(a, ttl, at(5_000)), at(14_000));
}

#[test]
fn a_session_is_known_since_this_leader_began_or_saw_it_join() {
    let (mut log, a) = Log::one();
    log.elect(5_000);
    assert_eq!(log.lessor.known_for(a, at(6_000)), Some(ms(1_000)));
    assert_eq!(log.lessor.known_for(SessionId::new(99).unwrap(), at(6_000)), None);
    assert_eq!(log.renew(SessionId::new(99).unwrap(), 6_000), Verdict::Ended);
}
