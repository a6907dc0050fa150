//! Where the handles of locks ask, and what they ask: the session's own thread answers.

use super::hold::Hold;
use super::{Busy, Holder};
use crate::clock::Clock;
use crate::error::{Error, ErrorKind};
use crate::fork::Birth;
use ringfence_core::ids::{LockName, SessionId};
use ringfence_core::state::LockWish;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

/// What the session's thread is told.
pub(crate) enum Command {
    /// Somebody wants a lock.
    Ask(Ask),
    /// And does not want it any longer.
    Cancel { lock: LockName, ask: u64 },
    /// A guard is given back. The answer says whether the coordinator knows.
    Release { lock: LockName, session: SessionId, number: u64, answer: Option<oneshot::Sender<bool>> },
}

/// One wish for a lock, by one caller.
pub(crate) struct Ask {
    /// Of all that this process asks.
    pub(crate) id: u64,
    pub(crate) lock: LockName,
    pub(crate) wish: LockWish,
    /// Waits until the lock is free; otherwise it is answered at once.
    pub(crate) waits: bool,
    pub(crate) answer: oneshot::Sender<Result<Hold, Refusal>>,
    pub(crate) standing: Arc<Standing>,
}

/// Why a lock was not had.
#[derive(Debug)]
pub(crate) enum Refusal {
    Busy(Busy),
    /// The session was lost while it was waited for. Whether the coordinator has said so, or the lease ran out here.
    Lost {
        confirmed: bool,
    },
    /// Nobody answered for as long as it was waited.
    Unanswered(Error),
    Error(Error),
}

impl Refusal {
    /// It failed because no coordinator was there.
    pub(crate) fn is_outage(&self) -> bool {
        match self {
            Refusal::Lost { confirmed } => !confirmed,
            Refusal::Unanswered(_) => true,
            Refusal::Error(error) => error.is_retryable(),
            Refusal::Busy(_) => false,
        }
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Error {
        match refusal {
            Refusal::Busy(busy) => busy.into(),
            Refusal::Lost { .. } => Error::own(
                ErrorKind::SessionEnded,
                "the session was lost while the lock was waited for, and its place in the queue with it; others may have held \
                 the lock meanwhile, so nothing was asked again: ask anew when you still want it",
            ),
            Refusal::Unanswered(error) | Refusal::Error(error) => error,
        }
    }
}

/// How far a wish has come, for whoever stops waiting.
#[derive(Debug, Default)]
pub(crate) struct Standing(Mutex<Stands>);

/// See [`Standing`].
#[derive(Clone, Debug, Default)]
pub(crate) enum Stands {
    /// The coordinator was not asked yet, or has not answered; the last trouble.
    #[default]
    Unanswered,
    Troubled(Error),
    /// Somebody in this process is before it.
    BehindOurs(Option<Holder>),
    /// It waits at the coordinator, behind so many others.
    Queued(u32),
}

impl Standing {
    pub(crate) fn set(&self, now: Stands) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = now;
    }

    fn get(&self) -> Stands {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What it means to stop waiting now.
    fn given_up(&self, lock: &LockName, within: Duration) -> Refusal {
        let unanswered = |why: String| {
            let message = format!("lock {lock} could not be had within {within:?}: {why}");
            Refusal::Unanswered(Error::own(ErrorKind::Unreachable, message))
        };
        match self.get() {
            Stands::Unanswered => unanswered(
                "no coordinator answered; check the endpoints and that they run, or wait longer".to_owned(),
            ),
            Stands::Troubled(error) => unanswered(error.to_string()),
            Stands::BehindOurs(holder) => {
                Refusal::Busy(Busy { lock: lock.clone(), holder, behind: None, ours: true })
            }
            Stands::Queued(behind) => {
                Refusal::Busy(Busy { lock: lock.clone(), holder: None, behind: Some(behind), ours: false })
            }
        }
    }
}

/// A handle to the session's thread.
#[derive(Clone, Debug)]
pub(crate) struct LockDesk {
    /// Each command is a caller's that waits for it, or a guard's end: what waits here is bounded by them.
    commands: mpsc::UnboundedSender<Command>,
    birth: Birth,
    pub(crate) clock: Clock,
    /// Where callbacks run.
    pub(crate) runtime: Handle,
}

impl LockDesk {
    pub(crate) fn new(clock: Clock, runtime: Handle) -> (LockDesk, mpsc::UnboundedReceiver<Command>) {
        let (commands, receiver) = mpsc::unbounded_channel();
        (LockDesk { commands, birth: Birth::here(), clock, runtime }, receiver)
    }

    /// This is a child of the process that joined: the thread of the session is not here.
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.birth.is_elsewhere()
    }

    /// When the thread has gone, there is nobody to be told; what was held has ended or ends with its lease.
    pub(crate) fn tell(&self, command: Command) {
        if !self.is_elsewhere() {
            drop(self.commands.send(command));
        }
    }

    /// Asks for a lock, and waits for it as long as that. Dropping the future abandons the wish.
    pub(crate) async fn acquire(
        &self,
        lock: LockName,
        wish: LockWish,
        waits: bool,
        within: Option<Duration>,
    ) -> Result<Hold, Refusal> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        if self.is_elsewhere() {
            let message = "this process is a fork of the one that joined, and has no session: connect anew in it, after exec";
            return Err(Refusal::Error(Error::own(ErrorKind::Refused, message)));
        }
        let (id, standing) = (NEXT.fetch_add(1, Ordering::Relaxed), Arc::<Standing>::default());
        let (answer, mut answered) = oneshot::channel();
        let ask = Ask { id, lock: lock.clone(), wish, waits, answer, standing: Arc::clone(&standing) };
        self.tell(Command::Ask(ask));
        let mut waiting = Waiting { desk: self, lock, ask: id, over: false };
        let result = match within {
            None => (&mut answered).await,
            Some(within) => match tokio::time::timeout(within, &mut answered).await {
                Ok(result) => result,
                Err(_) => {
                    // From here on nothing can be granted to it. What was granted up to now is had.
                    answered.close();
                    match answered.try_recv() {
                        Ok(result) => Ok(result),
                        Err(_) => return Err(standing.given_up(&waiting.lock, within)),
                    }
                }
            },
        };
        waiting.over = true;
        result.unwrap_or_else(|_| Err(Refusal::Error(closed())))
    }
}

/// The session is not there any more, or not for this.
pub(crate) fn closed() -> Error {
    let message = "the session was closed or has ended for good, and takes no locks any more; connect anew";
    Error::own(ErrorKind::SessionEnded, message)
}

/// Somebody waits for a lock.
struct Waiting<'a> {
    desk: &'a LockDesk,
    lock: LockName,
    ask: u64,
    over: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.over {
            self.desk.tell(Command::Cancel { lock: self.lock.clone(), ask: self.ask });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fence::FencingToken;
    use crate::lock::hold::Locked;
    use crate::ownership::{SessionLease, Tenure};
    use ringfence_core::ids::{ClusterId, Epoch, Scope};
    use ringfence_core::state::LockMode;

    const WISH: LockWish = LockWish::new(LockMode::Exclusive);

    fn name() -> LockName {
        LockName::new("nightly").unwrap()
    }

    /// What the session's thread hands out.
    fn hold(desk: &LockDesk, number: u64) -> Hold {
        let lease = Arc::new(SessionLease::new(desk.clock.clone()));
        let of = Locked { lock: name(), number, shared: false, since: desk.clock.now() };
        let cluster = ClusterId::new("test").unwrap();
        let token = FencingToken::new(cluster, Scope::Lock(name()), Epoch::new(number).unwrap());
        let tenure = Tenure::of(token, SessionId::new(1).unwrap(), false, lease, of);
        Hold::new(Arc::new(tenure), desk.clone())
    }

    /// It has the memory of the process that joined, and not its thread.
    #[tokio::test]
    async fn f052_a_fork_asks_for_nothing_and_gives_nothing_back() {
        let (mut desk, mut commands) = LockDesk::new(Clock::Machine, Handle::current());
        desk.birth = Birth::Process(1);
        let held = hold(&desk, 1);
        let refused = desk.acquire(name(), WISH, true, None).await.err().map(Error::from).unwrap();
        assert!(refused.kind() == ErrorKind::Refused && refused.to_string().contains("fork"), "{refused}");
        drop(held);
        assert!(commands.try_recv().is_err());
    }

    /// However the grant and the deadline fall, one of the two has it: the caller, or the coordinator again.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn t41_what_is_granted_in_the_moment_of_the_deadline_is_had_or_given_back() {
        let (desk, mut commands) = LockDesk::new(Clock::Machine, Handle::current());
        let rounds = 400;
        let granting = desk.clone();
        let thread = tokio::spawn(async move {
            let (mut granted, mut unwanted, mut back, mut cancelled) = (0, 0, 0, 0);
            while let Some(command) = commands.recv().await {
                match command {
                    Command::Ask(ask) => {
                        tokio::time::sleep(Duration::from_micros(500 + ask.id % 7 * 200)).await;
                        granted += 1;
                        if let Err(Ok(hold)) = ask.answer.send(Ok(hold(&granting, granted))) {
                            hold.forget();
                            unwanted += 1;
                        }
                    }
                    Command::Cancel { .. } => cancelled += 1,
                    Command::Release { answer, .. } => {
                        back += 1;
                        if answer.is_some() {
                            break;
                        }
                    }
                }
            }
            (granted, unwanted, back, cancelled)
        });
        let mut had = 0;
        for _ in 0..rounds {
            match desk.acquire(name(), WISH, true, Some(Duration::from_millis(1))).await {
                Ok(hold) => {
                    had += 1;
                    drop(hold);
                }
                Err(refusal) => assert!(refusal.is_outage(), "{refusal:?}"),
            }
        }
        let (answer, _answered) = oneshot::channel();
        desk.tell(Command::Release {
            lock: name(),
            session: SessionId::new(1).unwrap(),
            number: 1,
            answer: Some(answer),
        });
        let (granted, unwanted, back, cancelled) = thread.await.unwrap();
        assert_eq!((granted, granted - unwanted), (rounds, back - 1), "what was handed out came back");
        assert_eq!((had, cancelled), (granted - unwanted, unwanted), "and was had by whoever did not cancel");
    }

    #[tokio::test]
    async fn whoever_asks_when_the_thread_has_gone_is_told() {
        let (desk, commands) = LockDesk::new(Clock::Machine, Handle::current());
        drop(commands);
        let refused = desk.acquire(name(), WISH, true, None).await.err().map(Error::from).unwrap();
        assert_eq!(refused.kind(), ErrorKind::SessionEnded);
    }
}
