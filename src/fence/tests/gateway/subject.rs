//! A folder with one file of texts a scope, behind the gateway or not.

use ringfence_core::ids::{ClusterId, Epoch, Scope};
use ringfence_fence::conformance::{CleanUp, Crash, Handle, Store, Subject};
use ringfence_fence::gateway::{FileGateway, FilePath, GatewayError};
use ringfence_fence::{FenceError, Fenced as Refused, FencingToken};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

pub(crate) fn token(text: &str) -> FencingToken {
    text.parse().unwrap()
}

pub(crate) fn path(text: &str) -> FilePath {
    text.parse().unwrap()
}

pub(crate) fn cluster(name: &str) -> ClusterId {
    ClusterId::new(name).unwrap()
}

pub(crate) fn opened(dir: &TempDir) -> FileGateway {
    FileGateway::open(dir.path(), &cluster("prod")).unwrap()
}

/// Who looks at the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fenced {
    /// The gateway.
    Yes,
    /// Nobody: the program writes the folder by itself.
    No,
    /// The program, which asks the gateway for the highest epoch, and writes by itself.
    CheckedBefore,
}

pub(crate) struct FileSubject(pub(crate) Fenced);

impl Subject for FileSubject {
    type Store = FileStore;

    fn fresh(&self, bound: &ClusterId) -> Result<FileStore, FenceError> {
        let dir = Arc::new(tempfile::tempdir().unwrap());
        let gateway = FileGateway::open(dir.path(), bound).map_err(as_fence_error)?;
        Ok(FileStore { fenced: self.0, dir, gateway: Some(gateway) })
    }

    fn keeps_sessions(&self) -> bool {
        true
    }
}

pub(crate) struct FileStore {
    fenced: Fenced,
    dir: Arc<TempDir>,
    gateway: Option<FileGateway>,
}

impl Store for FileStore {
    type Handle = FileHandle;

    fn open(&self) -> Result<FileHandle, FenceError> {
        let gateway = self.gateway.clone().unwrap();
        Ok(FileHandle { fenced: self.fenced, dir: Arc::clone(&self.dir), gateway })
    }

    /// Opens the folder again, as it stands.
    fn crash(&mut self) -> Result<Crash, FenceError> {
        self.gateway = None;
        self.gateway = Some(opened(&self.dir));
        Ok(Crash::Restarted)
    }

    /// As `rm -r DIR/*` does, which takes no name that begins with a dot.
    fn clean_up(&mut self) -> Result<CleanUp, FenceError> {
        let _ = std::fs::remove_dir_all(self.dir.path().join("orders"));
        Ok(CleanUp::Done)
    }
}

pub(crate) struct FileHandle {
    fenced: Fenced,
    dir: Arc<TempDir>,
    gateway: FileGateway,
}

/// A refusal of the fence is one; the suite expects no other.
fn as_fence_error(error: GatewayError) -> FenceError {
    match error {
        GatewayError::Fence(error) => error,
        other => FenceError::store("writing a file", other),
    }
}

/// The error of a closure that writes.
enum Failed {
    Gateway(GatewayError),
    Fence(FenceError),
}

impl From<GatewayError> for Failed {
    fn from(error: GatewayError) -> Failed {
        Failed::Gateway(error)
    }
}

impl From<FenceError> for Failed {
    fn from(error: FenceError) -> Failed {
        Failed::Fence(error)
    }
}

fn read(text: &str) -> BTreeMap<String, String> {
    text.lines().map(|line| line.split_once('=').unwrap()).map(|(k, v)| (k.into(), v.into())).collect()
}

fn with(old: Option<Vec<u8>>, pairs: &[(&str, &str)]) -> Vec<u8> {
    let mut map = read(std::str::from_utf8(&old.unwrap_or_default()).unwrap());
    map.extend(pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())));
    map.into_iter().map(|(key, value)| format!("{key}={value}\n")).collect::<String>().into_bytes()
}

impl FileHandle {
    /// Writes by itself, as a program does that knows no gateway.
    fn by_itself(&self, scope: &Scope, pairs: &[(&str, &str)]) {
        let file = self.dir.path().join(scope.to_string()).join("texts");
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        let old = std::fs::read(&file).ok();
        std::fs::write(file, with(old, pairs)).unwrap();
    }
}

impl Handle for FileHandle {
    fn raise(&mut self, token: &FencingToken) -> Result<(), FenceError> {
        self.gateway.raise(token)
    }

    fn write(
        &mut self,
        tokens: &[FencingToken],
        pairs: &[(&str, &str)],
        paused: &mut dyn FnMut(),
    ) -> Result<(), FenceError> {
        let scope = tokens.iter().map(FencingToken::scope).min().cloned();
        let Some(scope) = scope else {
            return self.gateway.put(&[], &path("orders/1/texts"), b"").map_err(as_fence_error);
        };
        match self.fenced {
            Fenced::Yes => {
                let written = self.gateway.update(tokens, &path(&format!("{scope}/texts")), |old| {
                    paused();
                    Ok::<_, Failed>(with(old, pairs))
                });
                written.map_err(|error| match error {
                    Failed::Gateway(error) => as_fence_error(error),
                    Failed::Fence(error) => error,
                })
            }
            other => {
                if other == Fenced::CheckedBefore
                    && let Some(highest) = self.gateway.highest(&scope)?.filter(|h| *h > tokens[0].epoch())
                {
                    return Err(Refused::new(tokens[0].clone(), highest).into());
                }
                paused();
                self.by_itself(&scope, pairs);
                Ok(())
            }
        }
    }

    fn data(&mut self) -> Result<BTreeMap<String, String>, FenceError> {
        Ok(texts(&self.dir.path().join("orders")))
    }

    fn highest(&mut self, scope: &Scope) -> Result<Option<Epoch>, FenceError> {
        self.gateway.highest(scope)
    }
}

/// What stands in the files, read as any program reads them.
fn texts(keyspace: &Path) -> BTreeMap<String, String> {
    let Ok(folders) = std::fs::read_dir(keyspace) else { return BTreeMap::new() };
    let files = folders.map(|folder| folder.unwrap().path().join("texts"));
    files.filter_map(|file| std::fs::read_to_string(file).ok()).flat_map(|text| read(&text)).collect()
}
