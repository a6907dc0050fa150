//! Keyspaces and their policies.

use super::checked::{keyspace_name, millis, unknown_value};
use super::field::InvalidField;
use crate::v1;
use ringfence_core::ids::KeyspaceName;
use ringfence_core::placement::{Constraint, PartitionCount, Partitioner};
use ringfence_core::state::{self, BalanceBy, Policy, PolicyChange, PolicyError, Takeover};
use std::time::Duration;

/// What a caller knows of a keyspace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Keyspace {
    /// Its name.
    pub name: KeyspaceName,
    /// How many partitions it has.
    pub partitions: PartitionCount,
    /// How many it had before, while they are being split in two.
    pub split_from: Option<PartitionCount>,
    /// How it is run.
    pub policy: Policy,
}

impl Keyspace {
    /// How many partitions were split, and how many there were before; `None` when none is being split.
    pub fn split_progress(&self) -> Option<(u32, u32)> {
        let before = self.split_from?.get();
        Some((self.partitions.get().saturating_sub(before), before))
    }
}

impl From<&state::Keyspace> for Keyspace {
    fn from(from: &state::Keyspace) -> Keyspace {
        Keyspace {
            name: from.name().clone(),
            partitions: from.count(),
            split_from: from.split().map(|_| from.partitioner().base()),
            policy: from.policy().clone(),
        }
    }
}

impl From<&Keyspace> for v1::Keyspace {
    fn from(from: &Keyspace) -> v1::Keyspace {
        v1::Keyspace {
            name: from.name.to_string(),
            partitions: from.partitions.get(),
            policy: Some((&from.policy).into()),
            split_from: from
                .split_from
                .filter(|base| *base != from.partitions)
                .map_or(0, PartitionCount::get),
            splitting: from.split_from.is_some(),
        }
    }
}

impl From<&state::Keyspace> for v1::Keyspace {
    fn from(from: &state::Keyspace) -> v1::Keyspace {
        (&Keyspace::from(from)).into()
    }
}

impl TryFrom<v1::Keyspace> for Keyspace {
    type Error = InvalidField;

    fn try_from(wire: v1::Keyspace) -> Result<Keyspace, InvalidField> {
        let partitioner = partitioner(&wire)?;
        let policy = wire.policy.ok_or_else(|| InvalidField::missing("policy"))?;
        Ok(Keyspace {
            name: keyspace_name("name", &wire.name)?,
            partitions: partitioner.count(),
            split_from: (wire.splitting || partitioner.is_midway()).then_some(partitioner.base()),
            policy: Policy::try_from(policy).map_err(|e| e.within("policy"))?,
        })
    }
}

/// How a keyspace's keys are spread over its partitions.
///
/// # Errors
/// [`InvalidField`] when its counts are out of bounds, or do not go together.
pub fn partitioner(wire: &v1::Keyspace) -> Result<Partitioner, InvalidField> {
    let count = partition_count("partitions", wire.partitions)?;
    if wire.split_from == 0 {
        return Ok(Partitioner::whole(count));
    }
    let base = partition_count("split_from", wire.split_from)?;
    Partitioner::new(base, count).map_err(|why| InvalidField::new("split_from", why))
}

/// How many partitions a keyspace has.
pub fn partition_count(field: &str, number: u32) -> Result<PartitionCount, InvalidField> {
    PartitionCount::new(number).map_err(|why| InvalidField::new(field, why))
}

impl From<&Policy> for v1::KeyspacePolicy {
    fn from(from: &Policy) -> v1::KeyspacePolicy {
        v1::KeyspacePolicy {
            ttl_ms: millis(from.ttl()),
            takeover: takeover_to_wire(from.takeover()).into(),
            drain_deadline_ms: from.drain_deadline_set().map_or(0, millis),
            lock_delay_ms: millis(from.lock_delay()),
            max_moves_in_flight: from.max_moves_in_flight(),
            balance: from.balance(),
            moves_per_minute: from.moves_per_minute(),
            rejoin_hold_ms: millis(from.rejoin_hold()),
            // What is as it was before there was this field is not written.
            spread_zones: (!from.spread_zones()).then_some(false),
            labels: from.constraints().iter().map(ToString::to_string).collect(),
            balance_by: match from.balance_by() {
                BalanceBy::Count => v1::BalanceBy::Unspecified,
                BalanceBy::Load => v1::BalanceBy::Load,
            }
            .into(),
        }
    }
}

impl TryFrom<v1::KeyspacePolicy> for Policy {
    type Error = InvalidField;

    fn try_from(wire: v1::KeyspacePolicy) -> Result<Policy, InvalidField> {
        let change = PolicyChange {
            ttl: Some(Duration::from_millis(wire.ttl_ms)),
            takeover: Some(takeover_from_wire("takeover", wire.takeover)?),
            drain_deadline: Some(Duration::from_millis(wire.drain_deadline_ms)),
            lock_delay: Some(Duration::from_millis(wire.lock_delay_ms)),
            max_moves_in_flight: Some(wire.max_moves_in_flight),
            balance: Some(wire.balance),
            moves_per_minute: Some(wire.moves_per_minute),
            rejoin_hold: Some(Duration::from_millis(wire.rejoin_hold_ms)),
            spread_zones: wire.spread_zones,
            constraints: Some(constraints(&wire.labels)?),
            balance_by: Some(balance_by_from_wire("balance_by", wire.balance_by)?),
        };
        Policy::default().with(&change).map_err(|why| policy_error(&why))
    }
}

impl From<&PolicyChange> for v1::KeyspaceChange {
    fn from(from: &PolicyChange) -> v1::KeyspaceChange {
        v1::KeyspaceChange {
            ttl_ms: from.ttl.map(millis),
            takeover: from.takeover.map(|takeover| takeover_to_wire(takeover).into()),
            drain_deadline_ms: from.drain_deadline.map(millis),
            lock_delay_ms: from.lock_delay.map(millis),
            max_moves_in_flight: from.max_moves_in_flight,
            balance: from.balance,
            moves_per_minute: from.moves_per_minute,
            rejoin_hold_ms: from.rejoin_hold.map(millis),
            spread_zones: from.spread_zones,
            labels: from.constraints.as_ref().map(|constraints| v1::LabelConstraints {
                labels: constraints.iter().map(ToString::to_string).collect(),
            }),
            balance_by: from.balance_by.map(|by| balance_by_to_wire(by).into()),
        }
    }
}

/// The fields alone; whether they work together only the keyspace's policy can say ([`Policy::with`]).
impl TryFrom<v1::KeyspaceChange> for PolicyChange {
    type Error = InvalidField;

    fn try_from(wire: v1::KeyspaceChange) -> Result<PolicyChange, InvalidField> {
        Ok(PolicyChange {
            ttl: wire.ttl_ms.map(Duration::from_millis),
            takeover: wire.takeover.map(|number| takeover_from_wire("takeover", number)).transpose()?,
            drain_deadline: wire.drain_deadline_ms.map(Duration::from_millis),
            lock_delay: wire.lock_delay_ms.map(Duration::from_millis),
            max_moves_in_flight: wire.max_moves_in_flight,
            balance: wire.balance,
            moves_per_minute: wire.moves_per_minute,
            rejoin_hold: wire.rejoin_hold_ms.map(Duration::from_millis),
            spread_zones: wire.spread_zones,
            constraints: wire.labels.map(|wire| constraints(&wire.labels)).transpose()?,
            balance_by: wire.balance_by.map(|by| balance_by_from_wire("balance_by", by)).transpose()?,
        })
    }
}

fn constraints(texts: &[String]) -> Result<Vec<Constraint>, InvalidField> {
    texts.iter().map(|text| text.parse().map_err(|why| InvalidField::new("labels", why))).collect()
}

/// The field that a policy fails by.
fn policy_error(why: &PolicyError) -> InvalidField {
    let field = match why {
        PolicyError::Ttl(_) => "ttl_ms",
        PolicyError::LockDelay(_) => "lock_delay_ms",
        PolicyError::DrainDeadline(_) => "drain_deadline_ms",
        PolicyError::MovesInFlight(_) => "max_moves_in_flight",
        PolicyError::MovesPerMinute(_) => "moves_per_minute",
        PolicyError::RejoinHold(_) => "rejoin_hold_ms",
        PolicyError::Constraints => "labels",
    };
    InvalidField::new(field, why)
}

/// What balancing evens out, as it is said.
pub fn balance_by_to_wire(by: BalanceBy) -> v1::BalanceBy {
    match by {
        BalanceBy::Count => v1::BalanceBy::Count,
        BalanceBy::Load => v1::BalanceBy::Load,
    }
}

/// What balancing evens out; by count, when nobody says.
///
/// # Errors
/// [`InvalidField`] for a number that is not known here.
pub fn balance_by_from_wire(field: &str, number: i32) -> Result<BalanceBy, InvalidField> {
    match v1::BalanceBy::try_from(number) {
        Ok(v1::BalanceBy::Unspecified | v1::BalanceBy::Count) => Ok(BalanceBy::Count),
        Ok(v1::BalanceBy::Load) => Ok(BalanceBy::Load),
        Err(_) => Err(unknown_value(field, number)),
    }
}

pub(super) fn takeover_to_wire(takeover: Takeover) -> v1::Takeover {
    match takeover {
        Takeover::Lease => v1::Takeover::Lease,
        Takeover::Fence => v1::Takeover::Fence,
    }
}

/// A takeover that is left out is an error and never a default: it decides whether two workers may both believe.
pub(super) fn takeover_from_wire(field: &str, number: i32) -> Result<Takeover, InvalidField> {
    match v1::Takeover::try_from(number) {
        Ok(v1::Takeover::Lease) => Ok(Takeover::Lease),
        Ok(v1::Takeover::Fence) => Ok(Takeover::Fence),
        Ok(v1::Takeover::Unspecified) | Err(_) => Err(unknown_value(field, number)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ErrorKind, Failure};

    fn keyspace() -> Keyspace {
        let change = PolicyChange {
            ttl: Some(Duration::from_secs(3)),
            takeover: Some(Takeover::Fence),
            drain_deadline: Some(Duration::from_millis(1_500)),
            lock_delay: Some(Duration::from_millis(250)),
            max_moves_in_flight: Some(7),
            balance: Some(false),
            moves_per_minute: Some(600),
            rejoin_hold: Some(Duration::from_secs(40)),
            spread_zones: Some(false),
            balance_by: Some(BalanceBy::Load),
            constraints: Some(vec!["disk=ssd".parse().unwrap(), "!spot".parse().unwrap()]),
        };
        Keyspace {
            name: KeyspaceName::new("orders").unwrap(),
            partitions: PartitionCount::new(64).unwrap(),
            split_from: None,
            policy: Policy::default().with(&change).unwrap(),
        }
    }

    #[test]
    fn a_keyspace_is_the_same_behind_the_wire() {
        assert_eq!(Keyspace::try_from(v1::Keyspace::from(&keyspace())), Ok(keyspace()));
        let default = Keyspace { policy: Policy::default(), ..keyspace() };
        assert_eq!(Keyspace::try_from(v1::Keyspace::from(&default)), Ok(default));
        for before in [64, 50] {
            let split_from = PartitionCount::new(before).ok();
            let splitting = Keyspace { split_from, ..keyspace() };
            assert_eq!(Keyspace::try_from(v1::Keyspace::from(&splitting)), Ok(splitting));
        }
    }

    #[test]
    fn a_change_is_the_same_behind_the_wire() {
        for change in [
            PolicyChange::default(),
            PolicyChange { drain_deadline: Some(Duration::ZERO), balance: Some(true), ..Default::default() },
            PolicyChange {
                takeover: Some(Takeover::Lease),
                ttl: Some(Duration::from_secs(9)),
                ..Default::default()
            },
            PolicyChange { balance_by: Some(BalanceBy::Count), ..Default::default() },
            PolicyChange { balance_by: Some(BalanceBy::Load), ..Default::default() },
        ] {
            assert_eq!(PolicyChange::try_from(v1::KeyspaceChange::from(&change)), Ok(change));
        }
    }

    #[test]
    fn f062_a_field_that_cannot_work_is_named_with_its_path() {
        let wrong = |f: fn(&mut v1::Keyspace)| {
            let mut wire = v1::Keyspace::from(&keyspace());
            f(&mut wire);
            Keyspace::try_from(wire).unwrap_err().field().to_owned()
        };
        assert_eq!(wrong(|k| k.name = "A".to_owned()), "name");
        assert_eq!(wrong(|k| k.partitions = 0), "partitions");
        assert_eq!(wrong(|k| k.split_from = 32), "split_from");
        assert_eq!(wrong(|k| k.split_from = 65), "split_from");
        assert_eq!(wrong(|k| k.policy = None), "policy");
        assert_eq!(wrong(|k| k.policy.as_mut().unwrap().ttl_ms = 1), "policy.ttl_ms");
        assert_eq!(wrong(|k| k.policy.as_mut().unwrap().takeover = 0), "policy.takeover");
        assert_eq!(wrong(|k| k.policy.as_mut().unwrap().takeover = 99), "policy.takeover");
        assert_eq!(wrong(|k| k.policy.as_mut().unwrap().balance_by = 99), "policy.balance_by");
        assert_eq!(
            wrong(|k| k.policy.as_mut().unwrap().max_moves_in_flight = 0),
            "policy.max_moves_in_flight"
        );
        let failure = Failure::from(InvalidField::missing("policy.takeover"));
        assert_eq!(failure.kind(), ErrorKind::Invalid);
        assert!(failure.message().contains("policy.takeover"));
    }

    #[test]
    fn f096_durations_at_the_end_of_their_range_are_refused_and_do_not_wrap() {
        let mut wire = v1::Keyspace::from(&keyspace());
        wire.policy.as_mut().unwrap().drain_deadline_ms = u64::MAX;
        assert_eq!(Keyspace::try_from(wire).unwrap_err().field(), "policy.drain_deadline_ms");
        assert_eq!(millis(Duration::MAX), u64::MAX);
    }
}
