//! Stories of traces: what a policy costs, and what it never does.

use super::{Event, Line, MAX_LINE_BYTES, Report, Sample, Simulation, SimulationError, TraceReader};
use crate::placement::Reason;
use crate::state::PolicyChange;
use proptest::prelude::*;
use std::fmt::Write as _;
use std::time::Duration;

const EVERY: Duration = Duration::from_secs(1);

fn replay_every(trace: &str, every: Duration, change: &PolicyChange) -> Result<Report, SimulationError> {
    let mut reader = TraceReader::new();
    let mut lines = trace.lines().filter_map(|line| reader.read(line.as_bytes()).unwrap());
    let Some(Line::Setup(setup)) = lines.next() else { panic!("it begins with the head") };
    let mut simulation = Simulation::new(setup.with(change).unwrap(), every)?;
    for line in lines {
        let Line::Event(at_ms, event) = line else { panic!("one head is enough") };
        simulation.happen(at_ms, event)?;
    }
    simulation.finish()
}

fn replay(trace: &str) -> Report {
    replay_every(trace, EVERY, &PolicyChange::default()).unwrap()
}

/// A head with these fields, and workers `w0`, `w1`, ... that are there from the beginning.
fn of(fields: &str, workers: u32) -> String {
    let mut trace = format!("{{\"keyspace\": \"orders\", {fields}}}\n");
    (0..workers).for_each(|worker| push(&mut trace, 0, "join", &format!("\"worker\": \"w{worker}\"")));
    trace
}

fn push(trace: &mut String, at_ms: u64, event: &str, fields: &str) {
    let comma = if fields.is_empty() { "" } else { ", " };
    writeln!(trace, "{{\"at_ms\": {at_ms}, \"event\": \"{event}\"{comma}{fields}}}").unwrap();
}

fn moves(report: &Report) -> Vec<(&str, u64)> {
    report.totals.moves.iter().map(|(reason, moves)| (*reason, *moves)).collect()
}

/// What a join costs at the least is the new worker's share.
#[test]
fn a_worker_that_joins_gets_its_share_and_nothing_else_moves() {
    let mut trace = of("\"partitions\": 100", 9);
    push(&mut trace, 60_000, "join", "\"worker\": \"new\"");
    let report = replay(&trace);
    assert_eq!(moves(&report), [("first", 100), ("join", 10)]);
    let totals = &report.totals;
    assert_eq!((totals.max_moves_of_a_partition, totals.at_rest), (1, true));
    let last = report.samples.last().unwrap();
    assert_eq!((last.spread, last.workers, last.in_flight, last.ownerless), (0, 10, 0, 0));
    assert_eq!(last.imbalance_permille, Some(1_000));
    assert!(totals.out_of_balance_ms >= 500, "it waits for the members to settle: {totals:?}");
}

#[test]
fn steady_members_cause_no_move_in_a_day() {
    let mut trace = of("\"partitions\": 1000", 7);
    push(&mut trace, 86_400_000, "end", "");
    let report = replay_every(&trace, Duration::from_secs(600), &PolicyChange::default()).unwrap();
    assert_eq!(moves(&report), [("first", 1_000)]);
    assert_eq!((report.totals.out_of_balance_ms, report.totals.ownerless_partition_ms), (0, 0));
    assert_eq!(report.samples.len(), 145);
    assert!(report.samples[1..].iter().all(|sample| sample.moves.is_empty()));
}

#[test]
fn the_same_trace_gives_the_same_report() {
    let trace = include_str!("../../../examples/rollout.jsonl");
    assert_eq!(replay(trace), replay(trace));
}

#[test]
fn budget_and_rate_bound_what_begins_and_a_policy_can_be_compared_with_another() {
    let mut trace = of("\"partitions\": 400, \"load_ms\": 700, \"max_moves_in_flight\": 3", 4);
    push(&mut trace, 10_000, "join", "\"worker\": \"new\"");
    let slow = PolicyChange { moves_per_minute: Some(20), ..Default::default() };
    let slow = replay_every(&trace, EVERY, &slow).unwrap();
    assert_eq!(moves(&slow), [("first", 400), ("join", 80)]);
    assert_eq!(slow.totals.max_in_flight, 3);
    let begun: Vec<u64> = slow.samples[1..].iter().map(|sample| sample.moves.values().sum()).collect();
    assert!(begun.windows(60).all(|minute| minute.iter().sum::<u64>() <= 20), "{begun:?}");
    assert!(
        slow.totals.out_of_balance_ms > 180_000,
        "three minutes are not enough for 80: {:?}",
        slow.totals
    );

    let quick = PolicyChange { max_moves_in_flight: Some(40), ..Default::default() };
    let quick = replay_every(&trace, EVERY, &quick).unwrap();
    assert_eq!((moves(&quick), quick.totals.max_in_flight), (moves(&slow), 40));
    assert!(quick.totals.out_of_balance_ms < 10_000, "{:?}", quick.totals);
    // Control: without the bound on a minute the same trace breaks it.
    let unbound = replay(&trace);
    let begun: Vec<u64> = unbound.samples[1..].iter().map(|sample| sample.moves.values().sum()).collect();
    assert!(begun.len() < 60 && begun.iter().sum::<u64>() > 20, "{begun:?}");
}

fn with_loads(noise_permille: i64, grows: bool) -> String {
    let mut trace = of("\"partitions\": 60", 5);
    let mut dice = 7_u64;
    for minute in 1..=60_u64 {
        let mut loads = String::new();
        for partition in 0..60_u64 {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let noise = (dice >> 33) as i64 % (2 * noise_permille + 1) - noise_permille;
            let steady = 500 + 40 * (partition % 10) as i64;
            let steady = if grows && partition < 20 && minute > 30 { 5 * steady } else { steady };
            let comma = if partition == 0 { "" } else { ", " };
            write!(loads, "{comma}\"{partition}\": {}", steady * (1_000 + noise) / 1_000).unwrap();
        }
        push(&mut trace, minute * 60_000, "load", &format!("\"loads\": {{{loads}}}"));
    }
    trace
}

#[test]
fn noise_of_a_tenth_in_the_loads_moves_nothing_and_a_load_that_grows_does() {
    let noisy = replay_every(&with_loads(100, false), EVERY * 60, &PolicyChange::default()).unwrap();
    // The first measurements show how uneven it was; what follows is noise.
    let after_the_first = noisy.samples.iter().filter(|sample| sample.at_ms > 180_000);
    assert!(after_the_first.clone().count() > 50);
    assert!(after_the_first.clone().all(|sample| sample.moves.is_empty()), "{:?}", noisy.totals);

    let grown = replay_every(&with_loads(100, true), EVERY * 60, &PolicyChange::default()).unwrap();
    let late = grown.samples.iter().filter(|sample| sample.at_ms > 1_800_000);
    let late: u64 = late.filter_map(|sample| sample.moves.get("load")).sum();
    assert!(late > 0, "{:?}", grown.totals);
    assert!(grown.totals.at_rest);
}

#[test]
fn a_drain_empties_and_the_worker_then_leaves_nothing_behind() {
    let mut trace = of("\"partitions\": 90", 3);
    push(&mut trace, 5_000, "drain", "\"worker\": \"w1\"");
    push(&mut trace, 60_000, "leave", "\"worker\": \"w1\"");
    let report = replay(&trace);
    assert_eq!(moves(&report), [("drain", 30), ("first", 90)]);
    assert_eq!(report.totals.ownerless_partition_ms, 0);
}

#[test]
fn a_failure_costs_a_ttl_or_with_takeover_by_fence_the_grace() {
    let mut trace = of("\"partitions\": 40, \"ttl_ms\": 6000", 4);
    push(&mut trace, 10_000, "fail", "\"worker\": \"w2\"");
    let lease = replay(&trace);
    assert_eq!(moves(&lease), [("failover", 10), ("first", 40)]);
    assert_eq!(lease.totals.ownerless_partition_ms, 10 * 6_000);
    let gone = lease.samples.iter().find(|sample| sample.at_ms == 12_000).unwrap();
    assert_eq!((gone.ownerless, gone.workers), (10, 3));
    let fence = trace.replace("\"ttl_ms\"", "\"takeover\": \"fence\", \"ttl_ms\"");
    let fence = replay(&fence);
    assert_eq!(moves(&fence), [("failover", 10), ("first", 40)]);
    assert_eq!(fence.totals.ownerless_partition_ms, 10 * 200);
}

#[test]
fn many_failures_at_once_are_repaired_at_the_budget() {
    let mut trace = of("\"partitions\": 600, \"max_moves_in_flight\": 5, \"load_ms\": 100", 6);
    (0..4).for_each(|worker| push(&mut trace, 20_000, "fail", &format!("\"worker\": \"w{worker}\"")));
    let report = replay_every(&trace, Duration::from_millis(100), &PolicyChange::default()).unwrap();
    assert_eq!(report.totals.moves["failover"], 400);
    let most = report.samples.iter().filter(|sample| sample.at_ms > 20_000).map(|sample| sample.loading);
    assert!(most.max().unwrap() <= 6, "the brake is on");
    assert_eq!(report.samples.last().unwrap().ownerless, 0);
}

#[test]
fn a_worker_that_comes_back_before_its_lease_ran_out_waits_for_it() {
    let mut trace = of("\"partitions\": 10", 2);
    push(&mut trace, 10_000, "fail", "\"worker\": \"w0\"");
    push(&mut trace, 13_000, "join", "\"worker\": \"w0\"");
    let report = replay(&trace);
    assert_eq!(report.totals.ownerless_partition_ms, 5 * 10_000, "{:?}", report.totals);
    assert_eq!(report.samples.last().unwrap().spread, 0);
}

#[test]
fn pins_freezes_labels_and_orders_are_obeyed() {
    let mut trace = of("\"partitions\": 12, \"cool_down_ms\": 20000, \"labels\": [\"!spot\"]", 3);
    push(&mut trace, 0, "join", "\"worker\": \"cheap\", \"labels\": {\"spot\": \"yes\"}");
    push(&mut trace, 5_000, "freeze", "");
    push(&mut trace, 6_000, "join", "\"worker\": \"w3\"");
    push(&mut trace, 20_000, "unfreeze", "");
    push(&mut trace, 40_000, "pin", "\"partition\": 3, \"worker\": \"w0\"");
    push(&mut trace, 50_000, "pin", "\"partition\": 3, \"worker\": \"w1\"");
    push(&mut trace, 60_000, "unpin", "\"partition\": 3");
    let report = replay(&trace);
    let began = |from: u64, to: u64| -> u64 {
        let samples = report.samples.iter().filter(|s| (from..to).contains(&s.at_ms));
        samples.flat_map(|sample| sample.moves.values()).sum()
    };
    assert_eq!((began(1_000, 20_000), began(20_000, 40_000)), (0, 3), "{:?}", report.totals);
    assert!(report.totals.moves["pin"] >= 1, "{:?}", report.totals);
    assert!(report.samples.last().unwrap().spread <= 1 && report.totals.at_rest);

    assert_eq!(report.samples.last().unwrap().workers, 5);
}

#[test]
fn what_an_operator_moved_is_balanced_away_when_it_has_cooled_down() {
    let moved_at = |cool_down_ms: u64| {
        let mut trace = of(&format!("\"partitions\": 2, \"cool_down_ms\": {cool_down_ms}"), 2);
        push(&mut trace, 1_000, "pin", "\"partition\": 0, \"worker\": \"w0\"");
        push(&mut trace, 5_000, "move", "\"partition\": 1, \"worker\": \"w0\"");
        // It is there already: that is no move.
        push(&mut trace, 6_000, "move", "\"partition\": 1, \"worker\": \"w0\"");
        let report = replay(&trace);
        assert_eq!((report.totals.moves["operator"], report.totals.moves_refused), (1, 0), "{report:?}");
        let late = |s: &Sample| s.at_ms > 5_000 && s.moves.contains_key("balance");
        report.samples.into_iter().find(late).unwrap().at_ms
    };
    // From when it has arrived: releasing it takes a moment.
    assert_eq!((moved_at(2_000), moved_at(20_000)), (7_030, 25_030));
}

#[test]
fn a_move_that_cannot_be_made_is_counted() {
    let mut trace = of("\"partitions\": 4", 2);
    push(&mut trace, 5_000, "fail", "\"worker\": \"w0\"");
    // When its connection was lost for long enough to be missed.
    push(&mut trace, 6_000, "move", "\"partition\": 0, \"worker\": \"w0\"");
    assert_eq!(replay(&trace).totals.moves_refused, 1);
}

#[test]
fn zones_share_evenly_and_a_lost_zone_shows() {
    let mut trace = of("\"partitions\": 90", 0);
    for (worker, zone) in [("a1", "a"), ("a2", "a"), ("b1", "b"), ("b2", "b"), ("c1", "c"), ("c2", "c")] {
        push(&mut trace, 0, "join", &format!("\"worker\": \"{worker}\", \"zone\": \"{zone}\""));
    }
    push(&mut trace, 30_000, "weight", "\"worker\": \"a1\", \"weight\": 3");
    let report = replay(&trace);
    assert!(report.samples.iter().any(|sample| sample.zone_spread > 1), "until the weights are met");
    let last = report.samples.last().unwrap();
    assert!(last.zone_spread <= 1 && last.zone_violations == 0, "{last:?}");
    assert!(report.totals.moves["weight"] > 0);
}

#[test]
fn an_interval_has_to_be_one_and_not_too_short() {
    let mut trace = of("\"partitions\": 1", 1);
    push(&mut trace, 1_000_000, "end", "");
    let none = PolicyChange::default();
    assert_eq!(replay_every(&trace, Duration::ZERO, &none), Err(SimulationError::NoInterval));
    let short = replay_every(&trace, Duration::from_millis(1), &none);
    assert!(matches!(short, Err(SimulationError::TooManySamples { .. })), "{short:?}");
}

#[test]
fn every_reason_to_move_has_a_name_of_its_own() {
    // Those of the planner that are not repairs stand in a report under the name of their variant.
    let planned = Reason::ALL.into_iter().filter(|reason| !reason.is_repair());
    let names: Vec<String> = planned.map(|reason| format!("{reason:?}").to_lowercase()).collect();
    assert_eq!(names, ["pin", "drain", "label", "join", "weight", "zone", "load", "balance"]);
}

fn refused(lines: &[&str]) -> String {
    let mut reader = TraceReader::new();
    let (last, before) = lines.split_last().unwrap();
    before.iter().for_each(|line| drop(reader.read(line.as_bytes()).unwrap()));
    reader.read(last.as_bytes()).expect_err(last).to_string()
}

#[test]
fn what_cannot_be_meant_is_refused_with_its_place_and_what_is_expected() {
    let head = "{\"keyspace\": \"orders\", \"partitions\": 8}";
    let join = "{\"at_ms\": 5, \"event\": \"join\", \"worker\": \"w1\"}";
    for (lines, message) in [
        (&["{}"] as &[&str], "line 1, column 1: field `keyspace` is missing"),
        (&["[]"], "line 1, column 1: expected an object {...}, and found a list"),
        (
            &["", "{\"keyspace\": \"orders\""],
            "line 2, column 22: expected a `,` or the `}` of the object, and the line ends",
        ),
        (&["{\"keyspace\": \"Orders\", \"partitions\": 8}"], "line 1, column 14: field `keyspace`: "),
        (
            &["{\"keyspace\": \"orders\", \"partitions\": 1000001}"],
            "column 38: field `partitions`: 1000001 is not a number of partitions",
        ),
        (&["{\"keyspace\": \"orders\", \"partitions\": 8, \"ttl_ms\": 1}"], "ttl 1ms is out of bounds"),
        (
            &["{\"keyspace\": \"orders\", \"partitions\": 8, \"load_ms\": 0}"],
            "field `load_ms`: 0 is out of bounds: it is 1 to 3600000",
        ),
        (
            &["{\"keyspace\": \"orders\", \"partitions\": 8, \"balnce\": true}"],
            "column 41: unknown field \"balnce\": the head of a trace has keyspace, partitions,",
        ),
        (
            &["{\"keyspace\": \"orders\", \"partitions\": 8, \"takeover\": \"never\"}"],
            "\"never\" is not lease or fence",
        ),
        (
            &["{\"keyspace\": \"orders\", \"partitions\": 8, \"labels\": [\"=x\"]}"],
            "field `labels`: \"=x\" is not a label",
        ),
        (&[head, "{\"event\": \"join\"}"], "line 2, column 1: field `at_ms` is missing"),
        (
            &[head, "{\"at_ms\": 1, \"event\": \"jion\"}"],
            "column 23: unknown event \"jion\": expected one of join, leave,",
        ),
        (
            &[head, "{\"at_ms\": 1.5, \"event\": \"join\"}"],
            "column 11: expected a whole number from 0, and found 1.5",
        ),
        (
            &[head, "{\"at_ms\": \"1\", \"event\": \"end\"}"],
            "field `at_ms`: expected a whole number from 0, and found a text",
        ),
        (&[head, "{\"at_ms\": 99999999999999, \"event\": \"end\"}"], "a trace lasts at most 366 days"),
        (
            &[head, join, "{\"at_ms\": 4, \"event\": \"end\"}"],
            "line 3, column 11: field `at_ms`: 4 is before 5",
        ),
        (&[head, join, join], "field `worker`: w1 is there already"),
        (
            &[head, "{\"at_ms\": 1, \"event\": \"leave\", \"worker\": \"w9\"}"],
            "there is no worker w9: it has to join first",
        ),
        (
            &[
                head,
                join,
                "{\"at_ms\": 6, \"event\": \"fail\", \"worker\": \"w1\"}",
                "{\"at_ms\": 7, \"event\": \"leave\", \"worker\": \"w1\"}",
            ],
            "w1 has left or failed already",
        ),
        (
            &[head, join, "{\"at_ms\": 6, \"event\": \"weight\", \"worker\": \"w1\", \"weight\": 0}"],
            "field `weight`: 0 is not a weight",
        ),
        (
            &[head, join, "{\"at_ms\": 6, \"event\": \"pin\", \"worker\": \"w1\", \"partition\": 8}"],
            "there is no partition 8: they are 0 to 7",
        ),
        (
            &[head, "{\"at_ms\": 6, \"event\": \"load\", \"loads\": {\"01\": 4}}"],
            "field `loads`: \"01\" is no partition",
        ),
        (
            &[head, "{\"at_ms\": 6, \"event\": \"load\", \"loads\": [4]}"],
            "expected an object {\"PARTITION\": LOAD, ...}, and found a list",
        ),
        (
            &[
                head,
                "{\"at_ms\": 1, \"event\": \"join\", \"worker\": \"w1\", \"zone\": \"a\", \"labels\": {\"zone\": \"b\"}}",
            ],
            "the zone is given twice",
        ),
        (
            &[head, "{\"at_ms\": 1, \"event\": \"freeze\", \"wroker\": \"w1\"}"],
            "unknown field \"wroker\": this event has at_ms, event, worker, partition",
        ),
        (&[head, "{\"at_ms\": 1, \"event\": \"end\"}", join], "nothing may stand after the event `end`"),
    ] {
        let said = refused(lines);
        assert!(said.contains(message), "{lines:?}\n  said: {said}\n  not:  {message}");
    }
    assert!(TraceReader::new().finish().unwrap_err().to_string().contains("the trace is empty"));
    let mut reader = TraceReader::new();
    assert!(reader.read(&vec![b' '; MAX_LINE_BYTES + 1]).unwrap_err().what.contains("longer than"));
    assert_eq!(reader.read(b"{\"\xff").unwrap_err().to_string(), "line 2, column 3: this is not UTF-8");
}

/// One line of a trace in which five workers do anything, each worker only what it can.
fn anything(trace: &mut String, up: &mut [bool; 5], at_ms: u64, (what, worker, partition): (u8, u8, u8)) {
    let (who, there) = (format!("\"worker\": \"w{worker}\""), up[usize::from(worker)]);
    let name = match what {
        0..=2 if there => ["leave", "fail", "fail"][usize::from(what)],
        0..=5 if !there => "join",
        3 => "drain",
        4 | 5 => "undrain",
        6 => "cordon",
        7 | 8 => "uncordon",
        9 => return push(trace, at_ms, "pin", &format!("{who}, \"partition\": {partition}")),
        10 => return push(trace, at_ms, "unpin", &format!("\"partition\": {partition}")),
        11 => return push(trace, at_ms, "move", &format!("{who}, \"partition\": {partition}")),
        12 => return push(trace, at_ms, "weight", &format!("{who}, \"weight\": {}", partition + 1)),
        13 => return push(trace, at_ms, "freeze", &format!("\"partition\": {partition}")),
        14 => return push(trace, at_ms, "unfreeze", &format!("\"partition\": {partition}")),
        _ => {
            let loads = format!("\"loads\": {{\"{partition}\": {}}}", 100 * u32::from(worker));
            return push(trace, at_ms, "load", &loads);
        }
    };
    if matches!(name, "join" | "leave" | "fail") {
        up[usize::from(worker)] = name == "join";
    }
    push(trace, at_ms, name, &who);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Nothing that a leader proposes is refused, which a debug build checks, and the world comes to rest.
    #[test]
    fn whatever_happens_bounds_hold_and_it_comes_to_rest(
        what in prop::collection::vec((0..3_000_u64, (0..16_u8, 0..5_u8, 0..20_u8)), 1..60),
        budget in 1..5_u64,
        release_ms in 1..2_000_u64,
        load_ms in 1..2_000_u64,
        by_fence: bool,
        lock_delay_ms in prop::sample::select(vec![0, 1_500_u64]),
    ) {
        let takeover = if by_fence { "fence" } else { "lease" };
        let fields = format!(
            "\"partitions\": 20, \"max_moves_in_flight\": {budget}, \"release_ms\": {release_ms}, \"load_ms\": {load_ms}, \
             \"takeover\": \"{takeover}\", \"lock_delay_ms\": {lock_delay_ms}, \"ttl_ms\": 2000, \"cool_down_ms\": 5000"
        );
        let (mut trace, mut up, mut at_ms) = (of(&fields, 5), [true; 5], 0);
        let by_operator = what.iter().filter(|(_, (what, ..))| *what == 11).count() as u64;
        for (after, what) in what {
            at_ms += after;
            anything(&mut trace, &mut up, at_ms, what);
        }
        let report = replay_every(&trace, EVERY * 60, &PolicyChange::default()).unwrap();
        let (totals, last) = (&report.totals, report.samples.last().unwrap());
        prop_assert!(totals.at_rest && totals.end_ms < at_ms + 600_000, "{totals:?}\n{trace}");
        prop_assert!(totals.max_in_flight <= budget + by_operator, "{totals:?}\n{trace}");
        prop_assert_eq!(last.workers, up.iter().filter(|up| **up).count());
        // Where somebody takes partitions, nobody waits for an owner.
        let placed = last.ownerless == 0 || last.imbalance_permille.is_none();
        prop_assert!(last.loading == 0 && placed, "{last:?}\n{trace}");
        let counted = report.samples.iter().flat_map(|sample| sample.moves.values()).sum::<u64>();
        prop_assert_eq!(counted, totals.moves.values().sum::<u64>());
    }
}

/// A burst that is over in a second, and after it a load that stays.
fn bursts(balance_by: &str) -> Report {
    let mut trace = of(&format!("\"partitions\": 8, \"balance_by\": \"{balance_by}\""), 2);
    let all: Vec<String> = (0..8).map(|partition| format!("\"{partition}\": 20")).collect();
    push(&mut trace, 0, "load", &format!("\"loads\": {{{}}}", all.join(", ")));
    push(&mut trace, 301_000, "load", "\"loads\": {\"0\": 5000}");
    push(&mut trace, 302_000, "load", "\"loads\": {\"0\": 20}");
    push(&mut trace, 601_000, "load", "\"loads\": {\"0\": 60}");
    push(&mut trace, 900_000, "end", "");
    replay(&trace)
}

#[test]
fn in_a_keyspace_that_balances_by_load_loads_are_measured_and_smoothed_as_a_leader_does_it() {
    let moved = |report: &Report, from: u64, to: u64| {
        let samples = report.samples.iter().filter(|sample| (from..to).contains(&sample.at_ms));
        samples.filter_map(|sample| sample.moves.get("load")).sum::<u64>()
    };
    let measured = bursts("load");
    assert_eq!(moved(&measured, 0, 601_000), 0, "nobody has measured the burst: {:?}", measured.totals);
    assert!(moved(&measured, 606_000, 900_000) > 0, "what stays is seen: {:?}", measured.totals);
    assert_eq!(moved(&measured, 601_000, 606_000), 0, "and not before it was measured");
    assert!(measured.totals.out_of_balance_ms > 0);

    // The same loads as weights count as soon as they are said.
    let weights = bursts("count");
    assert!(moved(&weights, 301_000, 310_000) > 0, "{:?}", weights.totals);
}

#[test]
fn where_loads_are_measured_it_comes_to_rest_when_all_of_them_are_known() {
    let report = replay(&of("\"partitions\": 8, \"balance_by\": \"load\"", 2));
    assert!(report.totals.at_rest, "{:?}", report.totals);
    assert_eq!(moves(&report), [("first", 8)]);
}

#[test]
fn the_head_says_how_the_keyspace_is_run() {
    let mut reader = TraceReader::new();
    let head = "{\"keyspace\": \"k\", \"partitions\": 2, \"takeover\": \"fence\", \"balance\": false, \
                \"spread_zones\": false, \"settle_ms\": 7, \"labels\": [\"!spot\"], \"moves_per_minute\": 9}";
    let Ok(Some(Line::Setup(setup))) = reader.read(head.as_bytes()) else { panic!() };
    assert_eq!(setup.pacing.settle, Duration::from_millis(7));
    let policy = &setup.policy;
    assert_eq!((policy.balance(), policy.spread_zones(), policy.moves_per_minute()), (false, false, 9));
    assert_eq!(policy.constraints().len(), 1);
    assert!(matches!(
        reader.read(b"{\"at_ms\": 3, \"event\": \"end\"}\r\n"),
        Ok(Some(Line::Event(3, Event::End)))
    ));
}
