//! `ringfence drill`: the proof of the fence for a cluster of one's own.

use crate::args::Common;
use crate::exit::{Exit, Failed, Outcome};
use crate::operator::{Sure, Who};
use crate::output::properties;
use crate::shape::ms;
use crate::text::{plain, short};
use clap::Args;
use ringfence::admin::{Drill, DrillMode, DrillPlan, DrillReport, HeldWrite, Verdict};
use ringfence::ids::{KeyspaceName, PartitionId, Scope, WorkerId};
use serde::Serialize;
use std::str::FromStr;
use std::time::Duration;

/// How long a drill may take, unless it is said.
const TIMEOUT: Duration = Duration::from_secs(60);

const AFTER_HELP: &str = "\
A worker that was built with `allow_drill` makes one probe write, stamps a second one, and holds it. Its partition goes to
another worker, under a higher epoch. When that one is ready the held write is sent, and your storage has to refuse it.

What moves:
  without --stall   one partition, once, by a planned move. Nobody waits for a lease. Fit for production, at night too.
  with --stall      the worker stops renewing, as if its process stood still. ITS LEASE RUNS OUT, AND ALL OF ITS
                    PARTITIONS, OF ALL ITS KEYSPACES, GO TO OTHERS; nobody serves them for about a TTL. It joins anew when
                    the drill is over. The strongest proof; it is asked about on a terminal, and needs --yes elsewhere.

Its time:
  --timeout, 1s to 30m [default: 60s], bounds the whole drill, its probe writes too. With --stall it is at least twice the
  worker's TTL, which has to run out first. The worker keeps this bound by itself.

Ctrl-C ends a drill: the held write is dropped, unless it was on its way already, and the worker goes back to work. So does
a change of leader.

Exit codes: 0 the storage refused the stale write, and nothing stale was accepted; 1 it did not, or the drill could not be
run; 2 bad usage. How to make it part of a rollout: docs/drill.md.

Examples:
  ringfence drill orders
  ringfence drill orders/17 --dry-run
  ringfence drill orders --worker worker-3 --stall --yes --timeout 2m -o json";

/// Arguments of `ringfence drill`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct DrillArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// What to drill; without a partition, one of the worker's, or of the worker that owns the fewest
    #[arg(value_name = "KEYSPACE[/PARTITION]")]
    target: Target,
    /// The worker that is replaced [default: whoever owns the partition]
    #[arg(long, value_name = "WORKER")]
    worker: Option<WorkerId>,
    /// Let the worker's lease run out, which costs it all of its partitions, instead of moving one
    #[arg(long)]
    stall: bool,
    #[command(flatten)]
    sure: Sure,
    #[command(flatten)]
    who: Who,
}

/// `orders` or `orders/17`
#[derive(Clone, Debug, PartialEq, Eq)]
struct Target {
    keyspace: KeyspaceName,
    partition: Option<PartitionId>,
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Target, String> {
        if !text.contains('/') {
            let keyspace = text.parse().map_err(|error| format!("{error}"))?;
            return Ok(Target { keyspace, partition: None });
        }
        match text.parse() {
            Ok(Scope::Partition(keyspace, partition)) => Ok(Target { keyspace, partition: Some(partition) }),
            Ok(Scope::Lock(_)) => {
                Err("it is written KEYSPACE or KEYSPACE/PARTITION, such as orders/17".to_owned())
            }
            Err(error) => Err(error.to_string()),
        }
    }
}

/// What a drill found, or would do.
#[derive(Debug, Serialize)]
struct DrillShape {
    /// `fenced`, `stale_write_accepted`, `stale_read_accepted`, `unproven`, or `planned`.
    result: &'static str,
    keyspace: String,
    partition: u32,
    /// `move` or `stall`.
    mode: &'static str,
    old_worker: String,
    old_session: u64,
    old_epoch: u64,
    /// Before a drill: to whom the partition would be moved.
    new_worker: Option<String>,
    new_session: Option<u64>,
    new_epoch: Option<u64>,
    /// How many partitions the old owner gives up.
    partitions_moved: u32,
    /// The old owner's lease.
    ttl_ms: u64,
    refused_writes: Option<u32>,
    accepted_stale_writes: Option<u32>,
    /// Held writes of which nobody knows what became.
    unknown_writes: Option<u32>,
    /// Why not.
    error: Option<String>,
    stale_reads_refused: Option<u32>,
    stale_reads_accepted: Option<u32>,
    gap_ms: Option<u64>,
    /// What it means, for people.
    means: &'static str,
    /// What to do about it; `null` when there is nothing to do.
    what_to_do: Option<&'static str>,
}

impl From<&DrillPlan> for DrillShape {
    fn from(plan: &DrillPlan) -> DrillShape {
        DrillShape {
            result: "planned",
            keyspace: plan.keyspace.to_string(),
            partition: plan.partition.get(),
            mode: match plan.mode {
                DrillMode::Stall => "stall",
                _ => "move",
            },
            old_worker: plan.worker.to_string(),
            old_session: plan.session.get(),
            old_epoch: plan.epoch.get(),
            new_worker: plan.heir.as_ref().map(ToString::to_string),
            new_session: None,
            new_epoch: None,
            partitions_moved: plan.moves,
            ttl_ms: ms(plan.ttl),
            refused_writes: None,
            accepted_stale_writes: None,
            unknown_writes: None,
            error: None,
            stale_reads_refused: None,
            stale_reads_accepted: None,
            gap_ms: None,
            means: "nothing was done",
            what_to_do: None,
        }
    }
}

impl From<&DrillReport> for DrillShape {
    fn from(report: &DrillReport) -> DrillShape {
        let (result, means, what_to_do) = words(report.verdict());
        let one = |is: bool| Some(u32::from(is));
        DrillShape {
            result,
            new_worker: Some(report.new_worker.to_string()),
            new_session: Some(report.new_session.get()),
            new_epoch: Some(report.new_epoch.get()),
            refused_writes: one(report.write == HeldWrite::Refused),
            accepted_stale_writes: one(report.write == HeldWrite::Accepted),
            unknown_writes: one(matches!(report.write, HeldWrite::Unknown(_))),
            error: match &report.write {
                HeldWrite::Unknown(error) => Some(error.clone()),
                HeldWrite::Refused | HeldWrite::Accepted => None,
            },
            stale_reads_refused: Some(report.stale_reads_refused),
            stale_reads_accepted: Some(report.stale_reads_accepted),
            gap_ms: Some(ms(report.gap)),
            means,
            what_to_do,
            ..DrillShape::from(&report.plan)
        }
    }
}

/// The result, what it means, and what to do.
fn words(verdict: Verdict) -> (&'static str, &'static str, Option<&'static str>) {
    match verdict {
        Verdict::Fenced => (
            "fenced",
            "your storage refused the write of an owner that had been replaced: the fence holds",
            None,
        ),
        Verdict::StaleWriteAccepted => (
            "stale_write_accepted",
            "your storage accepted a stale write: the store does not check the token",
            Some(
                "let every write check the epoch in the same atomic step, and raise the fence before the new owner reads; \
                 see that the probe writes through the same path; run the drill again. Until then a paused owner can \
                 overwrite its successor's data",
            ),
        ),
        Verdict::StaleReadAccepted => (
            "stale_read_accepted",
            "a read guard of the replaced owner let an answer pass, while a newer owner served",
            Some(
                "in a keyspace with takeover = fence leased reads may be stale: read through the fence, or update it to \
                 takeover = lease. With takeover = lease look at the worker's clock: it must not be stopped or slowed",
            ),
        ),
        _ => (
            "unproven",
            "the probe failed when the held write was sent, so it is not known whether the storage refused it",
            Some("see the error; mend the probe or its connection to the storage, and run the drill again"),
        ),
    }
}

/// Runs `ringfence drill`.
pub(crate) async fn run(args: DrillArgs) -> Outcome {
    let (admin, output) = (args.who.admin(&args.common), args.common.output());
    let timeout = args.common.given_timeout().unwrap_or(TIMEOUT);
    let (shortest, longest) = (*Drill::TIMEOUT.start(), *Drill::TIMEOUT.end());
    if !(shortest..=longest).contains(&timeout) {
        return Err(Failed::usage(format!(
            "--timeout {}: a drill is given {} to {}",
            short(timeout),
            short(shortest),
            short(longest)
        )));
    }
    let drill = Drill {
        keyspace: args.target.keyspace,
        partition: args.target.partition,
        worker: args.worker,
        mode: if args.stall { DrillMode::Stall } else { DrillMode::Move },
        timeout,
    };
    if args.stall {
        args.sure.or_terminal(args.who.dry_run)?;
    }
    // A read first: where nobody answers, or the drill is refused, that is found within the deadline of any call.
    let plan = admin.plan_drill(&drill).await?;
    if args.who.dry_run {
        output.show(&DrillShape::from(&plan), || format!("{}; nothing was done\n", plain(&intent(&plan))))?;
        return Ok(Exit::Done);
    }
    if args.stall {
        args.sure.ask(&format!("{}; without --stall one partition moves.", intent(&plan)))?;
    }
    let report = admin.drill(&drill).await?;
    let shape = DrillShape::from(&report);
    output.changed(shape.result, &shape, || text(&shape))?;
    Ok(if report.verdict() == Verdict::Fenced { Exit::Done } else { Exit::Failed })
}

/// What a drill would do, in a sentence without its end.
fn intent(plan: &DrillPlan) -> String {
    let DrillPlan { keyspace, partition, worker, epoch, moves, .. } = plan;
    let name = format!("{keyspace}/{}", partition.get());
    match (plan.mode, &plan.heir) {
        (DrillMode::Stall, _) => format!(
            "this lets the lease of worker {worker} run out ({}): all {moves} of its partitions, {name} under {epoch} \
             among them, are served by nobody for about as long and go to other workers",
            short(plan.ttl)
        ),
        (_, Some(heir)) => format!("this moves partition {name} from worker {worker} ({epoch}) to {heir}"),
        (_, None) => format!("this moves partition {name} away from worker {worker} ({epoch})"),
    }
}

fn text(shape: &DrillShape) -> String {
    let count = |count: Option<u32>| count.unwrap_or(0).to_string();
    let mut text = properties([
        ("result", shape.result.to_owned()),
        ("partition", format!("{}/{}", shape.keyspace, shape.partition)),
        ("old owner", format!("{} under e{}", shape.old_worker, shape.old_epoch)),
        (
            "new owner",
            format!("{} under e{}", shape.new_worker.as_deref().unwrap_or("-"), shape.new_epoch.unwrap_or(0)),
        ),
        ("mode", format!("{} ({} moved)", shape.mode, shape.partitions_moved)),
        ("refused writes", count(shape.refused_writes)),
        ("accepted stale writes", count(shape.accepted_stale_writes)),
        ("stale reads refused", count(shape.stale_reads_refused)),
        ("stale reads accepted", count(shape.stale_reads_accepted)),
        ("gap", format!("{} ms", shape.gap_ms.unwrap_or(0))),
    ]);
    if let Some(error) = &shape.error {
        text.push_str(&format!("\nerror: {}\n", plain(error)));
    }
    text.push_str(&format!("\n{}\n", shape.means));
    if let Some(what) = shape.what_to_do {
        text.push_str(&format!("what to do: {what}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::json;

    fn found(verdict: Verdict) -> DrillShape {
        let (result, means, what_to_do) = words(verdict);
        DrillShape {
            result,
            keyspace: "orders".to_owned(),
            partition: 17,
            mode: "move",
            old_worker: "w1".to_owned(),
            old_session: 12,
            old_epoch: 33,
            new_worker: Some("w2".to_owned()),
            new_session: Some(13),
            new_epoch: Some(34),
            partitions_moved: 1,
            ttl_ms: 10_000,
            refused_writes: Some(u32::from(verdict == Verdict::Fenced)),
            accepted_stale_writes: Some(u32::from(verdict == Verdict::StaleWriteAccepted)),
            unknown_writes: Some(u32::from(verdict == Verdict::Unproven)),
            error: (verdict == Verdict::Unproven).then(|| "no route\u{1b}[2J".to_owned()),
            stale_reads_refused: Some(2),
            stale_reads_accepted: Some(0),
            gap_ms: Some(9),
            means,
            what_to_do,
        }
    }

    #[test]
    fn the_json_shape_of_a_drill_is_a_contract() {
        assert_eq!(
            json(&found(Verdict::Fenced)).unwrap(),
            r#"{"result":"fenced","keyspace":"orders","partition":17,"mode":"move","old_worker":"w1","#
                .to_owned()
                + r#""old_session":12,"old_epoch":33,"new_worker":"w2","new_session":13,"new_epoch":34,"#
                + r#""partitions_moved":1,"ttl_ms":10000,"refused_writes":1,"accepted_stale_writes":0,"#
                + r#""unknown_writes":0,"error":null,"stale_reads_refused":2,"stale_reads_accepted":0,"gap_ms":9,"#
                + r#""means":"your storage refused the write of an owner that had been replaced: the fence holds","#
                + r#""what_to_do":null}"#
        );
    }

    #[test]
    fn what_a_drill_found_is_told_with_what_to_do() {
        let good = text(&found(Verdict::Fenced));
        assert!(
            good.contains("new owner:              w2 under e34\n")
                && good.contains("refused writes:         1\n"),
            "{good}"
        );
        assert!(good.ends_with("the fence holds\n"), "{good}");
        let bad = text(&found(Verdict::StaleWriteAccepted));
        assert!(
            bad.contains("accepted stale writes:  1\n") && bad.contains("\nwhat to do: let every write"),
            "{bad}"
        );
        let unknown = text(&found(Verdict::Unproven));
        assert!(unknown.contains("no route\\u{1b}[2J") && !unknown.contains('\u{1b}'), "{unknown}");
        for verdict in [Verdict::StaleWriteAccepted, Verdict::StaleReadAccepted, Verdict::Unproven] {
            assert!(words(verdict).2.is_some(), "{verdict:?}");
        }
    }

    #[test]
    fn a_target_is_a_keyspace_or_a_partition_of_one() {
        let whole = "orders".parse::<Target>().unwrap();
        assert_eq!((whole.keyspace.as_str(), whole.partition), ("orders", None));
        assert_eq!("orders/17".parse::<Target>().unwrap().partition, Some(PartitionId::new(17)));
        for bad in ["", "Orders", "orders/", "orders/x", "@locks/a", "orders/1/2"] {
            assert!(bad.parse::<Target>().is_err(), "{bad}");
        }
    }
}
