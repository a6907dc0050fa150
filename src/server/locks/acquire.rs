//! Asking for a lock.
//!
//! The session's number for it goes into the log with the request, so a retry takes effect once, at another leader too.

use crate::context::Context;
use crate::credentials::{check, session_id};
use crate::refusal::to_failure;
use ringfence_api::Failure;
use ringfence_api::convert::{InvalidField, LockHolder, checked, wish_from_wire};
use ringfence_api::v1::acquire_lock_response::{Held, What};
use ringfence_api::v1::{AcquireLockRequest, AcquireLockResponse};
use ringfence_core::ids::{LockName, SessionId};
use ringfence_core::state::{Command, Outcome, Refused, Request, SESSION_ANSWERS};

/// How many acquires of a session may be without an answer: as many answers are kept for it.
const MAX_UNANSWERED: u64 = SESSION_ANSWERS as u64;

pub(super) async fn acquire(
    context: &Context,
    request: AcquireLockRequest,
) -> Result<AcquireLockResponse, Failure> {
    let session = session_id(request.session)?;
    let lock = checked::lock_name("lock", &request.lock)?;
    let wish = wish_from_wire("wish", request.wish)?;
    let (number, settled_below) = numbers(request.number, request.settled_below)?;
    check(context, session, &request.secret).await?;

    let once = Request::Session { session, number, settled_below };
    let waits = request.wait;
    let asks = Command::AcquireLock { lock: lock.clone(), session, request: number, wish, waits };
    let what = match context.propose(Some(once), vec![asks], None).await? {
        Ok(committed) => match committed.outcomes.first() {
            Some(Outcome::Granted(epoch)) => What::Granted(epoch.get()),
            Some(Outcome::Queued(place)) => What::Queued(*place),
            // The number was another request's: what that did is no answer to this.
            _ => return Err(Failure::invalid("number: the session has used it for something else")),
        },
        Err(refusal) => match refusal.why {
            Refused::LockHeld { by, .. } => {
                What::Held(Held { by: by.and_then(|by| holder(context, &lock, by)) })
            }
            why => return Err(to_failure(context, &why)),
        },
    };
    Ok(AcquireLockResponse { what: Some(what) })
}

/// The session's number, and the one below which it waits for no answer. Within their bound no answer is forgotten that the
/// session may still ask for.
fn numbers(number: u64, settled_below: u64) -> Result<(u64, u64), Failure> {
    let settled_below = settled_below.max(1);
    if number == 0 {
        return Err(InvalidField::new("number", "a session numbers its acquires from 1").into());
    }
    if settled_below > number {
        let why =
            format_args!("it is {settled_below}, and this very acquire, {number}, waits for its answer");
        return Err(InvalidField::new("settled_below", why).into());
    }
    if number - settled_below >= MAX_UNANSWERED {
        return Err(Failure::limit(format_args!(
            "number {number} is {MAX_UNANSWERED} or more above settled_below {settled_below}: a session has at most \
             {MAX_UNANSWERED} acquires without an answer; ask again for those that have none, and then say so"
        )));
    }
    Ok((number, settled_below))
}

/// Who holds the lock that was refused; whoever has held it longest, when that one has given it back since.
fn holder(context: &Context, lock: &LockName, by: SessionId) -> Option<ringfence_api::v1::LockHolder> {
    let local = context.replica.lock();
    let grants = &local.state.lock(lock)?.grants;
    let grant = grants.iter().find(|grant| grant.session == by).or_else(|| grants.first())?;
    Some(LockHolder::read(&local.state, grant).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_api::ErrorKind;

    #[test]
    fn t43_a_session_keeps_within_the_answers_that_are_kept_for_it() {
        assert_eq!(numbers(1, 0).unwrap(), (1, 1));
        assert_eq!(numbers(64, 0).unwrap(), (64, 1));
        assert_eq!(numbers(u64::MAX, u64::MAX - 63).unwrap(), (u64::MAX, u64::MAX - 63));
        for (number, settled_below) in [(65, 0), (65, 1), (u64::MAX, 1)] {
            let refused = numbers(number, settled_below).unwrap_err();
            assert!(
                refused.kind() == ErrorKind::Limit && refused.message().contains("at most 64"),
                "{refused}"
            );
        }
        for (number, settled_below) in [(0, 0), (0, 1), (3, 4)] {
            assert_eq!(numbers(number, settled_below).unwrap_err().kind(), ErrorKind::Invalid);
        }
    }
}
