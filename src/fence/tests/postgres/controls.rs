//! The negative controls: the fence's own functions with one thing taken out, each found by the rule that names it.

use crate::server::Server;
use crate::subject::PostgresSubject;
use ringfence_fence::conformance::{Outcome, Rule, run_rule};
use ringfence_fence::postgres::PostgresFence;

const QUEUE: &str = "PERFORM pg_advisory_xact_lock_shared(ringfence.lock_key(ringfence.scope_of(token)));";
const ROW: &str = "FOR SHARE OF f;";

/// The functions with these texts replaced. A text that is not there any more is a control that controls nothing.
pub(crate) fn without(replaced: &[(&str, &str)]) -> String {
    replaced.iter().fold(PostgresFence::MIGRATION_SQL.to_owned(), |sql, (this, by)| {
        assert_eq!(sql.matches(this).count(), 1, "{this}");
        sql.replace(this, by)
    })
}

/// Only the row's lock, so that what it does can be seen by itself.
pub(crate) fn without_the_queue(row: &str) -> String {
    without(&[(QUEUE, ""), (ROW, row)])
}

/// Only the queue, and whatever the transaction's snapshot says of the row.
pub(crate) fn without_the_rows_lock() -> String {
    without(&[(ROW, ";")])
}

#[test]
fn t57_a_check_that_leaves_a_gap_is_found_by_the_rule_that_names_it() {
    let Some(server) = Server::start() else { return };
    let no_check = without(&[(QUEUE, "RETURN;")]);
    let unlocked = without_the_queue(";");
    let key_share = without_the_queue("FOR KEY SHARE OF f;");
    let decided = without(&[("ELSIF own < seen.epoch THEN", "ELSIF own <> seen.epoch AND own < 0 THEN")]);
    let subject =
        |functions| PostgresSubject { server: &server, sqlx: false, isolation: "read committed", functions };
    for (name, functions, rule) in [
        ("no check", &no_check, Rule::OlderRefused),
        ("no check", &no_check, Rule::UntouchedRowsFenced),
        ("no check", &no_check, Rule::NeverRaisedRefused),
        ("a check that takes no lock", &unlocked, Rule::OneStep),
        ("FOR KEY SHARE", &key_share, Rule::OneStep),
        ("a raise that takes an older epoch", &decided, Rule::OlderRefused),
    ] {
        let outcome = run_rule(&subject(functions), rule);
        assert!(matches!(outcome, Outcome::Broken(_)), "{name} was not found by \"{rule}\": {outcome:?}");
    }
    // They look right where no gap is tried, and the row's lock alone closes the gap.
    assert_eq!(run_rule(&subject(&unlocked), Rule::OlderRefused), Outcome::Held);
    assert_eq!(run_rule(&subject(&key_share), Rule::EqualAccepted), Outcome::Held);
    assert_eq!(run_rule(&subject(&without_the_queue(ROW)), Rule::OneStep), Outcome::Held);
}
