//! Effects that no fence refuses, recorded in PostgreSQL. The rule is tried in SQLite, in every order; here it is the storage
//! that is tried, with either client.

use crate::database::{Database, fenced};
use crate::payments::{Keys, Payments};
use ringfence_fence::effects::{
    Claim, Delivery, EffectError, EffectKey, Outcome, PostgresEffects, Sending, State,
};
use ringfence_fence::{FenceError, FencingToken};
use sqlx::Connection as _;
use tokio_postgres::Client;

const KEYED: Delivery = Delivery::Keyed { attempts: 3 };

async fn installed(db: &Database<'_>, delivery: Delivery) -> PostgresEffects {
    PostgresEffects::install(&db.open().await, &db.fence, "charge", delivery).await.unwrap()
}

async fn intend(
    charges: &PostgresEffects,
    client: &mut Client,
    token: &FencingToken,
    operation: &str,
) -> Result<EffectKey, EffectError> {
    let tx = client.transaction().await.unwrap();
    let key = charges.intend(&tx, token, operation, "42.00 €").await?;
    tx.commit().await.unwrap();
    Ok(key)
}

async fn settle(
    charges: &PostgresEffects,
    client: &mut Client,
    token: &FencingToken,
    call: &Sending,
    outcome: Outcome<'_>,
) -> Result<State, EffectError> {
    let tx = client.transaction().await.unwrap();
    let record = charges.settle(&tx, token, call, outcome).await?;
    tx.commit().await.unwrap();
    Ok(record.state())
}

async fn state(charges: &PostgresEffects, client: &mut Client, key: &EffectKey) -> State {
    let tx = client.transaction().await.unwrap();
    charges.find(&tx, key).await.unwrap().unwrap().state()
}

/// The first owner claims, calls or not, and is replaced. The second recovers; the first wakes up and calls.
async fn handed_over(delivery: Delivery, keys: Keys, called: bool) -> Option<(usize, State)> {
    let db = fenced().await?;
    let (payments, mut client) = (Payments::that_have_keys(keys), db.open().await);
    let charges = installed(&db, delivery).await;
    let old = db.raised("prod/orders/17@33").await;
    let key = intend(&charges, &mut client, &old, "order-7").await.unwrap();
    let Claim::Send(call) = charges.claim(&mut client, &old, &key).await.unwrap() else { panic!() };
    if called {
        payments.charge(call.key().as_str(), call.payload());
    }
    let new = db.raised("prod/orders/17@34").await;
    while let Some(claim) = charges.claim_next(&mut client, &new).await.unwrap() {
        let Claim::Send(again) = claim else { continue };
        assert!(again.may_have_happened() && again.payload() == "42.00 €");
        let answer = payments.charge(again.key().as_str(), again.payload());
        settle(&charges, &mut client, &new, &again, Outcome::Done(&answer)).await.unwrap();
    }
    payments.charge(call.key().as_str(), call.payload());
    let late = settle(&charges, &mut client, &old, &call, Outcome::Done("late")).await;
    assert!(matches!(late, Err(EffectError::Fence(FenceError::Fenced(_)))), "{late:?}");
    let state = state(&charges, &mut client, &key).await;
    Some((payments.charged().len(), state))
}

#[tokio::test]
async fn a24_t19_with_keys_it_is_charged_once_and_the_replaced_owner_settles_nothing() {
    for called in [false, true] {
        let Some(came_to) = handed_over(KEYED, Keys::Kept, called).await else { return };
        assert_eq!(came_to, (1, State::Done));
    }
}

#[tokio::test]
async fn t57_a24_where_the_other_side_forgets_keys_the_same_charges_more_than_once() {
    let Some((charged, _)) = handed_over(KEYED, Keys::Forgotten, false).await else { return };
    assert_eq!(charged, 2);
}

#[tokio::test]
async fn a24_without_keys_what_may_have_happened_is_held() {
    let Some(came_to) = handed_over(Delivery::Unkeyed, Keys::Forgotten, false).await else { return };
    assert_eq!(came_to, (1, State::Held));
}

#[tokio::test]
async fn connections_of_one_owner_claim_each_effect_once() {
    let Some(db) = fenced().await else { return };
    let charges = installed(&db, KEYED).await;
    let owner = db.raised("prod/orders/17@33").await;
    let mut client = db.open().await;
    for number in 0..40 {
        intend(&charges, &mut client, &owner, &format!("order-{number}")).await.unwrap();
    }
    let mut claiming = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let (charges, owner, mut client) = (charges.clone(), owner.clone(), db.open().await);
        claiming.spawn(async move {
            let mut keys = Vec::new();
            while let Some(claim) = charges.claim_next(&mut client, &owner).await.unwrap() {
                let Claim::Send(call) = claim else { panic!() };
                assert!(!call.may_have_happened());
                keys.push(call.key().clone());
            }
            keys
        });
    }
    let mut keys: Vec<EffectKey> = claiming.join_all().await.into_iter().flatten().collect();
    // One that was locked by another connection may have been passed over by all that ended meanwhile.
    while let Some(claim) = charges.claim_next(&mut client, &owner).await.unwrap() {
        let Claim::Send(call) = claim else { panic!() };
        keys.push(call.key().clone());
    }
    keys.sort();
    let claimed = keys.len();
    keys.dedup();
    assert_eq!((claimed, keys.len()), (40, 40));
}

#[tokio::test]
async fn one_operation_that_two_connections_intend_at_one_time_is_one_effect() {
    let Some(db) = fenced().await else { return };
    let charges = installed(&db, KEYED).await;
    let owner = db.raised("prod/orders/17@33").await;
    let (mut a, mut b) = (db.open().await, db.open().await);
    let waiting = crate::database::pid(&b).await;
    let tx = a.transaction().await.unwrap();
    let key = charges.intend(&tx, &owner, "order-7", "42.00 €").await.unwrap();
    let second = tokio::spawn(async move { intend(&charges, &mut b, &owner, "order-7").await });
    crate::database::until_waiting(&db.open().await, waiting).await;
    tx.commit().await.unwrap();
    assert_eq!(second.await.unwrap().unwrap(), key);
}

#[tokio::test]
async fn the_effects_work_with_sqlx_and_in_a_transaction_that_is_rolled_back_nothing_is_intended() {
    let Some(db) = fenced().await else { return };
    let mut conn = db.open_sqlx().await;
    let charges = PostgresEffects::install(&mut conn, &db.fence, "charge", KEYED).await.unwrap();
    let owner = db.raised("prod/orders/17@33").await;
    let mut tx = conn.begin().await.unwrap();
    let key = charges.intend(&mut tx, &owner, "order-7", "42.00 €").await.unwrap();
    tx.rollback().await.unwrap();
    let claim = charges.claim(&mut conn, &owner, &key).await;
    assert!(matches!(claim, Err(EffectError::NotIntended { .. })), "{claim:?}");

    let mut tx = conn.begin().await.unwrap();
    charges.intend(&mut tx, &owner, "order-7", "42.00 €").await.unwrap();
    tx.commit().await.unwrap();
    let Claim::Send(call) = charges.claim(&mut conn, &owner, &key).await.unwrap() else { panic!() };
    let mut tx = conn.begin().await.unwrap();
    let record = charges.settle(&mut tx, &owner, &call, Outcome::Done("payment 1")).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!((record.state(), record.outcome()), (State::Done, "payment 1"));
}

#[tokio::test]
async fn f011_a_claim_waits_for_the_disk_whatever_the_session_says() {
    let Some(db) = fenced().await else { return };
    let charges = installed(&db, KEYED).await;
    let owner = db.raised("prod/orders/17@33").await;
    let mut client = db.open().await;
    let key = intend(&charges, &mut client, &owner, "order-7").await.unwrap();
    client.batch_execute("SET synchronous_commit = off").await.unwrap();
    // A trigger of the test notes what the claim's transaction was set to.
    client
        .batch_execute(
            "CREATE TABLE noted (setting text);
             CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 INSERT INTO noted VALUES (current_setting('synchronous_commit')); RETURN NEW; END $$;
             CREATE TRIGGER note BEFORE UPDATE ON ringfence.effects FOR EACH ROW EXECUTE FUNCTION note();",
        )
        .await
        .unwrap();
    let _ = charges.claim(&mut client, &owner, &key).await.unwrap();
    let noted: String = client.query_one("SELECT setting FROM noted", &[]).await.unwrap().get(0);
    assert_eq!(noted, "on");
    let after: String = client.query_one("SHOW synchronous_commit", &[]).await.unwrap().get(0);
    assert_eq!(after, "off");
}

#[tokio::test]
async fn without_a_fence_or_without_the_table_it_says_what_to_install() {
    let Some(db) = fenced().await else { return };
    let effects = installed(&db, KEYED).await;
    let mut client = db.open().await;
    client.batch_execute("DROP TABLE ringfence.effects").await.unwrap();
    let owner = db.raised("prod/orders/17@33").await;
    let refused = intend(&effects, &mut client, &owner, "order-7").await;
    assert!(matches!(refused, Err(EffectError::Fence(FenceError::NotInstalled))), "{refused:?}");
    client.batch_execute("DROP SCHEMA ringfence CASCADE").await.unwrap();
    let refused = PostgresEffects::install(&client, &db.fence, "charge", KEYED).await;
    assert!(matches!(refused, Err(EffectError::Fence(FenceError::NotInstalled))), "{refused:?}");
}
