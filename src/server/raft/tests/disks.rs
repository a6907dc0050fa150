//! Disks that fail or hang under a running node.

use super::world::{World, node};
use crate::raft::{Disk, LogBackend, LogOp, MemoryLog, MemorySnapshots, Stored};
use std::io;
use std::num::NonZeroU64;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mood {
    Well,
    Full,
    Hanging,
    /// Each flush takes so long.
    Slow(Duration),
}

/// A log on a thread of its own, whose flushes do as they are told.
#[derive(Clone)]
struct Moody {
    inner: MemoryLog,
    mood: Arc<(Mutex<Mood>, Condvar)>,
}

impl Moody {
    fn new() -> Moody {
        Moody { inner: MemoryLog::new(), mood: Arc::new((Mutex::new(Mood::Well), Condvar::new())) }
    }

    fn set(&self, mood: Mood) {
        *self.mood.0.lock().unwrap() = mood;
        self.mood.1.notify_all();
    }

    fn disk(&self, store: u64) -> Disk {
        Disk::new(self.clone(), MemorySnapshots::new(), NonZeroU64::new(store).unwrap())
    }
}

impl LogBackend for Moody {
    fn load(&mut self) -> io::Result<Stored> {
        self.inner.load()
    }

    fn commit(&mut self, ops: &[LogOp]) -> io::Result<()> {
        let guard = self.mood.1.wait_while(self.mood.0.lock().unwrap(), |m| *m == Mood::Hanging).unwrap();
        match *guard {
            Mood::Full => Err(io::Error::from_raw_os_error(28)),
            Mood::Slow(takes) => {
                drop(guard);
                std::thread::sleep(takes);
                self.inner.commit(ops)
            }
            _ => self.inner.commit(ops),
        }
    }
}

async fn world_of_moods() -> (World, Vec<Moody>) {
    let mut world = World::new(3).await;
    world.settings = Box::new(|config| config.slow_disk = Duration::from_millis(300));
    let moods: Vec<Moody> = (0..3).map(|_| Moody::new()).collect();
    for (id, mood) in (1..).zip(&moods) {
        world.start_on(id, mood.disk(id)).await.unwrap();
    }
    for id in 1..=3 {
        world.initialize(id, &[1, 2, 3]).await;
    }
    (world, moods)
}

#[tokio::test]
async fn f041_a_leader_on_a_full_disk_steps_down_and_says_why() {
    let (mut world, moods) = world_of_moods().await;
    world.propose(5).await;
    let (sick, leader) = world.leader().await;
    moods[sick as usize - 1].set(Mood::Full);
    // The entry may be committed by the other two, or not; it is not refused as if nothing had happened.
    let _ = leader.propose("on a full disk").await;
    let status = leader.until("it has stopped", |s| s.stopped.is_some()).await;
    let why = status.stopped.unwrap();
    assert!(why.contains("No space left") && why.contains("start the node again"), "{why}");
    leader.raft.confirm().await.expect_err("it leads no longer");

    world.isolate(sick, true);
    world.nodes.remove(&sick);
    world.propose(5).await;
    world.converge().await;

    // Room was made: it comes back with what it had.
    moods[sick as usize - 1].set(Mood::Well);
    leader.raft.shutdown().await;
}

#[tokio::test]
async fn f041_f074_a_leader_whose_disk_hangs_is_sick_and_hands_over_and_its_late_write_counts_once_or_never()
{
    let (world, moods) = world_of_moods().await;
    world.propose(5).await;
    let (sick, leader) = world.leader().await;
    moods[sick as usize - 1].set(Mood::Hanging);
    let hanging = tokio::spawn({
        let leader = leader.clone();
        async move { leader.propose("on a hanging disk").await }
    });
    let status = leader.until("it is sick", |s| s.sick.is_some()).await;
    assert!(status.sick.unwrap().contains("look at the disk"));
    let healthy = world.nodes.iter().find(|(id, _)| **id != sick).unwrap().1;
    healthy.until("another leads", |s| s.leader.as_ref().is_some_and(|(id, _)| *id != node(sick))).await;
    world.propose(3).await;

    moods[sick as usize - 1].set(Mood::Well);
    leader.until("it is well again", |s| s.sick.is_none() && s.stopped.is_none()).await;
    let outcome = hanging.await.unwrap();
    world.converge().await;
    let values = leader.log.0.lock().unwrap().values.clone();
    let there = values.iter().filter(|value| value.as_slice() == b"on a hanging disk").count();
    assert!(there <= 1 && (outcome.is_err() || there == 1), "{there} times, after {outcome:?}");
}

/// Each vote costs two flushes in a row, the candidate's and the voter's, and then the winner's. Each is longer than
/// `election_min` here, and all of them are longer than `election_max`.
#[tokio::test]
async fn nodes_whose_flushes_take_longer_than_an_election_timeout_elect_a_leader_again_and_again() {
    let mut world = World::new(3).await;
    let takes = Duration::from_millis(150);
    let timings = world.config(1).timings;
    assert!(takes > timings.election_min && takes * 3 > timings.election_max);
    for id in 1..=3 {
        let slow = Moody::new();
        slow.set(Mood::Slow(takes));
        world.start_on(id, slow.disk(id)).await.unwrap();
    }
    for id in 1..=3 {
        world.initialize(id, &[1, 2, 3]).await;
    }
    let first = world.written("first").await;
    let (old, _) = world.leader().await;
    world.isolate(old, true);
    let away = world.nodes.remove(&old).unwrap();
    let second = world.written("second").await;
    assert!(second.term > first.term, "a new term for a new leader");
    world.isolate(old, false);
    world.nodes.insert(old, away);
    let third = world.written("third").await;
    world.converged(third).await;
    for running in world.nodes.values() {
        let values = running.log.0.lock().unwrap().values.clone();
        for value in [&b"first"[..], b"second", b"third"] {
            assert!(values.iter().any(|one| one == value), "{value:?} was acknowledged");
        }
    }
}
