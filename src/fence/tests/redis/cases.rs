//! Cases that happened to others.

use crate::server::{DURABLE, FORGETFUL, Server, available, command};
use crate::subject::{Fenced, cluster, set, token};
use ringfence_core::ids::{Epoch, SessionId};
use ringfence_fence::redis::{GuardedScript, RedisFence};
use ringfence_fence::{FenceError, FenceErrorKind, FencingToken, MAX_JUMP, ObserveOnly, Observed};
use std::collections::BTreeMap;
use std::slice::from_ref;

#[test]
fn f001_t08_no_clean_up_takes_the_fence_with_it() {
    if !available() {
        return;
    }
    let mut db = Fenced::new();
    let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
    db.raise(&old).unwrap();
    db.set(&old, "33").unwrap();
    // The old writer sleeps. The next one takes over, writes once and goes quiet; then everything is tidied up.
    db.raise(&new).unwrap();
    db.set(&new, "34").unwrap();
    for tidying in [
        "DEL k",
        "SCRIPT FLUSH",
        "BGREWRITEAOF",
        "MEMORY PURGE",
        "CONFIG RESETSTAT",
        "CLIENT KILL TYPE pubsub",
    ] {
        let _: redis::Value = db.client.ask(tidying);
    }
    db.client.until("aof_rewrite_in_progress", "0");
    db.client.with(async |conn| RedisFence::install(conn, &cluster("prod")).await).unwrap();
    match db.set(&old, "33 again") {
        Err(FenceError::Fenced(f)) => assert_eq!((f.own().get(), f.highest().get()), (33, 34)),
        other => panic!("{other:?}"),
    }
    assert!(!db.client.ask::<bool>("EXISTS k"));
}

#[test]
fn f001_t08_an_eviction_is_refused_at_the_start_and_accepts_nobody_when_it_is_switched_on_later() {
    if !available() {
        return;
    }
    let evicting = [DURABLE, &["--maxmemory-policy", "allkeys-lru"]].concat();
    let server = Server::new(&evicting);
    match server.client().with(async |conn| RedisFence::install(conn, &cluster("prod")).await) {
        Err(FenceError::NotDurable { setting, .. }) => assert!(setting.contains("allkeys-lru"), "{setting}"),
        other => panic!("{other:?}"),
    }

    let mut db = Fenced::new();
    let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
    db.raise(&new).unwrap();
    let key = db.fence.key(new.scope());
    db.client.ask::<()>("CONFIG SET maxmemory-policy allkeys-lru");
    db.client.ask::<()>("CONFIG SET maxmemory 1");
    let _ = db.client.try_ask::<redis::Value>(command("SET k v"));
    db.client.ask::<()>("CONFIG SET maxmemory 0");
    assert!(!db.client.ask::<bool>(&format!("EXISTS {key}")), "nothing was evicted, so nothing was tried");
    for stale in [&old, &new] {
        let kind = db.set(stale, "late").unwrap_err().kind();
        assert!(matches!(kind, FenceErrorKind::NotInstalled | FenceErrorKind::NotRaised), "{kind:?}");
        assert_eq!(db.raise(stale).unwrap_err().kind(), FenceErrorKind::NotInstalled);
    }
}

#[test]
fn t08_a_fence_with_a_time_to_live_is_refused_until_somebody_takes_it_off() {
    if !available() {
        return;
    }
    let mut db = Fenced::new();
    let owner = token("prod/orders/17@5");
    db.raise(&owner).unwrap();
    let key = db.fence.key(owner.scope());
    db.client.ask::<()>(&format!("EXPIRE {key} 100000"));
    for error in [db.set(&owner, "v").unwrap_err(), db.raise(&owner).unwrap_err()] {
        assert_eq!(error.kind(), FenceErrorKind::Corrupt);
        assert!(error.to_string().contains("PERSIST"), "{error}");
    }
    db.client.ask::<()>(&format!("PERSIST {key}"));
    db.set(&owner, "v").unwrap();

    db.client.ask::<()>("EXPIRE ringfence:store 100000");
    let error = db.client.with(async |conn| RedisFence::install(conn, &cluster("prod")).await).unwrap_err();
    assert_eq!(error.kind(), FenceErrorKind::Corrupt);
}

#[test]
fn f005_the_default_refuses_and_observing_has_its_own_name() {
    if !available() {
        return;
    }
    let mut db = Fenced::new();
    let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
    db.raise(&new).unwrap();
    assert!(matches!(db.set(&old, "33"), Err(FenceError::Fenced(_))));
    assert!(matches!(db.write(&[], &set("k", "nobody's")), Err(FenceError::Unstamped)));
    let script = GuardedScript::new("return redis.call('SET', 'k', 'nobody')");
    let none: [&str; 0] = [];
    let unstamped = db.client.with(async |conn| db.fence.run(conn, &[], &script, &none, &none).await);
    assert!(matches!(unstamped, Err(FenceError::Unstamped)));
    assert!(!db.client.ask::<bool>("EXISTS k"));

    let answer = db.client.with(async |conn| db.fence.check(conn, from_ref(&old)).await);
    let observing = ObserveOnly::without_refusing(db.fence.clone());
    let seen = observing.observe(|_| answer).unwrap();
    assert!(matches!(seen, Observed::WouldRefuse(FenceError::Fenced(_))));
    assert_eq!(observing.counts().would_refuse, 1);
}

#[test]
fn f042_another_session_under_the_same_epoch_is_refused_and_changes_nothing() {
    if !available() {
        return;
    }
    let mut db = Fenced::new();
    let session = |number| SessionId::new(number).unwrap();
    let mine = token("prod/orders/17@33").held_by(session(u64::MAX));
    let forged = token("prod/orders/17@33").held_by(session(2));
    db.raise(&mine).unwrap();
    let before = everything(&mut db);
    match db.set(&forged, "forged") {
        Err(FenceError::OtherSession { holder, .. }) => assert_eq!(holder, session(u64::MAX)),
        other => panic!("{other:?}"),
    }
    assert_eq!(db.raise(&forged).unwrap_err().kind(), FenceErrorKind::OtherSession);
    assert_eq!(everything(&mut db), before);
    db.set(&mine, "mine").unwrap();
}

#[test]
fn f057_the_store_is_bound_to_a_cluster_at_first_use() {
    if !available() {
        return;
    }
    let mut db = Fenced::new();
    let ours = token("prod/orders/17@5");
    db.raise(&ours).unwrap();
    let before = everything(&mut db);
    match db.client.with(async |conn| RedisFence::install(conn, &cluster("test")).await) {
        Err(FenceError::WrongCluster { presented, bound }) => {
            assert_eq!((presented, bound), (cluster("test"), cluster("prod")));
        }
        other => panic!("{other:?}"),
    }
    let theirs = token("test/orders/17@9");
    assert_eq!(db.raise(&theirs).unwrap_err().kind(), FenceErrorKind::WrongCluster);
    assert_eq!(db.set(&theirs, "t").unwrap_err().kind(), FenceErrorKind::WrongCluster);
    // A fence that was made for another store does not carry its binding over to this one.
    let elsewhere = Fenced::with(DURABLE, RedisFence::options(&cluster("test")));
    let carried = db.client.with(async |conn| elsewhere.fence.raise(conn, &theirs).await).unwrap_err();
    assert_eq!(carried.kind(), FenceErrorKind::WrongCluster);
    let carried = db
        .client
        .with(async |conn| elsewhere.fence.write(conn, from_ref(&theirs), &set("k", "t")).await)
        .unwrap_err();
    assert_eq!(carried.kind(), FenceErrorKind::WrongCluster);
    assert_eq!(everything(&mut db), before);
    db.set(&ours, "ours").unwrap();
}

#[test]
fn other_hash_tags_are_other_fences_and_are_refused_where_the_store_remembers() {
    if !available() {
        return;
    }
    let mut db = Fenced::new();
    let together = RedisFence::options(&cluster("prod")).together("shop");
    let error = db.client.with(async |conn| together.install(conn).await).unwrap_err();
    assert_eq!(error.kind(), FenceErrorKind::Unfit);
    assert!(error.to_string().contains("\"shop\""), "{error}");
}

#[test]
fn f075_f011_a_server_that_cannot_keep_a_raise_takes_none_and_remembers_none() {
    if !available() {
        return;
    }
    let mut db = Fenced::with(
        &["--appendonly", "no", "--save", "3600 1"],
        RedisFence::options(&cluster("prod")).accepting_loss_at_restart(),
    );
    let (owner, next) = (token("prod/orders/17@5"), token("prod/orders/17@6"));
    db.raise(&owner).unwrap();
    let before = everything(&mut db);

    db.client.ask::<()>("CONFIG SET maxmemory 1");
    for error in [db.raise(&next).unwrap_err(), db.set(&next, "v").unwrap_err()] {
        assert_eq!(error.kind(), FenceErrorKind::Busy, "{error}");
        assert!(std::error::Error::source(&error).unwrap().to_string().contains("OOM"), "{error:?}");
    }
    db.client.ask::<()>("CONFIG SET maxmemory 0");

    db.client.ask::<()>("CONFIG SET min-replicas-to-write 1");
    for error in [db.raise(&next).unwrap_err(), db.set(&next, "v").unwrap_err()] {
        assert_eq!(error.kind(), FenceErrorKind::Busy, "{error}");
        assert!(std::error::Error::source(&error).unwrap().to_string().contains("NOREPLICAS"), "{error:?}");
    }
    db.client.ask::<()>("CONFIG SET min-replicas-to-write 0");

    // Its disk fails: the directory is gone.
    std::fs::remove_dir_all(db.server.dir()).unwrap();
    db.client.ask::<redis::Value>("BGSAVE");
    db.client.until("rdb_last_bgsave_status", "err");
    for error in [db.raise(&next).unwrap_err(), db.set(&next, "v").unwrap_err()] {
        assert_eq!(error.kind(), FenceErrorKind::Busy, "{error}");
        assert!(std::error::Error::source(&error).unwrap().to_string().contains("MISCONF"), "{error:?}");
    }
    assert_eq!(everything(&mut db), before);
}

#[test]
fn f076_every_refused_call_leaves_the_log_and_the_keys_as_they_were() {
    if !available() {
        return;
    }
    let mut db = Fenced::new();
    let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
    db.raise(&new).unwrap();
    db.set(&new, "34").unwrap();
    let before = (everything(&mut db), db.client.info("aof_current_size"));
    for _ in 0..20 {
        db.raise(&old).unwrap_err();
        db.set(&old, "33").unwrap_err();
        db.set(&token("prod/orders/18@1"), "never raised").unwrap_err();
        let both = [token("prod/orders/18@1"), old.clone()];
        db.client.with(async |conn| db.fence.raise_all(conn, &both).await).unwrap_err();
        let newer = [token("prod/orders/17@35"), token("prod/orders/18@1")];
        db.write(&newer, &set("k", "half")).unwrap_err();
        db.client.with(async |conn| RedisFence::install(conn, &cluster("prod")).await).unwrap();
    }
    assert_eq!((everything(&mut db), db.client.info("aof_current_size")), before);
    db.set(&new, "34 goes on").unwrap();
}

#[test]
fn f096_t10_a_forged_epoch_cannot_lock_everybody_out_and_an_operator_can_force_one() {
    if !available() {
        return;
    }
    let mut db = Fenced::new();
    let (owner, forged) = (token("prod/orders/17@5"), token("prod/orders/17@9007199254740991"));
    db.raise(&owner).unwrap();
    assert_eq!(db.raise(&forged).unwrap_err().kind(), FenceErrorKind::Implausible);
    assert_eq!(db.set(&forged, "f").unwrap_err().kind(), FenceErrorKind::Implausible);
    db.set(&owner, "still mine").unwrap();
    let meant = token(&format!("prod/orders/17@{}", 6 + MAX_JUMP));
    db.client.with(async |conn| db.fence.force_raise(conn, &meant).await).unwrap();
    assert_eq!(db.highest(owner.scope()).unwrap(), Some(meant.epoch()));
    // Forcing goes forward too.
    let back = db.client.with(async |conn| db.fence.force_raise(conn, &owner).await).unwrap_err();
    assert_eq!(back.kind(), FenceErrorKind::Fenced);
}

#[test]
fn f099_f009_whatever_a_replaced_owner_does_it_gets_the_same_error_with_both_epochs() {
    if !available() {
        return;
    }
    let mut db = Fenced::new();
    let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
    db.raise(&new).unwrap();
    let both: [FencingToken; 2] = [token("prod/orders/18@1"), old.clone()];
    let script = GuardedScript::new("return redis.call('SET', KEYS[1], 'v')");
    let none: [&str; 0] = [];
    let answers = [
        db.raise(&old),
        db.client.with(async |conn| db.fence.raise_all(conn, &both).await),
        db.client.with(async |conn| db.fence.force_raise(conn, &old).await),
        db.set(&old, "33"),
        db.write(&[new.clone(), old.clone()], &set("k", "both")).map(drop),
        db.client.with(async |conn| db.fence.check(conn, from_ref(&old)).await),
        db.client
            .with(async |conn| db.fence.run(conn, from_ref(&old), &script, &["k"], &none).await)
            .map(drop),
    ];
    for answer in answers {
        match answer {
            Err(FenceError::Fenced(f)) => {
                assert_eq!((f.own().get(), f.highest().get(), f.scope()), (33, 34, old.scope()));
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(!db.client.ask::<bool>("EXISTS k"));
}

#[test]
fn t21_a_missing_row_a_replaced_owner_and_a_missing_fence_are_told_apart() {
    if !available() {
        return;
    }
    let mut db = Fenced::new();
    let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
    assert_eq!(db.set(&old, "v").unwrap_err().kind(), FenceErrorKind::NotRaised);
    assert_eq!(db.highest(old.scope()).unwrap(), None);
    db.raise(&new).unwrap();
    assert_eq!(db.set(&old, "v").unwrap_err().kind(), FenceErrorKind::Fenced);
    db.client.ask::<()>("FLUSHALL");
    assert_eq!(db.set(&new, "v").unwrap_err().kind(), FenceErrorKind::NotInstalled);
    assert_eq!(db.raise(&new).unwrap_err().kind(), FenceErrorKind::NotInstalled);
    db.client.with(async |conn| RedisFence::install(conn, &cluster("prod")).await).unwrap();
    assert_eq!(db.set(&new, "v").unwrap_err().kind(), FenceErrorKind::NotRaised);
}

#[test]
fn b04_token_33_writes_34_is_seen_and_33_is_rejected() {
    if !available() {
        return;
    }
    let mut db = Fenced::new();
    let (t33, t34) = (token("prod/@locks/file@33"), token("prod/@locks/file@34"));
    db.raise(&t33).unwrap();
    db.set(&t33, "A").unwrap();
    db.raise(&t34).unwrap();
    db.set(&t34, "B").unwrap();
    assert!(matches!(db.set(&t33, "A, late"), Err(FenceError::Fenced(_))));
    assert_eq!(db.client.ask::<String>("GET k"), "B");
}

#[test]
fn f011_t08_a_server_that_forgets_is_refused_by_name_and_taken_only_by_name() {
    if !available() {
        return;
    }
    let options = || RedisFence::options(&cluster("prod"));
    let every_second = &["--appendonly", "yes", "--appendfsync", "everysec", "--save", ""];
    for (settings, word) in [(FORGETFUL, "appendonly"), (every_second.as_slice(), "appendfsync")] {
        let server = Server::new(settings);
        let mut client = server.client();
        match client.with(async |conn| options().install(conn).await) {
            Err(FenceError::NotDurable { setting, .. }) => assert!(setting.contains(word), "{setting}"),
            other => panic!("{other:?}"),
        }
        let taken = if word == "appendonly" {
            options().accepting_loss_at_restart()
        } else {
            options().accepting_loss_of_a_second()
        };
        client.with(async |conn| taken.install(conn).await).unwrap();
    }
}

#[test]
fn settings_that_are_hidden_must_be_stated_and_missing_permissions_are_named() {
    if !available() {
        return;
    }
    let server = Server::new(DURABLE);
    let mut client = server.client();
    let options = || RedisFence::options(&cluster("prod"));
    client.ask::<()>("ACL SETUSER app on >secret ~* +@all -config");
    client.ask::<()>("ACL SETUSER blind on >secret ~* +@all -config -info");
    client.ask::<()>("AUTH app secret");
    let error = client.with(async |conn| options().install(conn).await).unwrap_err();
    assert_eq!(error.kind(), FenceErrorKind::Unfit);
    assert!(error.to_string().contains("stating_durable_settings") && !error.to_string().contains("secret"));
    let fence = client.with(async |conn| options().stating_durable_settings().install(conn).await).unwrap();
    client.with(async |conn| fence.raise(conn, &token("prod/orders/17@5")).await).unwrap();
    client.ask::<()>("AUTH blind secret");
    for error in [
        client.with(async |conn| options().stating_durable_settings().install(conn).await).unwrap_err(),
        client.with(async |conn| fence.raise(conn, &token("prod/orders/17@6")).await).unwrap_err(),
    ] {
        assert_eq!(error.kind(), FenceErrorKind::Unfit, "{error}");
        assert!(
            ["permission", "can't run this command"].iter().any(|why| error.to_string().contains(why)),
            "{error}"
        );
    }
}

#[test]
fn t17_width_the_top_is_kept_and_compared_exactly() {
    if !available() {
        return;
    }
    let mut db = Fenced::new();
    let top = Epoch::MAX.get();
    let at = |epoch: u64| token(&format!("prod/orders/17@{epoch}"));
    db.client.with(async |conn| db.fence.force_raise(conn, &at(top - 1)).await).unwrap();
    db.set(&at(top), "top").unwrap();
    assert!(matches!(db.set(&at(top - 1), "below"), Err(FenceError::Fenced(_))));
    assert_eq!(db.highest(at(1).scope()).unwrap(), Some(Epoch::MAX));
}

/// Every key of a hash or a string, with what it holds.
pub(crate) fn everything(db: &mut Fenced) -> BTreeMap<String, Vec<String>> {
    let keys: Vec<String> = db.client.ask("KEYS *");
    keys.into_iter()
        .map(|key| {
            let read =
                if db.client.ask::<String>(&format!("TYPE {key}")) == "hash" { "HGETALL" } else { "GET" };
            let held: redis::Value = db.client.ask(&format!("{read} {key}"));
            (key, vec![format!("{held:?}")])
        })
        .collect()
}
