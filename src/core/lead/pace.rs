//! How many planned moves may begin: a bound on those of the last minute.

use crate::ids::KeyspaceId;
use crate::mutant;
use crate::time::Instant;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

const WINDOW: Duration = Duration::from_secs(60);
/// Moves that begin within this of each other are remembered as one number.
const GRAIN: Duration = Duration::from_secs(1);

/// The moves that began in the last minute, by keyspace. It belongs to one leadership: a new leader counts from nothing.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Pace(BTreeMap<KeyspaceId, VecDeque<(Instant, u32)>>);

impl Pace {
    /// How many moves may begin now when `per_minute` may in any minute; `0` means no bound.
    pub(super) fn room(&mut self, keyspace: KeyspaceId, per_minute: u32, now: Instant) -> usize {
        if per_minute == 0 || mutant!("rate-forgotten") {
            self.0.remove(&keyspace);
            return usize::MAX;
        }
        let Some(begun) = self.0.get_mut(&keyspace) else { return per_minute as usize };
        // Those of a grain are as young as its youngest.
        while begun.front().is_some_and(|(at, _)| now.since(*at) >= WINDOW + GRAIN) {
            begun.pop_front();
        }
        let in_window: u64 = begun.iter().map(|(_, moves)| u64::from(*moves)).sum();
        u64::from(per_minute).saturating_sub(in_window) as usize
    }

    /// Takes note of moves that begin now.
    pub(super) fn began(&mut self, keyspace: KeyspaceId, moves: usize, now: Instant) {
        if moves == 0 {
            return;
        }
        let moves = u32::try_from(moves).unwrap_or(u32::MAX);
        let begun = self.0.entry(keyspace).or_default();
        match begun.back_mut() {
            Some((at, count)) if now.since(*at) < GRAIN => *count = count.saturating_add(moves),
            _ => begun.push_back((now, moves)),
        }
    }

    /// When there is room again at the earliest, if it is bounded now.
    pub(super) fn opens(&self, keyspace: KeyspaceId) -> Option<Instant> {
        self.0.get(&keyspace)?.front().map(|(at, _)| *at + WINDOW + GRAIN)
    }

    /// Forgets a keyspace that is gone.
    pub(super) fn forget(&mut self, keyspace: KeyspaceId) {
        self.0.remove(&keyspace);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_minute_has_more_moves_than_its_bound() {
        let keyspace = KeyspaceId::new(1);
        let mut pace = Pace::default();
        let mut now = Instant::from_nanos(0);
        let mut began: Vec<(Instant, usize)> = Vec::new();
        for step in 0..2_000_usize {
            let asked = step % 7;
            let moves = asked.min(pace.room(keyspace, 50, now));
            pace.began(keyspace, moves, now);
            began.push((now, moves));
            let last_minute = began.iter().filter(|(at, _)| now.since(*at) < WINDOW);
            assert!(last_minute.map(|(_, moves)| moves).sum::<usize>() <= 50, "step {step}");
            now = now + Duration::from_millis(137);
        }
        let all: usize = began.iter().map(|(_, moves)| moves).sum();
        assert!(all >= 200, "in four and a half minutes it lets the rate through: {all}");
    }

    #[test]
    fn it_opens_when_it_says() {
        let keyspace = KeyspaceId::new(1);
        let mut pace = Pace::default();
        let begin = Instant::from_nanos(5);
        assert_eq!(pace.opens(keyspace), None);
        pace.began(keyspace, 3, begin);
        assert_eq!(pace.room(keyspace, 3, begin), 0);
        let opens = pace.opens(keyspace).expect("it is bounded");
        assert_eq!(pace.room(keyspace, 3, opens), 3);
        assert_eq!(pace.room(keyspace, 0, begin), usize::MAX, "no bound");
    }
}
