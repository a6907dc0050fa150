//! Workers that are stopped, killed, started again, and started twice.

use crate::harness::{Audit, Cluster, Fleet, KEYSPACE, Write, wait_for};
use nix::sys::signal::Signal;
use ringfence::FencingToken;
use ringfence::fence::FenceErrorKind;
use ringfence::fence::sqlite::SqliteFence;
use ringfence::ids::{ClusterId, Epoch, KeyspaceName, PartitionId, Scope};
use serde_json::Value;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A worker is stopped after it has stamped a write and before it sends it: behind every check of its own, so that only
/// the store can refuse. It is resumed when its successor has written, so that there is somebody to collide with.
/// With `cleanup` the successor goes away too, and the file is tidied as far as that goes. Returns the stale write, and
/// whether it was taken.
fn stopped_past_its_lease(fenced: bool, cleanup: bool) -> (Write, bool, Audit) {
    let cluster = Cluster::dev();
    cluster.create_keyspace(KEYSPACE, 2, "1s");
    let mut fleet = Fleet::of(&cluster, fenced);
    fleet.start("w1");
    fleet.start("w2");
    fleet.balanced(&["w1", "w2"], 2);

    fleet.stop_after_stamping("w1");
    let stamped = fleet.until("w1 has stamped a write and stops", |fleet| fleet.event("w1", "stopping"));
    let stale = Write::of(&stamped);
    fleet.process("w1").wait_stopped();
    let (writer, epoch) = fleet.until("the successor writes under a higher epoch", |fleet| {
        fleet.writers.get(&stale.partition).filter(|(_, epoch)| *epoch > stale.epoch).cloned()
    });
    assert_eq!(writer, "w2");
    assert!(fleet.process("w1").is_stopped(), "it was resumed before its successor wrote");
    assert!(!fleet.acks.contains(&stale), "it was sent before the stop");
    if cleanup {
        assert!(fleet.leave("w2").success());
        fleet
            .file
            .open()
            .execute_batch("VACUUM; PRAGMA wal_checkpoint(TRUNCATE); ANALYZE; REINDEX;")
            .unwrap();
    }

    fleet.process("w1").signal(Signal::SIGCONT);
    let taken = fleet.until("the stale write is answered", |fleet| {
        fleet.event("w1", "resumed")?;
        let refused = fleet.event("w1", "refused").filter(|body| Write::of(body) == stale);
        if let Some(body) = &refused {
            assert!(body["highest"].as_u64().unwrap() >= epoch, "{body}");
        }
        let taken = fleet.acks.contains(&stale);
        (taken || refused.is_some()).then_some(taken)
    });
    if !taken {
        seen_by_operators(&cluster, &stale, &writer);
    }
    // It joins anew and gets its share back.
    fleet.balanced(if cleanup { &["w1"] } else { &["w1", "w2"] }, 2);
    (stale, taken, fleet.audit())
}

/// A refused write means that somebody was paused, and the operator's screens say who, where and by whom it was replaced.
fn seen_by_operators(cluster: &Cluster, stale: &Write, successor: &str) {
    let scope = format!("{KEYSPACE}/{}", stale.partition);
    let told = wait_for("the refused write is told", || {
        let list = cluster.run(&["fence", "refusals", KEYSPACE]).done();
        let is_it = |of: &&Value| of["scope"] == scope && of["own_epoch"] == stale.epoch;
        list["refusals"].as_array().unwrap().iter().find(is_it).cloned()
    });
    assert_eq!(
        (&told["store"], &told["mode"], &told["reporter"]),
        (&"sqlite".into(), &"enforce".into(), &"w1".into())
    );
    assert_eq!((&told["writer"]["worker"], &told["successor"]["worker"]), (&"w1".into(), &successor.into()));
    assert!(
        told["highest_epoch"].as_u64() > Some(stale.epoch) && told["late_ms"].as_u64() > Some(0),
        "{told}"
    );
    let means = told["means"].as_str().unwrap();
    assert!(means.contains("worker w1") && means.contains("refused it"), "{means}");
    let refusals = cluster.run(&["status"]).json()["refusals"].clone();
    assert!(refusals["refused"].as_u64() > Some(0) && refusals["observed"] == 0, "{refusals}");
}

#[test]
fn b30_b03_a07_a17_a18_t51_t53_t56_f009_f016_a_worker_stopped_past_its_lease_is_refused() {
    let (stale, taken, audit) = stopped_past_its_lease(true, false);
    assert!(!taken, "{stale:?} was taken after a newer owner's write");
    assert_eq!(audit, Audit { stale_accepted: 0, lost: 0 });
}

#[test]
fn f001_it_is_refused_also_when_its_successor_is_gone_and_the_file_was_tidied() {
    let (stale, taken, audit) = stopped_past_its_lease(true, true);
    assert!(!taken, "{stale:?} was taken: the evidence against it was tidied away");
    assert_eq!(audit, Audit::default());
}

#[test]
fn b30_b33_t57_the_same_without_the_fence_is_taken() {
    let (_, taken, audit) = stopped_past_its_lease(false, false);
    assert!(taken, "the pause does not bite, so the test with the fence shows nothing");
    assert!(audit.stale_accepted > 0, "{audit:?}");
}

#[test]
fn b31_a15_a_killed_worker_s_partitions_are_taken_over_after_its_lease_and_not_before() {
    const TTL: Duration = Duration::from_secs(3);
    let cluster = Cluster::dev();
    cluster.create_keyspace(KEYSPACE, 4, "3s");
    let mut fleet = Fleet::of(&cluster, true);
    fleet.start("w1");
    fleet.start("w2");
    fleet.balanced(&["w1", "w2"], 4);
    let before = cluster.all_ready(KEYSPACE);

    fleet.process("w1").kill();
    fleet.until("w2 writes all partitions", |fleet| {
        fleet.writers.values().all(|(worker, _)| worker == "w2").then_some(())
    });
    let after = cluster.all_ready(KEYSPACE);

    // As the file has it: no partition of w1 was written by anybody between its last write and the end of its lease.
    // The lease counts from its last renewal, which is a sixth of a TTL old, or older on a machine that is busy.
    let journal = fleet.file.journal();
    for (partition, (worker, epoch, _)) in &before {
        let (_, new_epoch, _) = after[partition];
        if worker == "w2" {
            assert_eq!(new_epoch, *epoch, "partition {partition} was w2's all along");
            continue;
        }
        assert!(new_epoch > *epoch, "partition {partition}: {new_epoch} after {epoch}");
        let at = |of: u64| {
            journal.iter().filter(move |(p, e, _)| (p, *e) == (partition, of)).map(|(_, _, at)| *at)
        };
        let gap = Duration::from_nanos(
            u64::try_from(at(new_epoch).min().unwrap() - at(*epoch).max().unwrap()).unwrap(),
        );
        assert!(gap > TTL / 2, "partition {partition} was taken over {gap:?} after its owner's last write");
    }
    assert_eq!(fleet.process("w2").has_ended(), None);
}

#[test]
fn f013_f059_f083_t54_a_worker_killed_and_started_again_at_once_gets_higher_epochs_and_its_old_token_is_refused()
 {
    const TTL: Duration = Duration::from_secs(2);
    let cluster = Cluster::dev();
    cluster.create_keyspace(KEYSPACE, 3, "2s");
    let mut fleet = Fleet::of(&cluster, true);
    fleet.start("w1");
    fleet.balanced(&["w1"], 3);
    let before = cluster.all_ready(KEYSPACE);
    // A session younger than its TTL is never replaced: that is what tells a restart from a second process.
    wait_for("the session is older than its TTL", || {
        let joined = cluster.run(&["worker", "list"]).done()[0]["joined_unix_ms"].as_u64().unwrap();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        (now > Duration::from_millis(joined) + TTL).then_some(())
    });

    fleet.process("w1").kill();
    fleet.start("w1");
    fleet.until("all partitions are written under higher epochs", |fleet| {
        fleet.writers.iter().all(|(partition, (_, epoch))| *epoch > before[partition].1).then_some(())
    });
    let after = cluster.all_ready(KEYSPACE);
    for (partition, (_, epoch, session)) in &after {
        assert!(*epoch > before[partition].1 && *session > before[partition].2, "{before:?} {after:?}");
    }
    let started: Vec<_> = fleet.events.iter().filter(|(_, kind, _)| kind == "ready").collect();
    assert_eq!(started.len(), 6, "each partition is loaded once by either process: {started:?}");

    // The dead process cannot send what it had stamped, so the test does.
    let cluster_id = cluster.run(&["cluster", "status"]).done()["cluster_id"].as_str().unwrap().to_owned();
    let cluster_id = ClusterId::new(&cluster_id).unwrap();
    let mut conn = fleet.file.open();
    let fence = SqliteFence::install(&conn, &cluster_id).unwrap();
    for (partition, (_, epoch, _)) in before {
        let partition = PartitionId::new(u32::try_from(partition).unwrap());
        let scope = Scope::Partition(KeyspaceName::new(KEYSPACE).unwrap(), partition);
        let token = FencingToken::new(cluster_id.clone(), scope, Epoch::new(epoch).unwrap());
        let refused =
            fence.write(&mut conn, &[token], |_| Ok::<_, ringfence::fence::FenceError>(())).unwrap_err();
        assert_eq!(refused.kind(), FenceErrorKind::Fenced, "{refused}");
    }
    assert_eq!(fleet.audit(), Audit::default());
}

#[test]
fn f059_of_two_processes_with_one_id_exactly_one_lives_and_the_other_ends_with_both_addresses() {
    let cluster = Cluster::dev();
    cluster.create_keyspace(KEYSPACE, 2, "1s");
    let mut fleet = Fleet::of(&cluster, true);
    fleet.start_as("a", "w1");
    fleet.start_as("b", "w1");

    let (loser, error) = fleet.until("one of the two is refused", |fleet| {
        let (name, _, body) = fleet.events.iter().find(|(_, kind, _)| kind == "failed")?;
        Some((name.clone(), body["error"].as_str().unwrap().to_owned()))
    });
    let winner = if loser == "a" { "b" } else { "a" };
    assert_eq!(fleet.process(&loser).ended().code(), Some(1));
    assert!(
        ["w1", "a.test:1", "b.test:1"].iter().all(|name| error.contains(name)),
        "it does not name both: {error}"
    );

    let before = cluster.all_ready(KEYSPACE);
    let acks = fleet.acks.len();
    fleet.go_on(Duration::from_secs(3));
    assert!(fleet.acks.len() > acks, "the one that lives does not write");
    assert_eq!(cluster.all_ready(KEYSPACE), before, "it flaps");
    assert_eq!(fleet.process(winner).has_ended(), None);
    assert!(fleet.acks.iter().all(|ack| before[&ack.partition].1 == ack.epoch), "somebody else wrote");
}
