//! The steward of a child: a thread that starts it, tells its minder until when it may live, asks it to end and kills it.
//!
//! A thread and not a task: a busy executor must not keep a child alive. After a pause of the whole process, the first thing it does
//! is to look at the clock.

use super::clock;
use super::course::{Claim, Course, End, News, Order, Policy};
use super::life::{Event, Life, Recipe, moment};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

/// How long to wait at most before what a child works under is looked at again.
const LOOK_AGAIN: Duration = Duration::from_millis(250);
/// How often to look whether the rest of a group, whose leader has ended, lives.
const GONE_AGAIN: Duration = Duration::from_millis(10);
/// How long to wait at least.
const LEAST_WAIT: Duration = Duration::from_millis(5);

/// What a child belongs to.
pub(super) trait Charge {
    /// What the child works under, now.
    fn claim(&self) -> Claim;
    /// A life has begun.
    fn started(&mut self, _: &Life, _: &Sender<Event>) {}
    /// The child has said that it is ready.
    fn ready(&mut self);
    /// The leader of a life has ended: its exit code, or 128 and the number of the signal.
    fn ended(&mut self, _: Option<u8>) {}
    /// Nothing of a life lives any more.
    fn gone(&mut self) {}
    /// For people: `orders/17`.
    fn name(&self) -> &str;
}

/// Drives a child until it is over. Nothing of it lives then.
pub(super) fn drive(
    recipe: &Recipe,
    policy: Policy,
    charge: &mut impl Charge,
    events: &Sender<Event>,
    news: &Receiver<Event>,
) -> End {
    let mut course = Course::new(policy, fastrand::u64(..), clock::now());
    let mut life: Option<Life> = None;
    // The leader of the group has ended.
    let mut headless = false;
    loop {
        let now = clock::now();
        if headless && life.as_ref().is_some_and(Life::is_gone) {
            life = None;
            headless = false;
            charge.gone();
            course.note(now, News::Gone);
        }
        // The clock before the claim: what is left counts from there at the latest.
        let claim = charge.claim();
        // A little later than this thread would, and in time all the same.
        let deadline = now.saturating_add(claim.left).saturating_sub(policy.kill_margin / 2);
        match course.next(now, claim) {
            Some(Order::Start) => {
                let until = (!recipe.forward).then_some(deadline);
                match Life::start(recipe, until, events) {
                    Ok(begun) => {
                        tracing::debug!(child = charge.name(), group = begun.group(), "a child was started");
                        charge.started(&begun, events);
                        if !recipe.wait_ready && !recipe.forward {
                            charge.ready();
                        }
                        life = Some(begun);
                    }
                    Err(error) => {
                        tracing::error!(child = charge.name(), %error, "a child could not be started");
                        course.note(now, News::Ended(format!("could not be started: {error}")));
                        course.note(now, News::Gone);
                    }
                }
                continue;
            }
            Some(Order::Terminate) => {
                tracing::debug!(child = charge.name(), "a child is asked to end");
                life.iter().for_each(Life::terminate);
                continue;
            }
            Some(Order::Kill) => {
                if !headless {
                    tracing::warn!(child = charge.name(), "a child is killed");
                }
                life.iter().for_each(Life::kill);
                continue;
            }
            Some(Order::End(end)) => return end,
            None => {}
        }
        if let Some(life) = life.as_ref().filter(|_| !recipe.forward && !headless) {
            life.live_until(deadline);
        }
        let quiet = course.quiet_for(now, claim).unwrap_or(LOOK_AGAIN);
        let quiet = quiet.min(claim.left / 8).min(LOOK_AGAIN);
        let quiet = if headless { GONE_AGAIN } else { quiet.max(LEAST_WAIT) };
        match news.recv_timeout(quiet) {
            Ok(Event::Ended(ended)) => {
                headless = true;
                let how = ended.text;
                charge.ended(ended.code);
                let ran_into = course.restarts();
                tracing::info!(child = charge.name(), how, restarts = ran_into, "a child has ended");
                course.note(clock::now(), News::Ended(how));
            }
            Ok(Event::Ready) => charge.ready(),
            Ok(Event::Deaf) => {
                tracing::error!(
                    child = charge.name(),
                    "a child does not read what it is told, and is killed"
                );
                life.iter().for_each(Life::kill);
            }
            Ok(Event::Look) | Err(RecvTimeoutError::Timeout) => {}
            // This thread holds a sender itself.
            Err(RecvTimeoutError::Disconnected) => {}
        }
    }
}

/// When all are to have ended, once that is asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StopBy(pub(super) Option<Duration>);

impl StopBy {
    /// So long from now.
    pub(super) fn within(limit: Duration) -> StopBy {
        StopBy(Some(moment(limit)))
    }

    /// What is left; `None` when nobody has asked.
    pub(super) fn left(self) -> Option<Duration> {
        self.0.map(|by| by.saturating_sub(clock::now()))
    }
}
