//! What the errors of Redis mean to a fence.

use crate::FenceError;
use redis::{ErrorKind, RedisError, ServerError, ServerErrorKind};

/// A command of a guarded write failed after the fence had let the write through.
///
/// Redis takes nothing back: the commands before it took effect and stay, and those behind it were not run. It is the
/// source of a [`FenceError::Store`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} failed: {message}. Redis takes nothing back: what ran before it took effect and stays, what follows was not run",
    position(*.number, *.of)
)]
pub struct CommandFailed {
    pub(super) number: usize,
    pub(super) of: usize,
    pub(super) message: String,
}

impl CommandFailed {
    /// The failed command that an error is about, when it is about one.
    pub fn of(error: &FenceError) -> Option<&CommandFailed> {
        source(error)
    }

    /// How many commands of the write took effect before it; `None` when it was a script, which does not tell.
    pub fn took_effect(&self) -> Option<usize> {
        self.number.checked_sub(1)
    }

    /// What Redis said, escaped and cut.
    pub fn message(&self) -> &str {
        &self.message
    }
}

/// The error behind a failure of the storage, when it is of this type.
fn source<E: std::error::Error + 'static>(error: &FenceError) -> Option<&E> {
    match error {
        FenceError::Store { source, .. } => source.downcast_ref(),
        _ => None,
    }
}

fn position(number: usize, of: usize) -> String {
    match number {
        0 => "the script".into(),
        number => format!("command {number} of {of}"),
    }
}

/// A raise took effect on the primary, and was not confirmed as widely as was asked. It is the source of a
/// [`FenceError::Store`]; raising again is safe.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the raise took effect here, and within {within_ms} ms {have} of {need} {whose} confirmed it: a failover could forget it"
)]
pub struct NotReplicated {
    pub(super) have: i64,
    pub(super) need: u32,
    pub(super) whose: &'static str,
    pub(super) within_ms: u64,
}

impl NotReplicated {
    /// The lack of confirmation that an error is about, when it is about one.
    pub fn of(error: &FenceError) -> Option<&NotReplicated> {
        source(error)
    }
}

/// The script answered what no script of this crate answers.
#[derive(Debug, thiserror::Error)]
#[error("the script answered {0}")]
pub(super) struct Unexpected(pub(super) String);

/// Turns an error of Redis into the fence's, naming what was being done.
///
/// A server refuses a script before it runs: then nothing happened. Of a connection that broke nobody knows.
pub(super) fn failed(doing: &'static str) -> impl FnOnce(RedisError) -> FenceError {
    move |error| match meaning(&error) {
        Meaning::NothingHappened => FenceError::busy(doing, error),
        Meaning::Never => FenceError::Unfit { why: format!("{doing}: {}", shown(&error.to_string())) },
        Meaning::Unknown => FenceError::store(doing, error),
    }
}

enum Meaning {
    /// The server did nothing, and the same call may succeed later or elsewhere.
    NothingHappened,
    /// The server did nothing, and never will.
    Never,
    Unknown,
}

/// How the errors begin that have no code: of a script that is no Lua, and of a user who may not do what the rule has to.
const NEVER: [&str; 2] = ["Error compiling script", "The user executing the script can't"];

fn meaning(error: &RedisError) -> Meaning {
    // What a server said itself, also within a pipeline. The script comes first there; once it has run, nothing is certain.
    let said = error.clone().into_server_errors();
    match said.as_deref().and_then(<[_]>::first) {
        Some((0, said)) => meaning_of(said),
        Some(_) => Meaning::Unknown,
        None if error.kind() == ErrorKind::AuthenticationFailed => Meaning::Never,
        None => Meaning::Unknown,
    }
}

fn meaning_of(said: &ServerError) -> Meaning {
    match said.kind() {
        Some(
            ServerErrorKind::BusyLoading
            | ServerErrorKind::TryAgain
            | ServerErrorKind::ClusterDown
            | ServerErrorKind::MasterDown
            | ServerErrorKind::ReadOnly
            | ServerErrorKind::Moved
            | ServerErrorKind::Ask
            | ServerErrorKind::NoScript,
        ) => Meaning::NothingHappened,
        Some(ServerErrorKind::CrossSlot | ServerErrorKind::NoPerm) => Meaning::Never,
        Some(ServerErrorKind::ResponseError)
            if said.details().is_some_and(|text| NEVER.iter().any(|start| text.starts_with(start))) =>
        {
            Meaning::Never
        }
        Some(_) => Meaning::Unknown,
        None => match said.code() {
            // Out of memory, a disk that failed, too few replicas, another script at work: all are looked at before it runs.
            "OOM" | "MISCONF" | "NOREPLICAS" | "BUSY" => Meaning::NothingHappened,
            "NOAUTH" => Meaning::Never,
            _ => Meaning::Unknown,
        },
    }
}

/// A text from outside for a message: escaped, and cut where it is long.
pub(super) fn shown(text: &str) -> String {
    let mut shown = String::new();
    for char in text.chars().take(200) {
        match char {
            // Quotes stay readable; whoever quotes the text does not rely on where it ends.
            '\'' | '"' => shown.push(char),
            char => shown.extend(char.escape_default()),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FenceErrorKind;
    use redis::make_extension_error;

    fn kind(code: &str, detail: &str) -> FenceErrorKind {
        // As a server's line is read: a known code becomes its kind.
        let line = format!("-{code} {detail}\r\n");
        let error = match redis::parse_redis_value(line.as_bytes()) {
            Ok(redis::Value::ServerError(error)) => RedisError::from(error),
            other => panic!("{other:?}"),
        };
        failed("writing")(error).kind()
    }

    #[test]
    fn t21_what_a_server_refused_before_it_ran_is_busy_and_what_broke_on_the_way_is_unknown() {
        for (code, detail, expected) in [
            ("READONLY", "You can't write against a read only replica.", FenceErrorKind::Busy),
            ("LOADING", "Redis is loading the dataset in memory", FenceErrorKind::Busy),
            ("CLUSTERDOWN", "The cluster is down", FenceErrorKind::Busy),
            ("MASTERDOWN", "Link with MASTER is down", FenceErrorKind::Busy),
            ("TRYAGAIN", "Multiple keys request during rehashing of slot", FenceErrorKind::Busy),
            ("MOVED", "3999 127.0.0.1:6381", FenceErrorKind::Busy),
            ("OOM", "command not allowed when used memory > 'maxmemory'.", FenceErrorKind::Busy),
            ("MISCONF", "Errors writing to the AOF file", FenceErrorKind::Busy),
            ("NOREPLICAS", "Not enough good replicas to write.", FenceErrorKind::Busy),
            ("BUSY", "Redis is busy running a script.", FenceErrorKind::Busy),
            ("CROSSSLOT", "Keys in request don't hash to the same slot", FenceErrorKind::Unfit),
            ("NOPERM", "this user has no permissions", FenceErrorKind::Unfit),
            ("ERR", "Error compiling script (new function): user_script:2", FenceErrorKind::Unfit),
            ("ERR", "The user executing the script can't run this command", FenceErrorKind::Unfit),
            ("ERR", "something that nobody has heard of", FenceErrorKind::Store),
            ("UNHEARD", "of", FenceErrorKind::Store),
        ] {
            assert_eq!(kind(code, detail), expected, "{code} {detail}");
        }
        for broke in [std::io::ErrorKind::TimedOut, std::io::ErrorKind::ConnectionReset] {
            let error = failed("writing")(RedisError::from(std::io::Error::from(broke)));
            assert_eq!(error.kind(), FenceErrorKind::Store);
        }
        assert_eq!(failed("x")(make_extension_error("OOM".into(), None)).kind(), FenceErrorKind::Busy);
    }

    #[test]
    fn a_hostile_text_is_escaped_and_cut() {
        let text = shown(&format!("a\nb{}", "x".repeat(10_000)));
        assert!(text.starts_with("a\\nb") && text.len() < 400);
    }
}
