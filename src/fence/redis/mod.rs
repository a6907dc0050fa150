//! A fence in Redis or Valkey: a key a scope, beside the data, checked in the script that runs the user's own commands.
//!
//! ```no_run
//! use ringfence_core::ids::ClusterId;
//! use ringfence_fence::{FenceError, FencingToken, redis::RedisFence};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = redis::Client::open("redis://127.0.0.1/")?;
//! let mut conn = client.get_multiplexed_async_connection().await?;
//! let fence = RedisFence::install(&mut conn, &ClusterId::new("prod")?).await?; // refuses settings that lose a raise
//!
//! let (old, new): (FencingToken, FencingToken) = ("prod/orders/17@33".parse()?, "prod/orders/17@34".parse()?);
//! fence.raise(&mut conn, &new).await?; // an owner raises before it reads anything
//!
//! let mut write = redis::pipe();
//! write.hset("{orders/17}cart:5", "item", 3).lpush("{orders/17}log", "cart 5");
//! let replies = fence.write(&mut conn, &[new], &write).await?; // the check and both commands are one step
//!
//! let late = fence.write(&mut conn, &[old], &write).await;
//! assert!(matches!(late, Err(FenceError::Fenced(_)))); // and nothing is written
//! # Ok(())
//! # }
//! # use redis::AsyncCommands as _;
//! ```
//!
//! # What it rests on
//!
//! - **One script is one step.** Redis runs nothing else between the check and the last command of the write.
//! - **A write is not taken back.** When a command fails in the middle (a list where a hash is, say), those before it stay: the
//!   error is [`FenceError::Store`] with a [`CommandFailed`] that says which. What can be known before is found before
//!   anything runs, as [`FenceError::Unfit`]: an unknown command, a wrong number of arguments, a command that runs in no
//!   script, keys in several slots. A server that is out of memory, read-only, loading or without its disk refuses the
//!   script as a whole ([`FenceError::Busy`]: nothing happened).
//! - **Only what goes through the fence is fenced.** A plain `SET` is not, and since a script runs with its user's own
//!   permissions, no ACL tells the two apart; it can keep other users away from the data and from `ringfence:*`.
//! - **Data and fence are in one database of one server**, and in Redis Cluster in one slot: every key of a scope has its
//!   [hash tag](RedisFence::tag). A write over several scopes there needs [`RedisOptions::together`].
//! - **A fence is kept:** it has no time to live and is refused as [`FenceError::Corrupt`] when it gets one; a policy that
//!   evicts keys without one (`allkeys-*`) is refused at the start. Nothing stops a `FLUSHALL` by hand; it takes the data
//!   along, and every write is refused until somebody installs and raises again.
//! - **Replies pass through Lua:** an integer above 2^53 is rounded there, and a floating number is a string.
//!
//! # Durability, failover, restore
//!
//! A raise is on the primary's disk before it answers: `appendonly yes` and `appendfsync always` are asked for, and whoever
//! takes less says so by name ([`RedisOptions`]).
//!
//! **Replication is asynchronous**, so a failover can lose answered raises and writes, also of an owner that did
//! everything right; [`RedisOptions::waiting_for_replicas`] and [`RedisOptions::waiting_for_disks_of_replicas`] make a raise wait
//! for others and narrow that. What is lost is lost, but nobody goes on as if it were not: each fence keeps the
//! replication id under which it was raised, which a server changes when it starts and when it is promoted, and each
//! script compares it. So after a restart, a restore from a copy, or a failover, every write is answered
//! [`FenceError::Replaced`] until the owner has raised again, which an owner does once the coordinator confirms its grant, and
//! then reads again. (A primary that has had no replica for an hour changes the id too, and so does moving a slot: a
//! raise too many, and no harm.) A replaced owner that was paused meanwhile raises nothing, so it stays refused.
//!
//! Not covered: a primary that was cut off and does not know yet that it was replaced still accepts writes, its own last
//! owner's among them; they are lost when it comes back. `min-replicas-to-write` bounds for how long.
//!
//! # Why a script, and not a library of functions
//!
//! `FUNCTION LOAD` needs more permissions, is one more thing to be installed on every primary, and two versions of a program
//! would replace each other's library. A script is addressed by its digest: whoever sends it knows what runs. One function
//! cannot call another library's either, so a check in a library could not be used inside the user's own script;
//! [`GuardedScript`] can.

mod commands;
mod failure;
mod keys;
mod options;
mod raiser;
mod reply;
mod script;
mod server;
mod slot;

pub use commands::MAX_ARGUMENTS;
pub use failure::{CommandFailed, NotReplicated};
pub use options::RedisOptions;
pub use raiser::RedisRaiser;
pub use script::{GuardedScript, RULE_LUA};

use crate::token::in_lock_order;
use crate::{FenceError, FencingToken, MAX_JUMP, same_cluster};
use commands::{Commands, PREFIX, unfit};
use failure::{Unexpected, failed};
use keys::{BINDING, Tagging};
use options::Wait;
use redis::aio::ConnectionLike;
use redis::{Pipeline, ToRedisArgs, Value};
use reply::Answer;
use ringfence_core::ids::{ClusterId, Epoch, Scope};
use script::Word;
use slot::slot;
use std::sync::Arc;

/// The fence of one Redis store. It holds no connection: every call says which, and any of redis-rs' async connections will do.
///
/// Clones share what was learnt of the server.
#[derive(Clone, Debug)]
pub struct RedisFence {
    cluster: ClusterId,
    tagging: Tagging,
    detecting: bool,
    wait: Option<Wait>,
    in_cluster: bool,
    commands: Arc<Commands>,
}

impl RedisFence {
    /// Binds the store to the cluster at first use, and refuses a server that may lose a raise. Installing again changes
    /// nothing, so a program does it at every start.
    ///
    /// # Errors
    /// As [`RedisOptions::install`].
    pub async fn install<C: ConnectionLike + Send>(
        conn: &mut C,
        cluster: &ClusterId,
    ) -> Result<RedisFence, FenceError> {
        RedisFence::options(cluster).install(conn).await
    }

    /// To install it otherwise than by default.
    pub fn options(cluster: &ClusterId) -> RedisOptions {
        RedisOptions::new(cluster.clone())
    }

    /// The cluster it was installed for.
    pub fn cluster(&self) -> &ClusterId {
        &self.cluster
    }

    /// The hash tag of a scope, such as `{orders/17}`, braces included. In Redis Cluster every key of the scope's data
    /// contains it, before any other brace.
    pub fn tag(&self, scope: &Scope) -> String {
        self.tagging.tag(scope)
    }

    /// The key of a scope's fence. For looking at it, and for an ACL: nobody writes it but the scripts.
    pub fn key(&self, scope: &Scope) -> String {
        self.tagging.key(scope)
    }

    /// Raises the fence of the token's scope, durably, and says under which life of the server it was raised.
    ///
    /// # Errors
    /// As [`HighWater::raise`](crate::HighWater::raise); [`FenceError::WrongCluster`]; [`FenceError::NotInstalled`];
    /// [`FenceError::Corrupt`]; [`FenceError::Unfit`] on a replica that takes writes or without a permission;
    /// [`FenceError::Busy`], when the server did nothing; [`FenceError::Store`], after which it may have been raised or
    /// not, and raising again is safe: the connection broke, or [fewer replicas](NotReplicated) than asked for confirmed it.
    pub async fn raise<C: ConnectionLike + Send>(
        &self,
        conn: &mut C,
        token: &FencingToken,
    ) -> Result<(), FenceError> {
        self.raise_all(conn, std::slice::from_ref(token)).await
    }

    /// Raises several scopes in one script: all or none. In Redis Cluster they have to be in one slot.
    ///
    /// # Errors
    /// As [`RedisFence::raise`]; no scope is raised then. [`FenceError::Unfit`] across slots.
    pub async fn raise_all<C: ConnectionLike + Send>(
        &self,
        conn: &mut C,
        tokens: &[FencingToken],
    ) -> Result<(), FenceError> {
        self.raise_within(conn, tokens, MAX_JUMP).await
    }

    /// Raises past the bound on a jump ([`MAX_JUMP`]), for an operator who knows why. It does not move a fence back either.
    ///
    /// # Errors
    /// As [`RedisFence::raise`], without [`FenceError::Implausible`].
    pub async fn force_raise<C: ConnectionLike + Send>(
        &self,
        conn: &mut C,
        token: &FencingToken,
    ) -> Result<(), FenceError> {
        self.raise_within(conn, std::slice::from_ref(token), Epoch::MAX.get()).await
    }

    async fn raise_within(
        &self,
        conn: &mut (impl ConnectionLike + Send),
        tokens: &[FencingToken],
        jump: u64,
    ) -> Result<(), FenceError> {
        // As given, so that a later token of a scope is raised after an earlier one; none is nothing to do.
        let tokens: Vec<&FencingToken> = tokens.iter().collect();
        if tokens.is_empty() {
            return Ok(());
        }
        let doing = "raising the fence";
        let (keys, mut args) = self.head(&tokens)?;
        args.push(jump.to_string().into_bytes());
        let answer = match self.wait {
            None => script::raise().call(conn, doing, &keys, &args).await?,
            Some(wait) => {
                let (answer, waited) =
                    script::raise().call_and(conn, doing, (&keys, &args), &wait.command()).await?;
                // A refusal wrote nothing that could be waited for.
                Answer::read(answer)?.done(&self.cluster, &tokens, 0)?;
                return wait.judge(&waited);
            }
        };
        Answer::read(answer)?.done(&self.cluster, &tokens, 0).map(drop)
    }

    /// Checks the tokens of all scopes that the write touches, and runs its commands, in one step. The replies are in the
    /// order of the commands, also of those that the pipeline ignores.
    ///
    /// The commands are seen to before anything is sent; see [the module](self) for what that finds.
    ///
    /// # Errors
    /// As [`HighWater::check`](crate::HighWater::check); [`FenceError::Unstamped`] without any token;
    /// [`FenceError::Replaced`]; [`FenceError::Unfit`]; [`FenceError::WrongCluster`], [`FenceError::NotInstalled`],
    /// [`FenceError::Corrupt`]; [`FenceError::Busy`], when the server did nothing; nothing of the write ran after any of
    /// these. [`FenceError::Store`] when the connection broke or a time limit passed, and then nobody knows; or with a
    /// [`CommandFailed`] as its source, which says how many commands took effect.
    pub async fn write<C: ConnectionLike + Send>(
        &self,
        conn: &mut C,
        tokens: &[FencingToken],
        write: &Pipeline,
    ) -> Result<Vec<Value>, FenceError> {
        let tokens = in_lock_order(tokens).ok_or(FenceError::Unstamped)?;
        let (mut keys, mut args) = self.head(&tokens)?;
        let fit = self.commands.fit(conn, write, self.home(&tokens).as_ref()).await?;
        keys.extend(fit.keys);
        args.extend(fit.words);
        let answer = script::commands().call(conn, "running the write", &keys, &args).await?;
        match Answer::read(answer)?.done(&self.cluster, &tokens, write.len())? {
            Value::Array(replies) => Ok(replies),
            _ => Err(FenceError::store("running the write", Unexpected("no list of replies".into()))),
        }
    }

    /// Checks the tokens, and runs a script of the user's, in one step.
    ///
    /// # Errors
    /// As [`RedisFence::write`]. A script that fails in the middle is a [`FenceError::Store`] too, and what it had written stays.
    pub async fn run<C: ConnectionLike + Send>(
        &self,
        conn: &mut C,
        tokens: &[FencingToken],
        script: &GuardedScript,
        keys: impl ToRedisArgs,
        args: impl ToRedisArgs,
    ) -> Result<Value, FenceError> {
        let tokens = in_lock_order(tokens).ok_or(FenceError::Unstamped)?;
        let (mut all_keys, mut all_args) = self.head(&tokens)?;
        let keys = keys.to_redis_args();
        if keys.iter().any(|key| key.starts_with(PREFIX.as_bytes())) {
            return Err(unfit("a key of the script begins with \"ringfence:\", a fence's own"));
        }
        if let Some((home, tag)) = self.home(&tokens)
            && keys.iter().any(|key| slot(key) != home)
        {
            return Err(unfit(&format!(
                "a key of the script lives in another slot of the cluster than the fence: give every key of the scope the \
                 hash tag {tag}"
            )));
        }
        all_keys.extend(keys);
        all_args.extend(args.to_redis_args());
        let answer = script.loaded().call(conn, "running the script", &all_keys, &all_args).await?;
        Answer::read(answer)?.done(&self.cluster, &tokens, 0)
    }

    /// Checks the tokens and writes nothing. The answer is about the past: anybody may raise between it and what follows, so
    /// it protects no write. It is for [observing](crate::ObserveOnly).
    ///
    /// # Errors
    /// As [`RedisFence::write`].
    pub async fn check<C: ConnectionLike + Send>(
        &self,
        conn: &mut C,
        tokens: &[FencingToken],
    ) -> Result<(), FenceError> {
        self.write(conn, tokens, &Pipeline::new()).await.map(drop)
    }

    /// The highest epoch seen of a scope; `None` when it was never raised.
    ///
    /// # Errors
    /// [`FenceError::WrongCluster`], [`FenceError::Corrupt`], [`FenceError::Busy`] and [`FenceError::Store`].
    pub async fn highest<C: ConnectionLike + Send>(
        &self,
        conn: &mut C,
        scope: &Scope,
    ) -> Result<Option<Epoch>, FenceError> {
        let corrupt = |field: &str, value: &str| FenceError::Corrupt {
            place: format!("the fence of {scope}"),
            found: reply::what(field, value),
        };
        let mut ask = redis::cmd("HMGET");
        ask.arg(self.key(scope)).arg("epoch").arg("cluster");
        let row: Vec<Value> = match ask.query_async(conn).await {
            Err(error) if error.code() == Some("WRONGTYPE") => return Err(corrupt("type", "")),
            row => row.map_err(failed("reading the fence"))?,
        };
        let [epoch, cluster] = row.as_slice() else { return Err(corrupt("type", "")) };
        if matches!((epoch, cluster), (Value::Nil, Value::Nil)) {
            return Ok(None);
        }
        let (epoch, cluster) = (reply::text(epoch), reply::text(cluster));
        match ClusterId::new(&cluster) {
            Ok(bound) if bound == self.cluster => {}
            Ok(bound) => return Err(FenceError::WrongCluster { presented: self.cluster.clone(), bound }),
            Err(_) => return Err(corrupt("cluster", &cluster)),
        }
        reply::epoch(&epoch).map(Some).ok_or_else(|| corrupt("epoch", &epoch))
    }

    /// Gives the fence a connection to raise on, so that an async owner can declare it.
    pub fn raiser<C: ConnectionLike + Clone + Send + Sync>(&self, conn: C) -> RedisRaiser<C> {
        RedisRaiser::new(self.clone(), conn)
    }

    /// The slot that everything has to be in, and its tag; none where there are no slots.
    fn home(&self, tokens: &[&FencingToken]) -> Option<(u16, String)> {
        let scope = tokens.first()?.scope();
        self.in_cluster.then(|| (slot(self.key(scope).as_bytes()), self.tag(scope)))
    }

    /// The keys and arguments that every script begins with; see `lua/rule.lua`.
    fn head(&self, tokens: &[&FencingToken]) -> Result<(Vec<Word>, Vec<Word>), FenceError> {
        let flag = |set: bool| Word::from(if set { *b"1" } else { *b"0" });
        let bound = !self.in_cluster;
        let mut keys: Vec<Word> = if bound { vec![BINDING.into()] } else { Vec::new() };
        let mut args: Vec<Word> = vec![
            tokens.len().to_string().into(),
            self.cluster.as_str().into(),
            flag(self.detecting),
            flag(bound),
        ];
        let home = self.home(tokens);
        for token in tokens {
            same_cluster(&self.cluster, token)?;
            let key = self.key(token.scope());
            if home.as_ref().is_some_and(|(home, _)| slot(key.as_bytes()) != *home) {
                return Err(unfit(
                    "its scopes live in several slots of the cluster, and no step of Redis spans two: make one write for each, \
                     or put the fences under one hash tag (RedisOptions::together)",
                ));
            }
            keys.push(key.into());
            args.push(format!("{:016}", token.epoch().get()).into());
            args.push(token.session().map_or_else(String::new, |session| session.get().to_string()).into());
        }
        Ok((keys, args))
    }
}

impl Wait {
    fn command(self) -> redis::Cmd {
        let mut command = redis::cmd(if self.on_disk { "WAITAOF" } else { "WAIT" });
        if self.on_disk {
            command.arg(1);
        }
        command.arg(self.replicas).arg(self.within_ms());
        command
    }

    fn judge(self, waited: &Value) -> Result<(), FenceError> {
        let (here, have) = match waited {
            Value::Int(have) => (true, *have),
            Value::Array(counts) => match counts.as_slice() {
                [Value::Int(here), Value::Int(have)] => (*here >= 1, *have),
                _ => (false, 0),
            },
            _ => (false, 0),
        };
        if here && have >= i64::from(self.replicas) {
            return Ok(());
        }
        let whose = match (self.on_disk, here) {
            (false, _) => "replicas",
            (true, true) => "disks of replicas",
            (true, false) => "disks of replicas (and not this server's own)",
        };
        let short = NotReplicated { have, need: self.replicas, whose, within_ms: self.within_ms() };
        Err(FenceError::store("waiting for the replicas", short))
    }

    fn within_ms(self) -> u64 {
        u64::try_from(self.within.as_millis()).unwrap_or(u64::MAX)
    }
}
