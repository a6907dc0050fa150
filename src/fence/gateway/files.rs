//! The gateway: files behind a durable fence.

use super::GatewayError;
use super::disk::{Disk, OWN, Staged};
use super::path::{FilePath, Layout};
use super::raises::Raises;
use super::turn::Turns;
use crate::service::ServiceFence;
use crate::sqlite::SqliteFence;
use crate::{Enforces, Fence, FenceError, FenceFuture, FencingToken, same_cluster};
use ringfence_core::ids::{ClusterId, Epoch, Scope};
use rusqlite::Connection;
use std::cell::Cell;
use std::fmt;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

/// What a gateway is opened with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayOptions {
    /// Whose files are where.
    pub layout: Layout,
    /// The largest file, in bytes: 16 MiB unless said otherwise. A request's body is in memory while it is received, and an append
    /// copies the file.
    pub max_bytes: u64,
}

impl Default for GatewayOptions {
    fn default() -> GatewayOptions {
        GatewayOptions { layout: Layout::ByFolder, max_bytes: 16 << 20 }
    }
}

/// A folder behind a fence. See [`super`].
///
/// Its calls wait for the disk, and writes wait for each other while the file is renamed and the folder synced. Cloning shares it.
#[derive(Clone)]
pub struct FileGateway {
    shared: Arc<Shared>,
}

struct Shared {
    disk: Disk,
    fence: SqliteFence,
    database: Turns<Connection>,
    options: GatewayOptions,
    raises: Raises,
    #[cfg(test)]
    interrupt: std::sync::Mutex<Option<Interrupt>>,
}

/// Where a write can be cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The bytes are staged and synced; nothing was checked.
    Staged,
    /// A higher epoch was remembered; the file is as it was.
    Remembered,
    /// The token was accepted, under the lock.
    Checked,
    /// The file is in its place, or gone; its folder is not synced.
    Placed,
    /// The folder is synced.
    Synced,
}

#[cfg(test)]
pub(super) type Interrupt = Box<dyn Fn(Step) -> std::io::Result<()> + Send>;

/// Who said no: the fence, or what was done under it.
enum Broken<E> {
    Fence(FenceError),
    Work(E),
}

impl<E> From<FenceError> for Broken<E> {
    fn from(error: FenceError) -> Broken<E> {
        Broken::Fence(error)
    }
}

impl<E: From<FenceError>> Broken<E> {
    fn into_error(self) -> E {
        match self {
            Broken::Fence(error) => error.into(),
            Broken::Work(error) => error,
        }
    }
}

impl FileGateway {
    /// Opens a folder with the default options, and makes its fence if there is none.
    ///
    /// # Errors
    /// As [`FileGateway::open_with`].
    pub fn open(dir: &Path, cluster: &ClusterId) -> Result<FileGateway, GatewayError> {
        FileGateway::open_with(dir, cluster, GatewayOptions::default())
    }

    /// Opens a folder.
    ///
    /// # Errors
    /// [`GatewayError::InUse`] when another gateway has it; [`GatewayError::Failed`] when it cannot be opened or written;
    /// [`GatewayError::Fence`] when its fence is of another cluster, or damaged.
    pub fn open_with(
        dir: &Path,
        cluster: &ClusterId,
        options: GatewayOptions,
    ) -> Result<FileGateway, GatewayError> {
        let before = GatewayError::before("opening the folder");
        let disk = Disk::open(dir).map_err(&before)?.ok_or(GatewayError::InUse)?;
        let store = |error| FenceError::store("opening the fence's database", error);
        let database = Connection::open(Disk::own(dir, "fence.db")).map_err(store)?;
        // What a check commits has to last as well, for the file that comes after it does.
        database.pragma_update(None, "synchronous", "EXTRA").map_err(store)?;
        let fence = SqliteFence::install(&database, cluster)?;
        let raises = Raises::start().map_err(GatewayError::before("starting the thread that raises"))?;
        Ok(FileGateway {
            shared: Arc::new(Shared {
                disk,
                fence,
                database: Turns::new(database),
                options,
                raises,
                #[cfg(test)]
                interrupt: std::sync::Mutex::new(None),
            }),
        })
    }

    /// The cluster it belongs to.
    pub fn cluster(&self) -> &ClusterId {
        self.shared.fence.cluster()
    }

    /// What it was opened with.
    pub fn options(&self) -> &GatewayOptions {
        &self.shared.options
    }

    /// Raises the fence of the token's scope, durably. It waits for a write that has begun, and goes before those that wait.
    ///
    /// # Errors
    /// As [`SqliteFence::raise`].
    pub fn raise(&self, token: &FencingToken) -> Result<(), FenceError> {
        self.shared.fence.raise(self.shared.database.to_raise().get(), token)
    }

    /// The highest epoch seen of a scope; `None` when it was never raised.
    ///
    /// # Errors
    /// As [`SqliteFence::highest`].
    pub fn highest(&self, scope: &Scope) -> Result<Option<Epoch>, FenceError> {
        self.shared.fence.highest(self.shared.database.to_write().get(), scope)
    }

    /// Writes a whole file: the old one, if there is one, is replaced in one step.
    ///
    /// The tokens have to have one of the file's scope; those of other scopes are checked as well.
    ///
    /// # Errors
    /// [`GatewayError`]: the fence's refusal, and what is wrong with path, size or disk.
    pub fn put(&self, tokens: &[FencingToken], path: &FilePath, bytes: &[u8]) -> Result<(), GatewayError> {
        self.admit(tokens, path)?;
        self.fits(bytes.len() as u64)?;
        // Outside of the lock: others write while the disk is waited for.
        let staged = self.stage(&mut [&mut &*bytes])?;
        self.step(Step::Staged)?;
        self.change(tokens, || self.place(staged, path))
    }

    /// Appends to a file, or begins one; answers its new length. The file is copied, so that a crash leaves the old or the new one.
    ///
    /// An append that is made twice is there twice. Where its answer may be lost, say in `at` how long the file has to be: the
    /// second one is then refused.
    ///
    /// # Errors
    /// As [`FileGateway::put`], and [`GatewayError::OtherLength`].
    pub fn append(
        &self,
        tokens: &[FencingToken],
        path: &FilePath,
        bytes: &[u8],
        at: Option<u64>,
    ) -> Result<u64, GatewayError> {
        self.admit(tokens, path)?;
        self.change(tokens, || {
            let before = GatewayError::before("reading the file");
            let old = self.shared.disk.read(path).map_err(&before)?;
            let length =
                old.as_ref().map_or(Ok(0), |file| file.metadata().map(|m| m.len())).map_err(&before)?;
            if at.is_some_and(|at| at != length) {
                return Err(GatewayError::OtherLength { length });
            }
            let new = length.saturating_add(bytes.len() as u64);
            self.fits(new)?;
            let staged = match old {
                Some(mut old) => self.stage(&mut [&mut old, &mut &*bytes])?,
                None => self.stage(&mut [&mut &*bytes])?,
            };
            self.place(staged, path)?;
            Ok(new)
        })
    }

    /// Reads a file, makes another of it, and writes that: all under the fence's lock, so nobody writes in between. `work` has
    /// the old bytes, or `None`.
    ///
    /// # Errors
    /// As [`FileGateway::put`], and what `work` answers; the file is then as it was.
    pub fn update<E: From<GatewayError> + From<FenceError>>(
        &self,
        tokens: &[FencingToken],
        path: &FilePath,
        work: impl FnOnce(Option<Vec<u8>>) -> Result<Vec<u8>, E>,
    ) -> Result<(), E> {
        self.admit(tokens, path)?;
        self.change(tokens, || {
            let new = work(self.read_whole(path)?)?;
            self.fits(new.len() as u64)?;
            let staged = self.stage(&mut [&mut &*new])?;
            Ok(self.place(staged, path)?)
        })
    }

    /// Takes a file away. Answers whether there was one, so doing it again is no error.
    ///
    /// # Errors
    /// As [`FileGateway::put`].
    pub fn delete(&self, tokens: &[FencingToken], path: &FilePath) -> Result<bool, GatewayError> {
        self.admit(tokens, path)?;
        self.change(tokens, || {
            let before = GatewayError::before("removing the file");
            let Some(changed) = self.shared.disk.remove(path).map_err(before)? else { return Ok(false) };
            self.lasting(changed)?;
            Ok(true)
        })
    }

    /// Reads a whole file. It is never half of one: a write puts another file in its place.
    ///
    /// Under `tokens` it is a fenced read, which a replaced owner is refused; without any, it is anybody's.
    ///
    /// # Errors
    /// [`GatewayError::NotFound`], [`GatewayError::NotAFile`], [`GatewayError::TooLarge`], and the fence's refusal.
    pub fn read(&self, tokens: &[FencingToken], path: &FilePath) -> Result<Vec<u8>, GatewayError> {
        if tokens.is_empty() {
            self.shared.options.layout.scope_of(path)?;
            return self.read_whole(path)?.ok_or(GatewayError::NotFound);
        }
        self.admit(tokens, path)?;
        // Nothing is changed, so an error in ending the check is what it says.
        self.checked(tokens, || self.read_whole(path)?.ok_or(GatewayError::NotFound))
            .map_err(Broken::into_error)
    }

    fn read_whole(&self, path: &FilePath) -> Result<Option<Vec<u8>>, GatewayError> {
        let before = GatewayError::before("reading the file");
        let Some(file) = self.shared.disk.read(path).map_err(&before)? else { return Ok(None) };
        let mut bytes = Vec::new();
        file.take(self.shared.options.max_bytes.saturating_add(1))
            .read_to_end(&mut bytes)
            .map_err(&before)?;
        self.fits(bytes.len() as u64)?;
        Ok(Some(bytes))
    }

    /// Refuses what the fence need not be asked for: no token, or none of the file's scope.
    fn admit(&self, tokens: &[FencingToken], path: &FilePath) -> Result<(), GatewayError> {
        let scope = self.shared.options.layout.scope_of(path)?;
        let first = tokens.first().ok_or(FenceError::Unstamped)?;
        tokens.iter().try_for_each(|token| same_cluster(self.cluster(), token))?;
        if tokens.iter().any(|token| *token.scope() == scope) {
            Ok(())
        } else {
            Err(FenceError::WrongScope { token: first.clone(), fence: scope }.into())
        }
    }

    /// Checks the tokens and runs the change, in one step. When the change was made and the check's transaction could not be
    /// ended, that is unknown, and not what the database says of itself.
    fn change<T, E: From<FenceError> + From<GatewayError>>(
        &self,
        tokens: &[FencingToken],
        change: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let made = Cell::new(false);
        let change = || change().inspect(|_| made.set(true));
        self.checked(tokens, change).map_err(|broken| match broken {
            Broken::Fence(error) if made.get() => {
                GatewayError::after("ending the check")(io::Error::other(error)).into()
            }
            broken => broken.into_error(),
        })
    }

    /// Checks the tokens and runs `work` under the fence's lock.
    fn checked<T, E: From<FenceError> + From<GatewayError>>(
        &self,
        tokens: &[FencingToken],
        work: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, Broken<E>> {
        let (fence, mut turn) = (&self.shared.fence, self.shared.database.to_write());
        let database = turn.get();
        for token in tokens {
            // An epoch that comes with a write is on disk before the file changes: should the process die in between, the
            // fence knows more than the file, and never less.
            if fence.highest(database, token.scope())?.is_some_and(|highest| highest < token.epoch()) {
                fence.write(database, tokens, |_| Ok::<_, FenceError>(()))?;
                self.step(Step::Remembered).map_err(|error| Broken::Work(error.into()))?;
                break;
            }
        }
        fence.write(database, tokens, |_| {
            self.step(Step::Checked).map_err(|error| Broken::Work(error.into()))?;
            work().map_err(Broken::Work)
        })
    }

    fn place(&self, staged: Staged<'_>, path: &FilePath) -> Result<(), GatewayError> {
        let before = GatewayError::before("putting the file in its place");
        let changed = self.shared.disk.place(staged, path).map_err(before)?;
        self.lasting(changed)
    }

    fn lasting(&self, changed: super::disk::Changed) -> Result<(), GatewayError> {
        let after = GatewayError::after("syncing the folder");
        self.at(Step::Placed).map_err(&after)?;
        changed.sync().map_err(&after)?;
        self.at(Step::Synced).map_err(&after)
    }

    fn stage(&self, pieces: &mut [&mut dyn Read]) -> Result<Staged<'_>, GatewayError> {
        self.shared.disk.stage(pieces).map_err(GatewayError::before("writing the file"))
    }

    fn fits(&self, length: u64) -> Result<(), GatewayError> {
        let limit = self.shared.options.max_bytes;
        if length > limit { Err(GatewayError::TooLarge { limit }) } else { Ok(()) }
    }

    fn step(&self, step: Step) -> Result<(), GatewayError> {
        self.at(step).map_err(GatewayError::before("writing the file"))
    }

    /// Where the tests of this module cut a write off; nothing anywhere else.
    #[cfg(test)]
    fn at(&self, step: Step) -> std::io::Result<()> {
        let interrupt = self.shared.interrupt.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        interrupt.as_ref().map_or(Ok(()), |interrupt| interrupt(step))
    }

    #[cfg(not(test))]
    #[allow(clippy::unused_self, reason = "the tests have one that uses it")]
    fn at(&self, _: Step) -> std::io::Result<()> {
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn interrupted_by(&self, interrupt: Interrupt) {
        *self.shared.interrupt.lock().unwrap() = Some(interrupt);
    }

    /// On a thread that may wait, where there is a runtime of tokio; at once where there is none.
    pub(super) fn waiting<T: Send + 'static>(
        &self,
        work: impl FnOnce(&FileGateway) -> Result<T, FenceError> + Send + 'static,
    ) -> FenceFuture<'static, T> {
        let this = self.clone();
        match tokio::runtime::Handle::try_current() {
            Err(_) => Box::pin(std::future::ready(work(&this))),
            Ok(runtime) => Box::pin(async move {
                let task = runtime.spawn_blocking(move || work(&this));
                task.await.unwrap_or_else(|error| Err(FenceError::store("waiting for the fence", error)))
            }),
        }
    }
}

/// On a runtime of tokio; without one, its answers are ready when the call returns.
impl Fence for FileGateway {
    fn raise<'a>(&'a self, token: &'a FencingToken) -> FenceFuture<'a, ()> {
        match tokio::runtime::Handle::try_current() {
            Err(_) => Box::pin(std::future::ready(FileGateway::raise(self, token))),
            Ok(_) => Box::pin(self.shared.raises.raise(self.clone(), token.clone())),
        }
    }

    fn highest<'a>(&'a self, scope: &'a Scope) -> FenceFuture<'a, Option<Epoch>> {
        let scope = scope.clone();
        self.waiting(move |this| this.highest(&scope))
    }
}

impl Enforces for FileGateway {}

impl ServiceFence for FileGateway {
    fn cluster(&self) -> &ClusterId {
        FileGateway::cluster(self)
    }
}

impl fmt::Debug for FileGateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileGateway of {} ({OWN} holds its fence)", self.cluster())
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
