//! Whom the coordinator grants what, as somebody sees it who asks from time to time. Of many grants at once the coordinator
//! remembers the last few.

use crate::history::{Grant, What, unseen};
use ringfence::admin::Tenure;
use ringfence::ids::Scope;
use std::collections::BTreeMap;

/// What was seen, over all rounds of a run.
#[derive(Default)]
pub(super) struct Grants {
    seen: BTreeMap<Scope, Vec<Grant>>,
    latest: BTreeMap<Scope, What>,
}

impl Grants {
    /// What a new history begins with: the latest grants of before. What is granted now is held against them.
    pub(super) fn known(&self) -> impl Iterator<Item = &What> {
        self.latest.values()
    }

    /// Takes the grants of a partition, newest first; returns those that were not seen yet, oldest first.
    pub(super) fn look(&mut self, scope: &Scope, mut newest_first: Vec<Tenure>) -> Vec<What> {
        newest_first.reverse();
        let seen = self.seen.entry(scope.clone()).or_default();
        let grant = |tenure: &Tenure| Grant {
            entry: tenure.granted.get(),
            session: tenure.session,
            epoch: tenure.epoch,
        };
        let new: Vec<What> = unseen(seen, &newest_first, grant)
            .into_iter()
            .map(|(grant, tenure)| What::Granted {
                scope: scope.clone(),
                epoch: tenure.epoch,
                session: tenure.session,
                worker: tenure.worker.clone(),
                entry: Some(grant.entry),
            })
            .collect();
        if let Some(last) = new.last() {
            self.latest.insert(scope.clone(), last.clone());
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::{Rule, Rules, check};
    use crate::history::Recorder;
    use ringfence::ids::{Epoch, LogIndex, SessionId};

    fn tenure(entry: u64, epoch: u64, session: u64) -> Tenure {
        Tenure {
            epoch: Epoch::new(epoch).unwrap(),
            worker: format!("w{session}").parse().unwrap(),
            session: SessionId::new(session).unwrap(),
            granted: LogIndex::new(entry),
            granted_unix_ms: 0,
            reason: String::new(),
            directive: None,
        }
    }

    /// What the judge says of these grants, when somebody looks after each of them; with a new round before the last look.
    fn judged(grants: &[(u64, u64)], rounds: bool) -> Vec<Rule> {
        let (recorder, mut seen, scope) = (Recorder::new(), Grants::default(), "orders/0".parse().unwrap());
        let mut log = Vec::new();
        for (entry, (epoch, session)) in (1..).zip(grants) {
            if rounds && entry as usize == grants.len() {
                drop(recorder.take());
                seen.known().for_each(|what| recorder.record(entry, "operator", what.clone()));
                // The coordinator has forgotten what was before.
                log.clear();
            }
            log.insert(0, tenure(entry, *epoch, *session));
            for what in seen.look(&scope, log.clone()) {
                recorder.record(entry, "operator", what);
            }
        }
        let verdict = check(&recorder.take(), &Rules { all_grants: false, ..Rules::default() });
        verdict.violations.iter().map(|violation| violation.rule).collect()
    }

    #[test]
    fn a_grant_under_an_epoch_that_does_not_grow_is_told_and_found_over_rounds_too() {
        for rounds in [false, true] {
            assert_eq!(judged(&[(4, 1), (5, 2)], rounds), []);
            assert_eq!(
                judged(&[(5, 1), (5, 2)], rounds),
                [Rule::EpochsGrow, Rule::GrantedOnce, Rule::OneOwner]
            );
            assert_eq!(judged(&[(5, 1), (4, 2)], rounds), [Rule::EpochsGrow]);
        }
    }

    #[test]
    fn what_was_told_is_not_told_again() {
        let (mut seen, scope) = (Grants::default(), "orders/0".parse().unwrap());
        assert_eq!(seen.look(&scope, vec![tenure(2, 2, 1), tenure(1, 1, 1)]).len(), 2);
        assert_eq!(seen.look(&scope, vec![tenure(3, 3, 1), tenure(2, 2, 1)]).len(), 1);
        assert_eq!(seen.known().count(), 1);
    }
}
