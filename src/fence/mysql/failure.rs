//! What the database's errors mean to a fence.
//!
//! A refusal comes as an error with a SQLSTATE of ours, and with its values in the message; the migration lists them.

use crate::{Blocked, FenceError, Fenced, FencingToken};
use ringfence_core::ids::{ClusterId, Epoch, Scope, SessionId};
use sqlx::Error;
use sqlx::mysql::MySqlDatabaseError;
use std::sync::Arc;

/// The user's transaction was ended before its commit, and what ran after that ran without the fence.
#[derive(Debug, thiserror::Error)]
#[error(
    "the last check of the transaction was refused, or the transaction had ended before the commit: a statement in it commits by \
     itself, as DDL does, or the server has rolled it back, as it does after a deadlock. What ran after such an end took effect \
     on its own, unfenced"
)]
pub(super) struct Ended;

/// The error of a call that was made with these tokens.
pub(super) fn failed(doing: &'static str, error: Error, tokens: &[FencingToken]) -> FenceError {
    let server = match &error {
        Error::Database(error) => error.try_downcast_ref::<MySqlDatabaseError>(),
        _ => None,
    };
    let Some(server) = server else { return FenceError::store(doing, error) };
    let (state, number, said) = (server.code().unwrap_or_default(), server.number(), server.message());
    known(state, number, said, tokens).unwrap_or_else(|kind| match kind {
        Unknown::Busy => FenceError::Busy { doing, source: Arc::new(error) },
        Unknown::Ended => FenceError::store(doing, Ended),
        Unknown::Store => FenceError::Store { doing, source: Arc::new(error) },
    })
}

/// The error of asking, before a commit, whether the transaction was still the one of its check.
///
/// A statement that was cut off (a `KILL`, a time limit) did nothing itself; but what ran before it may have ended the
/// transaction, and may have taken effect. That it did nothing is said by a commit's own answer only.
pub(super) fn not_found_out(error: FenceError) -> FenceError {
    match error {
        FenceError::Busy { doing, source } => FenceError::Store { doing, source },
        other => other,
    }
}

/// What does not follow from the values of the error alone.
#[derive(Debug, PartialEq, Eq)]
enum Unknown {
    Busy,
    Ended,
    Store,
}

fn known(state: &str, number: u16, said: &str, tokens: &[FencingToken]) -> Result<FenceError, Unknown> {
    if state.starts_with("RF") {
        return refusal(state, said, tokens).ok_or(Unknown::Store);
    }
    match number {
        // A wait for a lock, a deadlock, a row that is newer than the snapshot, a time limit, somebody's KILL QUERY.
        1205 | 1213 | 1020 | 1317 | 1969 | 3024 | 3572 => Err(Unknown::Busy),
        1305 if said.contains("SAVEPOINT") && said.contains("ringfence_checked") => Err(Unknown::Ended),
        // No such procedure, no such table.
        1305 | 1146 if said.contains("ringfence_") => Ok(FenceError::NotInstalled),
        1290 | 1792 | 1836 => Ok(not_durable(if number == 1792 {
            "setting=the transaction is read-only needed=READ WRITE"
        } else {
            "setting=the server is read-only, as a replica is needed=the primary"
        })),
        _ if state == "40001" => Err(Unknown::Busy),
        _ => Err(Unknown::Store),
    }
}

/// The refusal that a SQLSTATE and its message stand for; `None` when they do not say what they should.
pub(super) fn refusal(state: &str, said: &str, tokens: &[FencingToken]) -> Option<FenceError> {
    let scope = || value(said, "scope")?.parse::<Scope>().ok();
    let epoch = |name| Epoch::new(value(said, name)?.parse().ok()?).ok();
    let cluster = |name| ClusterId::new(value(said, name)?).ok();
    let token = || {
        let (scope, own) = (scope()?, epoch("own")?);
        tokens.iter().find(|token| *token.scope() == scope && token.epoch() == own).cloned()
    };
    Some(match state {
        "RF001" => Fenced::new(token()?, epoch("highest")?).into(),
        "RF002" => {
            let bound = cluster("bound")?;
            // A long name is cut in the message; of the tokens, it is one that is not of the bound cluster.
            let cut =
                || tokens.iter().find(|token| *token.cluster() != bound).map(|token| token.cluster().clone());
            FenceError::WrongCluster { presented: cut().or_else(|| cluster("presented"))?, bound }
        }
        "RF003" => FenceError::NotRaised { token: token()? },
        "RF004" => FenceError::Implausible { scope: scope()?, from: epoch("highest"), to: epoch("own")? },
        "RF005" => {
            let holder = SessionId::new(value(said, "by")?.parse::<i64>().ok()?.cast_unsigned())?;
            let (scope, own) = (scope()?, epoch("own")?);
            // The same epoch may have been presented by several sessions, and one session several epochs: the one refused is
            // at that epoch, and not the holder's.
            let refused = |token: &&FencingToken| {
                *token.scope() == scope
                    && token.epoch() == own
                    && token.session().is_some_and(|session| session != holder)
            };
            FenceError::OtherSession { token: tokens.iter().find(refused)?.clone(), holder }
        }
        "RF006" => FenceError::Unstamped,
        "RF007" => {
            let (place, found) = said.strip_prefix("place=")?.split_once(" found=")?;
            FenceError::Corrupt { place: place.into(), found: found.into() }
        }
        "RF008" => not_durable(said),
        "RF009" => FenceError::Blocked(Blocked::new(scope()?, said.split_once(" blockers=")?.1.into())),
        "RF010" | "RF012" => FenceError::Unfit { why: said.into() },
        "RF011" => FenceError::NotInstalled,
        _ => return None,
    })
}

/// The word after `name=`.
fn value<'a>(said: &'a str, name: &str) -> Option<&'a str> {
    said.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

fn not_durable(said: &str) -> FenceError {
    let setting = said.strip_prefix("setting=").unwrap_or(said);
    let setting = setting.split_once(" needed=").map_or(setting, |(setting, _)| setting);
    let needed = if setting.starts_with("innodb_flush_log") {
        "innodb_flush_log_at_trx_commit = 1"
    } else if setting.contains("sync_binlog") {
        "sync_binlog = 1"
    } else if setting.starts_with("the table") {
        "its ENGINE to InnoDB"
    } else if setting.starts_with("the transaction") {
        "it to READ WRITE"
    } else {
        "the connection to the primary"
    };
    FenceError::NotDurable { setting: setting.into(), needed }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FenceErrorKind;
    use proptest::prelude::*;
    use std::error::Error as _;

    fn token(text: &str) -> FencingToken {
        text.parse().unwrap()
    }

    #[test]
    fn t21_each_sqlstate_is_one_kind_of_refusal() {
        let tokens =
            [token("prod/orders/17@33").held_by(SessionId::new(7).unwrap()), token("prod/orders/18@5")];
        for (state, said, kind) in [
            ("RF001", "scope=orders/17 own=33 highest=34", FenceErrorKind::Fenced),
            ("RF002", "bound=test presented=prod", FenceErrorKind::WrongCluster),
            ("RF002", "bound=test presented=pro", FenceErrorKind::WrongCluster),
            ("RF003", "scope=orders/18 own=5", FenceErrorKind::NotRaised),
            ("RF004", "scope=orders/18 own=5 highest=0", FenceErrorKind::Implausible),
            ("RF005", "scope=orders/17 own=33 by=-1", FenceErrorKind::OtherSession),
            ("RF006", "", FenceErrorKind::Unstamped),
            ("RF007", "place=the row of orders/17 found=the epoch 0", FenceErrorKind::Corrupt),
            ("RF008", "setting=sync_binlog is 0 needed=sync_binlog = 1", FenceErrorKind::NotDurable),
            ("RF009", "scope=orders/17 blockers=perhaps 7 (since 2026-11-30 12:00:00)", FenceErrorKind::Busy),
            ("RF010", "found='x'", FenceErrorKind::Unfit),
            ("RF011", "", FenceErrorKind::NotInstalled),
            ("RF012", "START TRANSACTION first", FenceErrorKind::Unfit),
        ] {
            let error = known(state, 1644, said, &tokens).unwrap();
            assert_eq!(error.kind(), kind, "{state}: {error}");
        }
        for (state, number, said, expected) in [
            ("HY000", 1205, "Lock wait timeout exceeded", Unknown::Busy),
            ("40001", 1213, "Deadlock found", Unknown::Busy),
            ("HY000", 1020, "Record has changed since last read", Unknown::Busy),
            ("70100", 1969, "Query execution was interrupted (max_statement_time exceeded)", Unknown::Busy),
            ("40001", 1644, "ringfence: run it again", Unknown::Busy),
            ("42000", 1305, "SAVEPOINT ringfence_checked does not exist", Unknown::Ended),
            ("42000", 1305, "PROCEDURE t.another does not exist", Unknown::Store),
            ("23000", 1062, "Duplicate entry", Unknown::Store),
            ("RF001", 1644, "scope=orders/17", Unknown::Store),
        ] {
            assert_eq!(known(state, number, said, &tokens).unwrap_err(), expected, "{number}");
        }
        let missing = known("42000", 1305, "PROCEDURE t.ringfence_check does not exist", &[]).unwrap();
        assert_eq!(missing.kind(), FenceErrorKind::NotInstalled);
        let replica = known("HY000", 1290, "running with the --read-only option", &[]).unwrap();
        assert_eq!(replica.kind(), FenceErrorKind::NotDurable);
    }

    #[test]
    fn f049_a_transaction_that_could_not_be_asked_for_its_check_is_unknown_and_not_busy() {
        let cut_off = || std::io::Error::other("1317: Query execution was interrupted");
        let busy = FenceError::busy("committing the write", cut_off());
        let error = not_found_out(busy);
        assert!(error.kind() == FenceErrorKind::Store && !error.is_retryable(), "{error:?}");
        assert!(error.source().unwrap().to_string().contains("1317"));
        assert_eq!(not_found_out(FenceError::Unstamped).kind(), FenceErrorKind::Unstamped);
    }

    #[test]
    fn who_blocks_and_what_is_damaged_is_told_whole() {
        let said = "scope=orders/17 blockers=perhaps 7 (since 2026-11-30 12:00:00)";
        let error = refusal("RF009", said, &[]).unwrap();
        assert!(error.is_retryable() && !error.is_refusal());
        assert!(
            error.to_string().contains("orders/17") && error.to_string().contains("perhaps 7 (since"),
            "{error}"
        );
        let corrupt = refusal("RF007", "place=the row of orders/17 found=the epoch 0", &[]).unwrap();
        assert!(corrupt.to_string().starts_with("the row of orders/17 holds the epoch 0"), "{corrupt}");
    }

    /// MySQL refuses a longer one, or cuts it, and with it the epoch.
    #[test]
    fn t17_the_longest_refusal_fits_into_a_message() {
        let (name, epoch) = ("x".repeat(63), Epoch::MAX.get());
        let scope = format!("scope={name}/{} own={epoch}", u32::MAX);
        for rest in [format!(" highest={epoch}"), format!(" by={}", i64::MIN)] {
            assert!(scope.len() + rest.len() <= 128, "{scope}{rest}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn f096_whatever_stands_in_a_message_is_an_error_and_never_a_panic(
            state in "RF0[01][0-9]|40001|HY000",
            number in prop_oneof![Just(1644_u16), Just(1305), Just(1205), any::<u16>()],
            said in "((scope|own|highest|by|found|place|bound|setting)=[a-z0-9/@=-]{0,24} ?){0,5}|.{0,40}",
        ) {
            if let Ok(error) = known(&state, number, &said, &[token("prod/orders/17@33")]) {
                prop_assert!(!error.to_string().is_empty());
            }
        }
    }
}
