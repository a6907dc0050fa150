//! Replaced owners that go on writing while others raise: none gets through, and some do without the fence.

use crate::moto::{Moto, available, wait};
use crate::subject::{options, put, token};
use crate::wire::Wire;
use object_store::memory::InMemory;
use object_store::{ObjectStore, ObjectStoreExt};
use ringfence_fence::object::{ObjectFence, Staged};
use ringfence_fence::{FenceError, FenceErrorKind};
use std::slice::from_ref;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// How long the control may take to be unlucky.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone)]
struct World {
    store: Arc<dyn ObjectStore>,
    fence: ObjectFence,
    newest: Arc<AtomicU64>,
    refused: Arc<AtomicUsize>,
    /// Those of the refused that had passed the first check, and were refused by the store.
    by_the_store: Arc<AtomicUsize>,
    /// What took effect: its place in the order of the store, and its epoch.
    effects: Arc<Mutex<Vec<(u64, u64)>>>,
    over: Arc<AtomicBool>,
    guarded: bool,
    /// How many writes a writer has let through the first check before it sends any of them.
    batch: usize,
}

enum Begun {
    Staged(Box<Staged>),
    Checked(u64),
}

/// What a storm came to.
struct Toll {
    refused: usize,
    by_the_store: usize,
    accepted: usize,
    took_effect: usize,
}

impl World {
    /// The first half of a write of the file: the check, which tells nothing about what follows.
    fn begin(&self, epoch: u64) -> Result<Begun, FenceError> {
        let own = token(&format!("prod/orders/17@{epoch}"));
        if self.guarded {
            let staged = wait(self.fence.stage(from_ref(&own), put("file", &epoch.to_string())))?;
            return Ok(Begun::Staged(Box::new(staged)));
        }
        wait(self.fence.check(from_ref(&own))).map(|()| Begun::Checked(epoch))
    }

    /// The second half.
    fn end(&self, begun: Begun, epoch: u64) -> Result<(), FenceError> {
        let order = match begun {
            Begun::Staged(staged) => wait(staged.commit())?.number(),
            Begun::Checked(epoch) => {
                let put = wait(self.store.put(&"file".into(), epoch.to_string().into())).unwrap();
                // In memory ETags are counted, over all objects.
                put.e_tag.unwrap().trim_matches('"').parse().unwrap()
            }
        };
        self.effects.lock().unwrap().push((order, epoch));
        Ok(())
    }

    fn write_on(&self, mut rng: fastrand::Rng) {
        while !self.over.load(Ordering::Relaxed) {
            let epoch = self.newest.load(Ordering::Relaxed);
            let mut batch = Vec::new();
            for _ in 0..self.batch {
                match self.begin(epoch) {
                    Ok(begun) => batch.push(begun),
                    Err(error) => self.refused(&error, &[&self.refused]),
                }
            }
            // Some go on at once, into the middle of the next raise; the others wake up when it is long done.
            let awake = rng.usize(..=batch.len());
            for (at, begun) in batch.into_iter().enumerate() {
                if at == awake {
                    self.sleep_through(epoch);
                }
                thread::sleep(Duration::from_micros(rng.u64(..400)));
                if let Err(error) = self.end(begun, epoch) {
                    self.refused(&error, &[&self.refused, &self.by_the_store]);
                }
            }
            self.sleep_through(epoch);
        }
    }

    /// Until there is a newer one.
    fn sleep_through(&self, epoch: u64) {
        while !self.has_passed(epoch) {
            thread::sleep(Duration::from_micros(100));
        }
    }

    fn has_passed(&self, epoch: u64) -> bool {
        self.newest.load(Ordering::Relaxed) > epoch || self.over.load(Ordering::Relaxed)
    }

    fn refused(&self, error: &FenceError, counts: &[&AtomicUsize]) {
        assert_eq!(error.kind(), FenceErrorKind::Fenced, "{error}");
        for count in counts {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn raise_on(&self, mut rng: fastrand::Rng) {
        while !self.over.load(Ordering::Relaxed) {
            let epoch = self.newest.load(Ordering::Relaxed) + 1;
            wait(self.fence.raise(&token(&format!("prod/orders/17@{epoch}")))).unwrap();
            thread::sleep(Duration::from_micros(rng.u64(..400)));
            self.end(self.begin(epoch).unwrap(), epoch).unwrap();
            self.newest.store(epoch, Ordering::Relaxed);
        }
    }

    /// How many writes took effect after one of a higher epoch had.
    fn stale(&self) -> usize {
        let mut effects = self.effects.lock().unwrap().clone();
        effects.sort_unstable();
        let mut highest = 0;
        effects
            .iter()
            .filter(|(_, epoch)| {
                highest = highest.max(*epoch);
                *epoch < highest
            })
            .count()
    }
}

/// Runs until so many attempts were stale that had passed the first check, and, for a control, until one took effect.
fn storm(store: Arc<dyn ObjectStore>, guarded: bool, (batch, attempts): (usize, usize), seed: u64) -> Toll {
    let fence = wait(options().install(Arc::clone(&store), "fence")).unwrap();
    wait(fence.raise(&token("prod/orders/17@1"))).unwrap();
    let world = World {
        store,
        fence,
        newest: Arc::new(AtomicU64::new(1)),
        refused: Arc::default(),
        by_the_store: Arc::default(),
        effects: Arc::default(),
        over: Arc::default(),
        guarded,
        batch,
    };
    let threads: Vec<_> = (0..4)
        .map(|writer| {
            let (world, rng) = (world.clone(), fastrand::Rng::with_seed(seed + writer));
            thread::spawn(move || if writer == 0 { world.raise_on(rng) } else { world.write_on(rng) })
        })
        .collect();
    let start = Instant::now();
    while world.by_the_store.load(Ordering::Relaxed) + world.stale() < attempts
        || (!guarded && world.stale() == 0 && start.elapsed() < PATIENCE)
    {
        thread::sleep(Duration::from_millis(20));
        assert!(threads.iter().all(|thread| !thread.is_finished()), "a thread of the storm has failed");
    }
    world.over.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let count = |count: &AtomicUsize| count.load(Ordering::Relaxed);
    Toll {
        refused: count(&world.refused),
        by_the_store: count(&world.by_the_store),
        accepted: world.stale(),
        took_effect: world.effects.lock().unwrap().len(),
    }
}

/// None got through, and it was tried.
fn held(toll: &Toll, attempts: usize) {
    assert!(toll.by_the_store >= attempts && toll.took_effect > 0);
    assert_eq!(toll.accepted, 0);
}

#[test]
fn t03_no_stale_write_gets_through_while_others_raise() {
    held(&storm(Arc::new(InMemory::new()), true, (16, 200), 1), 200);
}

#[test]
fn t03_nor_in_s3() {
    if available() {
        let moto = Moto::shared();
        held(&storm(Arc::new(moto.bucket(&Wire::default())), true, (3, 12), 1), 12);
    }
}

/// The control: the same check, and then a plain put.
#[test]
fn t57_t03_some_stale_writes_get_through_when_check_and_put_are_two_steps() {
    let toll = storm(Arc::new(InMemory::new()), false, (16, 0), 1);
    assert!(toll.accepted > 0, "nothing was accepted, so the storm proves nothing");
}

/// `cargo test -p ringfence-fence --test objects -- --ignored --nocapture`
#[test]
#[ignore = "ten thousand attempts; run by name"]
fn no_stale_write_of_10_000_gets_through() {
    let seed = fastrand::u64(..u64::MAX - 4);
    let told = |what: &str, toll: &Toll| {
        let Toll { refused, by_the_store, accepted, took_effect } = toll;
        let tried = by_the_store + accepted;
        eprintln!(
            "seed {seed}, {what}: of {tried} stale attempts that had passed the first check {accepted} took effect \
             ({refused} were refused with those that had not; {took_effect} writes took effect)"
        );
    };
    let with = storm(Arc::new(InMemory::new()), true, (16, 10_000), seed);
    told("in memory, with the fence", &with);
    let without = storm(Arc::new(InMemory::new()), false, (16, 10_000), seed);
    told("in memory, a check and a plain put", &without);
    held(&with, 10_000);
    assert!(without.accepted > 0);
    if available() {
        let moto = Moto::shared();
        let with = storm(Arc::new(moto.bucket(&Wire::default())), true, (16, 10_000), seed);
        told("in S3, with the fence", &with);
        held(&with, 10_000);
    }
}
