//! A refusal as headers, as a problem in JSON, and as an answer of gRPC; and back.

use super::details::{self, base64};
use super::{FenceBody, Reason, Refusal, headers};
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use ringfence_core::ids::{ClusterId, Epoch};
use std::fmt::Write as _;

/// The content type of a problem (RFC 9457).
const PROBLEM: HeaderValue = HeaderValue::from_static("application/problem+json");
const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");

pub(super) fn headers(refusal: &Refusal) -> HeaderMap {
    let mut map = HeaderMap::new();
    let mut put = |name: &'static str, value: &str| {
        // Names, digits and visible characters: a value that is none is left out rather than cut.
        if let Ok(value) = HeaderValue::from_str(value) {
            map.insert(HeaderName::from_static(name), value);
        }
    };
    put(headers::REFUSAL, refusal.reason.as_str());
    for (name, value) in details::fields(refusal) {
        put(header_of(name), &value);
    }
    map
}

fn header_of(field: &str) -> &'static str {
    match field {
        "token" => headers::REFUSED_TOKEN,
        "highest" => headers::HIGHEST,
        "cluster" => headers::CLUSTER,
        _ => headers::OWNER,
    }
}

pub(super) fn http_response(refusal: &Refusal) -> Response<String> {
    let text = problem(refusal);
    let mut response = Response::new(String::new());
    *response.status_mut() = refusal.status();
    let map = response.headers_mut();
    *map = headers(refusal);
    map.insert(CONTENT_TYPE, PROBLEM);
    map.insert(CONTENT_LENGTH, HeaderValue::from(text.len()));
    // No status of these is kept by a cache unless it says so; a refusal is true for one token only.
    map.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if refusal.reason.is_retryable() {
        map.insert(http::header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response.map(|_| text)
}

/// An answer of gRPC that is its trailers only: what every client reads as a status.
pub(super) fn grpc_response<B>(refusal: &Refusal) -> Response<FenceBody<B>> {
    let mut response = Response::new(FenceBody::refusal(Bytes::new()));
    *response.status_mut() = StatusCode::OK;
    let map = response.headers_mut();
    *map = headers(refusal);
    map.insert(CONTENT_TYPE, GRPC);
    map.insert(HeaderName::from_static("grpc-status"), HeaderValue::from(refusal.reason.grpc_code()));
    for (name, value) in [
        ("grpc-message", percent(&refusal.detail)),
        ("grpc-status-details-bin", base64(&details::encode(refusal))),
    ] {
        if let Ok(value) = HeaderValue::from_str(&value) {
            map.insert(HeaderName::from_static(name), value);
        }
    }
    response
}

/// The answer in the protocol of the request.
pub(super) fn response<B>(refusal: &Refusal, grpc: bool) -> Response<FenceBody<B>> {
    if grpc {
        grpc_response(refusal)
    } else {
        http_response(refusal).map(|text| FenceBody::refusal(Bytes::from(text)))
    }
}

pub(super) fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    kind == b"application/grpc"
        || kind.starts_with(b"application/grpc+")
        || kind.starts_with(b"application/grpc;")
}

fn problem(refusal: &Refusal) -> String {
    let reason = refusal.reason;
    let mut members =
        vec![("type", format!("urn:ringfence:{}", reason.as_str())), ("title", reason.title().to_string())];
    if !refusal.detail.is_empty() {
        members.push(("detail", refusal.detail.clone()));
    }
    if let Some(token) = &refusal.token {
        members.push(("scope", token.scope().to_string()));
        members.push(("own", token.epoch().get().to_string()));
    }
    // Epochs are texts, for a number of JavaScript is a double and others are less.
    members.extend(details::fields(refusal));
    json(&members, &[("status", u64::from(reason.http_status()))])
}

/// An object of texts, and of numbers.
pub(crate) fn json(texts: &[(&str, String)], numbers: &[(&str, u64)]) -> String {
    let mut members: Vec<String> =
        texts.iter().map(|(name, value)| format!("{}:{}", quoted(name), quoted(value))).collect();
    members.extend(numbers.iter().map(|(name, value)| format!("{}:{value}", quoted(name))));
    format!("{{{}}}", members.join(","))
}

fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// As gRPC escapes a message: everything but visible ASCII and the space.
fn percent(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for b in text.bytes() {
        match b {
            b'%' => out.push_str("%25"),
            b' '..=b'~' => out.push(char::from(b)),
            other => {
                let _ = write!(out, "%{other:02X}");
            }
        }
    }
    out
}

pub(super) fn read(map: &HeaderMap) -> Option<Refusal> {
    let one = |name: &str| {
        let mut values = map.get_all(name).iter();
        match (values.next(), values.next()) {
            (None, _) => Some(None),
            (Some(value), None) => value.to_str().ok().map(Some),
            (Some(_), Some(_)) => None,
        }
    };
    let reason = one(headers::REFUSAL)??;
    let mut fields = Vec::new();
    for name in ["token", "highest", "cluster", "owner"] {
        if let Some(value) = one(header_of(name))? {
            fields.push((name, value));
        }
    }
    made_of(reason, "", &fields)
}

pub(super) fn read_details(details: &[u8]) -> Option<Refusal> {
    let said = details::decode(details)?;
    let fields: Vec<(&str, &str)> = said.fields.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    made_of(&said.reason, &said.detail, &fields)
}

fn made_of(reason: &str, detail: &str, fields: &[(&str, &str)]) -> Option<Refusal> {
    let mut refusal = Refusal::new(Reason::read(reason)?, detail);
    for (name, value) in fields {
        match *name {
            "token" => refusal.token = Some(value.parse().ok()?),
            "highest" => {
                let canonical = value.bytes().all(|b| b.is_ascii_digit()) && !value.starts_with('0');
                let number = value.parse().ok().filter(|_| canonical)?;
                refusal.highest = Some(Epoch::new(number).ok()?);
            }
            "cluster" => refusal.cluster = Some(ClusterId::new(value).ok()?),
            "owner" => refusal = refusal.with_owner(value),
            _ => {}
        }
    }
    let makes_sense = match (refusal.reason, &refusal.token, refusal.highest) {
        (Reason::Fenced, Some(token), Some(highest)) => highest > token.epoch(),
        (Reason::Fenced, ..) => false,
        _ => true,
    };
    if refusal.detail.is_empty() {
        refusal.detail = match refusal.fenced() {
            Some(fenced) => fenced.to_string(),
            None => refusal.reason.title().to_string(),
        };
    }
    makes_sense.then_some(refusal)
}
