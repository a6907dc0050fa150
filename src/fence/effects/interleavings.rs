//! Three owners of one effect, or two tasks of one owner and its successor, in every order: each may stop or wake up between
//! any two steps.

use super::{Delivery, EffectError, EffectKey, Outcome, Record, Sending, State, rule};
use crate::{FencingToken, HighWater};
use std::collections::BTreeSet;

const KEYED: Delivery = Delivery::Keyed { attempts: 3 };

/// How far an owner has come.
#[derive(Clone, Debug)]
enum Phase {
    Waiting,
    Raised,
    /// It has the permission to call, and has not called yet.
    Sending(Sending),
    Called(Sending),
    /// It has said that it sent nothing, and got no answer to that: it says so again.
    SaidNotSent(Sending),
    Finished,
}

#[derive(Clone, Debug)]
struct World {
    fence: Option<HighWater>,
    record: Record,
    owners: [Phase; 3],
    /// How often the other side has done it.
    happened: u32,
    /// Whether the other side knows the key.
    known: bool,
}

struct Setting {
    delivery: Delivery,
    keys_are_kept: bool,
    epochs: [u64; 3],
}

const THREE_OWNERS: [u64; 3] = [33, 34, 35];
const TWO_TASKS_AND_THE_NEXT: [u64; 3] = [33, 33, 34];
const THREE_TASKS: [u64; 3] = [33, 33, 33];

impl Setting {
    fn token(&self, owner: usize) -> FencingToken {
        format!("prod/orders/17@{}", self.epochs[owner]).parse().unwrap()
    }
}

impl World {
    fn new(setting: &Setting) -> World {
        let token = setting.token(0);
        let key = EffectKey::new(&token, "charge", "order-7").unwrap();
        let record = rule::intend(None, &token, &key, "42.00 EUR", 0).unwrap().unwrap();
        World {
            fence: None,
            record,
            owners: [Phase::Waiting, Phase::Waiting, Phase::Waiting],
            happened: 0,
            known: false,
        }
    }

    /// Whether the fence lets the owner write, which it remembers.
    fn checked(&mut self, token: &FencingToken) -> bool {
        match HighWater::check(self.fence, token) {
            Ok(row) => self.fence = Some(row),
            Err(_) => return false,
        }
        true
    }

    /// As the storages look for what is left: never sent, or claimed by an owner before.
    fn is_left(&self, token: &FencingToken) -> bool {
        match self.record.state() {
            State::Intended => true,
            State::Sending => self.record.epoch() < Some(token.epoch()),
            State::Done | State::Refused | State::Held => false,
        }
    }

    /// Every world that comes of one step of this owner.
    fn steps(&self, owner: usize, setting: &Setting) -> Vec<World> {
        let token = setting.token(owner);
        let mut next = self.clone();
        let outcomes = |sending: &Sending, outcomes: &[Outcome<'static>]| {
            let settled = |outcome: &Outcome<'static>| self.settled(owner, sending, setting, *outcome);
            outcomes.iter().map(settled).collect::<Vec<_>>()
        };
        match &self.owners[owner] {
            Phase::Finished => Vec::new(),
            Phase::Waiting => {
                match HighWater::raise(self.fence, &token) {
                    Ok(row) => (next.fence, next.owners[owner]) = (Some(row), Phase::Raised),
                    Err(_) => next.owners[owner] = Phase::Finished,
                }
                vec![next]
            }
            Phase::Raised => {
                next.owners[owner] = Phase::Finished;
                if next.checked(&token) && self.is_left(&token) {
                    let (record, send) = rule::claim(self.record.clone(), &token, setting.delivery).unwrap();
                    next.record = record.clone();
                    if let super::Claim::Send(sending) = rule::claimed(record, send) {
                        next.owners[owner] = Phase::Sending(sending);
                    }
                }
                vec![next]
            }
            Phase::Sending(sending) => {
                if !(next.known && setting.keys_are_kept) {
                    next.happened += 1;
                }
                next.known = true;
                next.owners[owner] = Phase::Called(sending.clone());
                let mut unanswered = self.settled(owner, sending, setting, Outcome::NotSent);
                unanswered.owners[owner] = Phase::SaidNotSent(sending.clone());
                [vec![next, unanswered], outcomes(sending, &[Outcome::NotSent])].concat()
            }
            Phase::SaidNotSent(sending) => outcomes(sending, &[Outcome::NotSent]),
            Phase::Called(sending) => {
                outcomes(sending, &[Outcome::Done("payment"), Outcome::Unknown("a time limit")])
            }
        }
    }

    fn settled(&self, owner: usize, sending: &Sending, setting: &Setting, outcome: Outcome<'_>) -> World {
        let (mut next, token) = (self.clone(), setting.token(owner));
        next.owners[owner] = Phase::Finished;
        if next.checked(&token) {
            let settled = rule::settle(self.record.clone(), &token, sending, setting.delivery, outcome);
            match settled {
                Ok(record) => next.record = record,
                Err(EffectError::NotClaimed { .. }) => {}
                Err(other) => panic!("{other}"),
            }
        }
        next
    }
}

/// Explores everything; answers how many worlds there are, and how often it has happened at most.
fn explored(setting: &Setting) -> (usize, u32) {
    let (mut open, mut seen, mut most) = (vec![World::new(setting)], BTreeSet::new(), 0);
    while let Some(world) = open.pop() {
        if !seen.insert(format!("{world:?}")) {
            continue;
        }
        most = most.max(world.happened);
        let done = world.record.state() == State::Done;
        assert!(!done || world.happened > 0, "it is done and never happened: {world:?}");
        let next: Vec<World> = (0..3).flat_map(|owner| world.steps(owner, setting)).collect();
        if next.is_empty() && matches!(world.record.state(), State::Intended | State::Sending) {
            // The last owner has it in its hands still: it said that nothing was sent, or that it does not know.
            let last = matches!(world.record.state(), State::Intended)
                || world.record.epoch() == Some(setting.token(2).epoch());
            assert!(last, "nobody will find it: {world:?}");
        }
        open.extend(next);
    }
    (seen.len(), most)
}

#[test]
fn a24_in_every_order_a_key_that_is_kept_makes_it_once_and_without_keys_nobody_does_it_twice() {
    for epochs in [THREE_OWNERS, TWO_TASKS_AND_THE_NEXT, THREE_TASKS] {
        for (delivery, keys_are_kept) in [(KEYED, true), (Delivery::Unkeyed, false)] {
            let (worlds, most) = explored(&Setting { delivery, keys_are_kept, epochs });
            assert!(worlds > 100, "{worlds}");
            assert_eq!(most, 1, "{delivery:?} {epochs:?}");
        }
    }
}

/// The negative control: sent again at an other side that keeps no keys.
#[test]
fn t57_a24_in_some_order_it_happens_more_than_once_where_keys_are_not_kept() {
    let (_, most) = explored(&Setting { delivery: KEYED, keys_are_kept: false, epochs: THREE_OWNERS });
    assert_eq!(most, 3);
}
