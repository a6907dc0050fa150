//! Clocks that tick together and do not agree, and states that do not depend on when they happened.
//!
//! Time passes in ticks for everybody at once. What a clock shows for a tick is its own: a little more or less than a
//! second. Between two ticks anything may happen in any order, so every delay is there, a tick being its grain.
//!
//! Two scenes that differ in nothing but the number of ticks that passed before are one: readings are hashed by how
//! long ago they were, and by no more than that it was long ago.

use ringfence_core::time::Instant;
use std::hash::Hasher;
use std::time::Duration;

/// What one second is called in this world.
pub(super) const TICK: Duration = Duration::from_secs(1);

/// The zero of every clock. It stands so high that a number hashed from here on can only be a reading: epochs end below
/// 2^53, and ids and log indices are small.
const ZERO: u64 = 1 << 60;

/// What a clock shows for one tick, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate(u64);

impl Rate {
    /// Neither fast nor slow.
    pub const TRUE: Rate = Rate(1_000_000_000);
    /// As fast as the drift bound allows against [`Rate::SLOW`].
    pub const FAST: Rate = Rate(1_004_900_000);
    /// As slow as the drift bound allows against [`Rate::FAST`].
    pub const SLOW: Rate = Rate(995_100_000);
    /// Slower than anybody promised.
    pub const BROKEN: Rate = Rate(950_000_000);
}

/// The clocks of a world.
#[derive(Clone, Copy, Debug)]
pub struct Clocks {
    /// Of those who lead in odd terms, and of those who lead in even ones.
    pub leaders: [Rate; 2],
    /// Of the workers.
    pub workers: Rate,
    /// Nothing in this world waits longer: what is older than this is old.
    pub longest: Duration,
}

impl Clocks {
    /// What a leader of this term reads.
    pub fn leader(&self, term: u64, tick: u32) -> Instant {
        read(self.leaders[usize::from(term.is_multiple_of(2))], tick)
    }

    /// What a worker reads.
    pub fn worker(&self, tick: u32) -> Instant {
        read(self.workers, tick)
    }
}

fn read(rate: Rate, tick: u32) -> Instant {
    Instant::from_nanos(ZERO + u64::from(tick) * rate.0)
}

/// A hasher to which a reading is how far it is from now.
pub(super) struct Relative<'a, H> {
    hasher: &'a mut H,
    now: u64,
    longest: u64,
}

impl<'a, H: Hasher> Relative<'a, H> {
    /// Hashes what rests on the clock that shows `now`.
    pub(super) fn new(hasher: &'a mut H, now: Instant, longest: Duration) -> Relative<'a, H> {
        let longest = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX);
        Relative { hasher, now: now.as_nanos(), longest }
    }
}

impl<H: Hasher> Hasher for Relative<'_, H> {
    fn finish(&self) -> u64 {
        self.hasher.finish()
    }

    fn write(&mut self, bytes: &[u8]) {
        self.hasher.write(bytes);
    }

    fn write_u8(&mut self, number: u8) {
        self.hasher.write_u8(number);
    }

    fn write_u32(&mut self, number: u32) {
        self.hasher.write_u32(number);
    }

    fn write_usize(&mut self, number: usize) {
        self.hasher.write_usize(number);
    }

    fn write_isize(&mut self, number: isize) {
        self.hasher.write_isize(number);
    }

    fn write_u64(&mut self, number: u64) {
        if number < ZERO / 2 {
            return self.hasher.write_u64(number);
        }
        // The sign tells the two apart: what is to come, and what is past.
        let ahead = number.saturating_sub(self.now);
        let ago = self.now.saturating_sub(number).min(self.longest);
        self.hasher.write_u64(ahead);
        self.hasher.write_u64(ago);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::{DefaultHasher, Hash};

    #[test]
    fn readings_are_hashed_by_their_distance_and_other_numbers_as_they_are() {
        let hash = |value: (Instant, u64), tick| {
            let mut hasher = DefaultHasher::new();
            value.hash(&mut Relative::new(&mut hasher, read(Rate::FAST, tick), TICK * 4));
            hasher.finish()
        };
        let at = |tick| read(Rate::FAST, tick);
        assert_eq!(hash((at(3), 7), 5), hash((at(13), 7), 15));
        assert_eq!(hash((at(3), 7), 8), hash((at(3), 7), 20), "long ago is long ago");
        assert_ne!(hash((at(3), 7), 5), hash((at(3), 7), 6));
        assert_ne!(hash((at(3), 7), 5), hash((at(7), 7), 5), "past and to come");
        assert_ne!(hash((at(3), 7), 5), hash((at(3), 8), 5));
    }
}
