//! A service that comes later: its place on the port is there from the start, and until it comes it says what the node
//! waits for.
//!
//! A node listens before it belongs to a cluster, so that others can form one with it; what needs the cluster cannot
//! exist yet.

use crate::formation::Progress;
use ringfence_api::Failure;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::server::NamedService;

/// The place of a service.
pub(crate) struct Late<S> {
    service: Arc<OnceLock<S>>,
    progress: Progress,
}

impl<S> Clone for Late<S> {
    fn clone(&self) -> Self {
        Late { service: Arc::clone(&self.service), progress: self.progress.clone() }
    }
}

impl<S> Late<S> {
    /// An empty place.
    pub(crate) fn new(progress: Progress) -> Late<S> {
        Late { service: Arc::new(OnceLock::new()), progress }
    }

    /// The service has come. It does so once.
    pub(crate) fn set(&self, service: S) {
        let _ = self.service.set(service);
    }

    /// The service, if it has come.
    pub(crate) fn get(&self) -> Result<&S, Failure> {
        self.service.get().ok_or_else(|| not_yet(&self.progress))
    }
}

/// What a node says that does not belong to a cluster yet.
pub(crate) fn not_yet(progress: &Progress) -> Failure {
    let text = progress.text();
    let text = if text.is_empty() { "the node starts".to_owned() } else { text };
    Failure::unavailable(format_args!("this node does not serve yet ({text}); ask another, or again later"))
}

type Answer = Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send>>;

impl<S> Service<http::Request<Body>> for Late<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>,
    S: Clone + Send + 'static,
    S::Future: Send,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Answer;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Answer {
        match self.get() {
            Ok(service) => {
                let mut service = service.clone();
                Box::pin(async move {
                    std::future::poll_fn(|cx| service.poll_ready(cx)).await?;
                    service.call(request).await
                })
            }
            Err(failure) => {
                let answer = Status::from(failure).into_http();
                Box::pin(std::future::ready(Ok(answer)))
            }
        }
    }
}

impl<S: NamedService> NamedService for Late<S> {
    const NAME: &'static str = S::NAME;
}
