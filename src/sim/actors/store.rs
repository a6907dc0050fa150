//! What owners write to: lists of numbers, behind the shipped fence or without one.
//!
//! Requests and answers travel as single messages, each late, lost or doubled by itself, so a write may arrive seconds after
//! its sender gave it up. A store does one request at a time; check and write are one step. It remembers which operations it
//! did, since doing one twice would be the store's fault and not the owner's.

use crate::history::{OpId, Recorder, What};
use crate::world::{Host, Ms, TrueTime};
use fastrand::Rng;
use ringfence::FencingToken;
use ringfence::fence::{FenceError, MemoryFence};
use ringfence::ids::Epoch;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// A store. A clone is the same store.
#[derive(Clone)]
pub(crate) struct Store {
    inner: Arc<Mutex<Inner>>,
    fenced: bool,
    forgetful: bool,
    time: TrueTime,
    recorder: Recorder,
}

struct Inner {
    random: Rng,
    fence: Option<MemoryFence>,
    lists: BTreeMap<String, Vec<u64>>,
    done: BTreeSet<OpId>,
    weather: BTreeMap<Host, Weather>,
    due: BTreeMap<(Ms, u64), Message>,
    number: u64,
    /// Refusals for which nothing in a world is a reason.
    wrong: Vec<String>,
}

/// What it is like to call the store from a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Weather {
    /// How long a message takes, in milliseconds.
    pub(crate) latency: RangeInclusive<u64>,
    /// Of a hundred messages so many are lost.
    pub(crate) loss: u8,
    /// Of a hundred requests so many arrive a second time, much later.
    pub(crate) twice: u8,
}

impl Default for Weather {
    fn default() -> Weather {
        Weather { latency: 1..=8, loss: 0, twice: 2 }
    }
}

/// How late a second copy of a request may be, in milliseconds.
const LATE_MS: u64 = 4_000;

/// What an owner asks.
#[derive(Clone)]
pub(crate) enum Request {
    /// Raise the fence to this token.
    Raise(FencingToken),
    /// What is in the list?
    Read(String),
    /// Add to the list under this token.
    Append {
        /// The number of the operation.
        op: OpId,
        /// The stamp.
        stamp: FencingToken,
        /// The list.
        key: String,
    },
}

/// What it is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It took effect.
    Done,
    /// What is in the list.
    List(Vec<u64>),
    /// The fence has seen this epoch.
    Fenced(Epoch),
    /// The fence refused for another reason.
    Refused,
}

enum Message {
    Request(Host, Request, Option<oneshot::Sender<Answer>>),
    Answer(oneshot::Sender<Answer>, Answer),
}

impl Store {
    /// An empty store; without the fence it believes whoever comes.
    pub(crate) fn new(random: Rng, time: &TrueTime, recorder: &Recorder, fenced: bool) -> Store {
        let inner = Inner {
            random,
            fence: None,
            lists: BTreeMap::new(),
            done: BTreeSet::new(),
            weather: BTreeMap::new(),
            due: BTreeMap::new(),
            number: 0,
            wrong: Vec::new(),
        };
        let (time, recorder) = (time.clone(), recorder.clone());
        Store { inner: Arc::new(Mutex::new(inner)), fenced, forgetful: false, time, recorder }
    }

    /// In a world whose logs may forget, an epoch may be granted twice: a fence that keeps the session refuses the second.
    pub(crate) fn among_logs_that_forget(self, forgetful: bool) -> Store {
        Store { forgetful, ..self }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the weather from a host.
    pub(crate) fn change(&self, from: Host, weather: Option<Weather>) {
        let mut inner = self.lock();
        match weather {
            Some(weather) => inner.weather.insert(from, weather),
            None => inner.weather.remove(&from),
        };
    }

    /// What the fence refused for another reason than a newer epoch, since it was asked last: in a world of one cluster
    /// and small epochs there is none.
    pub(crate) fn take_wrong(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().wrong)
    }

    /// Fair weather everywhere.
    pub(crate) fn heal(&self) {
        self.lock().weather.clear();
    }

    /// Asks. The answer may never come.
    pub(crate) fn ask(&self, from: Host, request: Request) -> oneshot::Receiver<Answer> {
        let (answer, answered) = oneshot::channel();
        let mut inner = self.lock();
        let now = self.time.now();
        let weather = inner.weather.get(&from).cloned().unwrap_or_default();
        if inner.random.u8(..100) < weather.twice {
            let late = inner.random.u64(1..LATE_MS);
            inner.at(now + late, Message::Request(from, request.clone(), None));
        }
        if inner.random.u8(..100) >= weather.loss {
            let latency = inner.random.u64(weather.latency).max(1);
            inner.at(now + latency, Message::Request(from, request, Some(answer)));
        }
        answered
    }

    /// Does what has arrived by now.
    pub(crate) fn run(&self, now: Ms) {
        let mut answers = Vec::new();
        {
            let mut inner = self.lock();
            while let Some(entry) = inner.due.first_entry() {
                if entry.key().0 > now {
                    break;
                }
                match entry.remove() {
                    Message::Answer(to, answer) => answers.push((to, answer)),
                    Message::Request(from, request, to) => {
                        let answer = self.serve(&mut inner, request);
                        let weather = inner.weather.get(&from).cloned().unwrap_or_default();
                        let lost = inner.random.u8(..100) < weather.loss;
                        if let Some(to) = to.filter(|_| !lost) {
                            let latency = inner.random.u64(weather.latency).max(1);
                            inner.at(now + latency, Message::Answer(to, answer));
                        }
                    }
                }
            }
        }
        // Outside the lock. Whoever asked may have gone.
        for (to, answer) in answers {
            let _ = to.send(answer);
        }
    }

    fn serve(&self, inner: &mut Inner, request: Request) -> Answer {
        let record = |what| self.recorder.record(self.time.us(), "store", what);
        match request {
            Request::Read(key) => Answer::List(inner.lists.get(&key).cloned().unwrap_or_default()),
            Request::Raise(token) => {
                if let Err(error) = self.fence(inner, &token).map_or(Ok(()), |fence| fence.raise(&token)) {
                    return self.refused(inner, &token, &error);
                }
                record(What::Raised { scope: token.scope().clone(), epoch: token.epoch() });
                Answer::Done
            }
            Request::Append { op, stamp, key } => {
                if inner.done.contains(&op) {
                    return Answer::Done;
                }
                let (scope, epoch) = (stamp.scope().clone(), stamp.epoch());
                let checked = self.fence(inner, &stamp).map_or(Ok(()), |fence| fence.guarded(&stamp, || ()));
                if let Err(error) = checked {
                    let answer = self.refused(inner, &stamp, &error);
                    if let Answer::Fenced(highest) = answer {
                        record(What::RefusedStale { op, scope, epoch, highest });
                    }
                    return answer;
                }
                inner.done.insert(op);
                inner.lists.entry(key.clone()).or_default().push(op);
                record(What::Applied { op, key, scope, epoch, value: op });
                Answer::Done
            }
        }
    }

    fn refused(&self, inner: &mut Inner, stamp: &FencingToken, error: &FenceError) -> Answer {
        match error {
            FenceError::Fenced(fenced) => return Answer::Fenced(fenced.highest()),
            FenceError::OtherSession { holder, .. } if self.forgetful => {
                let (scope, epoch) = (stamp.scope().clone(), stamp.epoch());
                let what = What::RefusedSession { scope, epoch, holder: *holder };
                self.recorder.record(self.time.us(), "store", what);
            }
            _ => inner.wrong.push(format!("the fence refused {}: {error}", stamp.short())),
        }
        Answer::Refused
    }

    fn fence<'a>(&self, inner: &'a mut Inner, token: &FencingToken) -> Option<&'a MemoryFence> {
        self.fenced.then(|| &*inner.fence.get_or_insert_with(|| MemoryFence::new(token.cluster().clone())))
    }
}

impl Inner {
    fn at(&mut self, at: Ms, message: Message) {
        self.number += 1;
        self.due.insert((at, self.number), message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::History;
    use ringfence::ids::{ClusterId, SessionId};

    /// Two sessions raise the fence of one epoch; what is written down of it, and what is wrong.
    fn two_sessions(forgetful: bool) -> (History, Vec<String>) {
        let (time, recorder) = (TrueTime::default(), Recorder::new());
        let store = Store::new(Rng::with_seed(1), &time, &recorder, true).among_logs_that_forget(forgetful);
        let raise = |session: u64| {
            let cluster: ClusterId = "c1".parse().unwrap();
            let token = FencingToken::new(cluster, "orders/0".parse().unwrap(), Epoch::new(4).unwrap());
            let token = token.held_by(SessionId::new(session).unwrap());
            store.serve(&mut store.lock(), Request::Raise(token))
        };
        assert_eq!((raise(1), raise(2)), (Answer::Done, Answer::Refused));
        (recorder.take(), store.take_wrong())
    }

    #[test]
    fn a_second_session_under_an_epoch_is_refused_and_is_wrong_where_no_log_forgets() {
        let (history, wrong) = two_sessions(true);
        assert!(wrong.is_empty(), "{wrong:?}");
        assert_eq!(history.events.len(), 2);
        assert!(matches!(history.events[1].what, What::RefusedSession { .. }), "{history}");
        let (history, wrong) = two_sessions(false);
        assert_eq!((history.events.len(), wrong.len()), (1, 1));
    }
}
