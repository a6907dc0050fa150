//! The task that keeps a picture of the map: opens the stream, takes what comes, and opens it again elsewhere.

use super::handle::Shared;
use super::picture::Picture;
use crate::error::{Error, ErrorKind};
use crate::net::{Backoff, Call, Coordinator, Effect, Route, Target, Trouble, map};
use ringfence_api::v1::{WatchRequest, WatchResponse};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};
use tonic::Streaming;

/// How long the next piece of an unfinished picture may take. A picture that never gets finished must not keep the
/// map as it was for ever (F088).
const PIECE_PATIENCE: Duration = Duration::from_secs(5);

/// A stream that lasted so long had no part in why the next one is needed: the wait before it is a first one again.
const LASTING: Duration = Duration::from_secs(30);

/// Follows the map on behalf of one router.
pub(super) struct Follower {
    coordinator: Coordinator,
    picture: Picture,
    shared: Arc<Shared>,
    backoff: Backoff,
    /// One of the keyspaces wanted is gone, and a node refuses a watch of it: all are asked for, and the picture picks.
    ask_for_all: bool,
}

/// How a stream ended.
enum End {
    /// As streams do; open another.
    Broken,
    /// With something that has to be shown to whoever waits for the first picture.
    Failed(Error),
}

impl Follower {
    pub(super) fn new(coordinator: Coordinator, picture: Picture, shared: Arc<Shared>) -> Follower {
        // The first wait is long beside a renewal's: after a failover leases come first, pictures second (F070).
        let backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(5));
        Follower { coordinator, picture, shared, backoff, ask_for_all: false }
    }

    /// Follows until the first picture is complete.
    ///
    /// # Errors
    /// What makes it pointless to go on trying: a keyspace does not exist, the versions are apart.
    pub(super) async fn first(&mut self) -> Result<Stream, Error> {
        loop {
            let mut stream = self.open().await?;
            match self.read(&mut stream, true).await {
                None => return Ok(stream),
                Some(End::Failed(error)) if !error.is_retryable() => return Err(error),
                Some(_) => sleep(self.backoff.wait()).await,
            }
        }
    }

    /// Follows for ever.
    pub(super) async fn run(mut self, first: Stream) {
        let mut next = Some(first);
        loop {
            let opened = match next.take() {
                Some(stream) => Ok(stream),
                None => self.open().await,
            };
            match opened {
                Ok(mut stream) => {
                    let began = Instant::now();
                    self.shared.alive();
                    self.learn_nodes();
                    self.read(&mut stream, false).await;
                    self.shared.lost();
                    self.picture.broken_off();
                    if began.elapsed() >= LASTING {
                        self.backoff.reset();
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "the map of partitions cannot be followed; the last picture stays in use");
                    self.ask_for_all |= error.kind() == ErrorKind::NotFound;
                }
            }
            sleep(self.backoff.wait()).await;
        }
    }

    async fn open(&self) -> Result<Stream, Error> {
        let (lineage, revision) = self.picture.resume_from();
        let keyspaces = if self.ask_for_all { Vec::new() } else { self.names() };
        let request = WatchRequest { keyspaces, lineage, revision, splits: true };
        let open = |channel| {
            let request = request.clone();
            async move { map(channel).watch(request).await }
        };
        let (target, messages) = self.coordinator.call_at(Call::new(Route::Any, Effect::Read), open).await?;
        Ok(Stream { target, messages })
    }

    fn names(&self) -> Vec<String> {
        self.picture.wanted().iter().map(ToString::to_string).collect()
    }

    /// Reads until the stream ends, or until the first complete picture: then `None`.
    async fn read(&mut self, stream: &mut Stream, until_complete: bool) -> Option<End> {
        loop {
            let message = stream.messages.message();
            let message = if self.picture.is_unfinished() {
                match timeout(PIECE_PATIENCE, message).await {
                    Ok(message) => message,
                    Err(_) => {
                        self.coordinator.stream_silent(&stream.target);
                        return Some(End::Broken);
                    }
                }
            } else {
                message.await
            };
            let message = match message {
                Ok(Some(message)) => message,
                Ok(None) => return Some(self.ended(stream, None)),
                Err(status) => return Some(self.ended(stream, Some(&status))),
            };
            match self.picture.take(message) {
                Ok(None) => {}
                Ok(Some(view)) => {
                    self.shared.publish(view);
                    if until_complete {
                        return None;
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, endpoint = %stream.target.endpoint, "a stream of the map is given up");
                    self.coordinator.stream_silent(&stream.target);
                    return Some(End::Failed(error));
                }
            }
        }
    }

    fn ended(&mut self, stream: &Stream, status: Option<&tonic::Status>) -> End {
        let trouble = self.coordinator.stream_ended(&stream.target, status);
        tracing::debug!(endpoint = %stream.target.endpoint, reason = trouble.reason(), "a stream of the map ended");
        match trouble {
            Trouble::Answer(failure) | Trouble::Foreign(failure) => {
                let error = Error::from(failure);
                self.ask_for_all |= error.kind() == ErrorKind::NotFound && !self.picture.is_unfinished();
                End::Failed(error)
            }
            Trouble::NotSent(_) | Trouble::Silent(_) => End::Broken,
        }
    }

    /// The endpoints given may all be replaced during a router's life; the cluster says who its nodes are.
    fn learn_nodes(&self) {
        let coordinator = self.coordinator.clone();
        tokio::spawn(async move { coordinator.survey().await });
    }
}

/// An open watch, and the node it comes from.
pub(super) struct Stream {
    target: Target,
    messages: Streaming<WatchResponse>,
}
