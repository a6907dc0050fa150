//! What is asked for, held and given back, lock by lock: a machine without a clock, a connection or a task.
//!
//! Of each lock the session has one request under way, one grant, or a grant that it is giving back, never two of them. Whoever
//! wants the same lock in this process waits here, in the order in which they asked, as if each were a process of its own;
//! those who share it alike have the session's grant together. So a number that was asked under, or a grant, is never mixed up
//! with the next one:
//!
//! - A grant counts when the lessee believes it, and one of the numbers of the request that is under way was asked under. Any
//!   other is given back at once: whoever asked has gone.
//! - The next request for a lock is made when the coordinator has answered that the last one is over.
//! - After the session nothing is asked again: whoever waits is told.

use super::super::super::wire::LockKey;
use crate::error::{Error, ErrorKind};
use crate::fence::FencingToken;
use crate::lock::desk::{Ask, LockDesk, Refusal, Standing, Stands, closed};
use crate::lock::hold::{Hold, Locked};
use crate::lock::{Busy, Holder};
use crate::ownership::{SessionLease, Tenure, Why};
use ringfence_core::ids::{ClusterId, Epoch, LockName, Scope, SessionId, WorkerId};
use ringfence_core::state::{LockMode, LockWish, Takeover};
use ringfence_core::time::Instant;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// How many numbers may be without an answer: the coordinator keeps as many answers.
const MAX_UNANSWERED: u64 = 64;
/// A request that was answered, and of which nothing is heard although the session's picture has changed, is made again after a
/// TTL, and then after twice as long each time up to this: the lock may have been granted and taken again in between.
const LONGEST_DOUBT: Duration = Duration::from_secs(600);

/// What the table wants done.
#[derive(Debug)]
pub(super) enum Effect {
    /// Ask the coordinator.
    Acquire { key: LockKey, settled_below: u64, wish: LockWish, waits: bool, standing: Arc<Standing> },
    /// Do not ask it any longer.
    Stop { number: u64 },
    /// The lessee is to believe in it no more.
    GiveBack(LockKey, Epoch),
    /// Tell the coordinator.
    Return(LockKey, Return),
    /// The coordinator knows.
    Forget(LockKey),
}

/// How something is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::worker) enum Return {
    /// What was granted to one alone, by its exact epoch.
    Release(Epoch),
    /// Whatever has become of the request. The epoch of a shared lock names no grant.
    Abandon,
}

/// What the coordinator answered to a request.
#[derive(Debug)]
pub(super) enum Answer {
    /// It is a hint: the lessee's picture says when it counts.
    Granted,
    Queued(u32),
    Held(Option<Holder>),
}

/// Who the grants are for.
pub(super) struct Grantee {
    pub(super) cluster: ClusterId,
    pub(super) session: SessionId,
    pub(super) worker: WorkerId,
    pub(super) address: String,
    pub(super) ttl: Duration,
    pub(super) lease: Arc<SessionLease>,
    pub(super) desk: LockDesk,
}

/// See the module.
pub(super) struct Table {
    grantee: Grantee,
    locks: BTreeMap<LockName, Entry>,
    next: u64,
    unanswered: BTreeSet<u64>,
    /// Locks whose request waits for a number.
    held_up: VecDeque<LockName>,
    effects: VecDeque<Effect>,
    /// Nothing more is taken.
    closed: bool,
}

#[derive(Default)]
struct Entry {
    state: State,
    /// Who wants it in this process, the next one first.
    queue: VecDeque<Ask>,
    /// What was given back, by its number, until the coordinator knows.
    returning: BTreeMap<u64, Returning>,
    /// What was taken while guards of it were out there, by its number: how many, and how it is given back with the last one.
    taken: BTreeMap<u64, (usize, Return)>,
}

#[derive(Default)]
enum State {
    #[default]
    Idle,
    Asking(Request),
    /// The lessee believes in it, and there may be no lease yet under which it can be had.
    Granted(Granted),
    Held(Held),
}

/// A request that is under way, for the first in the queue.
struct Request {
    wish: LockWish,
    waits: bool,
    /// It is the same request under each of them. None while it waits for a number.
    numbers: Vec<u64>,
    standing: Arc<Standing>,
    asked: Instant,
    answered: bool,
    /// The session's picture has changed since it was answered.
    in_doubt: bool,
    doubt: Duration,
}

struct Granted {
    number: u64,
    epoch: Epoch,
    wish: LockWish,
    by_fence: bool,
}

struct Held {
    number: u64,
    wish: LockWish,
    tenure: Arc<Tenure<Locked>>,
    holds: usize,
}

struct Returning {
    how: Return,
    answers: Vec<oneshot::Sender<bool>>,
}

impl Table {
    pub(super) fn new(grantee: Grantee) -> Table {
        Table {
            grantee,
            locks: BTreeMap::new(),
            next: 1,
            unanswered: BTreeSet::new(),
            held_up: VecDeque::new(),
            effects: VecDeque::new(),
            closed: false,
        }
    }

    /// What is to be done, in order.
    pub(super) fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Nothing is asked for, held or given back.
    pub(super) fn is_empty(&self) -> bool {
        self.locks.is_empty()
    }

    /// How many locks are held, or given back and the coordinator does not know.
    pub(super) fn unreleased(&self) -> usize {
        let unreleased = |entry: &&Entry| {
            matches!(entry.state, State::Held(_) | State::Granted(_)) || !entry.returning.is_empty()
        };
        self.locks.values().filter(unreleased).count()
    }

    /// Somebody wants a lock.
    pub(super) fn ask(&mut self, ask: Ask, now: Instant) {
        if self.closed {
            drop(ask.answer.send(Err(Refusal::Error(closed()))));
            return;
        }
        let name = ask.lock.clone();
        let entry = self.locks.entry(name.clone()).or_default();
        let held = match &mut entry.state {
            // Together with those who have it, unless somebody waits for it alone.
            State::Held(held) if shares(held.wish, ask.wish) && entry.queue.is_empty() => {
                held.holds += usize::from(hand_out(&held.tenure, &self.grantee.desk, ask));
                return;
            }
            State::Held(held) => Some(self.grantee.holder(held.tenure.token().epoch())),
            State::Idle | State::Asking(_) | State::Granted(_) => None,
        };
        let free = matches!(entry.state, State::Idle) && entry.queue.is_empty();
        if !free && !ask.waits {
            let busy = Busy { lock: ask.lock, holder: held, behind: None, ours: true };
            drop(ask.answer.send(Err(Refusal::Busy(busy))));
            return;
        }
        if !free {
            ask.standing.set(Stands::BehindOurs(held));
        }
        entry.queue.push_back(ask);
        self.step(&name, now);
    }

    /// Somebody does not want a lock any longer. When it was granted to them meanwhile, their guard gives it back.
    pub(super) fn cancel(&mut self, name: &LockName, ask: u64, now: Instant) {
        let Some(entry) = self.locks.get_mut(name) else { return };
        let Some(at) = entry.queue.iter().position(|waiting| waiting.id == ask) else { return };
        entry.queue.remove(at);
        let next = entry.queue.front();
        match &mut entry.state {
            State::Asking(request) => {
                match next.filter(|next| shares(request.wish, next.wish) && next.waits == request.waits) {
                    Some(next) => request.standing = Arc::clone(&next.standing),
                    None if at == 0 => self.abandon(name),
                    None => {}
                }
            }
            State::Granted(granted)
                if at == 0 && next.is_none_or(|next| !shares(granted.wish, next.wish)) =>
            {
                self.give_back(name, None);
            }
            State::Idle | State::Granted(_) | State::Held(_) => {}
        }
        self.step(name, now);
    }

    /// A guard is given back.
    pub(super) fn release(
        &mut self,
        name: &LockName,
        session: SessionId,
        number: u64,
        answer: Option<oneshot::Sender<bool>>,
        now: Instant,
    ) {
        let ours = self.grantee.session == session;
        if self.guard_of_taken(name, session, number) {
            if let Some(answer) = answer {
                let _ = answer.send(true);
            }
            return;
        }
        let entry = self.locks.get_mut(name).filter(|_| ours);
        match entry.map(|entry| (&mut entry.state, &mut entry.returning)) {
            Some((State::Held(held), _)) if held.number == number => {
                held.holds = held.holds.saturating_sub(1);
                if held.holds > 0 {
                    if let Some(answer) = answer {
                        let _ = answer.send(true);
                    }
                    return;
                }
                self.give_back(name, answer);
            }
            Some((_, returning)) if returning.contains_key(&number) => {
                if let Some(returning) = returning.get_mut(&number) {
                    returning.answers.extend(answer);
                }
            }
            // Of a session that is over it goes with the session.
            _ => {
                if let Some(answer) = answer {
                    let _ = answer.send(ours);
                }
            }
        }
        self.step(name, now);
    }

    /// The lessee believes in a grant. It is handed out when it is valid.
    pub(super) fn granted(&mut self, key: LockKey, epoch: Epoch, takeover: Takeover, now: Instant) {
        let LockKey { lock: name, number } = &key;
        let entry = self.locks.entry(name.clone()).or_default();
        let request = match &mut entry.state {
            State::Asking(request) if request.numbers.contains(number) => request,
            other => {
                tracing::info!(lock = %name, epoch = epoch.get(), "granted to nobody who wants it any more; it is given back");
                // Whoever asks for it now may have been given the place of this one in the coordinator's queue.
                if let State::Asking(request) = other {
                    request.doubt_it();
                }
                self.effects.push_back(Effect::GiveBack(key.clone(), epoch));
                // How it was asked for is not known any more; its number is enough.
                return self.return_it(key, Return::Abandon, None);
            }
        };
        for number in std::mem::take(&mut request.numbers) {
            self.unanswered.remove(&number);
            self.effects.push_back(Effect::Stop { number });
        }
        let by_fence = takeover == Takeover::Fence;
        entry.state = State::Granted(Granted { number: *number, epoch, wish: request.wish, by_fence });
        self.number_held_up(now);
    }

    /// What was granted, and not handed out yet.
    pub(super) fn fresh(&self) -> Vec<(LockKey, Epoch)> {
        let fresh = |(name, entry): (&LockName, &Entry)| match &entry.state {
            State::Granted(granted) => {
                Some((LockKey { lock: name.clone(), number: granted.number }, granted.epoch))
            }
            State::Idle | State::Asking(_) | State::Held(_) => None,
        };
        self.locks.iter().filter_map(fresh).collect()
    }

    /// There is a lease for it: whoever asked has it.
    pub(super) fn hand_out(&mut self, key: &LockKey, now: Instant) {
        let Some(entry) = self.locks.get_mut(&key.lock) else { return };
        let State::Granted(Granted { number, epoch, wish, by_fence }) = entry.state else { return };
        let (name, session) = (&key.lock, self.grantee.session);
        let shared = wish.mode() == LockMode::Shared;
        let of = Locked { lock: name.clone(), number, shared, since: now };
        let token = FencingToken::new(self.grantee.cluster.clone(), Scope::Lock(name.clone()), epoch);
        tracing::debug!(token = %token.short(), %session, "granted");
        let lease = Arc::clone(&self.grantee.lease);
        let tenure = Arc::new(Tenure::of(token, session, by_fence, lease, of));
        let mut holds = 0;
        let more = |next: &Ask, holds| next.wish == wish && (holds == 0 || shared);
        while entry.queue.front().is_some_and(|next| more(next, holds)) {
            let Some(next) = entry.queue.pop_front() else { break };
            holds += usize::from(hand_out(&tenure, &self.grantee.desk, next));
        }
        entry.state = State::Held(Held { number, wish, tenure, holds });
        if holds == 0 {
            self.give_back(name, None);
        }
        self.step(name, now);
    }

    /// A guard of what was taken has gone; false when there is none such. With the last one the coordinator is told.
    fn guard_of_taken(&mut self, name: &LockName, session: SessionId, number: u64) -> bool {
        let entry = self.locks.get_mut(name).filter(|_| self.grantee.session == session);
        let Some(entry) = entry else { return false };
        let Some((guards, how)) = entry.taken.get_mut(&number) else { return false };
        *guards = guards.saturating_sub(1);
        if *guards == 0 {
            let how = *how;
            entry.taken.remove(&number);
            self.return_it(LockKey { lock: name.clone(), number }, how, None);
        }
        true
    }

    /// The lessee believes in it no more. The coordinator is told that this is known here, so that nobody waits for the lease; of
    /// what was taken while there are guards only with the last of them, for what they guard may still be going on.
    pub(super) fn lost(&mut self, key: &LockKey, epoch: Epoch, why: Why, now: Instant) {
        let Some(entry) = self.locks.get_mut(&key.lock) else { return };
        let (number, wish) = match &entry.state {
            State::Held(held) => (held.number, held.wish),
            State::Granted(granted) => (granted.number, granted.wish),
            State::Idle | State::Asking(_) => return,
        };
        if number != key.number {
            return;
        }
        let mut guards = 0;
        // When nobody had it yet, whoever waits for it asks anew.
        if let State::Held(held) = std::mem::take(&mut entry.state) {
            guards = held.holds;
            held.tenure.end(why);
            let token = held.tenure.token().short();
            match why {
                Why::Taken => tracing::warn!(%token, "lost before it was given back"),
                _ => tracing::debug!(%token, ?why, "lost"),
            }
        }
        if guards > 0 && why == Why::Taken {
            entry.taken.insert(number, (guards, how(wish, epoch)));
        } else {
            self.return_it(key.clone(), how(wish, epoch), None);
        }
        self.step(&key.lock, now);
    }

    /// The coordinator has answered a request.
    pub(super) fn answered(&mut self, key: &LockKey, result: Result<Answer, Error>, now: Instant) {
        self.unanswered.remove(&key.number);
        self.number_held_up(now);
        let Some(entry) = self.locks.get_mut(&key.lock) else { return };
        let State::Asking(request) = &mut entry.state else { return };
        if !request.numbers.contains(&key.number) {
            return;
        }
        let refusal = match result {
            Ok(Answer::Granted) => {
                request.answered = true;
                request.standing.set(Stands::Troubled(not_confirmed(&key.lock)));
                return;
            }
            Ok(Answer::Queued(behind)) => {
                request.answered = true;
                request.standing.set(Stands::Queued(behind));
                return;
            }
            Ok(Answer::Held(holder)) => {
                Refusal::Busy(Busy { lock: key.lock.clone(), holder, behind: None, ours: false })
            }
            // What was asked under that number may stand, so it is still one of the request's.
            Err(error) if error.kind() == ErrorKind::TooOld => return request.doubt_it(),
            Err(error) => Refusal::Error(error),
        };
        // Nothing was done under this number, and something may stand under another.
        request.numbers.retain(|number| *number != key.number);
        if request.numbers.is_empty() {
            entry.state = State::Idle;
        } else {
            self.abandon(&key.lock);
        }
        if let Some(first) = self.locks.get_mut(&key.lock).and_then(|entry| entry.queue.pop_front()) {
            drop(first.answer.send(Err(refusal)));
        }
        self.step(&key.lock, now);
    }

    /// The coordinator knows that something was given back, or refuses to.
    pub(super) fn returned(&mut self, key: &LockKey, known: bool, now: Instant) {
        let Some(entry) = self.locks.get_mut(&key.lock) else { return };
        for answer in entry.returning.remove(&key.number).into_iter().flat_map(|returning| returning.answers)
        {
            let _ = answer.send(known);
        }
        self.effects.push_back(Effect::Forget(key.clone()));
        self.step(&key.lock, now);
    }

    /// The session's picture has changed.
    pub(super) fn picture_changed(&mut self) {
        for entry in self.locks.values_mut() {
            if let State::Asking(request) = &mut entry.state {
                // Also when it is not answered yet: the grant that its answer tells of may be over already.
                request.in_doubt = true;
            }
        }
    }

    /// Asks again what may have been granted and taken again without being seen.
    pub(super) fn look_again(&mut self, now: Instant) {
        let doubtful = |(name, entry): (&LockName, &Entry)| match &entry.state {
            State::Asking(request)
                if request.in_doubt && request.answered && now.since(request.asked) >= request.doubt =>
            {
                entry.returning.is_empty().then(|| name.clone())
            }
            _ => None,
        };
        let again: Vec<LockName> = self.locks.iter().filter_map(doubtful).collect();
        again.iter().for_each(|name| self.ask_again(name, now));
        // Numbers become free by giving up, too.
        self.number_held_up(now);
    }

    /// Gives everything back, and takes nothing more.
    pub(super) fn close(&mut self, now: Instant) {
        if std::mem::replace(&mut self.closed, true) {
            return;
        }
        self.refuse_all(|| Refusal::Error(closed()));
        for name in self.names() {
            if let Some(State::Held(held)) = self.locks.get(&name).map(|entry| &entry.state) {
                held.tenure.end(Why::TaskEnded);
                self.give_back(&name, None);
            }
            // Who closes waits for nobody's guard.
            let taken = self.locks.get_mut(&name).map(|entry| std::mem::take(&mut entry.taken));
            for (number, (_, how)) in taken.into_iter().flatten() {
                self.return_it(LockKey { lock: name.clone(), number }, how, None);
            }
            self.step(&name, now);
        }
    }

    /// Nobody renews any more. What is held is held until the lease runs out, or is given back.
    pub(super) fn let_go(&mut self, now: Instant) {
        self.closed = true;
        self.refuse_all(|| Refusal::Error(closed()));
        self.names().iter().for_each(|name| self.step(name, now));
    }

    /// The session is over: whoever waits is told. What was held or given back, and the coordinator may not know of it.
    pub(super) fn end(&mut self, confirmed: bool) -> Vec<(LockKey, Return)> {
        self.closed = true;
        let mut owed = Vec::new();
        for (lock, entry) in std::mem::take(&mut self.locks) {
            for ask in entry.queue {
                drop(ask.answer.send(Err(Refusal::Lost { confirmed })));
            }
            let returning = entry.returning.into_iter().map(|(number, of)| (number, of.how));
            let taken = entry.taken.into_iter().map(|(number, (_, how))| (number, how));
            let all = returning.chain(taken);
            owed.extend(all.map(|(number, how)| (LockKey { lock: lock.clone(), number }, how)));
        }
        self.effects.clear();
        owed
    }

    fn names(&self) -> Vec<LockName> {
        self.locks.keys().cloned().collect()
    }

    /// Nobody waits any longer.
    fn refuse_all(&mut self, why: impl Fn() -> Refusal) {
        for name in self.names() {
            let Some(entry) = self.locks.get_mut(&name) else { continue };
            for ask in entry.queue.drain(..) {
                drop(ask.answer.send(Err(why())));
            }
            match entry.state {
                State::Asking(_) => self.abandon(&name),
                State::Granted(_) => self.give_back(&name, None),
                State::Idle | State::Held(_) => {}
            }
        }
    }

    /// Makes the next request for a lock, when there is one to make; forgets the lock when there is nothing to do.
    fn step(&mut self, name: &LockName, now: Instant) {
        let Some(entry) = self.locks.get_mut(name) else { return };
        if !matches!(entry.state, State::Idle) || !entry.returning.is_empty() {
            return;
        }
        let Some(first) = entry.queue.front() else {
            if entry.taken.is_empty() {
                self.locks.remove(name);
            }
            return;
        };
        first.standing.set(Stands::Unanswered);
        entry.state = State::Asking(Request {
            wish: first.wish,
            waits: first.waits,
            numbers: Vec::new(),
            standing: Arc::clone(&first.standing),
            asked: now,
            answered: false,
            in_doubt: false,
            doubt: self.grantee.ttl,
        });
        self.ask_under_a_number(name, now);
    }

    fn ask_again(&mut self, name: &LockName, now: Instant) {
        if !self.has_a_number() {
            return;
        }
        if let Some(State::Asking(request)) = self.locks.get_mut(name).map(|entry| &mut entry.state) {
            tracing::debug!(lock = %name, "asked for again: it may have been granted and taken again unseen");
            request.in_doubt = false;
            request.doubt = request.doubt.max(self.grantee.ttl / 2).saturating_mul(2).min(LONGEST_DOUBT);
            self.ask_under_a_number(name, now);
        }
    }

    /// Whether there is a number left to ask under.
    fn has_a_number(&self) -> bool {
        self.unanswered.first().is_none_or(|first| self.next - first < MAX_UNANSWERED)
    }

    /// Asks under the next number, or waits for one.
    fn ask_under_a_number(&mut self, name: &LockName, now: Instant) {
        if !self.has_a_number() {
            if !self.held_up.contains(name) {
                self.held_up.push_back(name.clone());
            }
            return;
        }
        let Some(State::Asking(request)) = self.locks.get_mut(name).map(|entry| &mut entry.state) else {
            return;
        };
        let number = self.next;
        self.next += 1;
        self.unanswered.insert(number);
        request.numbers.push(number);
        request.asked = now;
        self.effects.push_back(Effect::Acquire {
            key: LockKey { lock: name.clone(), number },
            settled_below: self.unanswered.first().copied().unwrap_or(number),
            wish: request.wish,
            waits: request.waits,
            standing: Arc::clone(&request.standing),
        });
    }

    fn number_held_up(&mut self, now: Instant) {
        while self.has_a_number() {
            let Some(name) = self.held_up.pop_front() else { break };
            let state = self.locks.get(&name).map(|entry| &entry.state);
            if matches!(state, Some(State::Asking(request)) if request.numbers.is_empty()) {
                self.ask_under_a_number(&name, now);
            }
        }
    }

    /// Ends the request that is under way.
    fn abandon(&mut self, name: &LockName) {
        let Some(entry) = self.locks.get_mut(name) else { return };
        let State::Asking(request) = std::mem::take(&mut entry.state) else { return };
        for number in request.numbers {
            self.unanswered.remove(&number);
            self.effects.push_back(Effect::Stop { number });
            self.return_it(LockKey { lock: name.clone(), number }, Return::Abandon, None);
        }
    }

    /// Nobody has it any more.
    fn give_back(&mut self, name: &LockName, answer: Option<oneshot::Sender<bool>>) {
        let Some(entry) = self.locks.get_mut(name) else { return };
        let (number, epoch, wish) = match std::mem::take(&mut entry.state) {
            State::Held(held) => {
                // In this order: when the coordinator hears of it, nobody here can stamp with it any more.
                held.tenure.end(Why::TaskEnded);
                (held.number, held.tenure.token().epoch(), held.wish)
            }
            State::Granted(granted) => (granted.number, granted.epoch, granted.wish),
            other => {
                entry.state = other;
                return;
            }
        };
        let key = LockKey { lock: name.clone(), number };
        self.effects.push_back(Effect::GiveBack(key.clone(), epoch));
        self.return_it(key, how(wish, epoch), answer);
    }

    fn return_it(&mut self, key: LockKey, how: Return, answer: Option<oneshot::Sender<bool>>) {
        let entry = self.locks.entry(key.lock.clone()).or_default();
        let returning = entry.returning.entry(key.number);
        let returning = returning.or_insert_with(|| Returning { how, answers: Vec::new() });
        returning.answers.extend(answer);
        self.effects.push_back(Effect::Return(key, how));
    }
}

impl Request {
    /// What was answered to it may not stand any more: it is made again as soon as it can be.
    fn doubt_it(&mut self) {
        (self.in_doubt, self.answered) = (true, true);
        self.doubt = Duration::ZERO;
    }
}

impl Grantee {
    fn holder(&self, epoch: Epoch) -> Holder {
        Holder { worker: self.worker.clone(), session: self.session, address: self.address.clone(), epoch }
    }
}

fn how(wish: LockWish, epoch: Epoch) -> Return {
    match wish.mode() {
        LockMode::Exclusive => Return::Release(epoch),
        LockMode::Shared => Return::Abandon,
    }
}

/// Two that want the same have one grant.
fn shares(one: LockWish, other: LockWish) -> bool {
    one == other && one.mode() == LockMode::Shared
}

/// True when there was somebody to take it.
fn hand_out(tenure: &Arc<Tenure<Locked>>, desk: &LockDesk, ask: Ask) -> bool {
    match ask.answer.send(Ok(Hold::new(Arc::clone(tenure), desk.clone()))) {
        Ok(()) => true,
        Err(unwanted) => {
            if let Ok(hold) = unwanted {
                hold.forget();
            }
            false
        }
    }
}

fn not_confirmed(lock: &LockName) -> Error {
    let message =
        format!("the coordinator has granted lock {lock}, and the session's stream has not confirmed it");
    Error::own(ErrorKind::Unreachable, message)
}
