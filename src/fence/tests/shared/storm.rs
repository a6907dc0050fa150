//! Replaced owners that go on writing while others raise: none gets through, and some do without the fence.

use ringfence_fence::{FenceError, FencingToken};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// How long the control may take to be unlucky.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A process with a connection of its own. It is guarded by the fence; or, for the control, checks first and writes then.
pub(crate) trait Process: Send + 'static {
    fn raise(&mut self, token: &FencingToken) -> Result<(), FenceError>;

    /// Writes its epoch behind all that was written before. `paused` stands between the last look and the write.
    fn append(&mut self, token: &FencingToken, paused: impl FnOnce()) -> Result<(), FenceError>;

    /// The epochs that were written, in the order in which they took effect.
    fn written(&mut self) -> Vec<u64>;
}

/// Numbers from a seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

fn token(epoch: u64) -> FencingToken {
    format!("prod/orders/17@{epoch}").parse().unwrap()
}

#[derive(Clone)]
struct World {
    newest: Arc<AtomicU64>,
    refused: Arc<AtomicUsize>,
    over: Arc<AtomicBool>,
}

impl World {
    fn goes_on(&self) -> bool {
        !self.over.load(Ordering::Relaxed)
    }

    fn write_on(&self, process: &mut impl Process, mut dice: Dice) {
        while self.goes_on() {
            // An owner that has not heard of its successors for a while, and goes on.
            let epoch = self.newest.load(Ordering::Relaxed).saturating_sub(dice.roll(3)).max(1);
            for _ in 0..=dice.roll(32) {
                let pauses = dice.roll(8) == 0;
                let appended = process.append(&token(epoch), || {
                    while pauses && self.goes_on() && self.newest.load(Ordering::Relaxed) <= epoch {
                        thread::yield_now();
                    }
                });
                match appended {
                    // Busy: raised by others again and again, and nothing happened.
                    Ok(()) | Err(FenceError::Busy { .. }) => {}
                    Err(FenceError::Fenced(_)) => drop(self.refused.fetch_add(1, Ordering::Relaxed)),
                    Err(other) => panic!("{other}"),
                }
            }
        }
    }

    fn raise_on(&self, process: &mut impl Process) {
        while self.goes_on() {
            let epoch = self.newest.load(Ordering::Relaxed) + 1;
            process.raise(&token(epoch)).unwrap();
            process.append(&token(epoch), || ()).unwrap();
            self.newest.store(epoch, Ordering::Relaxed);
        }
    }
}

/// How many took effect after one of a higher epoch had.
fn stale(epochs: Vec<u64>) -> usize {
    let mut highest = 0;
    let behind = |epoch: &u64| {
        highest = highest.max(*epoch);
        *epoch < highest
    };
    epochs.into_iter().filter(behind).count()
}

/// Runs until so many attempts were refused, and, for a control, one was not. Answers both numbers. The first process looks on.
fn storm<P: Process>(mut processes: Vec<P>, control: bool, attempts: usize, seed: u64) -> (usize, usize) {
    let mut observer = processes.remove(0);
    observer.raise(&token(1)).unwrap();
    let world = World { newest: Arc::new(AtomicU64::new(1)), refused: Arc::default(), over: Arc::default() };
    let mut threads = Vec::new();
    for (number, mut process) in (0_u64..).zip(processes) {
        let world = world.clone();
        threads.push(thread::spawn(move || match number {
            0 => world.raise_on(&mut process),
            _ => world.write_on(&mut process, Dice(seed ^ (number << 32) | 1)),
        }));
    }
    let start = Instant::now();
    let mut accepted = 0;
    while world.refused.load(Ordering::Relaxed) < attempts
        || (control && accepted == 0 && start.elapsed() < PATIENCE)
    {
        thread::sleep(Duration::from_millis(20));
        assert!(threads.iter().all(|thread| !thread.is_finished()), "a thread of the storm has failed");
        if control {
            accepted = stale(observer.written());
        }
    }
    world.over.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    (world.refused.load(Ordering::Relaxed), stale(observer.written()))
}

fn seed() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    std::env::var("RINGFENCE_SEED").ok().map_or(now.as_nanos() as u64, |text| text.parse().unwrap())
}

pub(crate) fn nothing_gets_through(guarded: Vec<impl Process>, attempts: usize) {
    let seed = seed();
    let (refused, accepted) = storm(guarded, false, attempts, seed);
    println!("seed {seed}: with the fence {accepted} of {refused} stale attempts took effect");
    assert_eq!(accepted, 0, "seed {seed}");
}

pub(crate) fn some_get_through(in_two_steps: Vec<impl Process>, attempts: usize) {
    let seed = seed();
    let (refused, accepted) = storm(in_two_steps, true, attempts, seed);
    println!("seed {seed}: without the fence {accepted} took effect beside {refused} refused");
    assert!(accepted > 0, "nothing was accepted, so the storm proves nothing");
}
