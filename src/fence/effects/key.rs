//! What names an effect: for the other side, and for the next owner.

use super::EffectError;
use crate::FencingToken;
use ringfence_core::ids::Scope;
use ringfence_core::mutant;
use std::fmt;

/// How long the kind of an effect may be, in bytes.
pub const MAX_KIND: usize = 24;

/// How long the user's id of an operation may be, in bytes.
pub const MAX_OPERATION: usize = 90;

/// The idempotency key of one effect: `CLUSTER/KEYSPACE/KIND/OPERATION`, such as `prod/invoices/charge/customer-17:2026-11`.
///
/// It is made of *what is done*, and of nothing that changes when somebody else does it:
///
/// - **Not the epoch.** The next owner repeats the call because it cannot know whether it happened. Under another key the
///   other side would take it for another charge.
/// - **Not the partition.** When the keyspace is split, the operation belongs to another partition, and is the same
///   operation.
/// - **Not a number drawn at random or a time**, for the same reason: the next owner would draw another one.
///
/// At most 255 bytes of printable ASCII, without spaces, so that it goes into a header or a column as it is. It is given to
/// the other side: an operation's id should not be a name or a mail address. Where the other side wants another form, such
/// as a UUID, hash the text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EffectKey(String);

impl EffectKey {
    /// The key of an operation in the keyspace, or under the lock, of this token.
    ///
    /// The operation's id is the business's own, and one operation of the keyspace has it: an invoice, an order, a line of a
    /// file. One operation that charges twice is two operations.
    ///
    /// # Errors
    /// [`EffectError::Unfit`]: the kind is not 1 to [`MAX_KIND`] letters, digits, `.`, `_` or `-`, or the operation not 1 to
    /// [`MAX_OPERATION`] printable ASCII characters without spaces.
    pub fn new(token: &FencingToken, kind: &str, operation: &str) -> Result<EffectKey, EffectError> {
        fit_for_a_kind(kind)?;
        let long = operation.is_empty() || operation.len() > MAX_OPERATION;
        if long || !operation.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(EffectError::Unfit {
                why: format!(
                    "an operation's id is 1 to {MAX_OPERATION} printable ASCII characters without spaces, and this one \
                     has {} bytes: hash what does not fit",
                    operation.len()
                ),
            });
        }
        let root = root(token.scope());
        if mutant!("effect-key-with-epoch") {
            return Ok(EffectKey(format!("{}/{root}@{}/{kind}/{operation}", token.cluster(), token.epoch())));
        }
        Ok(EffectKey(format!("{}/{root}/{kind}/{operation}", token.cluster())))
    }

    /// A key as a storage has kept it.
    pub fn stored(text: String) -> EffectKey {
        EffectKey(text)
    }

    /// The key as the other side gets it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EffectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for EffectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// Refuses what cannot be the kind of an effect, so that it is found before the first one.
///
/// # Errors
/// [`EffectError::Unfit`].
pub fn fit_for_a_kind(kind: &str) -> Result<(), EffectError> {
    let named = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if !kind.is_empty() && kind.len() <= MAX_KIND && kind.bytes().all(named) {
        return Ok(());
    }
    let why =
        format!("the kind of an effect is 1 to {MAX_KIND} letters, digits, `.`, `_` or `-`, unlike {kind:?}");
    Err(EffectError::Unfit { why })
}

/// What of a scope stays when it is split: the keyspace, or the lock.
pub(super) fn root(scope: &Scope) -> String {
    match scope {
        Scope::Partition(keyspace, _) => keyspace.to_string(),
        lock @ Scope::Lock(_) => lock.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(text: &str) -> FencingToken {
        text.parse().unwrap()
    }

    #[test]
    fn a24_t19_the_key_is_the_same_for_every_owner_and_after_a_split_and_fits_into_a_header() {
        let keys: Vec<EffectKey> = ["prod/orders/17@33", "prod/orders/17@34", "prod/orders/81@40"]
            .iter()
            .map(|text| EffectKey::new(&token(text), "charge", "order-7").unwrap())
            .collect();
        assert_eq!(keys[0].as_str(), "prod/orders/charge/order-7");
        assert!(keys.iter().all(|key| *key == keys[0]));
        let elsewhere = EffectKey::new(&token("prod/refunds/17@33"), "charge", "order-7").unwrap();
        let of_a_lock = EffectKey::new(&token("prod/@locks/orders@33"), "charge", "order-7").unwrap();
        assert!(elsewhere != keys[0] && of_a_lock != keys[0]);

        let name = "n".repeat(63);
        let longest = token(&format!("{name}/@locks/{name}@9007199254740991"));
        let key = EffectKey::new(&longest, &"k".repeat(MAX_KIND), &"o".repeat(MAX_OPERATION)).unwrap();
        assert!(key.as_str().len() <= 255, "{}", key.as_str().len());
    }

    #[test]
    fn what_does_not_fit_into_a_key_is_refused_and_not_cut() {
        let token = token("prod/orders/17@33");
        let (long_kind, long) = ("k".repeat(MAX_KIND + 1), "o".repeat(MAX_OPERATION + 1));
        for (kind, operation) in [
            ("", "o"),
            ("a/b", "o"),
            (long_kind.as_str(), "o"),
            ("k", ""),
            ("k", "two words"),
            ("k", "line\n"),
            ("k", "münchen"),
            ("k", long.as_str()),
        ] {
            let refused = EffectKey::new(&token, kind, operation);
            assert!(matches!(refused, Err(EffectError::Unfit { .. })), "{kind:?} {operation:?}: {refused:?}");
        }
    }
}
