//! A fence in etcd: a key a scope, beside the data, compared in the transaction that does the user's own.
//!
//! ```no_run
//! use ringfence_core::ids::ClusterId;
//! use ringfence_fence::etcd::{EtcdConnection, EtcdFence, Txn};
//! use ringfence_fence::{FenceError, FencingToken};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let mut etcd = EtcdConnection::to(["http://10.0.0.1:2379", "http://10.0.0.2:2379", "http://10.0.0.3:2379"])?;
//! let fence = EtcdFence::install(&mut etcd, &ClusterId::new("prod")?).await?;
//!
//! let (old, new): (FencingToken, FencingToken) = ("prod/orders/17@33".parse()?, "prod/orders/17@34".parse()?);
//! fence.raise(&mut etcd, &new).await?; // an owner raises before it reads anything
//!
//! let write = Txn::new().put("orders/17/cart/5", "3 apples").delete("orders/17/cart/4");
//! fence.write(&mut etcd, &[new], &write).await?; // the comparison and both operations are one step
//!
//! let late = fence.write(&mut etcd, &[old], &write).await;
//! assert!(matches!(late, Err(FenceError::Fenced(_)))); // and nothing is written
//! # Ok(())
//! # }
//! ```
//!
//! # What it rests on
//!
//! - **The user's transaction runs only while the fence's rows are what was judged.** Then its own compares decide between its
//!   two branches; else neither does anything. A refusal by the fence and a compare of the user's that failed are never
//!   taken for each other: the same step reads the rows again.
//! - **The rule is [`HighWater`]'s.** A row is read, judged here, and written only over the very value that was judged. An
//!   owner that goes on compares with what it saw last: one round trip, and a second one only after somebody else raised.
//! - **What only the fence may write** is everything under `ringfence/` (behind the prefix, when there is one). A
//!   transaction that would put or delete there is refused as [`FenceError::Unfit`] before it is sent.
//! - **A fence is kept.** It has no lease and is refused as [`FenceError::Corrupt`] when it gets one; compaction drops old
//!   revisions and never the last; a fence that was deleted is refused ([`FenceError::NotRaised`]), and no write makes it anew.
//!   etcd's roles cannot tell a put from a delete: whoever may raise may delete.
//! - **Only what goes through the fence is fenced.** A plain put is not. Roles can keep other users from the data.
//! - **At most 63 scopes a write**, with etcd's `--max-txn-ops` of 128: each takes two compares, beside the user's own.
//! - **A second branch that writes** makes the user's transaction one within the fence's. etcd 3.4 then checks neither its
//!   own roles nor its space quota for what is put there; where these matter, only read in that branch.
//!
//! # What can be lost
//!
//! etcd answers when a majority has it on disk, and elections lose nothing. (`--unsafe-no-fsync` gives that up, and no client
//! can see it: don't.) A leader that was lost on the way, a time limit, a broken connection leave a write *unknown*:
//! [`FenceError::Store`]. It may even take effect later, but only while the fence's rows are the same: once the next owner
//! has raised, it never will.
//!
//! **A store that was restored from a copy** has the fence of its time. It is found to be one by another cluster id (which
//! a restore gets that names a new `--initial-cluster-token`, as it should) or by a revision below one that this process has
//! seen, before the first write on a new connection. Then the store's incarnation is counted up, and every owner is answered
//! [`FenceError::Replaced`] until it has raised again. What cannot be seen is a copy that is newer than anything this
//! process has seen and was restored under the same id: there the operator says so, with [`EtcdFence::declare_restored`].

mod connection;
mod kv;
mod memory;
mod raiser;
mod row;
mod txn;
mod wire;

pub use connection::EtcdConnection;
pub use kv::{EtcdError, EtcdKv};
pub use raiser::EtcdRaiser;
pub use txn::{Compare, Delete, Get, Header, Is, Op, OpReply, Pair, Put, Target, Txn, TxnReply};

use crate::high_water::{Decide, decide_all};
use crate::token::in_lock_order;
use crate::{FenceError, FencingToken, HighWater, same_cluster};
use memory::Memory;
use ringfence_core::ids::{ClusterId, Epoch, Scope};
use row::{Binding, Keys, Row};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How often a call begins anew because somebody else raised meanwhile.
const TRIES: usize = 16;

/// The fence of one etcd store. It holds no connection: every call says which.
///
/// Clones share what was seen of the store.
#[derive(Clone, Debug)]
pub struct EtcdFence {
    cluster: ClusterId,
    keys: Keys,
    memory: Arc<Mutex<Memory>>,
}

/// What the store holds of some scopes, as of one moment.
struct Look {
    binding: Binding,
    rows: BTreeMap<Scope, Option<Row>>,
}

/// Others raised each time.
#[derive(Debug, thiserror::Error)]
#[error("the fence was raised by others {TRIES} times meanwhile")]
struct Contended;

/// A write was accepted by a store that turned out to be an older one.
#[derive(Debug, thiserror::Error)]
#[error(
    "the write took effect, in a store that went back in time (restored from a copy, or another one): what else it had is \
     lost, and the owner stops, or raises again and reads again when the coordinator still confirms it"
)]
struct WentBack;

/// The answer is not one to what was asked.
#[derive(Debug, thiserror::Error)]
#[error("etcd's answer has not the shape of one")]
struct Strange;

impl EtcdFence {
    /// Binds the store to the cluster at first use. Installing again changes nothing, so a program does it at every start.
    ///
    /// # Errors
    /// [`FenceError::WrongCluster`] when the store is bound to another cluster; [`FenceError::Corrupt`] when the binding is
    /// damaged, of another format, or missing while there are fences; [`FenceError::Unfit`] without permission;
    /// [`FenceError::Busy`] and [`FenceError::Store`].
    pub async fn install<C: EtcdKv>(etcd: &mut C, cluster: &ClusterId) -> Result<EtcdFence, FenceError> {
        EtcdFence::install_under(etcd, "", cluster).await
    }

    /// As [`EtcdFence::install`], with all keys of the fence behind a prefix, such as `shop/`. Every process has to name the
    /// same: another prefix is another store.
    ///
    /// # Errors
    /// As [`EtcdFence::install`].
    pub async fn install_under<C: EtcdKv>(
        etcd: &mut C,
        prefix: &str,
        cluster: &ClusterId,
    ) -> Result<EtcdFence, FenceError> {
        let doing = "installing the fence";
        let fence = EtcdFence { cluster: cluster.clone(), keys: Keys::under(prefix), memory: Arc::default() };
        let key = fence.keys.binding();
        etcd.connection().await.map_err(|e| e.into_fence(doing))?;
        let found = etcd.txn(Txn::new().get(key.clone())).await.map_err(|e| e.into_fence(doing))?;
        if pairs(&found.replies, 0)?.is_empty() {
            let first = Binding { cluster: cluster.clone(), etcd: found.header.cluster_id, incarnation: 1 };
            // Bound only where nothing was: were the binding lost while fences are left, nobody knows whose they are.
            let bind = Txn::new()
                .when(Compare::is_absent(key.clone()))
                .when(fence.keys.no_fences())
                .put(key.clone(), first.text())
                .otherwise(Get { key: key.clone().into(), ..Get::default() });
            let bound = etcd.txn(bind).await.map_err(|e| e.into_fence(doing))?;
            if !bound.succeeded && pairs(&bound.replies, 0)?.is_empty() {
                return Err(FenceError::Corrupt {
                    place: format!("the key {key}"),
                    found: "nothing, although there are fences beside it".into(),
                });
            }
        }
        fence.look(etcd, doing, &[]).await?;
        Ok(fence)
    }

    /// The cluster it was installed for.
    pub fn cluster(&self) -> &ClusterId {
        &self.cluster
    }

    /// The key of a scope's fence. For looking at it, and for roles: nobody writes it but the fence.
    pub fn key(&self, scope: &Scope) -> String {
        self.keys.fence(scope)
    }

    /// Raises the fence of the token's scope, durably.
    ///
    /// # Errors
    /// As [`HighWater::raise`]; [`FenceError::WrongCluster`]; [`FenceError::NotInstalled`]; [`FenceError::Corrupt`];
    /// [`FenceError::Unfit`] without permission; [`FenceError::Busy`], when etcd did nothing; [`FenceError::Store`], after
    /// which it may have been raised or not, and raising again is safe.
    pub async fn raise<C: EtcdKv>(&self, etcd: &mut C, token: &FencingToken) -> Result<(), FenceError> {
        self.raise_all(etcd, std::slice::from_ref(token)).await
    }

    /// Raises several scopes in one transaction: all or none.
    ///
    /// # Errors
    /// As [`EtcdFence::raise`]; no scope is raised then. [`FenceError::Unfit`] beyond what a transaction holds.
    pub async fn raise_all<C: EtcdKv>(
        &self,
        etcd: &mut C,
        tokens: &[FencingToken],
    ) -> Result<(), FenceError> {
        self.raise_by(etcd, tokens, HighWater::raise).await
    }

    /// Raises past the bound on a jump ([`MAX_JUMP`](crate::MAX_JUMP)), for an operator who knows why. It does not move a
    /// fence back either.
    ///
    /// # Errors
    /// As [`EtcdFence::raise`], without [`FenceError::Implausible`].
    pub async fn force_raise<C: EtcdKv>(&self, etcd: &mut C, token: &FencingToken) -> Result<(), FenceError> {
        self.raise_by(etcd, std::slice::from_ref(token), HighWater::force_raise).await
    }

    async fn raise_by<C: EtcdKv>(
        &self,
        etcd: &mut C,
        tokens: &[FencingToken],
        decide: Decide,
    ) -> Result<(), FenceError> {
        let doing = "raising the fence";
        // As given, so that a later token of a scope is raised after an earlier one; none is nothing to do.
        let tokens: Vec<&FencingToken> = tokens.iter().collect();
        tokens.iter().try_for_each(|token| same_cluster(&self.cluster, token))?;
        let scopes = scopes(&tokens);
        if tokens.is_empty() {
            return Ok(());
        }
        for _ in 0..TRIES {
            // Always read: that the rows are as they must be is then durable too, on a majority.
            let look = self.look(etcd, doing, &scopes).await?;
            let after = decided(&look, &tokens, decide)?;
            let changed = changed(&look, &after);
            if changed.is_empty() {
                return Ok(());
            }
            // Where the store went back, the next look gives it a new incarnation, in which all is raised again.
            if self.replace_rows(etcd, doing, &look, &changed).await? {
                return Ok(());
            }
        }
        Err(FenceError::busy(doing, Contended))
    }

    /// Checks the tokens of all scopes that the transaction touches, and runs it, in one step.
    ///
    /// The answer is that of the user's transaction: whether *its* compares held, and what it did.
    ///
    /// # Errors
    /// As [`HighWater::check`]; [`FenceError::Unstamped`] without any token; [`FenceError::Replaced`];
    /// [`FenceError::Unfit`], when it would write a fence's key or etcd says that it cannot be done; [`FenceError::WrongCluster`],
    /// [`FenceError::NotInstalled`], [`FenceError::Corrupt`]; [`FenceError::Busy`], when etcd did nothing. Nothing was written
    /// after any of these. [`FenceError::Store`]: nobody knows.
    pub async fn write<C: EtcdKv>(
        &self,
        etcd: &mut C,
        tokens: &[FencingToken],
        write: &Txn,
    ) -> Result<TxnReply, FenceError> {
        let doing = "running the write";
        let tokens = in_lock_order(tokens).ok_or(FenceError::Unstamped)?;
        tokens.iter().try_for_each(|token| same_cluster(&self.cluster, token))?;
        let (from, to) = self.keys.reserved();
        if let Some(key) = write.writes_within(from, &to) {
            let why = format!(
                "it would write {}, and everything below {} is the fence's own",
                kv::shown(&String::from_utf8_lossy(key)),
                String::from_utf8_lossy(from)
            );
            return Err(FenceError::Unfit { why });
        }
        let scopes = scopes(&tokens);
        for _ in 0..TRIES {
            let connection = etcd.connection().await.map_err(|e| e.into_fence(doing))?;
            // Only what accepts is taken from memory; nobody is refused without a look.
            let remembered =
                self.remembered(connection, &scopes).filter(|look| judged(look, &tokens).is_ok());
            let look = match remembered {
                Some(look) => look,
                None => self.look(etcd, doing, &scopes).await?,
            };
            let after = judged(&look, &tokens)?;
            let changed = changed(&look, &after);
            if !changed.is_empty() {
                // A higher epoch comes in as a raise does, and counts whatever the write then comes to.
                self.replace_rows(etcd, doing, &look, &changed).await?;
                continue;
            }
            let nested = write.otherwise.iter().any(Op::writes);
            let guarded = self.guarded(&look, write, nested);
            let before = self.memory().revision();
            let reply = etcd.txn(guarded).await.map_err(|e| e.into_fence(doing))?;
            let as_it_was = self.memory().note(before, &reply);
            if !as_it_was && reply.wrote() {
                return Err(FenceError::store(doing, WentBack));
            }
            if as_it_was && let Some(answer) = self.answer(&look, reply, nested)? {
                return Ok(answer);
            }
            // Not what was remembered: the next turn reads, and decides on what there is.
            let mut memory = self.memory();
            scopes.iter().for_each(|scope| memory.keep(scope.clone(), None));
        }
        Err(FenceError::busy(doing, Contended))
    }

    /// The user's transaction, which runs only while all is as it was seen.
    ///
    /// When its second branch only reads, that shares the place with the look which tells whose compare failed. When it
    /// writes, the whole stands within: it must not run because the fence has moved.
    fn guarded(&self, look: &Look, write: &Txn, nested: bool) -> Txn {
        let mut guarded = self.unchanged(look);
        if nested {
            return guarded.then(write.clone());
        }
        guarded.compares.extend(write.compares.iter().cloned());
        guarded.then.extend(write.then.iter().cloned());
        guarded.otherwise = self.reads(look.rows.keys()).then;
        guarded.otherwise.extend(write.otherwise.iter().cloned());
        guarded
    }

    /// What the user's transaction came to; nothing where the fence was not as it had been seen, and nothing ran.
    fn answer(&self, look: &Look, mut reply: TxnReply, nested: bool) -> Result<Option<TxnReply>, FenceError> {
        if nested {
            return match reply.replies.pop().filter(|_| reply.succeeded) {
                Some(OpReply::Txn(inner)) => Ok(Some(TxnReply { header: reply.header, ..inner })),
                None if !reply.succeeded => Ok(None),
                _ => Err(FenceError::store("running the write", Strange)),
            };
        }
        if reply.succeeded {
            return Ok(Some(reply));
        }
        let scopes: Vec<Scope> = look.rows.keys().cloned().collect();
        let Ok(now) = self.read_look(&reply, &scopes) else { return Ok(None) };
        if now.binding != look.binding || now.rows != look.rows {
            return Ok(None);
        }
        // The fence let it pass, so it was a compare of the user's.
        reply.replies.drain(..=scopes.len());
        Ok(Some(reply))
    }

    /// Puts rows over the very ones that were seen. False when they were not there any more, or went to another store.
    async fn replace_rows<C: EtcdKv>(
        &self,
        etcd: &mut C,
        doing: &'static str,
        look: &Look,
        changed: &[(Scope, Row)],
    ) -> Result<bool, FenceError> {
        let puts = |txn: Txn, (scope, row): &(Scope, Row)| txn.put(self.keys.fence(scope), row.text());
        let txn = changed.iter().fold(self.unchanged(look), puts);
        let before = self.memory().revision();
        let reply = etcd.txn(txn).await.map_err(|e| e.into_fence(doing))?;
        let mut memory = self.memory();
        let done = memory.note(before, &reply) && reply.succeeded;
        changed.iter().for_each(|(scope, row)| memory.keep(scope.clone(), done.then_some(*row)));
        Ok(done)
    }

    /// Checks the tokens and writes nothing of the user's. The answer is about the past: anybody may raise between it and
    /// what follows, so it protects no write. It is for [observing](crate::ObserveOnly).
    ///
    /// # Errors
    /// As [`EtcdFence::write`].
    pub async fn check<C: EtcdKv>(&self, etcd: &mut C, tokens: &[FencingToken]) -> Result<(), FenceError> {
        self.write(etcd, tokens, &Txn::new()).await.map(drop)
    }

    /// The highest epoch seen of a scope; `None` when it was never raised.
    ///
    /// # Errors
    /// [`FenceError::WrongCluster`], [`FenceError::NotInstalled`], [`FenceError::Corrupt`], [`FenceError::Busy`] and
    /// [`FenceError::Store`].
    pub async fn highest<C: EtcdKv>(&self, etcd: &mut C, scope: &Scope) -> Result<Option<Epoch>, FenceError> {
        let look = self.look(etcd, "reading the fence", std::slice::from_ref(scope)).await?;
        Ok(look.rows.get(scope).copied().flatten().map(|row| row.seen.epoch()))
    }

    /// Says, as an operator, that the store was restored from a copy: from now on every owner is refused
    /// ([`FenceError::Replaced`]) until it has raised again. Best done before any worker can reach the store. Saying it
    /// without need costs each owner a raise.
    ///
    /// # Errors
    /// As [`EtcdFence::highest`].
    pub async fn declare_restored<C: EtcdKv>(&self, etcd: &mut C) -> Result<(), FenceError> {
        let doing = "giving the store a new incarnation";
        for _ in 0..TRIES {
            let look = self.look(etcd, doing, &[]).await?;
            if self.reborn(etcd, doing, &look.binding, look.binding.etcd).await? {
                return self.look(etcd, doing, &[]).await.map(drop);
            }
        }
        Err(FenceError::busy(doing, Contended))
    }

    /// Gives the fence a client to raise with, so that an async owner can declare it.
    pub fn raiser<C: EtcdKv + Clone + Sync>(&self, etcd: C) -> EtcdRaiser<C> {
        EtcdRaiser::new(self.clone(), etcd)
    }

    /// Reads the binding and the rows of some scopes, and sees to it that the store is the one that was known.
    async fn look<C: EtcdKv>(
        &self,
        etcd: &mut C,
        doing: &'static str,
        scopes: &[Scope],
    ) -> Result<Look, FenceError> {
        for _ in 0..TRIES {
            let connection = etcd.connection().await.map_err(|e| e.into_fence(doing))?;
            let before = self.memory().revision();
            let reply = etcd.txn(self.reads(scopes.iter())).await.map_err(|e| e.into_fence(doing))?;
            self.memory().note(before, &reply);
            let binding = self.read_binding(&reply)?;
            if self.memory().must_be_reborn(reply.header, &binding) {
                self.reborn(etcd, doing, &binding, reply.header.cluster_id).await?;
                continue;
            }
            let look = self.read_look(&reply, scopes)?;
            let mut memory = self.memory();
            memory.bound(look.binding.clone());
            memory.look_at(connection);
            look.rows.iter().for_each(|(scope, row)| memory.keep(scope.clone(), *row));
            return Ok(look);
        }
        Err(FenceError::busy(doing, Contended))
    }

    /// Reads of the binding and of some rows.
    fn reads<'a>(&self, scopes: impl Iterator<Item = &'a Scope>) -> Txn {
        scopes.fold(Txn::new().get(self.keys.binding()), |txn, scope| txn.get(self.keys.fence(scope)))
    }

    fn read_binding(&self, reply: &TxnReply) -> Result<Binding, FenceError> {
        let pair = pairs(&reply.replies, 0)?.first().ok_or(FenceError::NotInstalled)?;
        let binding = Binding::read(&self.keys, pair)?;
        if binding.cluster != self.cluster {
            return Err(FenceError::WrongCluster { presented: self.cluster.clone(), bound: binding.cluster });
        }
        Ok(binding)
    }

    /// What such reads have found.
    fn read_look(&self, reply: &TxnReply, scopes: &[Scope]) -> Result<Look, FenceError> {
        let binding = self.read_binding(reply)?;
        let mut rows = BTreeMap::new();
        for (at, scope) in scopes.iter().enumerate() {
            let row = pairs(&reply.replies, at + 1)?.first();
            rows.insert(scope.clone(), row.map(|pair| Row::read(scope, pair)).transpose()?);
        }
        Ok(Look { binding, rows })
    }

    /// Counts the store's incarnation up; false when somebody else has meanwhile.
    async fn reborn<C: EtcdKv>(
        &self,
        etcd: &mut C,
        doing: &'static str,
        binding: &Binding,
        id: u64,
    ) -> Result<bool, FenceError> {
        let key = self.keys.binding();
        // Above all that this process knows of, too: rows of an incarnation that was lost may come back with a later copy.
        let known = self.memory().binding().map_or(0, |known| known.incarnation);
        let incarnation = known.max(binding.incarnation) + 1;
        let next = Binding { cluster: binding.cluster.clone(), etcd: id, incarnation };
        let txn = Txn::new().when(Compare::value_is(key.clone(), binding.text())).put(key, next.text());
        Ok(etcd.txn(txn).await.map_err(|e| e.into_fence(doing))?.succeeded)
    }

    /// What was last seen, when it was seen on this connection or since that was looked at.
    fn remembered(&self, connection: u64, scopes: &[Scope]) -> Option<Look> {
        let memory = self.memory();
        let binding = memory.binding().filter(|_| memory.has_looked_at(connection))?.clone();
        let rows: Option<BTreeMap<_, _>> =
            scopes.iter().map(|scope| Some((scope.clone(), Some(memory.row(scope)?)))).collect();
        Some(Look { binding, rows: rows? })
    }

    /// A transaction that does something only while all is as it was seen.
    fn unchanged(&self, look: &Look) -> Txn {
        let binding = Compare::value_is(self.keys.binding(), look.binding.text());
        look.rows.iter().fold(Txn::new().when(binding), |txn, (scope, row)| {
            let key = self.keys.fence(scope);
            match row {
                Some(row) => txn.when(Compare::value_is(key.clone(), row.text())).when(Compare::new(
                    key,
                    Is::Equal,
                    Target::Lease(0),
                )),
                None => txn.when(Compare::is_absent(key)),
            }
        })
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn scopes(tokens: &[&FencingToken]) -> Vec<Scope> {
    let mut scopes: Vec<Scope> = tokens.iter().map(|token| token.scope().clone()).collect();
    scopes.sort();
    scopes.dedup();
    scopes
}

/// The rows as they must be afterwards, all or none.
fn decided(
    look: &Look,
    tokens: &[&FencingToken],
    decide: Decide,
) -> Result<BTreeMap<Scope, Row>, FenceError> {
    let after = decide_all(tokens.iter().copied(), |scope| Some((*look.rows.get(scope)?)?.seen), decide)?;
    let row = |seen| Row { seen, incarnation: look.binding.incarnation };
    Ok(after.into_iter().map(|(scope, seen)| (scope.clone(), row(seen))).collect())
}

/// The rows as they must be after a write.
fn judged(look: &Look, tokens: &[&FencingToken]) -> Result<BTreeMap<Scope, Row>, FenceError> {
    let after = decided(look, tokens, HighWater::check)?;
    for token in tokens {
        let row = look.rows.get(token.scope()).copied().flatten();
        if row.is_some_and(|row| row.incarnation != look.binding.incarnation) {
            return Err(FenceError::Replaced { token: (*token).clone() });
        }
    }
    Ok(after)
}

fn changed(look: &Look, after: &BTreeMap<Scope, Row>) -> Vec<(Scope, Row)> {
    let before = |scope| look.rows.get(scope).copied().flatten();
    after.iter().filter(|(scope, row)| before(*scope) != Some(**row)).map(|(s, r)| (s.clone(), *r)).collect()
}

fn pairs(replies: &[OpReply], at: usize) -> Result<&[Pair], FenceError> {
    match replies.get(at) {
        Some(OpReply::Get { pairs, .. }) => Ok(pairs),
        _ => Err(FenceError::store("reading etcd's answer", Strange)),
    }
}
