//! How a leader paces its moves.

use crate::lead::Share;
use std::time::Duration;

/// How a leader paces its moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Settings {
    /// Balancing waits this long after the last join or end of a session, so that workers that start together cause one
    /// round of moves; a new leader waits as long before its first.
    pub settle: Duration,
    /// A partition that an operator moved is not balanced away again for this long.
    pub cool_down: Duration,
    /// How often workers measure the loads of partitions, in keyspaces that balance by load. Loads that have changed are
    /// looked at as often.
    pub measure_every: Duration,
    /// More than this part of the sessions has to end within a TTL for the brake.
    pub brake: Share,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            settle: Duration::from_millis(500),
            cool_down: Duration::from_secs(30),
            measure_every: Duration::from_secs(5),
            brake: Share::THIRD,
        }
    }
}
