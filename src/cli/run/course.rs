//! What becomes of one child: when it is started, asked to end, killed, and started again. Pure: the time is an argument.
//!
//! Its rules. A child is dead, and all of its process group with it, before what it works under is over; it is asked before that
//! where there is time. The next life begins when nothing of the one before lives.

use fastrand::Rng;
use std::time::Duration;

/// A child that ran for so long is taken to be well: the next restart counts as the first.
const WELL_AFTER: Duration = Duration::from_secs(60);
/// The waits before a child is started again: the first, and the longest.
const FIRST_REST: Duration = Duration::from_secs(1);
const LONGEST_REST: Duration = Duration::from_secs(60);

/// What a child is allowed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Policy {
    /// How often in a row it is started again after it ended by itself.
    pub(super) max_restarts: u32,
    /// How long before the end of what it works under it is killed.
    pub(super) kill_margin: Duration,
}

/// What the child works under, as it is now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    /// False: it is to end.
    pub(super) wanted: bool,
    /// How long it may live on, if nothing more is heard.
    pub(super) left: Duration,
}

/// Something happened to its processes.
#[derive(Debug)]
pub(super) enum News {
    /// It has ended, or could not be started; other processes of its group may live. How, for people.
    Ended(String),
    /// Nothing of its group lives any more.
    Gone,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Start,
    /// SIGTERM to its group.
    Terminate,
    /// SIGKILL to its group.
    Kill,
    /// Nothing lives, and nothing is to be started: it is over.
    End(End),
}

/// How it came to be over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It was to end.
    Asked,
    /// It ended by itself too often; how it did the last time.
    Failed(String),
}

/// One child, over all of its lives.
#[derive(Debug)]
pub(super) struct Course {
    policy: Policy,
    state: State,
    /// Restarts in a row.
    restarts: u32,
    /// The most that was ever left: what a lease is worth when it was just renewed.
    most_left: Duration,
    rng: Rng,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    /// Nothing lives; not to be started before then.
    Resting {
        until: Duration,
    },
    Running {
        since: Duration,
    },
    /// SIGTERM was sent.
    Asked,
    /// SIGKILL was sent, since it was to end.
    Killed,
    /// It ended by itself, after so long. What it left behind is killed, too.
    Ended {
        ran: Duration,
        how: String,
        cleared: bool,
    },
    Over(End),
}

impl Course {
    /// A child that is to be started. `now` is a moment of a clock of the caller's, and so are all others.
    pub(super) fn new(policy: Policy, seed: u64, now: Duration) -> Course {
        Course {
            policy,
            state: State::Resting { until: now },
            restarts: 0,
            most_left: Duration::ZERO,
            rng: Rng::with_seed(seed),
        }
    }

    /// Takes note of what happened.
    pub(super) fn note(&mut self, now: Duration, news: News) {
        match (&self.state, news) {
            // Whatever is left of its group may still be ending as it was asked to.
            (State::Asked | State::Killed, News::Ended(_)) => {}
            (State::Running { since }, News::Ended(how)) => {
                self.state = State::Ended { ran: now.saturating_sub(*since), how, cleared: false };
            }
            // Asked in vain: it may be wanted again.
            (State::Asked | State::Killed, News::Gone) => self.state = State::Resting { until: now },
            (State::Ended { ran, how, .. }, News::Gone) => {
                if *ran >= WELL_AFTER {
                    self.restarts = 0;
                }
                self.state = if self.restarts >= self.policy.max_restarts {
                    State::Over(End::Failed(how.clone()))
                } else {
                    State::Resting { until: now + self.rest() }
                };
                self.restarts = self.restarts.saturating_add(1);
            }
            _ => {}
        }
    }

    /// The wait before the next life: doubled each time, and up to a quarter shorter, so that not all children of a machine are
    /// started at once.
    fn rest(&mut self) -> Duration {
        let full = FIRST_REST.saturating_mul(1 << self.restarts.min(16)).min(LONGEST_REST);
        full - full.mul_f64(self.rng.f64() / 4.0)
    }

    /// What is to be done now. Each order is given once; ask again until there is none.
    pub(super) fn next(&mut self, now: Duration, claim: Claim) -> Option<Order> {
        self.most_left = self.most_left.max(claim.left);
        let must_die = claim.left <= self.policy.kill_margin;
        let doubt = self.doubt();
        let (state, order) = match &mut self.state {
            State::Resting { .. } if !claim.wanted => (State::Over(End::Asked), Order::End(End::Asked)),
            // It would have to die at once, or may not start yet.
            State::Resting { .. } if claim.left <= doubt => return None,
            State::Resting { until } if now < *until => return None,
            State::Resting { .. } => (State::Running { since: now }, Order::Start),
            State::Running { .. } | State::Asked if must_die => (State::Killed, Order::Kill),
            State::Running { .. } if !claim.wanted || claim.left <= doubt => (State::Asked, Order::Terminate),
            State::Ended { cleared, .. } => {
                return (!std::mem::replace(cleared, true)).then_some(Order::Kill);
            }
            State::Over(end) => return Some(Order::End(end.clone())),
            State::Running { .. } | State::Asked | State::Killed => return None,
        };
        self.state = state;
        Some(order)
    }

    /// With so little left the lease is likely not to be renewed any more: the last quarter is for ending in good order.
    fn doubt(&self) -> Duration {
        (self.most_left / 4).max(self.policy.kill_margin)
    }

    /// How long nothing has to be done by itself; `None`: until something happens.
    pub(super) fn quiet_for(&self, now: Duration, claim: Claim) -> Option<Duration> {
        match &self.state {
            State::Resting { until } => Some(until.saturating_sub(now)),
            State::Running { .. } => Some(claim.left.saturating_sub(self.doubt())),
            State::Asked => Some(claim.left.saturating_sub(self.policy.kill_margin)),
            State::Killed | State::Ended { .. } | State::Over(_) => None,
        }
    }

    /// How many lives ended by themselves, in a row.
    pub(super) fn restarts(&self) -> u32 {
        self.restarts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: Policy = Policy { max_restarts: 2, kill_margin: Duration::from_millis(250) };
    const GOOD: Claim = Claim { wanted: true, left: ms(10_000) };

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn left(left: u64) -> Claim {
        Claim { wanted: true, left: ms(left) }
    }

    fn revoked(left: u64) -> Claim {
        Claim { wanted: false, left: ms(left) }
    }

    fn started() -> Course {
        let mut course = Course::new(POLICY, 1, ms(0));
        assert_eq!(course.next(ms(0), GOOD), Some(Order::Start));
        assert_eq!(course.next(ms(1), GOOD), None);
        course
    }

    /// It ends by itself, and what it left behind is killed.
    fn dies(course: &mut Course, at: Duration) {
        course.note(at, News::Ended("exit code 1".to_owned()));
        assert_eq!(course.next(at, GOOD), Some(Order::Kill));
        assert_eq!(course.next(at, GOOD), None, "nothing is started while anything of it lives");
        course.note(at, News::Gone);
    }

    #[test]
    fn t37_what_is_wanted_back_is_asked_first_and_over_when_nothing_of_it_lives() {
        let mut course = started();
        assert_eq!(course.next(ms(50), revoked(3_000)), Some(Order::Terminate));
        assert_eq!(course.next(ms(51), revoked(2_999)), None, "asked once");
        course.note(ms(60), News::Ended("exit code 0".to_owned()));
        assert_eq!(course.next(ms(61), revoked(2_990)), None, "its group lives on");
        course.note(ms(70), News::Gone);
        assert_eq!(course.next(ms(71), revoked(2_980)), Some(Order::End(End::Asked)));
    }

    #[test]
    fn t37_what_does_not_end_is_killed_before_it_is_over() {
        let mut course = started();
        assert_eq!(course.next(ms(50), revoked(3_000)), Some(Order::Terminate));
        assert_eq!(course.quiet_for(ms(50), revoked(3_000)), Some(ms(2_750)));
        assert_eq!(course.next(ms(2_799), revoked(251)), None);
        assert_eq!(course.next(ms(2_800), revoked(250)), Some(Order::Kill));
        assert_eq!(course.next(ms(2_801), revoked(0)), None, "killed once");
        course.note(ms(2_810), News::Ended("killed".to_owned()));
        course.note(ms(2_811), News::Gone);
        assert_eq!(course.next(ms(2_811), revoked(0)), Some(Order::End(End::Asked)));
    }

    #[test]
    fn t27_after_a_pause_past_the_end_the_first_order_is_to_kill() {
        let mut course = started();
        assert_eq!(course.next(ms(60_000), left(0)), Some(Order::Kill));
        let mut asked = started();
        assert_eq!(asked.next(ms(50), revoked(9_000)), Some(Order::Terminate));
        assert_eq!(asked.next(ms(60_000), revoked(0)), Some(Order::Kill));
    }

    #[test]
    fn a_lease_that_is_not_renewed_leaves_a_quarter_of_it_to_end_in_good_order() {
        let mut course = started();
        assert_eq!(course.next(ms(7_000), left(2_501)), None);
        assert_eq!(course.next(ms(7_001), left(2_500)), Some(Order::Terminate));
        course.note(ms(7_100), News::Ended("exit code 0".to_owned()));
        course.note(ms(7_100), News::Gone);
        assert_eq!(course.next(ms(7_200), left(2_300)), None, "not while it is in doubt");
        // It was renewed after all. It ended because it was asked to, so it need not wait and it does not count.
        assert_eq!(course.next(ms(7_300), GOOD), Some(Order::Start));
        assert_eq!(course.restarts(), 0);
    }

    #[test]
    fn a_short_lease_is_in_doubt_no_later_than_the_margin() {
        let mut course = Course::new(POLICY, 1, ms(0));
        assert_eq!(course.next(ms(0), left(400)), Some(Order::Start));
        assert_eq!(course.next(ms(100), left(251)), None);
        assert_eq!(course.next(ms(151), left(250)), Some(Order::Kill), "there is no time to ask");
    }

    #[test]
    fn c23_a_child_that_dies_is_started_again_later_each_time_and_then_has_failed() {
        let mut course = started();
        dies(&mut course, ms(100));
        assert_eq!(course.next(ms(100), GOOD), None, "it rests");
        assert_eq!(course.next(ms(849), GOOD), None);
        assert_eq!(course.next(ms(1_100), GOOD), Some(Order::Start));
        dies(&mut course, ms(1_200));
        assert_eq!(course.next(ms(2_699), GOOD), None, "twice as long");
        assert_eq!(course.next(ms(3_200), GOOD), Some(Order::Start));
        dies(&mut course, ms(3_300));
        let failed = Order::End(End::Failed("exit code 1".to_owned()));
        assert_eq!(course.next(ms(3_300), GOOD), Some(failed));
    }

    #[test]
    fn a_child_that_ran_for_a_minute_begins_anew() {
        let mut course = started();
        for life in 1..=9_u64 {
            let at = ms(life * 100_000);
            dies(&mut course, at);
            assert_eq!(course.restarts(), 1);
            assert_eq!(course.next(at + ms(1_000), GOOD), Some(Order::Start), "life {life}");
        }
    }

    #[test]
    fn what_is_wanted_back_while_it_rests_is_over_at_once() {
        let mut course = started();
        dies(&mut course, ms(100));
        assert_eq!(course.next(ms(101), revoked(3_000)), Some(Order::End(End::Asked)));
    }

    #[test]
    fn the_rests_are_bounded_and_not_alike() {
        let mut rests: Vec<Duration> = (0..64)
            .map(|seed| {
                let mut course = Course::new(Policy { max_restarts: 100, ..POLICY }, seed, ms(0));
                course.restarts = 40;
                course.rest()
            })
            .collect();
        assert!(rests.iter().all(|rest| (ms(45_000)..=ms(60_000)).contains(rest)), "{rests:?}");
        rests.dedup();
        assert!(rests.len() > 32);
    }
}
