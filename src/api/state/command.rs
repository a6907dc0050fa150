//! Commands of a log entry, to the wire and back.

use super::directive;
use super::fields::{
    directive_from_wire, directive_to_wire, id_from_wire, id_to_wire, key_from_wire, key_to_wire,
    keyspaces_from_wire, keyspaces_to_wire, labels_from_wire, labels_to_wire, reason_from_wire,
    reason_to_wire, weight_from_wire,
};
use super::{lock, plan, refusal};
use crate::convert::{InvalidField, checked, partition_count, wish_to_wire};
use crate::v1::log_command as wire;
use crate::v1::{self, log_command::Command as Wire};
use prost::bytes::Bytes;
use ringfence_core::ids::{
    ClusterId, Epoch, KeyspaceId, LogIndex, MoveId, PartitionId, Revision, SessionId, WorkerId,
};
use ringfence_core::placement::Weight;
use ringfence_core::state::{Command, Join, PartitionChange, Policy, PolicyChange, Released, WorkerChange};
use std::time::Duration;

pub(super) fn to_wire(command: &Command) -> v1::LogCommand {
    let command = match command {
        Command::FormCluster { cluster, lineage } => {
            Wire::FormCluster(wire::FormCluster { cluster: cluster.to_string(), lineage: *lineage })
        }
        Command::NoteNode { node } => Wire::NoteNode(wire::NoteNode { node: node.get() }),
        Command::CreateKeyspace { keyspace, partitions, policy } => {
            Wire::CreateKeyspace(wire::CreateKeyspace {
                keyspace: keyspace.to_string(),
                partitions: partitions.get(),
                policy: Some(policy.into()),
            })
        }
        Command::UpdateKeyspace { keyspace, change } => Wire::UpdateKeyspace(wire::UpdateKeyspace {
            keyspace: keyspace.get(),
            change: Some(change.into()),
        }),
        Command::DeleteKeyspace { keyspace } => {
            Wire::DeleteKeyspace(wire::DeleteKeyspace { keyspace: keyspace.get() })
        }
        Command::Join(join) => Wire::Join(join_to_wire(join)),
        Command::Withdraw { session } => Wire::Withdraw(wire::Withdraw { session: session.get() }),
        Command::Leave { session } => Wire::Leave(wire::Leave { session: session.get() }),
        Command::Suspect { sessions } => Wire::Suspect(wire::Suspect {
            sessions: sessions.iter().map(|(session, _)| session.get()).collect(),
            thirds: sessions.iter().map(|(_, thirds)| u32::from(*thirds)).collect(),
        }),
        Command::Clear { sessions } => {
            Wire::Clear(wire::Clear { sessions: sessions.iter().map(|session| session.get()).collect() })
        }
        Command::Expire { session, suspicion } => {
            Wire::Expire(wire::Expire { session: session.get(), suspicion_index: suspicion.get() })
        }
        Command::Grant { partition, replaces, to, why } => Wire::Grant(wire::Grant {
            partition: Some(key_to_wire(*partition)),
            replaces: replaces.map_or(0, Epoch::get),
            session: to.get(),
            why: reason_to_wire(*why),
        }),
        Command::Drain { partition, epoch, to, deadline, why } => Wire::Drain(wire::Drain {
            partition: Some(key_to_wire(*partition)),
            epoch: epoch.get(),
            to: to.to_string(),
            deadline_ms: checked::millis(*deadline),
            why: reason_to_wire(*why),
        }),
        Command::RevokeSeen { partition, epoch, session } => Wire::RevokeSeen(wire::RevokeSeen {
            partition: Some(key_to_wire(*partition)),
            epoch: epoch.get(),
            session: session.get(),
        }),
        Command::DrainOver { partition, epoch, move_id } => Wire::DrainOver(wire::DrainOver {
            partition: Some(key_to_wire(*partition)),
            epoch: epoch.get(),
            r#move: move_id.get(),
        }),
        Command::Seize { partition, epoch, session } => Wire::Seize(wire::Seize {
            partition: Some(key_to_wire(*partition)),
            epoch: epoch.get(),
            session: session.get(),
        }),
        Command::Release { partition, epoch, session, how } => Wire::Release(wire::Release {
            partition: Some(key_to_wire(*partition)),
            epoch: epoch.get(),
            session: session.get(),
            how: Some(released_to_wire(how)),
        }),
        Command::Ready { partition, epoch, session } => Wire::Ready(wire::Ready {
            partition: Some(key_to_wire(*partition)),
            epoch: epoch.get(),
            session: session.get(),
        }),
        Command::EndCooling { partition, epoch } => Wire::EndCooling(wire::EndCooling {
            partition: Some(key_to_wire(*partition)),
            epoch: epoch.get(),
        }),
        Command::Forgive { partition, epoch } => {
            Wire::Forgive(wire::Forgive { partition: Some(key_to_wire(*partition)), epoch: epoch.get() })
        }
        Command::Direct { subject, by, what, reason } => Wire::Direct(wire::Direct {
            subject: Some(directive::subject_to_wire(subject)),
            by: by.clone(),
            what: what.clone(),
            reason: reason.clone(),
        }),
        Command::Under { directive } => Wire::Under(wire::Under { directive_index: directive.get() }),
        Command::SetWorker { worker, change } => Wire::SetWorker(wire::SetWorker {
            worker: worker.to_string(),
            drained: change.drained,
            cordoned: change.cordoned,
            frozen: change.frozen,
            weight: change.weight.map(|weight| weight.map_or(0, Weight::get)),
            drained_until_join: change.drained_until_join,
        }),
        Command::ForgetWorker { worker } => {
            Wire::ForgetWorker(wire::ForgetWorker { worker: worker.to_string() })
        }
        Command::SetPartition { partition, change } => Wire::SetPartition(wire::SetPartition {
            partition: Some(key_to_wire(*partition)),
            pin: change.pin.as_ref().map(|pin| pin.as_ref().map_or(String::new(), WorkerId::to_string)),
            frozen: change.frozen,
            weight: change.weight.map(|weight| weight.unwrap_or(0)),
        }),
        Command::Freeze { keyspace, frozen } => {
            Wire::Freeze(wire::Freeze { keyspace: keyspace.map(KeyspaceId::get), frozen: *frozen })
        }
        Command::OpenPlan { size, map, undoes } => {
            let map_revision = map.map_or(0, Revision::get);
            Wire::OpenPlan(wire::OpenPlan {
                size: *size,
                map_revision,
                undoes_index: directive_to_wire(*undoes),
            })
        }
        Command::ExtendPlan { plan, moves } => Wire::ExtendPlan(wire::ExtendPlan {
            plan_index: plan.get(),
            moves: moves.iter().map(plan::move_to_wire).collect(),
        }),
        Command::SkipPlanned { plan, partition, why } => Wire::SkipPlanned(wire::SkipPlanned {
            plan_index: plan.get(),
            partition: Some(key_to_wire(*partition)),
            why: plan::skip_to_wire(*why),
        }),
        Command::CancelPlan { plan, only_open } => {
            Wire::CancelPlan(wire::CancelPlan { plan_index: plan.get(), only_open: *only_open })
        }
        Command::Evict { session } => Wire::Evict(wire::Evict { session: session.get() }),
        Command::StartSplit { keyspace, from } => {
            Wire::StartSplit(wire::StartSplit { keyspace: keyspace.get(), from: from.get() })
        }
        Command::CancelSplit { keyspace } => {
            Wire::CancelSplit(wire::CancelSplit { keyspace: keyspace.get() })
        }
        Command::Split { partition, epoch } => Wire::Split(wire::Split {
            partition: Some(key_to_wire(*partition)),
            epoch: epoch.map_or(0, Epoch::get),
        }),
        Command::NoteRefusals { notes } => Wire::NoteRefusals(wire::NoteRefusals {
            notes: notes.iter().map(refusal::note_to_wire).collect(),
        }),
        Command::Reassert { keyspace, partition } => Wire::Reassert(wire::Reassert {
            keyspace: keyspace.get(),
            partition: partition.map(PartitionId::get),
        }),
        Command::EndReassert { order, keyspace, partition } => Wire::EndReassert(wire::EndReassert {
            order_index: order.get(),
            keyspace: keyspace.get(),
            partition: partition.map(PartitionId::get),
        }),
        Command::RaiseAbove { partition, above } => Wire::RaiseAbove(wire::RaiseAbove {
            partition: Some(key_to_wire(*partition)),
            above: above.get(),
        }),
        Command::AcquireLock { lock, session, request, wish, waits } => {
            Wire::AcquireLock(wire::AcquireLock {
                lock: lock.to_string(),
                session: session.get(),
                number: *request,
                wish: Some(wish_to_wire(*wish)),
                wait: *waits,
            })
        }
        Command::ReleaseLock { lock, epoch, session } => Wire::ReleaseLock(wire::ReleaseLock {
            lock: lock.to_string(),
            epoch: epoch.get(),
            session: session.get(),
        }),
        Command::AbandonLock { lock, session, request } => Wire::AbandonLock(wire::AbandonLock {
            lock: lock.to_string(),
            session: session.get(),
            number: *request,
        }),
        Command::SeizeLock { lock, epoch, session } => Wire::SeizeLock(wire::SeizeLock {
            lock: lock.to_string(),
            epoch: epoch.get(),
            session: session.get(),
        }),
        Command::BreakLock { lock, epoch, at_once } => Wire::BreakLock(wire::BreakLock {
            lock: lock.to_string(),
            epoch: epoch.map_or(0, Epoch::get),
            at_once: *at_once,
        }),
        Command::EndLockCooling { lock, epoch, session } => Wire::EndLockCooling(wire::EndLockCooling {
            lock: lock.to_string(),
            epoch: epoch.get(),
            session: session.get(),
        }),
    };
    v1::LogCommand { command: Some(command) }
}

fn join_to_wire(join: &Join) -> wire::Join {
    wire::Join {
        worker: join.worker.to_string(),
        nonce: id_to_wire(join.nonce),
        secret_sha256: Bytes::copy_from_slice(&join.secret_hash),
        address: join.address.clone(),
        weight: join.weight.get(),
        labels: labels_to_wire(&join.labels),
        keyspaces: keyspaces_to_wire(&join.keyspaces),
        replaces: join.replaces.map_or(0, SessionId::get),
        splits: join.splits,
        ends_drain_index: join.ends_drain.map_or(0, LogIndex::get),
        ttl_ms: join.ttl.map_or(0, checked::millis),
    }
}

fn released_to_wire(how: &Released) -> wire::release::How {
    use wire::release::{Behind, Failed, How, Restarting, Returned, Revoked};
    match how {
        Released::Revoked => How::Revoked(Revoked {}),
        Released::Returned => How::Returned(Returned {}),
        Released::Failed(error) => How::Failed(Failed { error: error.clone() }),
        Released::Restarting => How::Restarting(Restarting {}),
        Released::Behind(seen) => How::Behind(Behind { seen: seen.get() }),
    }
}

pub(super) fn from_wire(command: v1::LogCommand) -> Result<Command, InvalidField> {
    let (name, command) = match command.command {
        None => return Err(InvalidField::missing("command")),
        Some(Wire::FormCluster(c)) => ("form_cluster", form_cluster(&c)),
        Some(Wire::NoteNode(c)) => {
            ("note_node", checked::node_id("node", c.node).map(|node| Command::NoteNode { node }))
        }
        Some(Wire::CreateKeyspace(c)) => ("create_keyspace", create_keyspace(c)),
        Some(Wire::UpdateKeyspace(c)) => ("update_keyspace", update_keyspace(c)),
        Some(Wire::DeleteKeyspace(c)) => {
            ("delete_keyspace", Ok(Command::DeleteKeyspace { keyspace: KeyspaceId::new(c.keyspace) }))
        }
        Some(Wire::Join(c)) => ("join", join(c)),
        Some(Wire::Withdraw(c)) => {
            ("withdraw", session(c.session).map(|session| Command::Withdraw { session }))
        }
        Some(Wire::Leave(c)) => ("leave", session(c.session).map(|session| Command::Leave { session })),
        Some(Wire::Suspect(c)) => ("suspect", suspect(&c)),
        Some(Wire::Clear(c)) => ("clear", sessions(&c.sessions).map(|sessions| Command::Clear { sessions })),
        Some(Wire::Expire(c)) => ("expire", expire(&c)),
        Some(Wire::Grant(c)) => ("grant", grant(c)),
        Some(Wire::Drain(c)) => ("drain", drain(c)),
        Some(Wire::RevokeSeen(c)) => ("revoke_seen", revoke_seen(c)),
        Some(Wire::DrainOver(c)) => ("drain_over", drain_over(c)),
        Some(Wire::Seize(c)) => ("seize", seize(c)),
        Some(Wire::Release(c)) => ("release", release(c)),
        Some(Wire::Ready(c)) => ("ready", ready(c)),
        Some(Wire::EndCooling(c)) => ("end_cooling", end_cooling(c)),
        Some(Wire::Forgive(c)) => ("forgive", forgive(c)),
        Some(Wire::Direct(c)) => ("direct", direct(c)),
        Some(Wire::Under(c)) => ("under", Ok(Command::Under { directive: LogIndex::new(c.directive_index) })),
        Some(Wire::SetWorker(c)) => ("set_worker", set_worker(&c)),
        Some(Wire::ForgetWorker(c)) => {
            let worker = checked::worker_id("worker", &c.worker);
            ("forget_worker", worker.map(|worker| Command::ForgetWorker { worker }))
        }
        Some(Wire::SetPartition(c)) => ("set_partition", set_partition(c)),
        Some(Wire::Freeze(c)) => {
            let keyspace = c.keyspace.map(KeyspaceId::new);
            ("freeze", Ok(Command::Freeze { keyspace, frozen: c.frozen }))
        }
        Some(Wire::OpenPlan(c)) => {
            let map = Some(c.map_revision).filter(|map| *map > 0).map(Revision::new);
            (
                "open_plan",
                Ok(Command::OpenPlan { size: c.size, map, undoes: directive_from_wire(c.undoes_index) }),
            )
        }
        Some(Wire::ExtendPlan(c)) => ("extend_plan", extend_plan(c)),
        Some(Wire::SkipPlanned(c)) => ("skip_planned", skip_planned(&c)),
        Some(Wire::CancelPlan(c)) => {
            let (plan, only_open) = (LogIndex::new(c.plan_index), c.only_open);
            ("cancel_plan", Ok(Command::CancelPlan { plan, only_open }))
        }
        Some(Wire::Evict(c)) => ("evict", session(c.session).map(|session| Command::Evict { session })),
        Some(Wire::StartSplit(c)) => ("start_split", start_split(&c)),
        Some(Wire::CancelSplit(c)) => {
            ("cancel_split", Ok(Command::CancelSplit { keyspace: KeyspaceId::new(c.keyspace) }))
        }
        Some(Wire::Split(c)) => ("split", split(c)),
        Some(Wire::NoteRefusals(c)) => ("note_refusals", note_refusals(c)),
        Some(Wire::Reassert(c)) => {
            let (keyspace, partition) = (KeyspaceId::new(c.keyspace), c.partition.map(PartitionId::new));
            ("reassert", Ok(Command::Reassert { keyspace, partition }))
        }
        Some(Wire::EndReassert(c)) => {
            let (keyspace, partition) = (KeyspaceId::new(c.keyspace), c.partition.map(PartitionId::new));
            let order = LogIndex::new(c.order_index);
            ("end_reassert", Ok(Command::EndReassert { order, keyspace, partition }))
        }
        Some(Wire::RaiseAbove(c)) => ("raise_above", raise_above(c)),
        Some(Wire::AcquireLock(c)) => ("acquire_lock", lock::acquire(c)),
        Some(Wire::ReleaseLock(c)) => ("release_lock", lock::release(&c)),
        Some(Wire::AbandonLock(c)) => ("abandon_lock", lock::abandon(&c)),
        Some(Wire::SeizeLock(c)) => ("seize_lock", lock::seize(&c)),
        Some(Wire::BreakLock(c)) => ("break_lock", lock::break_(&c)),
        Some(Wire::EndLockCooling(c)) => ("end_lock_cooling", lock::end_cooling(&c)),
    };
    command.map_err(|e| e.within(name))
}

fn session(number: u64) -> Result<SessionId, InvalidField> {
    checked::session("session", number)
}

fn epoch(number: u64) -> Result<Epoch, InvalidField> {
    checked::epoch("epoch", number)
}

fn sessions(numbers: &[u64]) -> Result<Vec<SessionId>, InvalidField> {
    numbers.iter().map(|number| checked::session("sessions", *number)).collect()
}

fn form_cluster(c: &wire::FormCluster) -> Result<Command, InvalidField> {
    let cluster = ClusterId::new(&c.cluster).map_err(|why| InvalidField::new("cluster", why))?;
    Ok(Command::FormCluster { cluster, lineage: c.lineage })
}

fn create_keyspace(c: wire::CreateKeyspace) -> Result<Command, InvalidField> {
    let policy = c.policy.ok_or_else(|| InvalidField::missing("policy"))?;
    Ok(Command::CreateKeyspace {
        keyspace: checked::keyspace_name("keyspace", &c.keyspace)?,
        partitions: partition_count("partitions", c.partitions)?,
        policy: Policy::try_from(policy).map_err(|e| e.within("policy"))?,
    })
}

fn update_keyspace(c: wire::UpdateKeyspace) -> Result<Command, InvalidField> {
    let change = c.change.ok_or_else(|| InvalidField::missing("change"))?;
    Ok(Command::UpdateKeyspace {
        keyspace: KeyspaceId::new(c.keyspace),
        change: PolicyChange::try_from(change).map_err(|e| e.within("change"))?,
    })
}

fn join(c: wire::Join) -> Result<Command, InvalidField> {
    Ok(Command::Join(Box::new(Join {
        worker: checked::worker_id("worker", &c.worker)?,
        nonce: id_from_wire("nonce", &c.nonce)?,
        secret_hash: checked::bytes("secret_sha256", &c.secret_sha256)?,
        address: c.address,
        weight: weight_from_wire(c.weight)?,
        labels: labels_from_wire(c.labels),
        keyspaces: keyspaces_from_wire(c.keyspaces),
        replaces: SessionId::new(c.replaces),
        splits: c.splits,
        ends_drain: Some(LogIndex::new(c.ends_drain_index)).filter(|_| c.ends_drain_index > 0),
        ttl: Some(Duration::from_millis(c.ttl_ms)).filter(|_| c.ttl_ms > 0),
    })))
}

fn suspect(c: &wire::Suspect) -> Result<Command, InvalidField> {
    if c.sessions.len() != c.thirds.len() {
        let why = format!("there are {} of them for {} sessions", c.thirds.len(), c.sessions.len());
        return Err(InvalidField::new("thirds", why));
    }
    let thirds = |number: &u32| {
        u8::try_from(*number).map_err(|_| InvalidField::new("thirds", format_args!("{number} is not 1 or 2")))
    };
    let sessions = sessions(&c.sessions)?.into_iter().zip(&c.thirds);
    let sessions = sessions.map(|(session, number)| Ok((session, thirds(number)?)));
    Ok(Command::Suspect { sessions: sessions.collect::<Result<_, _>>()? })
}

fn expire(c: &wire::Expire) -> Result<Command, InvalidField> {
    Ok(Command::Expire { session: session(c.session)?, suspicion: LogIndex::new(c.suspicion_index) })
}

fn grant(c: wire::Grant) -> Result<Command, InvalidField> {
    Ok(Command::Grant {
        partition: key_from_wire(c.partition)?,
        replaces: checked::epoch_or_none("replaces", c.replaces)?,
        to: session(c.session)?,
        why: reason_from_wire(c.why)?,
    })
}

fn drain(c: wire::Drain) -> Result<Command, InvalidField> {
    Ok(Command::Drain {
        partition: key_from_wire(c.partition)?,
        epoch: epoch(c.epoch)?,
        to: checked::worker_id("to", &c.to)?,
        deadline: Duration::from_millis(c.deadline_ms),
        why: reason_from_wire(c.why)?,
    })
}

fn revoke_seen(c: wire::RevokeSeen) -> Result<Command, InvalidField> {
    Ok(Command::RevokeSeen {
        partition: key_from_wire(c.partition)?,
        epoch: epoch(c.epoch)?,
        session: session(c.session)?,
    })
}

fn drain_over(c: wire::DrainOver) -> Result<Command, InvalidField> {
    Ok(Command::DrainOver {
        partition: key_from_wire(c.partition)?,
        epoch: epoch(c.epoch)?,
        move_id: MoveId::new(c.r#move),
    })
}

fn seize(c: wire::Seize) -> Result<Command, InvalidField> {
    Ok(Command::Seize {
        partition: key_from_wire(c.partition)?,
        epoch: epoch(c.epoch)?,
        session: session(c.session)?,
    })
}

fn release(c: wire::Release) -> Result<Command, InvalidField> {
    use wire::release::How;
    let how = match c.how.ok_or_else(|| InvalidField::missing("how"))? {
        How::Revoked(_) => Released::Revoked,
        How::Returned(_) => Released::Returned,
        How::Failed(failed) => Released::Failed(failed.error),
        How::Restarting(_) => Released::Restarting,
        How::Behind(behind) => Released::Behind(checked::epoch("how.seen", behind.seen)?),
    };
    Ok(Command::Release {
        partition: key_from_wire(c.partition)?,
        epoch: epoch(c.epoch)?,
        session: session(c.session)?,
        how,
    })
}

fn ready(c: wire::Ready) -> Result<Command, InvalidField> {
    Ok(Command::Ready {
        partition: key_from_wire(c.partition)?,
        epoch: epoch(c.epoch)?,
        session: session(c.session)?,
    })
}

fn end_cooling(c: wire::EndCooling) -> Result<Command, InvalidField> {
    Ok(Command::EndCooling { partition: key_from_wire(c.partition)?, epoch: epoch(c.epoch)? })
}

fn forgive(c: wire::Forgive) -> Result<Command, InvalidField> {
    Ok(Command::Forgive { partition: key_from_wire(c.partition)?, epoch: epoch(c.epoch)? })
}

fn direct(c: wire::Direct) -> Result<Command, InvalidField> {
    let subject = directive::subject_from_wire(c.subject)?;
    Ok(Command::Direct { subject, by: c.by, what: c.what, reason: c.reason })
}

fn set_worker(c: &wire::SetWorker) -> Result<Command, InvalidField> {
    let weight = |number| if number == 0 { Ok(None) } else { weight_from_wire(number).map(Some) };
    let change = WorkerChange {
        drained: c.drained,
        drained_until_join: c.drained_until_join,
        cordoned: c.cordoned,
        frozen: c.frozen,
        weight: c.weight.map(weight).transpose()?,
    };
    Ok(Command::SetWorker { worker: checked::worker_id("worker", &c.worker)?, change })
}

fn set_partition(c: wire::SetPartition) -> Result<Command, InvalidField> {
    let pin = |name: String| {
        if name.is_empty() { Ok(None) } else { checked::worker_id("pin", &name).map(Some) }
    };
    let change = PartitionChange {
        pin: c.pin.map(pin).transpose()?,
        frozen: c.frozen,
        weight: c.weight.map(|number| (number > 0).then_some(number)),
    };
    Ok(Command::SetPartition { partition: key_from_wire(c.partition)?, change })
}

fn start_split(c: &wire::StartSplit) -> Result<Command, InvalidField> {
    let from = partition_count("from", c.from)?;
    Ok(Command::StartSplit { keyspace: KeyspaceId::new(c.keyspace), from })
}

fn split(c: wire::Split) -> Result<Command, InvalidField> {
    let epoch = checked::epoch_or_none("epoch", c.epoch)?;
    Ok(Command::Split { partition: key_from_wire(c.partition)?, epoch })
}

fn note_refusals(c: wire::NoteRefusals) -> Result<Command, InvalidField> {
    let notes = c.notes.into_iter().enumerate();
    let notes = notes.map(|(place, note)| refusal::note_from_wire(note).map_err(|e| e.at("notes", place)));
    Ok(Command::NoteRefusals { notes: notes.collect::<Result<_, _>>()? })
}

fn raise_above(c: wire::RaiseAbove) -> Result<Command, InvalidField> {
    let above = checked::epoch("above", c.above)?;
    Ok(Command::RaiseAbove { partition: key_from_wire(c.partition)?, above })
}

fn extend_plan(c: wire::ExtendPlan) -> Result<Command, InvalidField> {
    let moves = c.moves.into_iter().enumerate();
    let moves = moves.map(|(place, m)| plan::move_from_wire(m).map_err(|e| e.at("moves", place)));
    Ok(Command::ExtendPlan { plan: LogIndex::new(c.plan_index), moves: moves.collect::<Result<_, _>>()? })
}

fn skip_planned(c: &wire::SkipPlanned) -> Result<Command, InvalidField> {
    Ok(Command::SkipPlanned {
        plan: LogIndex::new(c.plan_index),
        partition: key_from_wire(c.partition)?,
        why: plan::skip_from_wire("why", c.why)?,
    })
}
