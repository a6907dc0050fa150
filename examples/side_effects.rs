//! What a fence cannot protect: a payment API that checks no token. There an idempotency key does the work.
//!
//! An owner charges a customer, and is replaced before it has noted that it did. Its successor cannot know, and charges
//! again. The key is the business's own (this invoice of this customer), the same whoever asks: the API answers the second
//! call with the first result. A key with the epoch in it would be another one under the next owner, and charge twice.
//!
//! ```console
//! $ cargo run --example side_effects
//! the key names the invoice: charged 1 time
//! the key names the invoice and the epoch: charged 2 times
//! ```

use ringfence::Ownership;
use ringfence::testkit::Granted;
use std::collections::BTreeMap;
use std::error::Error;

/// Somebody else's service. It knows nothing of epochs; it answers a key that it has seen with what it did then.
#[derive(Default)]
struct Payments {
    done: BTreeMap<String, u64>,
    charged: u64,
}

impl Payments {
    fn charge(&mut self, key: &str, cents: u64) -> u64 {
        if !self.done.contains_key(key) {
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

fn main() -> Result<(), Box<dyn Error>> {
    let times = |n: u64| format!("{n} time{}", if n == 1 { "" } else { "s" });
    println!("the key names the invoice: charged {}", times(charged(by_invoice)?));
    println!("the key names the invoice and the epoch: charged {}", times(charged(by_invoice_and_epoch)?));
    Ok(())
}
