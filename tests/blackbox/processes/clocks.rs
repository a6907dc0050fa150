//! Wall clocks that jump.

use crate::harness::{Cluster, Fleet, KEYSPACE, set_environment};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Debian's place for it. It moves the wall clock of one process; monotonic clocks stay what they are.
const LIBRARY: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1";

#[test]
fn f032_t26_a08_wall_clocks_that_jump_by_an_hour_change_no_owner() {
    if !Path::new(LIBRARY).exists() {
        assert!(std::env::var_os("CI").is_none(), "libfaketime is missing, and CI has to have it");
        eprintln!("SKIPPED: {LIBRARY} is missing (Debian: faketime), so no clock was moved");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let offset = dir.path().join("offset");
    let jump = |to: &str| std::fs::write(&offset, to).unwrap();
    jump("+0\n");
    set_environment(&[
        ("LD_PRELOAD", LIBRARY),
        ("FAKETIME_TIMESTAMP_FILE", offset.to_str().unwrap()),
        ("FAKETIME_NO_CACHE", "1"),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
    ]);
    let cluster = Cluster::dev();
    cluster.create_keyspace(KEYSPACE, 4, "1s");
    let mut fleet = Fleet::of(&cluster, true);
    fleet.start("w1");
    fleet.start("w2");
    fleet.balanced(&["w1", "w2"], 4);
    let owners = cluster.all_ready(KEYSPACE);

    for to in ["+3600\n", "-3600\n"] {
        jump(to);
        // Longer than any lease that the jump could have ended.
        fleet.go_on(Duration::from_millis(2_500));
        fleet.more_acks(20);
        assert_eq!(cluster.owners(KEYSPACE), owners, "the wall clock jumped by {to}");
    }

    // The coordinator's wall clock really is an hour behind: it says so of a grant that is made now.
    let to = if owners[&0].0 == "w1" { "w2" } else { "w1" };
    cluster.acknowledged(&["partition", "move", &format!("{KEYSPACE}/0"), "--to", to, "--wait"]);
    let shown = cluster.acknowledged(&["partition", "show", &format!("{KEYSPACE}/0")]);
    let granted = shown["history"][0]["granted_unix_ms"].as_u64().unwrap();
    let now = u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap();
    assert!(granted < now - 3_000_000, "no clock was moved: granted at {granted}, and it is {now}");
    assert_eq!(fleet.audit(), crate::harness::Audit::default());
}
