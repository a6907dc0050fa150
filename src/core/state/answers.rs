//! Requests that take effect once, and the answers that make it so.
//!
//! A retry of a request that took effect gets the first answer instead of a second effect, at another leader and after
//! a snapshot too: the answers are part of the replicated state. Only successes are remembered; a refused request
//! changed nothing, so running it again is safe. The answers are bounded by count, never by time, since the state has
//! no clock; what fell out of the bound is refused as too old, never run again.

use super::outcome::Outcome;
use crate::ids::{LogIndex, SessionId};
use crate::mutant;
use std::collections::{BTreeMap, VecDeque};

/// How many answers are kept for a session.
pub const SESSION_ANSWERS: usize = 64;
/// How many answers are kept for requests without a session.
pub const OPERATOR_ANSWERS: usize = 1_024;

/// Whose request an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Request {
    /// A worker's, within its session.
    Session {
        /// The session.
        session: SessionId,
        /// The session numbers its requests from 1.
        number: u64,
        /// It needs no answer below this number any more.
        settled_below: u64,
    },
    /// An operator's, or any other's without a session.
    Operator {
        /// Random, the same for each retry.
        id: u128,
        /// The log index its sender had seen before it sent the request the first time.
        seen: LogIndex,
    },
}

/// What is known of a request before it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    New,
    Answered(Vec<Outcome>),
    TooOld,
}

/// The answers to one session's requests; they die with it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SessionAnswers {
    pub(crate) settled_below: u64,
    pub(crate) kept: BTreeMap<u64, Vec<Outcome>>,
}

impl SessionAnswers {
    pub(crate) fn look_up(&self, number: u64) -> Known {
        if number < self.settled_below && !mutant!("settled-request-runs-again") {
            return Known::TooOld;
        }
        self.kept.get(&number).map_or(Known::New, |answer| Known::Answered(answer.clone()))
    }

    pub(crate) fn keep(&mut self, number: u64, settled_below: u64, answer: Vec<Outcome>) {
        self.kept.insert(number, answer);
        self.settle(settled_below);
        while self.kept.len() > SESSION_ANSWERS {
            if let Some((oldest, _)) = self.kept.pop_first() {
                self.settle(oldest.saturating_add(1));
            }
        }
    }

    fn settle(&mut self, below: u64) {
        if below > self.settled_below {
            self.settled_below = below;
            self.kept = self.kept.split_off(&below);
        }
    }
}

/// The answers to requests without a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct OperatorAnswers {
    pub(crate) kept: BTreeMap<u128, (LogIndex, Vec<Outcome>)>,
    pub(crate) order: VecDeque<u128>,
    /// The log index of the youngest answer that fell out of the bound.
    pub(crate) dropped: Option<LogIndex>,
}

impl OperatorAnswers {
    /// A request whose sender had seen an index before the youngest forgotten answer may be the one forgotten.
    pub(crate) fn look_up(&self, id: u128, seen: LogIndex) -> Known {
        if let Some((_, answer)) = self.kept.get(&id) {
            return Known::Answered(answer.clone());
        }
        let too_old = self.dropped.is_some_and(|dropped| seen < dropped);
        if too_old && !mutant!("forgotten-request-runs-again") { Known::TooOld } else { Known::New }
    }

    pub(crate) fn keep(&mut self, id: u128, at: LogIndex, answer: Vec<Outcome>) {
        self.kept.insert(id, (at, answer));
        self.order.push_back(id);
        while self.order.len() > OPERATOR_ANSWERS {
            let forgotten = self.order.pop_front().and_then(|id| self.kept.remove(&id));
            if let Some((at, _)) = forgotten {
                self.dropped = Some(at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f014_a_session_s_answer_is_kept_until_it_settles_and_then_refused_as_too_old() {
        let mut answers = SessionAnswers::default();
        answers.keep(1, 0, vec![Outcome::Done]);
        answers.keep(2, 0, vec![Outcome::Unchanged]);
        assert_eq!(answers.look_up(1), Known::Answered(vec![Outcome::Done]));
        answers.keep(3, 2, vec![Outcome::Done]);
        assert_eq!(answers.look_up(1), Known::TooOld);
        assert_eq!(answers.look_up(2), Known::Answered(vec![Outcome::Unchanged]));
        assert_eq!(answers.look_up(4), Known::New);
    }

    #[test]
    fn the_answers_of_a_session_that_settles_nothing_are_bounded() {
        let mut answers = SessionAnswers::default();
        for number in 1..=1_000 {
            answers.keep(number, 0, vec![Outcome::Done]);
        }
        assert_eq!(answers.kept.len(), SESSION_ANSWERS);
        assert_eq!(answers.look_up(1_000 - SESSION_ANSWERS as u64), Known::TooOld);
        assert_eq!(answers.look_up(1_000), Known::Answered(vec![Outcome::Done]));
    }

    #[test]
    fn one_busy_operator_cannot_make_another_s_retry_run_twice() {
        let mut answers = OperatorAnswers::default();
        answers.keep(7, LogIndex::new(10), vec![Outcome::Done]);
        for i in 0..OPERATOR_ANSWERS as u64 {
            answers.keep(1_000 + u128::from(i), LogIndex::new(11 + i), vec![Outcome::Done]);
        }
        // The retry of 7 had seen index 9 at most, since its first try was applied at 10.
        assert_eq!(answers.look_up(7, LogIndex::new(9)), Known::TooOld);
        assert_eq!(answers.look_up(8, LogIndex::new(10)), Known::New);
    }
}
