//! One process with a session: the shipped lessee, its connection, and what its shell has heard and said.

use super::clock::Relative;
use super::scene::Scene;
use ringfence_core::ids::{Epoch, LogIndex, PartitionKey, SessionId};
use ringfence_core::lease::lessee::{Acknowledgement, Event, Lessee, Loss};
use ringfence_core::time::Instant;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A worker.
#[derive(Clone, Debug)]
pub struct Worker {
    /// Its session.
    pub session: SessionId,
    /// What it believes.
    pub lessee: Arc<Lessee<PartitionKey>>,
    /// The term whose leader it is connected to.
    pub stream: u64,
    /// How many renewals it sends yet.
    pub renewals: u8,
    /// The renewal under way.
    pub request: Option<u64>,
    /// The acknowledgement under way.
    pub answer: Option<Acknowledgement<PartitionKey>>,
    /// The revision of the last picture it was sent.
    pub told: LogIndex,
    /// What it holds is the lock.
    pub holds_a_lock: bool,
    /// It was told to give this back.
    pub revoked: Option<(PartitionKey, Epoch)>,
    /// An acknowledgement has said until when that is valid.
    pub bounded: bool,
    /// It has said that it knows.
    pub said_seen: bool,
    /// When it sent which renewal; kept only where each acknowledgement counts by itself.
    pub sent: Vec<(u64, Instant)>,
}

impl Worker {
    /// What it answers "I own it" for now.
    pub fn believes(&self, now: Instant) -> impl Iterator<Item = (PartitionKey, Epoch)> {
        let valid = move |key: &PartitionKey, epoch| {
            self.lessee.valid_until(key, epoch).is_some_and(|until| now < until)
        };
        self.lessee.holds().filter(move |(key, epoch)| valid(key, *epoch)).map(|(key, epoch)| (*key, epoch))
    }

    /// The lock that it holds, or was told that it has lost.
    pub fn to_release(&self) -> Option<(PartitionKey, Epoch)> {
        self.revoked.or_else(|| self.lessee.holds().next().map(|(key, epoch)| (*key, epoch)))
    }

    /// Does something with the lessee, and takes note of what it tells.
    pub fn with<T>(&mut self, f: impl FnOnce(&mut Lessee<PartitionKey>) -> T) -> T {
        let lessee = Arc::make_mut(&mut self.lessee);
        let done = f(lessee);
        while let Some(event) = lessee.poll_event() {
            match event {
                Event::Granted { .. } => {}
                Event::Revoked { key, epoch } => self.revoked = Some((key, epoch)),
                Event::Bounded { .. } => self.bounded = true,
                // Of a lock that was taken from it: it says that it knows.
                Event::Lost { key, epoch, why } => {
                    self.revoked = (self.holds_a_lock && why == Loss::Taken).then_some((key, epoch));
                    self.bounded = false;
                    self.said_seen = false;
                }
            }
        }
        done
    }

    pub(super) fn hash_in<H: Hasher>(&self, scene: &Scene, hasher: &mut H) {
        let Worker { session, lessee, stream, renewals, request, answer, told, .. } = self;
        (session, stream, renewals, request, answer, told).hash(hasher);
        (self.revoked, self.bounded, self.said_seen).hash(hasher);
        let now = scene.clocks.worker(scene.tick);
        (lessee, &self.sent).hash(&mut Relative::new(hasher, now, scene.clocks.longest));
    }
}
