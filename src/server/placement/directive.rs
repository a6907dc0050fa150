//! Directives: from whoever gives them.

use ringfence_api::convert::Directive;
use ringfence_api::v1;
use ringfence_core::ids::LogIndex;
use ringfence_core::state::{Command, State, Subject};

/// Who wants something, and why.
pub(crate) struct Given {
    pub(crate) by: String,
    pub(crate) reason: String,
}

impl From<Option<v1::Directive>> for Given {
    fn from(wire: Option<v1::Directive>) -> Given {
        let v1::Directive { by, reason, assumed: _ } = wire.unwrap_or_default();
        Given { by, reason }
    }
}

/// Who wants something, when somebody said it, of a request that nodes from before directives know too. They cannot read an
/// entry that names somebody. So a client that says nothing is not remembered, and a name that nobody said only where something
/// was used already that such nodes cannot read.
pub(crate) fn said(state: &State, wire: Option<v1::Directive>) -> Option<Given> {
    let wire = wire.filter(|wire| !(wire.by.is_empty() && wire.reason.is_empty()))?;
    (!wire.assumed || state.has_what_is_new()).then(|| Given::from(Some(wire)))
}

/// The commands of a change that somebody wants.
pub(crate) fn directed(subject: Subject, given: Option<&Given>, what: &str, change: Command) -> Vec<Command> {
    given.map(|given| direct(subject, given, what)).into_iter().chain([change]).collect()
}

/// The command that remembers a directive.
pub(crate) fn direct(subject: Subject, given: &Given, what: &str) -> Command {
    let Given { by, reason } = given;
    Command::Direct { subject, by: by.clone(), what: what.to_owned(), reason: reason.clone() }
}

pub(crate) fn named(state: &State, at: LogIndex) -> v1::GivenDirective {
    Directive::named(state, at).into()
}
