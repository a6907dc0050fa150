//! What can be known of a guarded write before anything of it runs: Redis takes nothing back.
//!
//! The server tells which commands it has, how many arguments each takes, and where its keys stand; asked once, at
//! the start.

use super::failure::failed;
use super::slot::slot;
use crate::FenceError;
use redis::aio::ConnectionLike;
use redis::{Arg, Cmd, Pipeline, Value};
use std::collections::HashMap;
use std::fmt;

/// How many arguments one command of a guarded write may have, its name included: Lua hands no more over at once.
pub const MAX_ARGUMENTS: usize = 7_000;

/// What every key of a fence begins with.
pub(super) const PREFIX: &str = "ringfence:";

/// Commands that would take the fence away, or look elsewhere than at the data beside it.
const NEVER: [&str; 4] = ["flushall", "flushdb", "swapdb", "select"];

/// The commands of one server.
pub(super) struct Commands(HashMap<String, Known>);

struct Known {
    /// Exactly so many words, or, below zero, at least so many.
    arity: i64,
    in_scripts: bool,
    /// Its keys cannot be told from their place.
    movable: bool,
    first: i64,
    last: i64,
    step: i64,
    contained: HashMap<String, Known>,
}

/// A write that can be sent: its words as the script reads them, and the keys that it names.
pub(super) struct Fit {
    pub(super) words: Vec<Vec<u8>>,
    pub(super) keys: Vec<Vec<u8>>,
}

impl Commands {
    pub(super) async fn of(conn: &mut (impl ConnectionLike + Send)) -> Result<Commands, FenceError> {
        let doing = "asking the server for its commands";
        let table: Value = redis::cmd("COMMAND").query_async(conn).await.map_err(failed(doing))?;
        let entries = elements(&table).unwrap_or_default();
        let commands: HashMap<_, _> = entries.iter().filter_map(known).collect();
        if commands.contains_key("hmget") {
            Ok(Commands(commands))
        } else {
            Err(unfit(
                "the server does not tell its commands (COMMAND); connect to a Redis or Valkey server itself",
            ))
        }
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Looks at each command of a write; `home` is the slot that it has to stay in, in a cluster.
    pub(super) async fn fit(
        &self,
        conn: &mut (impl ConnectionLike + Send),
        write: &Pipeline,
        home: Option<&(u16, String)>,
    ) -> Result<Fit, FenceError> {
        let mut fit = Fit { words: vec![write.len().to_string().into_bytes()], keys: Vec::new() };
        for (index, command) in write.cmd_iter().enumerate() {
            let number = index + 1;
            let words = words(command).map_err(|why| of_command(number, &[], &why))?;
            let known = self.look_up(&words).map_err(|why| of_command(number, &words, &why))?;
            let keys = match known.keys(&words) {
                Some(keys) => keys,
                None if home.is_some() => moved_keys(conn, &words).await?,
                // Wherever its keys stand, none of them may be a fence.
                None => words.iter().skip(1).map(Vec::as_slice).map(<[u8]>::to_vec).collect(),
            };
            if keys.iter().any(|key| key.starts_with(PREFIX.as_bytes())) {
                return Err(of_command(
                    number,
                    &words,
                    "it names a key that begins with \"ringfence:\", a fence's own",
                ));
            }
            if let Some((home, tag)) = home {
                if keys.iter().any(|key| slot(key) != *home) {
                    let why = format!(
                        "its keys live in another slot of the cluster than the fence, and no write spans two: give every \
                         key of the scope the hash tag {tag}"
                    );
                    return Err(of_command(number, &words, &why));
                }
                fit.keys.extend(keys);
            }
            fit.words.push(words.len().to_string().into_bytes());
            fit.words.extend(words);
        }
        Ok(fit)
    }

    fn look_up(&self, words: &[Vec<u8>]) -> Result<&Known, String> {
        let lower = |at: usize| words.get(at).map(|w| String::from_utf8_lossy(w).to_lowercase());
        let name = lower(0).ok_or("it has no name")?;
        let mut known = self.0.get(&name).ok_or("the server does not know it")?;
        if NEVER.contains(&name.as_str()) {
            return Err("it has no place in a guarded write".into());
        }
        if !known.contained.is_empty() {
            let inner = lower(1).ok_or("it lacks its second word")?;
            known = known.contained.get(&format!("{name}|{inner}")).ok_or("the server does not know it")?;
        }
        let count = i64::try_from(words.len()).unwrap_or(i64::MAX);
        if words.len() > MAX_ARGUMENTS {
            return Err(format!(
                "it has {count} words, and {MAX_ARGUMENTS} (MAX_ARGUMENTS) are the most: split it"
            ));
        }
        if (known.arity >= 0 && count != known.arity) || count < -known.arity {
            return Err("it has the wrong number of arguments".into());
        }
        if !known.in_scripts {
            return Err("Redis runs it in no script, and a guarded write is one".into());
        }
        Ok(known)
    }
}

impl fmt::Debug for Commands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} commands", self.0.len())
    }
}

impl Known {
    /// The keys among the words; `None` where their place does not tell.
    fn keys(&self, words: &[Vec<u8>]) -> Option<Vec<Vec<u8>>> {
        if self.movable {
            return None;
        }
        let (Ok(first), Ok(step)) = (usize::try_from(self.first), usize::try_from(self.step)) else {
            return None;
        };
        if first == 0 {
            return Some(Vec::new());
        }
        // Below zero it counts from the end.
        let last = match usize::try_from(self.last) {
            Ok(last) => last,
            Err(_) => {
                words.len().saturating_sub(usize::try_from(self.last.unsigned_abs()).unwrap_or(usize::MAX))
            }
        };
        Some((first..=last).step_by(step.max(1)).filter_map(|at| words.get(at).cloned()).collect())
    }
}

async fn moved_keys(
    conn: &mut (impl ConnectionLike + Send),
    words: &[Vec<u8>],
) -> Result<Vec<Vec<u8>>, FenceError> {
    let mut ask = redis::cmd("COMMAND");
    ask.arg("GETKEYS").arg(words);
    ask.query_async(conn).await.map_err(failed("asking the server for the keys of a command"))
}

fn words(command: &Cmd) -> Result<Vec<Vec<u8>>, String> {
    command
        .args_iter()
        .map(|word| match word {
            Arg::Simple(bytes) => Ok(bytes.to_vec()),
            _ => Err("a cursor has no place in a guarded write".to_string()),
        })
        .collect()
}

fn known(entry: &Value) -> Option<(String, Known)> {
    let fields = elements(entry)?;
    let number = |at: usize| match fields.get(at) {
        Some(Value::Int(number)) => Some(*number),
        _ => None,
    };
    let flags: Vec<String> =
        fields.get(2).and_then(elements).unwrap_or_default().iter().filter_map(text).collect();
    let contained = fields.get(9).and_then(elements).unwrap_or_default();
    let known = Known {
        arity: number(1)?,
        in_scripts: !flags.iter().any(|flag| flag == "noscript"),
        movable: flags.iter().any(|flag| flag == "movablekeys"),
        first: number(3)?,
        last: number(4)?,
        step: number(5)?,
        contained: contained.iter().filter_map(known).collect(),
    };
    Some((text(fields.first()?)?.to_lowercase(), known))
}

fn elements(value: &Value) -> Option<&[Value]> {
    match value {
        Value::Array(elements) | Value::Set(elements) => Some(elements),
        _ => None,
    }
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::SimpleString(text) => Some(text.clone()),
        _ => None,
    }
}

/// Names the command, and none of its values.
fn of_command(number: usize, words: &[Vec<u8>], why: &str) -> FenceError {
    let name =
        words.first().map(|word| super::failure::shown(&String::from_utf8_lossy(word))).unwrap_or_default();
    unfit(&format!("command {number} ({name}): {why}"))
}

pub(super) fn unfit(why: &str) -> FenceError {
    FenceError::Unfit { why: why.into() }
}
