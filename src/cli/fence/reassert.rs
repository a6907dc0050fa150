//! `ringfence fence reassert`: fences are raised again, and who has not done it yet.

use crate::args::Common;
use crate::exit::{Exit, Failed, Outcome};
use crate::operator::{Progress, Sure, Who};
use crate::output::{Output, Table};
use crate::settings::by;
use crate::shape::DirectiveShape;
use crate::text::{ago, plain, short};
use clap::Args;
use ringfence::ErrorKind;
use ringfence::admin::{Admin, Reassert, ReassertOrder};
use ringfence::ids::{Epoch, KeyspaceName, LogIndex, PartitionId, Scope};
use serde::Serialize;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

pub(super) const AFTER_HELP: &str = "\
A storage that was restored from a copy, or has failed over to a replica, may have forgotten who is deposed. Keep it closed, give
this order, and open it when the order is done: what a deposed owner writes before its partition is raised again is written.

Each partition is taken from its owner and granted to the same worker anew, at a higher epoch: its owner function ends, the fences
are raised, it is called again. Nothing else moves, no budget holds it up, and a freeze does. An owner that does not end loses its
partition when the drain deadline has passed, and whoever gets it raises first. `ringfence fence status` names who has not raised.

--above is for a storage that has seen more than the coordinator has granted, after the coordinator was restored from an old copy:
the partition's next epoch is above E, at most 2^48 above where it stands. Owners report such a storage by themselves, and up to
2^20 are believed without an operator.

It is asked about on a terminal; elsewhere it needs --yes.

Examples:
  ringfence fence reassert orders --reason 'restored from last night' --wait
  ringfence fence reassert orders/17 --above 1048700 --yes
  ringfence fence reassert orders --dry-run";

/// Between two looks at an order that is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How many partitions that wait are shown.
const LINES: usize = 10;

#[derive(Debug, Args)]
pub(super) struct ReassertArgs {
    /// All partitions of a keyspace, or one
    #[arg(value_name = "KEYSPACE[/PARTITION]")]
    what: What,
    /// The partition's next epoch is above this one, too: what its storage has seen
    #[arg(long, value_name = "EPOCH", value_parser = epoch)]
    above: Option<Epoch>,
    /// Wait until every owner has raised; exit code 1, with the workers named, when one has not in time
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    who: Who,
    #[command(flatten)]
    sure: Sure,
}

/// A keyspace, or one of its partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
struct What {
    keyspace: KeyspaceName,
    partition: Option<PartitionId>,
}

impl FromStr for What {
    type Err = String;

    fn from_str(text: &str) -> Result<What, String> {
        if !text.contains('/') {
            let keyspace = KeyspaceName::new(text).map_err(|error| error.to_string())?;
            return Ok(What { keyspace, partition: None });
        }
        match text.parse() {
            Ok(Scope::Partition(keyspace, number)) => Ok(What { keyspace, partition: Some(number) }),
            Ok(Scope::Lock(_)) => {
                Err("it is written KEYSPACE or KEYSPACE/PARTITION, such as orders/17".to_owned())
            }
            Err(error) => Err(error.to_string()),
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.partition {
            None => write!(f, "keyspace {}", self.keyspace),
            Some(number) => write!(f, "partition {}/{}", self.keyspace, number.get()),
        }
    }
}

fn epoch(text: &str) -> Result<Epoch, String> {
    let number: u64 = text.parse().map_err(|_| format!("{text:?} is not a number"))?;
    Epoch::new(number).map_err(|error| error.to_string())
}

/// What became of an order.
#[derive(Debug, Serialize)]
struct DoneShape {
    /// `ordered`, `raised`, or `planned` of a dry run.
    result: &'static str,
    order: Option<u64>,
    partitions: u32,
    owned: u32,
    /// After --wait.
    progress: Option<ReassertShape>,
}

/// How far an order is.
#[derive(Debug, Serialize)]
struct ReassertShape {
    order: u64,
    given_unix_ms: u64,
    keyspace: String,
    partition: Option<u32>,
    directive: Option<DirectiveShape>,
    partitions: u32,
    done: u32,
    ownerless: u32,
    waiting_total: u32,
    /// At most 100.
    waiting: Vec<WaitingShape>,
    workers: Vec<WorkerShape>,
}

#[derive(Debug, Serialize)]
struct WaitingShape {
    partition: u32,
    epoch: Option<u64>,
    worker: String,
    step: &'static str,
    frozen: Option<String>,
}

#[derive(Debug, Serialize)]
struct WorkerShape {
    worker: String,
    partitions: u32,
}

impl From<&Reassert> for ReassertShape {
    fn from(from: &Reassert) -> ReassertShape {
        let waiting = from.waiting.iter().map(|of| WaitingShape {
            partition: of.partition.get(),
            epoch: of.epoch.map(Epoch::get),
            worker: of.worker.clone(),
            step: of.step.as_str(),
            frozen: Some(of.frozen.clone()).filter(|text| !text.is_empty()),
        });
        let workers = from.workers.iter();
        let worker = |(worker, partitions): &(String, u32)| WorkerShape {
            worker: worker.clone(),
            partitions: *partitions,
        };
        ReassertShape {
            order: from.order.get(),
            given_unix_ms: from.unix_ms,
            keyspace: from.keyspace.to_string(),
            partition: from.partition.map(PartitionId::get),
            directive: from.directive.as_ref().map(DirectiveShape::from),
            partitions: from.partitions,
            done: from.done,
            ownerless: from.ownerless,
            waiting_total: from.waiting_total,
            waiting: waiting.collect(),
            workers: workers.map(worker).collect(),
        }
    }
}

pub(super) async fn run(common: &Common, args: ReassertArgs) -> Outcome {
    let ReassertArgs { what, above, wait, who, sure } = args;
    if above.is_some() && what.partition.is_none() {
        return Err(Failed::usage("--above is said of one partition, such as orders/17"));
    }
    let (admin, output) = (who.admin(common), common.output());
    sure.or_terminal(who.dry_run)?;
    let number = what.partition.map(PartitionId::get);
    let would = admin.would_reassert(what.keyspace.as_str(), number, above).await?;
    let of = partitions(&would);
    if who.dry_run {
        let text = format!("{what}: the fences of {of} would be raised again{}", above_in_words(above));
        return show(output, "planned", &would, None, text);
    }
    sure.ask(&format!(
        "This takes {of} of {what} from their owners for the time of a handoff each, and raises their fences again{}. Is the \
         storage closed?",
        above_in_words(above)
    ))?;
    let order = admin.reassert(what.keyspace.as_str(), number, above).await?;
    if !wait {
        let text = format!(
            "{what}: the fences of {of} are being raised again; ringfence fence status {} says how far it is",
            what.keyspace
        );
        return show(output, "ordered", &order, None, text);
    }
    let far = until_it_is_done(&admin, &what, &order, common.wait()).await?;
    let text = format!("{what}: the owners of {} partitions have raised their fences", far.done);
    show(output, "raised", &order, Some(&far), text)
}

fn partitions(order: &ReassertOrder) -> String {
    let of = |count: u32| if count == 1 { "1 partition".to_owned() } else { format!("{count} partitions") };
    match order.partitions - order.owned.min(order.partitions) {
        0 => of(order.partitions),
        none => format!("{}, {none} of them without an owner,", of(order.partitions)),
    }
}

fn above_in_words(above: Option<Epoch>) -> String {
    above.map_or_else(String::new, |epoch| format!(", above {}", epoch.get()))
}

fn show(
    output: Output,
    result: &'static str,
    order: &ReassertOrder,
    far: Option<&Reassert>,
    text: String,
) -> Outcome {
    let shape = DoneShape {
        result,
        order: order.order.map(LogIndex::get),
        partitions: order.partitions,
        owned: order.owned,
        progress: far.map(ReassertShape::from),
    };
    output.changed(result, &shape, || text + "\n")?;
    Ok(Exit::Done)
}

/// Waits until every owner has raised. Whoever has not in time is named.
async fn until_it_is_done(
    admin: &Admin,
    what: &What,
    order: &ReassertOrder,
    limit: Duration,
) -> Result<Reassert, Failed> {
    let mut progress = Progress::new();
    let mut last: Option<Reassert> = None;
    let looked = tokio::time::timeout(limit, async {
        loop {
            match admin.reasserts(Some(what.keyspace.as_str())).await {
                Ok(all) => {
                    let is_it = |of: &Reassert| Some(of.order) == order.order;
                    let Some(far) = all.into_iter().find(is_it) else {
                        let why = format!("{what}: another order has taken the place of this one");
                        return Err(Failed::of(ErrorKind::Refused, why));
                    };
                    if far.is_done() {
                        return Ok(far);
                    }
                    progress.show(far.done.into(), far.partitions.into(), "partitions raised");
                    last = Some(far);
                }
                // The next leader goes on with it.
                Err(error) if error.is_retryable() => {}
                Err(error) => return Err(Failed::from(error)),
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    });
    match looked.await {
        Ok(looked) => looked,
        Err(_) => {
            let left = last.map_or_else(String::new, |far| format!(" {}", left(&far)));
            Err(Failed::timeout(format!(
                "{what}: not every fence was raised within {}; it goes on.{left} Keep the storage closed; ringfence fence status \
                 {} says how far it is",
                short(limit),
                what.keyspace
            )))
        }
    }
}

/// Who has not raised yet.
fn left(far: &Reassert) -> String {
    let mut parts: Vec<String> = far
        .workers
        .iter()
        .map(|(worker, partitions)| format!("worker {worker} has {partitions} that it has not raised"))
        .collect();
    if far.ownerless > 0 {
        parts.push(format!("{} have no owner", far.ownerless));
    }
    format!("{} of {} are raised; {}.", far.done, far.partitions, parts.join(", "))
}

/// Runs `ringfence fence status`.
pub(super) async fn status(common: &Common, keyspace: Option<&KeyspaceName>) -> Outcome {
    let orders = common.admin().reasserts(keyspace.map(KeyspaceName::as_str)).await?;
    let shapes: Vec<ReassertShape> = orders.iter().map(ReassertShape::from).collect();
    common.output().show(&shapes, || text(&orders))?;
    Ok(Exit::Done)
}

fn text(orders: &[Reassert]) -> String {
    if orders.is_empty() {
        return "no fences were ordered to be raised again\n".to_owned();
    }
    let mut table = Table::new(["GIVEN", "WHAT", "RAISED", "WAITING", "WITHOUT AN OWNER", "BY"]);
    for order in orders {
        let what = What { keyspace: order.keyspace.clone(), partition: order.partition };
        table.row([
            ago(order.unix_ms),
            what.to_string(),
            format!("{}/{}", order.done, order.partitions),
            order.waiting_total.to_string(),
            order.ownerless.to_string(),
            order.directive.as_ref().map(by).unwrap_or_default(),
        ]);
    }
    let mut text = table.text();
    for order in orders.iter().filter(|order| order.waiting_total > 0) {
        let mut table = Table::new(["PARTITION", "EPOCH", "WORKER", "STEP", "WHY"]);
        let shown = &order.waiting[..order.waiting.len().min(LINES)];
        for of in shown {
            table.row([
                format!("{}/{}", order.keyspace, of.partition.get()),
                of.epoch.map(|epoch| epoch.get().to_string()).unwrap_or_default(),
                of.worker.clone(),
                of.step.as_str().to_owned(),
                of.frozen.clone(),
            ]);
        }
        text.push_str(&format!("\n{}\n{}", plain(&left(order)), table.indented(2)));
        let more = u64::from(order.waiting_total).saturating_sub(shown.len() as u64);
        if more > 0 {
            text.push_str(&format!("  and {more} more\n"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keyspace_and_one_of_its_partitions_are_told_apart() {
        let name = |text: &str| text.parse::<What>().map(|what| what.to_string());
        assert_eq!(name("orders"), Ok("keyspace orders".to_owned()));
        assert_eq!(name("orders/17"), Ok("partition orders/17".to_owned()));
        for bad in ["", "Orders", "orders/", "orders/017", "@locks/nightly", "a/b/c"] {
            assert!(name(bad).is_err(), "{bad}");
        }
        assert_eq!(epoch("150").map(Epoch::get), Ok(150));
        for bad in ["0", "-1", "e150", "9007199254740992"] {
            assert!(epoch(bad).is_err(), "{bad}");
        }
    }
}
