//! Splitting a keyspace's partitions: which are split now, and whose turn is next.
//!
//! Partitions are split in the order of their numbers, for that is how the hash grows. One that nobody owns is split at
//! once, and all that follow it in a row. One that has an owner is drained to that very worker, and is split when it
//! comes back: the release, the split and the grants of both halves are one entry, so the gap is that of one handoff.
//!
//! What a leader does follows from the state alone, so the next one goes on where it stopped.

use super::MAX_COMMANDS;
use super::budget::Budget;
use super::picture::standing;
use crate::ids::{Epoch, EpochFloor, PartitionId, PartitionKey, SessionId};
use crate::mutant;
use crate::placement::WorkerStanding;
use crate::state::{Command, GrantReason, Keyspace, Partition, Phase, State};
use crate::time::Instant;
use std::collections::BTreeSet;
use std::ops::Range;

/// No split goes on in this keyspace: an operator has frozen it, or everything.
fn is_frozen(state: &State, keyspace: &Keyspace) -> bool {
    (state.frozen().is_some() || keyspace.frozen().is_some()) && !mutant!("split-through-freeze")
}

/// The partitions that nobody owns and that are split at this look. They are granted at the next.
pub(super) fn ownerless(keyspace: &Keyspace, cluster_floor: EpochFloor, frozen: bool) -> Range<u32> {
    let Some(first) = keyspace.next_to_split().filter(|_| !frozen) else { return 0..0 };
    let floor = cluster_floor.max(keyspace.floor());
    let splits = |partition: &&Partition| {
        let ownerless = matches!(partition.phase(), Phase::Vacant | Phase::Cooling(_));
        ownerless && partition.epoch.max(floor).next().is_some()
    };
    let (from, to) = (first.get() as usize, keyspace.partitioner().base().get() as usize);
    let whose_turn_it_is = keyspace.partitions().get(from..to).into_iter().flatten();
    // One place of the entry is for its directive.
    let row = whose_turn_it_is.take(MAX_COMMANDS - 1).take_while(splits).count();
    first.get()..first.get() + u32::try_from(row).unwrap_or(0)
}

/// The commands that follow the release of a partition whose turn it is: the split, and the grants of both halves to the
/// worker that was to have it. `None` when it is not its turn.
pub(super) fn at_release(
    state: &State,
    key: PartitionKey,
    to: SessionId,
    why: GrantReason,
) -> Option<Vec<Command>> {
    let keyspace = state.keyspace(key.keyspace).filter(|keyspace| !is_frozen(state, keyspace))?;
    keyspace.next_to_split().filter(|next| *next == key.partition)?;
    let epoch = state.partition(key)?.epoch();
    let child = PartitionKey { partition: keyspace.partitioner().next_child(), ..key };
    // The parent's and the child's alike: the child's epochs begin at what the split mints.
    let replaces = state.next_epoch(key)?;
    let grant = |partition, why| Command::Grant { partition, replaces: Some(replaces), to, why };
    let split = Command::Split { partition: key, epoch };
    Some(vec![split, grant(key, why), grant(child, GrantReason::Split)])
}

/// The commands that bring every split a step further. What has an owner is asked for only while all is `calm`.
pub(super) fn due(
    now: Instant,
    state: &State,
    absent: &BTreeSet<SessionId>,
    calm: bool,
    budget: &mut Budget,
) -> Vec<Vec<Command>> {
    let mut entries = Vec::new();
    for keyspace in state.keyspaces() {
        let Some(directive) = keyspace.split().filter(|_| !is_frozen(state, keyspace)) else { continue };
        if keyspace.partitioner().is_midway() && mutant!("split-stops-midway") {
            continue;
        }
        let id = keyspace.id();
        let row = ownerless(keyspace, state.floor(), false);
        let step: Vec<Command> = if row.is_empty() {
            drain(now, state, keyspace, absent, budget).filter(|_| calm).into_iter().collect()
        } else {
            let keys = row.map(|number| PartitionKey { keyspace: id, partition: PartitionId::new(number) });
            keys.map(|key| Command::Split { partition: key, epoch: epoch_of(state, key) }).collect()
        };
        if let [Command::Drain { partition, .. }] = step[..] {
            budget.begins(keyspace, partition, now);
        }
        if !step.is_empty() {
            entries.push(std::iter::once(Command::Under { directive }).chain(step).collect());
        }
    }
    entries
}

fn epoch_of(state: &State, key: PartitionKey) -> Option<Epoch> {
    state.partition(key).and_then(Partition::epoch)
}

/// Asks the owner of the partition whose turn it is to give it back for a moment. It waits for the budget, for an owner
/// that would not learn of it, and for what an operator has frozen.
fn drain(
    now: Instant,
    state: &State,
    keyspace: &Keyspace,
    absent: &BTreeSet<SessionId>,
    budget: &mut Budget,
) -> Option<Command> {
    let key = PartitionKey { keyspace: keyspace.id(), partition: keyspace.next_to_split()? };
    let partition = state.partition(key)?;
    let Phase::Owned { session, .. } = partition.phase() else { return None };
    let owner = state.session(*session)?;
    let owners = standing(state, keyspace, owner, absent);
    if keyspace.settings().get(&key.partition).is_some_and(|set| set.frozen.is_some())
        || owners == WorkerStanding::Away
        || owners.is_frozen()
        || !budget.has_room_for(keyspace, key, now)
    {
        return None;
    }
    Some(Command::Drain {
        partition: key,
        epoch: partition.epoch()?,
        to: owner.worker().clone(),
        deadline: keyspace.policy().drain_deadline(),
        why: GrantReason::Split,
    })
}
