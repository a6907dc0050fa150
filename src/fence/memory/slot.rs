//! One scope in memory: the row under its lock, and a copy of its epoch that is read without.

use crate::HighWater;
use ringfence_core::ids::Epoch;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One scope's fence. The row decides; `highest` only follows it.
#[derive(Default)]
pub(super) struct Slot {
    row: Mutex<Option<HighWater>>,
    /// The epoch of the row, 0 when there is none; no token carries a 0. Written under the lock only.
    highest: AtomicU64,
}

impl Slot {
    /// Whether this is the highest epoch seen. `false` means "ask under the lock".
    #[inline]
    pub(super) fn is_highest(&self, epoch: Epoch) -> bool {
        self.highest.load(Ordering::Acquire) == epoch.get()
    }

    pub(super) fn hold(&self) -> Held<'_> {
        // A write that panicked under the lock has left the row whole: it is replaced in one assignment, before the write.
        Held { slot: self, row: self.row.lock().unwrap_or_else(PoisonError::into_inner) }
    }
}

/// A slot whose lock is held.
pub(super) struct Held<'a> {
    slot: &'a Slot,
    row: MutexGuard<'a, Option<HighWater>>,
}

impl Held<'_> {
    pub(super) fn row(&self) -> Option<HighWater> {
        *self.row
    }

    pub(super) fn remember(&mut self, row: HighWater) {
        *self.row = Some(row);
        self.slot.highest.store(row.epoch().get(), Ordering::Release);
    }
}
