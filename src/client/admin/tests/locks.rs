//! What is asked about locks, and what is made of the answers.

use super::status;
use crate::ErrorKind;
use crate::admin::{Admin, LockMode, held_for, is_over_alert};
use crate::ids::Epoch;
use crate::net::fake::{Answered, Asked, Fake};
use ringfence_api::{Failure, v1};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

fn wish() -> v1::LockWish {
    v1::LockWish {
        mode: v1::LockMode::Exclusive.into(),
        takeover: v1::Takeover::Fence.into(),
        lock_delay_ms: 1_500,
        alert_after_ms: 60_000,
    }
}

fn holder(worker: &str) -> v1::LockHolder {
    v1::LockHolder {
        worker: worker.into(),
        session: 5,
        address: "10.0.0.1:80\u{1b}[31m".into(),
        epoch: 9,
        wish: Some(wish()),
        granted_index: 40,
        granted_unix_ms: 1_000,
        cooling: None,
    }
}

fn lock(name: &str) -> v1::Lock {
    v1::Lock { name: name.into(), holders: vec![holder("w1")], waiting: 1, held: 1 }
}

#[tokio::test]
async fn locks_are_read_from_all_pieces_and_what_is_odd_is_named() {
    let fake = Fake::start(|asked| match asked {
        Asked::Locks(request) if request.prefix == "n" => Ok(Answered::Locks(vec![
            v1::ListLocksResponse { locks: vec![lock("na"), lock("nb")], now_unix_ms: 70_000 },
            v1::ListLocksResponse { locks: vec![lock("nc")], now_unix_ms: 70_001 },
        ])),
        Asked::Locks(_) => {
            let odd = v1::Lock { holders: vec![v1::LockHolder { epoch: 0, ..holder("w1") }], ..lock("l") };
            Ok(Answered::Locks(vec![v1::ListLocksResponse { locks: vec![odd], now_unix_ms: 1 }]))
        }
        Asked::Lock(request) => {
            let waiter =
                v1::LockWaiter { worker: "w2".into(), session: 6, wish: Some(wish()), since_unix_ms: 2_000 };
            let lock = Some(lock(&request.lock));
            Ok(Answered::Lock(v1::GetLockResponse { lock, queue: vec![waiter], now_unix_ms: 61_000 }))
        }
        _ => Ok(status()),
    })
    .await;
    let admin = Admin::at(fake.endpoint.to_string()).unwrap();
    let list = admin.locks("n").await.unwrap();
    assert_eq!(list.locks.iter().map(|lock| lock.name.as_str()).collect::<Vec<_>>(), ["na", "nb", "nc"]);
    assert_eq!((list.now_unix_ms, list.locks[0].waiting, list.locks[0].held), (70_001, 1, 1));
    let error = admin.locks("").await.unwrap_err();
    let named = error.to_string().contains("locks[0].holders[0].epoch");
    assert!(error.kind() == ErrorKind::Malformed && named, "{error}");
    assert_eq!(admin.locks("No Name").await.unwrap_err().kind(), ErrorKind::Invalid);

    let detail = admin.lock("nightly").await.unwrap();
    assert_eq!(detail.lock.name.as_str(), "nightly");
    assert_eq!((detail.queue[0].worker.as_str(), detail.queue[0].wish.mode()), ("w2", LockMode::Exclusive));
    let holder = &detail.lock.holders[0];
    assert!(!holder.address.contains('\u{1b}'), "foreign text is escaped");
    assert_eq!(held_for(holder, detail.now_unix_ms), Some(Duration::from_secs(60)));
    assert!(is_over_alert(holder, 61_000) && !is_over_alert(holder, 60_999));
    assert_eq!(held_for(holder, 0), Some(Duration::ZERO), "the clock of another leader is behind");
}

#[tokio::test]
async fn f014_a_break_carries_one_request_id_over_its_retries_and_a_dry_run_none() {
    static BROKEN: AtomicUsize = AtomicUsize::new(0);
    let fake = Fake::start(|asked| match asked {
        Asked::Break(request) if request.dry_run => {
            Ok(Answered::Broken(v1::BreakLockResponse { holders: vec![holder("w1")], before: false }))
        }
        Asked::Break(_) => match BROKEN.fetch_add(1, Ordering::SeqCst) {
            0 => Err(Failure::unknown_outcome().into()),
            _ => Ok(Answered::Broken(v1::BreakLockResponse { holders: vec![], before: true })),
        },
        _ => Ok(status()),
    })
    .await;
    let admin = Admin::at(fake.endpoint.to_string()).unwrap().by("ada").because("incident 42");
    let would = admin.plan_break_lock("nightly", None, false).await.unwrap();
    assert_eq!((would.holders[0].worker.as_str(), would.before), ("w1", false));
    let broken = admin.break_lock("nightly", Epoch::new(9).ok(), true).await.unwrap();
    assert!(broken.before && broken.holders.is_empty());
    let asked: Vec<v1::BreakLockRequest> = fake
        .asked()
        .into_iter()
        .filter_map(|asked| if let Asked::Break(request) = asked { Some(request) } else { None })
        .collect();
    assert!(asked[0].request.is_none() && asked[0].directive.is_none() && asked[0].epoch == 0);
    assert!(asked.len() == 3 && asked[1] == asked[2] && asked[1].request.is_some());
    let given = asked[1].directive.as_ref().unwrap();
    assert_eq!((given.by.as_str(), given.reason.as_str()), ("ada", "incident 42"));
    assert!(asked[1].at_once && asked[1].epoch == 9 && !asked[1].dry_run);
    assert_eq!(admin.break_lock("-", None, false).await.unwrap_err().kind(), ErrorKind::Invalid);
}
