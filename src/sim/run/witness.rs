//! A witness that sees into every node: what its log granted, who led, and whether all nodes became the same.

use super::directed::Directed;
use crate::actors::node::Node;
use crate::history::{Grant, Recorder, What, unseen};
use ringfence_core::ids::{KeyspaceId, LogIndex, PartitionId, Scope};
use ringfence_core::state::{Phase, State, Tenure};
use ringfence_server::raft::RaftStatus;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use tokio::sync::watch;

/// What was seen so far.
#[derive(Default)]
pub(super) struct Witness {
    lives: BTreeMap<u64, Life>,
    elected: BTreeSet<(u64, u64)>,
    states: BTreeMap<LogIndex, (u64, u64)>,
    directed: Directed,
    told: Told,
    /// All is steady: a life that begins to read its log tells only what nobody has told before.
    pub(super) steady: bool,
    /// Nodes that applied the same entries and became different.
    pub(super) diverged: Vec<String>,
}

type Key = (KeyspaceId, PartitionId);

/// What any life of any node has told of.
#[derive(Default)]
struct Told {
    grants: BTreeSet<(Key, Grant)>,
    vacated: BTreeSet<(Key, Grant)>,
    /// The latest entry that granted a partition.
    latest: BTreeMap<Key, u64>,
}

/// One life of a node: one reading of the log.
#[derive(Default)]
struct Life {
    number: u64,
    watched: Option<(watch::Receiver<RaftStatus>, watch::Receiver<LogIndex>)>,
    /// How far it had come when it was looked at last.
    applied: u64,
    seen: BTreeMap<Key, Seen>,
}

/// What one life has seen of a partition.
#[derive(Default)]
struct Seen {
    grants: Vec<Grant>,
    vacated: Option<Grant>,
}

/// What one life has to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Granted,
    Vacated,
}

impl Witness {
    /// A node begins to read its log anew.
    pub(super) fn restarted(&mut self, node: u64) {
        let life = self.lives.entry(node).or_default();
        *life = Life { number: life.number + 1, ..Life::default() };
    }

    /// How many terms a node was seen to lead.
    pub(super) fn elections(&self) -> u64 {
        self.elected.len() as u64
    }

    /// Looks at a node.
    pub(super) fn look(&mut self, node: &mut Node, at_us: u64, recorder: &Recorder) {
        let (id, Some(context)) = (node.id, node.context()) else { return };
        let life = self.lives.entry(id).or_default();
        let first = life.watched.is_none();
        let (status, applied) =
            life.watched.get_or_insert_with(|| (context.raft.status(), context.replica.applied()));
        if first || status.has_changed().unwrap_or(false) {
            let status = status.borrow_and_update();
            if status.leads() && self.elected.insert((status.term.get(), id)) {
                let elected = What::Elected { term: status.term, node: status.node };
                recorder.record(at_us, format!("n{id}"), elected);
            }
        }
        if first || applied.has_changed().unwrap_or(false) {
            applied.borrow_and_update();
            let local = context.replica.lock();
            let led = (status.borrow().leads(), status.borrow().last_log);
            let before = std::mem::replace(&mut life.applied, local.state.applied().get());
            self.directed.look(&local.state, before, led, |what| {
                recorder.record(at_us, format!("n{id}"), what);
            });
            let actor = format!("n{id}.{}", life.number);
            let (told, steady) = (&mut self.told, self.steady);
            life.read(&local.state, |key, change, grant, what| {
                if told.first(key, change, grant) || !steady {
                    recorder.record(at_us, actor.as_str(), what);
                }
            });
            self.compare(id, &local.state);
        }
    }

    fn compare(&mut self, node: u64, state: &State) {
        let mut hasher = DefaultHasher::new();
        state.hash(&mut hasher);
        let hash = hasher.finish();
        let (first, known) = *self.states.entry(state.applied()).or_insert((node, hash));
        if known != hash {
            let at = state.applied().get();
            self.diverged.push(format!("nodes {first} and {node} differ after entry {at}"));
        }
    }
}

impl Told {
    /// Whether nobody has told this before, and nobody what came after it: a life that begins to read its log passes by
    /// moments that others never saw.
    fn first(&mut self, key: Key, change: Change, grant: Grant) -> bool {
        let latest = self.latest.entry(key).or_default();
        match change {
            Change::Granted => {
                *latest = grant.entry.max(*latest);
                self.grants.insert((key, grant))
            }
            Change::Vacated => self.vacated.insert((key, grant)) && grant.entry >= *latest,
        }
    }
}

impl Life {
    fn read(&mut self, state: &State, mut tell: impl FnMut(Key, Change, Grant, What)) {
        for keyspace in state.keyspaces() {
            for (partition, number) in keyspace.partitions().iter().zip(0..) {
                let partition_id = PartitionId::new(number);
                let key = (keyspace.id(), partition_id);
                let scope = || Scope::Partition(keyspace.name().clone(), partition_id);
                let seen = self.seen.entry(key).or_default();
                seen.read(scope, partition.history(), partition.phase(), |change, grant, what| {
                    tell(key, change, grant, what);
                });
            }
        }
    }
}

impl Seen {
    /// Tells every grant that was not told yet, whatever its epoch, and whether it was taken back.
    fn read(
        &mut self,
        scope: impl Fn() -> Scope,
        history: &[Tenure],
        phase: &Phase,
        mut tell: impl FnMut(Change, Grant, What),
    ) {
        for (grant, tenure) in unseen(&mut self.grants, history, grant) {
            let granted = What::Granted {
                scope: scope(),
                epoch: tenure.epoch,
                session: tenure.session,
                worker: tenure.worker.clone(),
                entry: Some(grant.entry),
            };
            tell(Change::Granted, grant, granted);
        }
        let why = match phase {
            Phase::Vacant => "nobody has it".to_owned(),
            Phase::Cooling(cooling) => format!("it cools: {:?}", cooling.why),
            Phase::Owned { .. } | Phase::Draining(_) => return,
        };
        if let Some(last) = history.last().map(grant)
            && self.vacated.replace(last) != Some(last)
        {
            tell(Change::Vacated, last, What::Vacated { scope: scope(), epoch: last.epoch, why });
        }
    }
}

fn grant(tenure: &Tenure) -> Grant {
    Grant { entry: tenure.at.get(), session: tenure.session, epoch: tenure.epoch }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::{Rule, Rules, check};
    use ringfence_core::ids::{Epoch, SessionId};
    use ringfence_core::state::GrantReason;

    fn tenure(entry: u64, epoch: u64, session: u64) -> Tenure {
        Tenure {
            epoch: Epoch::new(epoch).unwrap(),
            session: SessionId::new(session).unwrap(),
            worker: format!("w{session}").parse().unwrap(),
            at: LogIndex::new(entry),
            unix_ms: 0,
            why: GrantReason::First,
            directive: None,
        }
    }

    /// What the judge says of a log that is looked at after each of these grants.
    fn judged(grants: &[(u64, u64)]) -> Vec<Rule> {
        let (recorder, mut seen, mut log) = (Recorder::new(), Seen::default(), Vec::new());
        let owned = Phase::Owned { session: SessionId::new(1).unwrap(), ready: true };
        for (entry, (epoch, session)) in (1..).zip(grants) {
            log.push(tenure(entry, *epoch, *session));
            let scope = || "orders/0".parse().unwrap();
            seen.read(scope, &log, &owned, |_, _, what| recorder.record(entry, "n1.1", what));
        }
        let verdict = check(&recorder.take(), &Rules::default());
        verdict.violations.iter().map(|violation| violation.rule).collect()
    }

    #[test]
    fn a_grant_under_an_epoch_that_does_not_grow_is_told_and_found() {
        assert_eq!(judged(&[(4, 1), (5, 2)]), []);
        assert_eq!(judged(&[(5, 1), (5, 2)]), [Rule::EpochsGrow, Rule::GrantedOnce, Rule::OneOwner]);
        assert_eq!(judged(&[(5, 1), (4, 2)]), [Rule::EpochsGrow]);
        assert_eq!(judged(&[(5, 1), (5, 1)]), [Rule::EpochsGrow]);
    }

    #[test]
    fn what_is_taken_back_is_told_once_a_life_and_is_news_once() {
        let (mut seen, mut told, key) =
            (Seen::default(), Told::default(), (KeyspaceId::new(1), PartitionId::new(0)));
        let log = [tenure(3, 1, 1), tenure(7, 2, 2)];
        let mut changes = |seen: &mut Seen, log: &[Tenure], phase: &Phase| {
            let mut changes = Vec::new();
            seen.read(
                || "orders/0".parse().unwrap(),
                log,
                phase,
                |change, grant, _| {
                    changes.push((change, grant.entry, told.first(key, change, grant)));
                },
            );
            changes
        };
        let vacant = Phase::Vacant;
        assert_eq!(
            changes(&mut seen, &log, &vacant),
            [(Change::Granted, 3, true), (Change::Granted, 7, true), (Change::Vacated, 7, true)]
        );
        assert_eq!(changes(&mut seen, &log, &vacant), []);
        // Another life passes by what lies behind: that is no news.
        let mut later = Seen::default();
        assert_eq!(
            changes(&mut later, &log[..1], &vacant),
            [(Change::Granted, 3, false), (Change::Vacated, 3, false)]
        );
        assert_eq!(
            changes(&mut later, &log, &vacant),
            [(Change::Granted, 7, false), (Change::Vacated, 7, false)]
        );
    }
}
