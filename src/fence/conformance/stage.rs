//! What the rules share: a fresh store, tokens, patience with a busy storage, and words for what went wrong.

use super::{Handle, Store, Subject};
use crate::{FenceError, FenceErrorKind, FencingToken, TokenError};
use ringfence_core::ids::{ClusterId, Epoch, KeyspaceName, PartitionId, Scope};
use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

/// How long a busy or silent storage is waited for.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// How a rule ends early.
#[derive(Debug)]
pub(super) enum End {
    Broken(String),
    DoesNotApply(&'static str),
}

pub(super) type Verdict = Result<(), End>;

pub(super) fn broken<T>(what: impl Into<String>) -> Result<T, End> {
    Err(End::Broken(what.into()))
}

/// Ends the rule when the condition does not hold.
pub(super) fn require(condition: bool, what: impl FnOnce() -> String) -> Verdict {
    if condition { Ok(()) } else { Err(End::Broken(what())) }
}

/// A store of cluster `prod` with a handle to it.
pub(super) struct Stage<S: Store> {
    pub(super) store: S,
    pub(super) hand: S::Handle,
}

impl<S: Store> Stage<S> {
    pub(super) fn of<T: Subject<Store = S>>(subject: &T) -> Result<Stage<S>, End> {
        let cluster = cluster("prod")?;
        let store = worked("making a store", subject.fresh(&cluster))?;
        let hand = worked("opening a handle", store.open())?;
        Ok(Stage { store, hand })
    }

    pub(super) fn open(&self) -> Result<S::Handle, End> {
        worked("opening another handle", self.store.open())
    }
}

pub(super) fn cluster(name: &str) -> Result<ClusterId, End> {
    ClusterId::new(name).map_err(|error| End::Broken(error.to_string()))
}

pub(super) fn scope(partition: u32) -> Result<Scope, End> {
    let keyspace = KeyspaceName::new("orders").map_err(|error| End::Broken(error.to_string()))?;
    Ok(Scope::Partition(keyspace, PartitionId::new(partition)))
}

pub(super) fn epoch(number: u64) -> Result<Epoch, End> {
    Epoch::new(number).map_err(|error| End::Broken(error.to_string()))
}

/// A token by its text, for scopes other than partitions of `orders`.
pub(super) fn parsed(text: &str) -> Result<FencingToken, End> {
    text.parse().map_err(|error: TokenError| End::Broken(error.to_string()))
}

/// The token of a partition of keyspace `orders`, of cluster `prod`.
pub(super) fn token(partition: u32, epoch: u64) -> Result<FencingToken, End> {
    Ok(FencingToken::new(cluster("prod")?, scope(partition)?, self::epoch(epoch)?))
}

/// The handle's verbs, as the rules say them.
pub(super) trait Hand {
    fn raised(&mut self, token: &FencingToken) -> Verdict;
    fn wrote(&mut self, tokens: &[FencingToken], pairs: &[(&str, &str)]) -> Verdict;
    fn raise_refused(&mut self, token: &FencingToken, kind: FenceErrorKind) -> Result<FenceError, End>;
    fn write_refused(&mut self, tokens: &[FencingToken], kind: FenceErrorKind) -> Result<FenceError, End>;
    fn contents(&mut self) -> Result<BTreeMap<String, String>, End>;
    fn seen(&mut self, scope: &Scope) -> Result<Option<u64>, End>;
}

impl<H: Handle> Hand for H {
    fn raised(&mut self, token: &FencingToken) -> Verdict {
        worked(&format!("raising to {}", token.short()), patiently(|| self.raise(token)))
    }

    fn wrote(&mut self, tokens: &[FencingToken], pairs: &[(&str, &str)]) -> Verdict {
        worked(&format!("writing under {tokens:?}"), patiently(|| self.write(tokens, pairs, &mut || ())))
    }

    fn raise_refused(&mut self, token: &FencingToken, kind: FenceErrorKind) -> Result<FenceError, End> {
        refused(&format!("a raise to {token}"), patiently(|| self.raise(token)), kind)
    }

    fn write_refused(&mut self, tokens: &[FencingToken], kind: FenceErrorKind) -> Result<FenceError, End> {
        let answer = patiently(|| self.write(tokens, &[("refused", "this was to be refused")], &mut || ()));
        refused(&format!("a write under {tokens:?}"), answer, kind)
    }

    fn contents(&mut self) -> Result<BTreeMap<String, String>, End> {
        worked("reading the data", patiently(|| self.data()))
    }

    fn seen(&mut self, scope: &Scope) -> Result<Option<u64>, End> {
        Ok(worked("reading the fence", patiently(|| self.highest(scope)))?.map(Epoch::get))
    }
}

fn worked<T>(doing: &str, answer: Result<T, FenceError>) -> Result<T, End> {
    answer.or_else(|error| broken(format!("{doing} failed: {error}")))
}

fn refused(what: &str, answer: Result<(), FenceError>, kind: FenceErrorKind) -> Result<FenceError, End> {
    match answer {
        Ok(()) => broken(format!("{what} was accepted")),
        Err(error) if error.kind() == kind => Ok(error),
        Err(error) => {
            broken(format!("{what} was answered with {:?} instead of {kind:?}: {error}", error.kind()))
        }
    }
}

/// Tries again while the storage says that it is busy.
pub(super) fn patiently<T>(mut call: impl FnMut() -> Result<T, FenceError>) -> Result<T, FenceError> {
    let start = Instant::now();
    loop {
        match call() {
            Err(error) if error.is_retryable() && start.elapsed() < PATIENCE => {
                thread::sleep(Duration::from_millis(1));
            }
            answer => return answer,
        }
    }
}
