//! Refused writes, and orders to raise fences again, in entries and snapshots.

use super::fields::{directive_from_wire, directive_to_wire};
use super::workers::{Names, Places};
use crate::convert::{InvalidField, checked};
use crate::v1;
use crate::v1::state_refused_writes as wire;
use ringfence_core::ids::{KeyspaceId, LogIndex, PartitionId};
use ringfence_core::state::{Holder, Reassert, RefusalNote, RefusedWrite, RefusedWrites};

pub(super) fn note_to_wire(note: &RefusalNote) -> v1::RefusalNote {
    v1::RefusalNote {
        what: Some(what_to_wire(&note.what)),
        count: note.count,
        first_unix_ms: note.first_unix_ms,
        last_unix_ms: note.last_unix_ms,
        reporter: note.reporter.as_ref().map(ToString::to_string).unwrap_or_default(),
    }
}

pub(super) fn note_from_wire(wire: v1::RefusalNote) -> Result<RefusalNote, InvalidField> {
    let reporter = Some(wire.reporter).filter(|name| !name.is_empty());
    Ok(RefusalNote {
        what: what_from_wire(wire.what)?,
        count: wire.count,
        first_unix_ms: wire.first_unix_ms,
        last_unix_ms: wire.last_unix_ms,
        reporter: reporter.map(|name| checked::worker_id("reporter", &name)).transpose()?,
    })
}

fn what_to_wire(what: &RefusedWrite) -> v1::StateRefusedWrite {
    v1::StateRefusedWrite {
        scope: what.scope.to_string(),
        own_epoch: what.own.get(),
        highest_epoch: what.highest.get(),
        store: what.store.to_string(),
        observed: what.observed,
    }
}

fn what_from_wire(wire: Option<v1::StateRefusedWrite>) -> Result<RefusedWrite, InvalidField> {
    let wire = wire.ok_or_else(|| InvalidField::missing("what"))?;
    Ok(RefusedWrite {
        scope: checked::scope("what.scope", &wire.scope)?,
        own: checked::epoch("what.own_epoch", wire.own_epoch)?,
        highest: checked::epoch("what.highest_epoch", wire.highest_epoch)?,
        store: checked::store_name("what.store", &wire.store)?,
        observed: wire.observed,
    })
}

pub(super) fn writes_to_wire(writes: &RefusedWrites, workers: &mut Places) -> v1::StateRefusedWrites {
    let mut holder = |holder: &Holder| wire::Holder {
        worker: workers.of(&holder.worker),
        session: holder.session.get(),
        epoch: holder.epoch.get(),
        granted_unix_ms: holder.granted_unix_ms,
    };
    let (writer, successor) =
        (writes.writer.as_ref().map(&mut holder), writes.successor.as_ref().map(&mut holder));
    v1::StateRefusedWrites {
        what: Some(what_to_wire(&writes.what)),
        count: writes.count,
        first_unix_ms: writes.first_unix_ms,
        last_unix_ms: writes.last_unix_ms,
        noted_index: writes.at.get(),
        writer,
        successor,
        reporter: writes.reporter.as_ref().map(|worker| workers.of(worker)),
    }
}

pub(super) fn writes_from_wire(
    wire: v1::StateRefusedWrites,
    workers: &Names,
) -> Result<RefusedWrites, InvalidField> {
    let holder = |field: &str, holder: wire::Holder| -> Result<Holder, InvalidField> {
        Ok(Holder {
            worker: workers.at("worker", holder.worker).map_err(|e| e.within(field))?,
            session: checked::session("session", holder.session).map_err(|e| e.within(field))?,
            epoch: checked::epoch("epoch", holder.epoch).map_err(|e| e.within(field))?,
            granted_unix_ms: holder.granted_unix_ms,
        })
    };
    Ok(RefusedWrites {
        what: what_from_wire(wire.what)?,
        count: wire.count,
        first_unix_ms: wire.first_unix_ms,
        last_unix_ms: wire.last_unix_ms,
        at: LogIndex::new(wire.noted_index),
        writer: wire.writer.map(|of| holder("writer", of)).transpose()?,
        successor: wire.successor.map(|of| holder("successor", of)).transpose()?,
        reporter: wire.reporter.map(|place| workers.at("reporter", place)).transpose()?,
    })
}

pub(super) fn order_to_wire(order: &Reassert) -> v1::StateReassert {
    v1::StateReassert {
        index: order.at.get(),
        unix_ms: order.unix_ms,
        by_index: directive_to_wire(Some(order.by)),
        keyspace: order.keyspace.get(),
        partition: order.partition.map(PartitionId::get),
        handed_out: order.handed_out,
    }
}

pub(super) fn order_from_wire(wire: &v1::StateReassert) -> Result<Reassert, InvalidField> {
    Ok(Reassert {
        at: LogIndex::new(wire.index),
        unix_ms: wire.unix_ms,
        by: directive_from_wire(wire.by_index).ok_or_else(|| InvalidField::missing("by_index"))?,
        keyspace: KeyspaceId::new(wire.keyspace),
        partition: wire.partition.map(PartitionId::new),
        handed_out: wire.handed_out,
    })
}
