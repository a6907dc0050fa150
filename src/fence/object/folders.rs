//! A folder for each epoch, for stores without any compare-and-set. It **fences nothing**, and is called advisory.
//!
//! A writer puts its objects below its own epoch, and a reader reads below the one epoch that the coordinator, or whatever
//! else it trusts, has named to it. What that gives and what not:
//!
//! | | |
//! |---|---|
//! | A replaced owner never overwrites or deletes what a newer one has put | holds: they have no path in common |
//! | A reader of epoch 34 never sees an object of epoch 33 | holds |
//! | A write of a replaced owner is refused | **no**: it is taken, below its own epoch |
//! | What a new owner has read of the epochs before it stays as it read it | **no**: the old owner may still change it |
//! | Two objects change together | **no** |
//! | The reader's epoch is the newest | only as far as whoever named it knows |
//!
//! So a new owner copies what it takes over into its own folder, and from then on nobody looks back. What the old one adds
//! after that copy is lost, without anybody being told: where that matters, use a store with
//! [`ObjectFence`](super::ObjectFence).

use super::failure::{NotAllowed, cause, first_attempt, nothing_sent, shown, unfit};
use super::place::below;
use crate::{Fence, FenceError, FenceFuture, FencingToken, same_cluster};
use bytes::Bytes;
use futures_util::TryStreamExt;
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutPayload};
use ringfence_core::ids::{ClusterId, Epoch, Scope};
use std::fmt;
use std::sync::Arc;

/// Objects below the epoch that put them: see [the table](self). It is a [`Fence`] that does not enforce, so it can only be
/// declared as [`DeclaredFence::advisory`](crate::DeclaredFence::advisory):
///
/// ```compile_fail,E0277
/// # use ringfence_fence::{DeclaredFence, object::EpochFolders};
/// # fn declare(folders: EpochFolders) {
/// DeclaredFence::enforced("reports", folders); // it refuses nobody
/// # }
/// ```
#[derive(Clone)]
pub struct EpochFolders {
    store: Arc<dyn ObjectStore>,
    root: Path,
    cluster: ClusterId,
}

impl EpochFolders {
    /// The folders below this root. Each cluster has its own below it.
    ///
    /// # Errors
    /// [`FenceError::Unfit`] when the root is no path.
    pub fn new(
        store: Arc<dyn ObjectStore>,
        root: &str,
        cluster: &ClusterId,
    ) -> Result<EpochFolders, FenceError> {
        let root = Path::parse(root)
            .map_err(|error| unfit(&format!("the root is no path: {}", shown(&error.to_string()))))?;
        Ok(EpochFolders { store, root: below(&root, cluster.as_str()), cluster: cluster.clone() })
    }

    /// Where an object of this epoch is. The key is a path; see object_store's `Path` for what it may hold.
    ///
    /// # Errors
    /// [`FenceError::Unfit`] when the key is none.
    pub fn path(&self, scope: &Scope, epoch: Epoch, key: &str) -> Result<Path, FenceError> {
        let key = Path::parse(key).ok().filter(|key| !key.as_ref().is_empty());
        let key = key.ok_or_else(|| unfit("the key is no path"))?;
        Ok(below(&self.folder(scope, epoch), key.as_ref()))
    }

    /// Puts an object below the token's own epoch, checked by nobody.
    ///
    /// # Errors
    /// [`FenceError::WrongCluster`]; [`FenceError::Unfit`]; [`FenceError::Store`], after which it may be there or not, and
    /// putting it again is safe.
    pub async fn put(&self, token: &FencingToken, key: &str, content: PutPayload) -> Result<(), FenceError> {
        same_cluster(&self.cluster, token)?;
        let path = self.path(token.scope(), token.epoch(), key)?;
        let put = self.store.put(&path, content).await;
        let doing = "putting an object";
        put.map(drop).map_err(|error| match NotAllowed::of(&error) {
            Some(no) if first_attempt(&error) => no.unfit(doing),
            _ => FenceError::Store { doing, source: cause(error) },
        })
    }

    /// An object of this epoch; `None` where there is none.
    ///
    /// # Errors
    /// [`FenceError::Busy`] and [`FenceError::Unfit`].
    pub async fn get(&self, scope: &Scope, epoch: Epoch, key: &str) -> Result<Option<Bytes>, FenceError> {
        let doing = "getting an object";
        match self.store.get(&self.path(scope, epoch, key)?).await {
            Err(Error::NotFound { .. }) => Ok(None),
            got => got.map_err(nothing_sent(doing))?.bytes().await.map(Some).map_err(nothing_sent(doing)),
        }
    }

    /// The keys of this epoch, in their order.
    ///
    /// # Errors
    /// [`FenceError::Busy`] and [`FenceError::Unfit`].
    pub async fn keys(&self, scope: &Scope, epoch: Epoch) -> Result<Vec<String>, FenceError> {
        let folder = self.folder(scope, epoch);
        let list = self.store.list(Some(&folder)).map_ok(|meta| meta.location);
        let all: Vec<Path> = match list.try_collect().await {
            Err(Error::NotFound { .. }) => Vec::new(),
            all => all.map_err(nothing_sent("listing objects"))?,
        };
        let within = |path: &Path| {
            Some(path.as_ref().strip_prefix(folder.as_ref())?.trim_start_matches('/').to_owned())
        };
        let mut keys: Vec<String> = all.iter().filter_map(within).collect();
        keys.sort();
        Ok(keys)
    }

    /// The epochs that have put anything, the oldest first.
    ///
    /// # Errors
    /// [`FenceError::Busy`] and [`FenceError::Unfit`].
    pub async fn epochs(&self, scope: &Scope) -> Result<Vec<Epoch>, FenceError> {
        let folders = match self.store.list_with_delimiter(Some(&below(&self.root, &scope.to_string()))).await
        {
            Err(Error::NotFound { .. }) => Vec::new(),
            list => list.map_err(nothing_sent("listing epochs"))?.common_prefixes,
        };
        let mut epochs: Vec<Epoch> = folders.iter().filter_map(|folder| epoch(folder.filename()?)).collect();
        epochs.sort();
        Ok(epochs)
    }

    fn folder(&self, scope: &Scope, epoch: Epoch) -> Path {
        below(&self.root, &format!("{scope}/{:016}", epoch.get()))
    }
}

/// An epoch as folders are named: sixteen digits.
fn epoch(digits: &str) -> Option<Epoch> {
    let canonical = digits.len() == 16 && digits.bytes().all(|b| b.is_ascii_digit());
    digits.parse().ok().filter(|_| canonical).and_then(|number| Epoch::new(number).ok())
}

/// A raise does nothing, as there is nothing that could refuse.
impl Fence for EpochFolders {
    fn raise<'a>(&'a self, token: &'a FencingToken) -> FenceFuture<'a, ()> {
        Box::pin(std::future::ready(same_cluster(&self.cluster, token)))
    }

    fn highest<'a>(&'a self, scope: &'a Scope) -> FenceFuture<'a, Option<Epoch>> {
        Box::pin(async move { Ok(self.epochs(scope).await?.last().copied()) })
    }
}

// A client's own debug output may hold its credentials.
impl fmt::Debug for EpochFolders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EpochFolders of {} in {}", self.cluster, self.store)
    }
}
