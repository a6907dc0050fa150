//! A fence in an object store: a manifest that names the data and holds the epochs, replaced by compare-and-set.
//!
//! ```
//! use object_store::memory::InMemory;
//! use ringfence_core::ids::ClusterId;
//! use ringfence_fence::object::{ObjectFence, ObjectWrite};
//! use ringfence_fence::{FenceError, FencingToken};
//! use std::sync::Arc;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = Arc::new(InMemory::new()); // or S3, GCS, Azure: whatever `object_store` opens
//! let fence = ObjectFence::install(store, "carts", &ClusterId::new("prod")?).await?; // refuses a store that ignores conditions
//!
//! let (old, new): (FencingToken, FencingToken) = ("prod/orders/17@33".parse()?, "prod/orders/17@34".parse()?);
//! fence.raise(&old).await?;
//! let paused = fence.stage(&[old], ObjectWrite::new().put("report", "by 33")).await?; // 33 sleeps here for 15 seconds
//!
//! let seen = fence.raise(&new).await?; // the next owner raises, and that is what it reads
//! fence.write(&[new.clone()], ObjectWrite::new().put("report", "by 34").on(&seen)).await?;
//!
//! assert!(matches!(paused.commit().await, Err(FenceError::Fenced(_)))); // and nothing was overwritten
//! assert_eq!(fence.get(new.scope(), "report").await?.as_deref(), Some(&b"by 34"[..]));
//! # Ok(())
//! # }
//! ```
//!
//! # What it rests on
//!
//! - **A put that names the version it replaces** (`If-Match`; a generation in GCS), or, with
//!   [`ObjectOptions::by_creating`], a put that only creates (`If-None-Match: *`). The store compares and writes in one step.
//!   Some servers take the header and ignore it: [`ObjectFence::install`] tries that and refuses such a store.
//! - **The manifest is the data.** A write uploads each object under a fresh name, where nobody looks, and then replaces the
//!   manifest. Whoever puts to a path of the data by hand, or reads by listing, is outside of the fence.
//! - **A raise replaces the manifest too,** also when it changes nothing. So whatever was sent before it, and is still on its
//!   way, names a version that is gone.
//! - **No content of a manifest comes twice,** for each has a number and a random id. An ETag that is a digest of the
//!   content, as in S3, would otherwise come back, and a stale put with it.
//! - **A refusal is not believed.** A client library that lost the answer to a put sends it again, and hears that the object
//!   has changed: by its own hand. The manifest holds the ids of the last 256 commits, and the writer looks for its own.
//! - **An outcome that cannot be found out** is [`FenceError::Store`] with an [`UnknownCommit`], which
//!   [`ObjectFence::resolve`] looks up later. It may still take effect until somebody commits something else.
//! - **The manifest is never deleted**, nor is the binding (`ringfence.json`): no lifecycle rule, no clean-up by age, no
//!   expiry may reach them, and in a bucket with versions no delete marker. A manifest that is gone accepts nobody, but
//!   whoever raises first makes it anew. Restoring an old version takes fence and data back together.
//!   A chain ([`ObjectOptions::by_creating`]) is restored by creating the next number with the old content, never by deleting
//!   links: a put on its way would find its number free again, and could undo a later raise.
//!
//! A write over several scopes needs them in one manifest: [`ObjectOptions::together`].
//!
//! # Durability
//!
//! A raise is as durable as the store's answer. For a local folder that is `LocalFileSystem::with_fsync(true)`; without, a
//! power cut may take back the last commits, the fence and the data of each together. (The fence cannot see the setting.)

mod commit;
mod failure;
pub mod folders;
mod head;
mod ids;
mod known;
mod manifest;
mod options;
mod place;
mod selftest;
mod snapshot;
mod staged;
mod sweep;

pub use failure::{Fate, Moved, UnknownCommit};
pub use folders::EpochFolders;
pub use ids::CommitId;
pub use manifest::{MAX_KEY_BYTES, MAX_MANIFEST_BYTES, RAISE_RESERVE_BYTES, RECENT_COMMITS};
pub use options::ObjectOptions;
pub use snapshot::Snapshot;
pub use staged::{ObjectWrite, Staged};
pub use sweep::{Orphan, Swept};

use crate::high_water::Decide;
use crate::token::in_lock_order;
use crate::{Enforces, Fence, FenceError, FenceFuture, FencingToken, HighWater};
use bytes::Bytes;
use commit::Plan;
use failure::{Contended, nothing_sent, unfit};
use head::Heads;
use manifest::Manifest;
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt};
use place::{Layout, Place};
use ringfence_core::ids::{ClusterId, Epoch, Scope};
use std::fmt;
use std::sync::Arc;

/// How often a reader looks again, when what it was to read has been replaced and swept meanwhile.
const READS: usize = 8;

/// The fence of one root in one object store. Clones share the client.
#[derive(Clone)]
pub struct ObjectFence {
    heads: Heads,
    root: Path,
    cluster: ClusterId,
    layout: Layout,
}

impl ObjectFence {
    /// Tests the store and binds the root to the cluster at first use, with a manifest for each scope that is replaced by
    /// its version. Installing again changes nothing, so a program does it at every start.
    ///
    /// # Errors
    /// As [`ObjectOptions::install`].
    pub async fn install(
        store: Arc<dyn ObjectStore>,
        root: &str,
        cluster: &ClusterId,
    ) -> Result<ObjectFence, FenceError> {
        ObjectFence::options(cluster).install(store, root).await
    }

    /// To install it otherwise than by default.
    pub fn options(cluster: &ClusterId) -> ObjectOptions {
        ObjectOptions::new(cluster.clone())
    }

    /// The cluster it was installed for.
    pub fn cluster(&self) -> &ClusterId {
        &self.cluster
    }

    /// The folder of a scope's manifest and data. For looking at it, and for the permissions on it.
    pub fn folder(&self, scope: &Scope) -> String {
        self.place(scope).shown().to_owned()
    }

    /// Raises the fence of the token's scope, and answers the state that nobody older can change any more.
    ///
    /// # Errors
    /// As [`HighWater::raise`]; [`FenceError::WrongCluster`]; [`FenceError::Corrupt`]; [`FenceError::Unfit`] for a store that
    /// cannot do it; [`FenceError::Busy`], when nothing happened; [`FenceError::Store`] with an [`UnknownCommit`], after which
    /// it may have been raised or not, and raising again is safe.
    pub async fn raise(&self, token: &FencingToken) -> Result<Snapshot, FenceError> {
        self.raise_by(std::slice::from_ref(token), HighWater::raise).await
    }

    /// Raises several scopes of one manifest in one step: all or none.
    ///
    /// # Errors
    /// As [`ObjectFence::raise`]; no scope is raised then. [`FenceError::Unfit`] when they have several manifests.
    pub async fn raise_all(&self, tokens: &[FencingToken]) -> Result<Snapshot, FenceError> {
        self.raise_by(tokens, HighWater::raise).await
    }

    /// Raises past the bound on a jump ([`MAX_JUMP`](crate::MAX_JUMP)), for an operator who knows why. It does not move a
    /// fence back either.
    ///
    /// # Errors
    /// As [`ObjectFence::raise`], without [`FenceError::Implausible`].
    pub async fn force_raise(&self, token: &FencingToken) -> Result<Snapshot, FenceError> {
        self.raise_by(std::slice::from_ref(token), HighWater::force_raise).await
    }

    async fn raise_by(&self, tokens: &[FencingToken], rule: Decide) -> Result<Snapshot, FenceError> {
        let place = one_place(self, tokens)?;
        let head = self.heads.read(&place).await?;
        self.commit(&place, head, Plan::Raise(tokens, rule), CommitId::draw()?).await
    }

    /// Checks the tokens of all scopes that the write touches, uploads its data, and commits it: all of it takes effect, or
    /// nothing does. What the write does not rest on ([`ObjectWrite::on`]) may change meanwhile; it is then committed on
    /// what there is, as long as the tokens are let through.
    ///
    /// # Errors
    /// As [`HighWater::check`]; [`FenceError::Unstamped`] without any token; [`FenceError::WrongCluster`];
    /// [`FenceError::Corrupt`]; [`FenceError::Unfit`], for several manifests, a key that is too long or a manifest that is
    /// too large; [`FenceError::Busy`], when nothing took effect, also with a [`Moved`]; [`FenceError::Store`] with an
    /// [`UnknownCommit`], when the store did not say what became of it.
    pub async fn write(&self, tokens: &[FencingToken], write: ObjectWrite) -> Result<Snapshot, FenceError> {
        self.stage(tokens, write).await?.commit().await
    }

    /// The first half of a write: checks the tokens, so that a replaced owner uploads nothing, and uploads the data. What
    /// counts is the check of the second half.
    ///
    /// # Errors
    /// As [`ObjectFence::write`], without [`FenceError::Store`].
    pub async fn stage(&self, tokens: &[FencingToken], write: ObjectWrite) -> Result<Staged, FenceError> {
        let tokens = in_lock_order(tokens).ok_or(FenceError::Unstamped)?;
        let tokens: Vec<FencingToken> = tokens.into_iter().cloned().collect();
        let place = one_place(self, &tokens)?;
        write.must_be_sound()?;
        let judge = |head: &Option<head::Head>| {
            let manifest = head.as_ref().map(|head| &head.manifest);
            Manifest::judge(manifest, &self.cluster, &tokens, HighWater::check).map(drop)
        };
        let mut head = write.known(&place)?;
        // What the caller has may be out of date, and a refusal must not be.
        if head.is_none() || judge(&head).is_err() {
            head = self.heads.read(&place).await?;
            judge(&head)?;
        }
        Staged::new(self, place, tokens, write, head)?.upload().await
    }

    /// Checks the tokens and writes nothing. The answer is about the past: anybody may raise between it and what follows, so
    /// it protects no write. It is for [observing](crate::ObserveOnly).
    ///
    /// # Errors
    /// As [`ObjectFence::stage`].
    pub async fn check(&self, tokens: &[FencingToken]) -> Result<(), FenceError> {
        let tokens = in_lock_order(tokens).ok_or(FenceError::Unstamped)?;
        let tokens: Vec<FencingToken> = tokens.into_iter().cloned().collect();
        let head = self.heads.read(&one_place(self, &tokens)?).await?;
        Manifest::judge(head.as_ref().map(|head| &head.manifest), &self.cluster, &tokens, HighWater::check)
            .map(drop)
    }

    /// The newest state of the scope's manifest; `None` when it was never raised. It is a picture of the past at once: an
    /// owner reads by raising.
    ///
    /// # Errors
    /// [`FenceError::WrongCluster`], [`FenceError::Corrupt`], [`FenceError::Busy`] and [`FenceError::Unfit`].
    pub async fn read(&self, scope: &Scope) -> Result<Option<Snapshot>, FenceError> {
        let place = self.place(scope);
        let Some(head) = self.heads.read(&place).await? else { return Ok(None) };
        if head.manifest.cluster != self.cluster {
            return Err(FenceError::WrongCluster {
                presented: self.cluster.clone(),
                bound: head.manifest.cluster,
            });
        }
        Ok(Some(Snapshot::new(&place, head)))
    }

    /// The content of a key; `None` when there is none.
    ///
    /// # Errors
    /// As [`ObjectFence::read`]; [`FenceError::Corrupt`] also when the object that the manifest names is gone.
    pub async fn get(&self, scope: &Scope, key: &str) -> Result<Option<Bytes>, FenceError> {
        let mut gone = None;
        for _ in 0..READS {
            let Some(snapshot) = self.read(scope).await? else { return Ok(None) };
            let Some(path) = snapshot.path(key) else { return Ok(None) };
            // It may have been replaced and swept since; not when it is named still.
            if gone.as_ref() == Some(&path) {
                return Err(FenceError::Corrupt {
                    place: path.to_string(),
                    found: "nothing, where the manifest names an object: somebody has deleted it".into(),
                });
            }
            match self.get_at(&path).await? {
                Some(content) => return Ok(Some(content)),
                None => gone = Some(path),
            }
        }
        Err(FenceError::busy("getting the data", Contended(READS)))
    }

    async fn get_at(&self, path: &Path) -> Result<Option<Bytes>, FenceError> {
        let doing = "getting the data";
        match self.heads.store.get(path).await {
            Err(Error::NotFound { .. }) => Ok(None),
            got => got.map_err(nothing_sent(doing))?.bytes().await.map(Some).map_err(nothing_sent(doing)),
        }
    }

    /// The highest epoch seen of a scope; `None` when it was never raised.
    ///
    /// # Errors
    /// As [`ObjectFence::read`].
    pub async fn highest(&self, scope: &Scope) -> Result<Option<Epoch>, FenceError> {
        Ok(self.read(scope).await?.and_then(|snapshot| snapshot.epoch(scope)))
    }

    fn place(&self, scope: &Scope) -> Place {
        self.layout.place(&self.root, scope)
    }
}

/// The one manifest of these tokens.
fn one_place(fence: &ObjectFence, tokens: &[FencingToken]) -> Result<Place, FenceError> {
    let first = fence.place(tokens.first().ok_or(FenceError::Unstamped)?.scope());
    if tokens.iter().any(|token| fence.place(token.scope()) != first) {
        return Err(unfit(
            "one step of an object store is one manifest, and these scopes have several: install the fence with \
             ObjectOptions::together for writes over several scopes",
        ));
    }
    Ok(first)
}

impl Fence for ObjectFence {
    fn raise<'a>(&'a self, token: &'a FencingToken) -> FenceFuture<'a, ()> {
        Box::pin(async move { ObjectFence::raise(self, token).await.map(drop) })
    }

    fn highest<'a>(&'a self, scope: &'a Scope) -> FenceFuture<'a, Option<Epoch>> {
        Box::pin(ObjectFence::highest(self, scope))
    }
}

impl Enforces for ObjectFence {}

impl fmt::Debug for ObjectFence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ObjectFence of {} in {}", self.cluster, self.heads.store)
    }
}
