//! The rule in a database against the rule in Rust: whatever is asked of both, both answer the same and hold the same.

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use ringfence_core::ids::{ClusterId, Epoch, KeyspaceName, PartitionId, Scope, SessionId};
use ringfence_fence::{FenceError, FencingToken, HighWater, MAX_JUMP, same_cluster};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

/// A database whose rule is its own: procedures, not [`HighWater`]. Its fence is bound to `prod`.
pub(crate) trait RuleInDatabase {
    /// Raises the tokens' scopes, all or none.
    fn raise(&self, tokens: &[FencingToken]) -> Result<(), FenceError>;

    /// Raises one past the bound on a jump.
    fn force_raise(&self, token: &FencingToken) -> Result<(), FenceError>;

    /// Checks the tokens in a write of nothing.
    fn check(&self, tokens: &[FencingToken]) -> Result<(), FenceError>;

    /// What it remembers of scopes whose text begins so; a session is kept as the bits of a signed number.
    fn rows(&self, beginning: &str) -> Vec<(String, i64, Option<i64>)>;
}

fn cluster() -> ClusterId {
    ClusterId::new("prod").unwrap()
}

#[derive(Clone, Debug)]
enum Ask {
    Raise(Vec<Stamp>),
    Force(Stamp),
    Check(Vec<Stamp>),
}

#[derive(Clone, Debug)]
struct Stamp {
    foreign: bool,
    partition: u32,
    epoch: u64,
    session: Option<u64>,
}

fn stamp() -> impl Strategy<Value = Stamp> {
    let jumps = prop_oneof![Just(MAX_JUMP), Just(2 * MAX_JUMP), Just(Epoch::MAX.get() - 3)];
    let epoch = prop_oneof![8 => 1..6u64, 2 => (jumps, 0..4u64).prop_map(|(far, near)| far + near)];
    let session = prop_oneof![2 => Just(None), 1 => Just(Some(1)), 1 => Just(Some(u64::MAX))];
    (prop::bool::weighted(0.03), 8..12u32, epoch, session)
        .prop_map(|(foreign, partition, epoch, session)| Stamp { foreign, partition, epoch, session })
}

fn ask() -> impl Strategy<Value = Ask> {
    let several = || prop::collection::vec(stamp(), 0..4);
    prop_oneof![
        3 => several().prop_map(Ask::Raise),
        1 => stamp().prop_map(Ask::Force),
        4 => several().prop_map(Ask::Check),
        2 => stamp().prop_map(|one| Ask::Check(vec![one])),
    ]
}

/// A keyspace a round, so that each begins with nothing.
fn token(stamp: &Stamp, round: u64) -> FencingToken {
    let cluster = if stamp.foreign { ClusterId::new("test").unwrap() } else { cluster() };
    let keyspace = KeyspaceName::new(&format!("k{round}")).unwrap();
    let scope = Scope::Partition(keyspace, PartitionId::new(stamp.partition));
    let token = FencingToken::new(cluster, scope, Epoch::new(stamp.epoch).unwrap());
    match stamp.session {
        Some(session) => token.held_by(SessionId::new(session).unwrap()),
        None => token,
    }
}

/// What storage has to do around the rule: all or nothing, in the order of the scopes.
#[derive(Clone, Default)]
struct Model(BTreeMap<String, HighWater>);

impl Model {
    fn run(
        &mut self,
        tokens: &[&FencingToken],
        decide: fn(Option<HighWater>, &FencingToken) -> Result<HighWater, FenceError>,
    ) -> Result<(), FenceError> {
        let mut after = self.0.clone();
        for token in tokens {
            same_cluster(&cluster(), token)?;
            let scope = token.scope().to_string();
            let row = decide(after.get(&scope).copied(), token)?;
            after.insert(scope, row);
        }
        self.0 = after;
        Ok(())
    }
}

/// By the scope's text, which is the order of the database.
fn in_order(tokens: &[FencingToken], newest_first: bool) -> Vec<&FencingToken> {
    let mut tokens: Vec<&FencingToken> = tokens.iter().collect();
    tokens.sort_by(|a, b| {
        let by_epoch = if newest_first { b.epoch().cmp(&a.epoch()) } else { std::cmp::Ordering::Equal };
        a.scope().to_string().cmp(&b.scope().to_string()).then(by_epoch)
    });
    tokens
}

/// Asks for all kinds of things in all kinds of orders; panics where the two differ.
pub(crate) fn is_the_rule_in_rust(database: &impl RuleInDatabase) {
    // The runner calls a `Fn`.
    let (rounds, refusals) = (Cell::new(0), RefCell::new(BTreeMap::new()));
    let config = ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() };
    TestRunner::new(config)
        .run(&prop::collection::vec(ask(), 1..24), |asks| {
            rounds.set(rounds.get() + 1);
            let round = rounds.get();
            let tokens = |stamps: &[Stamp]| -> Vec<FencingToken> {
                stamps.iter().map(|stamp| token(stamp, round)).collect()
            };
            let mut model = Model::default();
            for ask in asks {
                let (answer, expected) = match &ask {
                    Ask::Raise(stamps) => {
                        let tokens = tokens(stamps);
                        let expected = model.run(&in_order(&tokens, false), HighWater::raise);
                        (database.raise(&tokens), expected)
                    }
                    Ask::Force(stamp) => {
                        let token = token(stamp, round);
                        let expected = model.run(&[&token], HighWater::force_raise);
                        (database.force_raise(&token), expected)
                    }
                    Ask::Check(stamps) => {
                        let tokens = tokens(stamps);
                        let expected = match tokens.as_slice() {
                            [] => Err(FenceError::Unstamped),
                            some => model.run(&in_order(some, true), HighWater::check),
                        };
                        (database.check(&tokens), expected)
                    }
                };
                let (answer, expected) =
                    (answer.map_err(|e| e.to_string()), expected.map_err(|e| (e.kind(), e.to_string())));
                if let Err((kind, _)) = &expected {
                    *refusals.borrow_mut().entry(*kind).or_insert(0) += 1;
                }
                prop_assert_eq!(answer, expected.map_err(|(_, text)| text), "{:?}", ask);
            }
            let rows: BTreeMap<String, HighWater> = database
                .rows(&format!("k{round}/"))
                .into_iter()
                .map(|(scope, epoch, session)| {
                    let session = session.map(|bits| SessionId::new(bits.cast_unsigned()).unwrap());
                    (scope, HighWater::new(Epoch::new(epoch.cast_unsigned()).unwrap(), session))
                })
                .collect();
            prop_assert_eq!(rows, model.0);
            Ok(())
        })
        .unwrap();
    // It has seen each kind of refusal, or it has compared little.
    assert_eq!(refusals.borrow().len(), 6, "{refusals:?}");
}
