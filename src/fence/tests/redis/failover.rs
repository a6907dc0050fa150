//! T14 and T15: another server answers, or this one with an older copy of its data.

use crate::server::{Client, DURABLE, Server, available};
use crate::subject::{Fenced, cluster, set, token};
use ringfence_fence::redis::{NotReplicated, RedisFence, RedisOptions};
use ringfence_fence::{FenceError, FenceErrorKind, FencingToken};
use std::slice::from_ref;
use std::time::Duration;

fn options() -> RedisOptions {
    RedisFence::options(&cluster("prod"))
}

fn follow(replica: &mut Client, primary: &Server) {
    replica.ask::<()>(&format!("REPLICAOF 127.0.0.1 {}", primary.port()));
    replica.until("master_link_status", "up");
}

/// Ends the replication, so that the replica stays one and hears nothing more. Who is connected stays so.
fn cut(primary: &mut Client, replica: &mut Client) {
    primary.ask::<()>("CONFIG SET requirepass nobody-knows");
    primary.ask::<i64>("CLIENT KILL TYPE replica");
    replica.until("master_link_status", "down");
}

/// 33 has raised and written; 34 has raised on the primary, which dies before its replica hears of it; the replica takes
/// its place. Answers what becomes of a late write of 33.
fn late_write_after_a_failover(
    options: RedisOptions,
) -> (Server, Client, RedisFence, Result<(), FenceError>) {
    let mut db = Fenced::with(DURABLE, options);
    let standby = Server::new(DURABLE);
    let mut replica = standby.client();
    follow(&mut replica, &db.server);
    let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
    db.raise(&old).unwrap();
    db.set(&old, "33").unwrap();
    assert_eq!(db.client.ask::<i64>("WAIT 1 20000"), 1, "the replica does not follow");

    cut(&mut db.client, &mut replica);
    db.raise(&new).unwrap();
    db.set(&new, "34").unwrap();
    let missed = db.fence.key(old.scope());
    assert_eq!(
        replica.ask::<String>(&format!("HGET {missed} epoch")),
        "0000000000000033",
        "it was to miss the raise"
    );
    db.server.kill();
    replica.ask::<()>("REPLICAOF NO ONE");

    let late = replica
        .with(async |conn| db.fence.write(conn, from_ref(&old), &set("k", "33, late")).await)
        .map(drop);
    (standby, replica, db.fence, late)
}

#[test]
fn t14_f011_a_failover_that_lost_a_raise_lets_no_replaced_owner_write() {
    if !available() {
        return;
    }
    let (_standby, mut replica, fence, late) = late_write_after_a_failover(options());
    let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
    match late {
        Err(FenceError::Replaced { token }) => assert_eq!(token, old),
        other => panic!("{other:?}"),
    }
    assert_eq!(replica.ask::<String>("GET k"), "33");
    // Nor is the new owner believed before it has raised, and read what there is now.
    let early =
        replica.with(async |conn| fence.write(conn, from_ref(&new), &set("k", "34")).await).unwrap_err();
    assert_eq!(early.kind(), FenceErrorKind::Replaced);
    replica.with(async |conn| fence.raise(conn, &new).await).unwrap();
    replica.with(async |conn| fence.write(conn, from_ref(&new), &set("k", "34")).await).unwrap();
    let late =
        replica.with(async |conn| fence.write(conn, from_ref(&old), &set("k", "33")).await).unwrap_err();
    assert_eq!(late.kind(), FenceErrorKind::Fenced);
}

/// The control: the same, with the detection taken out.
#[test]
fn t57_t14_without_the_detection_the_replaced_owner_writes_after_the_failover() {
    if !available() {
        return;
    }
    let (_standby, mut replica, _, late) =
        late_write_after_a_failover(options().without_detecting_replacement());
    assert!(late.is_ok(), "{late:?}");
    assert_eq!(replica.ask::<String>("GET k"), "33, late");
}

/// Its process is the same one, so what names the process would not tell.
#[test]
fn t14_a_server_that_leads_a_second_time_is_not_taken_for_what_it_was() {
    if !available() {
        return;
    }
    let mut db = Fenced::new();
    let other = Server::new(DURABLE);
    let mut second = other.client();
    follow(&mut second, &db.server);
    let owner = token("prod/orders/17@33");
    db.raise(&owner).unwrap();
    db.set(&owner, "first").unwrap();
    assert_eq!(db.client.ask::<i64>("WAIT 1 20000"), 1);
    let process = db.client.info("run_id");

    second.ask::<()>("REPLICAOF NO ONE");
    follow(&mut db.client, &other);
    // A replica takes no writes, and nothing happens when one is tried.
    assert_eq!(db.set(&owner, "on a replica").unwrap_err().kind(), FenceErrorKind::Busy);
    let refused = db.client.with(async |conn| options().install(conn).await).unwrap_err();
    assert!(refused.to_string().contains("replica"), "{refused}");
    db.client.ask::<()>("CONFIG SET replica-read-only no");
    assert_eq!(db.set(&owner, "on a replica that takes writes").unwrap_err().kind(), FenceErrorKind::Unfit);
    assert_eq!(db.raise(&owner).unwrap_err().kind(), FenceErrorKind::Unfit);
    db.client.ask::<()>("CONFIG SET replica-read-only yes");

    db.client.ask::<()>("REPLICAOF NO ONE");
    assert_eq!(db.client.info("run_id"), process);
    assert_eq!(db.set(&owner, "second").unwrap_err().kind(), FenceErrorKind::Replaced);
    assert_eq!(db.client.ask::<String>("GET k"), "first");
}

#[test]
fn t15_a_store_that_was_restored_from_a_copy_lets_no_replaced_owner_write() {
    if !available() {
        return;
    }
    let mut db = Fenced::new();
    let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
    db.raise(&old).unwrap();
    db.set(&old, "33").unwrap();
    let log = db.server.dir().join("appendonlydir");
    let files = || std::fs::read_dir(&log).unwrap().map(|file| file.unwrap().path());
    let copy: Vec<_> = files().map(|path| (path.clone(), std::fs::read(path).unwrap())).collect();
    db.raise(&new).unwrap();
    db.set(&new, "34").unwrap();
    db.server.kill();
    for (path, bytes) in copy {
        std::fs::write(path, bytes).unwrap();
    }
    db.server.start_again();
    db.client = db.server.client();
    assert_eq!(db.highest(old.scope()).unwrap(), Some(old.epoch()), "it was to forget the raise");
    assert_eq!(db.set(&old, "33, late").unwrap_err().kind(), FenceErrorKind::Replaced);
    assert_eq!(db.client.ask::<String>("GET k"), "33");
    db.raise(&new).unwrap();
    assert_eq!(db.set(&old, "33, later").unwrap_err().kind(), FenceErrorKind::Fenced);
}

/// A server that keeps snapshots only: what it had answered since the last one is gone, and nobody is believed for that.
#[test]
fn t15_f011_a_restart_from_an_older_snapshot_lets_no_replaced_owner_write() {
    if !available() {
        return;
    }
    let snapshots = &["--appendonly", "no", "--save", "3600 1"];
    let mut db = Fenced::with(snapshots, options().accepting_loss_at_restart());
    let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
    db.raise(&old).unwrap();
    db.set(&old, "33").unwrap();
    db.client.ask::<()>("SAVE");
    db.raise(&new).unwrap();
    db.server.kill();
    db.server.start_again();
    db.client = db.server.client();
    assert_eq!(db.highest(old.scope()).unwrap(), Some(old.epoch()), "it was to forget the raise");
    assert_eq!(db.set(&old, "33, late").unwrap_err().kind(), FenceErrorKind::Replaced);
    assert_eq!(db.client.ask::<String>("GET k"), "33");
}

#[test]
fn t14_a_raise_can_wait_for_replicas_and_says_when_they_did_not_confirm_it() {
    if !available() {
        return;
    }
    let patient = Duration::from_secs(20);
    let mut db = Fenced::with(DURABLE, options().waiting_for_replicas(1, patient));
    let standby = Server::new(DURABLE);
    let mut replica = standby.client();
    follow(&mut replica, &db.server);
    let (one, two): (FencingToken, FencingToken) = (token("prod/orders/17@1"), token("prod/orders/17@2"));
    db.raise(&two).unwrap();
    let key = db.fence.key(two.scope());
    assert_eq!(replica.ask::<String>(&format!("HGET {key} epoch")), "0000000000000002");
    assert_eq!(db.raise(&one).unwrap_err().kind(), FenceErrorKind::Fenced);

    cut(&mut db.client, &mut replica);
    db.fence = db
        .client
        .with(async |conn| options().waiting_for_replicas(1, Duration::from_millis(1)).install(conn).await)
        .unwrap();
    let three = token("prod/orders/17@3");
    let error = db.raise(&three).unwrap_err();
    assert_eq!(error.kind(), FenceErrorKind::Store);
    let short = NotReplicated::of(&error).unwrap().to_string();
    assert!(short.contains("0 of 1 replicas"), "{short}");
    // It is a raise all the same.
    assert_eq!(db.highest(three.scope()).unwrap(), Some(three.epoch()));

    let on_disk =
        db.client.with(async |conn| options().waiting_for_disks_of_replicas(0, patient).install(conn).await);
    let known: Vec<redis::Value> = db.client.ask("COMMAND INFO waitaof");
    match on_disk {
        Err(error) if known == [redis::Value::Nil] => {
            assert!(error.to_string().contains("WAITAOF"), "{error}");
        }
        Ok(fence) => {
            db.client.with(async |conn| fence.raise(conn, &token("prod/orders/17@4")).await).unwrap();
        }
        Err(error) => panic!("{error}"),
    }
    let for_ever =
        db.client.with(async |conn| options().waiting_for_replicas(1, Duration::ZERO).install(conn).await);
    assert_eq!(for_ever.unwrap_err().kind(), FenceErrorKind::Unfit);
}
