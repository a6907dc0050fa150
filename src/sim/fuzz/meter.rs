//! How much memory one run takes on its thread.
//!
//! The allocator of this program counts for the thread that asks, and for no other, so a measurement means something
//! while other threads run. Bytes say whether a message that lies about a length was believed; the number of allocations
//! stands for time, because it is the same on every machine.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, counting.
pub(crate) struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What a run took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    /// The most bytes that were held at one time, above what was held at the start.
    pub(crate) bytes: usize,
    /// How many times memory was asked for.
    pub(crate) steps: usize,
}

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
    static STEPS: Cell<usize> = const { Cell::new(0) };
}

/// Runs this, and says what it took.
pub(crate) fn metered<T>(run: impl FnOnce() -> T) -> (T, Taken) {
    let (held, steps) = (HELD.get(), STEPS.get());
    MOST.set(held);
    let done = run();
    let bytes = usize::try_from(MOST.get() - held).unwrap_or(0);
    (done, Taken { bytes, steps: STEPS.get() - steps })
}

fn took(bytes: usize) {
    let held = HELD.get().saturating_add_unsigned(bytes);
    HELD.set(held);
    MOST.set(MOST.get().max(held));
    STEPS.set(STEPS.get() + 1);
}

fn gave(bytes: usize) {
    HELD.set(HELD.get().saturating_sub_unsigned(bytes));
}

// SAFETY: every call is the system allocator's with the same arguments; the counters are plain cells of the thread, which
// need no memory of their own and no destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        took(layout.size());
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        took(layout.size());
        // SAFETY: as the caller promised.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        gave(layout.size());
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        took(size);
        gave(layout.size());
        // SAFETY: as the caller promised.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_run_takes_is_counted_also_when_it_is_given_back() {
        let (_, none) = metered(|| 1 + 1);
        assert_eq!(none, Taken::default());
        let (kept, taken) = metered(|| {
            drop(Vec::<u8>::with_capacity(1 << 20));
            Vec::<u8>::with_capacity(100)
        });
        assert_eq!(kept.capacity(), 100);
        assert_eq!(taken, Taken { bytes: 1 << 20, steps: 2 });
    }
}
