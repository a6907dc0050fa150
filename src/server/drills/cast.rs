//! Who plays whom in a drill, and what forbids one up front.
//!
//! Everything that can be known before anything moves is checked here: a drill that nobody could take over from would
//! take a partition out of service to prove nothing.

use super::Drills;
use crate::map::{no_such_keyspace, no_such_partition};

use crate::replica::Local;
use ringfence_api::convert::checked;
use ringfence_api::v1::{self, DrillMode};
use ringfence_api::{DRILL_TIMEOUT, Failure};
use ringfence_core::ids::{Epoch, KeyspaceId, KeyspaceName, PartitionId, PartitionKey, SessionId, WorkerId};
use ringfence_core::state::{Keyspace, Partition, Phase, Session, State};
use ringfence_core::time::Instant;
use std::collections::BTreeSet;
use std::time::Duration;

/// What an operator asks for, checked.
pub(super) struct Ask {
    pub(super) keyspace: KeyspaceName,
    pub(super) partition: Option<PartitionId>,
    pub(super) worker: Option<WorkerId>,
    pub(super) mode: DrillMode,
    pub(super) timeout: Duration,
    pub(super) dry_run: bool,
    /// Who wants it.
    pub(super) directive: Option<v1::Directive>,
}

/// Who plays whom.
pub(super) struct Cast {
    pub(super) key: PartitionKey,
    pub(super) keyspace: KeyspaceName,
    /// The owner that is replaced, and its epoch.
    pub(super) owner: SessionId,
    pub(super) worker: WorkerId,
    pub(super) epoch: Epoch,
    /// Who is granted the partition when it is moved.
    pub(super) heir: WorkerId,
    pub(super) heir_session: SessionId,
    /// How many partitions the owner gives up.
    pub(super) moves: usize,
    pub(super) ttl: Duration,
    pub(super) drain_deadline: Duration,
}

impl Ask {
    pub(super) fn read(wire: v1::RunDrillRequest) -> Result<Ask, Failure> {
        let mode = match wire.mode() {
            DrillMode::Unspecified => return Err(Failure::invalid("mode: it is move or stall")),
            mode => mode,
        };
        let timeout = Duration::from_millis(wire.timeout_ms);
        if !DRILL_TIMEOUT.contains(&timeout) {
            return Err(Failure::invalid(format_args!(
                "timeout_ms {}: it is {} to {}; nothing was moved",
                wire.timeout_ms,
                DRILL_TIMEOUT.start().as_millis(),
                DRILL_TIMEOUT.end().as_millis()
            )));
        }
        let worker = Some(&wire.worker).filter(|worker| !worker.is_empty());
        Ok(Ask {
            keyspace: checked::keyspace_name("keyspace", &wire.keyspace)?,
            partition: wire.partition.map(PartitionId::new),
            worker: worker.map(|worker| checked::worker_id("worker", worker)).transpose()?,
            mode,
            timeout,
            dry_run: wire.dry_run,
            directive: wire.directive,
        })
    }
}

impl Cast {
    /// Finds the players in a state that a quorum has confirmed.
    pub(super) fn choose(local: &Local, drills: &Drills, now: Instant, ask: &Ask) -> Result<Cast, Failure> {
        let state = &local.state;
        let absent = local.leadership.as_ref().map(|led| led.presence.absent(now)).unwrap_or_default();
        let keyspace = state.keyspace_named(&ask.keyspace).ok_or_else(|| no_such_keyspace(&ask.keyspace))?;
        let (owner, number) = match ask.partition {
            Some(number) => (owner_of(state, keyspace, number, ask.worker.as_ref())?, number),
            None => pick(state, drills, keyspace, ask.worker.as_ref())?,
        };
        let worker = owner.worker();
        if !drills.allows(owner.id(), keyspace.name()) {
            return Err(not_allowed(worker, keyspace.name()));
        }
        let key = PartitionKey { keyspace: keyspace.id(), partition: number };
        let epoch = state.partition(key).and_then(Partition::epoch);
        let epoch = epoch.ok_or_else(|| no_such_partition(keyspace, number))?;
        let heir =
            heir(state, &absent, owner, keyspace.id()).ok_or_else(|| alone(worker, keyspace.name()))?;
        if ask.mode == DrillMode::Stall {
            stall_is_bearable(state, &absent, owner, ask.timeout)?;
        }
        Ok(Cast {
            key,
            keyspace: keyspace.name().clone(),
            owner: owner.id(),
            worker: worker.clone(),
            epoch,
            heir: heir.worker().clone(),
            heir_session: heir.id(),
            moves: if ask.mode == DrillMode::Stall { owner.holds().len() } else { 1 },
            ttl: owner.ttl(),
            drain_deadline: keyspace.policy().drain_deadline(),
        })
    }

    /// The partition's short name.
    pub(super) fn name(&self) -> String {
        format!("{}/{}", self.keyspace, self.key.partition.get())
    }
}

/// The owner of this partition, which must be ready and stay for the moment.
fn owner_of<'a>(
    state: &'a State,
    keyspace: &Keyspace,
    number: PartitionId,
    expected: Option<&WorkerId>,
) -> Result<&'a Session, Failure> {
    let key = PartitionKey { keyspace: keyspace.id(), partition: number };
    let partition = state.partition(key).ok_or_else(|| no_such_partition(keyspace, number))?;
    let name = format!("{}/{}", keyspace.name(), number.get());
    let session = match partition.phase() {
        Phase::Owned { session, ready: true } => *session,
        Phase::Owned { .. } => {
            return Err(Failure::refused(format_args!(
                "the owner of partition {name} is not ready yet; wait until it is"
            )));
        }
        Phase::Draining(drain) => {
            return Err(Failure::refused(format_args!(
                "partition {name} is on its way to worker {}; wait until it is there, and drill that one",
                drain.to
            )));
        }
        Phase::Vacant | Phase::Cooling(_) => {
            return Err(Failure::refused(format_args!(
                "nobody owns partition {name}, so there is nobody to replace; see `ringfence partition show {name}`"
            )));
        }
    };
    let owner = state.session(session).ok_or_else(|| {
        Failure::refused(format_args!("the owner of partition {name} has just gone; run the drill again"))
    })?;
    match expected {
        Some(expected) if expected != owner.worker() => Err(Failure::refused(format_args!(
            "partition {name} is owned by worker {} and not by {expected}; leave one of the two out",
            owner.worker()
        ))),
        _ => Ok(owner),
    }
}

/// A ready partition of this worker, or of the one that has the least to lose of those that allow drills.
fn pick<'a>(
    state: &'a State,
    drills: &Drills,
    keyspace: &Keyspace,
    worker: Option<&WorkerId>,
) -> Result<(&'a Session, PartitionId), Failure> {
    let name = keyspace.name();
    let serves = |session: &&Session| session.keyspaces().contains(&keyspace.id());
    if let Some(worker) = worker {
        let session = state.session_of(worker).ok_or_else(|| {
            Failure::not_found(format_args!("there is no worker {worker}; it has no session"))
        })?;
        if !serves(&session) {
            return Err(Failure::refused(format_args!("worker {worker} does not serve keyspace {name}")));
        }
        let number = first_ready(state, session, keyspace.id()).ok_or_else(|| {
            Failure::refused(format_args!(
                "worker {worker} owns no partition of {name} that is ready and stays; try again when it does"
            ))
        })?;
        return Ok((session, number));
    }
    let mut candidates: Vec<&Session> = state.sessions().filter(serves).collect();
    if candidates.is_empty() {
        return Err(Failure::refused(format_args!("no worker serves keyspace {name}; start two")));
    }
    candidates.retain(|session| drills.allows(session.id(), name));
    candidates.sort_by_key(|session| (session.holds().len(), session.worker()));
    if candidates.is_empty() {
        return Err(Failure::refused(format_args!(
            "no worker allows drills of keyspace {name}: {}",
            how_to_allow(name)
        )));
    }
    let mut ready =
        candidates.into_iter().filter_map(|s| first_ready(state, s, keyspace.id()).map(|number| (s, number)));
    ready.next().ok_or_else(|| {
        Failure::refused(format_args!(
            "no worker that allows drills owns a partition of {name} that is ready and stays; try again when one does"
        ))
    })
}

fn first_ready(state: &State, session: &Session, keyspace: KeyspaceId) -> Option<PartitionId> {
    let mine = session.holds().iter().filter(|key| key.keyspace == keyspace);
    let ready = |key: &&PartitionKey| {
        state.partition(**key).is_some_and(|p| matches!(p.phase(), Phase::Owned { ready: true, .. }))
    };
    mine.filter(ready).map(|key| key.partition).next()
}

/// Who takes over in this keyspace: of those that could be granted a partition now, the one that has the fewest.
fn heir<'a>(
    state: &'a State,
    absent: &BTreeSet<SessionId>,
    owner: &Session,
    keyspace: KeyspaceId,
) -> Option<&'a Session> {
    let could = |session: &&Session| {
        session.id() != owner.id()
            && session.keyspaces().contains(&keyspace)
            && !session.withdrawn()
            && session.suspicion().is_none()
            && !absent.contains(&session.id())
    };
    state.sessions().filter(could).min_by_key(|session| (session.holds().len(), session.worker()))
}

/// The leases that a stall must have time for: one runs out, and a change of leader on the way counts it anew.
const LEASES_OF_A_STALL: u32 = 2;

/// All of the worker's partitions go, so each of its keyspaces needs somebody else, and its lease must have time to run out.
fn stall_is_bearable(
    state: &State,
    absent: &BTreeSet<SessionId>,
    owner: &Session,
    timeout: Duration,
) -> Result<(), Failure> {
    let (worker, ttl) = (owner.worker(), owner.ttl());
    let least = ttl.saturating_mul(LEASES_OF_A_STALL);
    if timeout < least {
        let what_to_do = if DRILL_TIMEOUT.contains(&least) {
            format!("give the drill {least:?} or more")
        } else {
            format!("that is more than the {:?} of the longest drill: drill with a move", DRILL_TIMEOUT.end())
        };
        return Err(Failure::invalid(format_args!(
            "a stall of worker {worker} within {timeout:?} would fail, and nothing was moved: its lease of {ttl:?} has to \
             run out first, and a change of leader counts it anew, which makes {least:?}; {what_to_do}"
        )));
    }
    let keyspaces: BTreeSet<KeyspaceId> = owner.holds().iter().map(|key| key.keyspace).collect();
    match keyspaces.into_iter().find(|id| heir(state, absent, owner, *id).is_none()) {
        Some(id) => {
            let name = state.keyspace(id).map(|keyspace| keyspace.name().to_string()).unwrap_or_default();
            Err(Failure::refused(format_args!(
                "a stalled worker gives up all its partitions, and nobody but {worker} could own those of keyspace \
                 {name}; start another worker for it, or drill with a move"
            )))
        }
        None => Ok(()),
    }
}

fn alone(worker: &WorkerId, keyspace: &KeyspaceName) -> Failure {
    Failure::refused(format_args!(
        "nobody could take over from worker {worker}: no other worker that serves keyspace {keyspace} is connected and \
         stays; start a second one"
    ))
}

fn not_allowed(worker: &WorkerId, keyspace: &KeyspaceName) -> Failure {
    Failure::refused(format_args!(
        "worker {worker} allows no drills of keyspace {keyspace}: {}",
        how_to_allow(keyspace)
    ))
}

fn how_to_allow(keyspace: &KeyspaceName) -> String {
    format!(
        "start it with Worker::builder(..).allow_drill(\"{keyspace}\", probe), with an SDK that has it, and see that it is \
         connected"
    )
}
