//! The desk of one child for all partitions: what it holds, what it is told, what it has answered.
//!
//! Its rule: an answer counts for the epoch that it names, and no other. A partition whose child is gone is released when it is
//! wanted back, since nothing of it runs.

use super::talk::{Answer, Tell};
use ringfence::Ownership;
use std::collections::BTreeMap;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

/// Lines that wait for the minder, which reads all the time: a worker is told of that many changes before anybody notices that
/// it stands still.
pub(super) const MAX_LINES: usize = 65_536;

/// How a partition came back from the child; the error is why it failed.
pub(super) type GivenBack = Result<(), String>;

/// What the child holds, and the way to it. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Hub(Arc<Mutex<Desk>>);

#[derive(Default)]
struct Desk {
    held: BTreeMap<u32, Held>,
    /// To the life that there is.
    line: Option<SyncSender<Tell>>,
    /// It does not read.
    deaf: bool,
    /// No child will be started any more: why.
    closed: Option<String>,
}

struct Held {
    ownership: Ownership,
    revoked: bool,
    given_back: oneshot::Sender<GivenBack>,
}

impl Held {
    fn epoch(&self) -> u64 {
        self.ownership.epoch().get()
    }

    fn granted(&self) -> Tell {
        Tell::Granted {
            partition: self.ownership.partition().get(),
            epoch: self.epoch(),
            token: self.ownership.token().to_string(),
        }
    }

    fn wanted_back(&self) -> Tell {
        let deadline_ms = self.ownership.time_left().as_millis();
        Tell::Revoked {
            partition: self.ownership.partition().get(),
            epoch: self.epoch(),
            deadline_ms: u64::try_from(deadline_ms).unwrap_or(u64::MAX),
        }
    }
}

impl Desk {
    fn tell(&mut self, tell: Tell) {
        let Some(line) = &self.line else { return };
        match line.try_send(tell) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => (self.line, self.deaf) = (None, true),
            // The life is ending.
            Err(TrySendError::Disconnected(_)) => self.line = None,
        }
    }

    /// Takes it from the child, if that is the epoch it has.
    fn take(&mut self, partition: u32, epoch: u64) -> Option<Held> {
        self.held.get(&partition).filter(|held| held.epoch() == epoch)?;
        self.held.remove(&partition)
    }
}

impl Hub {
    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the child a partition, until the seat is dropped. What is sent says how it came back.
    pub(super) fn grant(&self, ownership: &Ownership) -> (Seat, oneshot::Receiver<GivenBack>) {
        let (given_back, back) = oneshot::channel();
        let held = Held { ownership: ownership.clone(), revoked: false, given_back };
        let (partition, epoch) = (ownership.partition().get(), held.epoch());
        let mut desk = self.desk();
        if let Some(why) = &desk.closed {
            let _ = held.given_back.send(Err(why.clone()));
        } else {
            desk.tell(held.granted());
            desk.held.insert(partition, held);
        }
        drop(desk);
        (Seat { hub: self.clone(), partition, epoch }, back)
    }

    /// The partition is wanted back.
    pub(super) fn revoke(&self, partition: u32, epoch: u64) {
        let mut desk = self.desk();
        let Some(held) = desk.held.get_mut(&partition).filter(|held| held.epoch() == epoch) else { return };
        held.revoked = true;
        let tell = held.wanted_back();
        desk.tell(tell);
        // No child: nothing of it runs. One that does not read is killed, and gives it back then.
        if desk.line.is_none()
            && !desk.deaf
            && let Some(held) = desk.take(partition, epoch)
        {
            let _ = held.given_back.send(Ok(()));
        }
    }

    /// A life has begun: it is told what it holds, by way of `line`.
    pub(super) fn attach(&self, line: SyncSender<Tell>) {
        let mut desk = self.desk();
        (desk.line, desk.deaf) = (Some(line), false);
        let told: Vec<Tell> = desk
            .held
            .values()
            .flat_map(|held| [Some(held.granted()), held.revoked.then(|| held.wanted_back())])
            .flatten()
            .collect();
        told.into_iter().for_each(|tell| desk.tell(tell));
    }

    /// Nothing of the child lives: what is wanted back has come back.
    pub(super) fn detach(&self) {
        let mut desk = self.desk();
        (desk.line, desk.deaf) = (None, false);
        let back: Vec<u32> =
            desk.held.iter().filter(|(_, held)| held.revoked).map(|(partition, _)| *partition).collect();
        for held in back.iter().filter_map(|partition| desk.held.remove(partition)) {
            let _ = held.given_back.send(Ok(()));
        }
    }

    /// There will be no child any more.
    pub(super) fn close(&self, why: &str) {
        let mut desk = self.desk();
        desk.closed = Some(why.to_owned());
        for (_, held) in std::mem::take(&mut desk.held) {
            let _ = held.given_back.send(Err(why.to_owned()));
        }
    }

    /// Whether the child has to die for not reading.
    pub(super) fn is_deaf(&self) -> bool {
        self.desk().deaf
    }

    /// The child has answered. What it says of another epoch than the one it holds changes nothing.
    pub(super) fn answer(&self, answer: &Answer) {
        match *answer {
            Answer::Ready { partition, epoch } => {
                let desk = self.desk();
                let held = desk.held.get(&partition).filter(|held| held.epoch() == epoch);
                let ownership = held.map(|held| held.ownership.clone());
                drop(desk);
                // It is told, and nobody here waits until the coordinator has taken note.
                if let Some(ownership) = ownership {
                    let _ = ownership.blocking_ready(Duration::ZERO);
                }
            }
            Answer::Released { partition, epoch } => {
                let held = self.desk().take(partition, epoch);
                if let Some(held) = held {
                    let _ = held.given_back.send(Ok(()));
                }
            }
        }
    }
}

/// A partition at the child. Dropped before the child has given it back, it is lost, and the child is told.
pub(super) struct Seat {
    hub: Hub,
    partition: u32,
    epoch: u64,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let (partition, epoch) = (self.partition, self.epoch);
        let mut desk = self.hub.desk();
        if desk.take(partition, epoch).is_some() {
            desk.tell(Tell::Lost { partition, epoch });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence::testkit::Granted;
    use std::sync::mpsc::{Receiver, sync_channel};

    fn child(hub: &Hub) -> Receiver<Tell> {
        let (line, told) = sync_channel(8);
        hub.attach(line);
        told
    }

    fn is_granted(tell: &Tell, of: u64) -> bool {
        matches!(tell, Tell::Granted { partition: 17, epoch, token } if *epoch == of && token.ends_with(&format!("orders/17@{of}")))
    }

    fn ownership(epoch: u64) -> (Ownership, ringfence::testkit::Control) {
        Granted::new("orders", 17).epoch(epoch).start().unwrap()
    }

    #[test]
    fn t45_an_answer_about_another_epoch_changes_nothing() {
        let hub = Hub::default();
        let told = child(&hub);
        let (owner, _control) = ownership(42);
        let (_seat, mut back) = hub.grant(&owner);
        assert!(is_granted(&told.recv().unwrap(), 42));
        for epoch in [41, 43] {
            hub.answer(&Answer::Ready { partition: 17, epoch });
            hub.answer(&Answer::Released { partition: 17, epoch });
        }
        hub.answer(&Answer::Released { partition: 18, epoch: 42 });
        assert!(back.try_recv().is_err(), "it is still the child's");
        hub.answer(&Answer::Released { partition: 17, epoch: 42 });
        assert_eq!(back.try_recv().unwrap(), Ok(()));
        hub.answer(&Answer::Released { partition: 17, epoch: 42 });
    }

    #[test]
    fn t45_what_was_lost_is_told_once_and_its_late_answer_does_not_count_for_the_next_epoch() {
        let hub = Hub::default();
        let told = child(&hub);
        let ((old, _a), (new, _b)) = (ownership(42), ownership(44));
        let (seat, _) = hub.grant(&old);
        drop(seat);
        let (seat, mut back) = hub.grant(&new);
        hub.answer(&Answer::Released { partition: 17, epoch: 42 });
        assert!(back.try_recv().is_err());
        hub.revoke(17, 42);
        hub.revoke(17, 44);
        hub.answer(&Answer::Released { partition: 17, epoch: 44 });
        drop(seat);
        let told: Vec<Tell> = told.try_iter().collect();
        assert!(is_granted(&told[0], 42) && is_granted(&told[2], 44), "{told:?}");
        assert_eq!(told[1], Tell::Lost { partition: 17, epoch: 42 });
        assert!(matches!(told[3], Tell::Revoked { partition: 17, epoch: 44, deadline_ms: 1.. }), "{told:?}");
        assert_eq!(told.len(), 4, "{told:?}");
    }

    #[test]
    fn what_a_dead_child_held_is_told_to_the_next_life_unless_it_is_wanted_back() {
        let hub = Hub::default();
        let told = child(&hub);
        let (owner, _control) = ownership(42);
        let (_seat, mut back) = hub.grant(&owner);
        drop(told);
        hub.detach();
        assert!(back.try_recv().is_err(), "it is started again");
        let told = child(&hub);
        assert!(is_granted(&told.recv().unwrap(), 42));
        hub.revoke(17, 42);
        assert!(back.try_recv().is_err(), "the child has to answer");
        hub.detach();
        assert_eq!(back.try_recv().unwrap(), Ok(()));
        // And without a child there is nobody to wait for.
        let (_seat, mut back) = hub.grant(&owner);
        hub.revoke(17, 42);
        assert_eq!(back.try_recv().unwrap(), Ok(()));
    }

    #[test]
    fn a_child_that_does_not_read_is_found_and_its_partitions_wait_for_its_end() {
        let hub = Hub::default();
        let (line, _told) = sync_channel(1);
        hub.attach(line);
        let (owner, _control) = ownership(42);
        let (_seat, mut back) = hub.grant(&owner);
        assert!(!hub.is_deaf());
        hub.revoke(17, 42);
        assert!(hub.is_deaf());
        assert!(back.try_recv().is_err(), "it may work on it still");
        hub.detach();
        assert_eq!(back.try_recv().unwrap(), Ok(()));
    }

    #[test]
    fn when_no_child_is_started_any_more_everything_has_failed() {
        let hub = Hub::default();
        let (owner, _control) = ownership(42);
        let (_seat, mut back) = hub.grant(&owner);
        hub.close("ended with exit code 3");
        assert_eq!(back.try_recv().unwrap(), Err("ended with exit code 3".to_owned()));
        let (_seat, mut back) = hub.grant(&owner);
        assert!(back.try_recv().unwrap().is_err());
    }
}
