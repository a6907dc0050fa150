//! From where the newest link of a chain is near: the number that this process saw last, and how far the chain was swept.
//!
//! Both only save requests. One that is too low, or gone, costs a longer look; one that is too high finds nothing there,
//! and all folders are listed. So the mark in the store is put without any condition, by whoever sweeps.

use super::head::{Heads, put};
use super::place::Place;
use object_store::{Error, ObjectStoreExt, PutMode};
use serde::Deserialize;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Of how many manifests a process remembers the number that it saw last. Beyond, all are forgotten and learnt anew.
const PLACES: usize = 4096;

const MAX_MARK_BYTES: u64 = 1 << 10;

/// The numbers that were seen last. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Known(Arc<Mutex<HashMap<Place, u64>>>);

impl Known {
    pub(super) fn of(&self, place: &Place) -> Option<u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(place).copied()
    }

    pub(super) fn remember(&self, place: &Place, number: u64) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.len() >= PLACES && !seen.contains_key(place) {
            seen.clear();
        }
        seen.insert(place.clone(), number);
    }
}

/// How far a chain was swept: all links below are shrunk.
#[derive(Deserialize)]
struct Mark {
    shrunk_below: u64,
}

impl Heads {
    /// The number below which all links are shrunk; zero where nobody knows.
    pub(super) async fn swept(&self, place: &Place) -> u64 {
        let mark = async {
            let got =
                self.store.get(&place.mark()).await.ok().filter(|got| got.meta.size <= MAX_MARK_BYTES)?;
            serde_json::from_slice::<Mark>(&got.bytes().await.ok()?).ok()
        };
        mark.await.map_or(0, |mark| mark.shrunk_below)
    }

    pub(super) async fn mark_swept(&self, place: &Place, shrunk_below: u64) -> Result<(), Error> {
        let text = format!("{{\"shrunk_below\":{shrunk_below}}}");
        put(&*self.store, &place.mark(), text.into(), PutMode::Overwrite).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::place::Layout;
    use object_store::path::Path;

    #[test]
    fn what_is_remembered_is_bounded() {
        let known = Known::default();
        let place = |n| Layout::EachScope.place(&Path::default(), &format!("orders/{n}").parse().unwrap());
        for n in 0..PLACES {
            known.remember(&place(n), 7);
        }
        known.remember(&place(0), 8);
        assert_eq!((known.of(&place(0)), known.of(&place(1))), (Some(8), Some(7)));
        known.remember(&place(PLACES), 9);
        assert_eq!((known.of(&place(0)), known.of(&place(PLACES))), (None, Some(9)));
    }
}
