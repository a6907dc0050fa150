//! Whose turn it is at the fence: a raise goes before the writes that wait, or an owner that is busy and out of touch could
//! keep its successor out for as long as it goes on writing.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// A value that one at a time may have.
#[derive(Debug)]
pub(super) struct Turns<T> {
    state: Mutex<State>,
    changed: Condvar,
    value: Mutex<T>,
}

#[derive(Debug, Default)]
struct State {
    taken: bool,
    raises_waiting: usize,
    #[cfg(test)]
    writes_waiting: usize,
}

/// Somebody's turn. It ends when this is dropped.
pub(super) struct Turn<'a, T> {
    turns: &'a Turns<T>,
    value: Option<MutexGuard<'a, T>>,
}

impl<T> Turns<T> {
    pub(super) fn new(value: T) -> Turns<T> {
        Turns { state: Mutex::default(), changed: Condvar::new(), value: Mutex::new(value) }
    }

    /// Waits for the turn of a write: behind all raises.
    pub(super) fn to_write(&self) -> Turn<'_, T> {
        let mut state = self.state();
        #[cfg(test)]
        {
            state.writes_waiting += 1;
        }
        while state.taken || state.raises_waiting > 0 {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        #[cfg(test)]
        {
            state.writes_waiting -= 1;
        }
        self.take(state)
    }

    /// Waits for the turn of a raise: behind the write that has begun, and no other.
    pub(super) fn to_raise(&self) -> Turn<'_, T> {
        let mut state = self.state();
        state.raises_waiting += 1;
        while state.taken {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.raises_waiting -= 1;
        self.take(state)
    }

    fn take(&self, mut state: MutexGuard<'_, State>) -> Turn<'_, T> {
        state.taken = true;
        drop(state);
        // Free: whoever had it has let it go before its turn ended.
        Turn { turns: self, value: Some(self.value.lock().unwrap_or_else(PoisonError::into_inner)) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn raises_waiting(&self) -> usize {
        self.state().raises_waiting
    }

    #[cfg(test)]
    pub(super) fn writes_waiting(&self) -> usize {
        self.state().writes_waiting
    }
}

impl<T> Turn<'_, T> {
    pub(super) fn get(&mut self) -> &mut T {
        self.value.as_mut().expect("held until it is dropped")
    }
}

impl<T> Drop for Turn<'_, T> {
    fn drop(&mut self) {
        self.value = None;
        self.turns.state().taken = false;
        self.turns.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::thread;

    #[test]
    fn a_raise_goes_before_the_writes_that_wait_also_when_it_came_last() {
        let turns = Arc::new(Turns::new(Vec::new()));
        let mut first = turns.to_write();
        let mut threads: Vec<thread::JoinHandle<()>> = Vec::new();
        for _ in 0..4 {
            let turns = Arc::clone(&turns);
            threads.push(thread::spawn(move || turns.to_write().get().push("write")));
        }
        // They wait before the raise does.
        while turns.writes_waiting() < 4 {
            thread::yield_now();
        }
        let raiser = {
            let turns = Arc::clone(&turns);
            thread::spawn(move || turns.to_raise().get().push("raise"))
        };
        while turns.raises_waiting() == 0 {
            thread::yield_now();
        }
        first.get().push("first");
        drop(first);
        threads.into_iter().chain([raiser]).for_each(|thread| thread.join().unwrap());
        assert_eq!(turns.to_write().get()[..3], ["first", "raise", "write"]);
    }
}
