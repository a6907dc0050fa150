//! The rule in Lua decides as the rule in Rust does, whatever comes in whatever order.

use crate::server::available;
use crate::subject::{Fenced, token};
use proptest::prelude::*;
use ringfence_core::ids::SessionId;
use ringfence_fence::{FenceError, FencingToken, HighWater};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
enum Step {
    Raise(Presented),
    Force(Presented),
    Write(Presented),
    /// Over both scopes, or twice over one.
    WriteBoth(Presented, Presented),
    RaiseBoth(Presented, Presented),
}

#[derive(Clone, Debug)]
struct Presented {
    scope: u8,
    epoch: u64,
    session: Option<u64>,
}

/// Where halves, words, jumps and mantissas end, and their neighbours.
fn epochs() -> impl Strategy<Value = u64> {
    let edges =
        [1, 7, 100_000_000, 200_000_000, 1 << 32, 1 << 48, 1 << 49, 1_000_000_000_000_000, (1 << 53) - 3];
    let near = (proptest::sample::select(edges.to_vec()), 0..5_u64)
        .prop_map(|(edge, off)| (edge + off).saturating_sub(2));
    prop_oneof![4 => near, 1 => 1..1_u64 << 53].prop_map(|epoch| epoch.clamp(1, (1 << 53) - 1))
}

fn presented() -> impl Strategy<Value = Presented> {
    let session = proptest::option::of(proptest::sample::select(vec![1, 2, u64::MAX - 1, u64::MAX]));
    (0..2_u8, epochs(), session).prop_map(|(scope, epoch, session)| Presented { scope, epoch, session })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => presented().prop_map(Step::Raise),
        1 => presented().prop_map(Step::Force),
        3 => presented().prop_map(Step::Write),
        1 => (presented(), presented()).prop_map(|(one, two)| Step::WriteBoth(one, two)),
        1 => (presented(), presented()).prop_map(|(one, two)| Step::RaiseBoth(one, two)),
    ];
    proptest::collection::vec(step, 1..24)
}

type Decide = fn(Option<HighWater>, &FencingToken) -> Result<HighWater, FenceError>;

/// All or nothing, by the rule in Rust.
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

#[test]
fn t17_t01_the_rule_in_lua_decides_as_the_rule_in_rust() {
    if !available() {
        return;
    }
    let (db, worlds) = (RefCell::new(Fenced::forgetful()), Cell::new(0_u32));
    let config = ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(steps in steps())| {
        // Scopes that no run has used before.
        let world = worlds.get();
        worlds.set(world + 1);
        let mut db = db.borrow_mut();
        let db = &mut *db;
        let stamp = |p: &Presented| {
            let token = token(&format!("prod/w{world}/{}@{}", p.scope, p.epoch));
            p.session.map_or(token.clone(), |session| token.held_by(SessionId::new(session).unwrap()))
        };
        let mut rows = BTreeMap::new();
        for step in &steps {
            let (answer, expected) = match step {
                Step::Raise(p) => {
                    let tokens = [stamp(p)];
                    (db.raise(&tokens[0]), model(&mut rows, &tokens, HighWater::raise))
                }
                Step::Force(p) => {
                    let tokens = [stamp(p)];
                    let answer = db.client.with(async |conn| db.fence.force_raise(conn, &tokens[0]).await);
                    (answer, model(&mut rows, &tokens, HighWater::force_raise))
                }
                Step::Write(p) => {
                    let tokens = [stamp(p)];
                    (db.set(&tokens[0], "v"), model(&mut rows, &tokens, HighWater::check))
                }
                Step::WriteBoth(one, two) => {
                    let mut tokens = [stamp(one), stamp(two)];
                    let answer = db.write(&tokens, &redis::pipe()).map(drop);
                    // As a fence asks: by scope, and the newest first.
                    tokens.sort_by(|a, b| a.scope().cmp(b.scope()).then(b.epoch().cmp(&a.epoch())));
                    (answer, model(&mut rows, &tokens, HighWater::check))
                }
                Step::RaiseBoth(one, two) => {
                    let tokens = [stamp(one), stamp(two)];
                    let answer = db.client.with(async |conn| db.fence.raise_all(conn, &tokens).await);
                    (answer, model(&mut rows, &tokens, HighWater::raise))
                }
            };
            // The message has all that an error holds.
            prop_assert_eq!(format!("{:?}", answer), format!("{:?}", expected), "{:?}", step);
            for scope in 0..2 {
                let scope = format!("w{world}/{scope}").parse().unwrap();
                let highest = db.highest(&scope).unwrap();
                prop_assert_eq!(highest, rows.get(&scope.to_string()).map(|row| row.epoch()), "{:?}", step);
            }
        }
    });
}
