//! The storm of stale writes, in a log.

use crate::shared_storm::{PATIENCE, Process, nothing_gets_through, some_get_through};
use crate::subject::{Place, texts};
use ringfence_fence::log::FencedLog;
use ringfence_fence::{FenceError, FencingToken};
use std::fs::File;
use std::io::Write;
use std::slice::from_ref;
use std::sync::Arc;

/// A handle to the log, and the file that is written to past it.
struct Opened {
    log: FencedLog,
    plain: File,
    guarded: bool,
    place: Arc<Place>,
}

impl Process for Opened {
    fn raise(&mut self, token: &FencingToken) -> Result<(), FenceError> {
        self.log.raise(token)
    }

    fn append(&mut self, token: &FencingToken, paused: impl FnOnce()) -> Result<(), FenceError> {
        let epoch = token.epoch().get();
        if !self.guarded {
            // The same check, under a lock of its own, and the write after it.
            self.log.check(from_ref(token))?;
            paused();
            self.plain.write_all(format!("{epoch}\n").as_bytes()).unwrap();
            return Ok(());
        }
        paused();
        self.log.append(from_ref(token), epoch.to_string().as_bytes()).map(drop)
    }

    fn written(&mut self) -> Vec<u64> {
        if self.guarded {
            return texts(&mut self.place.open()).iter().map(|text| text.parse().unwrap()).collect();
        }
        let plain = std::fs::read_to_string(self.place.dir().join("plain")).unwrap();
        plain.lines().map(|line| line.parse().unwrap()).collect()
    }
}

fn processes(guarded: bool) -> Vec<Opened> {
    let place = Arc::new(Place::new());
    let open = |_| {
        let plain = File::options().create(true).append(true).open(place.dir().join("plain")).unwrap();
        Opened { log: place.open().waiting(PATIENCE), plain, guarded, place: Arc::clone(&place) }
    };
    (0..4).map(open).collect()
}

#[test]
fn t03_no_stale_append_gets_through_while_others_raise() {
    nothing_gets_through(processes(true), 2_000);
}

#[test]
fn t57_t03_some_stale_appends_get_through_when_check_and_write_are_two_steps() {
    some_get_through(processes(false), 0);
}

/// `cargo test -p ringfence-fence --test log -- --ignored --nocapture`
#[test]
#[ignore = "a million attempts; run by name"]
fn no_stale_append_of_a_million_gets_through() {
    nothing_gets_through(processes(true), 1_000_000);
    some_get_through(processes(false), 20_000);
}
