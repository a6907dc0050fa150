//! A write: what it changes, and the state between its upload and its commit.

use super::ObjectFence;
use super::commit::{Plan, upload};
use super::failure::unfit;
use super::head::Head;
use super::ids::{CommitId, DataName};
use super::manifest::{Entry, Manifest, key_must_be_sound};
use super::place::Place;
use super::snapshot::Snapshot;
use crate::{FenceError, FencingToken};
use futures_util::{StreamExt, TryStreamExt};
use object_store::PutPayload;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// How many objects of a write are uploaded at a time.
const UPLOADS: usize = 8;

/// What a write changes: keys that get new content, and keys that go. All of it takes effect at once or not at all.
#[derive(Clone, Default)]
pub struct ObjectWrite {
    puts: BTreeMap<String, PutPayload>,
    removes: BTreeSet<String>,
    on: Option<Snapshot>,
}

impl ObjectWrite {
    /// A write that changes nothing yet.
    pub fn new() -> ObjectWrite {
        ObjectWrite::default()
    }

    /// Gives a key this content. It is uploaded as one object; the last content of a key counts.
    #[must_use]
    pub fn put(mut self, key: &str, content: impl Into<PutPayload>) -> ObjectWrite {
        self.removes.remove(key);
        self.puts.insert(key.to_owned(), content.into());
        self
    }

    /// Removes a key, when it is there.
    #[must_use]
    pub fn remove(mut self, key: &str) -> ObjectWrite {
        self.puts.remove(key);
        self.removes.insert(key.to_owned());
        self
    }

    /// The write rests on what this says: where anything was committed since, it is answered
    /// [`FenceError::Busy`] with a [`Moved`](super::Moved). It also saves reading the manifest once more.
    #[must_use]
    pub fn on(mut self, snapshot: &Snapshot) -> ObjectWrite {
        self.on = Some(snapshot.clone());
        self
    }

    /// The commit that it rests on.
    pub(super) fn rests_on(&self) -> Option<(u64, CommitId)> {
        self.on.as_ref().map(|snapshot| (snapshot.number(), snapshot.commit()))
    }

    pub(super) fn known(&self, place: &Place) -> Result<Option<Head>, FenceError> {
        match &self.on {
            Some(snapshot) if snapshot.place() != place => {
                Err(unfit("the write rests on a snapshot of another manifest"))
            }
            Some(snapshot) => Ok(Some(snapshot.head().clone())),
            None => Ok(None),
        }
    }

    pub(super) fn must_be_sound(&self) -> Result<(), FenceError> {
        self.puts.keys().chain(&self.removes).try_for_each(|key| key_must_be_sound(key))
    }
}

/// A write whose data is uploaded and whose tokens were let through, but which has not taken effect. Made by
/// [`ObjectFence::stage`]; nobody sees any of it until [`Staged::commit`], and once dropped it is for
/// [`ObjectFence::sweep`].
#[must_use = "a staged write takes effect when it is committed"]
pub struct Staged {
    fence: ObjectFence,
    place: Place,
    pub(super) tokens: Vec<FencingToken>,
    pub(super) write: ObjectWrite,
    id: CommitId,
    head: Option<Head>,
    /// The number of the manifest that was the newest when the upload began.
    after: u64,
    uploaded: Option<BTreeMap<String, Entry>>,
}

impl Staged {
    pub(super) fn new(
        fence: &ObjectFence,
        place: Place,
        tokens: Vec<FencingToken>,
        write: ObjectWrite,
        head: Option<Head>,
    ) -> Result<Staged, FenceError> {
        let (fence, id) = (fence.clone(), CommitId::draw()?);
        Ok(Staged { fence, place, tokens, write, id, head, after: 0, uploaded: None })
    }

    /// The id of the commit that this is going to be.
    pub fn id(&self) -> CommitId {
        self.id
    }

    /// Commits: checks the tokens against the newest manifest and replaces it, in one step of the store.
    ///
    /// # Errors
    /// As [`ObjectFence::write`].
    pub async fn commit(mut self) -> Result<Snapshot, FenceError> {
        let (fence, place, id) = (self.fence.clone(), self.place.clone(), self.id);
        let known = self.head.take();
        fence.commit(&place, known, Plan::Write(&mut self), id).await
    }

    pub(super) async fn upload(mut self) -> Result<Staged, FenceError> {
        let fence = self.fence.clone();
        let head = self.head.take();
        self.upload_for(&fence, head.as_ref().map(|head| &head.manifest)).await?;
        self.head = head;
        Ok(self)
    }

    /// Uploads the data, unless it is there and no sweep may have taken it.
    pub(super) async fn upload_for(
        &mut self,
        fence: &ObjectFence,
        manifest: Option<&Manifest>,
    ) -> Result<(), FenceError> {
        let (number, floor) = manifest.map_or((0, 0), |manifest| (manifest.number, manifest.floor));
        if self.uploaded.is_some() && self.after >= floor {
            return Ok(());
        }
        let mut entries = BTreeMap::new();
        let mut uploads = Vec::new();
        for (key, content) in &self.write.puts {
            let object = DataName::draw(number)?;
            let entry = Entry { object, bytes: content.content_length() as u64 };
            entries.insert(key.clone(), entry);
            uploads.push((self.place.object(&object), content.clone()));
        }
        futures_util::stream::iter(uploads)
            .map(Ok)
            .try_for_each_concurrent(
                UPLOADS,
                |(path, content)| async move { upload(fence, &path, content).await },
            )
            .await?;
        (self.after, self.uploaded) = (number, Some(entries));
        Ok(())
    }

    /// Changes the entries.
    pub(super) fn apply(&self, manifest: &mut Manifest) {
        for key in &self.write.removes {
            manifest.entries.remove(key);
        }
        manifest.entries.extend(self.uploaded.iter().flatten().map(|(key, entry)| (key.clone(), *entry)));
    }
}

// The content is the user's, and may be large.
impl fmt::Debug for ObjectWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let puts = self.puts.iter().map(|(key, content)| (key, content.content_length()));
        f.debug_map().entries(puts).finish()
    }
}

impl fmt::Debug for Staged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "commit {} of {:?}", self.id, self.write)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_on_a_key_counts() {
        let write = ObjectWrite::new().put("a", "1").remove("a").remove("b").put("b", "2");
        assert!(write.removes.contains("a") && !write.puts.contains_key("a"));
        assert!(write.puts.contains_key("b") && !write.removes.contains("b"));
        assert!(ObjectWrite::new().put("", "1").must_be_sound().is_err());
        assert!(ObjectWrite::new().remove(&"x".repeat(1025)).must_be_sound().is_err());
    }
}
