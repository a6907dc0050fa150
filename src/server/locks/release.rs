//! Giving a lock back, and giving up an acquire. Both may be repeated, and are therefore no numbered requests.

use crate::context::Context;
use crate::credentials::{check, session_id};
use crate::refusal::to_failure;
use ringfence_api::Failure;
use ringfence_api::convert::{InvalidField, checked};
use ringfence_api::v1::{AbandonLockRequest, ReleaseLockRequest};
use ringfence_core::ids::SessionId;
use ringfence_core::state::Command;

pub(super) async fn release(context: &Context, request: ReleaseLockRequest) -> Result<(), Failure> {
    let session = session_id(request.session)?;
    let lock = checked::lock_name("lock", &request.lock)?;
    let epoch = checked::epoch("epoch", request.epoch)?;
    done(context, session, &request.secret, Command::ReleaseLock { lock, epoch, session }).await
}

pub(super) async fn abandon(context: &Context, request: AbandonLockRequest) -> Result<(), Failure> {
    let session = session_id(request.session)?;
    let lock = checked::lock_name("lock", &request.lock)?;
    let number = request.number;
    if number == 0 {
        return Err(InvalidField::new("number", "it is that of the acquire to give up, 1 or more").into());
    }
    done(context, session, &request.secret, Command::AbandonLock { lock, session, request: number }).await
}

async fn done(context: &Context, session: SessionId, secret: &[u8], command: Command) -> Result<(), Failure> {
    check(context, session, secret).await?;
    match context.propose(None, vec![command], None).await? {
        Ok(_) => Ok(()),
        Err(refusal) => Err(to_failure(context, &refusal.why)),
    }
}
