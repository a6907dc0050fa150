//! The leader's loop: makes the leadership of a term, and carries out what it decides.
//!
//! It looks at every tick and whenever an entry was applied, proposes what is due, and waits for all of it before it
//! looks again. So a suspicion is always handed to Raft before the clear that takes it back, and no decision is made
//! twice. Everything is proposed for the leadership's own term only: what a deposed leader decided is refused, not
//! committed by its successor.

use crate::context::Context;
use futures_util::future::join_all;
use ringfence_api::Failure;
use ringfence_core::ids::Term;
use ringfence_core::lead::{Brake, HeldTooLong, Leadership, Settings};
use ringfence_core::mutant;
use ringfence_core::state::{Command, Refusal};
use std::time::Duration;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

/// How often the leader looks when nothing happens. Leases last seconds; a twentieth of one is late enough to be cheap.
const TICK: Duration = Duration::from_millis(20);

/// Leads whenever this node is the leader, until `stop` is cancelled.
pub async fn run(context: Context, settings: Settings, stop: CancellationToken) {
    let mut status = context.raft.status();
    let mut applied = context.replica.applied();
    let mut tick = tokio::time::interval(TICK);
    // After a pause there is one look to catch up with, not as many as ticks were missed.
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let leading = lead(&context, settings, &status.borrow_and_update().clone());
        if let Some(term) = leading {
            let entries = due(&context, term);
            if !entries.is_empty() {
                carry_out(&context, term, entries).await;
                continue;
            }
        }
        tokio::select! {
            () = stop.cancelled() => break,
            _ = tick.tick() => {}
            changed = status.changed() => if changed.is_err() { break },
            changed = applied.changed(), if leading.is_some() => if changed.is_err() { break },
        }
    }
    context.replica.lock().step_down();
}

/// Makes or ends the leadership, as the node's role and what it has applied demand. Returns the term led.
fn lead(context: &Context, settings: Settings, status: &crate::raft::RaftStatus) -> Option<Term> {
    let now = context.clock.now();
    let local = &mut *context.replica.lock();
    if !status.leads() && !mutant!("lessor-kept-across-terms") {
        if local.leadership.is_some() {
            tracing::info!(term = status.term.get(), "no longer the leader");
        }
        local.step_down();
        return None;
    }
    if let Some(led) = &local.leadership {
        if led.term() == status.term {
            return Some(status.term);
        }
        if mutant!("lessor-kept-across-terms") {
            return Some(led.term());
        }
        local.step_down();
    }
    // By the term of the entry, not by its index: an index may hold another leader's entry.
    let of_this_term = local.at.is_some_and(|at| at.term == status.term);
    if !of_this_term && !mutant!("lessor-before-own-entry") {
        return None;
    }
    local.leadership = Some(Leadership::new(status.term, now, &local.state, settings));
    tracing::info!(term = status.term.get(), sessions = local.state.sessions().count(), "leading");
    Some(status.term)
}

fn due(context: &Context, term: Term) -> Vec<Vec<Command>> {
    let now = context.clock.now();
    let local = &mut *context.replica.lock();
    let state = &local.state;
    let Some(leadership) = local.leadership.as_mut().filter(|led| led.term() == term) else {
        return Vec::new();
    };
    let entries = leadership.due(now, state);
    if let Some(Brake { lost, of, window }) = leadership.placing.brake_to_tell(now, state) {
        tracing::error!(
            lost,
            of,
            window_ms = window.as_millis(),
            "THE BRAKE IS ON: {lost} of {of} sessions ran out together, so repairs go on at the budget of moves; look at the \
             network and at this node before the workers, then `ringfence rebalance release-brake`, or wait"
        );
    }
    for HeldTooLong { lock, grant, held } in leadership.locks.held_too_long(now, state) {
        tracing::warn!(
            %lock, worker = %grant.worker, epoch = %grant.epoch, held_ms = held.as_millis(),
            "a lock is held for longer than its holder said; `ringfence lock show {lock}` tells who waits for it"
        );
    }
    entries
}

async fn carry_out(context: &Context, term: Term, entries: Vec<Vec<Command>>) {
    for entry in &entries {
        log(entry);
    }
    // Polled in order, so handed to Raft in order; committed together.
    let proposals = entries.into_iter().map(|commands| context.propose(None, commands, Some(term)));
    let mut failed: Option<Failure> = None;
    for outcome in join_all(proposals).await {
        match outcome {
            Ok(Ok(_)) => {}
            // The state moved on between the look and the entry; the next look sees it.
            Ok(Err(Refusal { why, .. })) => tracing::debug!(%why, "a decision was overtaken"),
            Err(failure) => failed = Some(failure),
        }
    }
    // It says that this node does not lead, or is cut off. Asking again at once would spin.
    if let Some(failure) = failed {
        tracing::debug!(%failure, "a decision was not committed");
        tokio::time::sleep(TICK).await;
    }
}

fn log(entry: &[Command]) {
    for command in entry {
        match command {
            Command::Expire { session, .. } => tracing::info!(%session, "lease ran out"),
            Command::Suspect { sessions } => {
                let longest = sessions.iter().map(|(_, thirds)| *thirds).max().unwrap_or(0);
                tracing::warn!(sessions = sessions.len(), thirds = longest, "silent sessions");
            }
            Command::Clear { sessions } => tracing::info!(sessions = sessions.len(), "heard from again"),
            Command::Seize { partition, epoch, session } => {
                tracing::info!(%partition, %epoch, %session, "taken by fence: its owner's connection is lost");
            }
            Command::SeizeLock { lock, epoch, session } => {
                tracing::info!(%lock, %epoch, %session, "a lock is taken by fence: its holder's connection is lost");
            }
            Command::EndLockCooling { lock, epoch, session } => {
                tracing::info!(%lock, %epoch, %session, "a lost lock has cooled");
            }
            Command::DrainOver { partition, epoch, .. } => {
                tracing::warn!(%partition, %epoch, "its owner did not release it within the drain deadline");
            }
            _ => {}
        }
    }
    let grants = entry.iter().filter(|c| matches!(c, Command::Grant { .. })).count();
    let drains = entry.iter().filter(|c| matches!(c, Command::Drain { .. })).count();
    if grants + drains > 0 {
        tracing::info!(grants, drains, "placing");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raft::{Machine as _, Position, RaftStatus, Role};
    use crate::replica::Replica;
    use crate::testing;
    use ringfence_core::ids::LogIndex;
    use std::sync::Arc;

    #[tokio::test]
    async fn p06_a_leadership_begins_with_an_entry_of_its_own_term_and_ends_with_that_term() {
        let node = testing::alone().await;
        let running = node.context().unwrap();
        let replica = Replica::new(Arc::clone(&running.clock));
        let mut machine = replica.machine();
        // Its replica is fed by hand, and its role is what is said here.
        let context = Context { replica: replica.clone(), ..running };
        let mut apply = |term, index| {
            let at = Position { term: Term::new(term), index: LogIndex::new(index) };
            machine.apply(at, None).unwrap();
        };
        let status = node.raft_status().unwrap();
        let lead_as = |role, term| {
            let status = RaftStatus { role, term: Term::new(term), ..status.clone() };
            lead(&context, Settings::default(), &status).map(Term::get)
        };
        let lead_in = |term| lead_as(Role::Leader, term);
        let led = || replica.lock().leadership.as_ref().map(|led| led.term().get());

        apply(1, 1);
        assert_eq!((lead_in(2), led()), (None, None), "what was committed before may not be applied yet");
        apply(2, 2);
        assert_eq!((lead_in(2), led()), (Some(2), Some(2)));

        assert_eq!((lead_in(4), led()), (None, None), "somebody led in term 3, and renewed leases");
        apply(4, 3);
        assert_eq!((lead_in(4), led()), (Some(4), Some(4)));

        apply(5, 4);
        assert_eq!(led(), None, "an entry of a later term ends it, whatever this node's role is said to be");
        apply(6, 5);
        assert_eq!((lead_in(6), led()), (Some(6), Some(6)));
        assert_eq!((lead_as(Role::Follower, 6), led()), (None, None));
    }
}
