//! What operators decided about where partitions are is done, and nothing is done that it forbids.
//!
//! Whether a decision came too late for a move or a grant is told by the log: what was decided by a leader that knew it
//! has an entry above the one that the history names. So no bound on time is needed, and no slack.

use super::{Rule, Verdict};
use crate::history::{Fact, History, What};
use ringfence_core::ids::{Epoch, KeyspaceName, Scope, WorkerId};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

pub(super) fn check(history: &History, verdict: &mut Verdict) {
    let facts = Facts::of(history);
    if !facts.0.is_empty() {
        moves_of_what_is_frozen(history, &facts, verdict);
        grants_to_who_takes_none(history, &facts, verdict);
        holds(history, verdict);
        at_rest(history, verdict);
    }
}

/// When a fact was so, in entries of the log.
struct Span {
    /// The event that says so.
    event: usize,
    /// Who decided an entry above this one knew it.
    known: u64,
    /// Up to this entry it was still so.
    until: u64,
}

struct Facts<'a>(HashMap<&'a Fact, Vec<Span>>);

impl Facts<'_> {
    fn of(history: &History) -> Facts<'_> {
        let mut facts: HashMap<&Fact, Vec<Span>> = HashMap::new();
        for (event, what) in history.events.iter().map(|event| &event.what).enumerate() {
            let What::Holds { fact, holds, after, known } = what else { continue };
            let spans = facts.entry(fact).or_default();
            match spans.last_mut() {
                _ if *holds => spans.push(Span { event, known: *known, until: u64::MAX }),
                Some(span) => span.until = span.until.min(*after),
                None => {}
            }
        }
        Facts(facts)
    }

    /// The event since which a fact was so for whoever decided the entries above `after`, up to `seen`.
    fn throughout(&self, fact: &Fact, after: u64, seen: u64) -> Option<usize> {
        let spans = self.0.get(fact)?;
        spans.iter().find(|span| span.known <= after && seen <= span.until).map(|span| span.event)
    }
}

/// A freeze stops planned moves. What an operator asks for himself is his own word.
fn moves_of_what_is_frozen(history: &History, facts: &Facts<'_>, verdict: &mut Verdict) {
    for (index, event) in history.events.iter().enumerate() {
        let What::MoveBegan { scope, from, to, asked: false, after, seen, .. } = &event.what else {
            continue;
        };
        let Scope::Partition(keyspace, _) = scope else { continue };
        let frozen = [
            Fact::ClusterFrozen,
            Fact::KeyspaceFrozen { keyspace: keyspace.clone() },
            Fact::PartitionFrozen { scope: scope.clone() },
            Fact::WorkerFrozen { worker: from.clone() },
            Fact::WorkerFrozen { worker: to.clone() },
        ];
        for fact in frozen {
            if let Some(since) = facts.throughout(&fact, *after, *seen) {
                let text = format!("{}, although {fact}", event.what);
                verdict.found(Rule::FrozenMoved, [since, index], text);
            }
        }
    }
}

/// Who is drained, cordoned or frozen is granted nothing: no move to him begins, and nothing is repaired to him. Who is only
/// frozen is repaired to when no other may have it, and a history does not say who was silent or without a connection.
fn grants_to_who_takes_none(history: &History, facts: &Facts<'_>, verdict: &mut Verdict) {
    let mut told: HashSet<(&Scope, Epoch)> = HashSet::new();
    let mut moves: HashMap<&Scope, (&WorkerId, bool, u64, u64)> = HashMap::new();
    for (index, event) in history.events.iter().enumerate() {
        match &event.what {
            What::MoveBegan { scope, to, asked, after, seen, .. } => {
                moves.insert(scope, (to, *asked, *after, *seen));
            }
            What::Granted { scope, epoch, worker, entry: Some(entry), .. }
                if told.insert((scope, *epoch)) =>
            {
                // A move to him may have begun before, and ends all the same; or an operator asked for it.
                let repaired = moves.get(scope).is_none_or(|(to, ..)| *to != worker);
                let (after, seen) = match moves.remove(scope).filter(|(to, ..)| *to == worker) {
                    Some((_, true, ..)) => continue,
                    Some((_, false, after, seen)) => (after, seen),
                    None => (entry.saturating_sub(1), *entry),
                };
                let frozen = |fact: &Fact| matches!(fact, Fact::WorkerFrozen { .. });
                for fact in takes_none(worker).into_iter().filter(|fact| !repaired || !frozen(fact)) {
                    if let Some(since) = facts.throughout(&fact, after, seen) {
                        let text = format!("{} by entry {entry}, although {fact}", event.what);
                        verdict.found(Rule::GrantedToNoTaker, [since, index], text);
                    }
                }
            }
            _ => {}
        }
    }
}

/// What keeps a worker from getting anything.
fn takes_none(worker: &WorkerId) -> [Fact; 3] {
    let worker = || worker.clone();
    [
        Fact::Drained { worker: worker() },
        Fact::Cordoned { worker: worker() },
        Fact::WorkerFrozen { worker: worker() },
    ]
}

/// What waits for a worker that is being restarted is granted to nobody else before it has waited.
fn holds(history: &History, verdict: &mut Verdict) {
    struct Wait<'a> {
        event: usize,
        epoch: Epoch,
        worker: &'a WorkerId,
        until: u64,
    }
    let mut waits: HashMap<&Scope, Wait<'_>> = HashMap::new();
    for (index, event) in history.events.iter().enumerate() {
        match &event.what {
            What::Held { scope, epoch, worker, for_ms } => {
                // The leader's clock may be ahead by what clocks in a world may be; when it began is known to some
                // milliseconds.
                let until = event.at + (for_ms * 900).saturating_sub(50_000);
                waits.insert(scope, Wait { event: index, epoch: *epoch, worker, until });
            }
            // He is back: what becomes of it now is decided by how things stand.
            What::Holds { fact: Fact::Serves { worker, keyspace, .. }, holds: true, .. } => {
                waits.retain(|scope, wait| wait.worker != worker || !is_in(scope, keyspace));
            }
            What::KeyspaceDeleted { keyspace } => waits.retain(|scope, _| !is_in(scope, keyspace)),
            What::Granted { scope, epoch, worker, .. } => {
                let Some(wait) = waits.get(scope).filter(|wait| *epoch > wait.epoch) else { continue };
                if worker != wait.worker && event.at < wait.until {
                    let text = format!(
                        "{} {} us before it had waited for {}",
                        event.what,
                        wait.until - event.at,
                        wait.worker
                    );
                    verdict.found(Rule::HoldBroken, [wait.event, index], text);
                }
                waits.remove(scope);
            }
            _ => {}
        }
    }
}

fn is_in(scope: &Scope, of: &KeyspaceName) -> bool {
    matches!(scope, Scope::Partition(keyspace, _) if keyspace == of)
}

/// How things stand when all is steady.
#[derive(Default)]
struct Standing<'a> {
    facts: BTreeMap<&'a Fact, usize>,
    owners: BTreeMap<&'a Scope, (Epoch, &'a WorkerId)>,
}

/// When all is steady every drain, pin, plan and split has come to its end, where nothing stands in its way.
fn at_rest(history: &History, verdict: &mut Verdict) {
    let Some((steady, now)) = Standing::at_steady(history) else { return };
    for (fact, since) in &now.facts {
        match fact {
            Fact::Drained { worker } if !now.holds(&Fact::WorkerFrozen { worker: worker.clone() }) => {
                for (scope, _) in now.owners.iter().filter(|(_, (_, owner))| owner == &worker) {
                    if now.free(scope) && now.somebody_takes(scope) {
                        let text = format!(
                            "{worker} is drained and still owns {scope}, although others take partitions"
                        );
                        verdict.found(Rule::DrainUnfinished, [*since, steady], text);
                    }
                }
            }
            Fact::Pinned { scope, worker } if now.takes(worker, scope) && now.free(scope) => {
                let Some((_, owner)) = now.owners.get(scope) else { continue };
                let stays = now.holds(&Fact::WorkerFrozen { worker: (*owner).clone() });
                if *owner != worker && !stays {
                    let text = format!("{fact}, who takes partitions, and {owner} owns it");
                    verdict.found(Rule::PinIgnored, [*since, steady], text);
                }
            }
            Fact::PlanRuns { keyspace, .. } if !now.keyspace_frozen(keyspace) => {
                verdict.found(Rule::PlanUnfinished, [*since, steady], format!("{fact} still"));
            }
            Fact::Splitting { keyspace } if !now.keyspace_frozen(keyspace) => {
                verdict.found(Rule::SplitUnfinished, [*since, steady], format!("{fact} still"));
            }
            _ => {}
        }
    }
}

impl Standing<'_> {
    fn at_steady(history: &History) -> Option<(usize, Standing<'_>)> {
        let steady = history.events.iter().position(|event| matches!(event.what, What::Steady))?;
        let mut now = Standing::default();
        let mut deleted: BTreeSet<&KeyspaceName> = BTreeSet::new();
        for (index, event) in history.events.iter().enumerate().take(steady) {
            match &event.what {
                What::Holds { fact, holds: true, .. } => drop(now.facts.insert(fact, index)),
                What::Holds { fact, holds: false, .. } => drop(now.facts.remove(fact)),
                What::Granted { scope, epoch, worker, .. } => {
                    let owner = now.owners.entry(scope).or_insert((*epoch, worker));
                    if owner.0 < *epoch {
                        *owner = (*epoch, worker);
                    }
                }
                What::KeyspaceDeleted { keyspace } => drop(deleted.insert(keyspace)),
                What::KeyspaceCreated { keyspace, .. } => drop(deleted.remove(keyspace)),
                _ => {}
            }
        }
        now.owners.retain(|scope, _| !deleted.iter().any(|keyspace| is_in(scope, keyspace)));
        Some((steady, now))
    }

    fn holds(&self, fact: &Fact) -> bool {
        self.facts.contains_key(fact)
    }

    fn keyspace_frozen(&self, keyspace: &KeyspaceName) -> bool {
        self.holds(&Fact::ClusterFrozen) || self.holds(&Fact::KeyspaceFrozen { keyspace: keyspace.clone() })
    }

    /// No freeze keeps it where it is.
    fn free(&self, scope: &Scope) -> bool {
        let Scope::Partition(keyspace, _) = scope else { return false };
        !self.keyspace_frozen(keyspace) && !self.holds(&Fact::PartitionFrozen { scope: scope.clone() })
    }

    /// A worker takes partitions of this one's keyspace.
    fn takes(&self, worker: &WorkerId, scope: &Scope) -> bool {
        let serves = |fact: &&Fact| matches!(fact, Fact::Serves { worker: who, keyspace, .. } if who == worker && is_in(scope, keyspace));
        self.facts.keys().any(serves) && takes_none(worker).iter().all(|fact| !self.holds(fact))
    }

    fn somebody_takes(&self, scope: &Scope) -> bool {
        let workers: BTreeSet<&WorkerId> = self
            .facts
            .keys()
            .filter_map(|fact| match fact {
                Fact::Serves { worker, .. } => Some(worker),
                _ => None,
            })
            .collect();
        workers.into_iter().any(|worker| self.takes(worker, scope))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::Rules;
    use ringfence_core::ids::SessionId;

    /// One partition, two workers, and one log. An event a millisecond.
    #[derive(Default)]
    struct Story {
        history: History,
        now: u64,
    }

    fn scope() -> Scope {
        "orders/0".parse().unwrap()
    }

    fn worker(name: &str) -> WorkerId {
        name.parse().unwrap()
    }

    fn epoch(number: u64) -> Epoch {
        Epoch::new(number).unwrap()
    }

    fn drained(name: &str) -> Fact {
        Fact::Drained { worker: worker(name) }
    }

    impl Story {
        /// Both workers serve, and `a` owns.
        fn begun() -> Story {
            let mut story = Story::default();
            story.then(What::KeyspaceCreated { keyspace: "orders".parse().unwrap(), partitions: 1 });
            story.serves("a", 1).serves("b", 2).granted(1, "a", 5);
            story
        }

        fn then(&mut self, what: What) -> &mut Story {
            self.now += 1_000;
            self.history.push(self.now, "n1", what);
            self
        }

        fn fact(&mut self, fact: Fact, holds: bool, after: u64) -> &mut Story {
            self.then(What::Holds { fact, holds, after, known: after + 2 })
        }

        fn serves(&mut self, name: &str, session: u64) -> &mut Story {
            let session = SessionId::new(session).unwrap();
            let keyspace = "orders".parse().unwrap();
            self.fact(Fact::Serves { worker: worker(name), session, keyspace }, true, 1)
        }

        fn granted(&mut self, e: u64, to: &str, entry: u64) -> &mut Story {
            let session = SessionId::new(if to == "a" { 1 } else { 2 }).unwrap();
            let (scope, epoch, worker) = (scope(), epoch(e), worker(to));
            self.then(What::Granted { scope, epoch, session, worker, entry: Some(entry) })
        }

        fn moves(&mut self, e: u64, to: &str, after: u64, asked: bool) -> &mut Story {
            let (from, why) = (worker(if to == "a" { "b" } else { "a" }), "Join".to_owned());
            let (scope, epoch, to) = (scope(), epoch(e), worker(to));
            self.then(What::MoveBegan { scope, epoch, from, to, asked, why, after, seen: after + 1 })
        }

        fn waits(&mut self, for_ms: u64) -> &mut Story {
            self.then(What::Held { scope: scope(), epoch: epoch(1), worker: worker("a"), for_ms })
        }

        fn found(&self) -> Vec<Rule> {
            let verdict = crate::checker::check(&self.history, &Rules::default());
            verdict.violations.iter().map(|violation| violation.rule).collect()
        }
    }

    #[test]
    fn a_planned_move_of_what_is_frozen_is_found() {
        let frozen = [
            Fact::ClusterFrozen,
            Fact::KeyspaceFrozen { keyspace: "orders".parse().unwrap() },
            Fact::PartitionFrozen { scope: scope() },
            Fact::WorkerFrozen { worker: worker("a") },
        ];
        for fact in frozen {
            let frozen = || {
                let mut story = Story::begun();
                story.fact(fact.clone(), true, 10);
                story
            };
            assert_eq!(frozen().moves(1, "b", 12, false).found(), [Rule::FrozenMoved], "{fact}");
            assert_eq!(frozen().moves(1, "b", 11, false).found(), [], "decided before that was known");
            assert_eq!(frozen().moves(1, "b", 12, true).found(), [], "an operator's own word");
            assert_eq!(frozen().fact(fact.clone(), false, 12).moves(1, "b", 12, false).found(), [], "over");
        }
    }

    #[test]
    fn a_grant_to_who_takes_none_is_found() {
        for fact in takes_none(&worker("b")) {
            let begun = || {
                let mut story = Story::begun();
                story.fact(fact.clone(), true, 10);
                story
            };
            let repaired = begun().granted(2, "b", 13).found();
            match &fact {
                Fact::WorkerFrozen { .. } => assert_eq!(repaired, [], "he may be the last"),
                fact => assert_eq!(repaired, [Rule::GrantedToNoTaker], "{fact}"),
            }
            let moved = begun().moves(1, "b", 13, false).granted(2, "b", 20).found();
            assert!(moved.contains(&Rule::GrantedToNoTaker), "{fact}: {moved:?}");
            assert_eq!(begun().granted(2, "b", 12).found(), [], "decided before that was known");
            assert_eq!(begun().granted(2, "a", 13).found(), []);
            assert_eq!(
                begun().moves(1, "b", 9, false).granted(2, "b", 20).found(),
                [],
                "it had begun before"
            );
            assert_eq!(begun().moves(1, "b", 15, true).granted(2, "b", 20).found(), [], "asked for");
        }
        let mut story = Story::begun();
        story.fact(drained("b"), true, 10).moves(1, "b", 15, false).granted(2, "b", 20);
        assert_eq!(story.found(), [Rule::GrantedToNoTaker]);
    }

    #[test]
    fn a_wait_for_a_worker_that_is_cut_short_is_found() {
        assert_eq!(Story::begun().waits(1_000).granted(2, "b", 9).found(), [Rule::HoldBroken]);
        assert_eq!(Story::begun().waits(1_000).granted(2, "a", 9).found(), []);
        assert_eq!(Story::begun().waits(40).granted(2, "b", 9).found(), [], "it was long enough");
        assert_eq!(Story::begun().waits(1_000).serves("a", 7).granted(2, "b", 9).found(), [], "he came back");
    }

    #[test]
    fn a_drain_that_does_not_end_is_found() {
        let steady = |story: &mut Story| story.then(What::Steady).found();
        let drained = |name| {
            let mut story = Story::begun();
            story.fact(drained(name), true, 10);
            story
        };
        assert_eq!(steady(&mut drained("a")), [Rule::DrainUnfinished]);
        assert_eq!(steady(&mut drained("b")), []);
        assert_eq!(steady(drained("a").moves(1, "b", 12, false).granted(2, "b", 14)), []);
        assert_eq!(steady(drained("a").fact(Fact::PartitionFrozen { scope: scope() }, true, 12)), []);
        let nobody = Fact::Cordoned { worker: worker("b") };
        assert_eq!(steady(drained("a").fact(nobody, true, 12)), [], "it stays where nobody else takes it");
    }

    #[test]
    fn a_pin_and_a_plan_that_come_to_nothing_are_found() {
        let steady = |story: &mut Story| story.then(What::Steady).found();
        let pinned = || {
            let mut story = Story::begun();
            story.fact(Fact::Pinned { scope: scope(), worker: worker("b") }, true, 10);
            story
        };
        assert_eq!(steady(&mut pinned()), [Rule::PinIgnored]);
        assert_eq!(steady(pinned().moves(1, "b", 12, false).granted(2, "b", 14)), []);
        assert_eq!(steady(pinned().fact(drained("b"), true, 12)), [], "who takes nothing is sent nothing");
        assert_eq!(steady(pinned().fact(Fact::ClusterFrozen, true, 12)), []);

        let runs = |holds| {
            let mut story = Story::begun();
            let plan = Fact::PlanRuns { plan: 9, keyspace: "orders".parse().unwrap() };
            story.fact(plan, holds, 10);
            story
        };
        assert_eq!(steady(&mut runs(true)), [Rule::PlanUnfinished]);
        assert_eq!(steady(&mut runs(false)), []);
        assert_eq!(steady(runs(true).fact(Fact::ClusterFrozen, true, 12)), []);
    }

    #[test]
    fn a_split_that_does_not_end_is_found() {
        let steady = |story: &mut Story| story.then(What::Steady).found();
        let splits = || Fact::Splitting { keyspace: "orders".parse().unwrap() };
        let begun = || {
            let mut story = Story::begun();
            story.fact(splits(), true, 10);
            story
        };
        assert_eq!(steady(&mut begun()), [Rule::SplitUnfinished]);
        assert_eq!(steady(begun().fact(splits(), false, 12)), []);
        let frozen = Fact::KeyspaceFrozen { keyspace: "orders".parse().unwrap() };
        assert_eq!(steady(begun().fact(frozen, true, 12)), []);
    }
}
