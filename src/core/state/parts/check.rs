//! Parts made into a state, if they can have been one.

use super::{KeyspaceParts, OperatorAnswer, PartitionParts, SessionParts, StateParts, splits, told};
use crate::ids::{
    Epoch, EpochFloor, KeyspaceId, KeyspaceName, LockName, LogIndex, PartitionKey, SessionId, WorkerId,
};
use crate::placement::{PartitionCount, PartitionCountError};
use crate::state::State;
use crate::state::answers::{OPERATOR_ANSWERS, OperatorAnswers, SESSION_ANSWERS, SessionAnswers};
use crate::state::counters::Counters;
use crate::state::keyspace::{DELETED_LEN, Deleted, Keyspace, MAX_KEYSPACES, MAX_TOTAL_PARTITIONS};
use crate::state::outcome::Outcome;
use crate::state::partition::{HISTORY_LEN, MAX_FAILURE_BYTES, Partition, Phase};
use crate::state::session::{ENDED_LEN, Ended, MAX_ADDRESS_BYTES, MAX_SESSIONS, Session};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Parts that no state can have had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PartsError {
    /// A number was given that its counter has not reached.
    #[error("{what} {number} exists, and the next one to be given is {next}")]
    NotGivenYet {
        /// What is numbered.
        what: &'static str,
        /// The number that exists.
        number: u64,
        /// The counter.
        next: u64,
    },
    /// Something happened in an entry that was not applied yet.
    #[error("{what} is of entry {at}, and the last one applied is {applied}")]
    NotAppliedYet {
        /// What happened.
        what: &'static str,
        /// The entry it names.
        at: LogIndex,
        /// The last entry applied.
        applied: LogIndex,
    },
    /// What has to ascend does not; it may be there twice.
    #[error("{what} are out of order, or one is there twice")]
    Order {
        /// What has to ascend.
        what: &'static str,
    },
    /// A name has two bearers.
    #[error("{what} {name} is there twice")]
    NameTwice {
        /// What bears the name.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// Settings in which nothing is set, which are never kept.
    #[error("{what} {name} has settings in which nothing is set")]
    NothingSet {
        /// What has them.
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// There is more of something than may be.
    #[error("{what} is {count}, above its bound of {bound}")]
    Bound {
        /// What is counted.
        what: &'static str,
        /// How much there is.
        count: u64,
        /// How much there may be.
        bound: u64,
    },
    /// A keyspace without partitions, or with too many.
    #[error("keyspace {keyspace}: {why}")]
    PartitionCount {
        /// The keyspace.
        keyspace: KeyspaceId,
        /// Its bounds.
        why: PartitionCountError,
    },
    /// A keyspace's floor is above the cluster's, where it came from.
    #[error("keyspace {keyspace} has its floor at {floor}, above the cluster's at {cluster}")]
    Floor {
        /// The keyspace.
        keyspace: KeyspaceId,
        /// Its floor.
        floor: u64,
        /// The cluster's floor.
        cluster: u64,
    },
    /// A partition contradicts itself, its keyspace or its owner's session.
    #[error("partition {partition}: {why}")]
    Partition {
        /// The partition.
        partition: PartitionKey,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The partitions of a keyspace do not come from splitting one after the other.
    #[error("keyspace {keyspace}: {why}")]
    Split {
        /// The keyspace.
        keyspace: KeyspaceId,
        /// What is wrong.
        why: &'static str,
    },
    /// A lock contradicts itself, or the sessions that hold it or wait for it.
    #[error("lock {lock}: {why}")]
    Lock {
        /// The lock.
        lock: LockName,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A session contradicts itself or what is known of ended ones.
    #[error("session {session}: {why}")]
    Session {
        /// The session.
        session: SessionId,
        /// What is wrong with it.
        why: &'static str,
    },
}

impl State {
    /// The state that these parts are of.
    ///
    /// # Errors
    /// [`PartsError`] when they contradict each other; it names the first contradiction found. Never a panic, whatever
    /// the parts are.
    pub fn from_parts(parts: StateParts) -> Result<State, PartsError> {
        let check = Check(Counters {
            floor: parts.floor,
            lock_epoch: parts.lock_epoch,
            next_keyspace: parts.next_keyspace,
            next_session: parts.next_session,
            next_move: parts.next_move,
            revision: parts.revision,
            applied: parts.applied,
        });
        check.applied("the map's revision", parts.revision)?;
        ascending("the node ids", parts.nodes.iter())?;
        let (mut sessions, workers) = check.sessions(parts.sessions)?;
        let ended = check.ended(parts.ended, &sessions)?;
        let (keyspaces, names) = check.keyspaces(parts.keyspaces, &mut sessions)?;
        splits::sessions(&keyspaces, &sessions)?;
        let locks = check.locks(parts.locks, &mut sessions)?;
        let deleted = deleted(parts.deleted, &names)?;
        let answers = check.operator_answers(parts.answers, parts.answers_dropped)?;
        let directives = check.directives(parts.directives)?;
        let worker_settings = check.worker_settings(parts.worker_settings)?;
        check.directed(parts.frozen)?;
        let plans = check.plans(parts.plans)?;
        let refusals = check.refusals(parts.refusals)?;
        let reasserts = check.reasserts(parts.reasserts, &keyspaces)?;
        Ok(State {
            cluster: parts.cluster,
            counters: check.0,
            nodes: parts.nodes.into_iter().collect(),
            keyspaces,
            names,
            sessions,
            workers,
            ended,
            deleted,
            answers,
            directives,
            worker_settings,
            frozen: parts.frozen,
            plans,
            refusals,
            reasserts,
            locks,
        })
    }
}

/// A name is remembered once, and not while a keyspace has it.
fn deleted(parts: Vec<Deleted>, names: &Names) -> Result<VecDeque<Deleted>, PartsError> {
    bound("the number of deleted keyspaces remembered", parts.len(), DELETED_LEN)?;
    let mut seen = BTreeSet::new();
    if !parts.iter().all(|deleted| !names.contains_key(&deleted.name) && seen.insert(&deleted.name)) {
        return Err(PartsError::Order { what: "the deleted keyspaces" });
    }
    Ok(parts.into())
}

/// The counters, which everything is held against.
pub(super) struct Check(pub(super) Counters);

pub(super) type Sessions = BTreeMap<SessionId, Session>;
type Workers = BTreeMap<WorkerId, SessionId>;
type Keyspaces = BTreeMap<KeyspaceId, Keyspace>;
type Names = BTreeMap<KeyspaceName, KeyspaceId>;

impl Check {
    pub(super) fn applied(&self, what: &'static str, at: LogIndex) -> Result<(), PartsError> {
        let applied = self.0.applied;
        if at > applied { Err(PartsError::NotAppliedYet { what, at, applied }) } else { Ok(()) }
    }

    pub(super) fn given_session(&self, id: SessionId) -> Result<(), PartsError> {
        given("session", id.get(), self.0.next_session)
    }

    fn given_keyspace(&self, id: KeyspaceId) -> Result<(), PartsError> {
        given("keyspace", u64::from(id.get()), u64::from(self.0.next_keyspace))
    }

    fn sessions(&self, parts: Vec<SessionParts>) -> Result<(Sessions, Workers), PartsError> {
        bound("the number of sessions", parts.len(), MAX_SESSIONS)?;
        ascending("the sessions", parts.iter().map(|session| session.id))?;
        let mut sessions = BTreeMap::new();
        let mut workers = BTreeMap::new();
        for part in parts {
            if workers.insert(part.worker.clone(), part.id).is_some() {
                return Err(PartsError::NameTwice { what: "worker", name: part.worker.to_string() });
            }
            sessions.insert(part.id, self.session(part)?);
        }
        Ok((sessions, workers))
    }

    fn session(&self, part: SessionParts) -> Result<Session, PartsError> {
        let wrong = |why| Err(PartsError::Session { session: part.id, why });
        self.given_session(part.id)?;
        self.applied("the opening of a session", part.joined)?;
        self.applied("the assignment of a session", part.assignment)?;
        if part.assignment < part.joined {
            return wrong("its assignment is older than it is");
        }
        if let Some(suspicion) = part.suspicion {
            self.applied("the suspicion of a session", suspicion.at)?;
            if !(1..=2).contains(&suspicion.thirds) {
                return wrong("it is suspected for another time than 1 or 2 thirds of its ttl");
            }
        }
        for keyspace in &part.keyspaces {
            self.given_keyspace(*keyspace)?;
        }
        bound("the number of answers kept for a session", part.answers.len(), SESSION_ANSWERS)?;
        ascending("the answers of a session", part.answers.iter().map(|(number, _)| *number))?;
        if part.answers.first().is_some_and(|(number, _)| *number < part.settled_below) {
            return wrong("it keeps an answer that it has settled");
        }
        part.answers.iter().try_for_each(|(_, outcomes)| self.outcomes(outcomes))?;
        Ok(Session {
            id: part.id,
            worker: part.worker,
            ttl: part.ttl,
            nonce: part.nonce,
            secret_hash: part.secret_hash,
            address: part.address,
            weight: part.weight,
            labels: part.labels,
            keyspaces: part.keyspaces,
            withdrawn: part.withdrawn,
            suspicion: part.suspicion,
            assignment: part.assignment,
            holds: BTreeSet::new(),
            joined: part.joined,
            joined_unix_ms: part.joined_unix_ms,
            answers: SessionAnswers {
                settled_below: part.settled_below,
                kept: part.answers.into_iter().collect(),
            },
            splits: part.splits,
            locks: BTreeSet::new(),
            waits: BTreeSet::new(),
        })
    }

    fn ended(&self, parts: Vec<Ended>, sessions: &Sessions) -> Result<VecDeque<Ended>, PartsError> {
        bound("the number of ended sessions remembered", parts.len(), ENDED_LEN)?;
        if !parts.is_sorted_by_key(|ended| ended.at) {
            return Err(PartsError::Order { what: "the ended sessions" });
        }
        let mut seen = BTreeSet::new();
        for ended in &parts {
            self.given_session(ended.session)?;
            self.applied("the end of a session", ended.at)?;
            if let Some(life) = &ended.life {
                bound("the length of an ended session's address", life.address.len(), MAX_ADDRESS_BYTES)?;
                self.applied("the join of an ended session", life.joined)?;
            }
            if sessions.contains_key(&ended.session) || !seen.insert(ended.session) {
                let why = "it has ended, and is there again";
                return Err(PartsError::Session { session: ended.session, why });
            }
        }
        Ok(parts.into())
    }

    fn keyspaces(
        &self,
        parts: Vec<KeyspaceParts>,
        sessions: &mut Sessions,
    ) -> Result<(Keyspaces, Names), PartsError> {
        bound("the number of keyspaces", parts.len(), MAX_KEYSPACES)?;
        ascending("the keyspaces", parts.iter().map(|keyspace| keyspace.id))?;
        let partitions: u64 = parts.iter().map(splits::reserved).sum();
        if partitions > MAX_TOTAL_PARTITIONS {
            let what = "the number of partitions of all keyspaces";
            return Err(PartsError::Bound { what, count: partitions, bound: MAX_TOTAL_PARTITIONS });
        }
        let mut keyspaces = BTreeMap::new();
        let mut names = BTreeMap::new();
        for part in parts {
            if names.insert(part.name.clone(), part.id).is_some() {
                return Err(PartsError::NameTwice { what: "keyspace", name: part.name.to_string() });
            }
            keyspaces.insert(part.id, self.keyspace(part, sessions)?);
        }
        Ok((keyspaces, names))
    }

    fn keyspace(&self, part: KeyspaceParts, sessions: &mut Sessions) -> Result<Keyspace, PartsError> {
        let id = part.id;
        self.given_keyspace(id)?;
        if part.floor > self.0.floor {
            let (floor, cluster) = (part.floor.get(), self.0.floor.get());
            return Err(PartsError::Floor { keyspace: id, floor, cluster });
        }
        let number = u32::try_from(part.partitions.len()).unwrap_or(u32::MAX);
        let count =
            PartitionCount::new(number).map_err(|why| PartsError::PartitionCount { keyspace: id, why })?;
        let partitioner = splits::partitioner(&part, count)?;
        let minted = splits::minted(&part)?;
        let mut partitions = Vec::with_capacity(part.partitions.len());
        for (partition, part_of_it) in count.partitions().zip(part.partitions) {
            let key = PartitionKey { keyspace: id, partition };
            let minted = minted.get(&partition).copied();
            partitions.push(self.partition(key, (part.floor, minted), part_of_it, sessions)?);
        }
        self.directed(part.frozen)?;
        self.directed(part.split)?;
        let raised = told::raised(id, &partitions, part.raised)?;
        Ok(Keyspace {
            id,
            name: part.name,
            policy: part.policy,
            floor: part.floor,
            partitioner,
            split: part.split,
            partitions,
            settings: self.partition_settings(id, count, part.settings)?,
            frozen: part.frozen,
            raised,
        })
    }

    fn partition(
        &self,
        key: PartitionKey,
        (floor, minted): (EpochFloor, Option<Epoch>),
        part: PartitionParts,
        sessions: &mut Sessions,
    ) -> Result<Partition, PartsError> {
        let wrong = |why| Err(PartsError::Partition { partition: key, why });
        self.history(key, floor, minted, &part)?;
        self.directed(part.born.and_then(|born| born.by))?;
        let owner = match &part.phase {
            Phase::Vacant => None,
            Phase::Cooling(cooling) => {
                if part.epoch == EpochFloor::NONE {
                    return wrong("it cools and nothing was ever granted");
                }
                if let Some((session, _)) = cooling.lease_of {
                    self.given_session(session)?;
                    if sessions.contains_key(&session) {
                        return wrong("it waits for the lease of a session that lives");
                    }
                }
                None
            }
            Phase::Owned { session, .. } => Some(*session),
            Phase::Draining(drain) => {
                given("move", drain.move_id.get(), self.0.next_move)?;
                self.directed(drain.directive)?;
                Some(drain.session)
            }
        };
        if let Some(owner) = owner {
            let Some(session) = sessions.get_mut(&owner) else {
                return wrong("its owner's session is not there");
            };
            if !session.keyspaces.contains(&key.keyspace) {
                return wrong("its owner does not serve its keyspace");
            }
            if !part.history.last().is_some_and(|last| last.session == owner && last.worker == session.worker)
            {
                return wrong("its last grant was not to its owner");
            }
            session.holds.insert(key);
        }
        if let Some(setback) = &part.setback
            && (setback.count == 0 || setback.error.len() > MAX_FAILURE_BYTES)
        {
            return wrong("its setback counts no failure, or has an error that is too long");
        }
        Ok(Partition {
            epoch: part.epoch,
            phase: part.phase,
            history: part.history,
            setback: part.setback.map(Box::new),
            born: part.born,
        })
    }

    /// G2 rests on this: the partition's epoch is that of its last grant, and each grant's is above all earlier ones
    /// and above the floor that the keyspace was created with.
    /// `minted` is the epoch that the partition's last split minted.
    fn history(
        &self,
        key: PartitionKey,
        floor: EpochFloor,
        minted: Option<Epoch>,
        part: &PartitionParts,
    ) -> Result<(), PartsError> {
        let wrong = |why| Err(PartsError::Partition { partition: key, why });
        bound("the number of grants remembered of a partition", part.history.len(), HISTORY_LEN)?;
        let born = part.born.map_or(EpochFloor::NONE, |born| EpochFloor::of(born.epoch));
        let begin = floor.max(born);
        let mut above = begin;
        let mut after = LogIndex::new(0);
        for tenure in &part.history {
            self.given_session(tenure.session)?;
            self.applied("the grant of a partition", tenure.at)?;
            self.directed(tenure.directive)?;
            if EpochFloor::of(tenure.epoch) <= above || tenure.at < after {
                return wrong("its epochs do not grow from grant to grant, or from its keyspace's floor");
            }
            (above, after) = (EpochFloor::of(tenure.epoch), tenure.at);
        }
        let owned = matches!(part.phase, Phase::Owned { .. } | Phase::Draining(_));
        match (part.history.last(), part.epoch.epoch()) {
            (_, Some(epoch)) if minted == Some(epoch) => {
                if owned || part.epoch <= above {
                    return wrong(
                        "it is owned under an epoch that a split minted, or had that before it was split",
                    );
                }
                Ok(())
            }
            (Some(last), Some(epoch)) if last.epoch == epoch => Ok(()),
            // What was born stands at the epoch of that, and what belongs to a keyspace whose name was used before at what
            // the earlier one left behind.
            (None, Some(_)) if part.epoch == begin => Ok(()),
            (None, None) if part.born.is_none() => Ok(()),
            _ => wrong("its epoch is not that of its last grant"),
        }
    }

    fn operator_answers(
        &self,
        parts: Vec<OperatorAnswer>,
        dropped: Option<LogIndex>,
    ) -> Result<OperatorAnswers, PartsError> {
        bound("the number of answers kept for operators", parts.len(), OPERATOR_ANSWERS)?;
        let forgotten = dropped.into_iter();
        if !forgotten.chain(parts.iter().map(|answer| answer.at)).is_sorted() {
            return Err(PartsError::Order { what: "the answers for operators" });
        }
        if let Some(dropped) = dropped {
            self.applied("the youngest answer forgotten", dropped)?;
        }
        let mut answers = OperatorAnswers { dropped, ..OperatorAnswers::default() };
        for answer in parts {
            self.applied("an answer for an operator", answer.at)?;
            self.outcomes(&answer.outcomes)?;
            answers.order.push_back(answer.id);
            if answers.kept.insert(answer.id, (answer.at, answer.outcomes)).is_some() {
                return Err(PartsError::Order { what: "the answers for operators" });
            }
        }
        Ok(answers)
    }

    /// What was answered has been given: a retry must not be told of a session that another worker gets later.
    fn outcomes(&self, outcomes: &[Outcome]) -> Result<(), PartsError> {
        outcomes.iter().try_for_each(|outcome| match outcome {
            Outcome::Created(id) => self.given_keyspace(*id),
            Outcome::Joined(id) => self.given_session(*id),
            Outcome::Draining(id) => given("move", id.get(), self.0.next_move),
            Outcome::Planned(id) => self.applied("the opening of a plan", *id),
            Outcome::Done
            | Outcome::Unchanged
            | Outcome::Granted(_)
            | Outcome::LeftVacant
            | Outcome::Queued(_) => Ok(()),
        })
    }
}

fn given(what: &'static str, number: u64, next: u64) -> Result<(), PartsError> {
    if number < next { Ok(()) } else { Err(PartsError::NotGivenYet { what, number, next }) }
}

pub(super) fn bound(what: &'static str, count: usize, bound: usize) -> Result<(), PartsError> {
    let (count, bound) = (count as u64, bound as u64);
    if count <= bound { Ok(()) } else { Err(PartsError::Bound { what, count, bound }) }
}

pub(super) fn ascending<T: Ord>(what: &'static str, of: impl Iterator<Item = T>) -> Result<(), PartsError> {
    if of.is_sorted_by(|a, b| a < b) { Ok(()) } else { Err(PartsError::Order { what }) }
}
