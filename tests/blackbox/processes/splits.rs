//! A keyspace whose partitions are split while processes own them, stop and die.

use crate::harness::{Audit, Cluster, Fleet, KEYSPACE, Write, wait_for};
use nix::sys::signal::Signal;
use ringfence::FencingToken;
use ringfence::fence::FenceErrorKind;
use ringfence::fence::sqlite::SqliteFence;
use ringfence::ids::{ClusterId, Epoch, KeyspaceName, PartitionId, Scope};
use serde_json::Value;

/// The keyspace as the coordinator shows it: how many partitions, and how many before while they are split.
fn counts(cluster: &Cluster) -> (u64, Option<u64>) {
    let shown = cluster.acknowledged(&["keyspace", "show", KEYSPACE]);
    (shown["partitions"].as_u64().unwrap(), shown["split_from"].as_u64())
}

fn split(cluster: &Cluster) -> Value {
    cluster.run(&["keyspace", "split", KEYSPACE, "--yes", "--by", "ada", "--reason", "it grows"]).done()
}

fn pin(cluster: &Cluster, partition: &str, worker: &str) {
    cluster.run(&["partition", "pin", partition, "--to", worker]).done();
}

/// A worker is stopped after it has stamped a write and before it sends it, and never hears of the split. The partition that
/// it owned goes on under somebody whose store has no fence, so that only the owner of the new partition can refuse it: that
/// one raises the fence of the partition that its keys come from.
#[test]
fn p09_a_writer_that_never_heard_of_the_split_is_refused_for_the_keys_of_both_halves() {
    let cluster = Cluster::dev();
    cluster.create_keyspace(KEYSPACE, 1, "1s");
    let mut fleet = Fleet::of(&cluster, true);
    fleet.start("w1");
    fleet.balanced(&["w1"], 1);
    fleet.stop_after_stamping("w1");
    let stamped = fleet.until("w1 has stamped a write and stops", |fleet| fleet.event("w1", "stopping"));
    let stale = Write::of(&stamped);
    fleet.process("w1").wait_stopped();
    wait_for("its lease has run out", || {
        cluster.owners(KEYSPACE).values().all(|(worker, _, _)| worker.is_empty()).then_some(())
    });

    split(&cluster);
    wait_for("it is split", || (counts(&cluster) == (2, None)).then_some(()));
    pin(&cluster, &format!("{KEYSPACE}/0"), "careless");
    pin(&cluster, &format!("{KEYSPACE}/1"), "w2");
    fleet.file.fenced = false;
    fleet.start("careless");
    wait_for("somebody without a fence owns both", || {
        cluster.all_ready(KEYSPACE).values().all(|(worker, _, _)| worker == "careless").then_some(())
    });
    let highest = |fleet: &Fleet, partition: u32| {
        let fence = SqliteFence::install(&fleet.file.open(), &cluster_id(&cluster)).unwrap();
        fence.highest(&fleet.file.open(), &scope(partition)).unwrap().map(Epoch::get)
    };
    assert_eq!(
        highest(&fleet, 0),
        Some(stale.epoch),
        "nobody has raised it yet: the writer would be accepted"
    );

    fleet.file.fenced = true;
    fleet.start("w2");
    wait_for("the new partition has an owner with a fence", || {
        (cluster.all_ready(KEYSPACE)[&1].0 == "w2").then_some(())
    });
    assert!(highest(&fleet, 0) > Some(stale.epoch) && highest(&fleet, 1) > Some(stale.epoch));

    fleet.process("w1").signal(Signal::SIGCONT);
    let refused = fleet.until("the stale write is answered", |fleet| {
        assert!(!fleet.acks.contains(&stale), "{stale:?} was taken after the split");
        fleet.event("w1", "refused").filter(|body| Write::of(body) == stale)
    });
    assert!(refused["highest"].as_u64().unwrap() > stale.epoch, "{refused}");
    // With the old count every key was partition 0's: any other that it would write it stamps alike.
    let old = FencingToken::new(cluster_id(&cluster), scope(0), Epoch::new(stale.epoch).unwrap());
    let mut conn = fleet.file.open();
    let fence = SqliteFence::install(&conn, old.cluster()).unwrap();
    let late = fence.write(&mut conn, &[old], |_| Ok::<(), ringfence::fence::FenceError>(()));
    assert_eq!(late.unwrap_err().kind(), FenceErrorKind::Fenced);
}

fn cluster_id(cluster: &Cluster) -> ClusterId {
    let status = cluster.acknowledged(&["cluster", "status"]);
    ClusterId::new(status["cluster_id"].as_str().unwrap()).unwrap()
}

fn scope(partition: u32) -> Scope {
    Scope::Partition(KeyspaceName::new(KEYSPACE).unwrap(), PartitionId::new(partition))
}

/// The leader is killed when some are split and some are not.
#[test]
fn p09_a_split_whose_leader_is_killed_is_finished_by_the_next_and_nothing_is_lost() {
    let mut cluster = Cluster::durable(3);
    // Held up halfway by the bound on moves in a minute, of which none is made for balance.
    let create = ["keyspace", "create", KEYSPACE, "--partitions", "12", "--ttl", "3s", "--balance", "false"];
    cluster.acknowledged(&[&create[..], &["--moves-per-minute", "6"]].concat());
    let mut fleet = Fleet::of(&cluster, true);
    fleet.start("w1");
    fleet.start("w2");
    fleet.until("both write all partitions", |fleet| (fleet.writers.len() == 12).then_some(()));
    cluster.all_ready(KEYSPACE);
    split(&cluster);
    let midway = wait_for("it is midway", || Some(counts(&cluster)).filter(|(now, _)| *now > 12));
    assert!(midway.1 == Some(12), "{midway:?}: it is held up by the bound on moves in a minute");
    let cancel = ["keyspace", "split", KEYSPACE, "--cancel"];
    for args in [&cancel[..], &[&cancel[..], &["--dry-run"]].concat()] {
        let ran = cluster.run(args);
        assert!(ran.code == 1 && ran.out.contains("split already"), "{ran:?}");
    }

    let (leader, _) = cluster.leader();
    cluster.node(leader).kill();
    cluster.nodes.remove(&leader);
    cluster.acknowledged(&["keyspace", "update", KEYSPACE, "--moves-per-minute", "0"]);
    wait_for("the next leader finishes it", || (counts(&cluster) == (24, None)).then_some(()));
    cluster.all_ready(KEYSPACE);
    fleet.until("all of them are written", |fleet| (fleet.writers.len() == 24).then_some(()));
    let grants = cluster.acknowledged(&["partition", "history", &format!("{KEYSPACE}/12")]);
    let first = grants.as_array().unwrap().last().unwrap();
    assert!(first["reason"] == "split" && first["directive"]["by"] == "ada", "{grants}");
    assert_eq!(fleet.audit(), Audit::default());
}

#[test]
fn f061_a_number_of_partitions_is_doubled_or_stays_and_the_reason_is_said() {
    let cluster = Cluster::dev();
    cluster.create_keyspace(KEYSPACE, 4, "2s");
    for (asked, part) in
        [("5", "create another keyspace"), ("2", "splitting each in two"), ("8", "keyspace split orders")]
    {
        let ran = cluster.run(&["keyspace", "update", KEYSPACE, "--partitions", asked]);
        assert!(
            ran.code == 1 && ran.json()["error"]["code"] == "refused" && ran.out.contains(part),
            "{ran:?}"
        );
    }
    let mut fleet = Fleet::of(&cluster, true);
    fleet.start("w1");
    fleet.balanced(&["w1"], 4);
    let ran = cluster.run(&["keyspace", "split", KEYSPACE]);
    assert!(ran.code == 2 && ran.out.contains("say --yes"), "nobody can be asked: {ran:?}");
    assert_eq!(cluster.run(&["keyspace", "split", KEYSPACE, "--dry-run"]).done()["result"], "planned");
    assert_eq!(counts(&cluster), (4, None), "nothing was done");

    cluster.run(&["freeze", "keyspace", KEYSPACE]).done();
    assert_eq!(split(&cluster)["result"], "splitting");
    assert_eq!(counts(&cluster), (4, Some(4)));
    // Said again while it goes on, it begins nothing and is no failure.
    for again in [&["--yes"][..], &["--dry-run"]] {
        let again = cluster.run(&[&["keyspace", "split", KEYSPACE][..], again].concat()).done();
        assert_eq!((&again["result"], &again["keyspace"]["split_from"]), (&"unchanged".into(), &4.into()));
    }
    let cancel = ["keyspace", "split", KEYSPACE, "--cancel"];
    assert_eq!(cluster.run(&[&cancel[..], &["--dry-run"]].concat()).done()["result"], "planned");
    assert_eq!(counts(&cluster), (4, Some(4)), "nothing was done");
    assert_eq!(cluster.run(&[&cancel[..], &["--yes"]].concat()).done()["result"], "cancelled");
    assert_eq!(counts(&cluster), (4, None));
    assert_eq!(cluster.run(&cancel).done()["result"], "unchanged");

    cluster.run(&["unfreeze", "keyspace", KEYSPACE]).done();
    let waited = cluster.run(&["keyspace", "split", KEYSPACE, "--yes", "--wait", "40s"]).done();
    assert_eq!((&waited["result"], &waited["keyspace"]["partitions"]), (&"split".into(), &8.into()));
    assert_eq!(counts(&cluster), (8, None));
    assert_eq!(fleet.audit(), Audit::default());
}
