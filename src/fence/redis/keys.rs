//! The keys of the fences.

use super::commands::unfit;
use super::failure::shown;
use crate::FenceError;
use ringfence_core::ids::Scope;
use std::sync::Arc;

/// The key that a store's binding to a cluster has.
pub(super) const BINDING: &str = "ringfence:store";

/// Which fences live in one slot of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Tagging {
    EachScope,
    Together(Arc<str>),
}

impl Tagging {
    /// The hash tag of a scope's data, with its braces.
    pub(super) fn tag(&self, scope: &Scope) -> String {
        match self {
            Tagging::EachScope => format!("{{{scope}}}"),
            Tagging::Together(tag) => format!("{{{tag}}}"),
        }
    }

    /// The key of a scope's fence.
    pub(super) fn key(&self, scope: &Scope) -> String {
        match self {
            Tagging::EachScope => format!("ringfence:{{{scope}}}"),
            Tagging::Together(tag) => format!("ringfence:{{{tag}}}{scope}"),
        }
    }

    /// As the binding keeps it.
    pub(super) fn recorded(&self) -> &str {
        match self {
            Tagging::EachScope => "",
            Tagging::Together(tag) => tag,
        }
    }

    pub(super) fn shown(recorded: &str) -> String {
        if recorded.is_empty() {
            "a hash tag for each scope".into()
        } else {
            format!("the hash tag \"{}\" for all", shown(recorded))
        }
    }

    pub(super) fn must_be_sound(&self) -> Result<(), FenceError> {
        match self {
            Tagging::Together(tag) if tag.is_empty() || tag.len() > 63 || tag.contains(['{', '}']) => {
                Err(unfit("a hash tag is 1 to 63 bytes without braces"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::slot::slot;
    use super::*;

    #[test]
    fn a_fence_is_in_the_slot_of_its_tag_and_no_two_scopes_share_a_key() {
        let scopes =
            ["orders/1", "orders/17", "order/17", "@locks/orders"].map(|s| s.parse::<Scope>().unwrap());
        for tagging in [Tagging::EachScope, Tagging::Together("shop".into())] {
            let keys: Vec<String> = scopes.iter().map(|scope| tagging.key(scope)).collect();
            for (scope, key) in scopes.iter().zip(&keys) {
                let data = format!("{}cart", tagging.tag(scope));
                assert_eq!(slot(key.as_bytes()), slot(data.as_bytes()), "{key} {data}");
                assert_eq!(keys.iter().filter(|other| *other == key).count(), 1);
                assert_ne!(key, BINDING);
            }
        }
        assert!(Tagging::Together("a{b".into()).must_be_sound().is_err());
        assert!(Tagging::Together("".into()).must_be_sound().is_err());
    }
}
