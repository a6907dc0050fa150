//! Orders to raise fences again, and how far they are.

use crate::admin::moves::find;
use crate::admin::request::{Answer, run};
use crate::context::Context;
use crate::map::no_such_keyspace;
use crate::placement::directive::{Given, direct, named};
use crate::placement::whose::frozen;
use crate::refusal;
use ringfence_api::Failure;
use ringfence_api::convert::{RequestId, checked};
use ringfence_api::v1;
use ringfence_api::v1::reassert as wire;
use ringfence_core::ids::{Epoch, KeyspaceId, KeyspaceName, PartitionId, PartitionKey, SessionId};
use ringfence_core::state::{Command, Keyspace, Reassert, Reasserted, State, Subject};
use std::collections::BTreeMap;

/// How many partitions are named one by one.
const NAMED: usize = 100;

/// What is to be raised again.
struct Wanted {
    keyspace: KeyspaceName,
    one: Option<PartitionId>,
    above: Option<Epoch>,
}

/// Gives the order, or says what it would be.
pub(super) async fn order(
    context: &Context,
    request: v1::ReassertRequest,
) -> Result<v1::ReassertResponse, Failure> {
    let wanted = Wanted {
        keyspace: checked::keyspace_name("keyspace", &request.keyspace)?,
        one: request.partition.map(PartitionId::new),
        above: checked::epoch_or_none("above", request.above)?,
    };
    if wanted.above.is_some() && wanted.one.is_none() {
        return Err(Failure::invalid(
            "above: it is said of one partition; name it, as in orders/17 --above 150",
        ));
    }
    if request.dry_run {
        context.confirm().await?;
        let state = &context.replica.lock().state;
        let key = key(state, &wanted)?;
        judge(state, key, &wanted).map_err(|why| refusal::failure(&why, state))?;
        return shown(state, &wanted, 0);
    }
    let id = RequestId::try_from(request.request)?;
    let given = Given::from(request.directive);
    let what = wanted.in_words();
    let answer = run(context, id, |local| {
        let key = key(&local.state, &wanted)?;
        let subject = match wanted.one {
            Some(_) => Subject::Partition(key),
            None => Subject::Keyspace(key.keyspace),
        };
        let above = wanted.above.map(|above| Command::RaiseAbove { partition: key, above });
        let order = Command::Reassert { keyspace: key.keyspace, partition: wanted.one };
        Ok([direct(subject, &given, &what)].into_iter().chain(above).chain([order]).collect())
    });
    if let Answer::Now { .. } = answer.await? {
        tracing::warn!(by = ?given.by, reason = ?given.reason, "an operator: {what}");
    }
    let local = context.replica.lock();
    let id = key(&local.state, &wanted)?.keyspace;
    let is_it = |order: &&Reassert| order.keyspace == id && order.partition == wanted.one;
    let order = local.state.reasserts().rev().find(is_it).map_or(0, |order| order.at.get());
    shown(&local.state, &wanted, order)
}

impl Wanted {
    fn in_words(&self) -> String {
        let name = &self.keyspace;
        match (self.one, self.above) {
            (None, _) => format!("raise the fences of keyspace {name} again"),
            (Some(one), None) => format!("raise the fences of partition {name}/{} again", one.get()),
            (Some(one), Some(above)) => {
                format!("raise the fences of partition {name}/{} again, above {above}", one.get())
            }
        }
    }
}

/// The partition, or the first one of all.
fn key(state: &State, wanted: &Wanted) -> Result<PartitionKey, Failure> {
    find(state, &wanted.keyspace, wanted.one.unwrap_or(PartitionId::new(0)))
}

fn judge(state: &State, key: PartitionKey, wanted: &Wanted) -> Result<(), ringfence_core::state::Refused> {
    if let Some(above) = wanted.above {
        state.check_raise_above(key, above)?;
    }
    state.check_reassert(key.keyspace, wanted.one)
}

fn shown(state: &State, wanted: &Wanted, order: u64) -> Result<v1::ReassertResponse, Failure> {
    let keyspace =
        state.keyspace_named(&wanted.keyspace).ok_or_else(|| no_such_keyspace(&wanted.keyspace))?;
    let of_it = |number: u32| wanted.one.is_none_or(|one| one.get() == number);
    let partitions = (0u32..).zip(keyspace.partitions()).filter(|(number, _)| of_it(*number));
    let (mut all, mut owned) = (0, 0);
    for (_, partition) in partitions {
        all += 1;
        owned += u32::from(partition.owner().is_some());
    }
    Ok(v1::ReassertResponse { order, partitions: all, owned })
}

/// How far the orders are, newest first.
pub(super) async fn list(
    context: &Context,
    request: v1::ListReassertsRequest,
) -> Result<v1::ListReassertsResponse, Failure> {
    let only = match request.keyspace.as_str() {
        "" => None,
        name => Some(checked::keyspace_name("keyspace", name)?),
    };
    context.confirm().await?;
    let orders: Vec<Reassert> = {
        let state = &context.replica.lock().state;
        let id = match &only {
            None => None,
            Some(name) => Some(state.keyspace_named(name).ok_or_else(|| no_such_keyspace(name))?.id()),
        };
        let of_it = |order: &&Reassert| id.is_none_or(|id: KeyspaceId| id == order.keyspace);
        state.reasserts().rev().filter(of_it).cloned().collect()
    };
    // One order at a time, so that what is applied does not wait for millions of partitions to be looked at.
    let far = orders.iter().filter_map(|order| progress(&context.replica.lock().state, order));
    Ok(v1::ListReassertsResponse { reasserts: far.collect() })
}

fn progress(state: &State, order: &Reassert) -> Option<v1::Reassert> {
    let keyspace = state.keyspace(order.keyspace)?;
    let mut far = v1::Reassert {
        order: order.at.get(),
        unix_ms: order.unix_ms,
        keyspace: keyspace.name().to_string(),
        partition: order.partition.map(PartitionId::get),
        directive: Some(named(state, order.by)),
        ..v1::Reassert::default()
    };
    let mut workers: BTreeMap<String, u32> = BTreeMap::new();
    for number in order.partitions(keyspace) {
        far.partitions += 1;
        let key = PartitionKey { keyspace: keyspace.id(), partition: PartitionId::new(number) };
        let (step, session, frozen) = match state.reasserted(order, key) {
            Reasserted::Done => {
                far.done += 1;
                continue;
            }
            Reasserted::Ownerless => {
                far.ownerless += 1;
                continue;
            }
            Reasserted::Held(owner) => (wire::Step::Held, owner, String::new()),
            Reasserted::Ending(owner) => (wire::Step::Ending, owner, String::new()),
            Reasserted::Raising(owner) => (wire::Step::Raising, owner, String::new()),
            Reasserted::Frozen(owner, what) => (wire::Step::Frozen, owner, frozen(&what, state)),
        };
        let worker = worker(state, session);
        far.waiting_total += 1;
        *workers.entry(worker.clone()).or_default() += 1;
        if far.waiting.len() < NAMED {
            let (partition, epoch) = (number, epoch(keyspace, number));
            far.waiting.push(wire::Waiting { partition, epoch, worker, step: step.into(), frozen });
        }
    }
    let of_worker = |(worker, partitions)| wire::OfWorker { worker, partitions };
    far.workers = workers.into_iter().map(of_worker).collect();
    Some(far)
}

fn epoch(keyspace: &Keyspace, number: u32) -> u64 {
    let partition = keyspace.partitions().get(number as usize);
    partition.and_then(ringfence_core::state::Partition::epoch).map_or(0, Epoch::get)
}

fn worker(state: &State, session: SessionId) -> String {
    state.session(session).map_or_else(|| session.to_string(), |session| session.worker().to_string())
}
