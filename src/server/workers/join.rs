//! Opening a session, and when that may end an earlier session of the same worker id.
//!
//! An earlier session may be ended when it is older than its TTL, when its secret is shown, or when its process has
//! gone: it had a stream to this leader and lost it. Otherwise two processes configured with one id would end each
//! other for ever; the second is told so, with both addresses. Ending a session early never shortens a lease: its
//! partitions cool until that lease has run out.

use crate::context::Context;
use crate::credentials::{check_origin, is_secret_of};
use crate::refusal::to_failure;
use ringfence_api::Failure;
use ringfence_api::convert::Keyspace;
use ringfence_api::v1;
use ringfence_core::ids::{KeyspaceName, SessionId, WorkerId};
use ringfence_core::lead::GRACE;
use ringfence_core::mutant;
use ringfence_core::placement::Weight;
use ringfence_core::state::{Command, Join, MAX_ADDRESS_BYTES, MAX_LABELS, Outcome, Refused, Session};
use std::collections::BTreeSet;
use std::time::Duration;

/// How many keyspaces one worker may join.
pub(super) const MAX_JOINED_KEYSPACES: usize = 1_000;

/// What became of looking for an earlier session.
enum Earlier {
    /// Nothing stands in the way.
    Free(Option<SessionId>),
    /// Its process looks gone; whether it is shows after this long.
    Ask(Duration),
}

pub(super) async fn join(context: &Context, request: v1::JoinRequest) -> Result<v1::JoinResponse, Failure> {
    check_origin(context, request.protocol, &request.cluster)?;
    let mut join = parse(&request)?;
    // A process that was killed and started again at once may ask before the end of its old connection has arrived.
    let mut patience = Some(GRACE);
    loop {
        // What is decided below rests on a state that a quorum has confirmed, and on this term's clocks.
        let (term, _) = context.confirm().await?;
        match earlier(context, term, &request, &mut join, &mut patience)? {
            Earlier::Free(session) => join.replaces = session,
            Earlier::Ask(later) => {
                tokio::time::sleep(later).await;
                continue;
            }
        }
        let commands = vec![Command::Join(Box::new(join.clone()))];
        return match context.propose(None, commands, Some(term)).await? {
            Ok(committed) => match committed.outcomes.first() {
                Some(Outcome::Joined(session)) => answer(context, *session),
                _ => Err(Failure::unavailable("the join was not understood; ask again")),
            },
            // Another process was quicker: look at what it is.
            Err(refusal) if matches!(refusal.why, Refused::DuplicateIdentity { .. }) => continue,
            Err(refusal) => Err(to_failure(context, &refusal.why)),
        };
    }
}

fn parse(request: &v1::JoinRequest) -> Result<Join, Failure> {
    let invalid = |text: String| Failure::invalid(text);
    let nonce: [u8; 16] =
        request.nonce[..].try_into().map_err(|_| invalid("nonce: it has 16 bytes".into()))?;
    let secret_hash: [u8; 32] =
        request.secret_sha256[..].try_into().map_err(|_| invalid("secret_sha256: it has 32 bytes".into()))?;
    if request.address.len() > MAX_ADDRESS_BYTES {
        return Err(invalid(format!("address: it has at most {MAX_ADDRESS_BYTES} bytes")));
    }
    if request.address.chars().any(char::is_control) {
        return Err(invalid("address: it has a control character".into()));
    }
    if request.labels.len() > MAX_LABELS {
        return Err(invalid(format!("labels: there are at most {MAX_LABELS}")));
    }
    let fits = |text: &String| text.len() <= 63 && !text.chars().any(char::is_control);
    if !request.labels.iter().all(|(key, value)| !key.is_empty() && fits(key) && fits(value)) {
        return Err(invalid("labels: a key or value has at most 63 bytes and no control character".into()));
    }
    if request.keyspaces.len() > MAX_JOINED_KEYSPACES {
        return Err(invalid(format!("keyspaces: a worker joins at most {MAX_JOINED_KEYSPACES}")));
    }
    if request.keyspaces.is_empty() && request.ttl_ms == 0 {
        return Err(invalid("keyspaces: there is none; a worker that only takes locks says ttl_ms".into()));
    }
    Ok(Join {
        worker: WorkerId::new(&request.worker).map_err(|e| invalid(format!("worker: {e}")))?,
        nonce: u128::from_be_bytes(nonce),
        secret_hash,
        address: request.address.clone(),
        weight: Weight::new(request.weight.max(1)).map_err(|e| invalid(format!("weight: {e}")))?,
        labels: request.labels.clone().into_iter().collect(),
        keyspaces: BTreeSet::new(),
        replaces: None,
        splits: request.splits,
        ends_drain: None,
        ttl: Some(Duration::from_millis(request.ttl_ms)).filter(|ttl| !ttl.is_zero()),
    })
}

/// Finds the keyspaces, and decides about an earlier session of the worker id.
fn earlier(
    context: &Context,
    term: ringfence_core::ids::Term,
    request: &v1::JoinRequest,
    join: &mut Join,
    patience: &mut Option<Duration>,
) -> Result<Earlier, Failure> {
    let now = context.clock.now();
    let local = &mut *context.replica.lock();
    join.keyspaces.clear();
    for name in &request.keyspaces {
        let parsed = KeyspaceName::new(name).map_err(|e| Failure::invalid(format!("keyspaces: {e}")))?;
        let keyspace = local.state.keyspace_named(&parsed).ok_or_else(|| {
            Failure::not_found(format!("there is no keyspace {parsed}; create it with: ringfence keyspace create {parsed} --partitions N"))
        })?;
        join.keyspaces.insert(keyspace.id());
    }
    // A first join may replace an earlier session, and says so; a process that lost its lease joins without. By its name:
    // one that is decided after this is not ended by what was decided before it.
    let anew = request.replace || !request.replace_secret.is_empty();
    join.ends_drain = local.state.drain_until_join(&join.worker).filter(|_| anew);
    let Some(leadership) = local.leadership.as_ref().filter(|led| led.term() == term) else {
        return Err(Failure::no_leader());
    };
    let Some(holder) = local.state.session_of(&join.worker) else { return Ok(Earlier::Free(None)) };
    // The same join once more. `replaces` stays unset: only the same secret finds its session.
    if holder.nonce() == join.nonce && holder.secret_hash() == &join.secret_hash {
        return Ok(Earlier::Free(None));
    }
    if !request.replace_secret.is_empty() && is_secret_of(holder, &request.replace_secret) {
        return Ok(Earlier::Free(Some(holder.id())));
    }
    if !request.replace {
        return Err(duplicate(holder, join));
    }
    let old_enough = leadership.lessor.known_for(holder.id(), now).is_some_and(|age| age >= holder.ttl());
    if old_enough || mutant!("young-session-replaced") {
        return Ok(Earlier::Free(Some(holder.id())));
    }
    match leadership.presence.lost_for(holder.id(), now) {
        Some(gone) if gone >= GRACE => Ok(Earlier::Free(Some(holder.id()))),
        Some(gone) => Ok(Earlier::Ask(GRACE - gone)),
        None => patience.take().map(Earlier::Ask).ok_or_else(|| duplicate(holder, join)),
    }
}

fn duplicate(holder: &Session, join: &Join) -> Failure {
    Failure::duplicate_identity(join.worker.as_str(), holder.address(), &join.address)
}

fn answer(context: &Context, id: SessionId) -> Result<v1::JoinResponse, Failure> {
    let local = context.replica.lock();
    let state = &local.state;
    let (Some(session), Some(cluster)) = (state.session(id), state.cluster()) else {
        return Err(Failure::session_ended(id, v1::SessionEnd::Unknown));
    };
    tracing::info!(session = %id, worker = %session.worker(), ttl = ?session.ttl(), "joined");
    let keyspaces = session.keyspaces().iter().filter_map(|id| state.keyspace(*id));
    Ok(v1::JoinResponse {
        cluster: cluster.id.to_string(),
        session: id.get(),
        ttl_ms: u64::try_from(session.ttl().as_millis()).unwrap_or(u64::MAX),
        keyspaces: keyspaces.map(|keyspace| v1::Keyspace::from(&Keyspace::from(keyspace))).collect(),
    })
}
