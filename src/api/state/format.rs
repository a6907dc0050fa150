//! The format version that every entry and every snapshot begins with.
//!
//! What is written has the lowest format that can say it: nodes of two versions go on together until something new is
//! used, and only then does the older one stop.

use super::error::DecodeError;
use crate::v1;
use prost::Message;
use ringfence_core::ids::{Epoch, EpochFloor};
use ringfence_core::state::{
    BalanceBy, Command, CoolingWhy, EndReason, GrantReason, KeyspaceParts, Outcome, PartitionParts, Phase,
    Policy, PolicyChange, Released, StateParts,
};

/// The newest format that this version writes and reads. It reads all earlier ones.
///
/// 1 is frozen. 2: what operators decide ([`Command::Direct`] and those after it), splits among it, and what follows from
/// that. No release has written 2: until one does, what it means may change under the same number, and from then on it is
/// frozen too.
pub const FORMAT: u32 = 2;

/// The message in these bytes, once its format is one that this version reads.
///
/// The format is looked at before anything else: a newer format may well be a message that reads as an older one, with
/// what is new in it passed over.
pub(super) fn read<M: Message + Default>(what: &'static str, bytes: &[u8]) -> Result<M, DecodeError> {
    let damaged = |e: prost::DecodeError| DecodeError::Damaged { what, why: e.to_string() };
    let found = v1::StateFormat::decode(bytes).map_err(damaged)?.format;
    if !(1..=FORMAT).contains(&found) {
        return Err(DecodeError::Format { what, found, reads: FORMAT });
    }
    M::decode(bytes).map_err(damaged)
}

/// The lowest format that can say these commands.
pub(super) fn format_of_entry(commands: &[Command]) -> u32 {
    lowest(!commands.iter().any(command_is_new))
}

/// The lowest format that can say this state.
pub(super) fn format_of_state(parts: &StateParts) -> u32 {
    let StateParts { directives, worker_settings, frozen, plans, .. } = parts;
    let StateParts { keyspaces, sessions, ended, answers, refusals, reasserts, .. } = parts;
    let directed =
        !(directives.is_empty() && worker_settings.is_empty() && plans.is_empty()) || frozen.is_some();
    let answered = answers
        .iter()
        .map(|answer| &answer.outcomes)
        .chain(sessions.iter().flat_map(|session| session.answers.iter().map(|(_, outcomes)| outcomes)))
        .flatten()
        .any(|outcome| matches!(outcome, Outcome::Planned(_) | Outcome::Queued(_)));
    let evicted = ended.iter().any(|ended| ended.why == EndReason::Evicted || ended.life.is_some());
    let splits = sessions.iter().any(|session| session.splits || session.keyspaces.is_empty());
    let locked = parts.lock_epoch != EpochFloor::NONE || !parts.locks.is_empty();
    let told = !refusals.is_empty() || !reasserts.is_empty();
    lowest(
        !directed
            && !answered
            && !evicted
            && !splits
            && !locked
            && !told
            && !keyspaces.iter().any(keyspace_is_new),
    )
}

fn lowest(first_says_it: bool) -> u32 {
    if first_says_it { 1 } else { 2 }
}

fn command_is_new(command: &Command) -> bool {
    match command {
        Command::CreateKeyspace { policy, .. } => policy_is_new(policy),
        Command::UpdateKeyspace { change, .. } => {
            let PolicyChange { moves_per_minute, rejoin_hold, spread_zones, constraints, balance_by, .. } =
                change;
            moves_per_minute.is_some()
                || rejoin_hold.is_some()
                || spread_zones.is_some()
                || constraints.is_some()
                || balance_by.is_some()
        }
        Command::Grant { why, .. } | Command::Drain { why, .. } => reason_is_new(*why),
        Command::Release { how, .. } => matches!(how, Released::Restarting | Released::Behind(_)),
        Command::Join(join) => join.splits || join.ends_drain.is_some() || join.ttl.is_some(),
        Command::FormCluster { .. }
        | Command::NoteNode { .. }
        | Command::DeleteKeyspace { .. }
        | Command::Withdraw { .. }
        | Command::Leave { .. }
        | Command::Suspect { .. }
        | Command::Clear { .. }
        | Command::Expire { .. }
        | Command::RevokeSeen { .. }
        | Command::DrainOver { .. }
        | Command::Seize { .. }
        | Command::Ready { .. }
        | Command::EndCooling { .. } => false,
        Command::Forgive { .. }
        | Command::Direct { .. }
        | Command::Under { .. }
        | Command::SetWorker { .. }
        | Command::ForgetWorker { .. }
        | Command::SetPartition { .. }
        | Command::Freeze { .. }
        | Command::OpenPlan { .. }
        | Command::ExtendPlan { .. }
        | Command::SkipPlanned { .. }
        | Command::CancelPlan { .. }
        | Command::Evict { .. }
        | Command::StartSplit { .. }
        | Command::CancelSplit { .. }
        | Command::Split { .. }
        | Command::NoteRefusals { .. }
        | Command::Reassert { .. }
        | Command::EndReassert { .. }
        | Command::RaiseAbove { .. }
        | Command::AcquireLock { .. }
        | Command::ReleaseLock { .. }
        | Command::AbandonLock { .. }
        | Command::SeizeLock { .. }
        | Command::BreakLock { .. }
        | Command::EndLockCooling { .. } => true,
    }
}

fn policy_is_new(policy: &Policy) -> bool {
    policy.moves_per_minute() > 0
        || !policy.rejoin_hold().is_zero()
        || !policy.spread_zones()
        || !policy.constraints().is_empty()
        || policy.balance_by() == BalanceBy::Load
}

fn reason_is_new(why: GrantReason) -> bool {
    match why {
        GrantReason::First
        | GrantReason::Failover
        | GrantReason::Vacated
        | GrantReason::Balance
        | GrantReason::Operator => false,
        GrantReason::Join
        | GrantReason::Drain
        | GrantReason::Weight
        | GrantReason::Zone
        | GrantReason::Pin
        | GrantReason::Load
        | GrantReason::Label
        | GrantReason::Plan
        | GrantReason::Returned
        | GrantReason::Split
        | GrantReason::Reassert
        | GrantReason::Behind => true,
    }
}

fn keyspace_is_new(keyspace: &KeyspaceParts) -> bool {
    let KeyspaceParts { policy, settings, frozen, split, partitions, raised, .. } = keyspace;
    policy_is_new(policy)
        || !settings.is_empty()
        || frozen.is_some()
        || split.is_some()
        || !raised.is_empty()
        || partitions.iter().any(partition_is_new)
}

fn partition_is_new(partition: &PartitionParts) -> bool {
    let phase = match &partition.phase {
        Phase::Cooling(cooling) => cooling.why == CoolingWhy::Hold,
        Phase::Draining(drain) => drain.directive.is_some() || reason_is_new(drain.why),
        Phase::Vacant | Phase::Owned { .. } => false,
    };
    phase
        || partition.born.is_some()
        || split_epoch(partition).is_some()
        || partition.history.iter().any(|tenure| tenure.directive.is_some() || reason_is_new(tenure.why))
}

/// The epoch that a split minted since the partition's last grant. One that was never granted has it as what it stands at.
pub(super) fn split_epoch(partition: &PartitionParts) -> Option<Epoch> {
    let last = partition.history.last()?;
    partition.epoch.epoch().filter(|epoch| *epoch > last.epoch)
}
