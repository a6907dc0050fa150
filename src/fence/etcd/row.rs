//! The texts under the fence's keys. Every value that is read is taken for hostile: somebody may have edited it.

use super::kv::shown;
use super::txn::{Compare, Is, Pair, Target};
use crate::{FenceError, HighWater};
use ringfence_core::ids::{ClusterId, Epoch, Scope, SessionId};

/// The format of the texts. A store of another one is refused.
const FORMAT: &str = "1";

/// No store is restored so often; what is above was written by hand.
const MAX_INCARNATION: u64 = 1 << 53;

/// Where the fence's keys are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Keys(String);

impl Keys {
    pub(super) fn under(prefix: &str) -> Keys {
        Keys(format!("{prefix}ringfence/"))
    }

    /// The range that only the fence writes to.
    pub(super) fn reserved(&self) -> (&[u8], Vec<u8>) {
        (self.0.as_bytes(), after(&self.0))
    }

    pub(super) fn binding(&self) -> String {
        format!("{}store", self.0)
    }

    pub(super) fn fence(&self, scope: &Scope) -> String {
        format!("{}fence/{scope}", self.0)
    }

    /// That there is no fence at all.
    pub(super) fn no_fences(&self) -> Compare {
        let key = format!("{}fence/", self.0);
        let end = after(&key);
        Compare { key: key.into_bytes(), end, is: Is::Equal, target: Target::Created(0) }
    }
}

/// The first key behind all those that begin with this, which ends in a slash.
fn after(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

/// Whose store this is, and in which of its lives: `1 prod cdf818194e3a8c32 1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Binding {
    pub(super) cluster: ClusterId,
    /// The id of the etcd cluster, in which it was made.
    pub(super) etcd: u64,
    /// Counts the times that the store was found to be restored.
    pub(super) incarnation: u64,
}

impl Binding {
    pub(super) fn text(&self) -> String {
        format!("{FORMAT} {} {:016x} {}", self.cluster, self.etcd, self.incarnation)
    }

    pub(super) fn read(keys: &Keys, pair: &Pair) -> Result<Binding, FenceError> {
        let corrupt =
            |found: String| FenceError::Corrupt { place: format!("the key {}", keys.binding()), found };
        leaseless(pair).map_err(corrupt)?;
        let text = String::from_utf8_lossy(&pair.value);
        Binding::parse(&text).ok_or_else(|| corrupt(quoted(&text)))
    }

    fn parse(text: &str) -> Option<Binding> {
        let mut words = text.split(' ');
        let mut word = || words.next();
        if word()? != FORMAT {
            return None;
        }
        let cluster = ClusterId::new(word()?).ok()?;
        let etcd = u64::from_str_radix(word()?, 16).ok()?;
        let incarnation = word()?.parse().ok().filter(|number| *number <= MAX_INCARNATION)?;
        let binding = Binding { cluster, etcd, incarnation };
        // One text for each binding, since it is compared byte by byte.
        (binding.text() == text).then_some(binding)
    }
}

/// What a fence holds: `0000000000000042 1 7`, which is the epoch, the store's incarnation in which it was last raised, and
/// the session, or `-`.
///
/// The epoch comes first and in sixteen digits, so that a value that is less than the next epoch's digits is one of this
/// epoch or a lower one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) seen: HighWater,
    pub(super) incarnation: u64,
}

impl Row {
    pub(super) fn text(&self) -> String {
        let session =
            self.seen.session().map_or_else(|| "-".to_string(), |session| session.get().to_string());
        format!("{:016} {} {session}", self.seen.epoch().get(), self.incarnation)
    }

    pub(super) fn read(scope: &Scope, pair: &Pair) -> Result<Row, FenceError> {
        let corrupt = |found| FenceError::Corrupt { place: format!("the fence of {scope}"), found };
        leaseless(pair).map_err(corrupt)?;
        let text = String::from_utf8_lossy(&pair.value);
        Row::parse(&text).ok_or_else(|| corrupt(quoted(&text)))
    }

    fn parse(text: &str) -> Option<Row> {
        let mut words = text.split(' ');
        let epoch = Epoch::new(words.next()?.parse().ok()?).ok()?;
        let incarnation = words.next()?.parse().ok()?;
        let session = match words.next()? {
            "-" => None,
            digits => Some(SessionId::new(digits.parse().ok()?)?),
        };
        let row = Row { seen: HighWater::new(epoch, session), incarnation };
        (row.text() == text).then_some(row)
    }
}

/// A key that is attached to a lease is gone when that ends.
fn leaseless(pair: &Pair) -> Result<(), String> {
    match pair.lease {
        0 => Ok(()),
        lease => {
            Err(format!("a lease ({lease:x}), with which it would end: put the same value again without one"))
        }
    }
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", shown(&text.chars().take(60).collect::<String>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(epoch: u64, session: Option<u64>) -> Row {
        let session = session.map(|number| SessionId::new(number).unwrap());
        Row { seen: HighWater::new(Epoch::new(epoch).unwrap(), session), incarnation: 3 }
    }

    #[test]
    fn t17_the_texts_are_read_back_exactly_and_ordered_as_their_epochs() {
        let epochs = [1, 9, 10, (1 << 31) + 1, 1 << 48, (1 << 53) - 2, (1 << 53) - 1];
        for pair in epochs.windows(2) {
            let (low, high) = (row(pair[0], None), row(pair[1], Some(u64::MAX)));
            assert_eq!((Row::parse(&low.text()), Row::parse(&high.text())), (Some(low), Some(high)));
            assert!(low.text() < high.text());
            // The compare of the recipe: below the digits of the next epoch is this one and all before it.
            assert!(low.text() < format!("{:016}", pair[0] + 1));
            assert!(high.text() >= format!("{:016}", pair[0] + 1));
        }
    }

    #[test]
    fn f096_whatever_is_no_row_is_none() {
        for text in [
            "",
            "42 1 -",
            "0000000000000000 1 -",
            "0000000000000042",
            "0000000000000042 1",
            "0000000000000042 1 ",
            "0000000000000042 1 0",
            "0000000000000042 01 -",
            "0000000000000042 1 - ",
            "+000000000000042 1 -",
            "9007199254740992 1 -",
            "00000000000000042 1 -",
        ] {
            assert_eq!(Row::parse(text), None, "{text:?}");
        }
        for text in [
            "",
            "1",
            "2 prod 00000000000000ab 1",
            "1 Prod 00000000000000ab 1",
            "1 prod ab 1",
            "1 prod 00000000000000AB 1",
            "1 prod 00000000000000ab 18446744073709551615",
        ] {
            assert_eq!(Binding::parse(text), None, "{text:?}");
        }
        let text = "1 prod 00000000000000ab 1";
        assert_eq!(Binding::parse(text).unwrap().text(), text);
    }
}
