//! Effects that no fence refuses: a payment API, owners that are replaced at any moment, and keys that are kept or not.

use crate::payments::{Keys, Payments};
use crate::subject::{Database, token};
use ringfence_fence::effects::{
    Claim, Delivery, EffectError, EffectKey, MAX_OPEN, MAX_OUTCOME, MAX_PAYLOAD, Outcome, Resolution,
    Sending, SqliteEffects, State,
};
use ringfence_fence::{FenceError, FencingToken};
use rusqlite::Connection;
use rusqlite::TransactionBehavior::Immediate;

const KEYED: Delivery = Delivery::Keyed { attempts: 3 };

struct Shop {
    db: Database,
    conn: Connection,
    charges: SqliteEffects,
    payments: Payments,
}

impl Shop {
    /// A shop whose payments are taken for ones with or without keys, which they need not be.
    fn new(delivery: Delivery, keys: Keys) -> Shop {
        let db = Database::new("wal");
        let conn = db.open();
        let charges = SqliteEffects::install(&conn, &db.fence, "charge", delivery).unwrap();
        Shop { db, conn, charges, payments: Payments::that_have_keys(keys) }
    }

    fn raised(&mut self, text: &str) -> FencingToken {
        let token = token(text);
        self.db.fence.raise(&mut self.conn, &token).unwrap();
        token
    }

    fn intend(&mut self, token: &FencingToken, operation: &str) -> Result<EffectKey, EffectError> {
        let tx = self.conn.transaction_with_behavior(Immediate).unwrap();
        let key = self.charges.intend(&tx, token, operation, "42.00 EUR")?;
        tx.commit().unwrap();
        Ok(key)
    }

    fn sending(&mut self, token: &FencingToken, key: &EffectKey) -> Sending {
        match self.charges.claim(&self.conn, token, key).unwrap() {
            Claim::Send(sending) => sending,
            other => panic!("{other:?}"),
        }
    }

    fn call(&self, sending: &Sending) -> String {
        self.payments.charge(sending.key().as_str(), sending.payload())
    }

    fn settle(
        &mut self,
        token: &FencingToken,
        call: &Sending,
        outcome: Outcome<'_>,
    ) -> Result<State, EffectError> {
        let tx = self.conn.transaction_with_behavior(Immediate).unwrap();
        let record = self.charges.settle(&tx, token, call, outcome)?;
        tx.commit().unwrap();
        Ok(record.state())
    }

    fn resolve(
        &mut self,
        token: &FencingToken,
        key: &EffectKey,
        resolution: Resolution<'_>,
    ) -> Result<State, EffectError> {
        let tx = self.conn.transaction_with_behavior(Immediate).unwrap();
        let record = self.charges.resolve(&tx, token, key, resolution)?;
        tx.commit().unwrap();
        Ok(record.state())
    }

    /// What a new owner does: everything that was left.
    fn recover(&mut self, token: &FencingToken) {
        while let Some(claim) = self.charges.claim_next(&self.conn, token).unwrap() {
            let Claim::Send(sending) = claim else { continue };
            let answer = self.call(&sending);
            assert_eq!(self.settle(token, &sending, Outcome::Done(&answer)).unwrap(), State::Done);
        }
    }

    fn state(&self, key: &EffectKey) -> State {
        self.charges.find(&self.conn, key).unwrap().unwrap().state()
    }
}

fn fenced<T: std::fmt::Debug>(answer: Result<T, EffectError>) {
    match answer {
        Err(EffectError::Fence(FenceError::Fenced(f))) => {
            assert_eq!((f.own().get(), f.highest().get()), (33, 34));
        }
        other => panic!("{other:?}"),
    }
}

/// What the first owner does last before it stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Last {
    Intending,
    Claiming,
    Calling,
}

const EVERYWHERE: [Last; 3] = [Last::Intending, Last::Claiming, Last::Calling];

/// The first owner stops somewhere; the second recovers; then the first one wakes up and goes on, if it can. Answers what
/// was charged, and where the effect stands.
fn handed_over(last: Last, delivery: Delivery, keys: Keys, wakes_up: bool) -> (Vec<String>, State) {
    let mut shop = Shop::new(delivery, keys);
    let old = shop.raised("prod/orders/17@33");
    let key = shop.intend(&old, "order-7").unwrap();
    let mut call = None;
    if last > Last::Intending {
        call = Some(shop.sending(&old, &key));
    }
    if last > Last::Claiming {
        call.as_ref().map(|call| shop.call(call)).unwrap();
    }
    let new = shop.raised("prod/orders/17@34");
    shop.recover(&new);
    if wakes_up {
        match call {
            // Nothing was claimed, so there is nothing to send.
            None => fenced(shop.charges.claim(&shop.conn, &old, &key)),
            Some(call) => {
                if last == Last::Claiming {
                    shop.call(&call);
                }
                fenced(shop.settle(&old, &call, Outcome::Done("late")));
            }
        }
    }
    let state = shop.state(&key);
    (shop.payments.charged(), state)
}

#[test]
fn a24_t19_with_keys_it_is_charged_once_wherever_the_first_owner_stops_and_whether_it_wakes_up_or_not() {
    for last in EVERYWHERE {
        for wakes_up in [false, true] {
            let came_to = handed_over(last, KEYED, Keys::Kept, wakes_up);
            assert_eq!(came_to, (vec!["42.00 EUR".into()], State::Done), "{last:?} {wakes_up}");
        }
    }
}

/// The negative control: keys that are believed to be kept, and are not.
#[test]
fn t57_a24_where_the_other_side_forgets_keys_the_same_charges_twice() {
    let charges = |last, wakes_up| handed_over(last, KEYED, Keys::Forgotten, wakes_up).0.len();
    assert_eq!(charges(Last::Calling, false), 2);
    assert_eq!(charges(Last::Claiming, true), 2);
    // Nobody has sent it twice here.
    assert_eq!(charges(Last::Intending, true), 1);
    assert_eq!(charges(Last::Claiming, false), 1);
}

/// The negative control: the same hand-over without the record, each owner with a key of its own.
#[test]
fn t57_a24_without_the_helper_the_second_owner_charges_again() {
    let mut shop = Shop::new(KEYED, Keys::Kept);
    for text in ["prod/orders/17@33", "prod/orders/17@34"] {
        let owner = shop.raised(text);
        // As people make a key: from what is at hand, the token.
        shop.payments.charge(&format!("{}-order-7", owner.short()), "42.00 EUR");
    }
    assert_eq!(shop.payments.charged().len(), 2);
}

#[test]
fn a24_c08_without_keys_what_may_have_happened_is_held_for_a_person_and_never_sent_twice_by_itself() {
    for last in EVERYWHERE {
        for wakes_up in [false, true] {
            let (charged, state) = handed_over(last, Delivery::Unkeyed, Keys::Forgotten, wakes_up);
            assert!(charged.len() <= 1, "{last:?} {wakes_up}: {charged:?}");
            let held = if last == Last::Intending { State::Done } else { State::Held };
            assert_eq!(state, held, "{last:?} {wakes_up}");
        }
    }
}

#[test]
fn what_is_held_is_listed_with_its_reason_and_a_person_says_what_happened() {
    for (resolution, state, charges) in [
        (Resolution::Happened("payment 1"), State::Done, 0),
        (Resolution::GiveUp("the order was cancelled"), State::Refused, 0),
        (Resolution::SendAgain, State::Done, 1),
    ] {
        let mut shop = Shop::new(Delivery::Unkeyed, Keys::Forgotten);
        let old = shop.raised("prod/orders/17@33");
        let key = shop.intend(&old, "order-7").unwrap();
        let _ = shop.sending(&old, &key);
        let new = shop.raised("prod/orders/17@34");
        shop.recover(&new);
        let held = shop.charges.list(&shop.conn, new.scope(), State::Held, 10).unwrap();
        let [record] = held.as_slice() else { panic!("{held:?}") };
        assert!(record.outcome().contains("may have happened once"), "{record:?}");
        assert_eq!((record.key(), record.attempts(), record.epoch()), (&key, 1, Some(old.epoch())));

        fenced(shop.resolve(&old, &key, resolution));
        shop.resolve(&new, &key, resolution).unwrap();
        assert!(matches!(shop.resolve(&new, &key, resolution), Err(EffectError::NotHeld { .. })));
        shop.recover(&new);
        assert_eq!((shop.state(&key), shop.payments.charged().len()), (state, charges));
    }
}

#[test]
fn a_call_without_an_answer_is_sent_again_as_often_as_it_may_be_and_then_held() {
    let mut shop = Shop::new(KEYED, Keys::Kept);
    let owner = shop.raised("prod/orders/17@33");
    let key = shop.intend(&owner, "order-7").unwrap();
    for attempt in 1..=3 {
        let call = shop.sending(&owner, &key);
        assert_eq!((call.attempt(), call.may_have_happened()), (attempt, attempt > 1));
        shop.call(&call);
        assert_eq!(shop.settle(&owner, &call, Outcome::Unknown("a time limit")).unwrap(), State::Sending);
        // It is this owner's own, so recovery leaves it alone.
        assert!(shop.charges.claim_next(&shop.conn, &owner).unwrap().is_none());
    }
    match shop.charges.claim(&shop.conn, &owner, &key).unwrap() {
        Claim::Settled(record) => assert_eq!((record.state(), record.attempts()), (State::Held, 3)),
        other => panic!("{other:?}"),
    }
    assert_eq!(shop.payments.charged().len(), 1);
}

#[test]
fn what_was_not_sent_is_as_if_it_had_never_been_claimed() {
    let mut shop = Shop::new(Delivery::Unkeyed, Keys::Forgotten);
    let owner = shop.raised("prod/orders/17@33");
    let key = shop.intend(&owner, "order-7").unwrap();
    let call = shop.sending(&owner, &key);
    assert_eq!(shop.settle(&owner, &call, Outcome::NotSent).unwrap(), State::Intended);
    let again = shop.sending(&owner, &key);
    assert!(!again.may_have_happened());
    // But a call without an answer may have happened, and one that was settled is not settled again.
    assert_eq!(shop.settle(&owner, &again, Outcome::Unknown("a time limit")).unwrap(), State::Held);
    let twice = shop.settle(&owner, &again, Outcome::NotSent);
    assert!(matches!(twice, Err(EffectError::NotClaimed { state: State::Held, .. })), "{twice:?}");
}

#[test]
fn an_earlier_call_of_the_same_owner_settles_nothing_after_it_was_claimed_again() {
    let mut shop = Shop::new(KEYED, Keys::Kept);
    let owner = shop.raised("prod/orders/17@33");
    let key = shop.intend(&owner, "order-7").unwrap();
    let first = shop.sending(&owner, &key);
    let second = shop.sending(&owner, &key);
    let late = shop.settle(&owner, &first, Outcome::NotSent);
    assert!(matches!(late, Err(EffectError::NotClaimed { .. })), "{late:?}");
    assert_eq!(shop.settle(&owner, &second, Outcome::Refused("card declined")).unwrap(), State::Refused);
    match shop.charges.claim(&shop.conn, &owner, &key).unwrap() {
        Claim::Settled(record) => assert_eq!(record.outcome(), "card declined"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn f099_a_replaced_owner_intends_claims_and_settles_nothing_and_gets_one_error() {
    let mut shop = Shop::new(KEYED, Keys::Kept);
    let old = shop.raised("prod/orders/17@33");
    let key = shop.intend(&old, "order-7").unwrap();
    let call = shop.sending(&old, &key);
    let new = shop.raised("prod/orders/17@34");
    fenced(shop.intend(&old, "order-8"));
    fenced(shop.charges.claim(&shop.conn, &old, &key));
    fenced(shop.charges.claim_next(&shop.conn, &old));
    fenced(shop.settle(&old, &call, Outcome::Done("late")));
    assert_eq!(shop.charges.list(&shop.conn, new.scope(), State::Sending, 10).unwrap().len(), 1);
}

#[test]
fn an_intention_and_the_work_it_is_of_are_there_together_or_not_at_all() {
    let mut shop = Shop::new(KEYED, Keys::Kept);
    let owner = shop.raised("prod/orders/17@33");
    let tx = shop.conn.transaction_with_behavior(Immediate).unwrap();
    crate::subject::put(&tx, "order-7", "new").unwrap();
    let key = shop.charges.intend(&tx, &owner, "order-7", "42.00 EUR").unwrap();
    drop(tx);
    let claim = shop.charges.claim(&shop.conn, &owner, &key);
    assert!(matches!(claim, Err(EffectError::NotIntended { .. })), "{claim:?}");
    assert!(crate::subject::texts(&shop.conn).is_empty());

    // Intended twice is one effect; with another payload it is a mistake.
    assert_eq!(shop.intend(&owner, "order-7").unwrap(), shop.intend(&owner, "order-7").unwrap());
    let tx = shop.conn.transaction_with_behavior(Immediate).unwrap();
    let other = shop.charges.intend(&tx, &owner, "order-7", "43.00 EUR");
    assert!(matches!(other, Err(EffectError::PayloadDiffers { .. })), "{other:?}");
}

#[test]
fn f061_after_a_split_the_new_owner_adopts_what_is_its_own_under_the_same_key() {
    let mut shop = Shop::new(KEYED, Keys::Kept);
    let parent = shop.raised("prod/orders/17@33");
    let key = shop.intend(&parent, "order-7").unwrap();
    let call = shop.sending(&parent, &key);
    shop.call(&call);
    // The owner of the child raises the parent's fence, and its own.
    shop.raised("prod/orders/17@34");
    let child = shop.raised("prod/orders/81@35");
    let theirs = shop.charges.claim(&shop.conn, &child, &key);
    assert!(matches!(theirs, Err(EffectError::OtherScope { .. })), "{theirs:?}");
    let tx = shop.conn.transaction_with_behavior(Immediate).unwrap();
    shop.charges.adopt(&tx, &child, &key).unwrap();
    tx.commit().unwrap();
    shop.recover(&child);
    assert_eq!((shop.state(&key), shop.payments.charged().len()), (State::Done, 1));
    // Whoever is the parent's owner now has nothing to do with it any more, and another keyspace never had.
    let of_the_parent = token("prod/orders/17@34");
    assert!(shop.charges.claim_next(&shop.conn, &of_the_parent).unwrap().is_none());
    let stranger = shop.raised("prod/invoices/17@40");
    let tx = shop.conn.transaction_with_behavior(Immediate).unwrap();
    let adopted = shop.charges.adopt(&tx, &stranger, &key);
    assert!(matches!(adopted, Err(EffectError::OtherScope { .. })), "{adopted:?}");
}

#[test]
fn f011_a_claim_is_durable_before_anything_is_sent() {
    let mut shop = Shop::new(KEYED, Keys::Kept);
    let owner = shop.raised("prod/orders/17@33");
    let key = shop.intend(&owner, "order-7").unwrap();
    shop.conn.pragma_update(None, "synchronous", "OFF").unwrap();
    let claim = shop.charges.claim(&shop.conn, &owner, &key);
    assert!(matches!(claim, Err(EffectError::Fence(FenceError::NotDurable { .. }))), "{claim:?}");
    // A claim in a transaction of the user's would be as durable as that, so it is an error.
    shop.conn.pragma_update(None, "synchronous", "NORMAL").unwrap();
    shop.conn.execute_batch("BEGIN").unwrap();
    assert!(shop.charges.claim(&shop.conn, &owner, &key).is_err());
    shop.conn.execute_batch("ROLLBACK").unwrap();
    assert_eq!(shop.state(&key), State::Intended);
}

#[test]
fn everything_is_bounded_and_says_so() {
    let mut shop = Shop::new(KEYED, Keys::Kept);
    let owner = shop.raised("prod/orders/17@33");
    let tx = shop.conn.transaction_with_behavior(Immediate).unwrap();
    let large = shop.charges.intend(&tx, &owner, "large", &"x".repeat(MAX_PAYLOAD + 1));
    assert!(matches!(large, Err(EffectError::Unfit { .. })));
    shop.charges.intend(&tx, &owner, "order-0", &"x".repeat(MAX_PAYLOAD)).unwrap();
    shop.charges.intend(&tx, &owner, "order-1", "1 EUR").unwrap();
    tx.execute(
        "WITH RECURSIVE n (n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM n WHERE n + 1 < ?1)
         INSERT INTO ringfence_effects (key, kind, scope, state, attempts, payload, outcome)
         SELECT 'prod/orders/charge/order-' || n, 'charge', 'orders/17', 'intended', 0, '1 EUR', '' FROM n",
        [MAX_OPEN],
    )
    .unwrap();
    let more = shop.charges.intend(&tx, &owner, "one-more", "1 EUR");
    assert!(matches!(more, Err(EffectError::TooMany { .. })), "{more:?}");
    // What is there already may be intended again.
    shop.charges.intend(&tx, &owner, "order-1", "1 EUR").unwrap();
    tx.commit().unwrap();

    let key = EffectKey::new(&owner, "charge", "order-1").unwrap();
    let call = shop.sending(&owner, &key);
    shop.settle(&owner, &call, Outcome::Done(&"ä".repeat(MAX_OUTCOME))).unwrap();
    let kept = shop.charges.find(&shop.conn, &key).unwrap().unwrap();
    assert_eq!(kept.outcome().len(), MAX_OUTCOME);
    shop.intend(&owner, "one-more").unwrap();
}

#[test]
fn f096_a_row_that_was_edited_is_an_error_and_nothing_is_sent() {
    let mut shop = Shop::new(KEYED, Keys::Kept);
    let owner = shop.raised("prod/orders/17@33");
    let key = shop.intend(&owner, "order-7").unwrap();
    for (column, value) in [("scope", "'nowhere'"), ("attempts", "-1"), ("epoch", "0"), ("payload", "x'ff'")]
    {
        let edited = format!("SAVEPOINT before; UPDATE ringfence_effects SET {column} = {value};");
        shop.conn.execute_batch(&edited).unwrap();
        let found = shop.charges.find(&shop.conn, &key);
        assert!(matches!(found, Err(EffectError::Fence(FenceError::Corrupt { .. }))), "{column}: {found:?}");
        shop.conn.execute_batch("ROLLBACK TO before; RELEASE before;").unwrap();
    }
    assert!(SqliteEffects::install(&shop.conn, &shop.db.fence, "two words", KEYED).is_err());
}
