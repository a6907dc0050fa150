//! How long a node has known of no leader, and when that is worth a word in the log.
//!
//! An election takes a few round trips. When none succeeds for seconds, a majority is down or cut off, or a vote takes
//! longer than its time: a link or a disk is slower than the election times allow, and no patience mends that.

use std::time::Duration;
use tokio::time::Instant;

/// Elections that succeed are over by then, several times.
const FIRST: Duration = Duration::from_secs(5);
/// Then it is said again, so that it is found in the last lines of a log.
const AGAIN: Duration = Duration::from_secs(60);

/// Since when there is no leader, and when to say so next.
#[derive(Debug, Default)]
pub(crate) struct Leaderless {
    since: Option<(Instant, Instant)>,
}

impl Leaderless {
    /// Takes note of whether there is a leader. Returns for how long there has been none, when it is time to say so.
    pub(crate) fn note(&mut self, led: bool, now: Instant) -> Option<Duration> {
        if led {
            self.since = None;
            return None;
        }
        let (since, next) = self.since.get_or_insert((now, now + FIRST));
        if now < *next {
            return None;
        }
        *next = now + AGAIN;
        Some(now - *since)
    }

    /// When to look again although nothing changed.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.since.map(|(_, next)| next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_missing_leader_is_told_after_a_while_and_then_again() {
        let (mut leaderless, zero) = (Leaderless::default(), Instant::now());
        let at = |seconds| zero + Duration::from_secs(seconds);
        assert_eq!(leaderless.note(true, zero), None);
        assert_eq!(leaderless.next(), None, "nothing to wait for");
        assert_eq!(leaderless.note(false, at(1)), None);
        assert_eq!(leaderless.next(), Some(at(6)));
        assert_eq!(leaderless.note(false, at(5)), None);
        assert_eq!(leaderless.note(false, at(6)), Some(Duration::from_secs(5)));
        assert_eq!(leaderless.note(false, at(65)), None);
        assert_eq!(leaderless.note(false, at(66)), Some(Duration::from_secs(65)));
        // An election that succeeded ends it.
        assert_eq!(leaderless.note(true, at(70)), None);
        assert_eq!(leaderless.note(false, at(71)), None);
    }
}
