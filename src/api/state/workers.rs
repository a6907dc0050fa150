//! The names of workers in a snapshot: each is written once, and the rest of the snapshot names its place.
//!
//! It keeps snapshots small, and it keeps memory small behind them: all that names one worker shares one allocation.

use crate::convert::{InvalidField, checked};
use ringfence_core::ids::WorkerId;
use std::collections::BTreeMap;

/// The list while a snapshot is written: names get places in the order in which they are first asked for.
#[derive(Default)]
pub(super) struct Places {
    places: BTreeMap<WorkerId, u32>,
    names: Vec<String>,
}

impl Places {
    pub(super) fn of(&mut self, worker: &WorkerId) -> u32 {
        if let Some(place) = self.places.get(worker) {
            return *place;
        }
        // Sessions and histories bound the number of names far below four billion.
        let place = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        self.places.insert(worker.clone(), place);
        self.names.push(worker.to_string());
        place
    }

    pub(super) fn into_names(self) -> Vec<String> {
        self.names
    }
}

/// The list while a snapshot is read.
pub(super) struct Names(Vec<WorkerId>);

impl Names {
    pub(super) fn new(names: &[String]) -> Result<Names, InvalidField> {
        let names = names.iter().map(|name| checked::worker_id("workers", name));
        names.collect::<Result<_, _>>().map(Names)
    }

    pub(super) fn at(&self, field: &str, place: u32) -> Result<WorkerId, InvalidField> {
        self.0.get(place as usize).cloned().ok_or_else(|| {
            let have = self.0.len();
            InvalidField::new(field, format_args!("it names worker {place} of a list of {have}"))
        })
    }
}
