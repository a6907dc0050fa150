//! Who takes part in drills, and the one that runs.

use ringfence_api::Failure;
use ringfence_api::convert::checked;
use ringfence_api::v1;
use ringfence_core::ids::{KeyspaceName, SessionId, WorkerId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, mpsc, oneshot};

/// Messages that wait on a drill's stream, in either direction. Each side says two or three things in all.
const LINE_LENGTH: usize = 4;

/// The drills of one node. A clone is the same desk.
#[derive(Clone, Default)]
pub struct Drills {
    desk: Arc<Mutex<Desk>>,
}

#[derive(Default)]
struct Desk {
    /// The streams of sessions that allow drills.
    seats: BTreeMap<SessionId, Vec<Arc<Tray>>>,
    /// One at a time, so that two that were started side by side do not take a fleet apart together.
    running: Option<Running>,
}

/// What names a drill, and whose knowledge is the right to speak in it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct DrillId([u8; 16]);

struct Running {
    id: DrillId,
    session: SessionId,
    worker: WorkerId,
    /// Until the worker's stream has come.
    hello: Option<oneshot::Sender<Line>>,
}

/// The worker's stream, as the drill sees it.
pub(super) struct Line {
    pub(super) say: mpsc::Sender<v1::DrillResponse>,
    pub(super) heard: mpsc::Receiver<v1::DrillRequest>,
}

/// Where an order is put for one stream.
struct Tray {
    keyspaces: BTreeSet<KeyspaceName>,
    order: Mutex<Option<v1::DrillOrder>>,
    waker: Arc<Notify>,
}

/// One stream's place at the desk, for as long as it lives.
pub(crate) struct Seat {
    drills: Drills,
    session: SessionId,
    tray: Arc<Tray>,
}

/// The right to run a drill. No other begins before it is dropped.
pub(super) struct Slot {
    drills: Drills,
    pub(super) id: DrillId,
    session: SessionId,
}

impl Drills {
    fn lock(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A stream was opened by a worker that allows drills of these keyspaces; `waker` is rung when there is an order.
    pub(crate) fn sit(
        &self,
        session: SessionId,
        keyspaces: BTreeSet<KeyspaceName>,
        waker: Arc<Notify>,
    ) -> Seat {
        let tray = Arc::new(Tray { keyspaces, order: Mutex::default(), waker });
        self.lock().seats.entry(session).or_default().push(Arc::clone(&tray));
        Seat { drills: self.clone(), session, tray }
    }

    /// Whether the session has a stream here that allows drills of the keyspace.
    pub(super) fn allows(&self, session: SessionId, keyspace: &KeyspaceName) -> bool {
        let desk = self.lock();
        desk.seats.get(&session).is_some_and(|trays| trays.iter().any(|t| t.keyspaces.contains(keyspace)))
    }

    /// Begins a drill of this session; its stream comes through the channel.
    pub(super) fn begin(
        &self,
        session: SessionId,
        worker: &WorkerId,
    ) -> Result<(Slot, oneshot::Receiver<Line>), Failure> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes)
            .map_err(|error| Failure::unavailable(format_args!("no random number to be had: {error}")))?;
        let id = DrillId(bytes);
        let mut desk = self.lock();
        if let Some(running) = &desk.running {
            return Err(Failure::refused(format_args!(
                "a drill of worker {} runs, and there is one at a time; run this one when it has ended",
                running.worker
            )));
        }
        let (hello, line) = oneshot::channel();
        desk.running = Some(Running { id, session, worker: worker.clone(), hello: Some(hello) });
        Ok((Slot { drills: self.clone(), id, session }, line))
    }

    /// The drilled worker's stream has come. What it says goes into the sender, what it is told comes from the receiver;
    /// when the drill is over both are closed.
    pub(crate) fn connect(
        &self,
        id: DrillId,
        session: SessionId,
    ) -> Result<(mpsc::Sender<v1::DrillRequest>, mpsc::Receiver<v1::DrillResponse>), Failure> {
        let mut desk = self.lock();
        let hello = desk.running.as_mut().filter(|running| running.id == id && running.session == session);
        let hello = hello.and_then(|running| running.hello.take()).ok_or_else(|| {
            Failure::refused(
                "no such drill runs here, or it has its stream already; drop what is held, unsent",
            )
        })?;
        let (say, to_worker) = mpsc::channel(LINE_LENGTH);
        let (from_worker, heard) = mpsc::channel(LINE_LENGTH);
        // A drill that has just ended drops the line, and the worker finds both ends closed.
        let _ = hello.send(Line { say, heard });
        Ok((from_worker, to_worker))
    }
}

impl DrillId {
    /// From the wire.
    pub(crate) fn read(bytes: &[u8]) -> Result<DrillId, Failure> {
        Ok(DrillId(checked::bytes("drill", bytes)?))
    }

    /// For the wire.
    pub(super) fn bytes(self) -> Vec<u8> {
        self.0.to_vec()
    }
}

impl Slot {
    /// Puts the order to the session's latest stream. False when it has none that allows the keyspace.
    pub(super) fn order(&self, keyspace: &KeyspaceName, order: v1::DrillOrder) -> bool {
        let desk = self.drills.lock();
        let trays = desk.seats.get(&self.session).into_iter().flatten();
        let mut latest = trays.rev().filter(|tray| tray.keyspaces.contains(keyspace));
        let Some(tray) = latest.next() else { return false };
        *tray.order.lock().unwrap_or_else(PoisonError::into_inner) = Some(order);
        tray.waker.notify_one();
        true
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.drills.lock().running = None;
    }
}

impl Seat {
    /// The order that waits for this stream.
    pub(crate) fn take_order(&self) -> Option<v1::DrillOrder> {
        self.tray.order.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut desk = self.drills.lock();
        if let Some(trays) = desk.seats.get_mut(&self.session) {
            trays.retain(|tray| !Arc::ptr_eq(tray, &self.tray));
            if trays.is_empty() {
                desk.seats.remove(&self.session);
            }
        }
    }
}
