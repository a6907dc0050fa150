//! Stale writes under raises: none is accepted, and some are where check and write are two steps.

use crate::subject::{Database, put, token};
use ringfence_fence::{FenceError, Fenced, FencingToken};
use rusqlite::{Connection, TransactionBehavior};
use std::slice::from_ref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

pub(crate) const WRITERS: u64 = 3;

type Write = fn(&Database, &mut Connection, &FencingToken) -> Result<(), FenceError>;

/// As the fence has it.
fn fenced(db: &Database, conn: &mut Connection, token: &FencingToken) -> Result<(), FenceError> {
    db.fence.write(conn, from_ref(token), |tx| put(tx, "k", &token.epoch().get().to_string()))
}

/// The control: reads the fence, decides, and opens the transaction afterwards.
fn looked_at(db: &Database, conn: &mut Connection, token: &FencingToken) -> Result<(), FenceError> {
    match db.fence.highest(conn, token.scope())? {
        Some(highest) if highest > token.epoch() => return Err(Fenced::new(token.clone(), highest).into()),
        _ => {}
    }
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    put(&tx, "k", &token.epoch().get().to_string())?;
    tx.commit().map_err(|error| FenceError::store("writing", error))
}

fn open(db: &Database) -> Connection {
    let conn = db.open();
    // Nobody crashes here; a raise is synced all the same.
    conn.pragma_update(None, "synchronous", "NORMAL").unwrap();
    // SQLite's own patience sleeps for up to a tenth of a second.
    let wait = |_| {
        thread::sleep(Duration::from_micros(50));
        true
    };
    conn.busy_handler(Some(wait)).unwrap();
    conn
}

/// A new owner comes again and again: it raises, and reads what is there. The writers of all the earlier ones go on; one of
/// them is taken for stale when it commits under an epoch below one that was raised before it checked, or when what a new
/// owner has read after its raise is changed by somebody else.
///
/// Answers how many tries were made and how many stale ones took effect.
fn storm(tries: u64, write: Write) -> (u64, u64) {
    let db = Database::new("wal");
    let token_of = |epoch: u64| token(&format!("prod/orders/17@{epoch}"));
    let (raised, tried) = (AtomicU64::new(1), AtomicU64::new(0));
    db.fence.raise(&mut open(&db), &token_of(1)).unwrap();
    fenced(&db, &mut open(&db), &token_of(1)).unwrap();
    let going_on = || tried.load(Ordering::Relaxed) < tries;
    let writer = |number: u64| {
        let (mut conn, mut accepted) = (open(&db), 0);
        while going_on() {
            // An owner of a while ago, or the one that is just being replaced.
            let before = raised.load(Ordering::SeqCst);
            let own = before.saturating_sub(number).max(1);
            if own < before {
                tried.fetch_add(1, Ordering::Relaxed);
            }
            match write(&db, &mut conn, &token_of(own)) {
                Ok(()) if own < before => accepted += 1,
                Ok(()) | Err(FenceError::Fenced(_) | FenceError::Busy { .. }) => {}
                Err(other) => panic!("{other}"),
            }
        }
        accepted
    };
    let owner = || {
        let (mut conn, mut changed, mut epoch) = (open(&db), 0, 1);
        let read = |conn: &Connection| {
            conn.query_row("SELECT value FROM texts WHERE key = 'k'", (), |row| row.get::<_, String>(0))
                .unwrap()
        };
        while going_on() {
            epoch += 1;
            db.fence.raise(&mut conn, &token_of(epoch)).unwrap();
            // No writer knows of this epoch yet, so nobody may write until it is told.
            let first = read(&conn);
            if (0..20).any(|_| read(&conn) != first) {
                changed += 1;
            }
            raised.store(epoch, Ordering::SeqCst);
        }
        changed
    };
    let accepted = thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS).map(|number| scope.spawn(move || writer(number))).collect();
        let changed = owner();
        changed + writers.into_iter().map(|writer| writer.join().unwrap()).sum::<u64>()
    });
    (tried.into_inner(), accepted)
}

fn nothing_stale(tries: u64) {
    let (tried, accepted) = storm(tries, fenced);
    println!(
        "{tried} stale writes tried under raises, {accepted} took effect; nothing is drawn, so there is no seed"
    );
    assert!(tried >= tries);
    assert_eq!(accepted, 0);
}

#[test]
fn t03_no_stale_write_takes_effect_under_concurrent_raises() {
    nothing_stale(20_000);
}

/// `cargo test -p ringfence-fence --test sqlite -- --ignored --nocapture`
#[test]
#[ignore = "takes minutes"]
fn t03_no_stale_write_takes_effect_in_a_million_tries() {
    nothing_stale(1_000_000);
}

#[test]
fn t57_t03_stale_writes_take_effect_where_check_and_write_are_two_steps() {
    let mut tried = 0;
    for _ in 0..20 {
        let (some, accepted) = storm(2_000, looked_at);
        tried += some;
        if accepted > 0 {
            println!("{tried} stale writes tried under raises in two steps, {accepted} took effect");
            return;
        }
    }
    panic!("in {tried} tries none took effect: this control controls nothing");
}
