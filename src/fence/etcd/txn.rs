//! A transaction of etcd in words of its own, so that any client library can carry it.

use std::fmt;

/// A transaction: when all compares hold, `then` is done, and `otherwise` when one does not. Each is one step.
///
/// ```
/// use ringfence_fence::etcd::{Compare, Txn};
///
/// let take = Txn::new().when(Compare::value_is("orders/17/stock", "3")).put("orders/17/stock", "2");
/// # assert_eq!((take.compares.len(), take.then.len(), take.otherwise.len()), (1, 1, 0));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Txn {
    /// What has to hold.
    pub compares: Vec<Compare>,
    /// Done in order when it does.
    pub then: Vec<Op>,
    /// Done in order when it does not.
    pub otherwise: Vec<Op>,
}

impl Txn {
    /// One that does nothing.
    pub fn new() -> Txn {
        Txn::default()
    }

    /// Asks for one more condition.
    #[must_use]
    pub fn when(mut self, compare: Compare) -> Txn {
        self.compares.push(compare);
        self
    }

    /// Does one more thing when the conditions hold.
    #[must_use]
    pub fn then(mut self, op: impl Into<Op>) -> Txn {
        self.then.push(op.into());
        self
    }

    /// Does one more thing when they do not.
    #[must_use]
    pub fn otherwise(mut self, op: impl Into<Op>) -> Txn {
        self.otherwise.push(op.into());
        self
    }

    /// Puts a value when the conditions hold.
    #[must_use]
    pub fn put(self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Txn {
        self.then(Put { key: key.into(), value: value.into(), ..Put::default() })
    }

    /// Reads a key when the conditions hold.
    #[must_use]
    pub fn get(self, key: impl Into<Vec<u8>>) -> Txn {
        self.then(Get { key: key.into(), ..Get::default() })
    }

    /// Deletes a key when the conditions hold.
    #[must_use]
    pub fn delete(self, key: impl Into<Vec<u8>>) -> Txn {
        self.then(Delete { key: key.into(), ..Delete::default() })
    }

    /// The first key, or start of a range, within `[from, to)` that it would put or delete.
    pub(super) fn writes_within(&self, from: &[u8], to: &[u8]) -> Option<&[u8]> {
        self.then.iter().chain(&self.otherwise).find_map(|op| match op {
            Op::Get(_) => None,
            Op::Put(put) => overlaps(&put.key, b"", from, to).then_some(put.key.as_slice()),
            Op::Delete(delete) => {
                overlaps(&delete.key, &delete.end, from, to).then_some(delete.key.as_slice())
            }
            Op::Txn(txn) => txn.writes_within(from, to),
        })
    }
}

/// Whether a key, or the keys from it to `end`, has one in `[from, to)`. etcd reads an `end` of one zero byte as "no end".
fn overlaps(key: &[u8], end: &[u8], from: &[u8], to: &[u8]) -> bool {
    match end {
        b"" => key >= from && key < to,
        b"\0" => key < to,
        end => key < to && end > from,
    }
}

/// A condition on a key, or on every key from it to `end`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compare {
    /// The key.
    pub key: Vec<u8>,
    /// Where a range ends, exclusive; empty for one key.
    pub end: Vec<u8>,
    /// How what is there relates to the target.
    pub is: Is,
    /// What it is compared with.
    pub target: Target,
}

impl Compare {
    /// A condition on one key.
    pub fn new(key: impl Into<Vec<u8>>, is: Is, target: Target) -> Compare {
        Compare { key: key.into(), end: Vec::new(), is, target }
    }

    /// That a key holds a value. A key that is not there holds none.
    pub fn value_is(key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Compare {
        Compare::new(key, Is::Equal, Target::Value(value.into()))
    }

    /// That a key is not there.
    pub fn is_absent(key: impl Into<Vec<u8>>) -> Compare {
        Compare::new(key, Is::Equal, Target::Created(0))
    }
}

/// How two values relate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Is {
    Equal,
    Greater,
    Less,
    NotEqual,
}

/// What a condition looks at. A key that is not there has zero of all but a value, and of that none.
#[derive(Clone, PartialEq, Eq)]
pub enum Target {
    /// How often it was put since it was made.
    Version(i64),
    /// The revision at which it was made.
    Created(i64),
    /// The revision at which it was last put.
    Modified(i64),
    /// Its value, byte by byte.
    Value(Vec<u8>),
    /// The lease it is attached to; zero for none.
    Lease(i64),
}

/// Without the value, which is the user's.
impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Version(number) => write!(f, "version {number}"),
            Target::Created(number) => write!(f, "created at {number}"),
            Target::Modified(number) => write!(f, "modified at {number}"),
            Target::Value(value) => write!(f, "a value of {} bytes", value.len()),
            Target::Lease(number) => write!(f, "lease {number:x}"),
        }
    }
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Op {
    Get(Get),
    Put(Put),
    Delete(Delete),
    Txn(Txn),
}

/// Reads a key, or a range, in the state that the transaction finds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Get {
    /// The key.
    pub key: Vec<u8>,
    /// Where a range ends, exclusive; empty for one key, one zero byte for no end.
    pub end: Vec<u8>,
    /// How many at most; zero for all.
    pub limit: i64,
    /// As of which revision; zero for now.
    pub revision: i64,
    /// Without values.
    pub keys_only: bool,
    /// How many there are, and nothing else.
    pub count_only: bool,
}

/// Puts a value.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Put {
    /// The key.
    pub key: Vec<u8>,
    /// The value.
    pub value: Vec<u8>,
    /// The lease to attach it to; zero for none.
    pub lease: i64,
    /// Whether to answer what was there.
    pub prev: bool,
}

/// Deletes a key, or a range.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delete {
    /// The key.
    pub key: Vec<u8>,
    /// Where a range ends, exclusive; empty for one key, one zero byte for no end.
    pub end: Vec<u8>,
    /// Whether to answer what was there.
    pub prev: bool,
}

impl Op {
    /// Whether it may put or delete something.
    pub(super) fn writes(&self) -> bool {
        match self {
            Op::Get(_) => false,
            Op::Put(_) | Op::Delete(_) => true,
            Op::Txn(txn) => txn.then.iter().chain(&txn.otherwise).any(Op::writes),
        }
    }
}

macro_rules! into_op {
    ($($name:ident),*) => {$(
        impl From<$name> for Op {
            fn from(op: $name) -> Op {
                Op::$name(op)
            }
        }
    )*};
}

into_op!(Get, Put, Delete, Txn);

/// Without the value, which is the user's.
impl fmt::Debug for Put {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, length) = (String::from_utf8_lossy(&self.key), self.value.len());
        write!(f, "Put({key:?}, {length} bytes, lease {})", self.lease)
    }
}

/// Where an answer comes from, and when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The id of the etcd cluster. Another one is another store, or one that was restored.
    pub cluster_id: u64,
    /// The store's revision when it answered.
    pub revision: i64,
}

/// What a transaction came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TxnReply {
    /// Where it was done.
    pub header: Header,
    /// Whether the compares held.
    pub succeeded: bool,
    /// One answer for each thing that was done.
    pub replies: Vec<OpReply>,
}

impl TxnReply {
    /// Whether something was put or deleted.
    pub(super) fn wrote(&self) -> bool {
        self.replies.iter().any(|reply| match reply {
            OpReply::Get { .. } => false,
            OpReply::Put(_) => true,
            OpReply::Delete { deleted, .. } => *deleted > 0,
            OpReply::Txn(inner) => inner.wrote(),
        })
    }
}

/// What one thing came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpReply {
    /// What was read.
    Get {
        /// The keys that were found.
        pairs: Vec<Pair>,
        /// Whether there are more than the limit.
        more: bool,
        /// How many there are.
        count: i64,
    },
    /// What was there before, when that was asked for.
    Put(Option<Pair>),
    /// How many were deleted.
    Delete {
        /// So many.
        deleted: i64,
        /// What was there, when that was asked for.
        before: Vec<Pair>,
    },
    /// What a transaction within the transaction came to.
    Txn(TxnReply),
}

/// A key with its value.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Pair {
    /// The key.
    pub key: Vec<u8>,
    /// The value.
    pub value: Vec<u8>,
    /// The revision at which the key was made.
    pub created: i64,
    /// The revision at which it was last put.
    pub modified: i64,
    /// How often it was put since it was made.
    pub version: i64,
    /// The lease it is attached to; zero for none.
    pub lease: i64,
}

/// Without the value, which is the user's.
impl fmt::Debug for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} ({} bytes)", String::from_utf8_lossy(&self.key), self.value.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t08_every_way_to_write_a_fence_s_key_is_seen_and_a_read_is_none() {
        let (from, to) = (b"app/ringfence/".as_slice(), b"app/ringfence0".as_slice());
        let delete = |key: &[u8], end: &[u8]| {
            Txn::new().then(Delete { key: key.into(), end: end.into(), prev: false })
        };
        for (txn, touches) in [
            (Txn::new().put("app/ringfence/store", "x"), true),
            (Txn::new().delete("app/ringfence/fence/orders/17"), true),
            (delete(b"app/", b"app0"), true),
            (delete(b"\0", b"\0"), true),
            (delete(b"app/ringfence/", b"\0"), true),
            (delete(b"app/r", b"app/ringfence/a"), true),
            (Txn::new().otherwise(Txn::new().put("app/ringfence/store", "x")), true),
            (Txn::new().then(Txn::new().delete("app/ringfence/store")), true),
            (Txn::new().get("app/ringfence/store"), false),
            (
                Txn::new().put("app/ringfence", "x").put("app/ringfence0", "x").delete("ringfence/store"),
                false,
            ),
            (delete(b"app/a", b"app/ringfence/"), false),
            (delete(b"app/ringfence0", b"\0"), false),
        ] {
            assert_eq!(txn.writes_within(from, to).is_some(), touches, "{txn:?}");
        }
    }

    #[test]
    fn values_are_not_shown() {
        let txn = Txn::new().when(Compare::value_is("k", "a secret")).put("k", "a secret");
        let text = format!("{txn:?}");
        // As text, and as the numbers of its bytes.
        assert!(text.contains("8 bytes") && !text.contains("secret") && !text.contains("115"), "{text}");
    }
}
