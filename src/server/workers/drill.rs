//! The worker's stream of a drill: whose it is, and from there on messages between it and the drill.

use crate::context::Context;
use crate::credentials::{check, session_id};
use crate::drills::DrillId;
use futures_util::StreamExt as _;
use ringfence_api::Failure;
use ringfence_api::v1::{self, drill_request};
use std::pin::Pin;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::codegen::tokio_stream::Stream;
use tonic::{Status, Streaming};

/// How long a stream may take to say whose it is.
const BEGIN_PATIENCE: Duration = Duration::from_secs(5);

/// What a drilled worker is told.
pub(super) type Told = Pin<Box<dyn Stream<Item = Result<v1::DrillResponse, Status>> + Send>>;

/// Opens the stream of a drill that runs here.
pub(super) async fn drill(
    context: &Context,
    mut incoming: Streaming<v1::DrillRequest>,
    stop: CancellationToken,
) -> Result<Told, Failure> {
    let first = tokio::time::timeout(BEGIN_PATIENCE, incoming.message()).await;
    let first = first.map_err(|_| Failure::invalid("the stream was not opened in time: send Begin first"))?;
    let begin = match first.map_err(|status| Failure::decode(&status))?.and_then(|m| m.message) {
        Some(drill_request::Message::Begin(begin)) => begin,
        _ => return Err(Failure::invalid("message: the first message of a drill's stream is Begin")),
    };
    let (id, session) = (DrillId::read(&begin.drill)?, session_id(begin.session)?);
    check(context, session, &begin.secret).await?;
    let (heard, told) = context.drills.connect(id, session)?;
    tokio::spawn(pass_on(incoming, heard));
    Ok(Box::pin(ReceiverStream::new(told).map(Ok).take_until(stop.cancelled_owned())))
}

/// Ends when either side does; the other finds its channel closed.
async fn pass_on(mut incoming: Streaming<v1::DrillRequest>, heard: mpsc::Sender<v1::DrillRequest>) {
    loop {
        let message = tokio::select! {
            message = incoming.message() => message,
            () = heard.closed() => return,
        };
        let Ok(Some(message)) = message else { return };
        if heard.send(message).await.is_err() {
            return;
        }
    }
}
