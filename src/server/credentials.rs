//! Who may speak: protocol version, cluster, and the session's secret.

use crate::context::Context;
use ringfence_api::Failure;
use ringfence_api::PROTOCOL;
use ringfence_core::ids::SessionId;
use ringfence_core::mutant;
use ringfence_core::state::Session;
use sha2::{Digest as _, Sha256};

/// Refuses a client of another protocol, or of another cluster.
pub(crate) fn check_origin(context: &Context, protocol: u32, cluster: &str) -> Result<(), Failure> {
    if protocol != PROTOCOL {
        return Err(Failure::unsupported_protocol(protocol));
    }
    let local = context.replica.lock();
    match local.state.cluster() {
        Some(this) if cluster.is_empty() || cluster == this.id.as_str() => Ok(()),
        Some(this) => Err(Failure::wrong_cluster(cluster, &this.id)),
        None => Err(Failure::unavailable("the cluster is not formed yet; ask again")),
    }
}

/// A session's number from the wire.
pub(crate) fn session_id(number: u64) -> Result<SessionId, Failure> {
    SessionId::new(number).ok_or_else(|| Failure::invalid("session: 0 is no session"))
}

/// Checks that the session lives and that this is its secret.
///
/// "It has ended" is final, and is said only from what a quorum has confirmed: a node that lags, or was deposed, may not
/// know a session that another leader opened.
pub(crate) async fn check(context: &Context, session: SessionId, secret: &[u8]) -> Result<(), Failure> {
    if let Some(result) = look(context, session, secret) {
        return result;
    }
    if !mutant!("end-said-unconfirmed") {
        context.confirm().await?;
    }
    look(context, session, secret).unwrap_or_else(|| Err(ended(context, session)))
}

fn look(context: &Context, session: SessionId, secret: &[u8]) -> Option<Result<(), Failure>> {
    let local = context.replica.lock();
    let live = local.state.session(session)?;
    Some(if is_secret_of(live, secret) { Ok(()) } else { Err(Failure::wrong_secret(session)) })
}

/// The failure for a session that is not in the confirmed state.
pub(crate) fn ended(context: &Context, session: SessionId) -> Failure {
    let how = context.replica.lock().state.ended(session).map(|ended| ended.why);
    Failure::session_ended(session, how)
}

/// Compares hashes, and all of their bytes: how long it takes says nothing about the secret.
pub(crate) fn is_secret_of(session: &Session, secret: &[u8]) -> bool {
    let hash: [u8; 32] = Sha256::digest(secret).into();
    let differing = hash.iter().zip(session.secret_hash()).fold(0, |all, (a, b)| all | (a ^ b));
    differing == 0 || mutant!("secret-unchecked")
}
