//! The numbers that only grow.

use super::outcome::Refused;
use crate::ids::{EpochFloor, KeyspaceId, LogIndex, MoveId, SessionId};

/// What the state has counted so far. Each `take_` gives a number that was never given before, or refuses: a counter at
/// its end stays there, since giving its last number twice would make two sessions one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Counters {
    /// No epoch at or below it is minted anywhere in the cluster.
    pub(crate) floor: EpochFloor,
    /// No lock was granted an epoch above it, however many were forgotten.
    pub(crate) lock_epoch: EpochFloor,
    pub(crate) next_keyspace: u32,
    pub(crate) next_session: u64,
    pub(crate) next_move: u64,
    pub(crate) revision: LogIndex,
    pub(crate) applied: LogIndex,
}

impl Counters {
    pub(super) const fn new() -> Counters {
        Counters {
            floor: EpochFloor::NONE,
            lock_epoch: EpochFloor::NONE,
            next_keyspace: 1,
            next_session: 1,
            next_move: 1,
            revision: LogIndex::new(0),
            applied: LogIndex::new(0),
        }
    }

    pub(super) fn take_keyspace(&mut self) -> Result<KeyspaceId, Refused> {
        let number = self.next_keyspace;
        let what = "the number of keyspaces ever created";
        self.next_keyspace =
            number.checked_add(1).ok_or(Refused::Limit { what, bound: u64::from(u32::MAX) })?;
        Ok(KeyspaceId::new(number))
    }

    pub(super) fn take_session(&mut self) -> Result<SessionId, Refused> {
        let number = self.next_session;
        let full = Refused::Limit { what: "the number of sessions ever opened", bound: u64::MAX };
        match (number.checked_add(1), SessionId::new(number)) {
            (Some(next), Some(id)) => {
                self.next_session = next;
                Ok(id)
            }
            _ => Err(full),
        }
    }

    pub(super) fn take_move(&mut self) -> Result<MoveId, Refused> {
        let number = self.next_move;
        let what = "the number of moves ever begun";
        self.next_move = number.checked_add(1).ok_or(Refused::Limit { what, bound: u64::MAX })?;
        Ok(MoveId::new(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f096_a_counter_at_its_end_gives_no_number_twice() {
        let mut at_the_end = Counters {
            next_keyspace: u32::MAX,
            next_session: u64::MAX,
            next_move: u64::MAX,
            ..Counters::new()
        };
        let before = at_the_end;
        assert!(matches!(at_the_end.take_keyspace(), Err(Refused::Limit { .. })));
        assert!(matches!(at_the_end.take_session(), Err(Refused::Limit { .. })));
        assert!(matches!(at_the_end.take_move(), Err(Refused::Limit { .. })));
        assert_eq!(at_the_end, before);
    }
}
