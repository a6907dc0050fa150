//! The race that a fence decides, on a clock that the example moves itself: A holds a partition under token 33, is paused
//! for longer than its lease after it stamped a write, and B is granted the partition under 34. Then A goes on.
//!
//! Everything A can check it has checked before the pause. With the fence its late write is refused; without it, and with
//! the same leases, it overwrites what B wrote.
//!
//! ```console
//! $ cargo run --example paused_writer
//! with the fence: B wrote under 34; A's write under 33 is refused; final value: B
//! without the fence: B wrote under 34; A's write under 33 is accepted; final value: A
//! what A does after the pause that starts anew: nothing, its lease ran out
//! ```

use ringfence::FencingToken;
use ringfence::fence::{FenceError, MemoryFence};
use ringfence::testkit::Granted;
use std::error::Error;
use std::time::Duration;

/// A file with one value, and a fence in front of it or none.
struct Storage {
    fence: Option<MemoryFence>,
    value: &'static str,
}

impl Storage {
    /// Opens it for an owner, which raises the fence.
    fn open(&self, token: &FencingToken) -> Result<(), FenceError> {
        self.fence.as_ref().map_or(Ok(()), |fence| fence.raise(token))
    }

    /// Writes under a stamp. The check and the write are one step.
    fn write(&mut self, stamp: &FencingToken, value: &'static str) -> Result<(), FenceError> {
        let current = &mut self.value;
        match &self.fence {
            Some(fence) => fence.guarded(stamp, || *current = value),
            None => {
                *current = value;
                Ok(())
            }
        }
    }
}

/// The race. Returns what is printed about it, and whether A could begin a new operation afterwards.
fn race(fenced: bool) -> Result<(String, bool), Box<dyn Error>> {
    let (a, mut control) = Granted::new("files", 17).epoch(33).start()?;
    let fence = fenced.then(|| MemoryFence::new(a.token().cluster().clone()));
    let mut storage = Storage { fence, value: "nothing" };
    storage.open(a.token())?;

    // A is the owner, says its lease, and so it stamps its write. Then the process stands still.
    let stamp = a.stamp()?;
    control.pause(Duration::from_secs(15));

    // Its lease has run out. B is granted the partition, opens the storage and writes.
    let b = control.next_epoch()?;
    storage.open(b.token())?;
    storage.write(&b.stamp()?, "B")?;

    // A goes on where it stood still.
    let late = match storage.write(&stamp, "A") {
        Ok(()) => "accepted",
        Err(FenceError::Fenced(_)) => "refused",
        Err(other) => return Err(other.into()),
    };
    let (new, old) = (b.epoch().get(), stamp.epoch().get());
    let told =
        format!("B wrote under {new}; A's write under {old} is {late}; final value: {}", storage.value);
    Ok((told, a.stamp().is_ok()))
}

fn main() -> Result<(), Box<dyn Error>> {
    let (told, begins) = race(true)?;
    println!("with the fence: {told}");
    let (without, _) = race(false)?;
    println!("without the fence: {without}");
    let begins = if begins { "it begins a new write" } else { "nothing, its lease ran out" };
    println!("what A does after the pause that starts anew: {begins}");
    Ok(())
}
