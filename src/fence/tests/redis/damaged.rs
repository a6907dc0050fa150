//! T17 and F096: fences that somebody has damaged are an error that names them, and never a panic or a pass.

use crate::cases::everything;
use crate::server::available;
use crate::subject::{Fenced, cluster, token};
use ringfence_fence::FenceErrorKind;
use ringfence_fence::redis::RedisFence;

#[test]
fn t17_f096_a_row_that_holds_no_epoch_refuses_everything_and_says_what_it_holds() {
    if !available() {
        return;
    }
    let mut db = Fenced::forgetful();
    let owner = token("prod/orders/17@5");
    let key = db.fence.key(owner.scope());
    let long = "x".repeat(10_000);
    for (field, value, shown) in [
        ("epoch", "0000000000000000", "0000000000000000"),
        ("epoch", "5", "5"),
        ("epoch", "-000000000000003", "-000000000000003"),
        ("epoch", "9007199254740992", "9007199254740992"),
        // As a number of Lua it is the one before, which would be a sound comparison with the wrong epoch.
        ("epoch", "9007199254740993", "9007199254740993"),
        ("epoch", "00000000000000005", "00000000000000005"),
        ("epoch", "0x00000000000005", "0x00"),
        ("epoch", "000000000000005\n", "5\\n"),
        ("epoch", &long, "xxx"),
        ("epoch", "", "epoch"),
        ("session", "s1", "s1"),
        ("session", "-1", "-1"),
        ("cluster", "Not_A Name", "Not_A"),
    ] {
        db.client.ask::<()>(&format!("DEL {key}"));
        db.raise(&owner).unwrap();
        let mut damage = redis::cmd("HSET");
        damage.arg(&key).arg(field).arg(value);
        db.client.try_ask::<()>(damage).unwrap();
        let before = everything(&mut db);
        let mut answers = vec![
            db.raise(&owner).unwrap_err(),
            db.client.with(async |conn| db.fence.force_raise(conn, &owner).await).unwrap_err(),
            db.set(&owner, "v").unwrap_err(),
        ];
        if field != "session" {
            answers.push(db.highest(owner.scope()).unwrap_err());
        }
        for error in answers {
            assert_eq!(error.kind(), FenceErrorKind::Corrupt, "{value:?}: {error}");
            let text = error.to_string();
            assert!(text.contains("orders/17") && text.contains(shown), "{value:?}: {text}");
            assert!(text.len() < 500 && !text.contains('\n'), "{text}");
        }
        assert_eq!(everything(&mut db), before);
    }
}

#[test]
fn a_session_beyond_64_bits_is_damage_too() {
    if !available() {
        return;
    }
    let mut db = Fenced::forgetful();
    let session = ringfence_core::ids::SessionId::new(7).unwrap();
    let owner = token("prod/orders/17@5").held_by(session);
    db.raise(&owner).unwrap();
    let key = db.fence.key(owner.scope());
    db.client.ask::<()>(&format!("HSET {key} session 18446744073709551616"));
    assert_eq!(db.set(&owner, "v").unwrap_err().kind(), FenceErrorKind::Corrupt);
}

#[test]
fn a_key_of_another_kind_is_damage_and_not_an_absent_fence() {
    if !available() {
        return;
    }
    let mut db = Fenced::forgetful();
    let owner = token("prod/orders/17@5");
    let key = db.fence.key(owner.scope());
    for instead in ["SET {key} 4", "LPUSH {key} 4", "HSET {key} note deleted"] {
        db.client.ask::<()>(&format!("DEL {key}"));
        db.client.ask::<redis::Value>(&instead.replace("{key}", &key));
        for error in [db.raise(&owner).unwrap_err(), db.set(&owner, "v").unwrap_err()] {
            assert_eq!(error.kind(), FenceErrorKind::Corrupt, "{instead}: {error}");
        }
    }
}

#[test]
fn f057_a_binding_that_is_damaged_is_not_made_anew() {
    if !available() {
        return;
    }
    for (damage, kind) in [
        ("HSET ringfence:store format 2", FenceErrorKind::Corrupt),
        ("HSET ringfence:store cluster Not_A_Name!", FenceErrorKind::Corrupt),
        ("HDEL ringfence:store cluster", FenceErrorKind::Corrupt),
        ("HSET ringfence:store cluster test", FenceErrorKind::WrongCluster),
    ] {
        let mut db = Fenced::forgetful();
        let owner = token("prod/orders/17@5");
        db.raise(&owner).unwrap();
        db.client.ask::<redis::Value>(damage);
        let options = RedisFence::options(&cluster("prod")).accepting_loss_at_restart();
        let answers = [
            db.client.with(async |conn| options.install(conn).await).unwrap_err(),
            db.raise(&owner).unwrap_err(),
            db.set(&token("prod/orders/18@5"), "never raised").unwrap_err(),
        ];
        for error in answers {
            assert_eq!(error.kind(), kind, "{damage}: {error}");
        }
        // A fence that is there says itself whose it is.
        db.set(&owner, "v").unwrap();
    }
    let mut db = Fenced::forgetful();
    db.client.ask::<redis::Value>("DEL ringfence:store");
    db.client.ask::<redis::Value>("SET ringfence:store prod");
    assert_eq!(db.raise(&token("prod/orders/17@5")).unwrap_err().kind(), FenceErrorKind::Corrupt);
}
