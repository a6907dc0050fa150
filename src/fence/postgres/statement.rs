//! What is asked of the database: the text of each call and its arguments, for both clients.

use crate::FencingToken;
use ringfence_core::ids::{ClusterId, Scope};
use std::slice::from_ref;
use std::time::Duration;

/// One call of a function of the schema `ringfence`. Every one of them answers one row of one text, which may be NULL.
#[derive(Clone, Debug)]
pub struct Statement {
    pub(super) doing: &'static str,
    pub(super) sql: &'static str,
    /// `$1` and so on.
    pub(super) arguments: Vec<Argument>,
    /// Whether its answer counts only once it has committed, so that it wants a transaction of its own.
    pub(super) alone: bool,
}

#[derive(Clone, Debug)]
pub(super) enum Argument {
    Text(String),
    Texts(Vec<String>),
    Number(Option<i64>),
    Numbers(Vec<Option<i64>>),
}

impl Statement {
    pub(super) fn check(tokens: &[FencingToken]) -> Statement {
        match tokens {
            // Without the sorting that several need.
            [token] => Statement {
                doing: "checking the fence",
                sql: "SELECT ringfence.check($1, $2)::text",
                arguments: vec![Argument::Text(token.to_string()), Argument::Number(session(token))],
                alone: false,
            },
            _ => Statement {
                doing: "checking the fence",
                sql: "SELECT ringfence.check_all($1, $2)::text",
                arguments: of(tokens),
                alone: false,
            },
        }
    }

    pub(super) fn observe(tokens: &[FencingToken]) -> Statement {
        Statement {
            doing: "observing the fence",
            sql: "SELECT ringfence.observe($1, $2)",
            arguments: of(tokens),
            alone: false,
        }
    }

    pub(super) fn raise(tokens: &[FencingToken], wait: Duration) -> Statement {
        let mut arguments = of(tokens);
        arguments.push(milliseconds(wait));
        Statement {
            doing: "raising the fence",
            sql: "SELECT ringfence.raise_all($1, $2, $3::bigint::integer)::text",
            arguments,
            alone: true,
        }
    }

    pub(super) fn force_raise(token: &FencingToken, wait: Duration) -> Statement {
        let mut arguments = of(from_ref(token));
        arguments.push(milliseconds(wait));
        Statement {
            doing: "raising the fence",
            sql: "SELECT ringfence.force_raise(($1::text[])[1], ($2::bigint[])[1], $3::bigint::integer)::text",
            arguments,
            alone: true,
        }
    }

    /// Ends who has stood in the way for as long as the raise has waited.
    pub(super) fn end_blockers(scope: &Scope, waited: Duration) -> Statement {
        Statement {
            doing: "ending who holds the fence",
            sql: "SELECT ringfence.end_blockers($1, $2 * interval '1 ms')::text",
            arguments: vec![Argument::Text(scope.to_string()), milliseconds(waited)],
            alone: false,
        }
    }

    pub(super) fn highest(scope: &Scope) -> Statement {
        Statement {
            doing: "reading the fence",
            sql: "SELECT ringfence.highest($1)::text",
            arguments: vec![Argument::Text(scope.to_string())],
            alone: false,
        }
    }

    pub(super) fn revision() -> Statement {
        Statement {
            doing: "looking for the fence",
            sql: "SELECT ringfence.revision()::text",
            arguments: Vec::new(),
            alone: false,
        }
    }

    pub(super) fn bind(cluster: &ClusterId) -> Statement {
        Statement {
            doing: "binding the database to its cluster",
            sql: "SELECT ringfence.bind($1)::text",
            arguments: vec![Argument::Text(cluster.to_string())],
            alone: true,
        }
    }
}

fn of(tokens: &[FencingToken]) -> Vec<Argument> {
    vec![
        Argument::Texts(tokens.iter().map(ToString::to_string).collect()),
        Argument::Numbers(tokens.iter().map(session).collect()),
    ]
}

/// A session is compared by equality only, so its bits may pass through a signed column.
fn session(token: &FencingToken) -> Option<i64> {
    token.session().map(|session| session.get().cast_signed())
}

fn milliseconds(wait: Duration) -> Argument {
    // As far as `lock_timeout` reaches.
    Argument::Number(Some(i64::try_from(wait.as_millis()).unwrap_or(i64::MAX).min(i64::from(i32::MAX))))
}
