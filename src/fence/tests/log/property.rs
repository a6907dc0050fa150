//! Whatever comes in whatever order, through two handles and over crashes, a log decides as the rule does and keeps what it
//! has answered.

use crate::subject::{Place, texts, token};
use proptest::prelude::*;
use ringfence_core::ids::SessionId;
use ringfence_fence::{FenceError, FencingToken, HighWater};
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug)]
enum Verb {
    Raise,
    Force,
    Append,
    /// Nothing is closed, a record is left half written, and both handles are opened anew.
    Crash,
}

#[derive(Clone, Debug)]
struct Step {
    verb: Verb,
    second: bool,
    presented: Vec<(u8, u64, Option<u64>)>,
    entries: usize,
}

fn epochs() -> impl Strategy<Value = u64> {
    let edges = [1, 7, 1 << 32, 1 << 48, 1 << 49, (1 << 53) - 3];
    let near = (proptest::sample::select(edges.to_vec()), 0..5_u64)
        .prop_map(|(edge, off)| (edge + off).saturating_sub(2));
    prop_oneof![4 => near, 1 => 1..1_u64 << 53].prop_map(|epoch| epoch.clamp(1, (1 << 53) - 1))
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let session = proptest::option::of(proptest::sample::select(vec![1, 2, u64::MAX]));
    let presented = proptest::collection::vec((0..2_u8, epochs(), session), 1..3);
    let verb = prop_oneof![
        3 => Just(Verb::Raise),
        1 => Just(Verb::Force),
        4 => Just(Verb::Append),
        1 => Just(Verb::Crash)
    ];
    let step = (verb, any::<bool>(), presented, 0..3_usize)
        .prop_map(|(verb, second, presented, entries)| Step { verb, second, presented, entries });
    proptest::collection::vec(step, 1..16)
}

type Decide = fn(Option<HighWater>, &FencingToken) -> Result<HighWater, FenceError>;

/// All or nothing, by the rule.
fn model(
    rows: &mut BTreeMap<String, HighWater>,
    tokens: &[FencingToken],
    decide: Decide,
) -> Result<(), FenceError> {
    let mut after = rows.clone();
    for token in tokens {
        let scope = token.scope().to_string();
        let row = decide(after.get(&scope).copied(), token)?;
        after.insert(scope, row);
    }
    *rows = after;
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn t01_t17_t48_a_log_decides_as_the_rule_and_keeps_what_it_has_answered(steps in steps()) {
        let place = Place::new();
        let mut logs = [place.open(), place.open()];
        let (mut rows, mut kept) = (BTreeMap::new(), Vec::new());
        for (number, step) in steps.iter().enumerate() {
            let mut tokens: Vec<FencingToken> = step.presented.iter().map(|(scope, epoch, session)| {
                let token = token(&format!("prod/w/{scope}@{epoch}"));
                session.map_or(token.clone(), |session| token.held_by(SessionId::new(session).unwrap()))
            }).collect();
            let log = &mut logs[usize::from(step.second)];
            let (answer, expected) = match step.verb {
                Verb::Raise => (log.raise_all(&tokens), model(&mut rows, &tokens, HighWater::raise)),
                Verb::Force => (log.force_raise(&tokens[0]), model(&mut rows, &tokens[..1], HighWater::force_raise)),
                Verb::Append => {
                    let entries: Vec<String> = (0..step.entries).map(|n| format!("{number}.{n}")).collect();
                    let answer = log.append_all(&tokens, &entries).map(drop);
                    // As a fence asks: by scope, and the newest first.
                    tokens.sort_by(|a, b| a.scope().cmp(b.scope()).then(b.epoch().cmp(&a.epoch())));
                    let expected = model(&mut rows, &tokens, HighWater::check);
                    if expected.is_ok() {
                        kept.extend(entries);
                    }
                    (answer, expected)
                }
                Verb::Crash => {
                    place.tear();
                    logs = [place.open(), place.open()];
                    (Ok(()), Ok(()))
                }
            };
            // The message has all that an error holds.
            prop_assert_eq!(format!("{:?}", answer), format!("{:?}", expected), "{:?}", step);
        }
        for log in &mut logs {
            prop_assert_eq!(&texts(log), &kept);
            for scope in 0..2 {
                let scope = format!("w/{scope}").parse().unwrap();
                prop_assert_eq!(log.highest(&scope).unwrap(), rows.get(&scope.to_string()).map(|row| row.epoch()));
            }
            prop_assert_eq!(log.refused_records(), 0);
        }
    }
}
