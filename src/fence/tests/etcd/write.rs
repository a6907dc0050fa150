//! The user's own transaction within the fence's: what it answers, and what happens when it cannot be done.

use crate::server::{available, until};
use crate::subject::{Fenced, token};
use nix::sys::signal::Signal;
use ringfence_fence::etcd::{
    Compare, Delete, EtcdConnection, EtcdError, EtcdKv, Get, Is, Op, OpReply, Put, Target, Txn, TxnReply,
};
use ringfence_fence::{FenceErrorKind, FencingToken};
use std::slice::from_ref;
use std::sync::Arc;
use std::time::Duration;
use tonic::transport::Endpoint;

#[test]
fn the_answer_is_that_of_the_user_s_transaction_and_a_failed_compare_of_theirs_is_no_refusal() {
    if !available() {
        return;
    }
    let mut db = Fenced::new();
    let owner = token("prod/orders/17@5");
    db.raise(&owner).unwrap();
    db.client.put("stock", "3");
    let take = Txn::new()
        .when(Compare::value_is("stock", "3"))
        .when(Compare::new("stock", Is::Greater, Target::Modified(1)))
        .then(Put { key: "stock".into(), value: "2".into(), prev: true, ..Put::default() })
        .get("stock")
        .then(Txn::new().when(Compare::is_absent("log")).put("log", "taken"))
        .delete("nothing")
        .otherwise(Get { key: "stock".into(), ..Get::default() });
    let reply = db.write(from_ref(&owner), &take).unwrap();
    assert!(reply.succeeded);
    let [
        OpReply::Put(Some(before)),
        OpReply::Get { pairs, count: 1, .. },
        OpReply::Txn(inner),
        OpReply::Delete { deleted: 0, .. },
    ] = reply.replies.as_slice()
    else {
        panic!("{reply:?}")
    };
    assert_eq!((before.value.as_slice(), pairs[0].value.as_slice()), (b"3".as_slice(), b"2".as_slice()));
    assert!(inner.succeeded && pairs[0].modified == reply.header.revision);

    let reply = db.write(from_ref(&owner), &take).unwrap();
    assert!(!reply.succeeded);
    let [OpReply::Get { pairs, .. }] = reply.replies.as_slice() else { panic!("{reply:?}") };
    assert_eq!(pairs[0].value, b"2");

    // A second branch that writes.
    let either = Txn::new().when(Compare::value_is("stock", "3")).otherwise(Txn::new().put("stock", "9"));
    let reply = db.write(from_ref(&owner), &either).unwrap();
    assert!(!reply.succeeded);
    assert_eq!(db.client.get("stock").as_deref(), Some("9"));
    db.raise(&token("prod/orders/17@6")).unwrap();
    db.client.put("stock", "8");
    assert_eq!(db.write(from_ref(&owner), &either).unwrap_err().kind(), FenceErrorKind::Fenced);
    assert_eq!(db.client.get("stock").as_deref(), Some("8"));
}

#[test]
fn what_cannot_be_done_is_unfit_and_nothing_is_written() {
    if !available() {
        return;
    }
    let mut db = Fenced::new();
    let owner = token("prod/orders/17@5");
    db.raise(&owner).unwrap();
    let before = db.client.all("").len();
    let fence = db.fence.key(owner.scope());
    let many = (0..129).fold(Txn::new(), |txn, n| txn.put(format!("k{n}"), "v"));
    let everything = Delete { key: vec![0], end: vec![0], prev: false };
    for (write, why) in [
        (Txn::new().put("first", "x").put(fence.clone(), "x"), "the fence's own"),
        (Txn::new().put("first", "x").otherwise(Txn::new().delete("ringfence/store")), "the fence's own"),
        (Txn::new().put("first", "x").then(everything), "the fence's own"),
        (Txn::new().put("first", "x").put("first", "y"), "duplicate key"),
        (many, "too many operations"),
        (Txn::new().put("first", "x").then(Put { key: "l".into(), lease: 77, ..Put::default() }), "lease"),
        (
            Txn::new().put("first", "x").then(Get { key: "k".into(), revision: 1 << 40, ..Get::default() }),
            "future",
        ),
        (Txn::new().put("first", vec![b'x'; 1_600_000]), "too large"),
        (Txn::new().put("first", vec![b'x'; 3 << 20]), "too large"),
    ] {
        let error = db.write(from_ref(&owner), &write).unwrap_err();
        assert_eq!(error.kind(), FenceErrorKind::Unfit, "{why}: {error}");
        assert!(error.to_string().contains(why), "{why}: {error}");
    }
    assert_eq!(db.client.all("").len(), before);
    // A read of it is the user's own affair.
    db.write(from_ref(&owner), &Txn::new().get(fence)).unwrap();
}

#[test]
fn t13_sixty_three_scopes_fit_into_a_write_and_more_are_unfit() {
    if !available() {
        return;
    }
    let mut db = Fenced::new();
    let tokens = |count: u32| -> Vec<FencingToken> {
        (0..count).map(|n| token(&format!("prod/orders/{n}@5"))).collect()
    };
    db.client.with(async |etcd| db.fence.raise_all(etcd, &tokens(63)).await).unwrap();
    db.raise(&token("prod/orders/63@5")).unwrap();
    db.write(&tokens(63), &Txn::new().put("k", "v")).unwrap();
    let error = db.write(&tokens(64), &Txn::new().put("k", "w")).unwrap_err();
    assert_eq!(error.kind(), FenceErrorKind::Unfit);
    assert!(error.to_string().contains("too many operations"), "{error}");
    // One of them moved: none of it is written.
    db.raise(&token("prod/orders/62@6")).unwrap();
    assert_eq!(db.write(&tokens(63), &Txn::new().put("k", "x")).unwrap_err().kind(), FenceErrorKind::Fenced);
    assert_eq!(db.client.get("k").as_deref(), Some("v"));
}

#[test]
fn a_connection_that_breaks_during_a_write_leaves_it_unknown_and_an_absent_server_is_busy() {
    if !available() {
        return;
    }
    let mut db = Fenced::new();
    let owner = token("prod/orders/17@5");
    db.raise(&owner).unwrap();
    db.set(&owner, "before").unwrap();
    db.server.kill();
    let error = db.set(&owner, "v").unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (FenceErrorKind::Store, false), "{error}");
    // Not even connected: nothing was sent.
    let error = db.set(&owner, "v").unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (FenceErrorKind::Busy, true), "{error}");
    db.server.start_again();
    db.set(&owner, "after").unwrap();
}

#[test]
fn a_time_limit_that_passes_during_a_write_leaves_it_unknown_and_it_may_take_effect() {
    if !available() {
        return;
    }
    let mut db = Fenced::new();
    let owner = token("prod/orders/17@5");
    db.raise(&owner).unwrap();
    let endpoint = Endpoint::from_shared(db.server.address()).unwrap().timeout(Duration::from_millis(200));
    let mut impatient = crate::server::Client::of(EtcdConnection::over([endpoint]).unwrap());
    let fence = db.fence.clone();
    let mut write = |value: &str| {
        let txn = Txn::new().put("late", value);
        impatient.with(async |etcd| fence.write(etcd, from_ref(&owner), &txn).await)
    };
    write("before").unwrap();
    db.server.signal(Signal::SIGSTOP);
    let error = write("after").unwrap_err();
    db.server.signal(Signal::SIGCONT);
    assert_eq!((error.kind(), error.is_retryable()), (FenceErrorKind::Store, false), "{error}");
    // It was sent, and is found in the socket by the server that goes on; etcd may drop it for its passed limit.
    until("the server answers again", || db.client.get("late").is_some());
    assert!(matches!(db.client.get("late").as_deref(), Some("before" | "after")));
}

fn puts_k(txn: &Txn) -> bool {
    txn.then.iter().any(|op| match op {
        Op::Put(put) => put.key == b"k",
        Op::Txn(inner) => puts_k(inner),
        _ => false,
    })
}

/// A connection on which a transaction that puts `k` gets stuck on its way.
struct Stuck(EtcdConnection, Option<Txn>);

impl EtcdKv for Stuck {
    async fn connection(&mut self) -> Result<u64, EtcdError> {
        self.0.connection().await
    }

    async fn txn(&mut self, txn: Txn) -> Result<TxnReply, EtcdError> {
        if puts_k(&txn) {
            self.1 = Some(txn);
            return Err(EtcdError::Unknown(Arc::new(std::io::Error::from(std::io::ErrorKind::TimedOut))));
        }
        self.0.txn(txn).await
    }
}

/// An unknown write may come late, but never after the next owner has raised.
#[test]
fn t04_a_write_that_was_stuck_on_its_way_is_refused_when_the_next_owner_has_raised() {
    if !available() {
        return;
    }
    let mut db = Fenced::new();
    let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
    db.raise(&old).unwrap();
    db.set(&old, "33").unwrap();
    // What the fence sends for a write, held back: as it comes while nobody else has raised, and as it comes too late.
    for (late, next) in [("33, in time", None), ("33, late", Some(&new))] {
        let (fence, owner) = (db.fence.clone(), old.clone());
        let (told, stuck) = db.client.with(async |etcd| {
            let mut wire = Stuck(etcd.clone(), None);
            let told = fence.write(&mut wire, from_ref(&owner), &Txn::new().put("k", late)).await;
            (told, wire.1)
        });
        assert_eq!(told.unwrap_err().kind(), FenceErrorKind::Store);
        if let Some(next) = next {
            db.raise(next).unwrap();
        }
        assert_eq!(db.client.txn(stuck.unwrap()).succeeded, next.is_none());
        assert_eq!(db.client.get("k").as_deref(), Some("33, in time"));
    }
}

#[test]
fn f075_a_store_that_is_full_takes_nothing_and_remembers_nothing() {
    if !available() {
        return;
    }
    let mut db = Fenced::new();
    let (owner, next) = (token("prod/orders/17@5"), token("prod/orders/17@6"));
    db.raise(&owner).unwrap();
    db.server.kill();
    // Less than it has.
    db.server.start_again_with(&["--quota-backend-bytes", "1"]);
    db.client = db.server.client();
    for error in
        [db.raise(&next).unwrap_err(), db.set(&next, "v").unwrap_err(), db.set(&owner, "v").unwrap_err()]
    {
        // This one refused before it proposed, but a member that finds its quota used up while it applies says the same.
        assert_eq!(error.kind(), FenceErrorKind::Store, "{error}");
        assert!(
            std::error::Error::source(&error).unwrap().to_string().contains("space exceeded"),
            "{error:?}"
        );
    }
    assert_eq!(db.highest(owner.scope()).unwrap(), Some(owner.epoch()));
    assert_eq!(db.client.get("k"), None);
}
