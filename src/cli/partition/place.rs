//! What is set about a partition: a pin, and how much it counts.

use super::PartitionArg;
use crate::args::Common;
use crate::exit::{Exit, Failed, Outcome};
use crate::operator::{Who, planned, result};
use crate::worker::known;
use ringfence::admin::{Admin, MAX_PARTITION_WEIGHT, PartitionChange, PartitionSettings, WorkerSettings};
use ringfence::ids::WorkerId;
use serde::Serialize;

/// A weight, or `none`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WeightArg(pub(super) Option<u32>);

pub(super) fn weight(text: &str) -> Result<WeightArg, String> {
    if text == "none" {
        return Ok(WeightArg(None));
    }
    let number = text.parse().ok().filter(|number| (1..=MAX_PARTITION_WEIGHT).contains(number));
    let number =
        number.ok_or_else(|| format!("it is a number from 1 to {MAX_PARTITION_WEIGHT}, or `none`"))?;
    Ok(WeightArg(Some(number)))
}

/// What a change about a partition did.
#[derive(Debug, Serialize)]
struct SetShape {
    /// `changed`, `unchanged` or `planned`.
    result: &'static str,
    keyspace: String,
    partition: u32,
}

impl PartitionArg {
    /// What is set about it; `None` when nothing is, or when it is not among the thousand that are listed.
    pub(crate) async fn settings(&self, admin: &Admin) -> Result<Option<PartitionSettings>, Failed> {
        // A partition that is not there has no settings either, and that is another answer.
        admin.partition(self.keyspace.as_str(), self.partition).await?;
        let settings = admin.settings().await?;
        let mine =
            |set: &PartitionSettings| (&set.keyspace, set.partition) == (&self.keyspace, self.partition);
        Ok(settings.partitions.into_iter().find(mine))
    }
}

/// Pins a partition to a worker; without one, to its owner.
pub(super) async fn pin(
    common: &Common,
    partition: &PartitionArg,
    to: Option<WorkerId>,
    who: &Who,
) -> Outcome {
    let admin = who.admin(common);
    let to = match to {
        Some(to) => to,
        None => {
            let found = admin.partition(partition.keyspace.as_str(), partition.partition).await?.partition;
            found.owner.map(|owner| owner.worker).ok_or_else(|| {
                Failed::refused(format!("nobody owns partition {partition} now: say --to WORKER"))
            })?
        }
    };
    let note = match hindrance(&admin, partition, &to).await? {
        Some(why) => format!("note: worker {to} {why}\n"),
        None => String::new(),
    };
    let change = PartitionChange { pin: Some(Some(to.clone())), ..PartitionChange::default() };
    set(common, &admin, partition, &change, who, &format!("pinned to {to}"), &note).await
}

/// Why a worker that a partition is pinned to will not have it now.
async fn hindrance(
    admin: &Admin,
    partition: &PartitionArg,
    worker: &WorkerId,
) -> Result<Option<&'static str>, Failed> {
    let Some(detail) = known(admin, worker).await?.filter(|detail| detail.session.is_some()) else {
        return Ok(Some("has no session; the pin waits for it to join"));
    };
    let workers = admin.workers().await?;
    let serves = workers.iter().find(|live| live.worker == *worker);
    if serves.is_some_and(|live| !live.keyspaces.contains(&partition.keyspace)) {
        return Ok(Some("does not serve the keyspace; the pin waits for it to join it"));
    }
    let WorkerSettings { cordoned, frozen, .. } = &detail.settings;
    Ok(match detail.settings.drain() {
        Some(_) => Some("is drained; the pin waits for the end of that"),
        None if cordoned.is_some() => Some("is cordoned; the pin waits for the end of that"),
        None if frozen.is_some() => Some("is frozen; the pin waits for the end of that"),
        None => None,
    })
}

/// Unpins a partition.
pub(super) async fn unpin(common: &Common, partition: &PartitionArg, who: &Who) -> Outcome {
    let change = PartitionChange { pin: Some(None), ..PartitionChange::default() };
    set(common, &who.admin(common), partition, &change, who, "not pinned", "").await
}

/// Says how much a partition counts.
pub(super) async fn weigh(
    common: &Common,
    partition: &PartitionArg,
    weight: WeightArg,
    who: &Who,
) -> Outcome {
    let change = PartitionChange { weight: Some(weight.0), ..PartitionChange::default() };
    let is = weight.0.map_or("without a weight".to_owned(), |weight| format!("of weight {weight}"));
    set(common, &who.admin(common), partition, &change, who, &is, "").await
}

async fn set(
    common: &Common,
    admin: &Admin,
    partition: &PartitionArg,
    change: &PartitionChange,
    who: &Who,
    is: &str,
    note: &str,
) -> Outcome {
    let result = if who.dry_run {
        planned(would_change(partition.settings(admin).await?.as_ref(), change))
    } else {
        result(admin.set_partition(partition.keyspace.as_str(), partition.partition, change).await?)
    };
    let shape =
        SetShape { result, keyspace: partition.keyspace.to_string(), partition: partition.partition.get() };
    common.output().changed(result, &shape, || match result {
        "planned" => format!("partition {partition} would be {is}; nothing was done\n{note}"),
        "unchanged" => format!("partition {partition} is {is} already\n{note}"),
        _ => format!("partition {partition} is {is} now\n{note}"),
    })?;
    Ok(Exit::Done)
}

fn would_change(now: Option<&PartitionSettings>, change: &PartitionChange) -> bool {
    let pin = now.and_then(|set| set.pin.as_ref()).map(|(worker, _)| worker);
    change.pin.as_ref().is_some_and(|to| to.as_ref() != pin)
        || change.weight.is_some_and(|to| to != now.and_then(|set| set.weight))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::json;

    #[test]
    fn the_json_shape_of_a_change_is_a_contract() {
        let shape = SetShape { result: "changed", keyspace: "orders".to_owned(), partition: 17 };
        assert_eq!(json(&shape).unwrap(), r#"{"result":"changed","keyspace":"orders","partition":17}"#);
    }

    #[test]
    fn f062_a_weight_of_a_partition_that_cannot_be_one_is_bad_usage_and_says_the_bounds() {
        assert_eq!(
            (weight("none"), weight("1000000")),
            (Ok(WeightArg(None)), Ok(WeightArg(Some(1_000_000))))
        );
        for bad in ["0", "1000001", "-1", "", "own"] {
            assert!(weight(bad).unwrap_err().contains("1 to 1000000"), "{bad}");
        }
    }

    #[test]
    fn to_unpin_what_is_not_pinned_changes_nothing() {
        let pin = |to: Option<&str>| PartitionChange {
            pin: Some(to.map(|to| WorkerId::new(to).unwrap())),
            ..PartitionChange::default()
        };
        assert!(would_change(None, &pin(Some("w1"))) && !would_change(None, &pin(None)));
    }
}
