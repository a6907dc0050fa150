//! What became of partitions: ready, released, failed, revoke seen.

use crate::context::Context;
use crate::credentials::{check, session_id};
use crate::refusal::to_failure;
use ringfence_api::Failure;
use ringfence_api::v1::{self, report_item};
use ringfence_core::ids::{Epoch, KeyspaceName, PartitionId, PartitionKey, SessionId};
use ringfence_core::lead::release;
use ringfence_core::state::{Command, MAX_FAILURE_BYTES, Released, State, cut};

/// How many items one report may have: with the grants that follow from them they fit into one log entry.
const MAX_ITEMS: usize = 1_000;

pub(super) async fn report(context: &Context, request: v1::ReportRequest) -> Result<(), Failure> {
    let session = session_id(request.session)?;
    if request.items.len() > MAX_ITEMS {
        return Err(Failure::limit(format!("items: a report has at most {MAX_ITEMS}; send several")));
    }
    check(context, session, &request.secret).await?;

    let with_grants = commands(context, session, &request, true)?;
    if with_grants.is_empty() {
        return Ok(());
    }
    let alone = commands(context, session, &request, false)?;
    let may_retry = with_grants != alone;
    match context.propose(None, with_grants, None).await? {
        Ok(_) => Ok(()),
        // A grant that would have completed a move was overtaken; what the worker said counts all the same.
        Err(_) if may_retry => match context.propose(None, alone, None).await? {
            Ok(_) => Ok(()),
            Err(refusal) => Err(to_failure(context, &refusal.why)),
        },
        Err(refusal) => Err(to_failure(context, &refusal.why)),
    }
}

fn commands(
    context: &Context,
    session: SessionId,
    request: &v1::ReportRequest,
    with_grants: bool,
) -> Result<Vec<Command>, Failure> {
    let now = context.clock.now();
    let local = context.replica.lock();
    let absent = local.leadership.as_ref().map(|led| led.presence.absent(now)).unwrap_or_default();
    let mut commands = Vec::with_capacity(request.items.len() * 2 + 1);
    if request.withdraw {
        commands.push(Command::Withdraw { session });
    }
    for (number, item) in request.items.iter().enumerate() {
        let Some((partition, epoch)) = target(&local.state, number, item)? else { continue };
        let what = item.what.as_ref();
        let what = what.ok_or_else(|| Failure::invalid(format!("items[{number}].what: it is missing")))?;
        let how = match what {
            report_item::What::Ready(_) => {
                commands.push(Command::Ready { partition, epoch, session });
                continue;
            }
            report_item::What::RevokeSeen(_) => {
                commands.push(Command::RevokeSeen { partition, epoch, session });
                continue;
            }
            report_item::What::Behind(behind) => {
                let seen = seen(&local.state, number, epoch, behind)?;
                tracing::warn!(%partition, %epoch, %session, %seen, "storage has seen a higher epoch than the owner's");
                Released::Behind(seen)
            }
            report_item::What::Released(_) => Released::Revoked,
            report_item::What::Restarting(_) => Released::Restarting,
            report_item::What::Returned(_) => Released::Returned,
            report_item::What::Failed(failed) => {
                tracing::warn!(%partition, %epoch, %session, error = %failed.error.escape_debug(), "owner task failed");
                Released::Failed(cut(&failed.error, MAX_FAILURE_BYTES).to_owned())
            }
        };
        let (command, follows) = release(&local.state, partition, epoch, session, how, &absent);
        commands.push(command);
        commands.extend(follows.into_iter().filter(|_| with_grants));
    }
    Ok(commands)
}

/// The epoch that storage has seen, when the report can be true.
fn seen(state: &State, number: usize, own: Epoch, behind: &report_item::Behind) -> Result<Epoch, Failure> {
    match state.cluster() {
        Some(this) if this.id.as_str() == behind.cluster => {}
        Some(this) => return Err(Failure::wrong_cluster(&behind.cluster, &this.id)),
        None => return Err(Failure::unavailable("the cluster is not formed yet; ask again")),
    }
    let field = |why: String| Failure::invalid(format!("items[{number}].behind.seen: {why}"));
    let seen = Epoch::new(behind.seen).map_err(|e| field(e.to_string()))?;
    if seen <= own {
        return Err(field(format!("{seen} is not above {own}, and no fence refuses that")));
    }
    Ok(seen)
}

/// The partition an item speaks of; `None` when its keyspace has been deleted, for then nothing is left to say.
fn target(
    state: &State,
    number: usize,
    item: &v1::ReportItem,
) -> Result<Option<(PartitionKey, Epoch)>, Failure> {
    let field = |what: &str, why: String| Failure::invalid(format!("items[{number}].{what}: {why}"));
    let name = KeyspaceName::new(&item.keyspace).map_err(|e| field("keyspace", e.to_string()))?;
    let epoch = Epoch::new(item.epoch).map_err(|e| field("epoch", e.to_string()))?;
    let Some(keyspace) = state.keyspace_named(&name) else { return Ok(None) };
    let key = PartitionKey { keyspace: keyspace.id(), partition: PartitionId::new(item.partition) };
    if state.partition(key).is_none() {
        return Err(field("partition", format!("keyspace {name} has {} partitions", keyspace.count().get())));
    }
    Ok(Some((key, epoch)))
}
