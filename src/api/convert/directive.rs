//! What operators decided, as it is told to people.

use crate::text::shown;
use crate::v1;
use ringfence_core::ids::LogIndex;
use ringfence_core::state::{self, State};

/// What an operator decided: by whom, and why. The texts are escaped.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Directive {
    /// What names it: the log index of its entry.
    pub at: LogIndex,
    /// The leader's wall clock then, for display; 0 when the directive was forgotten and only its name is left.
    pub unix_ms: u64,
    /// Who, as that person or program called itself.
    pub by: String,
    /// What was decided, in words.
    pub what: String,
    /// Why, in the operator's words; may be empty.
    pub reason: String,
}

impl Directive {
    /// The directive of this index. Of one that was forgotten only the index is left; what it set stands.
    pub fn named(state: &State, at: LogIndex) -> Directive {
        let forgotten =
            || Directive { at, unix_ms: 0, by: String::new(), what: String::new(), reason: String::new() };
        state.directive(at).map_or_else(forgotten, Directive::from)
    }
}

impl From<&state::Directive> for Directive {
    fn from(from: &state::Directive) -> Directive {
        Directive {
            at: from.at,
            unix_ms: from.unix_ms,
            by: shown(&from.by),
            what: shown(&from.what),
            reason: shown(&from.reason),
        }
    }
}

impl From<Directive> for v1::GivenDirective {
    fn from(from: Directive) -> v1::GivenDirective {
        let Directive { at, unix_ms, by, what, reason } = from;
        v1::GivenDirective { index: at.get(), unix_ms, by, what, reason }
    }
}

impl From<v1::GivenDirective> for Directive {
    fn from(wire: v1::GivenDirective) -> Directive {
        Directive {
            at: LogIndex::new(wire.index),
            unix_ms: wire.unix_ms,
            by: shown(&wire.by),
            what: shown(&wire.what),
            reason: shown(&wire.reason),
        }
    }
}
