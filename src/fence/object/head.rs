//! The current manifest in the store, and the two ways to replace it by compare-and-set.
//!
//! *By update:* one object is replaced where its version (ETag, generation) is still the one that was read. *By creating:*
//! each manifest is an object of its own, named by its number, and is created where there is none: who creates number
//! `n + 1` has replaced number `n`. That needs `If-None-Match` only, and works in a local folder. The objects of such a
//! chain are **never deleted**: a writer that slept would find its number free again.

use super::failure::{StaleList, never, nothing_sent, shown, unfit};
use super::manifest::{MAX_MANIFEST_BYTES, Manifest, Read};
use super::place::{Place, folder_number, link_number};
use crate::FenceError;
use object_store::path::Path;
use object_store::{
    Error, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload, PutResult, UpdateVersion,
};
use std::sync::Arc;

/// How a manifest is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Swap {
    Updating,
    Creating,
}

/// How often a list may name a manifest as the newest that was replaced long ago.
const LISTS: usize = 8;

/// A manifest with what is needed to replace it.
#[derive(Clone, Debug)]
pub(super) struct Head {
    pub(super) manifest: Manifest,
    /// Of no use in a chain, and `None` where the store did not tell it.
    pub(super) version: Option<UpdateVersion>,
}

/// What the store said to an attempt to replace a manifest.
pub(super) enum Sent {
    Replaced(Head),
    /// It was refused, as far as the answer goes: a client that sends twice hears the refusal of its second.
    Lost(Error),
    /// Nobody knows.
    Unknown(Error),
    /// It cannot be done here.
    Never(FenceError),
}

/// The manifests of a store.
#[derive(Clone)]
pub(super) struct Heads {
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) swap: Swap,
}

impl Heads {
    /// The current manifest; `None` when there never was one.
    pub(super) async fn read(&self, place: &Place) -> Result<Option<Head>, FenceError> {
        match self.swap {
            Swap::Updating => self.read_one(&place.manifest()).await,
            Swap::Creating => self.read_newest(place).await,
        }
    }

    async fn read_newest(&self, place: &Place) -> Result<Option<Head>, FenceError> {
        for _ in 0..LISTS {
            let folders = self.list(&place.chain()).await?.common_prefixes;
            let Some(number) = self.highest_link(&folders).await? else { return Ok(None) };
            // A list that is behind shows one that was shrunk since.
            if let Some(head) = self.read_one(&place.link(number)).await? {
                if head.manifest.number != number {
                    return Err(FenceError::Corrupt {
                        place: place.link(number).to_string(),
                        found: format!("the number {}", head.manifest.number),
                    });
                }
                return Ok(Some(head));
            }
        }
        Err(FenceError::busy("reading the manifest", StaleList))
    }

    /// The number of the newest link. A writer to a local folder that dies between making a folder and its first link leaves
    /// it empty, so that one is passed over; a link is never deleted, so no other folder is empty.
    async fn highest_link(&self, folders: &[Path]) -> Result<Option<u64>, FenceError> {
        let mut folders: Vec<_> = folders.iter().filter_map(|f| Some((folder_number(f)?, f))).collect();
        folders.sort_unstable();
        for (_, folder) in folders.into_iter().rev() {
            let links = self.list(folder).await?.objects;
            if let Some(number) = links.iter().filter_map(|link| link_number(&link.location)).max() {
                return Ok(Some(number));
            }
        }
        Ok(None)
    }

    async fn list(&self, folder: &Path) -> Result<object_store::ListResult, FenceError> {
        match self.store.list_with_delimiter(Some(folder)).await {
            Err(Error::NotFound { .. }) => Ok(object_store::ListResult {
                common_prefixes: Vec::new(),
                objects: Vec::new(),
                extensions: Default::default(),
            }),
            list => list.map_err(nothing_sent("looking for the manifest")),
        }
    }

    /// `None` also for one that was shrunk.
    async fn read_one(&self, path: &Path) -> Result<Option<Head>, FenceError> {
        let doing = "reading the manifest";
        let got = match self.store.get(path).await {
            Err(Error::NotFound { .. }) => return Ok(None),
            got => got.map_err(nothing_sent(doing))?,
        };
        if got.meta.size > MAX_MANIFEST_BYTES {
            return Err(FenceError::Corrupt {
                place: path.to_string(),
                found: format!("{} bytes, where a manifest has at most {MAX_MANIFEST_BYTES}", got.meta.size),
            });
        }
        let version = version(got.meta.e_tag.clone(), got.meta.version.clone());
        if version.is_none() && self.swap == Swap::Updating {
            return Err(unfit(
                "the store tells neither an ETag nor a version of an object, so nothing can be replaced by it",
            ));
        }
        let text = got.bytes().await.map_err(nothing_sent(doing))?;
        match Manifest::decode(&text, path.as_ref())? {
            Read::Whole(manifest) => Ok(Some(Head { manifest, version })),
            Read::Shrunk => Ok(None),
        }
    }

    /// Whether enough is known of it to replace it.
    pub(super) fn can_replace(&self, head: &Head) -> bool {
        self.swap == Swap::Creating || head.version.is_some()
    }

    /// Replaces what was read, once.
    pub(super) async fn send(&self, place: &Place, from: Option<&Head>, to: &Manifest) -> Sent {
        let text = match to.encode() {
            Ok(text) => PutPayload::from(text),
            Err(error) => return Sent::Never(error),
        };
        let (path, mode) = match (self.swap, from) {
            (Swap::Creating, _) => (place.link(to.number), PutMode::Create),
            (Swap::Updating, None) => (place.manifest(), PutMode::Create),
            (Swap::Updating, Some(head)) => match head.version.clone() {
                Some(version) => (place.manifest(), PutMode::Update(version)),
                None => return Sent::Never(unfit("the version of the manifest is not known: read it again")),
            },
        };
        match put(&*self.store, &path, text, mode).await {
            Ok(done) => {
                let version = version(done.e_tag, done.version);
                Sent::Replaced(Head { manifest: to.clone(), version })
            }
            Err(
                error @ (Error::AlreadyExists { .. } | Error::Precondition { .. } | Error::NotFound { .. }),
            ) => Sent::Lost(error),
            Err(error @ (Error::NotImplemented { .. } | Error::NotSupported { .. })) => {
                Sent::Never(cannot(&error))
            }
            Err(error) => Sent::Unknown(error),
        }
    }
}

pub(super) async fn put(
    store: &dyn ObjectStore,
    path: &Path,
    payload: PutPayload,
    mode: PutMode,
) -> Result<PutResult, Error> {
    store.put_opts(path, payload, PutOptions { mode, ..PutOptions::default() }).await
}

/// A store that has no such put at all.
pub(super) fn cannot(error: &Error) -> FenceError {
    debug_assert!(never(error));
    unfit(&format!(
        "this store has no compare-and-set of the kind asked for ({}). A local folder has none by version and has one by \
         creating: ObjectOptions::by_creating",
        shown(&error.to_string())
    ))
}

fn version(e_tag: Option<String>, version: Option<String>) -> Option<UpdateVersion> {
    (e_tag.is_some() || version.is_some()).then_some(UpdateVersion { e_tag, version })
}
