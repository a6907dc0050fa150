//! `ringfence freeze` and `ringfence unfreeze`: planned moves stop, or go on.

use crate::args::Common;
use crate::exit::{Exit, Failed, Outcome};
use crate::operator::{Sure, Who, planned, result};
use crate::output::Output;
use crate::partition::PartitionArg;
use crate::settings::by;
use crate::worker::known;
use clap::{Args, Subcommand};
use ringfence::admin::{Admin, Directive, PartitionChange, Settings, WorkerChange};
use ringfence::ids::{KeyspaceName, WorkerId};
use serde::Serialize;

/// Arguments of `ringfence freeze` and of `ringfence unfreeze`.
#[derive(Debug, Args)]
#[command(after_help = "\
While something is frozen no planned move begins there; moves that have begun go on. What has no owner is granted all the
same: a freeze never keeps a failed owner's partitions down. It goes to workers that are not frozen; to one that is, when no
other may have it. Each freeze stands for itself: a partition moves when it, its workers, its keyspace and the cluster are all
free. `ringfence settings` shows them and who set them.

Examples:
  ringfence freeze keyspace orders --reason 'incident 42'
  ringfence unfreeze keyspace orders
  ringfence freeze cluster --yes")]
pub(crate) struct FreezeArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    subject: Subject,
}

/// What keeps all planned moves of a keyspace from beginning: the freezes of the cluster and of the keyspace, a sentence each.
pub(crate) fn of_all(settings: &Settings, keyspace: &KeyspaceName) -> Vec<String> {
    let cluster = settings.cluster_frozen.as_ref().map(|given| frozen("the cluster", "cluster", given));
    let of_it = settings.keyspaces_frozen.iter().find(|(name, _)| name == keyspace);
    let of_it =
        of_it.map(|(name, given)| frozen(&format!("keyspace {name}"), &format!("keyspace {name}"), given));
    cluster.into_iter().chain(of_it).collect()
}

/// How many freezes of partitions and of workers a sentence has room for.
const FEW: usize = 5;

/// What keeps a split of a keyspace from going on, or may: the same, and the freezes of its partitions and of workers.
pub(crate) fn of_a_split(settings: &Settings, keyspace: &KeyspaceName) -> Vec<String> {
    let partitions = settings.partitions.iter().filter(|set| set.keyspace == *keyspace);
    let partitions = partitions.filter_map(|set| {
        let name = format!("partition {keyspace}/{}", set.partition.get());
        set.frozen.as_ref().map(|given| frozen(&name, &name, given))
    });
    let workers = settings.workers.iter().filter_map(|set| {
        let name = format!("worker {}", set.worker);
        set.frozen.as_ref().map(|given| frozen(&name, &name, given))
    });
    let each: Vec<String> = partitions.chain(workers).collect();
    let more = each.len().saturating_sub(FEW);
    let more = (more > 0).then(|| format!("and {more} more partitions and workers (`ringfence settings`)"));
    of_all(settings, keyspace).into_iter().chain(each.into_iter().take(FEW)).chain(more).collect()
}

fn frozen(name: &str, verb: &str, given: &Directive) -> String {
    format!("{name} is frozen by {} (`ringfence unfreeze {verb}`)", by(given))
}

#[derive(Debug, Subcommand)]
enum Subject {
    /// One partition: no planned move takes it from its owner
    Partition {
        /// The partition
        #[arg(value_name = "KEYSPACE/PARTITION")]
        partition: PartitionArg,
        #[command(flatten)]
        who: Who,
    },
    /// One worker: nothing is moved to it or away from it; it gets what has no owner when no other worker may have it
    Worker {
        /// Its name; it need not have a session
        worker: WorkerId,
        #[command(flatten)]
        who: Who,
    },
    /// One keyspace
    Keyspace {
        /// Its name
        keyspace: KeyspaceName,
        #[command(flatten)]
        who: Who,
    },
    /// Everything
    Cluster {
        #[command(flatten)]
        who: Who,
        #[command(flatten)]
        sure: Sure,
    },
}

/// What a freeze, or its end, did.
#[derive(Debug, Serialize)]
struct FreezeShape {
    /// `changed`, `unchanged` or `planned`.
    result: &'static str,
    /// Whether it is frozen then.
    frozen: bool,
    /// `partition`, `worker`, `keyspace` or `cluster`.
    subject: &'static str,
    /// Which; `null` for the cluster.
    name: Option<String>,
}

/// Runs `ringfence freeze` (`frozen`) or `ringfence unfreeze`.
pub(crate) async fn run(args: FreezeArgs, frozen: bool) -> Outcome {
    let (common, output) = (&args.common, args.common.output());
    match args.subject {
        Subject::Partition { partition, who } => {
            let admin = who.admin(common);
            let result = freeze_partition(&admin, &partition, frozen, who.dry_run).await?;
            show(output, result, frozen, "partition", Some(partition.to_string()))
        }
        Subject::Worker { worker, who } => {
            let admin = who.admin(common);
            let result = if who.dry_run {
                let known = known(&admin, &worker).await?;
                planned(known.is_some_and(|known| known.settings.frozen.is_some()) != frozen)
            } else {
                let change = WorkerChange { frozen: Some(frozen), ..WorkerChange::default() };
                result(admin.set_worker(&worker, &change).await?)
            };
            show(output, result, frozen, "worker", Some(worker.to_string()))
        }
        Subject::Keyspace { keyspace, who } => {
            keyspace_or_all(common, Some(&keyspace), frozen, &who, None).await
        }
        Subject::Cluster { who, sure } => keyspace_or_all(common, None, frozen, &who, Some(sure)).await,
    }
}

async fn freeze_partition(
    admin: &Admin,
    partition: &PartitionArg,
    frozen: bool,
    dry_run: bool,
) -> Result<&'static str, Failed> {
    if !dry_run {
        let change = PartitionChange { frozen: Some(frozen), ..PartitionChange::default() };
        return Ok(result(
            admin.set_partition(partition.keyspace.as_str(), partition.partition, &change).await?,
        ));
    }
    let set = partition.settings(admin).await?;
    Ok(planned(set.is_some_and(|set| set.frozen.is_some()) != frozen))
}

/// Freezes a keyspace, or with `None` everything; or ends that. To stop everything has to be meant.
pub(crate) async fn keyspace_or_all(
    common: &Common,
    keyspace: Option<&KeyspaceName>,
    frozen: bool,
    who: &Who,
    sure: Option<Sure>,
) -> Outcome {
    let sure = sure.filter(|_| frozen && keyspace.is_none());
    if let Some(sure) = sure {
        sure.or_terminal(who.dry_run)?;
    }
    let admin = who.admin(common);
    let result = if who.dry_run {
        let settings = admin.settings().await?;
        let now = match keyspace {
            None => settings.cluster_frozen.is_some(),
            Some(keyspace) => {
                admin.keyspace(keyspace.as_str()).await?;
                settings.keyspaces_frozen.iter().any(|(name, _)| name == keyspace)
            }
        };
        planned(now != frozen)
    } else {
        if let Some(sure) = sure {
            sure.ask("This stops every planned move in the cluster, of approved plans and of drains too.")?;
        }
        result(admin.freeze(keyspace.map(KeyspaceName::as_str), frozen).await?)
    };
    let subject = if keyspace.is_some() { "keyspace" } else { "cluster" };
    show(common.output(), result, frozen, subject, keyspace.map(ToString::to_string))
}

fn show(
    output: Output,
    result: &'static str,
    frozen: bool,
    subject: &'static str,
    name: Option<String>,
) -> Outcome {
    let shape = FreezeShape { result, frozen, subject, name };
    output.changed(result, &shape, || sentence(&shape))?;
    Ok(Exit::Done)
}

fn sentence(shape: &FreezeShape) -> String {
    let FreezeShape { subject, name, .. } = shape;
    let what = match name {
        None => format!("the {subject}"),
        Some(name) => format!("{subject} {name}"),
    };
    let is = if shape.frozen { "frozen" } else { "not frozen" };
    match shape.result {
        "planned" => format!("{what} would be {is}; nothing was done\n"),
        "unchanged" => format!("{what} is {is} already\n"),
        _ => format!("{what} is {is} now\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::json;

    #[test]
    fn the_json_shape_of_a_freeze_is_a_contract() {
        let shape = FreezeShape {
            result: "changed",
            frozen: true,
            subject: "keyspace",
            name: Some("orders".to_owned()),
        };
        assert_eq!(
            json(&shape).unwrap(),
            r#"{"result":"changed","frozen":true,"subject":"keyspace","name":"orders"}"#
        );
        assert_eq!(sentence(&shape), "keyspace orders is frozen now\n");
        let all = FreezeShape { result: "planned", frozen: false, subject: "cluster", name: None };
        assert_eq!(sentence(&all), "the cluster would be not frozen; nothing was done\n");
    }
}
