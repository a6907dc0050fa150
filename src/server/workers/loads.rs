//! What workers measure of partitions: which loads are asked for, and what becomes of what is told.
//!
//! Loads are for the leader of this moment alone. They are taken in without a confirmation round and are not answered: a
//! leader that is deposed and does not know it yet decides nothing by them that would be committed.

use crate::replica::Local;
use ringfence_api::Failure;
use ringfence_api::v1::Measure;
use ringfence_api::v1::attach_request::Loads;
use ringfence_core::ids::{KeyspaceName, PartitionId, PartitionKey, SessionId, Term};
use ringfence_core::lead::Leadership;
use ringfence_core::state::{BalanceBy, Keyspace, Session, State};
use ringfence_core::time::Instant;
use std::time::Duration;

/// How many partitions one message may tell of.
const MAX_TOLD: usize = 1_000;
/// What comes sooner after the last message of its stream is passed over: a worker sends one in 20 ms at the most.
const LEAST_PAUSE: Duration = Duration::from_millis(5);

/// What the leader wants to know of a session, when it is anything.
pub(super) fn wanted(leadership: &Leadership, state: &State, session: &Session) -> Option<Measure> {
    let by_load = |keyspace: &&Keyspace| keyspace.policy().balance_by() == BalanceBy::Load;
    let of = session.keyspaces().iter().filter_map(|id| state.keyspace(*id)).filter(by_load);
    let keyspaces: Vec<String> = of.map(|keyspace| keyspace.name().to_string()).collect();
    let every = leadership.placing.settings().measure_every;
    let every_ms = u64::try_from(every.as_millis()).unwrap_or(u64::MAX);
    (!keyspaces.is_empty()).then_some(Measure { keyspaces, every_ms })
}

/// The messages of one stream.
#[derive(Debug, Default)]
pub(super) struct Told {
    last: Option<Instant>,
}

impl Told {
    /// Takes a message in. What it says of partitions that are not the session's is passed over.
    ///
    /// # Errors
    /// [`Failure`] when it breaks the contract: more partitions than one may tell of, or lists of different lengths.
    pub(super) fn take(
        &mut self,
        now: Instant,
        local: &mut Local,
        term: Term,
        session: SessionId,
        message: &Loads,
    ) -> Result<(), Failure> {
        if let Some(of) = message.keyspaces.iter().find(|of| of.partitions.len() != of.loads.len()) {
            let (partitions, loads) = (of.partitions.len(), of.loads.len());
            return Err(Failure::invalid(format!(
                "loads: there are {partitions} partitions and {loads} loads of one keyspace; each partition has one"
            )));
        }
        if message.keyspaces.iter().map(|of| of.loads.len().max(1)).sum::<usize>() > MAX_TOLD {
            return Err(Failure::limit(format!("loads: a message tells of at most {MAX_TOLD} partitions")));
        }
        if self.last.is_some_and(|last| now.since(last) < LEAST_PAUSE) {
            return Ok(());
        }
        self.last = Some(now);
        let Local { state, leadership, .. } = local;
        let Some(leadership) = leadership.as_mut().filter(|led| led.term() == term) else { return Ok(()) };
        for of in &message.keyspaces {
            let Ok(name) = KeyspaceName::new(&of.keyspace) else { continue };
            let Some(keyspace) = state.keyspace_named(&name).map(Keyspace::id) else { continue };
            for (partition, load) in of.partitions.iter().zip(&of.loads) {
                let key = PartitionKey { keyspace, partition: PartitionId::new(*partition) };
                leadership.measure(now, state, session, key, *load);
            }
        }
        Ok(())
    }
}
