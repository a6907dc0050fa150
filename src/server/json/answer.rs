//! What a call came to, as HTTP: the status of Connect's table, and the error as JSON.

use super::contract::Contract;
use bytes::Bytes;
use prost_reflect::{DynamicMessage, SerializeOptions};
use serde_json::{Value, json};
use tonic::body::Body;
use tonic::codegen::http::{self, HeaderValue, header};
use tonic::{Code, Status};

/// Every field, also where it is zero; 64-bit numbers as strings.
const EVERY_FIELD: SerializeOptions = SerializeOptions::new().skip_default_fields(false);

/// A message as JSON.
pub(super) fn to_json(message: &DynamicMessage) -> Result<Value, Status> {
    let value = message.serialize_with_options(serde_json::value::Serializer, &EVERY_FIELD);
    value.map_err(|e| Status::internal(format!("the answer is no JSON: {e}")))
}

/// An answer.
pub(super) fn answered(body: &Value) -> http::Response<Body> {
    response(http::StatusCode::OK, "application/json", full(body.to_string()))
}

/// Answers that come one after the other, a line each.
pub(super) fn answering(body: Body) -> http::Response<Body> {
    response(http::StatusCode::OK, "application/x-ndjson", body)
}

/// A call that failed.
pub(super) fn failed(contract: &Contract, status: &Status) -> http::Response<Body> {
    let (code, _) = named(status.code());
    response(code, "application/json", full(error(contract, status).to_string()))
}

/// Something that is no call.
pub(super) fn refused(code: http::StatusCode, why: &str) -> http::Response<Body> {
    response(code, "text/plain; charset=utf-8", full(format!("{why}\n")))
}

/// The error of a call: a code of gRPC in words, the message, and what a program needs to go on.
pub(super) fn error(contract: &Contract, status: &Status) -> Value {
    let mut error = json!({ "code": named(status.code()).1, "message": status.message() });
    let detail = contract.error_detail().filter(|_| !status.details().is_empty());
    let detail = detail.and_then(|of| DynamicMessage::decode(of, status.details()).ok());
    if let Some(readable) = detail.and_then(|detail| to_json(&detail).ok()) {
        let value = base64(status.details());
        error["details"] = json!([{ "type": "ringfence.v1.ErrorDetail", "value": value, "debug": readable }]);
    }
    error
}

fn response(code: http::StatusCode, kind: &'static str, body: Body) -> http::Response<Body> {
    let mut response = http::Response::new(body);
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    // A browser that is shown an answer as a page must not take it for anything else.
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

fn full(text: String) -> Body {
    Body::new(http_body_util::Full::new(Bytes::from(text)))
}

/// The HTTP status and the name of a code, by the table of Connect's specification.
fn named(code: Code) -> (http::StatusCode, &'static str) {
    use http::StatusCode as Http;
    let cancelled = Http::from_u16(499).unwrap_or(Http::REQUEST_TIMEOUT);
    match code {
        Code::Ok => (Http::OK, "ok"),
        Code::Cancelled => (cancelled, "canceled"),
        Code::Unknown => (Http::INTERNAL_SERVER_ERROR, "unknown"),
        Code::InvalidArgument => (Http::BAD_REQUEST, "invalid_argument"),
        Code::DeadlineExceeded => (Http::GATEWAY_TIMEOUT, "deadline_exceeded"),
        Code::NotFound => (Http::NOT_FOUND, "not_found"),
        Code::AlreadyExists => (Http::CONFLICT, "already_exists"),
        Code::PermissionDenied => (Http::FORBIDDEN, "permission_denied"),
        Code::ResourceExhausted => (Http::TOO_MANY_REQUESTS, "resource_exhausted"),
        Code::FailedPrecondition => (Http::BAD_REQUEST, "failed_precondition"),
        Code::Aborted => (Http::CONFLICT, "aborted"),
        Code::OutOfRange => (Http::BAD_REQUEST, "out_of_range"),
        Code::Unimplemented => (Http::NOT_IMPLEMENTED, "unimplemented"),
        Code::Internal => (Http::INTERNAL_SERVER_ERROR, "internal"),
        Code::Unavailable => (Http::SERVICE_UNAVAILABLE, "unavailable"),
        Code::DataLoss => (Http::INTERNAL_SERVER_ERROR, "data_loss"),
        Code::Unauthenticated => (Http::UNAUTHORIZED, "unauthenticated"),
    }
}

/// As Connect wants the bytes of a detail: the usual alphabet, without padding.
pub(super) fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digit = |number: u32| char::from(ALPHABET[(number & 63) as usize]);
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let number = (0..3).fold(0, |all, n| all << 8 | u32::from(group.get(n).copied().unwrap_or(0)));
        text.extend((0..=group.len()).map(|n| digit(number >> (18 - 6 * n))));
    }
    text
}
