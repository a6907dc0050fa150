//! Effects that no fence can refuse: a mail, a payment, somebody's HTTP API.
//!
//! A fence protects what compares tokens. A payment API compares none: an owner that is paused between its last look at the
//! fence and its call charges the customer whenever it wakes up. What helps is that the *other side* counts a repetition
//! once. So each effect gets a key that every owner derives alike ([`EffectKey`]), and the storage behind the fence
//! remembers what is to be done, before it is done:
//!
//! 1. **Intend**, in the transaction of the work that the effect is of. Both are there or neither.
//! 2. **Claim**: "I send this now", durably, before anything is sent. Only a claim gives the permission to send
//!    ([`Sending`]).
//! 3. The call itself, with the key.
//! 4. **Settle**: what it came to, through the fence again.
//!
//! The next owner claims what the one before has left. Never sent: it sends. Claimed and not settled: *it may have
//! happened*. Where the other side keeps keys, it sends again under the same one; where it keeps none, it holds the effect
//! for a person, and sends nothing ([`Delivery`]).
//!
//! ```
//! # #[cfg(feature = "rusqlite")]
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use ringfence_core::ids::ClusterId;
//! use ringfence_fence::effects::{Claim, Delivery, Outcome, SqliteEffects};
//! use ringfence_fence::{FencingToken, sqlite::SqliteFence};
//! use rusqlite::{Connection, TransactionBehavior::Immediate};
//!
//! /// Somebody's API: answers a key that it has seen with what it did then.
//! fn charge(paid: &mut Vec<String>, key: &str) -> String {
//!     if !paid.iter().any(|seen| seen == key) {
//!         paid.push(key.to_string());
//!     }
//!     format!("payment {}", paid.len())
//! }
//!
//! # let mut conn = Connection::open_in_memory()?;
//! # let mut paid = Vec::new();
//! conn.execute_batch("CREATE TABLE orders (id TEXT PRIMARY KEY, paid TEXT)")?;
//! let fence = SqliteFence::install(&conn, &ClusterId::new("prod")?)?;
//! let charges = SqliteEffects::install(&conn, &fence, "charge", Delivery::Keyed { attempts: 5 })?;
//!
//! let first: FencingToken = "prod/orders/17@33".parse()?;
//! fence.raise(&mut conn, &first)?;
//! let tx = conn.transaction_with_behavior(Immediate)?;
//! let key = charges.intend(&tx, &first, "order-7", "42.00 EUR")?; // checks the fence
//! tx.execute("INSERT INTO orders VALUES ('order-7', NULL)", ())?;
//! tx.commit()?;
//!
//! let Claim::Send(call) = charges.claim(&conn, &first, &key)? else { panic!("it was never sent") };
//! charge(&mut paid, call.key().as_str());
//! // Here the first owner stops, and does not note that it has charged.
//!
//! let second: FencingToken = "prod/orders/17@34".parse()?;
//! fence.raise(&mut conn, &second)?;
//! while let Some(claim) = charges.claim_next(&conn, &second)? {
//!     let Claim::Send(call) = claim else { continue }; // held for a person
//!     assert!(call.may_have_happened());
//!     let payment = charge(&mut paid, call.key().as_str());
//!     let tx = conn.transaction_with_behavior(Immediate)?;
//!     charges.settle(&tx, &second, &call, Outcome::Done(&payment))?;
//!     tx.execute("UPDATE orders SET paid = ?1 WHERE id = 'order-7'", [&payment])?;
//!     tx.commit()?;
//! }
//! assert_eq!(paid, ["prod/orders/charge/order-7"]); // charged once
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "rusqlite"))]
//! # fn main() {}
//! ```
//!
//! # What it promises, and what not
//!
//! - **At least once with a key, so once where the other side keeps keys** for as long as anybody may still send. It is the
//!   other side that makes it once. This module sees to it that the key is the same and that nothing is forgotten.
//! - **Without keys: at most once by itself, and never a guess.** What may have happened is held. A person who answers "it has
//!   not happened, send it again" has to know that whoever claimed it is gone: a paused owner still holds its permission and
//!   sends when it wakes up, and nothing can take it back.
//! - **No order** among effects, and no order between an effect and what others read.
//! - A replaced owner settles nothing, claims nothing and intends nothing: the fence refuses it, with both epochs.
//! - Stop before the call when the lease is gone (`Ownership::stamp` of the SDK says so): that makes a late call rare. It
//!   does not make it impossible.
//!
//! Bounded: [`MAX_OPEN`] unsettled effects a scope, [`MAX_PAYLOAD`], [`MAX_OUTCOME`], and the attempts of a
//! [`Delivery::Keyed`]; behind each the error, or the record that is held, says which bound it was.

mod error;
#[cfg(test)]
mod interleavings;
mod key;
mod record;

pub use error::EffectError;
pub use key::{EffectKey, MAX_KIND, MAX_OPERATION};
pub use record::{
    Claim, Delivery, MAX_OPEN, MAX_OUTCOME, MAX_PAYLOAD, Outcome, Record, Resolution, Sending, State,
};

#[cfg(any(feature = "tokio-postgres", feature = "sqlx-postgres"))]
pub use crate::postgres::PostgresEffects;
#[cfg(feature = "rusqlite")]
pub use crate::sqlite::SqliteEffects;

pub mod rule {
    //! The rule by which a record moves, for storage of your own.
    //!
    //! It is pure, as [`HighWater`](crate::HighWater) is. In one transaction: check the fence, read the record under a lock, ask,
    //! and write what was answered. A claim is committed durably before [`claimed`] makes the permission of it.

    pub use super::key::fit_for_a_kind;
    pub use super::record::{adopt, claim, claimed, intend, resolve, settle};
}
