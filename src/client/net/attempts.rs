//! Whether a call is sent again, where, and when it is given up.
//!
//! It sends nothing and reads no clock; the moments come in as arguments.

use super::{Backoff, Endpoint, Trouble};
use crate::error::ErrorKind;
use ringfence_api::{ErrorKind as Answer, Failure};
use std::fmt;
use std::time::Duration;
use tokio::time::Instant;

/// How many of the endpoints tried an error lists.
const MAX_LISTED: usize = 8;

/// Who can answer a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// The leader; others know who it is.
    Leader,
    /// Any node.
    Any,
}

/// What a call does to the cluster when it arrives twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nothing: it only reads.
    Read,
    /// The same as once: it carries a request id, or says something that is true for good.
    Repeatable,
    /// Something else than once. It is sent again only when it certainly did not arrive.
    Once,
}

/// How a call is to be made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) route: Route,
    pub(crate) effect: Effect,
    /// How long until it is given up.
    pub(crate) within: Duration,
    /// How long one node may be silent before another is asked; doubled after each silence, so that a slow cluster is
    /// answered to in the end.
    pub(crate) patience: Duration,
}

impl Call {
    /// A call with the usual times: given up after 10 s, a silent node passed over after 2 s.
    pub(crate) const fn new(route: Route, effect: Effect) -> Call {
        Call { route, effect, within: Duration::from_secs(10), patience: Duration::from_secs(2) }
    }

    /// Given up after so long, instead.
    pub(crate) const fn within(self, within: Duration) -> Call {
        Call { within, ..self }
    }

    /// A silent node is passed over after so long, instead.
    pub(crate) const fn patience(self, patience: Duration) -> Call {
        Call { patience, ..self }
    }
}

/// What to do after a try that did not succeed.
#[derive(Debug)]
pub(super) enum Next {
    /// Ask the next node of this round.
    Elsewhere,
    /// It is over.
    Stop(Failed),
}

/// How a call ended without success.
#[derive(Debug)]
pub(super) enum Failed {
    /// With a coordinator's answer.
    Answer(Failure),
    /// Without one.
    GaveUp(GaveUp),
}

/// A deadline that never comes. The clock has an end, and a caller who wants none may ask for the longest duration there
/// is.
const FOR_EVER: Duration = Duration::from_secs(30 * 365 * 86_400);

/// One call's way through the cluster.
pub(super) struct Attempts {
    call: Call,
    deadline: Instant,
    backoff: Backoff,
    patience: Duration,
    /// Whom it asked in this round.
    asked: Vec<Endpoint>,
    /// It may have arrived somewhere.
    may_have_arrived: bool,
    /// Of the last round: a coordinator answered, without doing anything.
    answered: Option<Answer>,
    /// Of this round: how many answered that are no coordinators of the cluster and never will be, and the last such answer.
    foreign: (usize, Option<Failure>),
    /// Of the last answers: how many nodes said that somebody removes them, and the last such answer.
    leaving: (usize, Option<Failure>),
    tried: Vec<(Endpoint, String)>,
}

impl Attempts {
    pub(super) fn new(call: Call, now: Instant) -> Attempts {
        Attempts {
            call,
            deadline: now + call.within.min(FOR_EVER),
            backoff: Backoff::new(Duration::from_millis(50), Duration::from_secs(1)),
            patience: call.patience,
            asked: Vec::new(),
            may_have_arrived: false,
            answered: None,
            foreign: (0, None),
            leaving: (0, None),
            tried: Vec::new(),
        }
    }

    /// Whom it asked in this round.
    pub(super) fn asked(&self) -> &[Endpoint] {
        &self.asked
    }

    /// How long the next node may take.
    pub(super) fn patience(&self, now: Instant) -> Duration {
        self.patience.min(self.deadline.saturating_duration_since(now))
    }

    /// This node was asked, and this is what came of it.
    pub(super) fn failed(&mut self, endpoint: &Endpoint, trouble: Trouble, now: Instant) -> Next {
        self.asked.push(endpoint.clone());
        self.tried.retain(|(tried, _)| tried != endpoint);
        self.tried.push((endpoint.clone(), trouble.reason().to_owned()));
        match trouble {
            Trouble::NotSent(_) => {}
            Trouble::Silent(_) => {
                self.may_have_arrived = true;
                self.patience = self.patience.saturating_mul(2);
                if self.call.effect == Effect::Once {
                    return self.give_up();
                }
            }
            Trouble::Foreign(failure) => self.foreign = (self.foreign.0 + 1, Some(failure)),
            Trouble::Answer(failure) if failure.is_no_member() == Some(true) => {
                self.foreign = (self.foreign.0 + 1, Some(failure));
            }
            Trouble::Answer(failure) => match failure.kind() {
                kind @ (Answer::NotLeader | Answer::NoLeader | Answer::Unavailable) => {
                    self.answered = Some(kind);
                    if failure.is_no_member().is_some() {
                        self.leaving = (self.leaving.0 + 1, Some(failure));
                    }
                }
                Answer::UnknownOutcome | Answer::Transport if self.call.effect != Effect::Once => {
                    self.may_have_arrived = true;
                }
                _ => return Next::Stop(Failed::Answer(failure)),
            },
        }
        if now >= self.deadline { self.give_up() } else { Next::Elsewhere }
    }

    /// Everybody was asked. How long to wait before the next round, or the end: when the wait would last beyond the
    /// deadline, and when nobody who answered is a coordinator.
    pub(super) fn round_over(&mut self, now: Instant) -> Result<Duration, Failed> {
        if let (count, Some(failure)) = &self.foreign
            && *count == self.asked.len()
        {
            // Such an answer says that nothing was done, and an earlier node may have done it.
            let failed = match self.may_have_taken_effect() {
                true => Failed::GaveUp(self.gave_up()),
                false => Failed::Answer(failure.clone()),
            };
            return Err(failed);
        }
        let wait = self.backoff.wait();
        if now + wait >= self.deadline {
            return Err(self.ended());
        }
        (self.foreign, self.leaving) = ((0, None), (0, None));
        self.asked.clear();
        Ok(wait)
    }

    fn give_up(&mut self) -> Next {
        Next::Stop(self.ended())
    }

    /// How it ends without an answer that counts. That all who were asked last are being removed says more than that nobody leads.
    fn ended(&mut self) -> Failed {
        let all_leave = self.leaving.0 + self.foreign.0 == self.asked.len() && !self.may_have_arrived;
        match self.leaving.1.take().filter(|_| all_leave) {
            Some(failure) => Failed::Answer(failure),
            None => Failed::GaveUp(self.gave_up()),
        }
    }

    fn may_have_taken_effect(&self) -> bool {
        self.may_have_arrived && self.call.effect != Effect::Read
    }

    fn gave_up(&mut self) -> GaveUp {
        let kind = match self.answered {
            _ if self.may_have_taken_effect() => ErrorKind::UnknownOutcome,
            Some(Answer::Unavailable) => ErrorKind::Unavailable,
            Some(_) => ErrorKind::NoLeader,
            None => ErrorKind::Unreachable,
        };
        GaveUp { kind, within: self.call.within, tried: std::mem::take(&mut self.tried) }
    }
}

/// A call that was given up, and what each node it asked came back with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GaveUp {
    kind: ErrorKind,
    within: Duration,
    tried: Vec<(Endpoint, String)>,
}

impl GaveUp {
    pub(crate) fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl std::error::Error for GaveUp {}

impl fmt::Display for GaveUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let within = self.within;
        match self.kind {
            ErrorKind::UnknownOutcome => f.write_str(
                "it is not known whether this took effect, no answer came; look at the state before doing it again",
            )?,
            ErrorKind::NoLeader => write!(
                f,
                "no coordinator leads, asked for {within:?}; nothing was done, see that a majority of them runs"
            )?,
            ErrorKind::Unavailable => {
                write!(f, "no coordinator can serve, asked for {within:?}; nothing was done, see their logs")?;
            }
            _ => write!(
                f,
                "no coordinator answered within {within:?}; nothing was done, check the endpoints and that they run"
            )?,
        }
        for (i, (endpoint, reason)) in self.tried.iter().take(MAX_LISTED).enumerate() {
            write!(f, "{}{endpoint}: {reason}", if i == 0 { " (" } else { "; " })?;
        }
        match self.tried.len() {
            0 => Ok(()),
            n if n > MAX_LISTED => write!(f, "; and {} more)", n - MAX_LISTED),
            _ => f.write_str(")"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn a() -> Endpoint {
        Endpoint::new("http://a:1").unwrap()
    }

    fn attempts(effect: Effect) -> (Attempts, Instant) {
        let now = Instant::now();
        (Attempts::new(Call::new(Route::Leader, effect), now), now)
    }

    fn silent() -> Trouble {
        Trouble::Silent("reset".to_owned())
    }

    #[test]
    fn t43_a_call_that_may_have_arrived_is_repeated_only_when_that_is_safe() {
        for (effect, goes_on) in [(Effect::Read, true), (Effect::Repeatable, true), (Effect::Once, false)] {
            let (mut attempts, now) = attempts(effect);
            assert_eq!(
                matches!(attempts.failed(&a(), silent(), now), Next::Elsewhere),
                goes_on,
                "{effect:?}"
            );
        }
    }

    #[test]
    fn t43_a_call_that_may_have_arrived_and_is_given_up_says_so() {
        for (effect, kind) in [
            (Effect::Read, ErrorKind::Unreachable),
            (Effect::Repeatable, ErrorKind::UnknownOutcome),
            (Effect::Once, ErrorKind::UnknownOutcome),
        ] {
            let (mut attempts, now) = attempts(effect);
            let late = now + Duration::from_secs(10);
            let Next::Stop(Failed::GaveUp(gave_up)) = attempts.failed(&a(), silent(), late) else { panic!() };
            assert_eq!(gave_up.kind(), kind);
        }
    }

    #[test]
    fn a_call_that_never_left_is_sent_again_even_if_it_may_run_only_once() {
        let (mut attempts, now) = attempts(Effect::Once);
        let refused = Trouble::NotSent("refused".to_owned());
        assert!(matches!(attempts.failed(&a(), refused, now), Next::Elsewhere));
        assert!(matches!(attempts.failed(&a(), Trouble::Answer(Failure::no_leader()), now), Next::Elsewhere));
        assert!(attempts.round_over(now).is_ok());
        assert!(attempts.asked().is_empty());
    }

    #[test]
    fn f105_what_was_tried_stands_in_the_message() {
        let (mut attempts, now) = attempts(Effect::Read);
        attempts.failed(&a(), Trouble::NotSent("Connection refused (os error 111)".to_owned()), now);
        let Err(Failed::GaveUp(gave_up)) = attempts.round_over(now + Duration::from_secs(10)) else {
            panic!()
        };
        assert_eq!(
            gave_up.to_string(),
            "no coordinator answered within 10s; nothing was done, check the endpoints and that they run \
             (http://a:1: Connection refused (os error 111))"
        );
    }

    #[test]
    fn f096_a_deadline_beyond_the_end_of_the_clock_is_one_that_never_comes() {
        let now = Instant::now();
        for within in [Duration::MAX, Duration::from_secs(u64::MAX / 2)] {
            let mut attempts = Attempts::new(Call::new(Route::Leader, Effect::Read).within(within), now);
            assert!(matches!(attempts.failed(&a(), silent(), now), Next::Elsewhere));
            assert!(attempts.round_over(now).is_ok());
        }
    }

    #[test]
    fn a_slow_cluster_is_given_more_time_after_each_silence() {
        let (mut attempts, now) = attempts(Effect::Read);
        assert_eq!(attempts.patience(now), Duration::from_secs(2));
        attempts.failed(&a(), silent(), now);
        assert_eq!(attempts.patience(now), Duration::from_secs(4));
        assert_eq!(attempts.patience(now + Duration::from_secs(9)), Duration::from_secs(1));
    }

    /// What they say is what to do, and "see that a majority runs" is not.
    #[test]
    fn when_all_that_answer_were_removed_that_is_the_error() {
        let removed = |certain| Trouble::Answer(Failure::no_member("ask another node", certain));
        let b = Endpoint::new("http://b:1").unwrap();
        let (mut attempts, now) = attempts(Effect::Read);
        attempts.failed(&a(), removed(true), now);
        attempts.failed(&b, Trouble::Answer(Failure::no_leader()), now);
        assert!(attempts.round_over(now).is_ok(), "the other may have a leader soon");
        attempts.failed(&a(), removed(true), now);
        attempts.failed(&b, removed(false), now);
        assert!(attempts.round_over(now).is_ok(), "the other may be a member still");
        let late = now + Duration::from_secs(10);
        attempts.failed(&a(), removed(true), now);
        attempts.failed(&b, removed(false), now);
        let Err(Failed::Answer(failure)) = attempts.round_over(late) else { panic!("it is late") };
        assert_eq!(failure.message(), "ask another node");
        let (mut attempts, now) = self::attempts(Effect::Once);
        attempts.failed(&a(), removed(true), now);
        assert!(matches!(attempts.round_over(now), Err(Failed::Answer(_))), "at once");
        // One was silent before: what they say is of themselves, and it may have done what was asked.
        for (effect, kind) in [(Effect::Read, None), (Effect::Repeatable, Some(ErrorKind::UnknownOutcome))] {
            let (mut attempts, now) = self::attempts(effect);
            attempts.failed(&a(), silent(), now);
            attempts.failed(&b, removed(true), now);
            assert!(attempts.round_over(now).is_ok());
            attempts.failed(&a(), removed(true), now);
            attempts.failed(&b, removed(true), now);
            let told = match attempts.round_over(now) {
                Err(Failed::GaveUp(gave_up)) => Some(gave_up.kind()),
                Err(Failed::Answer(_)) => None,
                Ok(_) => panic!("all have answered that they are no members"),
            };
            assert_eq!(told, kind, "{effect:?}");
        }
    }

    #[test]
    fn one_endpoint_that_is_no_coordinator_does_not_stop_the_others_but_all_of_them_do() {
        let foreign = || Trouble::Foreign(Failure::decode(&tonic::Status::unimplemented("")));
        let (mut attempts, now) = attempts(Effect::Read);
        let b = Endpoint::new("http://b:1").unwrap();
        attempts.failed(&a(), foreign(), now);
        attempts.failed(&b, Trouble::Answer(Failure::no_leader()), now);
        assert!(attempts.round_over(now).is_ok());
        attempts.failed(&a(), foreign(), now);
        attempts.failed(&b, foreign(), now);
        assert!(matches!(attempts.round_over(now), Err(Failed::Answer(_))));
    }
}
