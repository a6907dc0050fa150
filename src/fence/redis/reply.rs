//! What the scripts answer. Every value is taken for hostile: somebody may have edited a row.

use super::commands::unfit;
use super::failure::{CommandFailed, Unexpected, shown};
use super::keys::BINDING;
use crate::{FenceError, Fenced, FencingToken};
use redis::Value;
use ringfence_core::ids::{ClusterId, Epoch, SessionId};

/// An answer of a script: what it says, of which token (counted from one; zero for none), and values.
#[derive(Debug)]
pub(super) enum Answer {
    Done(Value),
    /// A command failed after the check.
    Failed {
        number: usize,
        message: String,
    },
    Bound {
        cluster: String,
        tag: String,
    },
    Refused {
        why: String,
        at: usize,
        one: String,
        two: String,
    },
}

impl Answer {
    pub(super) fn read(answer: Value) -> Result<Answer, FenceError> {
        let strange = |answer: &Value| {
            let shape = match answer {
                Value::Array(parts) => format!("a list of {}", parts.len()),
                Value::BulkString(_) => "a string".into(),
                Value::Nil => "nothing".into(),
                _ => "something else".into(),
            };
            FenceError::store("reading the answer of the fence", Unexpected(shape))
        };
        let Value::Array(mut parts) = answer else { return Err(strange(&answer)) };
        let word = |at: usize| parts.get(at).map(text).unwrap_or_default();
        let (why, one, two) = (word(0), word(2), word(3));
        let at = match parts.get(1) {
            Some(Value::Int(at)) => usize::try_from(*at).unwrap_or(0),
            _ => return Err(strange(&Value::Array(parts))),
        };
        Ok(match why.as_str() {
            "done" => Answer::Done(if parts.len() > 2 { parts.swap_remove(2) } else { Value::Nil }),
            "failed" => Answer::Failed { number: at, message: shown(&one) },
            "bound" => Answer::Bound { cluster: one, tag: two },
            _ => Answer::Refused { why, at, one, two },
        })
    }

    /// What was done, or why not. `tokens` are those that the script was given, in that order.
    pub(super) fn done(
        self,
        cluster: &ClusterId,
        tokens: &[&FencingToken],
        of: usize,
    ) -> Result<Value, FenceError> {
        match self {
            Answer::Done(value) => Ok(value),
            Answer::Failed { number, message } => {
                Err(FenceError::store("running the write", CommandFailed { number, of, message }))
            }
            other => Err(other.into_error(cluster, tokens)),
        }
    }

    pub(super) fn into_error(self, cluster: &ClusterId, tokens: &[&FencingToken]) -> FenceError {
        let Answer::Refused { why, at, one, two } = self else {
            return FenceError::store(
                "reading the answer of the fence",
                Unexpected("what was not asked".into()),
            );
        };
        let token = at.checked_sub(1).and_then(|at| tokens.get(at)).copied();
        let corrupt = |field: &str, value: &str| match token {
            Some(token) => corrupt_row(token, field, value),
            None => corrupt_binding(field, value),
        };
        match (why.as_str(), token) {
            ("unstamped", _) => FenceError::Unstamped,
            ("uninstalled", _) => FenceError::NotInstalled,
            ("replica", _) => unfit(
                "this server is a replica that takes writes, which nobody keeps: connect to the primary",
            ),
            ("nameless", _) => unfit("the server no longer tells its replication id (INFO replication)"),
            ("corrupt", _) => corrupt(&one, &two),
            ("cluster", _) => match ClusterId::new(&one) {
                Ok(bound) => FenceError::WrongCluster { presented: cluster.clone(), bound },
                Err(_) => corrupt("cluster", &one),
            },
            ("unraised", Some(token)) => FenceError::NotRaised { token: token.clone() },
            ("replaced", Some(token)) => FenceError::Replaced { token: token.clone() },
            ("fenced", Some(token)) => match epoch(&one) {
                Some(highest) => Fenced::new(token.clone(), highest).into(),
                None => corrupt("epoch", &one),
            },
            ("implausible", Some(token)) => {
                FenceError::Implausible { scope: token.scope().clone(), from: epoch(&one), to: token.epoch() }
            }
            ("session", Some(token)) => match one.parse().ok().and_then(SessionId::new) {
                Some(holder) => FenceError::OtherSession { token: token.clone(), holder },
                None => corrupt("session", &one),
            },
            _ => FenceError::store("reading the answer of the fence", Unexpected(shown(&why))),
        }
    }
}

/// An epoch as a row keeps it: sixteen digits.
pub(super) fn epoch(digits: &str) -> Option<Epoch> {
    let canonical = digits.len() == 16 && digits.bytes().all(|b| b.is_ascii_digit());
    digits.parse().ok().filter(|_| canonical).and_then(|number| Epoch::new(number).ok())
}

pub(super) fn corrupt_binding(field: &str, value: &str) -> FenceError {
    FenceError::Corrupt { place: format!("the key {BINDING}"), found: what(field, value) }
}

fn corrupt_row(token: &FencingToken, field: &str, value: &str) -> FenceError {
    FenceError::Corrupt { place: format!("the fence of {}", token.scope()), found: what(field, value) }
}

pub(super) fn what(field: &str, value: &str) -> String {
    match field {
        "type" => "no hash".into(),
        "time to live" => {
            format!("a time to live of {} ms, after which it would be gone (PERSIST it)", shown(value))
        }
        field => format!("the {field} \"{}\"", shown(&value.chars().take(40).collect::<String>())),
    }
}

pub(super) fn text(value: &Value) -> String {
    match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::SimpleString(text) => text.clone(),
        Value::Int(number) => number.to_string(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FenceErrorKind;

    fn answer(parts: &[Value]) -> FenceErrorKind {
        let token: FencingToken = "prod/orders/17@33".parse().unwrap();
        let cluster = ClusterId::new("prod").unwrap();
        let read =
            Answer::read(Value::Array(parts.to_vec())).and_then(|answer| answer.done(&cluster, &[&token], 1));
        read.unwrap_err().kind()
    }

    #[test]
    fn f096_t21_a_strange_answer_is_a_failure_of_the_storage_and_never_a_pass_or_a_panic() {
        let text = |text: &str| Value::BulkString(text.into());
        for strange in [Value::Nil, Value::Okay, Value::Int(1), text("done"), Value::Array(vec![])] {
            assert_eq!(Answer::read(strange).unwrap_err().kind(), FenceErrorKind::Store);
        }
        for (parts, kind) in [
            (vec![text("done")], FenceErrorKind::Store),
            (vec![text("done"), text("0")], FenceErrorKind::Store),
            (vec![text("what"), Value::Int(1)], FenceErrorKind::Store),
            // Of a token that was not asked about.
            (vec![text("fenced"), Value::Int(2), text("0000000000000034")], FenceErrorKind::Store),
            (vec![text("fenced"), Value::Int(-1), text("0000000000000034")], FenceErrorKind::Store),
            (vec![text("replaced"), Value::Int(i64::MAX)], FenceErrorKind::Store),
            (vec![text("bound"), Value::Int(0), text("prod"), text("")], FenceErrorKind::Store),
            (vec![text("fenced"), Value::Int(1)], FenceErrorKind::Corrupt),
            (vec![text("fenced"), Value::Int(1), text("34")], FenceErrorKind::Corrupt),
            (vec![text("fenced"), Value::Int(1), Value::Array(vec![])], FenceErrorKind::Corrupt),
            (vec![text("session"), Value::Int(1), text("0")], FenceErrorKind::Corrupt),
            (vec![text("cluster"), Value::Int(1), text("No Name")], FenceErrorKind::Corrupt),
            (vec![text("fenced"), Value::Int(1), text("0000000000000034")], FenceErrorKind::Fenced),
            (vec![text("failed"), Value::Int(1)], FenceErrorKind::Store),
        ] {
            assert_eq!(answer(&parts), kind, "{parts:?}");
        }
    }
}
