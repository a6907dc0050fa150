//! Names: `[a-z0-9][a-z0-9._-]{0,62}`.

use std::fmt;
use std::sync::Arc;

/// The longest name, in bytes.
pub const MAX_NAME_BYTES: usize = 63;

/// Why a text is not a name. It shows the text escaped and cut, so that a hostile name cannot write to a terminal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} {shown} is not a name: {why}; names match [a-z0-9][a-z0-9._-]{{0,62}}")]
pub struct NameError {
    kind: &'static str,
    shown: String,
    why: &'static str,
}

fn check(kind: &'static str, text: &str) -> Result<Arc<str>, NameError> {
    let why = match text.as_bytes() {
        [] => "it is empty",
        bytes if bytes.len() > MAX_NAME_BYTES => "it is longer than 63 bytes",
        [first, rest @ ..] => {
            let plain = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
            if !plain(first) {
                "it does not start with a lower-case letter or a digit"
            } else if !rest.iter().all(|b| plain(b) || matches!(b, b'.' | b'_' | b'-')) {
                "it has a character that is not allowed"
            } else {
                return Ok(Arc::from(text));
            }
        }
    };
    let cut: String = text.chars().take(40).collect();
    let dots = if cut.len() < text.len() { "..." } else { "" };
    Err(NameError { kind, shown: format!("\"{}{dots}\"", cut.escape_default()), why })
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $kind:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks the text and takes it as a name.
            ///
            /// # Errors
            /// [`NameError`] when it is empty, too long, or has a character that is not allowed.
            pub fn new(text: &str) -> Result<Self, NameError> {
                check($kind, text).map(Self)
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }

        impl std::str::FromStr for $name {
            type Err = NameError;
            fn from_str(text: &str) -> Result<Self, NameError> {
                Self::new(text)
            }
        }
    };
}

name!(
    /// A named set of partitions with one policy.
    KeyspaceName,
    "keyspace"
);
name!(
    /// The stable name of a process that owns partitions.
    WorkerId,
    "worker"
);
name!(
    /// A named lock.
    LockName,
    "lock"
);
name!(
    /// What programs call a storage that has a fence.
    StoreName,
    "storage"
);
name!(
    /// The identity of one cluster; a fence belongs to exactly one.
    ClusterId,
    "cluster id"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f021_ids_with_control_characters_or_10_kb_are_refused_and_shown_escaped() {
        for bad in ["", "-a", ".a", "A", "a b", "a/b", "a\n", "\u{1b}[31mred", "..", "ä", &"a".repeat(64)] {
            let error = WorkerId::new(bad).expect_err(bad);
            assert!(!error.to_string().contains('\n') && !error.to_string().contains('\u{1b}'), "{error}");
        }
        let error = KeyspaceName::new(&"x".repeat(10_000)).expect_err("10 kB").to_string();
        assert!(error.len() < 250, "{error}");
        assert_eq!(WorkerId::new(&"a".repeat(63)).map(|w| w.as_str().len()), Ok(63));
        assert_eq!(KeyspaceName::new("0.a_b-c").map(|k| k.to_string()), Ok("0.a_b-c".to_string()));
    }
}
