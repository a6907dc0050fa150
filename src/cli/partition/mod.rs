//! `ringfence partition`: list, show, move, pin and weigh partitions, end their cooling, and tell why they are where they are.

mod explain;
mod place;

use crate::args::Common;
use crate::exit::{Exit, Failed, Outcome};
use crate::operator::{Who, planned};
use crate::output::{Output, Table, properties};
use crate::shape::{PartitionDetailShape, PartitionShape};
use clap::{Args, Subcommand};
use ringfence::admin::{Admin, MoveStarted, Partition, PartitionDetail, Phase};
use ringfence::ids::{Epoch, KeyspaceName, MoveId, PartitionId, Scope, WorkerId};
use ringfence::router::{Owner, Router, View};
use serde::Serialize;
use std::fmt;
use std::str::FromStr;

/// Arguments of `ringfence partition`.
#[derive(Debug, Args)]
pub(crate) struct PartitionArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List the partitions of a keyspace
    List {
        /// The keyspace
        keyspace: KeyspaceName,
    },
    /// Show one partition with its last owners
    Show {
        /// The partition
        #[arg(value_name = "KEYSPACE/PARTITION")]
        partition: PartitionArg,
    },
    /// Move a partition: its owner is told to stop, then the worker named is granted it
    #[command(after_help = "\
It returns when the old owner is told to stop; with --wait, when the new one is ready. Nothing is done when that worker
owns the partition already. Balancing may move it away again; see `ringfence keyspace update --balance false`. What is pinned to
another worker that may have it is not moved: unpin it first.

Example:
  ringfence partition move orders/17 --to worker-3 --wait")]
    Move {
        /// The partition
        #[arg(value_name = "KEYSPACE/PARTITION")]
        partition: PartitionArg,
        /// The worker that shall own it
        #[arg(long, value_name = "WORKER")]
        to: WorkerId,
        /// Wait until that worker is ready; exit code 1 when another one got the partition
        #[arg(long)]
        wait: bool,
        #[command(flatten)]
        who: Who,
    },
    /// Let a partition belong to one worker while that one has a session
    #[command(after_help = "\
A pin goes before balance, and not before a failure: while the worker has no session others own the partition. It moves there
by a planned move, within the budget.

Examples:
  ringfence partition pin orders/17 --to worker-3
  ringfence partition pin orders/17                  # to whoever owns it")]
    Pin {
        /// The partition
        #[arg(value_name = "KEYSPACE/PARTITION")]
        partition: PartitionArg,
        /// The worker [default: its owner]
        #[arg(long, value_name = "WORKER")]
        to: Option<WorkerId>,
        #[command(flatten)]
        who: Who,
    },
    /// Let a pinned partition be balanced again
    Unpin {
        /// The partition
        #[arg(value_name = "KEYSPACE/PARTITION")]
        partition: PartitionArg,
        #[command(flatten)]
        who: Who,
    },
    /// Say how much a partition counts compared with the others
    #[command(after_help = "\
A partition without a weight counts as 1. As soon as one partition of a keyspace has a weight, the keyspace is balanced by
weight.")]
    Weigh {
        /// The partition
        #[arg(value_name = "KEYSPACE/PARTITION")]
        partition: PartitionArg,
        /// 1 to 1000000; or `none`
        #[arg(value_name = "N|none", value_parser = place::weight)]
        weight: place::WeightArg,
        #[command(flatten)]
        who: Who,
    },
    /// Why a partition is where it is, why no other worker has it, and what it would take
    Explain {
        /// The partition
        #[arg(value_name = "KEYSPACE/PARTITION")]
        partition: PartitionArg,
    },
    /// Who owned a partition, under which epoch, why it moved and who decided it
    History {
        /// The partition
        #[arg(value_name = "KEYSPACE/PARTITION")]
        partition: PartitionArg,
    },
    /// End a partition's cooling now
    #[command(after_help = "\
With `takeover = lease` this gives up the wait that keeps two workers from both believing that they own the partition:
see that the earlier owner is dead. Nothing is done when the partition does not cool.")]
    EndCooling {
        /// The partition
        #[arg(value_name = "KEYSPACE/PARTITION")]
        partition: PartitionArg,
        #[command(flatten)]
        who: Who,
    },
}

/// `orders/17`
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PartitionArg {
    pub(crate) keyspace: KeyspaceName,
    pub(crate) partition: PartitionId,
}

impl FromStr for PartitionArg {
    type Err = String;

    fn from_str(text: &str) -> Result<PartitionArg, String> {
        match text.parse() {
            Ok(Scope::Partition(keyspace, partition)) => Ok(PartitionArg { keyspace, partition }),
            Ok(Scope::Lock(_)) => {
                Err("a partition is written KEYSPACE/PARTITION, such as orders/17".to_owned())
            }
            Err(error) => Err(error.to_string()),
        }
    }
}

impl fmt::Display for PartitionArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.keyspace, self.partition.get())
    }
}

/// What `move` and `end-cooling` did.
#[derive(Debug, Serialize)]
struct DoneShape {
    /// `started`, `moved`, `ended`, `unchanged` or `planned`.
    result: &'static str,
    /// The move in progress, or that was waited for.
    #[serde(rename = "move")]
    move_id: Option<u64>,
    /// The epoch that is drained; the move is over when the partition has a higher one.
    from_epoch: Option<u64>,
    /// The epoch of the new owner, when it was waited for.
    epoch: Option<u64>,
    /// What may take it away from there again.
    note: Option<String>,
}

impl DoneShape {
    fn new(result: &'static str) -> DoneShape {
        DoneShape { result, move_id: None, from_epoch: None, epoch: None, note: None }
    }
}

/// Runs `ringfence partition`.
pub(crate) async fn run(args: PartitionArgs) -> Outcome {
    let (admin, output) = (args.common.admin(), args.common.output());
    match args.verb {
        Verb::List { keyspace } => {
            let all = admin.partitions(keyspace.as_str()).await?;
            let shapes: Vec<_> = all.iter().map(PartitionShape::from).collect();
            output.show(&shapes, || table(&all).text())?;
            Ok(Exit::Done)
        }
        Verb::Show { partition } => {
            let detail = admin.partition(partition.keyspace.as_str(), partition.partition).await?;
            output.show(&PartitionDetailShape::from(&detail), || details(&detail))?;
            Ok(Exit::Done)
        }
        Verb::Move { partition, to, wait, who } => move_it(&args.common, &partition, &to, wait, &who).await,
        Verb::Pin { partition, to, who } => place::pin(&args.common, &partition, to, &who).await,
        Verb::Unpin { partition, who } => place::unpin(&args.common, &partition, &who).await,
        Verb::Weigh { partition, weight, who } => place::weigh(&args.common, &partition, weight, &who).await,
        Verb::Explain { partition } => explain::explain(&args.common, &partition).await,
        Verb::History { partition } => explain::history(&args.common, &partition).await,
        Verb::EndCooling { partition, who } => end_cooling(&admin, output, &partition, &who).await,
    }
}

async fn move_it(common: &Common, partition: &PartitionArg, to: &WorkerId, wait: bool, who: &Who) -> Outcome {
    let coordinator = common.coordinator();
    let admin = who.asking(common.bounded(Admin::new(&coordinator)));
    let keyspace = partition.keyspace.as_str();
    if who.dry_run {
        // By the judgement of the move itself: what it refuses is refused here.
        let plan = admin.plan_move(keyspace, partition.partition, to).await?;
        let shape = DoneShape {
            move_id: plan.move_id.map(MoveId::get),
            from_epoch: plan.from_epoch.map(Epoch::get),
            note: plan.note.clone(),
            ..DoneShape::new(planned(plan.changes))
        };
        let would = match (plan.changes, plan.move_id, plan.from_epoch) {
            (true, _, Some(_)) => "would move to",
            (true, _, None) => "has no owner and would be granted to",
            (false, Some(_), _) => "is on its way to",
            (false, None, _) => "is with",
        };
        common.output().show(&shape, || {
            format!("partition {partition} {would} {to}; nothing was done\n{}", noted(&plan.note))
        })?;
        return Ok(Exit::Done);
    }
    // Followed from before the move, so that no owner in between is missed.
    let router = if wait { Some(common.follow(&coordinator, [keyspace]).await?) } else { None };
    let started = admin.move_partition(keyspace, partition.partition, to).await?;
    let mut shape = DoneShape {
        move_id: started.move_id.map(MoveId::get),
        from_epoch: started.from_epoch.map(Epoch::get),
        note: started.note.clone(),
        ..DoneShape::new(if started.move_id.is_some() { "started" } else { "unchanged" })
    };
    let mut sentence = match started.move_id {
        Some(_) => format!("partition {partition} is on its way to {to}"),
        None => format!("partition {partition} is with {to} already, or was granted to it at once"),
    };
    if let Some(router) = router {
        let owner = wait_for_owner(&router, partition, to, &started, common).await?;
        shape.epoch = Some(owner.epoch().get());
        sentence = format!("partition {partition} is with {to} under {}, ready", owner.epoch());
        if started.move_id.is_some() {
            shape.result = "moved";
        }
    }
    common.output().changed(shape.result, &shape, || sentence + "\n" + &noted(&started.note))?;
    Ok(Exit::Done)
}

/// What may take a partition away again from where it was moved.
fn noted(note: &Option<String>) -> String {
    note.as_ref().map_or(String::new(), |note| format!("note: {}\n", crate::text::plain(note)))
}

/// Waits until the move is over: the partition has a higher epoch than the one that is drained, and its owner is ready.
async fn wait_for_owner(
    router: &Router,
    partition: &PartitionArg,
    to: &WorkerId,
    started: &MoveStarted,
    common: &Common,
) -> Result<Owner, Failed> {
    let owner_in = |view: &View| {
        let owner = view.keyspace(partition.keyspace.as_str())?.owner(partition.partition)?;
        (started.move_id.is_none() || Some(owner.epoch()) > started.from_epoch).then_some(owner)
    };
    let settled = |view: &View| {
        let gone = view.keyspace(partition.keyspace.as_str()).is_none();
        gone || owner_in(view).is_some_and(|owner| owner.is_ready() || owner.worker() != to)
    };
    let waited = common.wait();
    let Ok(view) = tokio::time::timeout(waited, router.wait_for(settled)).await else {
        return Err(Failed::timeout(format!(
            "{to} is not ready to own {partition} after {}; see `ringfence partition show {partition}`",
            crate::text::short(waited)
        )));
    };
    match owner_in(&view) {
        Some(owner) if owner.worker() == to => Ok(owner),
        Some(owner) => Err(Failed::refused(format!("{partition} went to {owner} instead of {to}"))),
        None => Err(Failed::refused(format!("keyspace {} was deleted meanwhile", partition.keyspace))),
    }
}

async fn end_cooling(admin: &Admin, output: Output, partition: &PartitionArg, who: &Who) -> Outcome {
    let found = admin.partition(partition.keyspace.as_str(), partition.partition).await?.partition;
    let result = match (found.phase, found.epoch) {
        (Phase::Cooling, Some(_)) if who.dry_run => "planned",
        (Phase::Cooling, Some(epoch)) => {
            who.asking(admin.clone())
                .end_cooling(partition.keyspace.as_str(), partition.partition, epoch)
                .await?;
            "ended"
        }
        _ => "unchanged",
    };
    let sentence = match result {
        "ended" => format!("partition {partition} cools no longer"),
        "planned" => format!("partition {partition} cools ({}); nothing was done", found.cooling),
        _ => format!("partition {partition} does not cool: it is {}", found.phase),
    };
    output.changed(result, &DoneShape::new(result), || sentence + "\n")?;
    Ok(Exit::Done)
}

/// Partitions for people.
pub(crate) fn table(partitions: &[Partition]) -> Table {
    let mut table = Table::new(["PARTITION", "PHASE", "OWNER", "SESSION", "EPOCH", "READY", "LOAD", "WHY"]);
    for partition in partitions {
        let owner = partition.owner.as_ref();
        table.row([
            format!("{}/{}", partition.keyspace, partition.partition.get()),
            partition.phase.to_string(),
            owner.map(|o| o.worker.to_string()).unwrap_or_default(),
            owner.map(|o| o.session.to_string()).unwrap_or_default(),
            partition.epoch.map(|e| e.to_string()).unwrap_or_default(),
            if partition.ready { "yes" } else { "no" }.to_owned(),
            partition.load.map(|load| load.to_string()).unwrap_or_default(),
            why(partition),
        ]);
    }
    table
}

/// Why a partition is not simply owned.
fn why(partition: &Partition) -> String {
    let mut why = Vec::new();
    if let Some((to, _)) = &partition.moving {
        why.push(format!("moves to {to}"));
    }
    if !partition.cooling.is_empty() {
        why.push(partition.cooling.clone());
    }
    if partition.failures > 0 {
        let error = if partition.last_error.is_empty() {
            "its task returned by itself"
        } else {
            &partition.last_error
        };
        why.push(format!("failed {} times in a row: {error}", partition.failures));
    }
    why.join("; ")
}

fn details(detail: &PartitionDetail) -> String {
    let partition = &detail.partition;
    let owner = partition.owner.as_ref();
    let mut text = properties([
        ("partition", format!("{}/{}", partition.keyspace, partition.partition.get())),
        ("phase", partition.phase.to_string()),
        ("owner", owner.map(|o| o.worker.to_string()).unwrap_or_default()),
        ("session", owner.map(|o| o.session.to_string()).unwrap_or_default()),
        ("address", owner.map(|o| o.address.clone()).unwrap_or_default()),
        ("epoch", partition.epoch.map(|e| e.to_string()).unwrap_or_default()),
        ("ready", partition.ready.to_string()),
        ("load", partition.load.map(|load| load.to_string()).unwrap_or_default()),
        ("why", why(partition)),
    ]);
    text.push('\n');
    text.push_str(&explain::tenures(&detail.history).text());
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::json;
    use ringfence::admin;
    use ringfence::ids::SessionId;

    fn orders_17() -> Partition {
        Partition {
            keyspace: KeyspaceName::new("orders").unwrap(),
            partition: PartitionId::new(17),
            phase: Phase::Draining,
            epoch: Epoch::new(42).ok(),
            ready: false,
            owner: Some(admin::Owner {
                worker: WorkerId::new("w1").unwrap(),
                session: SessionId::new(12).unwrap(),
                address: "10.0.0.1:80\u{1b}[2J".to_owned(),
            }),
            moving: Some((WorkerId::new("w2").unwrap(), MoveId::new(3))),
            cooling: String::new(),
            failures: 2,
            last_error: "boom".to_owned(),
            load: Some(120),
        }
    }

    fn vacant() -> Partition {
        Partition {
            phase: Phase::Vacant,
            epoch: None,
            owner: None,
            moving: None,
            failures: 0,
            last_error: String::new(),
            load: None,
            ..orders_17()
        }
    }

    #[test]
    fn the_json_shape_of_a_partition_is_a_contract() {
        assert_eq!(
            json(&PartitionShape::from(&orders_17())).unwrap(),
            r#"{"keyspace":"orders","partition":17,"phase":"draining","worker":"w1","session":12,"#
                .to_owned()
                + r#""address":"10.0.0.1:80\u001b[2J","epoch":42,"ready":false,"moving_to":"w2","move":3,"#
                + r#""cooling":null,"failures":2,"last_error":"boom","load":120}"#
        );
        assert_eq!(
            json(&PartitionShape::from(&vacant())).unwrap(),
            r#"{"keyspace":"orders","partition":17,"phase":"vacant","worker":null,"session":null,"#
                .to_owned()
                + r#""address":null,"epoch":null,"ready":false,"moving_to":null,"move":null,"#
                + r#""cooling":null,"failures":0,"last_error":null,"load":null}"#
        );
        assert_eq!(
            json(&DoneShape::new("unchanged")).unwrap(),
            r#"{"result":"unchanged","move":null,"from_epoch":null,"epoch":null,"note":null}"#
        );
    }

    #[test]
    fn the_table_of_partitions() {
        assert_eq!(
            table(&[orders_17(), vacant()]).text(),
            "PARTITION  PHASE     OWNER  SESSION  EPOCH  READY  LOAD  WHY\n\
             orders/17  draining  w1     s12      e42    no     120   moves to w2; failed 2 times in a row: boom\n\
             orders/17  vacant    -      -        -      no     -     -\n"
        );
    }

    #[test]
    fn f021_what_a_worker_says_of_itself_cannot_write_to_the_terminal() {
        let detail = details_of(orders_17());
        assert!(detail.contains("10.0.0.1:80\\u{1b}[2J") && !detail.contains('\u{1b}'), "{detail}");
    }

    fn details_of(partition: Partition) -> String {
        let text = table(std::slice::from_ref(&partition)).text();
        let address = partition.owner.map(|owner| owner.address).unwrap_or_default();
        text + &properties([("address", address)])
    }

    #[test]
    fn a_partition_is_written_keyspace_slash_number() {
        assert_eq!("orders/17".parse::<PartitionArg>().unwrap().to_string(), "orders/17");
        for bad in ["orders", "orders/", "orders/-1", "@locks/a", "Orders/1"] {
            assert!(bad.parse::<PartitionArg>().is_err(), "{bad}");
        }
    }
}
