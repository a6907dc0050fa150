//! A worker gives up all it has, and is safe to stop.

use super::known;
use super::set::{SET, SetShape, would_change};
use crate::args::Common;
use crate::exit::{Exit, Failed, Outcome};
use crate::operator::{Progress, Sure, Who, planned, result};
use crate::settings::by;
use crate::text::{plain, short};
use ringfence::admin::{Admin, Settings, WorkerChange, WorkerDetail};
use ringfence::ids::WorkerId;
use std::io::{self, Write as _};
use std::time::Duration;

pub(super) const AFTER_HELP: &str = "\
Its partitions go to others by planned moves, within the budget of each keyspace. It stays drained, also when its process is
stopped and another of its name joins, until `ringfence worker undrain`; with --until-join it ends with the next process of that
name that joins. What is frozen or pinned, or has nowhere else to go, stays with it; `ringfence rebalance plan` says so.

A drain is asked about on a terminal; elsewhere it needs --yes.

Examples:
  ringfence worker drain worker-3 --reason 'new kernel'
  ringfence worker drain worker-3 --until-join --wait 60s --yes        # in a stop hook
  ringfence worker drain worker-3 --check && systemctl stop worker-3";

/// Between two looks at a worker that drains.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Drains a worker, and waits for so long until it may be stopped.
pub(super) async fn drain(
    common: &Common,
    worker: &WorkerId,
    until_join: bool,
    wait: Option<Duration>,
    who: &Who,
    sure: Sure,
) -> Outcome {
    sure.or_terminal(who.dry_run)?;
    let admin = who.admin(common);
    let before = known(&admin, worker).await?;
    let change = if until_join {
        WorkerChange { drained_until_join: Some(true), ..WorkerChange::default() }
    } else {
        WorkerChange { drained: Some(true), ..WorkerChange::default() }
    };
    let would = would_change(before.as_ref().map(|detail| &detail.settings), &change);
    let output = common.output();
    if who.dry_run {
        let shape = SetShape::new(planned(would), worker, before.as_ref());
        output.show(&shape, || shape.sentence())?;
        return Ok(Exit::Done);
    }
    if before.is_none() {
        // Whoever closed it does not want to hear it.
        let _ = writeln!(io::stderr(), "note: {}", nobody(worker));
    }
    if would {
        sure.ask(&question(worker, before.as_ref(), until_join))?;
    }
    let mut result = result(admin.set_worker(worker, &change).await?);
    if before.as_ref().is_some_and(|detail| detail.partitions > 0) {
        // It is drained all the same when this cannot be read.
        for frozen in admin.settings().await.iter().flat_map(held_by) {
            let _ = writeln!(io::stderr(), "note: {frozen}");
        }
    }
    let detail = match wait {
        Some(limit) => {
            result = "drained";
            Some(until_it_may_stop(&admin, worker, before.as_ref(), limit).await?)
        }
        None => known(&admin, worker).await.map_err(|error| Failed::from(error).after_a_change(SET))?,
    };
    let shape = SetShape::new(result, worker, detail.as_ref());
    output.changed(result, &shape, || shape.sentence())?;
    Ok(Exit::Done)
}

/// The freezes under which a drained worker keeps what it has, and how each is ended.
fn held_by(settings: &Settings) -> Vec<String> {
    let cluster =
        settings.cluster_frozen.iter().map(|by| ("the cluster is".to_owned(), by, "cluster".to_owned()));
    let keyspaces = settings.keyspaces_frozen.iter().map(|(keyspace, by)| {
        (format!("what it has of keyspace {keyspace}, if any, is"), by, format!("keyspace {keyspace}"))
    });
    cluster
        .chain(keyspaces)
        .map(|(what, directive, name)| {
            let by = plain(&by(directive));
            format!("{what} frozen ({by}), and stays where it is until `ringfence unfreeze {name}`")
        })
        .collect()
}

/// A name with a slip of the pen in it is a worker that nobody has seen, and may be stopped at once.
fn nobody(worker: &WorkerId) -> String {
    format!(
        "no worker {worker} is known: this drains one that joins under that name; `ringfence worker list` has the names of those that \
         are there"
    )
}

fn question(worker: &WorkerId, detail: Option<&WorkerDetail>, until_join: bool) -> String {
    let until = if until_join { "it joins again" } else { "it is undrained" };
    match detail {
        Some(WorkerDetail { session: Some(_), partitions, .. }) => {
            format!(
                "This takes all {partitions} partitions away from worker {worker}, and it gets none until {until}."
            )
        }
        _ => format!("Worker {worker} has no session now; it will get nothing until {until}."),
    }
}

async fn until_it_may_stop(
    admin: &Admin,
    worker: &WorkerId,
    before: Option<&WorkerDetail>,
    limit: Duration,
) -> Result<WorkerDetail, Failed> {
    let all = before.map_or(0, |detail| detail.partitions);
    let mut last = None;
    let mut progress = Progress::new();
    let looked = tokio::time::timeout(limit, async {
        loop {
            match admin.worker(worker).await {
                Ok(detail) if detail.may_stop() => return Ok(detail),
                Ok(detail) if detail.settings.drain().is_none() => return Err(undrained(worker)),
                Ok(detail) => {
                    let gone = all.saturating_sub(detail.partitions);
                    progress.show(gone.into(), all.into(), "partitions gone");
                    last = Some(detail);
                }
                // The next leader knows of it too.
                Err(error) if error.is_retryable() => {}
                Err(error) => return Err(Failed::from(error)),
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    });
    match looked.await {
        Ok(looked) => looked,
        Err(_) => Err(Failed::timeout(left(worker, last.as_ref(), limit))),
    }
}

/// What was waited for does not come any more.
fn undrained(worker: &WorkerId) -> Failed {
    Failed::refused(format!(
        "worker {worker} is not drained any more: it has joined again, or somebody has undrained it; see `ringfence worker history \
         {worker}` and `ringfence directives`"
    ))
}

/// What is left after so long, and where to look.
fn left(worker: &WorkerId, last: Option<&WorkerDetail>, limit: Duration) -> String {
    let after = short(limit);
    match last {
        None => format!("worker {worker} is drained, and could not be looked at within {after}"),
        Some(detail) => format!(
            "worker {worker} still holds {} partitions, and {} are on their way to it, after {after}; it stays drained; \
             `ringfence rebalance plan` and `ringfence settings` say what keeps them",
            detail.partitions, detail.arriving
        ),
    }
}

/// Says whether a worker's process may be stopped, in the exit code too.
pub(super) async fn check(common: &Common, worker: &WorkerId) -> Outcome {
    let detail = common.admin().worker(worker).await?;
    let (result, exit) = if detail.may_stop() { ("may_stop", Exit::Done) } else { ("not_yet", Exit::Failed) };
    let shape = SetShape::new(result, worker, Some(&detail));
    common.output().show(&shape, || verdict(worker, &detail))?;
    Ok(exit)
}

fn verdict(worker: &WorkerId, detail: &WorkerDetail) -> String {
    let WorkerDetail { partitions, arriving, settings, .. } = detail;
    if detail.may_stop() {
        return format!("worker {worker} holds nothing and gets nothing: it may be stopped\n");
    }
    if *partitions == 0 && *arriving == 0 && settings.drain().is_none() {
        return format!(
            "worker {worker} holds nothing, and may get something at any time: it is not drained\n"
        );
    }
    format!("worker {worker} holds {partitions} partitions, and {arriving} are on their way to it: not yet\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_nobody_has_seen_is_told_from_one_that_is_there() {
        let worker = WorkerId::new("w1").unwrap();
        assert!(question(&worker, None, false).contains("has no session now"));
        assert!(left(&worker, None, Duration::from_secs(60)).contains("within 1m"));
    }
}
