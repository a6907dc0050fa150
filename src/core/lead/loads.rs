//! How much each partition counts: the loads that workers measure, and what operators set.
//!
//! Loads are soft state of one leadership. They are never in the log: a leader begins with none, and does not balance a
//! keyspace by load before it knows the loads there, so an election moves nothing. Only the owner of a partition is
//! heard about it, at the pace that the leader asked for, and what it says is bounded and smoothed. So one worker's
//! measurements, whatever they are, concern only the partitions it owns, in keyspaces that balance by load.
//!
//! A load belongs to its partition: it stays when the partition moves, and the next owner's measurements go on from it.

use crate::ids::{KeyspaceId, PartitionId, PartitionKey, SessionId};
use crate::mutant;
use crate::placement::{MAX_LOAD, SmoothedLoad, about};
use crate::state::{BalanceBy, Keyspace, PartitionSettings, Phase, State};
use crate::time::Instant;
use std::collections::BTreeMap;
use std::time::Duration;

/// A partition has a load when it was measured so often; the first measurements count alike. One that was made while
/// its owner was still loading, or during a burst, is not taken for all there is.
const FIRST: u32 = 3;
/// A leader waits for so many times the pace until it knows the loads of a keyspace. Partitions that were not measured
/// then count as the mean of the others: their workers do not measure.
const PATIENCE: u32 = 8;

/// The loads that one leadership knows.
#[derive(Clone, Debug, Default, Hash)]
pub struct Loads(BTreeMap<KeyspaceId, OfKeyspace>);

#[derive(Clone, Debug, Hash)]
struct OfKeyspace {
    /// When this leadership began to ask for them.
    since: Instant,
    of: BTreeMap<PartitionId, Measured>,
}

/// What was measured of one partition.
#[derive(Clone, Copy, Debug, Hash)]
struct Measured {
    at: Instant,
    what: What,
}

#[derive(Clone, Copy, Debug, Hash)]
enum What {
    First { sum: u64, times: u32 },
    Load(SmoothedLoad),
}

impl Measured {
    fn load(&self) -> Option<u32> {
        match self.what {
            What::First { .. } => None,
            What::Load(load) => Some(load.load()),
        }
    }

    fn with(self, units: u64, at: Instant) -> Measured {
        let what = match self.what {
            What::First { sum, times } if times + 1 < FIRST => {
                What::First { sum: sum + units, times: times + 1 }
            }
            What::First { sum, times } => What::Load(SmoothedLoad::new((sum + units) / u64::from(times + 1))),
            What::Load(load) => What::Load(load.with(units)),
        };
        Measured { at, what }
    }
}

/// Where a partition's load comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LoadSource {
    /// Its owners have measured it.
    Measured,
    /// An operator has set it.
    Set,
    /// Nobody has measured it: the mean of the others.
    Mean,
    /// The keyspace balances by count, and no operator has set it: 1.
    One,
}

/// How much the partitions of a keyspace count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weights {
    /// By partition; `None` when all count alike.
    pub loads: Option<Vec<u32>>,
    /// Balancing waits until then for loads that are still to be measured, if it does.
    pub waits_until: Option<Instant>,
    /// How many partitions have a measured load.
    pub measured: usize,
}

impl Loads {
    /// Those of a leader that has heard nothing yet.
    pub fn new(now: Instant, state: &State) -> Loads {
        let mut loads = Loads::default();
        state.keyspaces().for_each(|keyspace| loads.keyspace_changed(keyspace, now));
        loads
    }

    /// A keyspace is new, or is run in another way.
    pub(super) fn keyspace_changed(&mut self, keyspace: &Keyspace, now: Instant) {
        match keyspace.policy().balance_by() {
            BalanceBy::Count => self.forget(keyspace.id()),
            BalanceBy::Load => {
                let fresh = || OfKeyspace { since: now, of: BTreeMap::new() };
                self.0.entry(keyspace.id()).or_insert_with(fresh);
            }
        }
    }

    pub(super) fn forget(&mut self, id: KeyspaceId) {
        self.0.remove(&id);
    }

    /// Takes a measurement in, in units a second. It counts when the session owns the partition and the keyspace
    /// balances by load, and at most once in three quarters of `every`; what is above [`MAX_LOAD`] counts as that. True
    /// when plans see another load now.
    pub(super) fn measure(
        &mut self,
        now: Instant,
        every: Duration,
        state: &State,
        session: SessionId,
        key: PartitionKey,
        units: u64,
    ) -> bool {
        let owner = state.partition(key).and_then(crate::state::Partition::owner);
        let Some(known) =
            self.0.get_mut(&key.keyspace).filter(|_| owner == Some(session) || mutant!("loads-from-anybody"))
        else {
            return false;
        };
        let units = units.min(MAX_LOAD.into());
        let Some(before) = known.of.get(&key.partition).copied() else {
            let first = What::First { sum: units, times: 1 };
            known.of.insert(key.partition, Measured { at: now, what: first });
            return false;
        };
        if now.since(before.at) < every * 3 / 4 {
            return false;
        }
        let after = before.with(units, now);
        known.of.insert(key.partition, after);
        after.load() != before.load()
    }

    /// The load that was measured of a partition, smoothed.
    pub fn measured(&self, key: PartitionKey) -> Option<u32> {
        self.0.get(&key.keyspace)?.of.get(&key.partition)?.load()
    }

    /// Where the load of a partition in [`Loads::weights`] comes from.
    pub fn source(&self, keyspace: &Keyspace, partition: PartitionId) -> LoadSource {
        let key = PartitionKey { keyspace: keyspace.id(), partition };
        if keyspace.settings().get(&partition).is_some_and(|set| set.weight.is_some()) {
            LoadSource::Set
        } else if self.measured(key).is_some() {
            LoadSource::Measured
        } else if keyspace.policy().balance_by() == BalanceBy::Count {
            LoadSource::One
        } else {
            LoadSource::Mean
        }
    }

    /// How much each partition of a keyspace counts. What an operator has set goes before what was measured.
    pub fn weights(&self, now: Instant, every: Duration, keyspace: &Keyspace) -> Weights {
        let settings = keyspace.settings();
        let set = |partition: PartitionId| settings.get(&partition).and_then(PartitionSettings::weight);
        let any_set = settings.values().any(|set| set.weight.is_some());
        let partitions = || keyspace.count().partitions();
        if keyspace.policy().balance_by() == BalanceBy::Count {
            let loads = any_set.then(|| partitions().map(|partition| set(partition).unwrap_or(1)).collect());
            return Weights { loads, waits_until: None, measured: 0 };
        }

        let known = self.0.get(&keyspace.id());
        let of = |partition: PartitionId| known?.of.get(&partition)?.load();
        let (mut sum, mut measured) = (0_u64, 0_usize);
        for load in partitions().filter_map(of) {
            sum += u64::from(load);
            measured += 1;
        }
        // Rounded as a load is, so that one that changed does not change all that depend on the mean.
        let mean = if measured == 0 { 1 } else { about(sum / measured as u64) };
        let load = |partition: PartitionId| match set(partition) {
            // A weight says how many others a partition counts as.
            Some(weight) => mean.saturating_mul(weight).min(MAX_LOAD),
            None => of(partition).unwrap_or(mean),
        };
        let in_time = known.map_or(now, |known| known.since) + every * PATIENCE;
        let serves = |phase: &Phase| matches!(phase, Phase::Owned { ready: true, .. } | Phase::Draining(_));
        let mut waited_for = partitions()
            .zip(keyspace.partitions())
            .filter(|(partition, now)| serves(now.phase()) && set(*partition).is_none());
        let waits = now < in_time && waited_for.any(|(partition, _)| of(partition).is_none());
        let waits = waits && !mutant!("loads-not-waited-for");
        // While it waits, too: only a plan by loads can leave balancing out.
        let loads = (any_set || measured > 0 || waits).then(|| partitions().map(load).collect());
        Weights { loads, waits_until: waits.then_some(in_time), measured }
    }
}
