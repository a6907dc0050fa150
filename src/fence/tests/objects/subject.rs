//! Texts under keys in an object store, behind the fence: in memory, in a folder, and in S3.

use crate::dumb::{Dumb, Manner};
use crate::moto::{Moto, wait};
use crate::wire::Wire;
use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use ringfence_core::ids::{ClusterId, Epoch, Scope};
use ringfence_fence::conformance::{CleanUp, Crash, Handle, Store, Subject};
use ringfence_fence::object::{ObjectFence, ObjectOptions, ObjectWrite, Snapshot, Staged};
use ringfence_fence::{FenceError, FencingToken};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

pub(crate) fn token(text: &str) -> FencingToken {
    text.parse().unwrap()
}

pub(crate) fn cluster(name: &str) -> ClusterId {
    ClusterId::new(name).unwrap()
}

pub(crate) fn options() -> ObjectOptions {
    ObjectFence::options(&cluster("prod"))
}

/// A write of one text.
pub(crate) fn put(key: &str, text: &str) -> ObjectWrite {
    ObjectWrite::new().put(key, text.to_owned())
}

/// Where the objects are, and how the manifest is replaced there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Memory,
    MemoryByCreating,
    Folder,
    /// The sound server of the test's own, which is asked by many at once.
    Http,
    S3,
    S3ByCreating,
}

/// All scopes in one manifest, so that a write may touch several.
pub(crate) struct ObjectSubject(pub(crate) Kind);

impl ObjectSubject {
    pub(crate) fn options(&self) -> ObjectOptions {
        let together = options().together("all");
        match self.0 {
            Kind::Memory | Kind::Http | Kind::S3 => together,
            Kind::MemoryByCreating | Kind::Folder | Kind::S3ByCreating => together.by_creating(),
        }
    }
}

impl Subject for ObjectSubject {
    type Store = Objects;

    fn fresh(&self, bound: &ClusterId) -> Result<Objects, FenceError> {
        assert_eq!(*bound, cluster("prod"));
        let (backing, store): (_, Arc<dyn ObjectStore>) = match self.0 {
            Kind::Memory | Kind::MemoryByCreating => (Backing::Memory, Arc::new(InMemory::new())),
            Kind::Folder => {
                let dir = tempfile::tempdir().unwrap();
                let store = folder(&dir);
                (Backing::Folder(dir), store)
            }
            Kind::Http => {
                let dumb = Dumb::new(Manner::Sound);
                let store = Arc::new(Wire::default().s3(dumb.port(), "bucket"));
                (Backing::Http(dumb), store)
            }
            Kind::S3 | Kind::S3ByCreating => {
                let moto = Moto::shared();
                let store = Arc::new(moto.bucket(&Wire::default()));
                (Backing::S3(moto), store)
            }
        };
        // It is tested once a store.
        wait(self.options().install(Arc::clone(&store), "fence"))?;
        Ok(Objects { backing, store, options: self.options().trusting_the_store() })
    }

    fn keeps_sessions(&self) -> bool {
        true
    }
}

fn folder(dir: &TempDir) -> Arc<dyn ObjectStore> {
    Arc::new(LocalFileSystem::new_with_prefix(dir.path()).unwrap().with_fsync(true))
}

enum Backing {
    Memory,
    Folder(TempDir),
    Http(#[allow(dead_code, reason = "it is kept running")] Dumb),
    S3(#[allow(dead_code, reason = "it is kept running")] Arc<Moto>),
}

pub(crate) struct Objects {
    backing: Backing,
    pub(crate) store: Arc<dyn ObjectStore>,
    options: ObjectOptions,
}

impl Store for Objects {
    type Handle = ObjectHandle;

    fn open(&self) -> Result<ObjectHandle, FenceError> {
        let fence = wait(self.options.clone().install(Arc::clone(&self.store), "fence"))?;
        Ok(ObjectHandle { fence, seen: None })
    }

    fn crash(&mut self) -> Result<Crash, FenceError> {
        match &self.backing {
            // What is in a folder is all there is.
            Backing::Folder(dir) => {
                self.store = folder(dir);
                Ok(Crash::Restarted)
            }
            Backing::Memory | Backing::Http(_) | Backing::S3(_) => Ok(Crash::LosesEverything),
        }
    }

    /// As its owner does: removes every key, and then every object that no manifest names.
    fn clean_up(&mut self) -> Result<CleanUp, FenceError> {
        let hand = self.open()?;
        let scope = hand.any_scope();
        let snapshot = wait(hand.fence.read(&scope))?.unwrap();
        let owner = FencingToken::new(cluster("prod"), scope.clone(), snapshot.epoch(&scope).unwrap());
        let removing = snapshot.keys().fold(ObjectWrite::new(), |write, (key, _)| write.remove(key));
        wait(hand.fence.write(std::slice::from_ref(&owner), removing.on(&snapshot)))?;
        wait(hand.fence.sweep(&owner, Duration::ZERO))?;
        Ok(CleanUp::Done)
    }
}

pub(crate) struct ObjectHandle {
    pub(crate) fence: ObjectFence,
    /// A scope of the manifest: which does not matter.
    pub(crate) seen: Option<Scope>,
}

impl ObjectHandle {
    pub(crate) fn any_scope(&self) -> Scope {
        self.seen.clone().unwrap_or_else(|| "orders/1".parse().unwrap())
    }
}

impl Handle for ObjectHandle {
    fn raise(&mut self, token: &FencingToken) -> Result<(), FenceError> {
        self.seen = Some(token.scope().clone());
        wait(self.fence.raise(token)).map(drop)
    }

    fn write(
        &mut self,
        tokens: &[FencingToken],
        pairs: &[(&str, &str)],
        paused: &mut dyn FnMut(),
    ) -> Result<(), FenceError> {
        let write = pairs.iter().fold(ObjectWrite::new(), |w, (key, text)| w.put(key, text.to_string()));
        let staged = wait(self.fence.stage(tokens, write))?;
        paused();
        wait(staged.commit()).map(drop)
    }

    fn data(&mut self) -> Result<BTreeMap<String, String>, FenceError> {
        contents(&self.fence, &self.any_scope())
    }

    fn highest(&mut self, scope: &Scope) -> Result<Option<Epoch>, FenceError> {
        wait(self.fence.highest(scope))
    }
}

/// All texts beside a scope's manifest.
pub(crate) fn contents(fence: &ObjectFence, scope: &Scope) -> Result<BTreeMap<String, String>, FenceError> {
    wait(async {
        let Some(snapshot) = fence.read(scope).await? else { return Ok(BTreeMap::new()) };
        let mut all = BTreeMap::new();
        for (key, _) in snapshot.keys() {
            let content = fence.get(scope, key).await?.unwrap();
            all.insert(key.to_owned(), String::from_utf8(content.to_vec()).unwrap());
        }
        Ok(all)
    })
}

/// A fence in a server of the test's own, with a manifest for each scope, over a wire that can fail.
pub(crate) struct Fenced {
    pub(crate) dumb: Dumb,
    pub(crate) wire: Wire,
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) fence: ObjectFence,
}

impl Fenced {
    pub(crate) fn new() -> Fenced {
        Fenced::with(options())
    }

    pub(crate) fn by_creating() -> Fenced {
        Fenced::with(options().by_creating())
    }

    /// Both ways to replace a manifest.
    pub(crate) fn both() -> [Fenced; 2] {
        [Fenced::new(), Fenced::by_creating()]
    }

    fn with(options: ObjectOptions) -> Fenced {
        Fenced::in_store(Manner::Sound, options)
    }

    pub(crate) fn in_store(manner: Manner, options: ObjectOptions) -> Fenced {
        let (dumb, wire) = (Dumb::new(manner), Wire::default());
        let store: Arc<dyn ObjectStore> = Arc::new(wire.s3(dumb.port(), "bucket"));
        let fence = wait(options.install(Arc::clone(&store), "")).unwrap();
        wire.sent();
        Fenced { dumb, wire, store, fence }
    }

    pub(crate) fn raise(&self, token: &FencingToken) -> Result<Snapshot, FenceError> {
        wait(self.fence.raise(token))
    }

    pub(crate) fn write(&self, token: &FencingToken, write: ObjectWrite) -> Result<Snapshot, FenceError> {
        wait(self.fence.write(std::slice::from_ref(token), write))
    }

    pub(crate) fn stage(&self, token: &FencingToken, write: ObjectWrite) -> Result<Staged, FenceError> {
        wait(self.fence.stage(std::slice::from_ref(token), write))
    }

    pub(crate) fn get(&self, token: &FencingToken, key: &str) -> Option<String> {
        let content = wait(self.fence.get(token.scope(), key)).unwrap();
        content.map(|content| String::from_utf8(content.to_vec()).unwrap())
    }

    /// The number of the newest commit, and its epoch.
    pub(crate) fn newest(&self, token: &FencingToken) -> (u64, u64) {
        let snapshot = wait(self.fence.read(token.scope())).unwrap().unwrap();
        (snapshot.number(), snapshot.epoch(token.scope()).unwrap().get())
    }
}
