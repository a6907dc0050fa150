//! A world in which nothing happens keeps every promise. It is not one that held.

use super::{Rule, Rules, Verdict};
use crate::history::{History, What};

pub(super) fn check(history: &History, rules: &Rules, verdict: &mut Verdict) {
    if rules.expected.is_empty() {
        return;
    }
    let some = |is: &dyn Fn(&What) -> bool| history.events.iter().any(|event| is(&event.what));
    for keyspace in rules.expected.keys() {
        let created =
            |what: &What| matches!(what, What::KeyspaceCreated { keyspace: of, .. } if of == keyspace);
        if !some(&created) {
            verdict.found(Rule::Inert, [], format!("the keyspace {keyspace} was never created"));
        }
    }
    // Who looks at the coordinator from time to time only may have seen no election.
    let led = !rules.all_grants || some(&|what| matches!(what, What::Elected { .. }));
    let began = some(&|what| matches!(what, What::Began { .. }));
    let wrote = some(&|what| matches!(what, What::Applied { .. }));
    for (happened, what) in
        [(led, "nobody led"), (began, "nobody owned anything"), (wrote, "nothing was written")]
    {
        if !happened {
            verdict.found(Rule::Inert, [], format!("{what}, from the first to the last"));
        }
    }
}
