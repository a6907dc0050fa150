//! An operator takes a lock from whoever holds it.
//!
//! What is broken is what was looked at: each command names the epoch that it ends, so a lock that has been granted anew
//! meanwhile is left alone, and that is said.

use crate::admin::request::{Answer, run};
use crate::context::Context;
use crate::placement::directive::{direct, said};
use ringfence_api::Failure;
use ringfence_api::convert::{LockHolder, MAX_LOCK_TOLD, RequestId, checked};
use ringfence_api::v1::{self, BreakLockRequest, BreakLockResponse};
use ringfence_core::ids::{Epoch, LockName};
use ringfence_core::state::{Command, LockGrant, State, Subject};
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// What an operator wants to end.
struct Wanted {
    lock: LockName,
    epoch: Option<Epoch>,
    at_once: bool,
}

pub(super) async fn break_lock(
    context: &Context,
    request: BreakLockRequest,
) -> Result<BreakLockResponse, Failure> {
    let wanted = Wanted {
        lock: checked::lock_name("lock", &request.lock)?,
        epoch: checked::epoch_or_none("epoch", request.epoch)?,
        at_once: request.at_once,
    };
    if request.dry_run {
        context.confirm().await?;
        let local = context.replica.lock();
        let holders = told(&local.state, &grants(&local.state, &wanted)?);
        return Ok(BreakLockResponse { holders, before: false });
    }
    let id = RequestId::try_from(request.request)?;
    let given = said(&context.replica.lock().state, request.directive);
    let what = in_words(&wanted);
    let holders = Mutex::new(Vec::new());
    let answer = run(context, id, |local| {
        let ends = grants(&local.state, &wanted)?;
        *holders.lock().unwrap_or_else(PoisonError::into_inner) = told(&local.state, &ends);
        let epochs: BTreeSet<Epoch> = ends.iter().map(|grant| grant.epoch).collect();
        let (lock, at_once) = (&wanted.lock, wanted.at_once);
        let breaks = epochs.into_iter().map(|epoch| Command::BreakLock {
            lock: lock.clone(),
            epoch: Some(epoch),
            at_once,
        });
        let directive = given.as_ref().map(|given| direct(Subject::Lock(lock.clone()), given, &what));
        Ok(directive.into_iter().chain(breaks).collect())
    });
    let answer = answer.await?;
    if !answer.changed() {
        return Err(Failure::refused(format_args!(
            "lock {} was given back or lost while it was to be broken; look at it again: ringfence lock show {0}",
            wanted.lock
        )));
    }
    match answer {
        Answer::Now { .. } => {
            let by = given.as_ref().map(|given| given.by.as_str()).unwrap_or_default();
            let reason = given.as_ref().map(|given| given.reason.as_str()).unwrap_or_default();
            tracing::warn!(by = ?by, reason = ?reason, "an operator: {what}");
            let holders = holders.into_inner().unwrap_or_else(PoisonError::into_inner);
            Ok(BreakLockResponse { holders, before: false })
        }
        Answer::Before(_) | Answer::Nothing => Ok(BreakLockResponse { holders: Vec::new(), before: true }),
    }
}

/// What would be ended: what is held, and with `at_once` what cools as well.
fn grants<'a>(state: &'a State, wanted: &Wanted) -> Result<Vec<&'a LockGrant>, Failure> {
    let Wanted { lock: name, epoch, at_once } = wanted;
    let all = state.lock(name).map_or(&[][..], |lock| &lock.grants);
    let may_end: Vec<&LockGrant> = all.iter().filter(|grant| *at_once || grant.cooling.is_none()).collect();
    let ends: Vec<&LockGrant> =
        may_end.iter().copied().filter(|grant| epoch.is_none_or(|epoch| grant.epoch == epoch)).collect();
    if !ends.is_empty() {
        return Ok(ends);
    }
    Err(Failure::refused(match (epoch, may_end.first()) {
        (Some(epoch), Some(grant)) => format!(
            "lock {name} is held under {}, by worker {}, and not under {epoch}; look at it again: ringfence lock show {name}",
            grant.epoch, grant.worker
        ),
        (_, None) if !all.is_empty() => format!(
            "nobody holds lock {name}: whoever lost it last may still believe in it, and the next one waits for that; to wait \
             for nothing, break it at once"
        ),
        _ => format!("nobody holds lock {name}"),
    }))
}

fn told(state: &State, grants: &[&LockGrant]) -> Vec<v1::LockHolder> {
    let told = grants.iter().take(MAX_LOCK_TOLD);
    told.map(|grant| LockHolder::read(state, grant).into()).collect()
}

fn in_words(wanted: &Wanted) -> String {
    let Wanted { lock, epoch, at_once } = wanted;
    let under = epoch.map_or(String::new(), |epoch| format!(" under {epoch}"));
    let how = if *at_once { ", at once" } else { "" };
    format!("break lock {lock}{under}{how}")
}
