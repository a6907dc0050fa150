//! Named locks with the real binary: who holds one, who waits, and taking one away.

use crate::cluster::wire::{SECRET, join, workers};
use crate::harness::{Cluster, run, run_into};
use crate::operators::{refused, result};
use ringfence_api::v1;
use ringfence_api::v1::acquire_lock_response::What;
use ringfence_api::v1::lock_service_client::LockServiceClient;
use serde_json::Value;
use tokio::runtime::Runtime;

/// A session that only takes locks, on the wire.
struct Session {
    runtime: Runtime,
    endpoint: String,
    id: u64,
}

impl Session {
    fn open(cluster: &Cluster, worker: &str) -> Session {
        let runtime = Runtime::new().unwrap();
        let endpoint = cluster.endpoints.clone();
        let join = v1::JoinRequest { keyspaces: Vec::new(), ttl_ms: 60_000, ..join(worker, "none") };
        let joined = runtime.block_on(async { workers(&endpoint).await.join(join).await });
        let id = joined.unwrap().into_inner().session;
        Session { runtime, endpoint, id }
    }

    fn acquire(&self, lock: &str, number: u64) -> What {
        let wish = v1::LockWish {
            mode: v1::LockMode::Exclusive.into(),
            takeover: v1::Takeover::Lease.into(),
            lock_delay_ms: 0,
            alert_after_ms: 1,
        };
        let request = v1::AcquireLockRequest {
            session: self.id,
            secret: SECRET.to_vec().into(),
            lock: lock.to_owned(),
            number,
            settled_below: 1,
            wish: Some(wish),
            wait: true,
        };
        let answer = self.runtime.block_on(async {
            LockServiceClient::connect(self.endpoint.clone()).await.unwrap().acquire(request).await
        });
        answer.unwrap().into_inner().what.unwrap()
    }
}

#[test]
fn c27_an_operator_sees_who_holds_a_lock_since_when_and_who_waits_and_takes_it_away() {
    let cluster = Cluster::dev();
    let (a, b) = (Session::open(&cluster, "a"), Session::open(&cluster, "b"));
    let What::Granted(epoch) = a.acquire("nightly", 1) else { panic!("it is free") };
    assert_eq!(b.acquire("nightly", 1), What::Queued(0));
    a.acquire("other", 2);

    let names = |args: &[&str]| -> Vec<String> {
        let list = cluster.run(args).done();
        list.as_array().unwrap().iter().map(|lock| lock["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&["lock", "list"]), ["nightly", "other"]);
    assert_eq!(names(&["lock", "list", "night"]), ["nightly"]);
    assert!(names(&["lock", "list", "x"]).is_empty());
    let show = || cluster.run(&["lock", "show", "nightly"]).done();
    let shown = show();
    let holder = &shown["holders"][0];
    assert_eq!((&holder["worker"], &holder["epoch"]), (&"a".into(), &epoch.into()), "{shown}");
    assert!(holder["held_ms"].is_u64() && holder["over_alert"].is_boolean(), "{shown}");
    assert_eq!((&shown["waiting"], &shown["queue"][0]["worker"]), (&1.into(), &"b".into()), "{shown}");
    let idle = cluster.run(&["lock", "show", "unheard-of"]).done();
    assert_eq!((&idle["held"], &idle["waiting"]), (&0.into(), &0.into()), "{idle}");
    let people = run(&cluster.endpoints, &["lock", "show", "nightly"]).out;
    assert!(
        people.contains("HOLDER") && people.contains("PLACE") && people.contains("exclusive"),
        "{people}"
    );

    // Sessions that only take locks are workers for whom nobody plans.
    let all = cluster.run(&["worker", "list"]).done();
    let told: Vec<_> = all.as_array().unwrap().iter().map(|w| (&w["keyspaces"], &w["locks"])).collect();
    let none = Value::Array(Vec::new());
    assert_eq!(told, [(&none, &2.into()), (&none, &0.into())], "{all}");

    refused(&cluster.run(&["lock", "break", "nightly"]), 2, "usage", "--yes");
    let dry = cluster.run(&["lock", "break", "nightly", "--dry-run"]).done();
    assert_eq!((&dry["result"], &dry["holders"][0]["worker"]), (&"planned".into(), &"a".into()), "{dry}");
    assert_eq!(show()["holders"][0]["cooling"], Value::Null, "nothing was done");
    let another = (epoch + 1_000).to_string();
    let other = cluster.run(&["lock", "break", "nightly", "--epoch", &another, "--yes"]);
    refused(&other, 1, "refused", "not under");
    let own = epoch.to_string();
    let order =
        ["lock", "break", "nightly", "--epoch", &own, "--reason", "its host is gone", "--by", "ada", "--yes"];
    assert_eq!(result(&cluster, &order), "broken");
    let cooling = show();
    assert_eq!(cooling["holders"][0]["cooling"]["lease_ms"], 60_000, "{cooling}");
    refused(&cluster.run(&["lock", "break", "nightly", "--yes"]), 1, "refused", "at once");
    assert_eq!(result(&cluster, &["lock", "break", "nightly", "--at-once", "--yes"]), "broken");
    let next = show();
    assert_eq!((&next["holders"][0]["worker"], &next["waiting"]), (&"b".into(), &0.into()), "{next}");
    assert_eq!(result(&cluster, &["lock", "break", "unheard-of", "--yes"]), "unchanged");

    let said = cluster.run(&["directives"]).done();
    let said: Vec<_> = said.as_array().unwrap().iter().map(|d| (&d["by"], &d["reason"])).collect();
    assert_eq!(said[1], (&"ada".into(), &"its host is gone".into()), "{said:?}");
}

#[test]
fn f105_a_break_whose_answer_cannot_be_written_says_that_it_was_made() {
    let cluster = Cluster::dev();
    let a = Session::open(&cluster, "a");
    a.acquire("x", 1);
    a.acquire("y", 2);
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let said = run_into(&cluster.endpoints, &["lock", "break", "x", "--yes"], full.into());
    assert!(said.code == 1 && said.err.contains("is done, and only the answer"), "{said:?}");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let said = run_into(&cluster.endpoints, &["lock", "break", "y", "--yes"], writer.into());
    assert_eq!((said.code, said.err.as_str()), (0, ""), "{said:?}");
    for lock in ["x", "y"] {
        let shown = cluster.run(&["lock", "show", lock]).done();
        assert!(shown["holders"][0]["cooling"].is_object(), "{shown}");
    }
}
