//! The negative controls: the fence's own procedures with one thing taken out, each found by the rule that names it.

use crate::server::Server;
use crate::subject::MysqlSubject;
use ringfence_fence::conformance::{Outcome, Rule, run_rule};
use ringfence_fence::mysql::MysqlFence;
use std::sync::Mutex;

const LOCK: &str = "WHERE f.scope = its_scope LOCK IN SHARE MODE;";

/// The migration with these texts replaced. A text that is not there any more is a control that controls nothing.
pub(crate) fn without(replaced: &[(&str, &str)]) -> String {
    replaced.iter().fold(MysqlFence::MIGRATION_SQL.to_owned(), |sql, (this, by)| {
        assert_eq!(sql.matches(this).count(), 1, "{this}");
        sql.replace(this, by)
    })
}

/// A check that reads the row and locks nothing.
pub(crate) fn without_the_lock() -> String {
    without(&[(LOCK, "WHERE f.scope = its_scope;")])
}

/// A check that believes whatever snapshot the transaction has.
pub(crate) fn without_the_snapshots_age() -> String {
    without(&[
        ("in_snapshot IS NULL OR in_snapshot <> seen OR", ""),
        ("IF NOT (in_snapshot <=> seen) THEN", "IF FALSE THEN"),
    ])
}

/// A check that takes its snapshot under a lock that it shares with the owner before.
pub(crate) fn without_the_lock_of_a_newer_epoch() -> String {
    without(&[("IF CHAR_LENGTH(SUBSTRING_INDEX(token, '@', -1)) > CHAR_LENGTH(seen)", "IF FALSE")])
}

/// A raise that looks for the row before it makes it.
pub(crate) fn with_a_look_before_the_row_is_made() -> String {
    let look = "SELECT f.epoch INTO seen FROM ringfence_fence f WHERE f.scope = its_scope FOR UPDATE; SET seen = NULL;";
    let insert = "INSERT INTO ringfence_fence (scope, epoch, session, raises)";
    without(&[(insert, &format!("{look} {insert}"))])
}

#[test]
fn t57_a_check_that_leaves_a_gap_is_found_by_the_rule_that_names_it() {
    let Some(server) = Server::start() else { return };
    let server = Mutex::new(server);
    let admit = "CALL ringfence_admit(token, held_by, its_scope, epoch_now, session_now, writes);";
    let no_check = without(&[(admit, "SET writes = FALSE;")]);
    let decided = without(&[("ELSEIF own < seen THEN", "ELSEIF own < seen AND own < 0 THEN")]);
    let unlocked = without_the_lock();
    for (name, migration, rules, held) in [
        (
            "no check",
            &no_check,
            &[Rule::OlderRefused, Rule::UntouchedRowsFenced, Rule::NeverRaisedRefused][..],
            Rule::EqualAccepted,
        ),
        // It looks right where no gap is tried.
        ("a check that takes no lock", &unlocked, &[Rule::OneStep], Rule::OlderRefused),
        ("a raise that takes an older epoch", &decided, &[Rule::OlderRefused], Rule::EqualAccepted),
    ] {
        let subject = MysqlSubject::new(&server, "READ COMMITTED", migration);
        for rule in rules {
            let outcome = run_rule(&subject, *rule);
            assert!(
                matches!(outcome, Outcome::Broken(_)),
                "{name} was not found by {}: {outcome:?}",
                rule.name()
            );
        }
        assert_eq!(run_rule(&subject, held), Outcome::Held, "{name}");
    }
}
