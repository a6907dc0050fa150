//! A way in for storage with an async client.

use super::Handle;
use crate::{FenceError, FencingToken};
use ringfence_core::ids::{Epoch, Scope};
use std::collections::BTreeMap;
use std::pin::{Pin, pin};

/// [`Handle`] with async functions. Write them as `async fn`; [`Blocking`] makes a handle of it.
///
/// The futures need not be `Send`: each handle runs its own to their end, on the thread that asked.
pub trait AsyncHandle: Send + 'static {
    /// As [`Handle::raise`].
    ///
    /// # Errors
    /// As [`Handle::raise`].
    fn raise(&mut self, token: &FencingToken) -> impl Future<Output = Result<(), FenceError>>;

    /// As [`Handle::write`]. `paused` blocks the thread, as a process does that stops.
    ///
    /// # Errors
    /// As [`Handle::write`].
    fn write(
        &mut self,
        tokens: &[FencingToken],
        pairs: &[(&str, &str)],
        paused: &mut dyn FnMut(),
    ) -> impl Future<Output = Result<(), FenceError>>;

    /// As [`Handle::data`].
    ///
    /// # Errors
    /// As [`Handle::data`].
    fn data(&mut self) -> impl Future<Output = Result<BTreeMap<String, String>, FenceError>>;

    /// As [`Handle::highest`].
    ///
    /// # Errors
    /// As [`Handle::highest`].
    fn highest(&mut self, scope: &Scope) -> impl Future<Output = Result<Option<Epoch>, FenceError>>;
}

/// An [`AsyncHandle`] with the runtime that drives it.
///
/// ```
/// # use ringfence_core::ids::{ClusterId, Epoch, Scope};
/// # use ringfence_fence::conformance::{AsyncHandle, Blocking, Crash, Store};
/// # use ringfence_fence::{FenceError, FencingToken};
/// # use std::collections::BTreeMap;
/// # struct Client;
/// # impl Client { async fn connect(_: &str) -> Result<Client, FenceError> { Ok(Client) } }
/// # impl AsyncHandle for Client {
/// #     async fn raise(&mut self, _: &FencingToken) -> Result<(), FenceError> { Ok(()) }
/// #     async fn write(&mut self, _: &[FencingToken], _: &[(&str, &str)], _: &mut dyn FnMut()) -> Result<(), FenceError> { Ok(()) }
/// #     async fn data(&mut self) -> Result<BTreeMap<String, String>, FenceError> { Ok(BTreeMap::new()) }
/// #     async fn highest(&mut self, _: &Scope) -> Result<Option<Epoch>, FenceError> { Ok(None) }
/// # }
/// struct Server;
///
/// impl Store for Server {
///     type Handle = Blocking<Client>;
///
///     fn open(&self) -> Result<Blocking<Client>, FenceError> {
///         // A runtime for each handle, of one thread: it stops as a whole when the handle is paused.
///         let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()
///             .map_err(|error| FenceError::store("opening", error))?;
///         let client = runtime.block_on(Client::connect("127.0.0.1:7700"))?;
///         Ok(Blocking::new(client, move |future| runtime.block_on(future)))
///     }
/// #   fn crash(&mut self) -> Result<Crash, FenceError> { Ok(Crash::LosesEverything) }
/// }
/// # Server.open().unwrap();
/// ```
///
/// Do not let two handles share a runtime of one thread: the one that is paused would stop the other one too, and the
/// rules about pauses would test nothing.
pub struct Blocking<H> {
    handle: H,
    block_on: BlockOn,
}

type BlockOn = Box<dyn FnMut(Pin<&mut (dyn Future<Output = ()> + '_)>) + Send>;

impl<H> Blocking<H> {
    /// `block_on` runs a future to its end: a runtime's function of that name.
    pub fn new(
        handle: H,
        block_on: impl FnMut(Pin<&mut (dyn Future<Output = ()> + '_)>) + Send + 'static,
    ) -> Blocking<H> {
        Blocking { handle, block_on: Box::new(block_on) }
    }
}

/// Runs a call to its end and answers what it did.
fn answered<T>(
    block_on: &mut BlockOn,
    call: impl Future<Output = Result<T, FenceError>>,
) -> Result<T, FenceError> {
    let mut answer = None;
    block_on(pin!(async { answer = Some(call.await) }));
    let gone =
        || FenceError::store("waiting", std::io::Error::other("the runtime did not run the call to its end"));
    answer.unwrap_or_else(|| Err(gone()))
}

impl<H: AsyncHandle> Handle for Blocking<H> {
    fn raise(&mut self, token: &FencingToken) -> Result<(), FenceError> {
        answered(&mut self.block_on, self.handle.raise(token))
    }

    fn write(
        &mut self,
        tokens: &[FencingToken],
        pairs: &[(&str, &str)],
        paused: &mut dyn FnMut(),
    ) -> Result<(), FenceError> {
        answered(&mut self.block_on, self.handle.write(tokens, pairs, paused))
    }

    fn data(&mut self) -> Result<BTreeMap<String, String>, FenceError> {
        answered(&mut self.block_on, self.handle.data())
    }

    fn highest(&mut self, scope: &Scope) -> Result<Option<Epoch>, FenceError> {
        answered(&mut self.block_on, self.handle.highest(scope))
    }
}
