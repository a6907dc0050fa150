//! The scripts, and how one is sent: by its digest, and whole where the server does not have it.

use super::failure::failed;
use crate::FenceError;
use redis::aio::ConnectionLike;
use redis::{ErrorKind, Pipeline, RedisError, ServerErrorKind, Value};
use std::fmt;
use std::sync::{Arc, LazyLock};

/// The rule of a fence, to stand at the top of a script of your own in a program that does not use this crate.
///
/// It defines `ringfence.check()`, which answers nothing when the write may go on, or the refusal to return; its head
/// says what it takes for keys and arguments. Programs in Rust use [`GuardedScript`].
pub const RULE_LUA: &str = include_str!("lua/rule.lua");

/// A script of the user's, run in one step with the check. Made once, used for every call.
///
/// The body is what a script is: it has `KEYS` and `ARGV` (yours, without the fence's), calls `redis.call`, and returns
/// what is answered. When a command in it fails, what it wrote before stays.
///
/// A number that it returns is cut to an integer, and is exact up to 2^53 only: return large ones as strings.
#[derive(Clone)]
pub struct GuardedScript(Loaded);

impl GuardedScript {
    /// The script with this body. Whether it is Lua is found when it is first run, and nothing is written then.
    pub fn new(body: &str) -> GuardedScript {
        let end = include_str!("lua/guarded.lua");
        // A body that ends in a comment must not swallow the `end`.
        GuardedScript(Loaded::new(&format!(
            "{RULE_LUA}local function ringfence_body(KEYS, ARGV)\n{body}\nend\n{end}"
        )))
    }

    pub(super) fn loaded(&self) -> &Loaded {
        &self.0
    }
}

impl fmt::Debug for GuardedScript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GuardedScript {}", self.0.digest)
    }
}

/// A script and its digest.
#[derive(Clone)]
pub(super) struct Loaded {
    text: Arc<str>,
    digest: Arc<str>,
}

/// A key or an argument of a script.
pub(super) type Word = Vec<u8>;

impl Loaded {
    fn new(text: &str) -> Loaded {
        Loaded { digest: redis::Script::new(text).get_hash().into(), text: text.into() }
    }

    pub(super) async fn call(
        &self,
        conn: &mut (impl ConnectionLike + Send),
        doing: &'static str,
        keys: &[Word],
        args: &[Word],
    ) -> Result<Value, FenceError> {
        let answer = self.command("EVALSHA", &self.digest, keys, args).query_async(conn).await;
        match answer {
            Err(error) if unknown(&error) => {
                self.command("EVAL", &self.text, keys, args).query_async(conn).await.map_err(failed(doing))
            }
            answer => answer.map_err(failed(doing)),
        }
    }

    /// Calls it and sends a command right behind it on the same connection, which is about what the script wrote.
    pub(super) async fn call_and(
        &self,
        conn: &mut (impl ConnectionLike + Send),
        doing: &'static str,
        (keys, args): (&[Word], &[Word]),
        then: &redis::Cmd,
    ) -> Result<(Value, Value), FenceError> {
        let both = |name, script| {
            let mut both = Pipeline::new();
            both.add_command(self.command(name, script, keys, args)).add_command(then.clone());
            both
        };
        match both("EVALSHA", &self.digest).query_async(conn).await {
            Err(error) if unknown(&error) => {
                both("EVAL", &self.text).query_async(conn).await.map_err(failed(doing))
            }
            answer => answer.map_err(failed(doing)),
        }
    }

    fn command(&self, name: &str, script: &str, keys: &[Word], args: &[Word]) -> redis::Cmd {
        let mut command = redis::cmd(name);
        command.arg(script).arg(keys.len());
        for word in keys.iter().chain(args) {
            command.arg(word.as_slice());
        }
        command
    }
}

fn unknown(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

pub(super) fn install() -> &'static Loaded {
    static SCRIPT: LazyLock<Loaded> = LazyLock::new(|| Loaded::new(include_str!("lua/install.lua")));
    &SCRIPT
}

pub(super) fn raise() -> &'static Loaded {
    static SCRIPT: LazyLock<Loaded> =
        LazyLock::new(|| Loaded::new(&format!("{RULE_LUA}{}", include_str!("lua/raise.lua"))));
    &SCRIPT
}

pub(super) fn commands() -> &'static Loaded {
    static SCRIPT: LazyLock<Loaded> =
        LazyLock::new(|| Loaded::new(&format!("{RULE_LUA}{}", include_str!("lua/commands.lua"))));
    &SCRIPT
}
