//! The negative controls: guards that people write in etcd, each found by the rule that names it.

use crate::server::available;
use crate::subject::{EtcdHandle, EtcdStore, EtcdSubject};
use ringfence_core::ids::{ClusterId, Epoch, Scope};
use ringfence_fence::conformance::{Crash, Handle, Outcome, Rule, Store, Subject, run_rule};
use ringfence_fence::etcd::{Compare, Is, Target, Txn};
use ringfence_fence::{FenceError, Fenced, FencingToken};
use std::collections::BTreeMap;
use std::slice::from_ref;

#[derive(Clone, Copy, Debug)]
enum Guard {
    /// The sound check, as a transaction of its own before the write.
    CheckThenWrite,
    /// Epochs compared as texts without leading zeros.
    Texts,
    /// Only the very epoch that was raised last is accepted, and whoever raises last wins.
    Equality,
    /// The owner's key lives on a lease, which has ended; an absent one accepts.
    Leased,
}

impl Guard {
    fn text(self, epoch: Epoch) -> String {
        match self {
            Guard::Texts => epoch.get().to_string(),
            _ => format!("{:016}", epoch.get()),
        }
    }

    /// What has to hold of the fence, and what it holds then.
    fn raise(self, key: &str, own: &str) -> Txn {
        match self {
            Guard::CheckThenWrite => unreachable!("it raises the sound fence"),
            Guard::Equality => Txn::new().put(key, own),
            Guard::Leased => Txn::new(),
            Guard::Texts => Txn::new().when(at_most(key, own)).put(key, own),
        }
    }

    fn check(self, key: &str, own: &str) -> Txn {
        match self {
            Guard::Equality => Txn::new().when(Compare::value_is(key, own)),
            other => other.raise(key, own),
        }
    }
}

/// Less than the very next text.
fn at_most(key: &str, own: &str) -> Compare {
    Compare::new(key, Is::Less, Target::Value(format!("{own}\0").into()))
}

struct Flawed(Guard, EtcdSubject);

struct FlawedStore(Guard, EtcdStore);

struct FlawedHandle(Guard, EtcdHandle);

impl Subject for Flawed {
    type Store = FlawedStore;

    fn fresh(&self, cluster: &ClusterId) -> Result<FlawedStore, FenceError> {
        Ok(FlawedStore(self.0, self.1.fresh(cluster)?))
    }
}

impl Store for FlawedStore {
    type Handle = FlawedHandle;

    fn open(&self) -> Result<FlawedHandle, FenceError> {
        Ok(FlawedHandle(self.0, self.1.open()?))
    }

    fn crash(&mut self) -> Result<Crash, FenceError> {
        unreachable!("no rule that crashes is run")
    }
}

impl FlawedHandle {
    fn key(&self, scope: &Scope) -> String {
        format!("{}flawed/{scope}", self.1.prefix)
    }

    fn run(
        &mut self,
        guard: fn(Guard, &str, &str) -> Txn,
        token: &FencingToken,
        write: Txn,
    ) -> Result<(), FenceError> {
        let (key, own) = (self.key(token.scope()), self.0.text(token.epoch()));
        let mut txn = guard(self.0, &key, &own).otherwise(Txn::new().get(key.clone()));
        txn.then.extend(write.then);
        // The compare fails for a key that is not there yet.
        if !matches!(self.0, Guard::Leased) && self.1.client.get(&key).is_none() {
            txn.compares.clear();
        }
        if self.1.client.txn(txn).succeeded {
            return Ok(());
        }
        let highest = self.highest(token.scope())?.unwrap();
        Err(Fenced::new(token.clone(), highest).into())
    }
}

impl Handle for FlawedHandle {
    fn raise(&mut self, token: &FencingToken) -> Result<(), FenceError> {
        match self.0 {
            Guard::CheckThenWrite => self.1.raise(token),
            _ => self.run(Guard::raise, token, Txn::new()),
        }
    }

    fn write(
        &mut self,
        tokens: &[FencingToken],
        pairs: &[(&str, &str)],
        paused: &mut dyn FnMut(),
    ) -> Result<(), FenceError> {
        let write = self.1.puts(pairs);
        if matches!(self.0, Guard::CheckThenWrite) {
            let fence = self.1.fence.clone();
            self.1.client.with(async |etcd| fence.check(etcd, from_ref(&tokens[0])).await)?;
            paused();
            self.1.client.txn(write);
            return Ok(());
        }
        paused();
        self.run(Guard::check, &tokens[0], write)
    }

    fn data(&mut self) -> Result<BTreeMap<String, String>, FenceError> {
        self.1.data()
    }

    fn highest(&mut self, scope: &Scope) -> Result<Option<Epoch>, FenceError> {
        if matches!(self.0, Guard::CheckThenWrite) {
            return self.1.highest(scope);
        }
        let key = self.key(scope);
        Ok(self.1.client.get(&key).map(|text| Epoch::new(text.parse().unwrap()).unwrap()))
    }
}

#[test]
fn t57_t01_t03_t17_guards_that_leave_a_gap_are_found() {
    if !available() {
        return;
    }
    let server = EtcdSubject::new();
    let mut subject = Flawed(Guard::Texts, server);
    for (guard, rule, held) in [
        (Guard::CheckThenWrite, Rule::OneStep, false),
        (Guard::Texts, Rule::Width, false),
        (Guard::Equality, Rule::ForwardOnly, false),
        (Guard::Leased, Rule::OlderRefused, false),
        (Guard::Leased, Rule::NeverRaisedRefused, false),
        // And they look right where no gap is tried.
        (Guard::CheckThenWrite, Rule::OlderRefused, true),
        (Guard::Texts, Rule::OlderRefused, true),
        (Guard::Equality, Rule::EqualAccepted, true),
        (Guard::Leased, Rule::EqualAccepted, true),
    ] {
        subject.0 = guard;
        let outcome = run_rule(&subject, rule);
        let as_expected = if held { outcome == Outcome::Held } else { matches!(outcome, Outcome::Broken(_)) };
        assert!(as_expected, "{guard:?} by \"{rule}\": {outcome:?}");
    }
}
