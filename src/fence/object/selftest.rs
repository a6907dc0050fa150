//! Whether a store keeps its word: asked of it before any fence is trusted to it.
//!
//! Several servers that speak S3 ignore `If-Match`, or both conditions, and answer 200: every stale owner gets through,
//! and nothing tells. Others look first and write then, and of several at once each is told that it won. Both are found
//! by trying. What cannot be found so is a gap that is too narrow to be hit: passing is no proof.

use super::failure::{in_a_folder, nothing_sent, unfit};
use super::head::{Swap, cannot, put};
use super::ids::CommitId;
use super::place::below;
use crate::FenceError;
use futures_util::TryStreamExt;
use futures_util::future::join_all;
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, UpdateVersion};

/// How many put at once.
const CROWD: usize = 8;

/// How often they do.
const ROUNDS: usize = 3;

const DOING: &str = "testing whether the store can hold a fence";

/// How often the test begins again when the store is busy.
const TRIES: usize = 3;

/// Tries the store in a folder of its own, and clears it up as far as the store lets it.
pub(super) async fn run(store: &dyn ObjectStore, root: &Path, swap: Swap) -> Result<(), FenceError> {
    let mut answer = Ok(());
    for _ in 0..TRIES {
        let probe = Probe { store, folder: below(root, &format!("probe/{}", CommitId::draw()?)) };
        answer = probe.run(swap).await;
        for path in probe.objects().await.unwrap_or_default() {
            // What is left is a few bytes in a folder that nobody reads.
            let _ = store.delete(&path).await;
        }
        if !answer.as_ref().is_err_and(FenceError::is_retryable) {
            break;
        }
    }
    answer
}

struct Probe<'a> {
    store: &'a dyn ObjectStore,
    folder: Path,
}

impl Probe<'_> {
    async fn run(&self, swap: Swap) -> Result<(), FenceError> {
        self.creates().await?;
        if swap == Swap::Updating {
            self.updates().await?;
        }
        for round in 0..ROUNDS {
            let path = self.path(&format!("crowd-{round}"));
            self.crowd(&path, &PutMode::Create, "created one object").await?;
            if swap == Swap::Updating {
                let version = self.version(&path).await?;
                self.crowd(&path, &PutMode::Update(version), "replaced one version of an object").await?;
            }
        }
        Ok(())
    }

    fn path(&self, name: &str) -> Path {
        below(&self.folder, name)
    }

    async fn creates(&self) -> Result<(), FenceError> {
        let path = self.path("created");
        self.must_take(&path, "first", PutMode::Create).await?;
        self.must_refuse(
            &path,
            PutMode::Create,
            "a put that was to create an object (If-None-Match: *) was taken where there is one",
        )
        .await?;
        self.must_hold(&path, "first").await?;
        if !self.objects().await?.contains(&path) {
            return Err(refused("a list does not show an object that was put before it"));
        }
        Ok(())
    }

    async fn updates(&self) -> Result<(), FenceError> {
        let path = self.path("updated");
        self.must_take(&path, "first", PutMode::Create).await?;
        let old = self.version(&path).await?;
        self.must_take(&path, "second", PutMode::Update(old.clone())).await?;
        if self.version(&path).await? == old {
            return Err(refused("an object has the same ETag and version after its content was replaced"));
        }
        let stale = "a put over a version that is no longer there (If-Match) was taken";
        self.must_refuse(&path, PutMode::Update(old.clone()), stale).await?;
        self.must_hold(&path, "second").await?;
        let absent = "a put over a version of an object that does not exist (If-Match) was taken";
        self.must_refuse(&self.path("absent"), PutMode::Update(old), absent).await
    }

    /// Many put at once what only one may. One that was told so has to be the one whose content is there; a client that
    /// lost an answer and sent again may be told that it lost to itself.
    async fn crowd(&self, path: &Path, mode: &PutMode, what: &str) -> Result<(), FenceError> {
        let contents: Vec<String> = (0..CROWD).map(|n| format!("{what}, {n}")).collect();
        let puts = contents.iter().map(|text| put(self.store, path, text.clone().into(), mode.clone()));
        let mut winners = Vec::new();
        for (answer, content) in join_all(puts).await.into_iter().zip(&contents) {
            match answer {
                Ok(_) => winners.push(content),
                Err(error) => lost(error)?,
            }
        }
        let there = self.content(path).await?;
        if winners.len() > 1 {
            return Err(refused(&format!(
                "of {CROWD} that {what} at once, {} were told that they had: it looks first and writes then",
                winners.len()
            )));
        }
        if !contents.contains(&there) || winners.first().is_some_and(|winner| **winner != there) {
            return Err(refused(&format!(
                "of {CROWD} that {what} at once, one was told so and another's is there"
            )));
        }
        Ok(())
    }

    async fn must_take(&self, path: &Path, content: &str, mode: PutMode) -> Result<(), FenceError> {
        match put(self.store, path, content.to_owned().into(), mode).await {
            Ok(_) => Ok(()),
            Err(error @ (Error::NotImplemented { .. } | Error::NotSupported { .. })) => Err(cannot(&error)),
            Err(error) if in_a_folder(&error) => Err(FenceError::store(DOING, error)),
            // It may have been taken at a first attempt whose answer was lost.
            Err(error) => match self.content(path).await {
                Ok(there) if there == content => Ok(()),
                _ => Err(nothing_sent(DOING)(error)),
            },
        }
    }

    async fn must_refuse(&self, path: &Path, mode: PutMode, why: &str) -> Result<(), FenceError> {
        match put(self.store, path, "never".into(), mode).await {
            Ok(_) => Err(refused(why)),
            Err(error) => lost(error),
        }
    }

    async fn must_hold(&self, path: &Path, content: &str) -> Result<(), FenceError> {
        let there = self.content(path).await?;
        if there == content {
            return Ok(());
        }
        Err(refused("a get answers something else than was put last"))
    }

    async fn content(&self, path: &Path) -> Result<String, FenceError> {
        let got = self.store.get(path).await.map_err(nothing_sent(DOING))?;
        let bytes = got.bytes().await.map_err(nothing_sent(DOING))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    async fn version(&self, path: &Path) -> Result<UpdateVersion, FenceError> {
        let meta = self.store.get(path).await.map_err(nothing_sent(DOING))?.meta;
        if meta.e_tag.is_none() && meta.version.is_none() {
            return Err(refused("it tells neither an ETag nor a version of an object"));
        }
        Ok(UpdateVersion { e_tag: meta.e_tag, version: meta.version })
    }

    async fn objects(&self) -> Result<Vec<Path>, FenceError> {
        let list = self.store.list(Some(&self.folder));
        list.map_ok(|meta| meta.location).try_collect().await.map_err(nothing_sent(DOING))
    }
}

/// The answer of a store that keeps its word.
fn lost(error: Error) -> Result<(), FenceError> {
    match error {
        Error::AlreadyExists { .. } | Error::Precondition { .. } | Error::NotFound { .. } => Ok(()),
        error @ (Error::NotImplemented { .. } | Error::NotSupported { .. }) => Err(cannot(&error)),
        error => Err(nothing_sent(DOING)(error)),
    }
}

fn refused(what: &str) -> FenceError {
    unfit(&format!(
        "this store cannot hold a fence: {what}. A replaced owner would get through, and nothing would tell. Use a store \
         that keeps conditional writes; one that keeps only If-None-Match can do with ObjectOptions::by_creating"
    ))
}
