//! The body of an answer: the handler's, or that of a refusal.

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use std::pin::Pin;
use std::task::{Context, Poll};

pin_project! {
    /// The body of what a fenced service answers: the handler's own, passed through as it is, or the few bytes of a refusal.
    #[derive(Debug)]
    pub struct FenceBody<B> {
        #[pin]
        of: Of<B>,
    }
}

pin_project! {
    #[project = OfProjected]
    #[derive(Debug)]
    enum Of<B> {
        Handler { #[pin] body: B },
        Refusal { text: Option<Bytes> },
    }
}

impl<B> FenceBody<B> {
    pub(crate) fn handler(body: B) -> FenceBody<B> {
        FenceBody { of: Of::Handler { body } }
    }

    pub(crate) fn refusal(text: Bytes) -> FenceBody<B> {
        FenceBody { of: Of::Refusal { text: Some(text).filter(|text| !text.is_empty()) } }
    }
}

impl<B: Body<Data = Bytes>> Body for FenceBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project().of.project() {
            OfProjected::Handler { body } => body.poll_frame(context),
            OfProjected::Refusal { text } => Poll::Ready(text.take().map(|text| Ok(Frame::data(text)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.of {
            Of::Handler { body } => body.is_end_stream(),
            Of::Refusal { text } => text.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.of {
            Of::Handler { body } => body.size_hint(),
            Of::Refusal { text } => SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64)),
        }
    }
}

/// A handler's body, for a service that is used with a layer and without.
impl<B> From<B> for FenceBody<B> {
    fn from(body: B) -> FenceBody<B> {
        FenceBody::handler(body)
    }
}
