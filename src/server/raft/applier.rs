//! Drives the machine: applies what is committed, takes snapshots and installs them.
//!
//! The machine lives in memory. At a start it is restored from the newest snapshot and the library applies the committed
//! log behind it; the rest follows when a leader has committed an entry of its own term.

use super::health::Health;
use super::machine::{Machine, MachineError, Position};
use super::record;
use super::snapshot::{Snapshot, SnapshotStore};
use super::types::{self, Answer, Entry, LogId, Payload, StoredMembership, Types};
use super::wire;
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use openraft::RaftSnapshotBuilder;
use openraft::storage::{EntryResponder, RaftStateMachine};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;

pub(super) type Meta = openraft::storage::SnapshotMeta<types::Committed, u64, types::Peer>;
pub(super) type LibrarySnapshot = openraft::storage::Snapshot<types::Committed, u64, types::Peer, Bytes>;

/// A state to be serialized elsewhere.
type Capture = Box<dyn FnOnce() -> Vec<u8> + Send>;

/// A [`Machine`] whose answers have lost their type.
trait AnyMachine: Send {
    fn apply(&mut self, at: Position, payload: Option<&[u8]>) -> Result<Answer, MachineError>;
    fn snapshot(&self) -> Capture;
    fn restore(&mut self, at: Position, bytes: &[u8]) -> Result<(), MachineError>;
}

impl<M: Machine> AnyMachine for M {
    fn apply(&mut self, at: Position, payload: Option<&[u8]>) -> Result<Answer, MachineError> {
        Machine::apply(self, at, payload).map(Answer::new)
    }
    fn snapshot(&self) -> Capture {
        Machine::snapshot(self)
    }
    fn restore(&mut self, at: Position, bytes: &[u8]) -> Result<(), MachineError> {
        Machine::restore(self, at, bytes)
    }
}

/// The library's state machine.
pub(super) struct Applier {
    // The library wants `Sync`, which a machine need not be; the mutex is never contended.
    machine: Mutex<Box<dyn AnyMachine>>,
    snapshots: Arc<dyn SnapshotStore>,
    health: Arc<Health>,
    last: Option<LogId>,
    membership: StoredMembership,
    /// The position of the newest stored snapshot.
    stored: Option<LogId>,
    applied: watch::Sender<Option<Position>>,
}

impl Applier {
    /// A machine at its beginning. The receiver follows the position of the last applied entry.
    pub(super) fn new(
        machine: impl Machine,
        snapshots: Arc<dyn SnapshotStore>,
        stored: Option<LogId>,
        health: Arc<Health>,
    ) -> (Applier, watch::Receiver<Option<Position>>) {
        let (applied, receiver) = watch::channel(None);
        let machine: Box<dyn AnyMachine> = Box::new(machine);
        let membership = StoredMembership::default();
        let machine = Mutex::new(machine);
        (Applier { machine, snapshots, health, last: None, membership, stored, applied }, receiver)
    }

    fn machine(&mut self) -> &mut Box<dyn AnyMachine> {
        self.machine.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    fn apply_one(&mut self, entry: &Entry) -> io::Result<Answer> {
        let at = types::position(&entry.log_id);
        let payload = match &entry.payload {
            Payload::Normal(data) => Some(&data.0[..]),
            Payload::Membership(membership) => {
                self.membership = StoredMembership::new(Some(entry.log_id), membership.clone());
                None
            }
            Payload::Blank => None,
        };
        let answer =
            self.machine().apply(at, payload).map_err(|e| self.refuse(format!("entry {at}: {e}")))?;
        self.last = Some(entry.log_id);
        self.applied.send_replace(Some(at));
        Ok(answer)
    }

    fn refuse(&self, why: String) -> io::Error {
        self.health.stop(&why);
        io::Error::other(why)
    }

    /// Runs what may block where it may.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn SnapshotStore) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        on_store(&self.snapshots, work).await
    }
}

async fn on_store<T: Send + 'static>(
    store: &Arc<dyn SnapshotStore>,
    work: impl FnOnce(&dyn SnapshotStore) -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    if !store.blocks() {
        return work(store.as_ref());
    }
    let store = Arc::clone(store);
    tokio::task::spawn_blocking(move || work(store.as_ref())).await.map_err(io::Error::other)?
}

/// A stored snapshot in the library's form.
fn to_library(snapshot: Snapshot) -> io::Result<LibrarySnapshot> {
    let wrong =
        |e: String| io::Error::new(io::ErrorKind::InvalidData, format!("the members in a snapshot: {e}"));
    let membership = record::decode(&snapshot.membership).map_err(|e| wrong(e.to_string()))?;
    let last_membership = wire::stored_membership_in(membership).map_err(|e| wrong(e.to_string()))?;
    let meta = Meta { last_log_id: Some(types::log_id(snapshot.at)), last_membership };
    Ok(LibrarySnapshot { meta, snapshot: snapshot.data })
}

fn from_library(meta: &Meta, data: Bytes) -> io::Result<Snapshot> {
    let last = meta.last_log_id.ok_or_else(|| io::Error::other("a snapshot of nothing"))?;
    let membership = record::encode(&wire::stored_membership_out(&meta.last_membership));
    Ok(Snapshot { at: types::position(&last), membership, data })
}

impl RaftStateMachine<Types> for Applier {
    type SnapshotData = Bytes;
    type SnapshotBuilder = Builder;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, StoredMembership)> {
        Ok((self.last, self.membership.clone()))
    }

    async fn apply<S>(&mut self, mut entries: S) -> io::Result<()>
    where
        S: Stream<Item = io::Result<EntryResponder<Types>>> + Unpin + Send,
    {
        while let Some(next) = entries.next().await {
            let (entry, responder) = next?;
            let answer = self.apply_one(&entry)?;
            if let Some(responder) = responder {
                responder.send(answer);
            }
        }
        Ok(())
    }

    async fn try_create_snapshot_builder(&mut self, force: bool) -> Option<Builder> {
        // A second snapshot at the same position would be the same file again.
        if !force && self.last == self.stored {
            return None;
        }
        Some(self.get_snapshot_builder().await)
    }

    async fn get_snapshot_builder(&mut self) -> Builder {
        let meta = Meta { last_log_id: self.last, last_membership: self.membership.clone() };
        self.stored = self.last;
        let capture = self.machine().snapshot();
        Builder {
            meta,
            capture: Mutex::new(Some(capture)),
            snapshots: Arc::clone(&self.snapshots),
            health: Arc::clone(&self.health),
        }
    }

    async fn install_snapshot(&mut self, meta: &Meta, data: Bytes) -> io::Result<()> {
        // Already there when a start restores from it.
        if meta.last_log_id != self.stored {
            let snapshot = from_library(meta, data.clone())?;
            self.blocking(move |store| store.save(&snapshot))
                .await
                .map_err(|e| self.refuse(format!("a snapshot could not be written: {e}")))?;
            self.stored = meta.last_log_id;
        }
        let Some(last) = meta.last_log_id else { return Err(io::Error::other("a snapshot of nothing")) };
        let at = types::position(&last);
        self.machine().restore(at, &data).map_err(|e| self.refuse(format!("the snapshot at {at}: {e}")))?;
        self.last = Some(last);
        self.membership = meta.last_membership.clone();
        self.applied.send_replace(Some(at));
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<LibrarySnapshot>> {
        self.blocking(SnapshotStore::newest).await?.map(to_library).transpose()
    }
}

/// Turns a captured state into a stored snapshot, beside the machine that goes on.
pub(super) struct Builder {
    meta: Meta,
    // In a mutex only because the library wants `Sync`.
    capture: Mutex<Option<Capture>>,
    snapshots: Arc<dyn SnapshotStore>,
    health: Arc<Health>,
}

impl RaftSnapshotBuilder<Types> for Builder {
    type SnapshotData = Bytes;

    async fn build_snapshot(&mut self) -> io::Result<LibrarySnapshot> {
        let capture = self.capture.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let capture = capture.ok_or_else(|| io::Error::other("a snapshot is built once"))?;
        let meta = self.meta.clone();
        let built = on_store(&self.snapshots, move |store| {
            let data = Bytes::from(capture());
            // Before the first entry there is nothing to keep.
            if meta.last_log_id.is_some() {
                store.save(&from_library(&meta, data.clone())?)?;
            }
            Ok(LibrarySnapshot { meta, snapshot: data })
        });
        built.await.inspect_err(|e| self.health.stop(&format!("a snapshot could not be written: {e}")))
    }
}
