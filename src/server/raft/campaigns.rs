//! When this node may stand for election again.
//!
//! A vote costs flushes: the candidate's own, the voter's, then the winner's and, before they hear it, the voters' again.
//! The library's next campaign comes a random election timeout after the last *began*, and raises the term, so that
//! what is still on its way counts for nothing. Where the flushes together take longer than the timeout, campaigns would
//! chase each other for ever.
//!
//! Rule: after a vote is on the disk, this node's or one for another, nobody here stands for a random election timeout plus
//! twice what that flush took, and plus a random part of twice that for each vote before it that brought no leader: so
//! campaigns move apart by as much as one of them takes. A leader's vote starts it over. On a quick disk all of it is the
//! timeout that would have passed anyway, however often votes are split: waits that grew by themselves would make a failover
//! longer than a lease. It only delays: whoever hears of no leader stands in the end, and asks first (pre-vote) as ever.

use super::config::Timings;
use fastrand::Rng;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tokio::time::Instant;

/// Waits grow up to so many times `election_max`, and with so many votes in vain; a disk slower than that has no leader, and
/// is sick before it.
const LONGEST: u32 = 8;

/// Lets a node stand for election, or not.
pub(super) trait Switch: Send + Sync {
    /// From now on it may, or may not.
    fn may_stand(&self, may: bool);
}

/// The waits of one node. A clone is the same.
#[derive(Clone, Default)]
pub(super) struct Campaigns(Arc<Mutex<Option<Governed>>>);

struct Governed {
    switch: Weak<dyn Switch>,
    timings: Timings,
    rng: Rng,
    /// Votes since a leader was heard of.
    vain: u32,
    /// The latest vote; the wait of an earlier one is over without effect.
    latest: u64,
}

/// A vote that is being written.
pub(super) struct Voting {
    latest: u64,
    committed: bool,
    began: Instant,
}

impl Campaigns {
    /// Governs a node that has started. Until then nothing is delayed.
    pub(super) fn govern(&self, switch: Weak<dyn Switch>, timings: Timings, seed: u64) {
        let rng = Rng::with_seed(seed);
        *self.lock() = Some(Governed { switch, timings, rng, vain: 0, latest: 0 });
    }

    /// A vote goes to the disk; `committed` when it is for a leader that was elected.
    pub(super) fn voting(&self, committed: bool) -> Voting {
        let mut latest = 0;
        if let Some(governed) = &mut *self.lock() {
            governed.latest += 1;
            latest = governed.latest;
            governed.say(false);
        }
        Voting { latest, committed, began: Instant::now() }
    }

    /// It is there.
    pub(super) fn voted(&self, vote: &Voting) {
        let Some(wait) = self.lock().as_mut().map(|governed| governed.wait(vote)) else { return };
        let (this, latest) = (self.clone(), vote.latest);
        tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            if let Some(governed) = this.lock().as_ref().filter(|governed| governed.latest == latest) {
                governed.say(true);
            }
        });
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Governed>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Governed {
    fn say(&self, may: bool) {
        // A node that is gone stands for nothing.
        if let Some(switch) = self.switch.upgrade() {
            switch.may_stand(may);
        }
    }

    fn wait(&mut self, vote: &Voting) -> Duration {
        let Timings { election_min, election_max, .. } = self.timings;
        let timeout = election_min + (election_max - election_min).mul_f64(self.rng.f64());
        let flushes = vote.began.elapsed().min(election_max * LONGEST) * 2;
        let apart = flushes.mul_f64(self.rng.f64() * f64::from(self.vain));
        self.vain = if vote.committed { 0 } else { self.vain.saturating_add(1).min(LONGEST) };
        (timeout + flushes + apart).min(election_max * LONGEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    struct May(AtomicBool);

    impl Switch for May {
        fn may_stand(&self, may: bool) {
            self.0.store(may, Ordering::SeqCst);
        }
    }

    fn governed() -> (Campaigns, Arc<May>) {
        let (campaigns, may) = (Campaigns::default(), Arc::new(May(AtomicBool::new(true))));
        let switch: Arc<dyn Switch> = may.clone();
        campaigns.govern(Arc::downgrade(&switch), Timings::default(), 7);
        (campaigns, may)
    }

    /// How long a node does not stand after a vote whose flush took so long. Time is tokio's, and passes when all wait.
    async fn stands_after(campaigns: &Campaigns, may: &May, committed: bool, flush: Duration) -> Duration {
        let voting = campaigns.voting(committed);
        assert!(!may.0.load(Ordering::SeqCst), "it stands while its vote is being written");
        tokio::time::sleep(flush).await;
        campaigns.voted(&voting);
        let began = Instant::now();
        while !may.0.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn waits_leave_room_for_flushes_and_move_apart_until_a_leader_is_heard_of() {
        let (campaigns, may) = governed();
        let Timings { election_min, election_max, .. } = Timings::default();
        let flush = Duration::from_millis(150);
        let slack = Duration::from_millis(2);
        for _ in 0..3 {
            let mut longest = Duration::ZERO;
            for vain in 0..6 {
                let (least, most) = (election_min + flush * 2, election_max + flush * 2 * (1 + vain));
                let waited = stands_after(&campaigns, &may, false, flush).await;
                assert!(waited >= least && waited <= most.min(election_max * LONGEST) + slack, "{waited:?}");
                longest = longest.max(waited);
            }
            assert!(longest > election_max + flush * 4, "they move apart: {longest:?}");
            let waited = stands_after(&campaigns, &may, true, Duration::ZERO).await;
            assert!(waited >= election_min && waited <= election_max + slack, "{waited:?}");
        }
        for _ in 0..40 {
            let waited = stands_after(&campaigns, &may, false, Duration::from_secs(60)).await;
            assert!(waited <= election_max * LONGEST + slack, "{waited:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn on_a_quick_disk_votes_that_were_split_make_no_wait_longer() {
        let (campaigns, may) = governed();
        let flush = Duration::from_millis(1);
        for _ in 0..50 {
            let waited = stands_after(&campaigns, &may, false, flush).await;
            let most = Timings::default().election_max + flush * 2 * (1 + LONGEST);
            assert!(waited <= most + Duration::from_millis(2), "{waited:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_wait_of_an_earlier_vote_does_not_end_that_of_a_later_one() {
        let (campaigns, may) = governed();
        let first = campaigns.voting(false);
        campaigns.voted(&first);
        let second = campaigns.voting(false);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(!may.0.load(Ordering::SeqCst), "the second vote is not written yet");
        campaigns.voted(&second);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(may.0.load(Ordering::SeqCst));
    }
}
