//! The gateway over HTTP, as a service of tower behind the layer of [`service`](crate::service).
//!
//! | request | what it does |
//! |---|---|
//! | `PUT /PATH` | writes a whole file: 204 |
//! | `POST /PATH` | appends: 204, with the new length in `ringfence-length`. `ringfence-append-at: N` refuses it (409) unless the file has N bytes |
//! | `DELETE /PATH` | 204, or 404 when there is none |
//! | `GET`, `HEAD /PATH` | reads; with a token, a replaced owner is refused |
//! | `POST /.ringfence/raise` | raises the fence to the token: 204 |
//! | `GET /.ringfence/highest/SCOPE` | the highest epoch seen of `orders/17` or `@locks/NAME`, or 404 |
//! | `GET /.ringfence/health` | `ok` |
//!
//! Every write has `ringfence-token`. Refusals are those of the layer; the rest are problems in JSON as well: 400 for a path that
//! is none, 409 for what is no file, 413 above the bound, 507 for a full disk, 500 when it failed, with `unknown-outcome` in
//! `ringfence-refusal` when it may have been done.

use super::{FileGateway, FilePath, GatewayBody, GatewayError};
use crate::service::{FenceLayer, FencedService, Presented, Reason, Refusal, Routes, json};
use crate::{FenceError, FencingToken};
use bytes::Bytes;
use http::header::{ALLOW, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body;
use ringfence_core::ids::{Epoch, Scope};
use std::convert::Infallible;
use std::error::Error;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower_layer::Layer;
use tower_service::Service;

/// How many requests that write are worked on at once, and how many that read; the others wait. Each has at most one file in memory,
/// from before it is received until it was written, or was taken by who asked for it.
pub const MAX_IN_FLIGHT: usize = 64;

/// How long a request's body may take to arrive, so that slow senders do not keep the others out.
pub const BODY_TIMEOUT: Duration = Duration::from_secs(60);

/// How long an answer may take to be taken, so that slow readers do not either. It is broken off then.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

const RAISE: &str = "/.ringfence/raise";
const HEALTH: &str = "/.ringfence/health";
const HIGHEST: &str = "/.ringfence/highest/";
const LENGTH: &str = "ringfence-length";
const APPEND_AT: &str = "ringfence-append-at";

/// The gateway as an HTTP service, behind its layer. It runs on tokio, with time.
pub fn front(files: FileGateway) -> FencedService<FileService, FileGateway> {
    FileService::new(files).behind_its_layer()
}

/// What answers the requests that the layer has let through. Made by [`front`].
#[derive(Clone, Debug)]
pub struct FileService {
    files: FileGateway,
    writes: Arc<Semaphore>,
    reads: Arc<Semaphore>,
}

type Answer = Response<GatewayBody>;

impl<B> Service<Request<B>> for FileService
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    type Response = Answer;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Answer, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let this = self.clone();
        Box::pin(async move { Ok(this.answer(request).await.unwrap_or_else(|problem| problem)) })
    }
}

/// What is done, when all of the request is there.
enum Work {
    Put(Vec<u8>),
    Append(Vec<u8>, Option<u64>),
    Delete,
    Read { with_body: bool },
}

impl FileService {
    fn new(files: FileGateway) -> FileService {
        let room = || Arc::new(Semaphore::new(MAX_IN_FLIGHT));
        FileService { files, writes: room(), reads: room() }
    }

    fn behind_its_layer(self) -> FencedService<FileService, FileGateway> {
        let routes = Routes::all_fenced().reads_are_open().open(HEALTH).raised_by(RAISE);
        FenceLayer::new(self.files.clone()).routes(routes).layer(self)
    }

    async fn answer<B>(&self, request: Request<B>) -> Result<Answer, Answer>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let (parts, body) = request.into_parts();
        let (method, path) = (parts.method, parts.uri.path());
        if let Some(own) = path.strip_prefix("/.ringfence/") {
            return self.own(&method, own).await;
        }
        if parts.uri.query().is_some() {
            return Err(problem(StatusCode::BAD_REQUEST, "bad-path", "the path of a file has no query"));
        }
        let path: FilePath = path
            .strip_prefix('/')
            .unwrap_or(path)
            .parse()
            .map_err(|e| refused(&GatewayError::Path(e), &[]))?;
        let stamped = parts.extensions.get::<Presented<FileGateway>>();
        let tokens: Vec<FencingToken> = stamped.map(|stamped| stamped.tokens().to_vec()).unwrap_or_default();
        // Before the body is read: what is in memory is bounded by these.
        let room = room(if reads(&method) { &self.reads } else { &self.writes }).await?;
        let work = match method {
            Method::PUT => Work::Put(self.whole(body).await?),
            Method::POST => {
                let at = parts.headers.get(APPEND_AT).map(append_at);
                if at == Some(None) {
                    let why = format!("{APPEND_AT} is the length that the file has to have, in bytes");
                    return Err(problem(StatusCode::BAD_REQUEST, "bad-header", &why));
                }
                Work::Append(self.whole(body).await?, at.flatten())
            }
            Method::DELETE => Work::Delete,
            Method::GET => Work::Read { with_body: true },
            Method::HEAD => Work::Read { with_body: false },
            _ => return Err(not_allowed("GET, HEAD, PUT, POST, DELETE")),
        };
        let (files, reading) = (self.files.clone(), reads(&method));
        let done = tokio::task::spawn_blocking(move || {
            // The place goes with the work, which goes on when whoever asked has gone.
            let done = work.done(&files, &tokens, &path, room);
            done.unwrap_or_else(|error| match error {
                GatewayError::Fence(error) if reading => refused_to_read(&error, &tokens),
                error => refused(&error, &tokens),
            })
        });
        done.await.map_err(|error| {
            let refusal = Refusal::new(Reason::Unknown, format!("the work was broken off: {error}"));
            refusal.http_response()
        })
    }

    /// What is asked of the gateway itself.
    async fn own(&self, method: &Method, own: &str) -> Result<Answer, Answer> {
        let reads = reads(method);
        match own {
            // The layer has raised, or refused.
            "raise" if *method == Method::POST => Ok(empty(StatusCode::NO_CONTENT)),
            "raise" => Err(not_allowed("POST")),
            "health" if reads => Ok(text("ok\n")),
            own => match own.strip_prefix("highest/").map(str::parse) {
                _ if !reads => Err(not_allowed("GET, HEAD")),
                Some(Ok(scope)) => match self.highest(scope).await? {
                    Ok(Some(highest)) => Ok(text(&format!("{}\n", highest.get()))),
                    Ok(None) => {
                        Err(problem(StatusCode::NOT_FOUND, "not-raised", "nobody has raised this scope"))
                    }
                    Err(error) => Err(Refusal::from(error).http_response()),
                },
                Some(Err(error)) => Err(problem(StatusCode::BAD_REQUEST, "bad-path", &format!("{error}"))),
                None => Err(problem(
                    StatusCode::NOT_FOUND,
                    "not-found",
                    &format!("there are {RAISE}, {HEALTH} and {HIGHEST}SCOPE"),
                )),
            },
        }
    }

    async fn highest(&self, scope: Scope) -> Result<Result<Option<Epoch>, FenceError>, Answer> {
        let room = room(&self.reads).await?;
        let look = move |files: &FileGateway| {
            let _room = room;
            files.highest(&scope)
        };
        Ok(self.files.waiting(look).await)
    }

    /// The whole body, when it is not too long and comes in time.
    async fn whole<B>(&self, body: B) -> Result<Vec<u8>, Answer>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let limit = self.files.options().max_bytes;
        let too_large = || refused(&GatewayError::TooLarge { limit }, &[]);
        if body.size_hint().lower() > limit {
            return Err(too_large());
        }
        let mut body = pin!(body);
        let mut whole = Vec::new();
        let all = async {
            while let Some(frame) = std::future::poll_fn(|context| body.as_mut().poll_frame(context)).await {
                let frame = frame.map_err(|error| {
                    let why = format!("the request broke off: {}; nothing was changed", error.into());
                    problem(StatusCode::BAD_REQUEST, "broken-off", &why)
                })?;
                if let Ok(data) = frame.into_data() {
                    if whole.len() as u64 + data.len() as u64 > limit {
                        return Err(too_large());
                    }
                    whole.extend_from_slice(&data);
                }
            }
            Ok(())
        };
        match tokio::time::timeout(BODY_TIMEOUT, all).await {
            Ok(read) => read?,
            Err(_) => {
                let why = "the request's body did not come in time; nothing was changed";
                return Err(problem(StatusCode::REQUEST_TIMEOUT, "too-slow", why));
            }
        }
        Ok(whole)
    }
}

impl Work {
    fn done(
        self,
        files: &FileGateway,
        tokens: &[FencingToken],
        path: &FilePath,
        room: OwnedSemaphorePermit,
    ) -> Result<Answer, GatewayError> {
        match self {
            Work::Put(bytes) => {
                files.put(tokens, path, &bytes)?;
                Ok(empty(StatusCode::NO_CONTENT))
            }
            Work::Append(bytes, at) => {
                let length = files.append(tokens, path, &bytes, at)?;
                let mut answer = empty(StatusCode::NO_CONTENT);
                answer.headers_mut().insert(LENGTH, HeaderValue::from(length));
                Ok(answer)
            }
            Work::Delete if files.delete(tokens, path)? => Ok(empty(StatusCode::NO_CONTENT)),
            Work::Delete => Err(GatewayError::NotFound),
            Work::Read { with_body } => {
                let bytes = files.read(tokens, path)?;
                let length = bytes.len();
                let mut answer = Response::new(match with_body {
                    true => GatewayBody::file(bytes, room, ANSWER_TIMEOUT),
                    false => GatewayBody::default(),
                });
                let headers = answer.headers_mut();
                headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
                headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
                // It is whatever somebody has put there.
                headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
                Ok(answer)
            }
        }
    }
}

/// A place among the requests, when there is one.
async fn room(of: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Answer> {
    let stopping = |_| problem(StatusCode::SERVICE_UNAVAILABLE, "stopping", "the gateway is stopping");
    Arc::clone(of).acquire_owned().await.map_err(stopping)
}

fn reads(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

/// The number of bytes that a file has to have; `None` when it is no number.
fn append_at(value: &HeaderValue) -> Option<u64> {
    let text = value.to_str().ok().filter(|text| text.bytes().all(|b| b.is_ascii_digit()))?;
    text.parse().ok()
}

fn refused(error: &GatewayError, tokens: &[FencingToken]) -> Answer {
    let detail = error.to_string();
    let (status, name) = match error {
        GatewayError::Fence(error) => return Refusal::about(error, tokens).http_response(),
        GatewayError::Unknown { .. } => return Refusal::new(Reason::Unknown, detail).http_response(),
        GatewayError::Path(_) => (StatusCode::BAD_REQUEST, "bad-path"),
        GatewayError::NotFound => (StatusCode::NOT_FOUND, "not-found"),
        GatewayError::NotAFile => (StatusCode::CONFLICT, "not-a-file"),
        GatewayError::OtherLength { .. } => (StatusCode::CONFLICT, "other-length"),
        GatewayError::TooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, "too-large"),
        GatewayError::Full => (StatusCode::INSUFFICIENT_STORAGE, "full"),
        GatewayError::InUse | GatewayError::Failed { .. } => (StatusCode::INTERNAL_SERVER_ERROR, "failed"),
    };
    let mut answer = problem(status, name, &detail);
    if let GatewayError::OtherLength { length } = error {
        answer.headers_mut().insert(LENGTH, HeaderValue::from(*length));
    }
    answer
}

/// The fence's words are about writes.
fn refused_to_read(error: &FenceError, tokens: &[FencingToken]) -> Answer {
    let refusal = Refusal::about(error, tokens);
    let detail = refusal.detail().replace("nothing was written", "nothing was read");
    refusal.with_detail(detail).http_response()
}

fn not_allowed(methods: &'static str) -> Answer {
    let mut answer =
        problem(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", "there is no such call here");
    answer.headers_mut().insert(ALLOW, HeaderValue::from_static(methods));
    answer
}

fn problem(status: StatusCode, name: &str, detail: &str) -> Answer {
    let members = [
        ("type", format!("urn:ringfence:{name}")),
        ("title", status.canonical_reason().unwrap_or_default().to_owned()),
        ("detail", detail.to_owned()),
    ];
    let body = json(&members, &[("status", u64::from(status.as_u16()))]);
    let mut answer = Response::new(GatewayBody::from(body));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    answer
}

fn empty(status: StatusCode) -> Answer {
    let mut answer = Response::new(GatewayBody::default());
    *answer.status_mut() = status;
    answer
}

fn text(text: &str) -> Answer {
    let mut answer = Response::new(GatewayBody::from(text.to_owned()));
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    answer
}

#[cfg(test)]
#[path = "front_tests.rs"]
mod tests;
