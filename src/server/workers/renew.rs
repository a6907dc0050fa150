//! One renewal and its answer, for sessions without a stream.

use super::assignment::Told;
use super::attach::Outbox;
use super::renewals::{Renewal, Renewals};
use crate::context::Context;
use crate::credentials::{check, ended, session_id};
use prost::Message as _;
use ringfence_api::v1;
use ringfence_api::{Failure, MAX_MESSAGE_BYTES};
use ringfence_core::ids::{SessionId, Term};
use std::sync::Arc;

/// Nobody waits for the answer any longer: the renewal must not extend a lease then.
struct Waiting(Arc<Outbox>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.hang_up();
    }
}

pub(super) async fn renew(
    context: &Context,
    renewals: &Renewals,
    request: v1::RenewRequest,
) -> Result<v1::RenewResponse, Failure> {
    let session = session_id(request.session)?;
    check(context, session, &request.secret).await?;
    let waiting = Waiting(Arc::new(Outbox::new()));
    let outbox = Arc::clone(&waiting.0);
    let arrival = context.clock.now();
    let term = match arrived(context, session) {
        Some(term) => term,
        None => {
            // It may lead and not have begun yet: a confirmation waits for what is missing, and knows who leads otherwise.
            context.confirm().await?;
            arrived(context, session).ok_or_else(Failure::no_leader)?
        }
    };
    outbox.admit();
    renewals.push(Renewal { session, number: 1, arrival, term, outbox: Arc::clone(&outbox) });
    let ttl = context.replica.lock().state.session(session).map(ringfence_core::state::Session::ttl);
    // A renewal that was dropped, because too many wait, is not answered; and one that comes so late extends nothing.
    let given_up = tokio::time::sleep(ttl.unwrap_or_default());
    tokio::pin!(given_up);
    loop {
        tokio::select! {
            () = outbox.woken() => {}
            () = &mut given_up => {
                return Err(Failure::unavailable("the renewal was not answered in time, and has extended nothing"));
            }
        }
        if let Some(acknowledgement) = outbox.take_acknowledged()? {
            return answer(context, session, acknowledgement);
        }
        if context.replica.lock().state.session(session).is_none() {
            return Err(ended(context, session));
        }
    }
}

fn arrived(context: &Context, session: SessionId) -> Option<Term> {
    let local = &mut *context.replica.lock();
    let leadership = local.leadership.as_mut()?;
    leadership.lessor.arrived(session);
    Some(leadership.term())
}

/// The picture is read after the renewal was answered, so it is not behind what that speaks of.
fn answer(
    context: &Context,
    session: SessionId,
    acknowledgement: v1::Acknowledgement,
) -> Result<v1::RenewResponse, Failure> {
    let (pieces, ttl) = {
        let local = context.replica.lock();
        let ttl = local.state.session(session).map(ringfence_core::state::Session::ttl);
        (Told::nothing(session).catch_up(&local), ttl)
    };
    let ttl = ttl.ok_or_else(|| ended(context, session))?;
    let mut assignment =
        v1::Assignment { revision: acknowledgement.revision, complete: true, ..Default::default() };
    for piece in pieces {
        assignment.revision = piece.revision;
        assignment.held.extend(piece.held);
        assignment.locks.extend(piece.locks);
    }
    let answer = v1::RenewResponse {
        assignment: Some(assignment),
        ttl_ms: ringfence_api::convert::checked::millis(ttl),
        drains: acknowledgement.drains,
    };
    if answer.encoded_len() > MAX_MESSAGE_BYTES {
        return Err(Failure::limit(
            "the session holds more than one message can say; open its stream with Attach",
        ));
    }
    Ok(answer)
}
