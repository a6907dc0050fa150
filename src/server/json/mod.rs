//! The public calls over HTTP with JSON, for those without gRPC.
//!
//! `POST /ringfence.v1.SERVICE/METHOD` with `Content-Type: application/json` and the request as JSON is the same call as the
//! one over gRPC: it is carried to the same service in the same process, and nothing is decided here. Names and values are
//! those of protobuf's JSON mapping: `camelCase`, bytes in base64, and 64-bit numbers as strings, since an epoch or a
//! session does not fit into what many languages call a number. The answer has every field, also where it is zero.
//!
//! A call with one answer follows the unary protocol of Connect, JSON and errors included, so that its clients work as they
//! are. A call that streams answers gives one JSON object a line; a line `{"error": ...}` ends a stream that failed. Calls that
//! stream requests need gRPC: a session without a stream renews with `WorkerService/Renew`.
//!
//! No request with an `Origin` is answered, whatever it carries: so no page in a browser reaches a coordinator that its user can
//! reach, not even under a name that was made to lead here.
//!
//! | module | what it is |
//! |---|---|
//! | `contract` | which calls there are |
//! | `carry` | one call: JSON to protobuf, through the service, and back |
//! | `answer` | what a call came to, as HTTP |

mod answer;
mod carry;
mod contract;
#[cfg(test)]
mod tests;

use contract::Contract;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tower_layer::Layer;

/// Puts the calls over JSON in front of the services.
#[derive(Clone)]
pub(crate) struct Json {
    contract: &'static Contract,
}

impl Json {
    /// Of the public contract.
    ///
    /// # Errors
    /// When the contract that was compiled in cannot be read.
    pub(crate) fn new() -> Result<Json, String> {
        Ok(Json { contract: Contract::get()? })
    }
}

impl<S> Layer<S> for Json {
    type Service = JsonService<S>;

    fn layer(&self, inner: S) -> JsonService<S> {
        JsonService { contract: self.contract, inner }
    }
}

/// The services, with the calls over JSON in front.
#[derive(Clone)]
pub(crate) struct JsonService<S> {
    contract: &'static Contract,
    inner: S,
}

type Answer = Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send>>;

impl<S> Service<http::Request<Body>> for JsonService<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>,
    S: Clone + Send + 'static,
    S::Future: Send,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Answer;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> Answer {
        // The clone has not been asked whether it is ready; the one that was goes with the call.
        let clone = self.inner.clone();
        let ready = std::mem::replace(&mut self.inner, clone);
        if carry::is_of_a_page(&request) {
            let why = "this is no place for pages: a request with an Origin is not answered";
            let answer = answer::refused(http::StatusCode::FORBIDDEN, why);
            return Box::pin(std::future::ready(Ok(answer)));
        }
        if carry::is_grpc(&request) {
            let mut ready = ready;
            return Box::pin(ready.call(request));
        }
        let contract = self.contract;
        Box::pin(async move { Ok(carry::carry(contract, ready, request).await) })
    }
}
