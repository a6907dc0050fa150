//! How many planned moves may begin in a keyspace: within its bound on moves in flight, and on those of a minute.
//!
//! A move is in flight until its new owner is ready. An owner that never gets ready must not hold up the moves of all
//! others, so one counts for as long as a drain may take, on the clock of the leader that saw it granted; a new leader
//! counts in full.
//!
//! What one look hands out is counted when it is handed out, so that all parts of the look share one room, and for the
//! minute when it is seen to begin: an entry may be lost, or its moves passed over. A new leader counts no minute but its
//! own.

use super::pace::Pace;
use crate::ids::{Epoch, KeyspaceId, PartitionId, PartitionKey};
use crate::mutant;
use crate::state::{GrantReason, Keyspace, Partition, Phase, State};
use crate::time::Instant;
use std::collections::BTreeMap;

/// What one leadership counts.
#[derive(Clone, Debug, Default, Hash)]
pub struct Budget {
    /// The planned moves that began in the last minute.
    pace: Pace,
    flights: BTreeMap<PartitionKey, Flight>,
    /// What is left for the look in progress, of keyspaces it has asked about.
    rooms: BTreeMap<KeyspaceId, Room>,
}

/// A partition on its way.
#[derive(Clone, Copy, Debug, Hash)]
struct Flight {
    epoch: Epoch,
    stage: Stage,
    since: Instant,
    /// It is a move; else a repair, which waits for no room.
    moved: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    /// Its owner is giving it up.
    Draining,
    /// Its owner is not ready yet.
    Loading,
}

#[derive(Clone, Copy, Debug, Hash)]
struct Room {
    /// Moves in flight.
    flights: usize,
    /// Moves of this minute.
    moves: usize,
    /// How many moves are in flight, repairs not counted.
    moving: usize,
}

impl Budget {
    /// Counts what is in flight, in full.
    pub fn new(now: Instant, state: &State) -> Budget {
        let mut budget = Budget::default();
        for (key, partition) in state.keyspaces().flat_map(|k| k.keys().zip(k.partitions())) {
            if let Some((epoch, stage)) = stage(partition) {
                budget.flights.insert(key, Flight { epoch, stage, since: now, moved: moved(partition) });
            }
        }
        budget
    }

    /// A partition has changed.
    pub(super) fn observe(&mut self, key: PartitionKey, now: Instant, state: &State) {
        let partition = state.partition(key);
        let Some(((epoch, stage), moved)) = partition.and_then(|p| Some((stage(p)?, moved(p)))) else {
            self.flights.remove(&key);
            return;
        };
        let same = |flight: &Flight| flight.epoch == epoch && flight.stage == stage;
        if self.flights.get(&key).is_some_and(same) {
            return;
        }
        // A move whose owner was lost on the way is still one when its target has it.
        let moved = moved || self.flights.get(&key).is_some_and(|flight| flight.stage == Stage::Draining);
        self.flights.insert(key, Flight { epoch, stage, since: now, moved });
        if let Some(Phase::Draining(drain)) = partition.map(Partition::phase)
            && drain.why.is_planned()
        {
            self.pace.began(key.keyspace, 1, now);
        }
    }

    /// A keyspace is gone.
    pub(super) fn forget(&mut self, id: KeyspaceId) {
        self.pace.forget(id);
        self.flights.retain(|key, _| key.keyspace != id);
    }

    /// A look has ended: what it handed out will be seen, or comes again.
    pub(super) fn look_ends(&mut self) {
        self.rooms.clear();
    }

    /// How many more may be in flight.
    pub(super) fn flights(&mut self, keyspace: &Keyspace, now: Instant) -> usize {
        self.room(keyspace, now).flights
    }

    /// How many more planned moves may begin now.
    pub(super) fn moves(&mut self, keyspace: &Keyspace, now: Instant) -> usize {
        let Room { flights, moves, .. } = *self.room(keyspace, now);
        flights.min(moves)
    }

    /// Whether a planned move of this partition may begin now. One whose owner is not ready is in flight already, and its
    /// move takes no more room: it is what ends the flight. There are no more moves than may be all the same.
    pub(super) fn has_room_for(&mut self, keyspace: &Keyspace, key: PartitionKey, now: Instant) -> bool {
        let flight = self.flight(keyspace, key, now);
        let Room { flights, moves, moving } = *self.room(keyspace, now);
        let others = moving.saturating_sub(usize::from(flight.is_some_and(|flight| flight.moved)));
        let goes_on = flight.is_some() && others < keyspace.policy().max_moves_in_flight() as usize;
        moves > 0 && (flights > 0 || goes_on)
    }

    /// A planned move is handed out.
    pub(super) fn begins(&mut self, keyspace: &Keyspace, key: PartitionKey, now: Instant) {
        let flight = self.flight(keyspace, key, now);
        let room = self.room(keyspace, now);
        room.flights = room.flights.saturating_sub(usize::from(flight.is_none()));
        room.moves = room.moves.saturating_sub(1);
        room.moving += usize::from(!flight.is_some_and(|flight| flight.moved));
    }

    /// Partitions of a keyspace that count as in flight because their owners are not ready.
    pub(super) fn loading(&self, keyspace: &Keyspace, now: Instant) -> impl Iterator<Item = PartitionKey> {
        let patience = keyspace.policy().drain_deadline();
        let loads = move |flight: &Flight| flight.stage == Stage::Loading && flight.counts(now, patience);
        self.of(keyspace.id()).filter(move |(_, flight)| loads(flight)).map(|(key, _)| *key)
    }

    /// The flight of this partition, when it counts.
    fn flight(&self, keyspace: &Keyspace, key: PartitionKey, now: Instant) -> Option<Flight> {
        let patience = keyspace.policy().drain_deadline();
        let flight = self.flights.get(&key).filter(|_| !mutant!("budget-holds-up-who-frees-it"));
        flight.filter(|flight| flight.counts(now, patience)).copied()
    }

    /// A grant of this partition is handed out. It may be in flight already: its drain is over.
    pub(super) fn granted(&mut self, keyspace: &Keyspace, key: PartitionKey, now: Instant) {
        let patience = keyspace.policy().drain_deadline();
        let counts = self.flights.get(&key).is_some_and(|flight| flight.counts(now, patience));
        let room = self.room(keyspace, now);
        room.flights = room.flights.saturating_sub(usize::from(!counts));
    }

    /// When there is room although nothing happens, if it is time that brings it.
    pub(super) fn opens(&mut self, keyspace: &Keyspace, now: Instant) -> Option<Instant> {
        let (id, patience) = (keyspace.id(), keyspace.policy().drain_deadline());
        let Room { flights, moves, .. } = *self.room(keyspace, now);
        let by_minute = self.pace.opens(id).filter(|_| moves == 0);
        let loading = self.of(id).filter(|(_, flight)| flight.stage == Stage::Loading);
        let ends = loading.map(|(_, flight)| flight.since + patience).filter(|end| now < *end);
        ends.filter(|_| flights == 0).min().into_iter().chain(by_minute).min()
    }

    fn of(&self, id: KeyspaceId) -> impl Iterator<Item = (&PartitionKey, &Flight)> {
        let first = PartitionKey { keyspace: id, partition: PartitionId::new(0) };
        self.flights.range(first..).take_while(move |(key, _)| key.keyspace == id)
    }

    fn room(&mut self, keyspace: &Keyspace, now: Instant) -> &mut Room {
        let (id, policy) = (keyspace.id(), keyspace.policy());
        if !self.rooms.contains_key(&id) {
            let patience = policy.drain_deadline();
            let counts = |flight: &Flight| flight.counts(now, patience) && !mutant!("budget-blind-to-moves");
            let (mut in_flight, mut moving) = (0, 0);
            for (_, flight) in self.of(id).filter(|(_, flight)| counts(flight)) {
                in_flight += 1;
                moving += usize::from(flight.moved);
            }
            let flights = (policy.max_moves_in_flight() as usize).saturating_sub(in_flight);
            let moves = self.pace.room(id, policy.moves_per_minute(), now);
            self.rooms.insert(id, Room { flights, moves, moving });
        }
        self.rooms.entry(id).or_insert(Room { flights: 0, moves: 0, moving: 0 })
    }
}

impl Flight {
    fn counts(&self, now: Instant, patience: std::time::Duration) -> bool {
        self.stage == Stage::Draining || now < self.since + patience
    }
}

fn stage(partition: &Partition) -> Option<(Epoch, Stage)> {
    let stage = match partition.phase() {
        Phase::Draining(_) => Stage::Draining,
        Phase::Owned { ready: false, .. } => Stage::Loading,
        Phase::Owned { ready: true, .. } | Phase::Vacant | Phase::Cooling(_) => return None,
    };
    Some((partition.epoch()?, stage))
}

/// Whether it is on its way by a move, and not because it had no owner.
fn moved(partition: &Partition) -> bool {
    let by = match partition.phase() {
        Phase::Draining(drain) => Some(drain.why),
        _ => partition.history().last().map(|tenure| tenure.why),
    };
    match by {
        None
        | Some(
            GrantReason::First
            | GrantReason::Failover
            | GrantReason::Vacated
            | GrantReason::Returned
            | GrantReason::Behind,
        ) => false,
        Some(
            GrantReason::Balance
            | GrantReason::Operator
            | GrantReason::Join
            | GrantReason::Drain
            | GrantReason::Weight
            | GrantReason::Zone
            | GrantReason::Pin
            | GrantReason::Load
            | GrantReason::Label
            | GrantReason::Plan
            | GrantReason::Split
            | GrantReason::Reassert,
        ) => true,
    }
}
