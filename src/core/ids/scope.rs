//! What a fencing token speaks for.

use super::{KeyspaceName, LockName, NameError, PartitionId};
use std::fmt;
use std::str::FromStr;

/// A partition of a keyspace, or a lock: the thing whose epochs a fence compares.
///
/// The text form is `orders/17` for a partition and `@locks/NAME` for a lock; it is the key of the fence's row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// A partition of a keyspace.
    Partition(KeyspaceName, PartitionId),
    /// A named lock.
    Lock(LockName),
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scope::Partition(keyspace, partition) => write!(f, "{keyspace}/{}", partition.get()),
            Scope::Lock(name) => write!(f, "@locks/{name}"),
        }
    }
}

/// Why a text is not a scope.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScopeError {
    /// It is neither `KEYSPACE/PARTITION` nor `@locks/NAME`.
    #[error("a scope is written KEYSPACE/PARTITION, such as orders/17, or @locks/NAME")]
    Shape,
    /// The name in it is not a name.
    #[error(transparent)]
    Name(#[from] NameError),
}

impl FromStr for Scope {
    type Err = ScopeError;

    fn from_str(text: &str) -> Result<Scope, ScopeError> {
        let (before, after) = text.split_once('/').ok_or(ScopeError::Shape)?;
        if before == "@locks" {
            return Ok(Scope::Lock(LockName::new(after)?));
        }
        let digits = !after.is_empty() && after.bytes().all(|b| b.is_ascii_digit());
        let canonical = after == "0" || !after.starts_with('0');
        let number = after.parse::<u32>().ok().filter(|_| digits && canonical).ok_or(ScopeError::Shape)?;
        Ok(Scope::Partition(KeyspaceName::new(before)?, PartitionId::new(number)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_text_form_is_read_back_and_only_one_text_means_a_scope() {
        for text in ["orders/17", "orders/0", "@locks/nightly"] {
            assert_eq!(text.parse::<Scope>().map(|s| s.to_string()), Ok(text.to_string()));
        }
        for bad in [
            "orders",
            "orders/",
            "orders/017",
            "orders/+1",
            "orders/4294967296",
            "/1",
            "@locks/",
            "Or/1",
            "a/b/1",
        ] {
            assert!(bad.parse::<Scope>().is_err(), "{bad}");
        }
    }
    /// Texts that are nearly scopes.
    fn nearly() -> impl Strategy<Value = String> {
        prop_oneof![
            "[a-z0-9._-]{0,70}/[0-9]{0,11}",
            "@locks/[a-z0-9._-]{0,70}",
            "[a-zA-Z0-9@/._ ä-]{0,20}",
            any::<String>()
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn f096_a_text_means_one_scope_or_none_and_is_never_a_panic(text in nearly()) {
            match text.parse::<Scope>() {
                Ok(scope) => prop_assert_eq!(scope.to_string(), text),
                Err(error) => prop_assert!(error.to_string().chars().all(|c| !c.is_control())),
            }
        }

        #[test]
        fn every_partition_and_every_lock_has_a_text(name in "[a-z0-9][a-z0-9._-]{0,62}", number in any::<u32>()) {
            let keyspace = KeyspaceName::new(&name).expect("a name");
            let lock = Scope::Lock(LockName::new(&name).expect("a name"));
            for scope in [Scope::Partition(keyspace, PartitionId::new(number)), lock] {
                prop_assert_eq!(scope.to_string().parse::<Scope>(), Ok(scope));
            }
        }
    }
}
