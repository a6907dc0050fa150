//! A service that keeps texts, behind a layer, called through HTTP's types; and the same as a store of the suite.

use bytes::Bytes;
use http::{Request, Response, StatusCode, Uri};
use http_body_util::Full;
use ringfence_core::ids::{ClusterId, Epoch, Scope};
use ringfence_fence::conformance::{CleanUp, Crash, Handle, Store, Subject};
use ringfence_fence::header::HeaderError;
use ringfence_fence::service::{
    CallFence, FenceBody, FenceLayer, HoldLayer, Presented, Refusal, RemoteFence, Routes, ServiceFence,
};
use ringfence_fence::sqlite::{SqliteFence, SqliteRaiser};
use ringfence_fence::{Fence, FenceError, Fenced, FencingToken, MemoryFence, header};
use rusqlite::Connection;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, LazyLock, Mutex};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tower::util::BoxCloneSyncService;
use tower::{Layer, ServiceExt, service_fn};

pub(crate) static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
});

pub(crate) type Body = Full<Bytes>;
/// The service as its callers see it.
pub(crate) type Client = BoxCloneSyncService<Request<Body>, Response<FenceBody<Body>>, Infallible>;

pub(crate) fn token(text: &str) -> FencingToken {
    text.parse().unwrap()
}

pub(crate) fn cluster(name: &str) -> ClusterId {
    ClusterId::new(name).unwrap()
}

/// How the service's handler writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Through what it is handed.
    Guarded,
    /// By itself; the layer holds the scope.
    Holding,
    /// By itself, after the layer has compared the token. The mistake.
    LayerOnly,
}

/// Where a handler stops for a while, between the layer's check and its write. It is answered when it may go on.
#[derive(Clone)]
pub(crate) struct Pause(pub(crate) Sender<Sender<()>>);

impl Pause {
    fn here(pause: Option<&Pause>) {
        let Some(Pause(stopped)) = pause else { return };
        let (go_on, may_go_on) = channel();
        if stopped.send(go_on).is_ok() {
            let _ = may_go_on.recv();
        }
    }
}

/// The service's data.
#[derive(Clone)]
enum Data {
    Memory(Arc<Mutex<BTreeMap<String, String>>>),
    Sqlite(PathBuf),
}

impl Data {
    /// What is no part of any fence: whoever calls this has checked, or has not.
    fn put(&self, pairs: &[(String, String)]) {
        match self {
            Data::Memory(data) => data.lock().unwrap().extend(pairs.iter().cloned()),
            Data::Sqlite(path) => {
                let conn = open(path);
                let tx = conn.unchecked_transaction().unwrap();
                pairs.iter().for_each(|pair| put(&tx, pair));
                tx.commit().unwrap();
            }
        }
    }

    fn read(&self) -> BTreeMap<String, String> {
        match self {
            Data::Memory(data) => data.lock().unwrap().clone(),
            Data::Sqlite(path) => {
                let conn = open(path);
                let mut statement = conn.prepare("SELECT key, value FROM texts").unwrap();
                let rows = statement.query_map((), |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
                rows.map(Result::unwrap).collect()
            }
        }
    }
}

pub(crate) fn open(path: &Path) -> Connection {
    let conn = Connection::open(path).unwrap();
    conn.pragma_update(None, "journal_mode", "wal").unwrap();
    conn
}

fn put(conn: &Connection, (key, value): &(String, String)) {
    conn.execute("INSERT OR REPLACE INTO texts (key, value) VALUES (?1, ?2)", (key, value)).unwrap();
}

/// `key=value` lines.
fn pairs(body: &Bytes) -> Vec<(String, String)> {
    let text = std::str::from_utf8(body).unwrap();
    text.lines().map(|line| line.split_once('=').unwrap()).map(|(k, v)| (k.into(), v.into())).collect()
}

fn done() -> Response<Body> {
    Response::new(Full::default())
}

fn refused(error: &FenceError) -> Response<Body> {
    Refusal::from(error).http_response::<String>().map(|text| Full::from(Bytes::from(text)))
}

/// What the handler has of a request.
struct Asked {
    pairs: Vec<(String, String)>,
    pause: Option<Pause>,
}

impl Asked {
    async fn of(request: &mut Request<Body>) -> Asked {
        let pause = request.extensions().get::<Pause>().cloned();
        let body = std::mem::take(request.body_mut());
        let body = http_body_util::BodyExt::collect(body).await.unwrap().to_bytes();
        Asked { pairs: pairs(&body), pause }
    }
}

/// Its effect takes a while and may block, so it has a thread.
async fn on_a_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}

/// The mistake, and behind a layer that holds, none: writes by itself.
fn writes_by_itself<F: Send + Sync + 'static>(data: Data) -> Client {
    let handler = service_fn(move |mut request: Request<Body>| {
        let data = data.clone();
        async move {
            if request.uri().path() == "/raise" {
                return Ok::<_, Infallible>(done());
            }
            let asked = Asked::of(&mut request).await;
            if let Some(presented) = request.extensions().get::<Presented<F>>() {
                // It says that it has no effect, which is what a handler that ignores its fence amounts to.
                presented.without_effect();
            }
            on_a_thread(move || {
                Pause::here(asked.pause.as_ref());
                data.put(&asked.pairs);
            })
            .await;
            Ok(done())
        }
    });
    BoxCloneSyncService::new(handler.map_response(|response: Response<Body>| response.map(FenceBodyOf::of)))
}

/// A handler's body as that of a service without a layer.
struct FenceBodyOf;

impl FenceBodyOf {
    fn of(body: Body) -> FenceBody<Body> {
        FenceBody::from(body)
    }
}

pub(crate) struct ServiceSubject {
    mode: Mode,
    durable: bool,
}

impl ServiceSubject {
    pub(crate) fn in_memory(mode: Mode) -> ServiceSubject {
        ServiceSubject { mode, durable: false }
    }

    pub(crate) fn in_sqlite(mode: Mode) -> ServiceSubject {
        ServiceSubject { mode, durable: true }
    }
}

impl Subject for ServiceSubject {
    type Store = ServiceStore;

    fn fresh(&self, bound: &ClusterId) -> Result<ServiceStore, FenceError> {
        Ok(match self.durable {
            false => ServiceStore::in_memory(self.mode, bound),
            true => {
                let dir = tempfile::tempdir().unwrap();
                open(&dir.path().join("db"))
                    .execute_batch("CREATE TABLE texts (key TEXT PRIMARY KEY, value TEXT NOT NULL)")
                    .unwrap();
                ServiceStore::in_sqlite(self.mode, bound, dir)
            }
        })
    }
}

/// A service, and what it keeps.
pub(crate) struct ServiceStore {
    mode: Mode,
    pub(crate) client: Client,
    data: Data,
    fence: Arc<dyn Fence>,
    dir: Option<TempDir>,
    bound: ClusterId,
}

impl ServiceStore {
    pub(crate) fn in_memory(mode: Mode, bound: &ClusterId) -> ServiceStore {
        let fence = MemoryFence::new(bound.clone());
        let data = Data::Memory(Arc::default());
        let client = match mode {
            Mode::Guarded => {
                let data = data.clone();
                let handler = service_fn(move |request| guarded_in_memory(data.clone(), request));
                BoxCloneSyncService::new(FenceLayer::new(fence.clone()).routes(routes()).layer(handler))
            }
            other => by_itself(other, fence.clone(), &data),
        };
        ServiceStore { mode, client, data, fence: Arc::new(fence), dir: None, bound: bound.clone() }
    }

    fn in_sqlite(mode: Mode, bound: &ClusterId, dir: TempDir) -> ServiceStore {
        let path = dir.path().join("db");
        let fence = SqliteFence::install(&open(&path), bound).unwrap().raiser(open(&path)).unwrap();
        let data = Data::Sqlite(path.clone());
        let client = match mode {
            Mode::Guarded => {
                let handler = service_fn(move |request| guarded_in_sqlite(path.clone(), request));
                BoxCloneSyncService::new(FenceLayer::new(fence.clone()).routes(routes()).layer(handler))
            }
            other => by_itself(other, fence.clone(), &data),
        };
        ServiceStore { mode, client, data, fence: Arc::new(fence), dir: Some(dir), bound: bound.clone() }
    }

    pub(crate) fn handle(&self) -> ServiceHandle {
        ServiceHandle { client: self.client.clone(), data: self.data.clone(), fence: Arc::clone(&self.fence) }
    }
}

fn routes() -> Routes {
    Routes::all_fenced().raised_by("/raise")
}

fn by_itself<F: ServiceFence>(mode: Mode, fence: F, data: &Data) -> Client {
    let handler = writes_by_itself::<F>(data.clone());
    let flat = |client: BoxCloneSyncService<_, Response<FenceBody<FenceBody<Body>>>, Infallible>| {
        BoxCloneSyncService::new(client.then(async |answer: Result<Response<_>, Infallible>| {
            let (parts, body) = answer.unwrap().into_parts();
            let body = http_body_util::BodyExt::collect(body).await.unwrap().to_bytes();
            Ok(Response::from_parts(parts, FenceBody::from(Full::from(body))))
        }))
    };
    match mode {
        Mode::Holding => flat(BoxCloneSyncService::new(
            HoldLayer::new(CallFence::new(fence)).routes(routes()).layer(handler),
        )),
        _ => flat(BoxCloneSyncService::new(FenceLayer::new(fence).routes(routes()).layer(handler))),
    }
}

async fn guarded_in_memory(data: Data, mut request: Request<Body>) -> Result<Response<Body>, Infallible> {
    if request.uri().path() == "/raise" {
        return Ok(done());
    }
    let asked = Asked::of(&mut request).await;
    let presented = request.extensions().get::<Presented<MemoryFence>>().unwrap().clone();
    let answer = on_a_thread(move || {
        presented.guarded(|| {
            Pause::here(asked.pause.as_ref());
            data.put(&asked.pairs);
        })
    });
    Ok(answer.await.map_or_else(|error| refused(&error), |()| done()))
}

async fn guarded_in_sqlite(path: PathBuf, mut request: Request<Body>) -> Result<Response<Body>, Infallible> {
    if request.uri().path() == "/raise" {
        return Ok(done());
    }
    let asked = Asked::of(&mut request).await;
    let presented = request.extensions().get::<Presented<SqliteRaiser>>().unwrap().clone();
    let answer = on_a_thread(move || {
        presented.write(&mut open(&path), |tx| {
            Pause::here(asked.pause.as_ref());
            asked.pairs.iter().for_each(|pair| put(tx, pair));
            Ok::<_, FenceError>(())
        })
    });
    Ok(answer.await.map_or_else(|error| refused(&error), |()| done()))
}

impl Store for ServiceStore {
    type Handle = ServiceHandle;

    fn open(&self) -> Result<ServiceHandle, FenceError> {
        Ok(self.handle())
    }

    /// Goes on with a copy of the files as they stand, as after `kill -9`.
    fn crash(&mut self) -> Result<Crash, FenceError> {
        let Some(dir) = &self.dir else { return Ok(Crash::LosesEverything) };
        let copy = tempfile::tempdir().unwrap();
        for file in std::fs::read_dir(dir.path()).unwrap() {
            let file = file.unwrap();
            if !file.file_name().to_string_lossy().ends_with("-shm") {
                std::fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
            }
        }
        *self = ServiceStore::in_sqlite(self.mode, &self.bound, copy);
        Ok(Crash::Restarted)
    }

    fn clean_up(&mut self) -> Result<CleanUp, FenceError> {
        match &self.data {
            Data::Memory(data) => data.lock().unwrap().clear(),
            Data::Sqlite(path) => open(path).execute_batch("DELETE FROM texts; VACUUM").unwrap(),
        }
        Ok(CleanUp::Done)
    }
}

pub(crate) struct ServiceHandle {
    client: Client,
    data: Data,
    fence: Arc<dyn Fence>,
}

impl ServiceHandle {
    /// Sends a write, and pauses it when its handler says that it is at that point.
    pub(crate) fn send(&self, request: Request<Body>, paused: &mut dyn FnMut()) -> Response<FenceBody<Body>> {
        let (stopped, stops): (_, Receiver<Sender<()>>) = channel();
        let mut request = request;
        request.extensions_mut().insert(Pause(stopped));
        let answer = RUNTIME.spawn(self.client.clone().oneshot(request));
        // Ends when the request and all that came of it are gone.
        for go_on in stops {
            paused();
            let _ = go_on.send(());
        }
        RUNTIME.block_on(answer).unwrap().unwrap()
    }
}

pub(crate) fn request(tokens: &[FencingToken], body: String) -> Request<Body> {
    let mut request = Request::post("/put").body(Full::from(Bytes::from(body))).unwrap();
    if !tokens.is_empty() {
        request.headers_mut().insert(header::NAME, header::write(tokens).unwrap().parse().unwrap());
    }
    request
}

pub(crate) fn answer_of<B>(answer: &Response<B>) -> Result<(), FenceError> {
    match Refusal::from_headers(answer.headers()) {
        Some(refusal) => Err(refusal.to_fence_error()),
        None => {
            assert_eq!(answer.status(), StatusCode::OK);
            Ok(())
        }
    }
}

impl Handle for ServiceHandle {
    fn raise(&mut self, token: &FencingToken) -> Result<(), FenceError> {
        let fence = RemoteFence::http(self.client.clone(), Uri::from_static("/raise"));
        RUNTIME.block_on(fence.raise(token))
    }

    fn write(
        &mut self,
        tokens: &[FencingToken],
        pairs: &[(&str, &str)],
        paused: &mut dyn FnMut(),
    ) -> Result<(), FenceError> {
        if let Err(HeaderError::Twice(scope)) = header::write(tokens) {
            // It is not sent at all: of two epochs of one scope the older was replaced, as the caller itself says.
            let of_it = || tokens.iter().filter(|token| *token.scope() == scope);
            let (older, newer) = (of_it().min_by_key(|t| t.epoch()), of_it().max_by_key(|t| t.epoch()));
            return Err(Fenced::new(older.unwrap().clone(), newer.unwrap().epoch()).into());
        }
        let body = pairs.iter().map(|(key, value)| format!("{key}={value}\n")).collect();
        answer_of(&self.send(request(tokens, body), paused))
    }

    fn data(&mut self) -> Result<BTreeMap<String, String>, FenceError> {
        Ok(self.data.read())
    }

    fn highest(&mut self, scope: &Scope) -> Result<Option<Epoch>, FenceError> {
        RUNTIME.block_on(self.fence.highest(scope))
    }
}
