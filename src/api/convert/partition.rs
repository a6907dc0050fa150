//! A partition as an operator sees it.

use super::address::Owner;
use super::checked::{epoch, epoch_or_none, keyspace_name, session, worker_id};
use super::directive::Directive;
use super::field::InvalidField;
use super::phase::Phase;
use crate::text::shown;
use crate::v1;
use ringfence_core::ids::{
    Epoch, KeyspaceName, LogIndex, MoveId, PartitionId, PartitionKey, SessionId, WorkerId,
};
use ringfence_core::state::{self, Cooling, CoolingWhy, Drain, GrantReason, State};

/// A partition as an operator sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Partition {
    /// The keyspace.
    pub keyspace: KeyspaceName,
    /// The partition in it.
    pub partition: PartitionId,
    /// Where it is in its handoff.
    pub phase: Phase,
    /// The last epoch granted, `None` when it never was.
    pub epoch: Option<Epoch>,
    /// The owner has raised its fences and loaded: callers may come.
    pub ready: bool,
    /// Who owns it.
    pub owner: Option<Owner>,
    /// While it drains: where it goes, and under which move.
    pub moving: Option<(WorkerId, MoveId)>,
    /// While it cools: why, in words. Empty otherwise.
    pub cooling: String,
    /// Owner tasks that failed in a row.
    pub failures: u32,
    /// The error of the last one, escaped. Empty when there was none.
    pub last_error: String,
    /// Its load as its owners measured it, smoothed. `None` when the leader knows none, as in a keyspace that balances by
    /// count; and it is not in the state, so [`Partition::read`] does not know it.
    pub load: Option<u32>,
}

/// One grant of a partition, for its history.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tenure {
    /// Its epoch.
    pub epoch: Epoch,
    /// The worker it was granted to.
    pub worker: WorkerId,
    /// The session of that worker.
    pub session: SessionId,
    /// The entry that granted it.
    pub granted: LogIndex,
    /// The leader's wall clock then, for display.
    pub granted_unix_ms: u64,
    /// Why, in words.
    pub reason: String,
    /// The directive it followed from, when it followed from one.
    pub directive: Option<Directive>,
}

impl Partition {
    /// The partition as the state has it; `None` when there is no such partition.
    pub fn read(state: &State, key: PartitionKey) -> Option<Partition> {
        let partition = state.partition(key)?;
        let (moving, cooling) = match partition.phase() {
            state::Phase::Draining(drain) => (Some(target(drain)), String::new()),
            state::Phase::Cooling(cooling) => (None, cooling_in_words(cooling)),
            state::Phase::Vacant | state::Phase::Owned { .. } => (None, String::new()),
        };
        Some(Partition {
            keyspace: state.keyspace(key.keyspace)?.name().clone(),
            partition: key.partition,
            phase: partition.phase().into(),
            epoch: partition.epoch(),
            ready: partition.ready(),
            owner: partition.owner().and_then(|session| Owner::read(state, session)),
            moving,
            cooling,
            failures: partition.setback().map_or(0, |setback| setback.count),
            last_error: partition.setback().map_or(String::new(), |setback| shown(&setback.error)),
            load: None,
        })
    }
}

impl Tenure {
    /// A grant as the state remembers it.
    pub fn read(state: &State, from: &state::Tenure) -> Tenure {
        Tenure {
            epoch: from.epoch,
            worker: from.worker.clone(),
            session: from.session,
            granted: from.at,
            granted_unix_ms: from.unix_ms,
            reason: reason_in_words(from.why).to_owned(),
            directive: from.directive.map(|at| Directive::named(state, at)),
        }
    }
}

fn target(drain: &Drain) -> (WorkerId, MoveId) {
    (drain.to.clone(), drain.move_id)
}

fn cooling_in_words(cooling: &Cooling) -> String {
    let then = cooling.then.as_millis();
    match (cooling.why, cooling.lease_of) {
        (CoolingWhy::Lease, Some((session, ttl))) if cooling.then.is_zero() => {
            format!("the lease of {session} runs out, at most {}ms", ttl.as_millis())
        }
        (CoolingWhy::Lease, Some((session, ttl))) => {
            format!(
                "the lease of {session} runs out, at most {}ms, and then a lock delay of {then}ms",
                ttl.as_millis()
            )
        }
        // Of a keyspace that was created again under its name, no session is known any more.
        (CoolingWhy::Lease, None) => {
            format!("leases of owners in a deleted keyspace of this name run out, at most {then}ms")
        }
        (CoolingWhy::LockDelay, _) => format!("a lock delay of {then}ms"),
        (CoolingWhy::Backoff, _) => format!("a back-off of {then}ms after a failed task"),
        (CoolingWhy::Hold, _) => format!("its last owner restarts, at most {then}ms"),
    }
}

fn reason_in_words(why: GrantReason) -> &'static str {
    match why {
        GrantReason::First => "first owner",
        GrantReason::Failover => "failover",
        GrantReason::Vacated => "vacated by its owner",
        GrantReason::Balance => "balance",
        GrantReason::Operator => "moved by an operator",
        GrantReason::Join => "a worker joined",
        GrantReason::Drain => "its owner is drained",
        GrantReason::Weight => "a weight changed",
        GrantReason::Zone => "zone spread",
        GrantReason::Pin => "pinned",
        GrantReason::Load => "load",
        GrantReason::Label => "its owner's labels do not fit",
        GrantReason::Plan => "a plan",
        GrantReason::Returned => "its owner restarted",
        GrantReason::Split => "split",
        GrantReason::Reassert => "its fences are raised again",
        GrantReason::Behind => "its storage had seen a higher epoch",
    }
}

impl From<Partition> for v1::Partition {
    fn from(from: Partition) -> v1::Partition {
        let (moving_to, move_id) = match from.moving {
            Some((to, move_id)) => (to.to_string(), move_id.get()),
            None => (String::new(), 0),
        };
        v1::Partition {
            keyspace: from.keyspace.to_string(),
            partition: from.partition.get(),
            phase: v1::Phase::from(from.phase).into(),
            epoch: from.epoch.map_or(0, Epoch::get),
            ready: from.ready,
            owner: from.owner.map(Into::into),
            moving_to,
            r#move: move_id,
            cooling: from.cooling,
            failures: from.failures,
            last_error: from.last_error,
            load: from.load.unwrap_or(0),
        }
    }
}

impl TryFrom<v1::Partition> for Partition {
    type Error = InvalidField;

    fn try_from(wire: v1::Partition) -> Result<Partition, InvalidField> {
        let moving = match wire.moving_to.as_str() {
            "" => None,
            to => Some((worker_id("moving_to", to)?, MoveId::new(wire.r#move))),
        };
        Ok(Partition {
            keyspace: keyspace_name("keyspace", &wire.keyspace)?,
            partition: PartitionId::new(wire.partition),
            phase: wire.phase.try_into()?,
            epoch: epoch_or_none("epoch", wire.epoch)?,
            ready: wire.ready,
            owner: wire
                .owner
                .map(|owner| Owner::try_from(owner).map_err(|e| e.within("owner")))
                .transpose()?,
            moving,
            cooling: shown(&wire.cooling),
            failures: wire.failures,
            last_error: shown(&wire.last_error),
            load: Some(wire.load).filter(|load| *load > 0),
        })
    }
}

impl From<Tenure> for v1::Tenure {
    fn from(from: Tenure) -> v1::Tenure {
        v1::Tenure {
            epoch: from.epoch.get(),
            worker: from.worker.to_string(),
            session: from.session.get(),
            granted_index: from.granted.get(),
            granted_unix_ms: from.granted_unix_ms,
            reason: from.reason,
            directive: from.directive.map(Into::into),
        }
    }
}

impl TryFrom<v1::Tenure> for Tenure {
    type Error = InvalidField;

    fn try_from(wire: v1::Tenure) -> Result<Tenure, InvalidField> {
        Ok(Tenure {
            epoch: epoch("epoch", wire.epoch)?,
            worker: worker_id("worker", &wire.worker)?,
            session: session("session", wire.session)?,
            granted: LogIndex::new(wire.granted_index),
            granted_unix_ms: wire.granted_unix_ms,
            reason: shown(&wire.reason),
            directive: wire.directive.map(Into::into),
        })
    }
}
