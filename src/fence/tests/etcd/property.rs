//! Whatever comes in whatever order, through two processes with memories of their own, the fence in etcd decides as the
//! rule does.

use crate::server::available;
use crate::subject::{Fenced, cluster, token};
use proptest::prelude::*;
use ringfence_core::ids::SessionId;
use ringfence_fence::etcd::{EtcdFence, Txn};
use ringfence_fence::{FenceError, FencingToken, HighWater};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug)]
enum Verb {
    Raise,
    Force,
    Write,
}

#[derive(Clone, Debug)]
struct Step {
    verb: Verb,
    /// Which process.
    second: bool,
    presented: Vec<(u8, u64, Option<u64>)>,
}

/// Where words, jumps and mantissas end, and their neighbours.
fn epochs() -> impl Strategy<Value = u64> {
    let edges = [1, 7, 1 << 32, 1 << 48, 1 << 49, 1_000_000_000_000_000, (1 << 53) - 3];
    let near = (proptest::sample::select(edges.to_vec()), 0..5_u64)
        .prop_map(|(edge, off)| (edge + off).saturating_sub(2));
    prop_oneof![4 => near, 1 => 1..1_u64 << 53].prop_map(|epoch| epoch.clamp(1, (1 << 53) - 1))
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let session = proptest::option::of(proptest::sample::select(vec![1, 2, u64::MAX]));
    let presented = proptest::collection::vec((0..2_u8, epochs(), session), 1..3);
    let verb = prop_oneof![3 => Just(Verb::Raise), 1 => Just(Verb::Force), 4 => Just(Verb::Write)];
    let step = (verb, any::<bool>(), presented).prop_map(|(verb, second, presented)| Step {
        verb,
        second,
        presented,
    });
    proptest::collection::vec(step, 1..16)
}

/// All or nothing, by the rule.
fn model(
    rows: &mut BTreeMap<String, HighWater>,
    tokens: &[FencingToken],
    verb: Verb,
) -> Result<(), FenceError> {
    let mut after = rows.clone();
    for token in tokens {
        let scope = token.scope().to_string();
        let row = after.get(&scope).copied();
        let decided = match verb {
            Verb::Raise => HighWater::raise(row, token)?,
            Verb::Force => HighWater::force_raise(row, token)?,
            Verb::Write => HighWater::check(row, token)?,
        };
        after.insert(scope, decided);
    }
    *rows = after;
    Ok(())
}

#[test]
fn t17_t01_the_fence_in_etcd_decides_as_the_rule() {
    if !available() {
        return;
    }
    let db = Fenced::new();
    let mut other = db.server.client();
    let theirs = other.with(async |etcd| EtcdFence::install(etcd, &cluster("prod")).await).unwrap();
    let (both, worlds) = (RefCell::new((db, other)), Cell::new(0_u32));
    let config = ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(steps in steps())| {
        // Scopes that no run has used before.
        let world = worlds.get();
        worlds.set(world + 1);
        let both = &mut *both.borrow_mut();
        let mut rows = BTreeMap::new();
        for step in &steps {
            let mut tokens: Vec<FencingToken> = step.presented.iter().map(|(scope, epoch, session)| {
                let token = token(&format!("prod/w{world}/{scope}@{epoch}"));
                session.map_or(token.clone(), |session| token.held_by(SessionId::new(session).unwrap()))
            }).collect();
            let (client, fence) = match step.second {
                false => (&mut both.0.client, &both.0.fence),
                true => (&mut both.1, &theirs),
            };
            let (answer, expected) = match step.verb {
                Verb::Raise => (
                    client.with(async |etcd| fence.raise_all(etcd, &tokens).await),
                    model(&mut rows, &tokens, Verb::Raise),
                ),
                Verb::Force => (
                    client.with(async |etcd| fence.force_raise(etcd, &tokens[0]).await),
                    model(&mut rows, &tokens[..1], Verb::Force),
                ),
                Verb::Write => {
                    let answer = client.with(async |etcd| {
                        fence.write(etcd, &tokens, &Txn::new().put("k", "v")).await
                    });
                    // As a fence asks: by scope, and the newest first.
                    tokens.sort_by(|a, b| a.scope().cmp(b.scope()).then(b.epoch().cmp(&a.epoch())));
                    (answer.map(drop), model(&mut rows, &tokens, Verb::Write))
                }
            };
            // The message has all that an error holds.
            prop_assert_eq!(format!("{:?}", answer), format!("{:?}", expected), "{:?}", step);
        }
        for scope in 0..2 {
            let scope = format!("w{world}/{scope}").parse().unwrap();
            let highest = both.0.highest(&scope).unwrap();
            prop_assert_eq!(highest, rows.get(&scope.to_string()).map(|row| row.epoch()));
        }
    });
}
