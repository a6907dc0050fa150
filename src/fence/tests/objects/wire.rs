//! Stores behind HTTP, over a transport of the test's own that can lose an answer, spoil it, or hold a request back.

use async_trait::async_trait;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::client::{
    ClientOptions, HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService,
};
use object_store::{BackoffConfig, RetryConfig};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

const WHO: &str =
    "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=none";

/// As S3 answers a signature that is wrong.
const REFUSED: &[u8] =
    b"<Error><Code>SignatureDoesNotMatch</Code><AWSAccessKeyId>AKIASECRET</AWSAccessKeyId>\
    <SignatureProvided>deadbeef</SignatureProvided></Error>";

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The server acts, and the connection breaks before its answer has come.
    AnswerLost,
    /// The server acts, and a gateway in between says 503: the client's library sends again.
    Gateway,
    /// The server acts, and then nothing gets through any more until the wire is mended.
    Cut,
    /// The request gets nowhere.
    NotSent,
    /// The server refuses the credentials, with an answer that repeats them.
    Forbidden,
    Unauthorized,
    /// The request stays on its way until it is released, and the client gives up.
    Held,
}

type Request = hyper::Request<Full<bytes::Bytes>>;

/// The faults to come, each once, and the requests that are held. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wire {
    faults: Arc<Mutex<Vec<(String, Fault)>>>,
    held: Arc<Mutex<Vec<Request>>>,
    sent: Arc<Mutex<Vec<String>>>,
    cut: Arc<AtomicBool>,
    /// Set when the server gets one request at a time.
    turn: Arc<OnceLock<tokio::sync::Mutex<()>>>,
}

impl Wire {
    /// The next request that begins so, such as `PUT /bucket/manifest`, meets this.
    pub(crate) fn next(&self, method: &str, part: &str, fault: Fault) {
        self.faults.lock().unwrap().push((format!("{method} {part}"), fault));
    }

    /// From now on no request is sent before the one before it was answered.
    pub(crate) fn one_at_a_time(&self) {
        self.turn.get_or_init(tokio::sync::Mutex::default);
    }

    pub(crate) fn mend(&self) {
        self.cut.store(false, Ordering::Relaxed);
    }

    pub(crate) fn faults_left(&self) -> usize {
        self.faults.lock().unwrap().len()
    }

    /// Lets the held requests arrive, and answers what the server said to each.
    pub(crate) async fn release(&self) -> Vec<u16> {
        let held = std::mem::take(&mut *self.held.lock().unwrap());
        let mut answers = Vec::new();
        for request in held {
            answers.push(carry(request).await.unwrap().status().as_u16());
        }
        answers
    }

    /// What was sent since the last question.
    pub(crate) fn sent(&self) -> Vec<String> {
        std::mem::take(&mut *self.sent.lock().unwrap())
    }

    fn fault_of(&self, request: &Request) -> Option<Fault> {
        let mut faults = self.faults.lock().unwrap();
        let at = faults.iter().position(|(matching, _)| {
            let (method, part) = matching.split_once(' ').unwrap();
            request.method() == method && request.uri().path().contains(part)
        })?;
        Some(faults.remove(at).1)
    }

    /// A client of S3 at this port, whose library retries as it does by default, only sooner.
    pub(crate) fn s3(&self, port: u16, bucket: &str) -> AmazonS3 {
        let backoff = BackoffConfig {
            init_backoff: Duration::from_millis(1),
            max_backoff: Duration::from_millis(10),
            ..BackoffConfig::default()
        };
        AmazonS3Builder::new()
            .with_endpoint(format!("http://127.0.0.1:{port}"))
            .with_bucket_name(bucket)
            .with_region("us-east-1")
            .with_allow_http(true)
            .with_skip_signature(true)
            .with_disable_bulk_delete(true)
            .with_retry(RetryConfig { backoff, ..RetryConfig::default() })
            .with_http_connector(self.clone())
            .build()
            .unwrap()
    }
}

impl HttpConnector for Wire {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

#[async_trait]
impl HttpService for Wire {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let request = hyper::Request::from_parts(parts, Full::new(body));
        self.sent.lock().unwrap().push(format!("{} {}", request.method(), request.uri().path()));
        let broke = |kind| Err(HttpError::new(kind, io::Error::from(io::ErrorKind::ConnectionReset)));
        if self.cut.load(Ordering::Relaxed) {
            return broke(HttpErrorKind::Interrupted);
        }
        let _turn = match self.turn.get() {
            Some(turn) => Some(turn.lock().await),
            None => None,
        };
        match self.fault_of(&request) {
            None => carry(request).await,
            Some(Fault::NotSent) => broke(HttpErrorKind::Interrupted),
            Some(Fault::Held) => {
                self.held.lock().unwrap().push(request);
                broke(HttpErrorKind::Timeout)
            }
            Some(fault @ (Fault::AnswerLost | Fault::Cut)) => {
                carry(request).await?;
                self.cut.store(fault == Fault::Cut, Ordering::Relaxed);
                broke(HttpErrorKind::Interrupted)
            }
            Some(fault @ (Fault::Forbidden | Fault::Unauthorized)) => {
                let status = if fault == Fault::Forbidden { 403 } else { 401 };
                let body = HttpResponseBody::from(bytes::Bytes::from_static(REFUSED));
                Ok(hyper::Response::builder().status(status).body(body).unwrap())
            }
            Some(Fault::Gateway) => {
                carry(request).await?;
                let body = HttpResponseBody::from(bytes::Bytes::from_static(b"upstream reset"));
                Ok(hyper::Response::builder().status(503).body(body).unwrap())
            }
        }
    }
}

/// One connection, one request, one answer.
async fn carry(request: Request) -> Result<HttpResponse, HttpError> {
    let failed = |error: hyper::Error| HttpError::new(HttpErrorKind::Interrupted, error);
    let authority = request.uri().authority().unwrap().to_string();
    let (mut parts, body) = request.into_parts();
    parts.uri = parts.uri.path_and_query().unwrap().as_str().parse().unwrap();
    parts.headers.insert("host", authority.parse().unwrap());
    parts.headers.insert("connection", "close".parse().unwrap());
    // The server wants to be told who asks, and looks at no signature.
    parts.headers.insert("authorization", WHO.parse().unwrap());
    let stream = tokio::net::TcpStream::connect(&authority)
        .await
        .map_err(|error| HttpError::new(HttpErrorKind::Connect, error))?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    let connection = tokio::spawn(connection);
    let answer = sender.send_request(hyper::Request::from_parts(parts, body)).await.map_err(failed)?;
    let (parts, body) = answer.into_parts();
    let body = body.collect().await.map_err(failed)?.to_bytes();
    drop(sender);
    // It ends with the answer; how is of no interest.
    let _ = connection.await;
    Ok(hyper::Response::from_parts(parts, HttpResponseBody::from(body)))
}

/// A plain request, for what no store offers: making a bucket.
pub(crate) async fn ask(port: u16, method: &str, path: &str) -> io::Result<u16> {
    let request = hyper::Request::builder()
        .method(method)
        .uri(format!("http://127.0.0.1:{port}{path}"))
        .body(Full::default())
        .unwrap();
    carry(request).await.map(|answer| answer.status().as_u16()).map_err(io::Error::other)
}
