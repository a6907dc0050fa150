//! One call: JSON to protobuf, through the service as a call over gRPC, and back.

use super::answer::{answered, answering, error, failed, refused, to_json};
use super::contract::Contract;
use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use futures_util::stream::unfold;
use http_body_util::{BodyExt as _, Limited, StreamBody};
use prost::Message as _;
use prost_reflect::{DeserializeOptions, DynamicMessage, MessageDescriptor, MethodDescriptor};
use std::convert::Infallible;
use std::time::Duration;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{self, HeaderValue, Method, StatusCode, header};
use tonic::codegen::{Service, http::request::Parts};

/// How long a request's body may take to arrive.
const PATIENCE: Duration = Duration::from_secs(30);
/// The largest request, as JSON. What is parsed takes fifty times as much memory for a moment, so this is less than a message may
/// be: a report of a thousand partitions fits.
const MAX_JSON_BYTES: usize = 256 << 10;
/// The flag, the length, and then the message: so gRPC puts a message on the wire.
const PREFIX_BYTES: usize = 5;

/// Whether a browser has sent it for some page. Clients of gRPC and scripts send no origin; a page sends one with each call, also
/// when its name was made to lead here, so that the browser takes it for this node's own.
pub(super) fn is_of_a_page(request: &http::Request<Body>) -> bool {
    request.headers().contains_key(header::ORIGIN)
}

/// Whether the request is for the services as it is.
pub(super) fn is_grpc(request: &http::Request<Body>) -> bool {
    let kind = request.headers().get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    kind.is_some_and(|kind| kind.starts_with(b"application/grpc"))
}

/// Carries a call to the services, and its answer back.
pub(super) async fn carry<S>(
    contract: &'static Contract,
    services: S,
    request: http::Request<Body>,
) -> http::Response<Body>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible> + Send,
    S::Future: Send,
{
    let (parts, body) = request.into_parts();
    let method = match judge(contract, &parts) {
        Ok(method) => method.clone(),
        Err((code, why)) => return refused(code, &why),
    };
    let call = async {
        let message = read(&method, body).await?;
        through(services, &parts, message).await
    };
    match call.await {
        Ok(answer) if method.is_server_streaming() => stream(contract, &method, answer),
        Ok(answer) => match one(&method, answer).await {
            Ok(value) => answered(&value),
            Err(status) => failed(contract, &status),
        },
        Err(status) => failed(contract, &status),
    }
}

/// Whether it is a call, and which.
fn judge<'a>(contract: &'a Contract, parts: &Parts) -> Result<&'a MethodDescriptor, (StatusCode, String)> {
    let path = parts.uri.path();
    let Some(method) = contract.method(path) else {
        let why = "there is no such call: this is a coordinator of ringfence, and a call is POST /ringfence.v1.SERVICE/METHOD, such as \
                   /ringfence.v1.MapService/Lookup";
        return Err((StatusCode::NOT_FOUND, why.to_owned()));
    };
    if parts.method != Method::POST {
        return Err((StatusCode::METHOD_NOT_ALLOWED, "a call is sent with POST".to_owned()));
    }
    let kind =
        parts.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case("application/json") {
        let why = "a call over HTTP has Content-Type: application/json; one over gRPC needs HTTP/2 and application/grpc";
        return Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, why.to_owned()));
    }
    if method.is_client_streaming() {
        let why =
            "this call streams requests, which needs gRPC; a session renews with WorkerService/Renew instead";
        return Err((StatusCode::NOT_IMPLEMENTED, why.to_owned()));
    }
    Ok(method)
}

/// The request in the body, as gRPC puts it on the wire.
async fn read(method: &MethodDescriptor, body: Body) -> Result<Bytes, Status> {
    let whole = tokio::time::timeout(PATIENCE, Limited::new(body, MAX_JSON_BYTES).collect()).await;
    let whole = whole.map_err(|_| {
        Status::deadline_exceeded(format!("the request did not arrive within {} s", PATIENCE.as_secs()))
    })?;
    let whole =
        whole.map_err(|e| Status::invalid_argument(format!(
            "the request did not arrive: {e}; over HTTP it has at most {MAX_JSON_BYTES} bytes of JSON, and gRPC takes larger ones"
        )))?.to_bytes();
    let message = parse(method.input(), &whole)?;
    let length = message.encoded_len();
    let mut framed = BytesMut::with_capacity(PREFIX_BYTES + length);
    framed.put_u8(0);
    framed.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    message.encode_raw(&mut framed);
    Ok(framed.freeze())
}

fn parse(of: MessageDescriptor, json: &[u8]) -> Result<DynamicMessage, Status> {
    let wrong = |e: serde_json::Error| Status::invalid_argument(format!("the request's JSON: {e}"));
    // A field that is spelt wrong would else be one that was left out.
    let options = DeserializeOptions::new().deny_unknown_fields(true);
    let json = if json.is_empty() { b"{}" } else { json };
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let message = DynamicMessage::deserialize_with_options(of, &mut deserializer, &options).map_err(wrong)?;
    deserializer.end().map_err(wrong)?;
    Ok(message)
}

/// Asks the service.
async fn through<S>(mut services: S, parts: &Parts, message: Bytes) -> Result<http::Response<Body>, Status>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible> + Send,
    S::Future: Send,
{
    let mut request = http::Request::new(Body::new(http_body_util::Full::new(message)));
    *request.method_mut() = Method::POST;
    *request.version_mut() = http::Version::HTTP_2;
    *request.uri_mut() = parts.uri.clone();
    *request.extensions_mut() = parts.extensions.clone();
    let headers = request.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(header::TE, HeaderValue::from_static("trailers"));
    let Ok(answer) = services.call(request).await;
    match Status::from_header_map(answer.headers()) {
        Some(status) if status.code() != tonic::Code::Ok => Err(status),
        _ => Ok(answer),
    }
}

/// What arrives of an answer: messages, and then how it ended.
struct Arriving {
    body: Body,
    waiting: BytesMut,
}

impl Arriving {
    fn of(answer: http::Response<Body>) -> Arriving {
        Arriving { body: answer.into_body(), waiting: BytesMut::new() }
    }

    /// The next message; `None` when the answer has ended well.
    async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        loop {
            if let Some(message) = self.take()? {
                return Ok(Some(message));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.waiting.extend_from_slice(&data),
                    Err(frame) => {
                        let trailers = frame.into_trailers().unwrap_or_default();
                        return match Status::from_header_map(&trailers) {
                            Some(status) if status.code() != tonic::Code::Ok => Err(status),
                            _ => Ok(None),
                        };
                    }
                },
                Some(Err(status)) => return Err(status),
                None => return Ok(None),
            }
        }
    }

    fn take(&mut self) -> Result<Option<Bytes>, Status> {
        let Some(prefix) = self.waiting.get(..PREFIX_BYTES) else { return Ok(None) };
        let length = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]) as usize;
        if prefix[0] != 0 {
            return Err(Status::internal("the answer is compressed, which nobody asked for"));
        }
        if self.waiting.len() < PREFIX_BYTES + length {
            return Ok(None);
        }
        self.waiting.advance(PREFIX_BYTES);
        Ok(Some(self.waiting.split_to(length).freeze()))
    }
}

async fn one(method: &MethodDescriptor, answer: http::Response<Body>) -> Result<serde_json::Value, Status> {
    let mut arriving = Arriving::of(answer);
    let message = arriving.next().await?.ok_or_else(|| Status::internal("there was no answer"))?;
    // How it ended comes behind the message.
    arriving.next().await?;
    decode(method, message)
}

fn decode(method: &MethodDescriptor, message: Bytes) -> Result<serde_json::Value, Status> {
    let message = DynamicMessage::decode(method.output(), message);
    to_json(&message.map_err(|e| Status::internal(format!("the answer cannot be read: {e}")))?)
}

/// The answers, a line each as they come.
fn stream(
    contract: &'static Contract,
    method: &MethodDescriptor,
    answer: http::Response<Body>,
) -> http::Response<Body> {
    let state = Some((Arriving::of(answer), contract, method.clone()));
    let lines = unfold(state, |state| async move {
        let (mut arriving, contract, method) = state?;
        let next = arriving.next().await;
        let (line, more) = match next.and_then(|message| message.map(|m| decode(&method, m)).transpose()) {
            Ok(Some(value)) => (value, true),
            Ok(None) => return None,
            Err(status) => (serde_json::json!({ "error": error(contract, &status) }), false),
        };
        let frame = Ok::<_, Status>(http_body::Frame::data(Bytes::from(format!("{line}\n"))));
        Some((frame, more.then_some((arriving, contract, method))))
    });
    answering(Body::new(StreamBody::new(lines)))
}
