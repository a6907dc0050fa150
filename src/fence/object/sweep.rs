//! Clearing up: objects that a refused or abandoned write has uploaded, and those that were replaced.
//!
//! No clock decides what may go. An object's name has the number of the manifest that its writer had seen. A sweep first
//! commits a *floor*, its own number: from then on a commit may name a new object only when its number is not below
//! (a writer that finds the floor above its upload uploads anew). So an object below the floor that the sweep's own
//! manifest does not name will never be named, by nobody, however long its writer slept: it can go, also by the hand of
//! a sweeper that was replaced meanwhile. The age that is asked for on top protects readers of older pictures only.

use super::commit::Plan;
use super::failure::nothing_sent;
use super::head::{Swap, put};
use super::ids::{CommitId, DataName};
use super::manifest::{Manifest, RECENT_COMMITS};
use super::place::{PER_FOLDER, Place, folder_of, link_number};
use super::{ObjectFence, one_place};
use crate::{FenceError, FencingToken};
use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{Error, ObjectMeta, ObjectStoreExt, PutMode};
use ringfence_core::ids::Scope;
use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

const DOING: &str = "clearing up";

/// An object that no current manifest names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orphan {
    /// Where it is.
    pub path: Path,
    /// Its size.
    pub bytes: u64,
    /// When it was put, by the store's clock.
    pub put_at: SystemTime,
}

/// What a sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Objects removed.
    pub removed: u64,
    /// Their size together.
    pub bytes: u64,
    /// Orphans that are younger than was asked for.
    pub kept_young: u64,
    /// Manifests of a chain that were shrunk to a few bytes. Their names stay taken.
    pub shrunk: u64,
}

impl ObjectFence {
    /// The objects beside this scope's manifest that it does not name: uploaded by writes that were refused, abandoned, or
    /// are under way, or replaced since. For looking at; only a sweep knows what may be removed.
    ///
    /// # Errors
    /// [`FenceError::Busy`], [`FenceError::Corrupt`] and [`FenceError::Unfit`], when they cannot be listed.
    pub async fn orphans(&self, scope: &Scope) -> Result<Vec<Orphan>, FenceError> {
        let place = self.place(scope);
        let head = self.heads.read(&place).await?;
        let named = named(head.as_ref().map(|head| &head.manifest));
        let unnamed = |(name, orphan): (DataName, Orphan)| {
            std::future::ready(Ok((!named.contains(&name)).then_some(orphan)))
        };
        self.data(&place).try_filter_map(unnamed).try_collect().await
    }

    /// Removes the orphans of the token's manifest that are at least this old, and shrinks what a chain no longer needs. It
    /// is a commit, and fenced like any other. It removes no manifest, ever.
    ///
    /// Safe with any age: what it removes can never be named again. But a reader with a [`Snapshot`](super::Snapshot) from
    /// before may still want it, so the age should be more than a reader takes. Ages compare the store's clock with this
    /// machine's.
    ///
    /// # Errors
    /// As [`ObjectFence::write`], and nothing was removed then; [`FenceError::Busy`] also in the middle of removing, and
    /// the next sweep goes on.
    pub async fn sweep(&self, token: &FencingToken, at_least_old: Duration) -> Result<Swept, FenceError> {
        let tokens = std::slice::from_ref(token);
        let place = one_place(self, tokens)?;
        let head = self.heads.read(&place).await?;
        let marked = self.commit(&place, head, Plan::Sweep(tokens), CommitId::draw()?).await?;
        let manifest = &marked.head().manifest;
        let named = named(Some(manifest));
        let mut swept = Swept::default();
        let mut data = self.data(&place);
        while let Some((name, orphan)) = data.try_next().await? {
            if named.contains(&name) || name.after >= manifest.floor {
                continue;
            }
            // One from the future is young.
            if orphan.put_at.elapsed().unwrap_or_default() < at_least_old {
                swept.kept_young += 1;
                continue;
            }
            match self.heads.store.delete(&orphan.path).await {
                Ok(()) => {
                    swept.removed += 1;
                    swept.bytes += orphan.bytes;
                }
                // Another sweep was faster.
                Err(Error::NotFound { .. }) => {}
                Err(error) => return Err(nothing_sent(DOING)(error)),
            }
        }
        if self.heads.swap == Swap::Creating {
            swept.shrunk = self.shrink(&place, manifest.number).await?;
        }
        Ok(swept)
    }

    /// The objects with names of ours, as the store lists them. Whatever else lies there is not ours to judge.
    fn data(&self, place: &Place) -> BoxStream<'static, Result<(DataName, Orphan), FenceError>> {
        let ours = |meta: ObjectMeta| {
            let name = meta.location.filename()?.parse().ok()?;
            Some((name, Orphan { path: meta.location, bytes: meta.size, put_at: meta.last_modified.into() }))
        };
        let list = self.heads.store.list(Some(&place.data()));
        list.filter_map(move |listed| {
            std::future::ready(match listed {
                Ok(meta) => ours(meta).map(Ok),
                Err(Error::NotFound { .. }) => None,
                Err(error) => Some(Err(nothing_sent(DOING)(error))),
            })
        })
        .boxed()
    }

    /// Overwrites manifests that are so far back that nobody asks them any more. Deleting one would give its number back
    /// to a writer that slept. It goes on from where the last sweep ended, a folder at a time.
    async fn shrink(&self, place: &Place, number: u64) -> Result<u64, FenceError> {
        let (mut shrunk, end) = (0, number.saturating_sub(RECENT_COMMITS as u64));
        let from = self.heads.swept(place).await.min(end);
        for folder in folder_of(from)..=folder_of(end) {
            for meta in self.heads.list(&place.links(folder)).await?.objects {
                let Some(old) = link_number(&meta.location) else { continue };
                let small = Manifest::shrunk(old);
                if old >= end || meta.size <= small.len() as u64 {
                    continue;
                }
                put(&*self.heads.store, &place.link(old), small.into(), PutMode::Overwrite)
                    .await
                    .map_err(nothing_sent(DOING))?;
                shrunk += 1;
            }
            let below = end.min((folder + 1).saturating_mul(PER_FOLDER));
            if below > from {
                self.heads.mark_swept(place, below).await.map_err(nothing_sent(DOING))?;
            }
        }
        Ok(shrunk)
    }
}

fn named(manifest: Option<&Manifest>) -> BTreeSet<DataName> {
    manifest.iter().flat_map(|manifest| manifest.entries.values()).map(|entry| entry.object).collect()
}
