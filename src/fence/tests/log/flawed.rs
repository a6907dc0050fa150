//! The negative controls: guards that people write around a file, each found by the rule that names it.

use crate::subject::{LogHandle, LogStore, LogSubject};
use ringfence_core::ids::{ClusterId, Epoch, Scope};
use ringfence_fence::conformance::{Crash, Handle, Outcome, Rule, Store, Subject, run_rule};
use ringfence_fence::{FenceError, Fenced, FencingToken};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

#[derive(Clone, Copy, Debug)]
enum Guard {
    /// The sound check, and then the write: not in one step.
    CheckThenWrite,
    /// An epoch in a file beside the data, written by whoever comes.
    LastEpochWins,
    /// A file that is there while somebody owns, made by whoever comes first. It has to be taken over from an owner that is taken
    /// for dead, and nobody is refused by number.
    LockFile,
}

struct Flawed(Guard);

struct FlawedStore(Guard, LogStore);

struct FlawedHandle {
    guard: Guard,
    log: LogHandle,
    plain: PathBuf,
    epoch: PathBuf,
}

impl Subject for Flawed {
    type Store = FlawedStore;

    fn fresh(&self, cluster: &ClusterId) -> Result<FlawedStore, FenceError> {
        Ok(FlawedStore(self.0, LogSubject.fresh(cluster)?))
    }
}

impl Store for FlawedStore {
    type Handle = FlawedHandle;

    fn open(&self) -> Result<FlawedHandle, FenceError> {
        let dir = self.1.0.dir();
        let (plain, epoch) = (dir.join("plain"), dir.join("epoch"));
        Ok(FlawedHandle { guard: self.0, log: self.1.open()?, plain, epoch })
    }

    fn crash(&mut self) -> Result<Crash, FenceError> {
        unreachable!("no rule that crashes is run")
    }
}

impl FlawedHandle {
    fn seen(&self) -> Option<Epoch> {
        let text = std::fs::read_to_string(&self.epoch).ok()?;
        Some(Epoch::new(text.parse().unwrap()).unwrap())
    }
}

impl Handle for FlawedHandle {
    fn raise(&mut self, token: &FencingToken) -> Result<(), FenceError> {
        match self.guard {
            Guard::CheckThenWrite => self.log.raise(token),
            Guard::LastEpochWins => {
                std::fs::write(&self.epoch, token.epoch().get().to_string()).unwrap();
                Ok(())
            }
            Guard::LockFile => {
                let lock = || File::options().write(true).create_new(true).open(&self.epoch);
                let mut lock = lock().unwrap_or_else(|_| {
                    // Whoever had it is dead, as far as anybody knows.
                    std::fs::remove_file(&self.epoch).unwrap();
                    lock().unwrap()
                });
                lock.write_all(token.epoch().get().to_string().as_bytes()).unwrap();
                Ok(())
            }
        }
    }

    fn write(
        &mut self,
        tokens: &[FencingToken],
        pairs: &[(&str, &str)],
        paused: &mut dyn FnMut(),
    ) -> Result<(), FenceError> {
        match (self.guard, self.seen()) {
            (Guard::CheckThenWrite, _) => self.log.0.check(tokens)?,
            (Guard::LastEpochWins, Some(seen)) if tokens[0].epoch() != seen => {
                return Err(Fenced::new(tokens[0].clone(), seen).into());
            }
            (Guard::LockFile, None) => return Err(FenceError::NotRaised { token: tokens[0].clone() }),
            (Guard::LastEpochWins | Guard::LockFile, _) => {}
        }
        paused();
        let mut file = File::options().create(true).append(true).open(&self.plain).unwrap();
        for (key, value) in pairs {
            file.write_all(format!("{key}={value}\n").as_bytes()).unwrap();
        }
        Ok(())
    }

    fn data(&mut self) -> Result<BTreeMap<String, String>, FenceError> {
        let plain = std::fs::read_to_string(&self.plain).unwrap_or_default();
        let pairs = plain.lines().map(|line| line.split_once('=').unwrap());
        Ok(pairs.map(|(key, value)| (key.to_string(), value.to_string())).collect())
    }

    fn highest(&mut self, scope: &Scope) -> Result<Option<Epoch>, FenceError> {
        match self.guard {
            Guard::CheckThenWrite => self.log.highest(scope),
            Guard::LastEpochWins | Guard::LockFile => Ok(self.seen()),
        }
    }
}

#[test]
fn t57_t01_t03_guards_that_leave_a_gap_are_found() {
    for (guard, rule, held) in [
        (Guard::CheckThenWrite, Rule::OneStep, false),
        (Guard::LastEpochWins, Rule::ForwardOnly, false),
        (Guard::LockFile, Rule::OlderRefused, false),
        (Guard::LockFile, Rule::NeverRaisedRefused, false),
        // And they look right where no gap is tried.
        (Guard::CheckThenWrite, Rule::OlderRefused, true),
        (Guard::LastEpochWins, Rule::EqualAccepted, true),
        (Guard::LockFile, Rule::EqualAccepted, true),
    ] {
        let outcome = run_rule(&Flawed(guard), rule);
        let as_expected = if held { outcome == Outcome::Held } else { matches!(outcome, Outcome::Broken(_)) };
        assert!(as_expected, "{guard:?} by \"{rule}\": {outcome:?}");
    }
}
