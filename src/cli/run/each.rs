//! One child for each owned partition.
//!
//! An owner function of the SDK can be aborted, and a process cannot: the partition's seat is kept until nothing of the child lives, so
//! that a later grant to this worker waits for it.

use super::course::{Claim, End, Policy};
use super::life::{Event, Recipe, spawn};
use super::steward::{Charge, StopBy, drive};
use ringfence::Ownership;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{oneshot, watch};

/// What the children of a worker share.
pub(super) struct Each {
    pub(super) command: Vec<OsString>,
    /// The same for all of them.
    pub(super) environment: Vec<(&'static str, String)>,
    pub(super) wait_ready: bool,
    pub(super) prefix: bool,
    pub(super) policy: Policy,
    pub(super) stop_by: watch::Receiver<StopBy>,
    /// One child of a partition at a time.
    seats: Mutex<BTreeMap<u32, Arc<tokio::sync::Mutex<()>>>>,
}

impl Each {
    pub(super) fn new(
        command: Vec<OsString>,
        environment: Vec<(&'static str, String)>,
        policy: Policy,
        stop_by: watch::Receiver<StopBy>,
    ) -> Each {
        let seats = Mutex::default();
        Each { command, environment, wait_ready: false, prefix: false, policy, stop_by, seats }
    }

    fn seat(&self, partition: u32) -> Arc<tokio::sync::Mutex<()>> {
        let mut seats = self.seats.lock().unwrap_or_else(PoisonError::into_inner);
        // What nobody sits on and nobody waits for is made anew.
        seats.retain(|_, seat| Arc::strong_count(seat) > 1);
        Arc::clone(seats.entry(partition).or_default())
    }

    /// Waits until no child of this worker lives.
    pub(super) async fn emptied(&self) {
        let seats: Vec<_> = {
            let seats = self.seats.lock().unwrap_or_else(PoisonError::into_inner);
            seats.values().cloned().collect()
        };
        for seat in seats {
            drop(seat.lock().await);
        }
    }

    fn recipe(&self, ownership: &Ownership) -> Recipe {
        let mut environment = self.environment.clone();
        environment.extend([
            ("RINGFENCE_PARTITION", ownership.partition().get().to_string()),
            ("RINGFENCE_EPOCH", ownership.epoch().get().to_string()),
            ("RINGFENCE_TOKEN", ownership.token().to_string()),
        ]);
        let name = || format!("{}/{}", ownership.keyspace(), ownership.partition().get());
        Recipe {
            command: self.command.clone(),
            environment,
            wait_ready: self.wait_ready,
            prefix: self.prefix.then(name),
            forward: false,
        }
    }

    /// The owner of a partition: a child runs from the grant until it is wanted back.
    ///
    /// # Errors
    /// The child ended by itself too often: how it did the last time.
    pub(super) async fn own(self: Arc<Self>, ownership: Ownership) -> Result<(), String> {
        let sits = self.seat(ownership.partition().get()).lock_owned();
        let Some(seat) = ownership.until_revoked(sits).await else { return Ok(()) };
        let (events, news) = channel();
        let (over, end) = oneshot::channel();
        let recipe = self.recipe(&ownership);
        let mut charge = Partition {
            name: format!("{}/{}", ownership.keyspace(), ownership.partition().get()),
            ownership: ownership.clone(),
            stop_by: self.stop_by.clone(),
        };
        // When this task is aborted, the ownership is over: the steward hears of it at once.
        let alarm = Alarm(events.clone());
        let policy = self.policy;
        let work = move || {
            let end = drive(&recipe, policy, &mut charge, &events, &news);
            // In this order: whoever waits for the seat may have it before the SDK knows.
            drop(seat);
            let _ = over.send(end);
        };
        spawn("child", work).map_err(|error| format!("no thread for a child: {error}"))?;
        let mut stop_by = self.stop_by.clone();
        let alarms = async {
            ownership.revoked().await;
            alarm.ring();
            while stop_by.changed().await.is_ok() {
                alarm.ring();
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            end = end => match end {
                Ok(End::Asked) => Ok(()),
                Ok(End::Failed(how)) => Err(format!("the child {how}, and did so too often")),
                Err(_) => Err("the thread of a child ended unexpectedly".to_owned()),
            },
            () = alarms => Ok(()),
        }
    }
}

/// Wakes the steward, also when it is dropped.
struct Alarm(Sender<Event>);

impl Alarm {
    fn ring(&self) {
        // A steward that is done hears nothing.
        let _ = self.0.send(Event::Look);
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.ring();
    }
}

/// One partition, as the steward of its child sees it.
struct Partition {
    name: String,
    ownership: Ownership,
    stop_by: watch::Receiver<StopBy>,
}

impl Charge for Partition {
    fn claim(&self) -> Claim {
        let left = self.ownership.time_left();
        let stop = self.stop_by.borrow().left();
        Claim { wanted: !self.ownership.is_revoked(), left: left.min(stop.unwrap_or(Duration::MAX)) }
    }

    fn ready(&mut self) {
        // It is told, and nobody here waits until the coordinator has taken note.
        let _ = self.ownership.blocking_ready(Duration::ZERO);
    }

    fn name(&self) -> &str {
        &self.name
    }
}
