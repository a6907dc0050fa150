//! The negative controls: guards that people write in Redis, each found by the rule that names it.

use crate::server::{DURABLE, Server, available};
use crate::subject::{RedisHandle, cluster};
use redis::Cmd;
use ringfence_core::ids::{ClusterId, Epoch, Scope};
use ringfence_fence::conformance::{Crash, Handle, Outcome, Rule, Store, Subject, run_rule};
use ringfence_fence::redis::RedisFence;
use ringfence_fence::{FenceError, Fenced, FencingToken};
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug)]
enum Guard {
    /// The sound check, as a command of its own before the write.
    CheckThenWrite,
    /// Epochs kept as Lua prints its numbers.
    LuaNumbers,
    /// Epochs compared as texts without leading zeros.
    Texts,
    /// Only the very epoch that was raised last is accepted.
    Equality,
    /// A fence with a time to live, which has passed; an absent one accepts.
    Expired,
}

impl Guard {
    /// Answers the epoch that refuses, or takes the new one and answers nothing. `seen` and `own` are texts.
    fn raise(self) -> &'static str {
        match self {
            Guard::CheckThenWrite => unreachable!("it raises the sound fence"),
            Guard::LuaNumbers => {
                "if seen and tonumber(own) < tonumber(seen) then return seen end
                 redis.call('SET', KEYS[1], tostring(tonumber(own)))"
            }
            Guard::Texts => {
                "if seen and own < seen then return seen end
                 redis.call('SET', KEYS[1], own)"
            }
            Guard::Equality => "redis.call('SET', KEYS[1], own)",
            Guard::Expired => {
                "if seen and tonumber(own) < tonumber(seen) then return seen end
                 redis.call('SET', KEYS[1], own)
                 redis.call('PEXPIRE', KEYS[1], 0)"
            }
        }
    }

    fn check(self) -> &'static str {
        match self {
            Guard::Equality => "if seen ~= own then return seen or '0' end",
            other => other.raise(),
        }
    }
}

struct Flawed(Guard);

struct FlawedStore(Guard, Server);

struct FlawedHandle(Guard, RedisHandle);

impl Subject for Flawed {
    type Store = FlawedStore;

    fn fresh(&self, _: &ClusterId) -> Result<FlawedStore, FenceError> {
        Ok(FlawedStore(self.0, Server::new(DURABLE)))
    }
}

impl Store for FlawedStore {
    type Handle = FlawedHandle;

    fn open(&self) -> Result<FlawedHandle, FenceError> {
        let mut client = self.1.client();
        let fence = client.with(async |conn| RedisFence::install(conn, &cluster("prod")).await)?;
        Ok(FlawedHandle(self.0, RedisHandle { client, fence }))
    }

    fn crash(&mut self) -> Result<Crash, FenceError> {
        unreachable!("no rule that crashes is run")
    }
}

impl FlawedHandle {
    /// Runs a guard, and the commands behind it, in one script.
    fn eval(&mut self, guard: &str, token: &FencingToken, pairs: &[(&str, &str)]) -> Result<(), FenceError> {
        let script = format!(
            "local seen, own = redis.call('GET', KEYS[1]), ARGV[1]
             {guard}
             for at = 2, #ARGV, 2 do redis.call('SET', ARGV[at], ARGV[at + 1]) end"
        );
        let mut eval = redis::cmd("EVAL");
        eval.arg(script).arg(1).arg(format!("flawed:{}", token.scope())).arg(token.epoch().get());
        for (key, value) in pairs {
            eval.arg(RedisHandle::key(key)).arg(value);
        }
        let refused: Option<String> = self.1.client.try_ask(eval).unwrap();
        let highest = refused.map(|text| text.parse::<f64>().unwrap() as u64);
        let highest = highest.map(|number| Epoch::new(number.clamp(1, Epoch::MAX.get())).unwrap());
        highest.map_or(Ok(()), |highest| Err(Fenced::new(token.clone(), highest).into()))
    }
}

impl Handle for FlawedHandle {
    fn raise(&mut self, token: &FencingToken) -> Result<(), FenceError> {
        match self.0 {
            Guard::CheckThenWrite => self.1.raise(token),
            guard => self.eval(guard.raise(), token, &[]),
        }
    }

    fn write(
        &mut self,
        tokens: &[FencingToken],
        pairs: &[(&str, &str)],
        paused: &mut dyn FnMut(),
    ) -> Result<(), FenceError> {
        match self.0 {
            Guard::CheckThenWrite => {
                let fence = self.1.fence.clone();
                self.1.client.with(async |conn| fence.check(conn, tokens).await)?;
                paused();
                let writes: Vec<Cmd> = RedisHandle::puts(pairs).cmd_iter().cloned().collect();
                writes.into_iter().for_each(|write| self.1.client.try_ask::<()>(write).unwrap());
                Ok(())
            }
            guard => {
                paused();
                self.eval(guard.check(), &tokens[0], pairs)
            }
        }
    }

    fn data(&mut self) -> Result<BTreeMap<String, String>, FenceError> {
        self.1.data()
    }

    fn highest(&mut self, scope: &Scope) -> Result<Option<Epoch>, FenceError> {
        if matches!(self.0, Guard::CheckThenWrite) {
            return self.1.highest(scope);
        }
        let seen: Option<String> = self.1.client.ask(&format!("GET flawed:{scope}"));
        Ok(seen.map(|text| Epoch::new(text.parse::<f64>().unwrap() as u64).unwrap()))
    }
}

#[test]
fn t57_t01_t03_t17_guards_that_leave_a_gap_are_found() {
    if !available() {
        return;
    }
    for (guard, rule) in [
        (Guard::CheckThenWrite, Rule::OneStep),
        (Guard::LuaNumbers, Rule::Width),
        (Guard::Texts, Rule::Width),
        (Guard::Equality, Rule::ForwardOnly),
        (Guard::Expired, Rule::OlderRefused),
        (Guard::Expired, Rule::NeverRaisedRefused),
    ] {
        let outcome = run_rule(&Flawed(guard), rule);
        assert!(matches!(outcome, Outcome::Broken(_)), "{guard:?} was not found by \"{rule}\": {outcome:?}");
    }
    // And they look right where no gap is tried.
    for (guard, rule) in [
        (Guard::CheckThenWrite, Rule::OlderRefused),
        (Guard::LuaNumbers, Rule::OlderRefused),
        (Guard::Texts, Rule::OlderRefused),
        (Guard::Equality, Rule::EqualAccepted),
        (Guard::Expired, Rule::EqualAccepted),
    ] {
        assert_eq!(run_rule(&Flawed(guard), rule), Outcome::Held, "{guard:?}: {rule}");
    }
}
