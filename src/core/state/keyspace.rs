//! Keyspaces and how they are run.

use super::directive::PartitionSettings;
use super::partition::Partition;
use crate::ids::{EpochFloor, KeyspaceId, KeyspaceName, LogIndex, PartitionId};
use crate::placement::{Constraint, PartitionCount, Partitioner};
use std::collections::BTreeMap;
use std::time::Duration;

/// The shortest lease: one election and three renewals must fit into it.
pub const MIN_TTL: Duration = Duration::from_secs(1);
/// The longest lease: a dead worker's partitions wait this long.
pub const MAX_TTL: Duration = Duration::from_secs(600);
/// The lease when nobody says otherwise.
pub const DEFAULT_TTL: Duration = Duration::from_secs(10);
/// The longest lock delay, as in Chubby (Burrows, OSDI 2006, section 2.4): longer waits hide a dead service.
pub const MAX_LOCK_DELAY: Duration = Duration::from_secs(60);
/// The longest drain deadline.
pub const MAX_DRAIN_DEADLINE: Duration = Duration::from_secs(3600);
/// The longest wait for a worker that announced its restart.
pub const MAX_REJOIN_HOLD: Duration = Duration::from_secs(3600);
/// How many constraints on labels a keyspace may have.
pub const MAX_CONSTRAINTS: usize = 32;
/// The longest constraint as text, in bytes.
pub const MAX_CONSTRAINT_BYTES: usize = 256;
/// The highest bound on moves in a minute.
pub const MAX_MOVES_PER_MINUTE: u32 = 1_000_000;
/// How many keyspaces there may be.
pub const MAX_KEYSPACES: usize = 1_000;
/// How many deleted keyspaces are remembered whose owners' leases may still run. Each is remembered until its name is
/// used again; the oldest is forgotten first, long after its leases.
pub const DELETED_LEN: usize = 1_024;
/// How many partitions there may be in all keyspaces together.
pub const MAX_TOTAL_PARTITIONS: u64 = 2_000_000;

/// When the next owner is granted a partition whose owner does not release it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Takeover {
    /// When the owner's lease has run out: no two workers ever both believe that they own it. In a keyspace that took
    /// over by fence before, that holds from one TTL after the change.
    Lease,
    /// As soon as the owner looks gone. The fence keeps the data right; two workers may both believe for a while.
    Fence,
}

/// What balancing evens out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BalanceBy {
    /// How many partitions each worker has, or the sum of the weights that operators gave to partitions.
    Count,
    /// The loads that the owners measure. A weight that an operator gave to a partition goes before its load.
    Load,
}

/// How a keyspace is run. Made by [`Policy::with`], which checks it as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Policy {
    ttl: Duration,
    takeover: Takeover,
    drain_deadline: Option<Duration>,
    lock_delay: Duration,
    max_moves_in_flight: u32,
    balance: bool,
    balance_by: BalanceBy,
    moves_per_minute: u32,
    rejoin_hold: Duration,
    spread_zones: bool,
    constraints: Vec<Constraint>,
}

/// Fields of a [`Policy`] to set; those left out stay.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PolicyChange {
    /// The lease.
    pub ttl: Option<Duration>,
    /// Who waits for whom when an owner is silent.
    pub takeover: Option<Takeover>,
    /// How long a planned move waits for its old owner; zero means as long as the TTL.
    pub drain_deadline: Option<Duration>,
    /// How long a partition cools before a grant that does not follow its owner's own release.
    pub lock_delay: Option<Duration>,
    /// How many planned moves run at once.
    pub max_moves_in_flight: Option<u32>,
    /// Whether partitions are balanced by themselves.
    pub balance: Option<bool>,
    /// What balancing evens out.
    pub balance_by: Option<BalanceBy>,
    /// How many planned moves begin in a minute at the most; zero means as many as `max_moves_in_flight` allows.
    pub moves_per_minute: Option<u32>,
    /// How long the partitions of a worker that announced its restart wait for it; zero means that they do not.
    pub rejoin_hold: Option<Duration>,
    /// Whether partitions are spread over the zones that workers name in their label `zone`.
    pub spread_zones: Option<bool>,
    /// What a worker's labels have to be for it to own partitions here; all of them.
    pub constraints: Option<Vec<Constraint>>,
}

/// A policy that cannot work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// The lease is out of bounds.
    #[error(
        "ttl {}ms is out of bounds: a lease lasts 1s to 10m, so that three renewals and an election fit into it",
        .0.as_millis()
    )]
    Ttl(Duration),
    /// The lock delay is out of bounds.
    #[error("lock_delay {}ms is out of bounds: it is 0 to 60s", .0.as_millis())]
    LockDelay(Duration),
    /// The drain deadline is out of bounds.
    #[error("drain_deadline {}ms is out of bounds: it is 0 (as long as the ttl) to 1h", .0.as_millis())]
    DrainDeadline(Duration),
    /// No move could ever run.
    #[error(
        "max_moves_in_flight {0} is out of bounds: it is 1 to 10000; to stop balancing set balance to false"
    )]
    MovesInFlight(u32),
    /// More moves than any cluster makes.
    #[error("moves_per_minute {0} is out of bounds: it is 0 (no bound) to 1000000")]
    MovesPerMinute(u32),
    /// More constraints than a policy may have, or a longer one.
    #[error("labels: there are at most {MAX_CONSTRAINTS}, each of at most {MAX_CONSTRAINT_BYTES} bytes")]
    Constraints,
    /// The hold is out of bounds.
    #[error("rejoin_hold {}ms is out of bounds: it is 0 (none) to 1h", .0.as_millis())]
    RejoinHold(Duration),
}

/// The policy when nobody says otherwise.
impl Default for Policy {
    fn default() -> Policy {
        Policy {
            ttl: DEFAULT_TTL,
            takeover: Takeover::Lease,
            drain_deadline: None,
            lock_delay: Duration::ZERO,
            max_moves_in_flight: 64,
            balance: true,
            balance_by: BalanceBy::Count,
            moves_per_minute: 0,
            rejoin_hold: Duration::ZERO,
            spread_zones: true,
            constraints: Vec::new(),
        }
    }
}

impl Policy {
    /// This policy with some fields set.
    ///
    /// # Errors
    /// [`PolicyError`] when the result cannot work; it names the setting and its bounds.
    pub fn with(&self, change: &PolicyChange) -> Result<Policy, PolicyError> {
        let policy = Policy {
            ttl: change.ttl.unwrap_or(self.ttl),
            takeover: change.takeover.unwrap_or(self.takeover),
            drain_deadline: match change.drain_deadline {
                None => self.drain_deadline,
                Some(Duration::ZERO) => None,
                set => set,
            },
            lock_delay: change.lock_delay.unwrap_or(self.lock_delay),
            max_moves_in_flight: change.max_moves_in_flight.unwrap_or(self.max_moves_in_flight),
            balance: change.balance.unwrap_or(self.balance),
            balance_by: change.balance_by.unwrap_or(self.balance_by),
            moves_per_minute: change.moves_per_minute.unwrap_or(self.moves_per_minute),
            rejoin_hold: change.rejoin_hold.unwrap_or(self.rejoin_hold),
            spread_zones: change.spread_zones.unwrap_or(self.spread_zones),
            constraints: change.constraints.as_ref().unwrap_or(&self.constraints).clone(),
        };
        if policy.ttl < MIN_TTL || policy.ttl > MAX_TTL {
            return Err(PolicyError::Ttl(policy.ttl));
        }
        if policy.lock_delay > MAX_LOCK_DELAY {
            return Err(PolicyError::LockDelay(policy.lock_delay));
        }
        if let Some(deadline) = policy.drain_deadline.filter(|d| *d > MAX_DRAIN_DEADLINE) {
            return Err(PolicyError::DrainDeadline(deadline));
        }
        if !(1..=10_000).contains(&policy.max_moves_in_flight) {
            return Err(PolicyError::MovesInFlight(policy.max_moves_in_flight));
        }
        if policy.moves_per_minute > MAX_MOVES_PER_MINUTE {
            return Err(PolicyError::MovesPerMinute(policy.moves_per_minute));
        }
        let too_long = |constraint: &Constraint| constraint.to_string().len() > MAX_CONSTRAINT_BYTES;
        if policy.constraints.len() > MAX_CONSTRAINTS || policy.constraints.iter().any(too_long) {
            return Err(PolicyError::Constraints);
        }
        if policy.rejoin_hold > MAX_REJOIN_HOLD {
            return Err(PolicyError::RejoinHold(policy.rejoin_hold));
        }
        Ok(policy)
    }

    /// The lease.
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// Who waits for whom when an owner is silent.
    pub fn takeover(&self) -> Takeover {
        self.takeover
    }

    /// How long a planned move waits for its old owner, when that is not the TTL.
    pub fn drain_deadline_set(&self) -> Option<Duration> {
        self.drain_deadline
    }

    /// How long a planned move waits for its old owner.
    pub fn drain_deadline(&self) -> Duration {
        self.drain_deadline.unwrap_or(self.ttl)
    }

    /// How long a partition cools before a grant that does not follow its owner's own release.
    pub fn lock_delay(&self) -> Duration {
        self.lock_delay
    }

    /// How many planned moves run at once.
    pub fn max_moves_in_flight(&self) -> u32 {
        self.max_moves_in_flight
    }

    /// Whether partitions are balanced by themselves.
    pub fn balance(&self) -> bool {
        self.balance
    }

    /// What balancing evens out.
    pub fn balance_by(&self) -> BalanceBy {
        self.balance_by
    }

    /// How many planned moves begin in a minute at the most; zero means no bound.
    pub fn moves_per_minute(&self) -> u32 {
        self.moves_per_minute
    }

    /// How long the partitions of a worker that announced its restart wait for it.
    pub fn rejoin_hold(&self) -> Duration {
        self.rejoin_hold
    }

    /// Whether partitions are spread over the zones that workers name in their label `zone`.
    pub fn spread_zones(&self) -> bool {
        self.spread_zones
    }

    /// What a worker's labels have to be for it to own partitions here; all of them.
    pub fn constraints(&self) -> &[Constraint] {
        &self.constraints
    }
}

/// A named set of partitions with one policy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Keyspace {
    pub(crate) id: KeyspaceId,
    pub(crate) name: KeyspaceName,
    pub(crate) policy: Policy,
    /// No epoch at or below it is minted in this keyspace.
    pub(crate) floor: EpochFloor,
    /// How keys are spread over the partitions; its count is their number.
    pub(crate) partitioner: Partitioner,
    /// Its partitions are being split, one after the other, by this directive.
    pub(crate) split: Option<LogIndex>,
    pub(crate) partitions: Vec<Partition>,
    /// What operators set about some of them.
    pub(crate) settings: BTreeMap<PartitionId, PartitionSettings>,
    /// No planned move begins, by this directive.
    pub(crate) frozen: Option<LogIndex>,
    /// Floors of partitions whose storage has seen more than was granted, until an epoch above is minted.
    pub(crate) raised: BTreeMap<PartitionId, EpochFloor>,
}

/// A keyspace that was deleted while somebody owned partitions of it under a lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Deleted {
    /// Its name.
    pub name: KeyspaceName,
    /// The longest of those leases. A keyspace created again under the name cools for as long.
    pub lease: Duration,
}

impl Keyspace {
    /// Its number.
    pub fn id(&self) -> KeyspaceId {
        self.id
    }

    /// Its name.
    pub fn name(&self) -> &KeyspaceName {
        &self.name
    }

    /// How it is run.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// How many partitions it has.
    pub fn count(&self) -> PartitionCount {
        self.partitioner.count()
    }

    /// How its keys are spread over them.
    pub fn partitioner(&self) -> Partitioner {
        self.partitioner
    }

    /// Its partitions, by number.
    pub fn partitions(&self) -> &[Partition] {
        &self.partitions
    }

    /// What operators set about partitions, by number; those without settings are left out.
    pub fn settings(&self) -> &BTreeMap<PartitionId, PartitionSettings> {
        &self.settings
    }

    /// The directive by which no planned move begins here, if there is one.
    pub fn frozen(&self) -> Option<LogIndex> {
        self.frozen
    }

    /// No epoch at or below it is minted here.
    pub fn floor(&self) -> EpochFloor {
        self.floor
    }

    /// The floor of a partition whose storage has seen more than was granted; its next grant is above it.
    pub fn raised(&self, partition: PartitionId) -> Option<EpochFloor> {
        self.raised.get(&partition).copied()
    }

    /// The highest epoch that was ever granted here or seen by storage, or the floor.
    pub(crate) fn highest(&self) -> EpochFloor {
        let granted = self.partitions.iter().map(|p| p.epoch);
        granted.chain(self.raised.values().copied()).fold(self.floor, EpochFloor::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f062_a01_timing_that_cannot_work_is_refused_with_the_rule() {
        let ms = Duration::from_millis;
        let refuse = |change: PolicyChange| Policy::default().with(&change).expect_err("refused").to_string();
        for ttl in [ms(0), ms(999), MAX_TTL + ms(1), Duration::MAX] {
            assert!(refuse(PolicyChange { ttl: Some(ttl), ..Default::default() }).contains("1s to 10m"));
        }
        assert!(
            refuse(PolicyChange { lock_delay: Some(ms(60_001)), ..Default::default() }).contains("0 to 60s")
        );
        assert!(
            refuse(PolicyChange { max_moves_in_flight: Some(0), ..Default::default() })
                .contains("1 to 10000")
        );
        assert!(
            refuse(PolicyChange { drain_deadline: Some(ms(3_600_001)), ..Default::default() }).contains("1h")
        );
    }

    #[test]
    fn a_drain_deadline_of_zero_follows_the_ttl() {
        let set = Policy::default()
            .with(&PolicyChange { drain_deadline: Some(Duration::from_secs(3)), ..Default::default() })
            .expect("valid");
        assert_eq!(set.drain_deadline(), Duration::from_secs(3));
        let back = set
            .with(&PolicyChange {
                drain_deadline: Some(Duration::ZERO),
                ttl: Some(Duration::from_secs(4)),
                ..Default::default()
            })
            .expect("valid");
        assert_eq!(back.drain_deadline(), Duration::from_secs(4));
    }
}
