//! The fake's locks: one session asks for them, and a test plays all the others.

use super::{Fake, Service, World};
use ringfence_api::Failure;
use ringfence_api::v1::lock_service_server::LockService;
use ringfence_api::v1::{self, acquire_lock_response::What, attach_response};
use std::pin::Pin;
use tonic::codegen::tokio_stream::Stream;
use tonic::{Request, Response, Status};

/// A lock, as far as the one session is concerned.
#[derive(Clone, Debug, Default)]
pub(in crate::worker::tests) struct Lock {
    /// Somebody else has it, under this epoch.
    pub(in crate::worker::tests) others: Option<u64>,
    pub(in crate::worker::tests) mine: Option<Mine>,
    pub(in crate::worker::tests) waits: Option<Mine>,
}

/// What the session has, or waits for; without an epoch while it waits.
#[derive(Clone, Debug)]
pub(in crate::worker::tests) struct Mine {
    pub(in crate::worker::tests) number: u64,
    pub(in crate::worker::tests) epoch: u64,
    wish: v1::LockWish,
}

impl Fake {
    /// Somebody else takes a lock that is free.
    pub(in crate::worker::tests) fn occupy(&self, lock: &str) -> u64 {
        let mut world = self.world();
        world.lock_epoch += 1;
        let epoch = world.lock_epoch;
        let place = world.locks.entry(lock.to_owned()).or_default();
        assert!(place.mine.is_none() && place.others.is_none(), "it is free");
        place.others = Some(epoch);
        epoch
    }

    /// And gives it back: whoever waits is granted it.
    pub(in crate::worker::tests) fn vacate(&self, lock: &str) {
        let mut world = self.world();
        world.locks.get_mut(lock).unwrap().others = None;
        world.grant_lock(lock);
    }

    /// An operator takes it from the session; returns the epoch that it had.
    pub(in crate::worker::tests) fn break_lock(&self, lock: &str) -> u64 {
        let mut world = self.world();
        let epoch = world.locks[lock].mine.as_ref().unwrap().epoch;
        world.take_lock(lock);
        epoch
    }

    /// The epoch under which the session has the lock.
    pub(in crate::worker::tests) fn lock_of(&self, lock: &str) -> Option<u64> {
        self.world().locks.get(lock)?.mine.as_ref().map(|mine| mine.epoch)
    }

    /// Waits until the session waits for the lock.
    pub(in crate::worker::tests) async fn queued(&self, lock: &str) {
        self.until("it waits", |world| world.locks.get(lock).is_some_and(|lock| lock.waits.is_some())).await;
    }

    /// Waits until this was given back.
    pub(in crate::worker::tests) async fn returned(&self, what: &str) {
        self.until(what, |world| world.returned.iter().any(|one| one == what)).await;
    }

    /// Sends a grant to the session that the state knows nothing of any more.
    pub(in crate::worker::tests) fn push_grant(&self, lock: &str, number: u64, epoch: u64, revision: u64) {
        let held = v1::HeldLock {
            lock: lock.to_owned(),
            epoch,
            mode: v1::LockMode::Exclusive.into(),
            takeover: v1::Takeover::Lease.into(),
            number,
        };
        self.push(attach_response::Message::Assignment(v1::Assignment {
            revision,
            locks: vec![held],
            ..Default::default()
        }));
    }
}

impl World {
    pub(in crate::worker::tests) fn revision(&self) -> u64 {
        self.revision
    }

    pub(in crate::worker::tests) fn next_revision(&mut self) -> u64 {
        self.revision += 1;
        self.revision
    }

    pub(super) fn forget_locks(&mut self) {
        self.lock_answers.clear();
        for lock in self.locks.values_mut() {
            (lock.mine, lock.waits) = (None, None);
        }
    }

    pub(super) fn held_locks(&self) -> Vec<v1::HeldLock> {
        let held = |(name, lock): (&String, &Lock)| lock.mine.as_ref().map(|mine| told(name, mine));
        self.locks.iter().filter_map(held).collect()
    }

    fn grant_lock(&mut self, name: &str) {
        let Some(lock) = self.locks.get_mut(name) else { return };
        if lock.others.is_some() || lock.mine.is_some() {
            return;
        }
        let Some(mut mine) = lock.waits.take() else { return };
        // Somebody shares it all the while, so the epoch stays.
        let shared = mine.wish.mode() == v1::LockMode::Shared;
        self.lock_epoch += u64::from(!shared || self.lock_epoch == 0);
        mine.epoch = self.lock_epoch;
        lock.mine = Some(mine.clone());
        self.push_locks(vec![told(name, &mine)], Vec::new());
    }

    fn take_lock(&mut self, name: &str) {
        let Some(mine) = self.locks.get_mut(name).and_then(|lock| lock.mine.take()) else { return };
        let gone = v1::GoneLock { lock: name.to_owned(), epoch: mine.epoch, number: mine.number };
        self.push_locks(Vec::new(), vec![gone]);
    }

    fn push_locks(&mut self, locks: Vec<v1::HeldLock>, gone_locks: Vec<v1::GoneLock>) {
        self.revision += 1;
        if !self.silent_about_locks {
            let revision = self.revision;
            self.push(attach_response::Message::Assignment(v1::Assignment {
                revision,
                locks,
                gone_locks,
                ..Default::default()
            }));
        }
    }

    fn acquire(&mut self, request: v1::AcquireLockRequest) -> v1::AcquireLockResponse {
        let number = request.number;
        if let Some(answer) = self.lock_answers.get(&number) {
            return answer.clone();
        }
        self.lock_answers.retain(|number, _| *number >= request.settled_below);
        let name = request.lock.clone();
        let lock = self.locks.entry(name.clone()).or_default();
        let what = if let Some(mine) = &lock.mine {
            What::Granted(mine.epoch)
        } else if lock.waits.is_some() {
            What::Queued(0)
        } else if lock.others.is_some() && !request.wait {
            let by = v1::LockHolder {
                worker: "somebody".to_owned(),
                session: 7,
                address: "10.0.0.9:1".to_owned(),
                epoch: lock.others.unwrap_or(1),
                wish: request.wish,
                ..Default::default()
            };
            What::Held(v1::acquire_lock_response::Held { by: Some(by) })
        } else {
            lock.waits = Some(Mine { number, epoch: 0, wish: request.wish.unwrap_or_default() });
            self.grant_lock(&name);
            match self.locks.get(&name).and_then(|lock| lock.mine.as_ref()) {
                Some(mine) => What::Granted(mine.epoch),
                None => What::Queued(0),
            }
        };
        let answer = v1::AcquireLockResponse { what: Some(what) };
        self.lock_answers.insert(number, answer.clone());
        answer
    }
}

fn told(name: &str, mine: &Mine) -> v1::HeldLock {
    v1::HeldLock {
        lock: name.to_owned(),
        epoch: mine.epoch,
        mode: mine.wish.mode,
        takeover: mine.wish.takeover,
        number: mine.number,
    }
}

type Pieces<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl LockService for Service {
    async fn acquire(
        &self,
        request: Request<v1::AcquireLockRequest>,
    ) -> Result<Response<v1::AcquireLockResponse>, Status> {
        self.there().await;
        let request = request.into_inner();
        let answer = {
            let mut world = self.world.lock().unwrap();
            world.check(request.session, &request.secret)?;
            world.acquires.push(request.clone());
            self.changed.notify_waiters();
            if !world.lock_failures.is_empty() {
                return Err(world.lock_failures.remove(0));
            }
            match world.acquires_held {
                true => None,
                false => {
                    let answer = world.acquire(request);
                    if std::mem::take(&mut world.acquire_answer_lost) {
                        return Err(Failure::unknown_outcome().into());
                    }
                    Some(answer)
                }
            }
        };
        self.changed.notify_waiters();
        match answer {
            Some(answer) => Ok(Response::new(answer)),
            None => std::future::pending().await,
        }
    }

    async fn release(
        &self,
        request: Request<v1::ReleaseLockRequest>,
    ) -> Result<Response<v1::ReleaseLockResponse>, Status> {
        self.there().await;
        let request = request.into_inner();
        let mut world = self.world.lock().unwrap();
        world.check(request.session, &request.secret)?;
        if !world.lock_failures.is_empty() {
            return Err(world.lock_failures.remove(0));
        }
        world.returned.push(format!("release {}@{}", request.lock, request.epoch));
        let mine = world.locks.get(&request.lock).and_then(|lock| lock.mine.as_ref());
        if mine.is_some_and(|mine| mine.epoch == request.epoch) {
            world.take_lock(&request.lock);
        }
        self.changed.notify_waiters();
        Ok(Response::new(v1::ReleaseLockResponse {}))
    }

    async fn abandon(
        &self,
        request: Request<v1::AbandonLockRequest>,
    ) -> Result<Response<v1::AbandonLockResponse>, Status> {
        self.there().await;
        let request = request.into_inner();
        let mut world = self.world.lock().unwrap();
        world.check(request.session, &request.secret)?;
        if !world.lock_failures.is_empty() {
            return Err(world.lock_failures.remove(0));
        }
        world.returned.push(format!("abandon {}#{}", request.lock, request.number));
        let lock = world.locks.entry(request.lock.clone()).or_default();
        lock.waits.take_if(|waits| waits.number == request.number);
        if lock.mine.as_ref().is_some_and(|mine| mine.number == request.number) {
            world.take_lock(&request.lock);
        }
        self.changed.notify_waiters();
        Ok(Response::new(v1::AbandonLockResponse {}))
    }

    type ListStream = Pieces<v1::ListLocksResponse>;

    async fn list(&self, _: Request<v1::ListLocksRequest>) -> Result<Response<Self::ListStream>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn get(&self, _: Request<v1::GetLockRequest>) -> Result<Response<v1::GetLockResponse>, Status> {
        Err(Status::unimplemented(""))
    }

    type ObserveStream = Pieces<v1::ObserveLockResponse>;

    async fn observe(
        &self,
        _: Request<v1::ObserveLockRequest>,
    ) -> Result<Response<Self::ObserveStream>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn r#break(
        &self,
        _: Request<v1::BreakLockRequest>,
    ) -> Result<Response<v1::BreakLockResponse>, Status> {
        Err(Status::unimplemented(""))
    }
}
