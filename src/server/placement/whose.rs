//! Who decided something, when and why: in half a sentence, for refusals and for what is told of freezes and plans.

use crate::refusal;
use ringfence_api::convert::Directive;
use ringfence_core::ids::{KeyspaceId, LogIndex, PartitionKey, WorkerId};
use ringfence_core::state::{ApprovedPlan, Keyspace, PLANS_LEN, PlanStage, State, Subject};
use std::time::{Duration, UNIX_EPOCH};

/// `ada at 2026-11-30T14:57:30Z (one more worker)`.
pub(crate) fn whose(state: &State, at: LogIndex) -> String {
    let Directive { by, unix_ms, reason, .. } = Directive::named(state, at);
    let by = if by.is_empty() { "somebody who is not remembered" } else { &by };
    let reason = if reason.is_empty() { String::new() } else { format!(" ({reason})") };
    match moment(unix_ms) {
        Some(moment) => format!("{by} at {moment}{reason}"),
        None => format!("{by}{reason}"),
    }
}

/// A moment of the leader's wall clock; `None` when there is none, or no calendar has it.
fn moment(unix_ms: u64) -> Option<String> {
    const LAST: Duration = Duration::from_secs(253_402_300_799);
    let since = Some(Duration::from_millis(unix_ms)).filter(|since| !since.is_zero() && *since <= LAST)?;
    Some(humantime::format_rfc3339_seconds(UNIX_EPOCH + since).to_string())
}

/// `plan 330 is being carried out, by ada at ...`: what another plan waits for.
pub(crate) fn running(plan: LogIndex, state: &State) -> String {
    let (id, by) = (plan.get(), whose(state, plan));
    format!(
        "plan {id} is being carried out; it was applied by {by}: wait for it (`ringfence rebalance status`), or cancel it \
         (`ringfence rebalance cancel`)"
    )
}

/// Why a plan that was being written is there no more.
pub(crate) fn gone(plan: LogIndex, state: &State) -> String {
    let id = plan.get();
    let after = || state.plans().filter(|next| next.id > plan);
    let known = first_is_known(after().map(|next| next.stage));
    let next = after().next().map(|next: &ApprovedPlan| next.id);
    let stopped = state.directives().rev().find(|directive| directive.what == stop(plan)).map(|stop| stop.at);
    match (next, stopped) {
        (_, Some(stopped)) => {
            format!("plan {id} was cancelled by {} before it had started", whose(state, stopped))
        }
        (Some(_), None) if !known => format!(
            "plan {id} is not remembered: it was given up before it had started, or {PLANS_LEN} others have started since; plan \
             again"
        ),
        (Some(next), None) => format!(
            "plan {id} had not started when plan {} was put in its place, by {}: of two that are applied at once the later \
             goes on",
            next.get(),
            whose(state, next)
        ),
        (None, None) => format!(
            "plan {id} is not remembered: it was given up before it had started, because a piece of it was refused; plan again"
        ),
    }
}

/// Whether the first of the plans that are remembered after another one, at these stages, is the one that came after it: of those
/// that have started only so many are remembered, and when all of them are younger, others may have been in between.
fn first_is_known(after: impl Iterator<Item = PlanStage>) -> bool {
    after.filter(|stage| *stage != PlanStage::Open).count() < PLANS_LEN
}

/// What a directive says that stops a plan.
pub(crate) fn stop(plan: LogIndex) -> String {
    format!("stop plan {}", plan.get())
}

/// `keyspace orders is frozen, by ada at ... (incident 42)`, and how it is unfrozen.
pub(crate) fn frozen(what: &Subject, state: &State) -> String {
    format!("{} {}", named(what, state).0, is_frozen(what, state))
}

/// The same without the name.
pub(crate) fn is_frozen(what: &Subject, state: &State) -> String {
    let verb = named(what, state).1;
    let by = freeze_of(what, state).map_or(String::new(), |at| format!(", by {}", whose(state, at)));
    format!("is frozen{by}: no planned move begins there; unfreeze it first (`ringfence unfreeze {verb}`)")
}

/// `partition orders/3 is pinned to worker w7, by ada at ..., which takes it back`, and what to do.
pub(crate) fn pinned(key: PartitionKey, to: &WorkerId, state: &State) -> String {
    let name = refusal::partition(key, state);
    format!(
        "partition {name} is pinned to worker {to}{}, which would take it back: unpin it (`ringfence partition unpin {name}`), or \
         pin it to another worker",
        pinned_by(key, state)
    )
}

/// `, by ada at ...`: who pinned a partition.
pub(crate) fn pinned_by(key: PartitionKey, state: &State) -> String {
    let set = state.keyspace(key.keyspace).and_then(|keyspace| keyspace.settings().get(&key.partition));
    let pin = set.and_then(|set| set.pin.as_ref());
    pin.map_or(String::new(), |(_, by)| format!(", by {}", whose(state, *by)))
}

/// The cluster and the keyspace, as far as they are frozen: what keeps all of the keyspace from being moved.
pub(crate) fn frozen_whole(id: KeyspaceId, state: &State) -> Vec<Subject> {
    let cluster = state.frozen().map(|_| Subject::Cluster);
    let keyspace = state.keyspace(id).and_then(Keyspace::frozen).map(|_| Subject::Keyspace(id));
    cluster.into_iter().chain(keyspace).collect()
}

/// `the cluster and keyspace orders are frozen`.
pub(crate) fn in_short(whole: &[Subject], state: &State) -> String {
    let names = whole.iter().map(|what| named(what, state).0).collect::<Vec<_>>().join(" and ");
    format!("{names} {} frozen", if whole.len() == 1 { "is" } else { "are" })
}

fn freeze_of(what: &Subject, state: &State) -> Option<LogIndex> {
    match what {
        Subject::Cluster => state.frozen(),
        Subject::Keyspace(id) => state.keyspace(*id)?.frozen(),
        Subject::Partition(key) => state.keyspace(key.keyspace)?.settings().get(&key.partition)?.frozen,
        Subject::Worker(worker) => state.worker_settings().get(worker)?.frozen,
        Subject::Lock(_) => None,
    }
}

/// How people call it, and how a command does.
fn named(what: &Subject, state: &State) -> (String, String) {
    let keyspace = |id: &KeyspaceId| {
        state.keyspace(*id).map_or_else(|| id.to_string(), |keyspace| keyspace.name().to_string())
    };
    match what {
        Subject::Cluster => ("the cluster".to_owned(), "cluster".to_owned()),
        Subject::Keyspace(id) => twice(format!("keyspace {}", keyspace(id))),
        Subject::Partition(key) => {
            twice(format!("partition {}/{}", keyspace(&key.keyspace), key.partition.get()))
        }
        Subject::Worker(worker) => twice(format!("worker {worker}")),
        Subject::Lock(name) => twice(format!("lock {name}")),
    }
}

fn twice(name: String) -> (String, String) {
    (name.clone(), name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_said_to_be_replaced_only_by_one_that_is_known_to_be_the_next() {
        use PlanStage::{Done, Open, Running};
        for (after, known) in [
            (&[Open][..], true),
            (&[Running], true),
            (&[Done, Open], true),
            (&[Done, Running], false),
            (&[Done, Done, Open], false),
        ] {
            assert_eq!(first_is_known(after.iter().copied()), known, "{after:?}");
        }
    }

    #[test]
    fn a_moment_is_told_in_a_form_that_sorts_and_none_is_left_out() {
        assert_eq!(moment(1_796_050_650_123).as_deref(), Some("2026-11-30T14:57:30Z"));
        assert_eq!((moment(0), moment(u64::MAX)), (None, None));
    }
}
