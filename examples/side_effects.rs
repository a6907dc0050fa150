//! What a fence cannot protect: a payment API that checks no token. There an idempotency key does the work.
//!
//! An owner charges a customer, and is replaced before it has noted that it did. Its successor cannot know, and charges
//! again. The key is the business's own (this invoice of this customer), the same whoever asks: the API answers the second
//! call with the first result. A key with the epoch in it would be another one under the next owner, and charge twice.
//!
//! The successor also has to know that there is something to charge, and that it may have happened. That is recorded behind
//! the fence before the call (`fence::effects`). An API that keeps no keys is charged once more by whoever sends again; there the
//! record is held for a person.
//!
//! ```console
//! $ cargo run --example side_effects
//! the key names the invoice: charged 1 time
//! the key names the invoice and the epoch: charged 2 times
//! recorded, sent again by the next owner, and the first one's call comes late: charged 1 time
//! the same, at an API that keeps no keys: charged 2 times
//! the same there, held for a person: charged 1 time
//! ```

use ringfence::Ownership;
use ringfence::fence::effects::{Claim, Delivery, Outcome, SqliteEffects};
use ringfence::fence::sqlite::SqliteFence;
use ringfence::testkit::Granted;
use rusqlite::Connection;
use rusqlite::TransactionBehavior::Immediate;
use std::collections::BTreeMap;
use std::error::Error;

/// Somebody else's service. It knows nothing of epochs; it answers a key that it has kept with what it did then.
#[derive(Default)]
struct Payments {
    forgets: bool,
    done: BTreeMap<String, u64>,
    charged: u64,
}

impl Payments {
    fn charge(&mut self, key: &str, cents: u64) -> u64 {
        if self.forgets || !self.done.contains_key(key) {
            self.charged += 1;
            self.done.insert(key.to_string(), cents);
        }
        self.done[key]
    }
}

/// How an owner names the charge.
type Key = fn(&Ownership, &str) -> String;

fn by_invoice(_: &Ownership, invoice: &str) -> String {
    invoice.to_string()
}

fn by_invoice_and_epoch(owner: &Ownership, invoice: &str) -> String {
    format!("{invoice}@{}", owner.epoch().get())
}

/// Two owners in a row charge the same invoice; the first was replaced before it could note that it had.
fn charged(key: Key) -> Result<u64, Box<dyn Error>> {
    let mut payments = Payments::default();
    let (first, mut control) = Granted::new("invoices", 3).epoch(33).start()?;
    first.stamp()?;
    payments.charge(&key(&first, "customer-17/2026-11"), 4_200);
    control.lose();

    let second = control.next_epoch()?;
    second.stamp()?;
    payments.charge(&key(&second, "customer-17/2026-11"), 4_200);
    Ok(payments.charged)
}

/// The first owner has recorded that it charges, and sleeps. The second finds that, and does what it may. Then the first one
/// wakes up, and its call goes out: no fence stands in its way.
fn recorded(delivery: Delivery, forgets: bool) -> Result<u64, Box<dyn Error>> {
    let mut payments = Payments { forgets, ..Payments::default() };
    let mut db = Connection::open_in_memory()?;
    let (first, mut control) = Granted::new("invoices", 3).epoch(33).start()?;
    let fence = SqliteFence::install(&db, first.token().cluster())?;
    let charges = SqliteEffects::install(&db, &fence, "charge", delivery)?;
    fence.raise(&mut db, first.token())?;

    let stamp = first.stamp()?;
    let tx = db.transaction_with_behavior(Immediate)?; // the invoice itself would be written here too
    let key = charges.intend(&tx, &stamp, "customer-17/2026-11", "4200")?;
    tx.commit()?;
    let Claim::Send(late) = charges.claim(&db, &stamp, &key)? else { return Err("it was never sent".into()) };
    control.lose();

    let second = control.next_epoch()?;
    fence.raise(&mut db, second.token())?;
    let stamp = second.stamp()?;
    while let Some(claim) = charges.claim_next(&db, &stamp)? {
        let Claim::Send(call) = claim else { continue }; // held: `charges.list` shows it, with the reason
        payments.charge(call.key().as_str(), call.payload().parse()?);
        let tx = db.transaction_with_behavior(Immediate)?;
        charges.settle(&tx, &stamp, &call, Outcome::Done("charged"))?;
        tx.commit()?;
    }

    payments.charge(late.key().as_str(), late.payload().parse()?);
    Ok(payments.charged)
}

fn main() -> Result<(), Box<dyn Error>> {
    let times = |n: u64| format!("{n} time{}", if n == 1 { "" } else { "s" });
    println!("the key names the invoice: charged {}", times(charged(by_invoice)?));
    println!("the key names the invoice and the epoch: charged {}", times(charged(by_invoice_and_epoch)?));

    let again = Delivery::Keyed { attempts: 5 };
    let story = "recorded, sent again by the next owner, and the first one's call comes late";
    println!("{story}: charged {}", times(recorded(again, false)?));
    println!("the same, at an API that keeps no keys: charged {}", times(recorded(again, true)?));
    println!("the same there, held for a person: charged {}", times(recorded(Delivery::Unkeyed, true)?));
    Ok(())
}
