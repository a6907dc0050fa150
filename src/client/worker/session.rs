//! Opening a session.

use super::builder::Profile;
use super::wire::{Keyspaces, Place, keyspaces};
use crate::error::{Error, ErrorKind};
use crate::net::{Call, Coordinator, Effect, Route, worker};
use ringfence_api::{PROTOCOL, v1};
use ringfence_core::ids::{ClusterId, SessionId};
use ringfence_core::lease::lessee::Timing;
use ringfence_core::placement::PartitionCount;
use sha2::{Digest, Sha256};
use std::fmt;
use std::time::Duration;

/// What proves to the coordinator that a call comes from the session's own process. Chosen here, never stored there.
#[derive(Clone)]
pub(super) struct Secret([u8; 32]);

impl Secret {
    pub(super) fn draw() -> Result<Secret, Error> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(no_randomness)?;
        Ok(Secret(bytes))
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        self.0.to_vec()
    }
}

/// Nothing of it.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// What a join is recognised by: the same for all tries of one, so that it opens one session whatever is lost on the
/// way. The next join draws another, so that it never finds a session that was given up.
pub(super) struct JoinKey {
    nonce: [u8; 16],
    secret: Secret,
}

impl JoinKey {
    pub(super) fn draw() -> Result<JoinKey, Error> {
        let mut nonce = [0; 16];
        getrandom::fill(&mut nonce).map_err(no_randomness)?;
        Ok(JoinKey { nonce, secret: Secret::draw()? })
    }
}

/// One life of the worker, as the coordinator knows it.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: SessionId,
    pub(super) cluster: ClusterId,
    pub(super) secret: Secret,
    pub(super) timing: Timing,
    pub(super) keyspaces: Keyspaces,
}

impl Session {
    /// How many partitions the keyspace had when the session joined it.
    pub(super) fn count(&self, place: &Place) -> Option<PartitionCount> {
        self.keyspaces.get(place.keyspace.as_str()).map(|joined| joined.partitions)
    }
}

/// Joins. The first join of a process may replace an earlier session of its name; a join after a loss may not, or two
/// processes with one name would take turns for ever.
///
/// It may be called again with the same key when its outcome is unknown, and then finds the session it has opened.
pub(super) async fn join(
    profile: &Profile,
    coordinator: &Coordinator,
    key: &JoinKey,
    known: Option<&ClusterId>,
    replace: bool,
) -> Result<Session, Error> {
    let request = v1::JoinRequest {
        protocol: PROTOCOL,
        cluster: known.map_or_else(String::new, ToString::to_string),
        worker: profile.id.to_string(),
        nonce: key.nonce.to_vec().into(),
        secret_sha256: Sha256::digest(key.secret.0).to_vec().into(),
        address: profile.address.clone(),
        weight: profile.weight,
        labels: profile.labels.clone().into_iter().collect(),
        keyspaces: profile.owners.keys().map(ToString::to_string).collect(),
        replace,
        replace_secret: Vec::new().into(),
        splits: profile.splittable,
        ttl_ms: profile.ttl.map_or(0, |ttl| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX)),
    };
    let call = Call::new(Route::Leader, Effect::Repeatable).within(profile.join_within);
    let answer = coordinator
        .call(call, |channel| {
            let request = request.clone();
            async move { worker(channel).join(request).await }
        })
        .await?;
    read(key.secret.clone(), known, answer)
}

fn read(secret: Secret, known: Option<&ClusterId>, answer: v1::JoinResponse) -> Result<Session, Error> {
    let cluster = ClusterId::new(&answer.cluster).map_err(Error::malformed)?;
    if let Some(known) = known.filter(|known| **known != cluster) {
        let message = format!(
            "this worker belongs to cluster {known}, and the endpoints now lead to cluster {cluster}: its tokens mean \
             nothing there; check the addresses of the coordinator"
        );
        return Err(Error::own(ErrorKind::WrongCluster, message));
    }
    let id = SessionId::new(answer.session).ok_or_else(|| Error::malformed("the session has no number"))?;
    let timing = Timing::new(Duration::from_millis(answer.ttl_ms)).map_err(Error::malformed)?;
    let keyspaces = keyspaces(answer.keyspaces).map_err(Error::malformed)?;
    Ok(Session { id, cluster, secret, timing, keyspaces })
}

fn no_randomness(error: getrandom::Error) -> Error {
    let message =
        format!("the system gave no random bytes ({error}), and a session needs a secret nobody can guess");
    Error::own(ErrorKind::Refused, message)
}
