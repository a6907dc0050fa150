//! Locks, as an operator sees them: read after a quorum has confirmed this node.

use crate::admin::Pieces;
use crate::context::Context;
use futures_util::stream;
use prost::Message as _;
use ringfence_api::convert::{Lock, LockWaiter, MAX_LOCK_TOLD, checked};
use ringfence_api::{Failure, PIECE_BYTES, v1};
use ringfence_core::ids::LockName;

/// The locks whose names begin with the prefix, by name. Each piece is made when it is sent, from what is there then; a lock
/// that has become idle meanwhile is not in it.
pub(super) async fn list(
    context: &Context,
    request: &v1::ListLocksRequest,
) -> Result<Pieces<v1::ListLocksResponse>, Failure> {
    // What names begin with is a name itself.
    if !request.prefix.is_empty() {
        checked::lock_name("prefix", &request.prefix)?;
    }
    context.confirm().await?;
    let next = Next { context: context.clone(), prefix: request.prefix.clone(), after: None };
    Ok(Box::pin(stream::unfold(next, |mut next| async move {
        let locks = next.piece();
        let now_unix_ms = next.context.clock.unix_ms();
        (!locks.is_empty()).then(|| (Ok(v1::ListLocksResponse { locks, now_unix_ms }), next))
    })))
}

struct Next {
    context: Context,
    prefix: String,
    /// The last one told.
    after: Option<LockName>,
}

impl Next {
    fn piece(&mut self) -> Vec<v1::Lock> {
        let local = self.context.replica.lock();
        let from = self.after.clone().or_else(|| LockName::new(&self.prefix).ok());
        let there: Box<dyn Iterator<Item = &ringfence_core::state::Lock>> = match &from {
            Some(name) => Box::new(local.state.locks_from(name)),
            None => Box::new(local.state.locks()),
        };
        let new = there.filter(|lock| self.after.as_ref() != Some(&lock.name));
        let (mut locks, mut bytes, mut last) = (Vec::new(), 0, None);
        for lock in new.take_while(|lock| lock.name.as_str().starts_with(&self.prefix)) {
            let message = v1::Lock::from(Lock::read(&local.state, lock));
            bytes += message.encoded_len();
            locks.push(message);
            last = Some(lock.name.clone());
            if bytes >= PIECE_BYTES {
                break;
            }
        }
        drop(local);
        self.after = last.or_else(|| self.after.take());
        locks
    }
}

/// One lock with its queue.
pub(super) async fn get(
    context: &Context,
    request: &v1::GetLockRequest,
) -> Result<v1::GetLockResponse, Failure> {
    let name = checked::lock_name("lock", &request.lock)?;
    context.confirm().await?;
    let now_unix_ms = context.clock.unix_ms();
    let local = context.replica.lock();
    let Some(lock) = local.state.lock(&name) else {
        return Ok(v1::GetLockResponse {
            lock: Some(Lock::idle(name).into()),
            queue: Vec::new(),
            now_unix_ms,
        });
    };
    let queue = lock.queue.iter().filter_map(|waiter| LockWaiter::read(&local.state, waiter));
    let queue = queue.take(MAX_LOCK_TOLD).map(v1::LockWaiter::from).collect();
    Ok(v1::GetLockResponse { lock: Some(Lock::read(&local.state, lock).into()), queue, now_unix_ms })
}
