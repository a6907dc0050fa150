//! `ringfence watch`: changes of ownership as they happen, a line each.
//!
//! It begins with every partition as it is. When changes come faster than they are read, a partition that changed twice
//! is shown once, as it is then: nothing is queued for a slow reader.

use crate::args::Common;
use crate::exit::Outcome;
use crate::output::Output;
use clap::Args;
use ringfence::ids::{Epoch, KeyspaceName};
use ringfence::router::{KeyspaceView, Owner, PartitionView, View};
use serde::Serialize;
use std::io;

/// Arguments of `ringfence watch`.
#[derive(Debug, Args)]
#[command(after_help = "\
It ends when it is interrupted, or with the first change that nobody reads any more. While no coordinator can be reached
it waits and says so on standard error; then it goes on where it stopped, without a gap.

Examples:
  ringfence watch orders
  ringfence watch -o json | jq 'select(.ready)'")]
pub(crate) struct WatchArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Only this keyspace [default: all]
    keyspace: Option<KeyspaceName>,
}

/// One partition as it is now.
#[derive(Debug, Serialize)]
struct ChangeShape<'a> {
    /// Of the map, when it was so.
    revision: u64,
    keyspace: &'a str,
    partition: u32,
    phase: String,
    worker: Option<&'a str>,
    session: Option<u64>,
    address: Option<&'a str>,
    epoch: Option<u64>,
    ready: bool,
}

/// A keyspace that is gone.
#[derive(Debug, Serialize)]
struct DeletedShape<'a> {
    revision: u64,
    keyspace: &'a str,
    /// Always true.
    deleted: bool,
}

/// Runs `ringfence watch`. It returns only when nobody reads any more.
pub(crate) async fn run(args: WatchArgs) -> Outcome {
    let output = args.common.output();
    let names = args.keyspace.iter().map(KeyspaceName::as_str);
    let router = args.common.follow(&args.common.coordinator(), names).await?;
    let mut view = router.view();
    for keyspace in by_name(&view) {
        for partition in keyspace.partitions() {
            show_partition(output, &view, keyspace, &partition)?;
        }
    }
    loop {
        let next = router.changed_since(&view).await;
        for keyspace in by_name(&view) {
            if next.keyspace(keyspace.name().as_str()).is_none() {
                show_deleted(output, &next, keyspace)?;
            }
        }
        for keyspace in by_name(&next) {
            match view.keyspace(keyspace.name().as_str()) {
                Some(before) => {
                    for partition in keyspace.changed_since(before) {
                        show_partition(output, &next, keyspace, &partition)?;
                    }
                }
                None => {
                    for partition in keyspace.partitions() {
                        show_partition(output, &next, keyspace, &partition)?;
                    }
                }
            }
        }
        view = next;
    }
}

fn by_name(view: &View) -> Vec<&KeyspaceView> {
    let mut keyspaces: Vec<_> = view.keyspaces().collect();
    keyspaces.sort_by_key(|keyspace| keyspace.name());
    keyspaces
}

fn show_partition(
    output: Output,
    view: &View,
    keyspace: &KeyspaceView,
    partition: &PartitionView,
) -> io::Result<()> {
    let owner = partition.owner();
    let shape = ChangeShape {
        revision: view.revision().get(),
        keyspace: keyspace.name().as_str(),
        partition: partition.partition().get(),
        phase: partition.phase().to_string(),
        worker: owner.map(|owner| owner.worker().as_str()),
        session: owner.map(|owner| owner.session().get()),
        address: owner.map(Owner::address).filter(|address| !address.is_empty()),
        epoch: partition.epoch().map(Epoch::get),
        ready: owner.is_some_and(Owner::is_ready),
    };
    output.one_of_many(&shape, || line(&shape))
}

fn show_deleted(output: Output, view: &View, keyspace: &KeyspaceView) -> io::Result<()> {
    let name = keyspace.name();
    let shape = DeletedShape { revision: view.revision().get(), keyspace: name.as_str(), deleted: true };
    output.one_of_many(&shape, || format!("r{} {name} deleted\n", shape.revision))
}

fn line(change: &ChangeShape<'_>) -> String {
    let owner = match (change.worker, change.session) {
        (Some(worker), Some(session)) => format!(" {worker} s{session}"),
        _ => String::new(),
    };
    let epoch = change.epoch.map(|epoch| format!(" e{epoch}")).unwrap_or_default();
    let ready = if change.ready { " ready" } else { "" };
    format!(
        "r{} {}/{} {}{owner}{epoch}{ready}\n",
        change.revision, change.keyspace, change.partition, change.phase
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::json;

    fn change() -> ChangeShape<'static> {
        ChangeShape {
            revision: 7,
            keyspace: "orders",
            partition: 17,
            phase: "owned".to_owned(),
            worker: Some("w1"),
            session: Some(12),
            address: None,
            epoch: Some(42),
            ready: true,
        }
    }

    #[test]
    fn the_json_shape_of_a_change_is_a_contract() {
        assert_eq!(
            json(&change()).unwrap(),
            r#"{"revision":7,"keyspace":"orders","partition":17,"phase":"owned","worker":"w1","session":12,"#
                .to_owned()
                + r#""address":null,"epoch":42,"ready":true}"#
        );
        let deleted = DeletedShape { revision: 8, keyspace: "orders", deleted: true };
        assert_eq!(json(&deleted).unwrap(), r#"{"revision":8,"keyspace":"orders","deleted":true}"#);
    }

    #[test]
    fn a_change_is_a_line() {
        assert_eq!(line(&change()), "r7 orders/17 owned w1 s12 e42 ready\n");
        let vacant =
            ChangeShape { worker: None, session: None, ready: false, phase: "vacant".to_owned(), ..change() };
        assert_eq!(line(&vacant), "r7 orders/17 vacant e42\n");
    }
}
