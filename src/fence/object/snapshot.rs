//! What a manifest said at one moment.

use super::head::Head;
use super::ids::CommitId;
use super::place::Place;
use object_store::path::Path;
use ringfence_core::ids::{Epoch, Scope};
use std::sync::Arc;

/// The data of a manifest as one commit left it: keys, and where the object of each is. It is a picture of the past.
///
/// An owner's first one comes from its raise, so nobody older can change what it says; the following ones from its own
/// commits. With [`ObjectWrite::on`](super::ObjectWrite::on) a write takes effect only where this is still the newest.
#[derive(Clone, Debug)]
pub struct Snapshot {
    place: Arc<Place>,
    head: Arc<Head>,
}

impl Snapshot {
    pub(super) fn new(place: &Place, head: Head) -> Snapshot {
        Snapshot { place: Arc::new(place.clone()), head: Arc::new(head) }
    }

    /// The number of the commit, counted from one.
    pub fn number(&self) -> u64 {
        self.head.manifest.number
    }

    /// The id of the commit.
    pub fn commit(&self) -> CommitId {
        self.head.manifest.commit()
    }

    /// The highest epoch seen of a scope; `None` when it was never raised.
    pub fn epoch(&self, scope: &Scope) -> Option<Epoch> {
        self.head.manifest.fences.get(scope).map(|fence| fence.row.epoch())
    }

    /// The keys in their order, each with the size of its object in bytes.
    pub fn keys(&self) -> impl Iterator<Item = (&str, u64)> {
        self.head.manifest.entries.iter().map(|(key, entry)| (key.as_str(), entry.bytes))
    }

    /// Where the object of a key is. Once it was replaced or removed, and swept, the path is gone.
    pub fn path(&self, key: &str) -> Option<Path> {
        self.head.manifest.entries.get(key).map(|entry| self.place.object(&entry.object))
    }

    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    pub(super) fn head(&self) -> &Head {
        &self.head
    }
}
