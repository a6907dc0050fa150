//! The demo is the safety test that everybody can run, and its own negative control.

use crate::harness::{Slot, run_with};
use serde_json::Value;

const FIELDS: [&str; 12] = [
    "fence",
    "acknowledged_writes",
    "stale_writes_refused",
    "stale_writes_accepted",
    "acknowledged_writes_lost",
    "handoffs",
    "planned_handoff_ms_p99",
    "planned_handoffs",
    "worker_failover_ms",
    "leader_failover_ms",
    "partitions_lost_at_leader_failover",
    "ttl_ms",
];

fn demo(args: &[&str]) -> Value {
    let _slot = Slot::take();
    let shown = run_with(&[], &[&["demo", "-o", "json"], args].concat()).done();
    for field in FIELDS {
        assert!(!shown[field].is_null(), "{field} is missing: {shown}");
    }
    assert_eq!(shown.as_object().unwrap().len(), FIELDS.len(), "{shown}");
    for field in
        ["acknowledged_writes", "handoffs", "planned_handoffs", "worker_failover_ms", "leader_failover_ms"]
    {
        assert!(shown[field].as_f64().unwrap() > 0.0, "{field}: {shown}");
    }
    assert_eq!(shown["partitions_lost_at_leader_failover"], 0, "{shown}");
    shown
}

#[test]
fn demo_with_the_fence_b33_t51_t56_refuses_what_is_stale_and_loses_nothing() {
    let shown = demo(&[]);
    assert_eq!(shown["fence"], true);
    assert_eq!(shown["stale_writes_accepted"], 0, "{shown}");
    assert_eq!(shown["acknowledged_writes_lost"], 0, "{shown}");
    assert!(shown["stale_writes_refused"].as_u64() > Some(0), "the pause did not bite: {shown}");
}

#[test]
fn demo_without_the_fence_b33_t57_takes_what_is_stale() {
    let shown = demo(&["--no-fence"]);
    assert_eq!(shown["fence"], false);
    assert_eq!(shown["stale_writes_refused"], 0, "{shown}");
    assert!(shown["stale_writes_accepted"].as_u64() > Some(0), "the pause did not bite: {shown}");
}
