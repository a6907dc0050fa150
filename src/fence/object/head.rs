//! The current manifest in the store, and the two ways to replace it by compare-and-set.
//!
//! *By update:* one object is replaced where its version (ETag, generation) is still the one that was read. *By creating:*
//! each manifest is an object of its own, named by its number, and is created where there is none: who creates number
//! `n + 1` has replaced number `n`. That needs `If-None-Match` only, and works in a local folder. The objects of such a
//! chain are **never deleted**: a writer that slept would find its number free again.

use super::failure::{NotAllowed, StaleList, first_attempt, in_a_folder, never, nothing_sent, shown, unfit};
use super::known::Known;
use super::manifest::{MAX_MANIFEST_BYTES, Manifest, Read};
use super::place::{Place, ends_folder, folder_number, folder_of, link_number};
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

/// How many folders of a chain are looked through from a number that is known, before all of them are listed.
const FOLDERS: u64 = 4;

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
    /// Nobody knows, and the manifest tells.
    Unknown(Error),
    /// Nobody knows, and the manifest does not tell either whether it lasts.
    Undurable(Error),
    /// It cannot be done here.
    Never(FenceError),
}

/// The manifests of a store.
#[derive(Clone)]
pub(super) struct Heads {
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) swap: Swap,
    /// Numbers of links that were seen, from where the newest is not far.
    known: Known,
}

impl Heads {
    pub(super) fn new(store: Arc<dyn ObjectStore>, swap: Swap) -> Heads {
        Heads { store, swap, known: Known::default() }
    }

    /// The current manifest; `None` when there never was one.
    pub(super) async fn read(&self, place: &Place) -> Result<Option<Head>, FenceError> {
        match self.swap {
            Swap::Updating => self.read_one(&place.manifest()).await,
            Swap::Creating => self.read_newest(place).await,
        }
    }

    async fn read_newest(&self, place: &Place) -> Result<Option<Head>, FenceError> {
        for _ in 0..LISTS {
            let Some(number) = self.newest_link(place).await? else { return Ok(None) };
            // A list that is behind shows one that was shrunk since.
            if let Some(head) = self.read_one(&place.link(number)).await? {
                if head.manifest.number != number {
                    return Err(FenceError::Corrupt {
                        place: place.link(number).to_string(),
                        found: format!("the number {}", head.manifest.number),
                    });
                }
                self.known.remember(place, number);
                return Ok(Some(head));
            }
        }
        Err(FenceError::busy("reading the manifest", StaleList))
    }

    /// The number of the newest link. It is looked for from a link that was seen, or else from the last sweep, so that it
    /// takes no longer in a chain that is old.
    async fn newest_link(&self, place: &Place) -> Result<Option<u64>, FenceError> {
        let from = match self.known.of(place) {
            Some(number) => number,
            None => self.swept(place).await,
        };
        // From the beginning it is no nearer than by the list of all folders.
        if from > 0
            && let Some(number) = self.newest_from(place, folder_of(from)).await?
        {
            return Ok(Some(number));
        }
        self.newest_of_all(place).await
    }

    /// The number of the newest link from this folder on, when there is one and it is near. Who creates a link has read the one
    /// before, so a folder with room is the last one.
    async fn newest_from(&self, place: &Place, first: u64) -> Result<Option<u64>, FenceError> {
        let mut newest = None;
        for folder in first..first.saturating_add(FOLDERS) {
            match self.last_of(&place.links(folder)).await? {
                Some(number) if ends_folder(number) => newest = Some(number),
                Some(number) => return Ok(Some(number)),
                None => return Ok(newest),
            }
        }
        Ok(None)
    }

    /// The same where nothing is known. A writer to a local folder that dies between making a folder and its first link leaves
    /// it empty, so that one is passed over; a link is never deleted, so no other folder is empty.
    async fn newest_of_all(&self, place: &Place) -> Result<Option<u64>, FenceError> {
        let folders = self.list(&place.chain()).await?.common_prefixes;
        let mut folders: Vec<_> = folders.iter().filter_map(|f| Some((folder_number(f)?, f))).collect();
        folders.sort_unstable();
        for (_, folder) in folders.into_iter().rev() {
            if let Some(number) = self.last_of(folder).await? {
                return Ok(Some(number));
            }
        }
        Ok(None)
    }

    async fn last_of(&self, folder: &Path) -> Result<Option<u64>, FenceError> {
        let links = self.list(folder).await?.objects;
        Ok(links.iter().filter_map(|link| link_number(&link.location)).max())
    }

    pub(super) async fn list(&self, folder: &Path) -> Result<object_store::ListResult, FenceError> {
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

    /// Replaces what was read, once. `text` is the new manifest's.
    pub(super) async fn send(
        &self,
        doing: &'static str,
        place: &Place,
        from: Option<&Head>,
        (to, text): (&Manifest, PutPayload),
    ) -> Sent {
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
                if self.swap == Swap::Creating {
                    self.known.remember(place, to.number);
                }
                let version = version(done.e_tag, done.version);
                Sent::Replaced(Head { manifest: to.clone(), version })
            }
            Err(
                error @ (Error::AlreadyExists { .. } | Error::Precondition { .. } | Error::NotFound { .. }),
            ) => Sent::Lost(error),
            Err(error @ (Error::NotImplemented { .. } | Error::NotSupported { .. })) => {
                Sent::Never(cannot(&error))
            }
            Err(error) if in_a_folder(&error) => Sent::Undurable(error),
            Err(error) => match NotAllowed::of(&error) {
                Some(no) if first_attempt(&error) => Sent::Never(no.unfit(doing)),
                _ => Sent::Unknown(error),
            },
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
