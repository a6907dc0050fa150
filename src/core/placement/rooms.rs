//! The first worker clockwise that has room.

use super::candidate::WorkerIx;
use super::ring::Ring;

/// A walk around the ring that remembers which points to skip.
///
/// Room only ever runs out while a plan is made, so a point found full stays full: it is linked to the next one, and
/// with paths halved on the way (a union-find) a walk over any number of full workers costs next to nothing the second
/// time. Walking naively takes quadratic time just when the cluster is nearly full, which is always.
pub(super) struct Rooms<'a> {
    ring: &'a Ring,
    /// For each point, itself or a later one before which all are full; the last entry stands for the ring's end.
    next: Vec<u32>,
}

impl<'a> Rooms<'a> {
    /// A walk that has seen no full worker yet.
    pub(super) fn new(ring: &'a Ring) -> Rooms<'a> {
        Rooms { ring, next: (0..=ring.len() as u32).collect() }
    }

    /// The worker of the first point at or after the key that has room and is not the one to avoid, if there is one.
    /// For one `Rooms`, a worker that had no room has none in any later call.
    pub(super) fn first(
        &mut self,
        key: u64,
        avoid: Option<WorkerIx>,
        has_room: impl Fn(WorkerIx) -> bool,
    ) -> Option<WorkerIx> {
        let start = self.ring.position(key);
        self.between(start, self.ring.len(), avoid, &has_room)
            .or_else(|| self.between(0, start, avoid, &has_room))
    }

    fn between(
        &mut self,
        from: usize,
        to: usize,
        avoid: Option<WorkerIx>,
        has_room: &impl Fn(WorkerIx) -> bool,
    ) -> Option<WorkerIx> {
        let mut at = self.skip_full(from);
        while at < to {
            let worker = self.ring.owner(at);
            if !has_room(worker) {
                self.next[at] += 1;
            } else if avoid != Some(worker) {
                return Some(worker);
            }
            at = self.skip_full(at + 1);
        }
        None
    }

    fn skip_full(&mut self, mut at: usize) -> usize {
        while self.next[at] as usize != at {
            let after = self.next[at] as usize;
            self.next[at] = self.next[after];
            at = self.next[at] as usize;
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::WorkerId;
    use crate::placement::{Candidate, Weight};

    #[test]
    fn a_walk_that_remembers_finds_what_a_naive_walk_finds() {
        let name = |i| WorkerId::new(&format!("w{i:02}")).unwrap();
        let workers: Vec<_> = (0..20).map(|i| Candidate::new(name(i), Weight::ONE)).collect();
        let ring = Ring::new(&workers).unwrap();
        let mut rooms = Rooms::new(&ring);
        let mut room = [5; 20];
        for step in 0..150_u32 {
            let key = u64::from(step).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let avoid = step.is_multiple_of(3).then(|| WorkerIx::new(step % 20));
            let has_room = |worker: WorkerIx| room[worker.get()] > 0;
            let start = ring.position(key);
            let mut clockwise = (start..ring.len()).chain(0..start).map(|position| ring.owner(position));
            let naive = clockwise.find(|worker| has_room(*worker) && avoid != Some(*worker));
            let found = rooms.first(key, avoid, has_room);
            assert_eq!(found, naive, "step {step}");
            if let Some(worker) = found {
                room[worker.get()] -= 1;
            }
        }
        assert_eq!(room, [0; 20], "the last steps found no room at all");
    }
}
