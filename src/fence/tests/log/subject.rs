//! A map in a log: each entry puts some texts.

use ringfence_core::ids::{ClusterId, Epoch, Scope};
use ringfence_fence::conformance::{Crash, Handle, Store, Subject};
use ringfence_fence::log::FencedLog;
use ringfence_fence::{FenceError, FencingToken};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

pub(crate) fn token(text: &str) -> FencingToken {
    text.parse().unwrap()
}

pub(crate) fn cluster(name: &str) -> ClusterId {
    ClusterId::new(name).unwrap()
}

/// A directory with a log of cluster `prod` in it.
pub(crate) struct Place {
    dir: TempDir,
}

impl Place {
    pub(crate) fn new() -> Place {
        let place = Place { dir: tempfile::tempdir().unwrap() };
        place.open();
        place
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    pub(crate) fn open(&self) -> FencedLog {
        FencedLog::install(self.path(), &cluster("prod")).unwrap()
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        std::fs::read(self.path()).unwrap()
    }

    /// As a write that was cut short leaves it.
    pub(crate) fn tear(&self) {
        let mut file = File::options().append(true).open(self.path()).unwrap();
        file.write_all(b"RFL1 and no more").unwrap();
    }
}

/// All entries, as texts.
pub(crate) fn texts(log: &mut FencedLog) -> Vec<String> {
    let mut texts = Vec::new();
    log.read(|entry| texts.push(String::from_utf8(entry.payload).unwrap())).unwrap();
    texts
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct LogSubject;

impl Subject for LogSubject {
    type Store = LogStore;

    fn fresh(&self, bound: &ClusterId) -> Result<LogStore, FenceError> {
        assert_eq!(*bound, cluster("prod"));
        Ok(LogStore(Place::new()))
    }

    fn keeps_sessions(&self) -> bool {
        true
    }
}

pub(crate) struct LogStore(pub(crate) Place);

impl Store for LogStore {
    type Handle = LogHandle;

    fn open(&self) -> Result<LogHandle, FenceError> {
        Ok(LogHandle(FencedLog::install(self.0.path(), &cluster("prod"))?))
    }

    /// Nothing is closed in order, and a record is left half written.
    fn crash(&mut self) -> Result<Crash, FenceError> {
        self.0.tear();
        Ok(Crash::Restarted)
    }
}

pub(crate) struct LogHandle(pub(crate) FencedLog);

impl Handle for LogHandle {
    fn raise(&mut self, token: &FencingToken) -> Result<(), FenceError> {
        self.0.raise(token)
    }

    fn write(
        &mut self,
        tokens: &[FencingToken],
        pairs: &[(&str, &str)],
        paused: &mut dyn FnMut(),
    ) -> Result<(), FenceError> {
        let entry = pairs.iter().fold(String::new(), |entry, (key, value)| entry + key + "=" + value + "\n");
        let make = || {
            paused();
            vec![entry.into_bytes()]
        };
        self.0.append_with(tokens, make).map(drop)
    }

    fn data(&mut self) -> Result<BTreeMap<String, String>, FenceError> {
        let mut data = BTreeMap::new();
        self.0.read(|entry| {
            for line in String::from_utf8(entry.payload).unwrap().lines() {
                let (key, value) = line.split_once('=').unwrap();
                data.insert(key.to_string(), value.to_string());
            }
        })?;
        Ok(data)
    }

    fn highest(&mut self, scope: &Scope) -> Result<Option<Epoch>, FenceError> {
        self.0.highest(scope)
    }
}
