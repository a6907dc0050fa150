//! Splitting every partition of a keyspace in two: its beginning, and the beginning taken back.

use super::request::{Answer, run};
use crate::context::Context;
use crate::map::no_such_keyspace;
use crate::placement::directive::{Given, direct};
use crate::refusal;
use ringfence_api::Failure;
use ringfence_api::convert::{RequestId, checked, partition_count};
use ringfence_api::v1;
use ringfence_core::ids::KeyspaceName;
use ringfence_core::placement::PartitionCount;
use ringfence_core::state::{Command, Keyspace, State, Subject};

/// Begins a split, or takes the beginning back.
pub(super) async fn split(
    context: &Context,
    request: v1::SplitKeyspaceRequest,
) -> Result<v1::Keyspace, Failure> {
    let id = RequestId::try_from(request.request)?;
    let given = Given::from(request.directive);
    let name = checked::keyspace_name("name", &request.name)?;
    let from = match request.cancel {
        true => None,
        false => Some(doubled(request.from, request.to)?),
    };
    let what = match from {
        Some(from) => format!("split keyspace {name} from {from} partitions to {}", request.to),
        None => format!("cancel the split of keyspace {name}"),
    };
    if request.dry_run {
        context.confirm().await?;
        let state = &context.replica.lock().state;
        let keyspace = find(state, &name)?;
        let judged = match from {
            Some(from) => state.check_split(keyspace.id(), from),
            None => state.check_cancel_split(keyspace.id()),
        };
        judged.map_err(|why| refusal::failure(&why, state))?;
        return Ok(keyspace.into());
    }
    let answer = run(context, id, |local| {
        let keyspace = find(&local.state, &name)?.id();
        let command = match from {
            Some(from) => Command::StartSplit { keyspace, from },
            None => Command::CancelSplit { keyspace },
        };
        Ok(vec![direct(Subject::Keyspace(keyspace), &given, &what), command])
    });
    if let Answer::Now { .. } = answer.await? {
        tracing::info!(by = ?given.by, reason = ?given.reason, "an operator: {what}");
    }
    let local = context.replica.lock();
    Ok(find(&local.state, &name)?.into())
}

/// Any other change would put keys into partitions whose owners do not fence those who owned the keys before.
fn doubled(from: u32, to: u32) -> Result<PartitionCount, Failure> {
    let count = partition_count("from", from)?;
    if from.checked_mul(2) == Some(to) {
        return Ok(count);
    }
    Err(Failure::invalid(format_args!(
        "to: {to} is not twice {from}. A number of partitions changes by splitting each in two and in no other way: then every \
         new partition has keys of one old one only, and its owner fences whoever owned that one before. For another number \
         create another keyspace and move the data"
    )))
}

fn find<'a>(state: &'a State, name: &KeyspaceName) -> Result<&'a Keyspace, Failure> {
    state.keyspace_named(name).ok_or_else(|| no_such_keyspace(name))
}
