//! The body of an answer. A file is in memory until it was taken, so its place among the requests is held as long: one that is read
//! slowly keeps nobody out for longer than a bound.

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::AbortHandle;

/// How much of a file is handed over at a time. What a connection has of it and cannot send stays in memory beyond the bound, so
/// it is a copy and little.
const CHUNK: usize = 64 << 10;

/// The body of an answer.
#[derive(Debug, Default)]
pub struct GatewayBody(Of);

#[derive(Debug, Default)]
enum Of {
    #[default]
    Nothing,
    Text(Bytes),
    File(File),
}

#[derive(Debug)]
struct File {
    left: u64,
    rest: Arc<Mutex<Rest>>,
    timer: AbortHandle,
}

#[derive(Debug)]
enum Rest {
    Held { bytes: Vec<u8>, from: usize, _room: OwnedSemaphorePermit },
    Taken,
    TooLate,
}

impl GatewayBody {
    /// A file with the place that its bytes take. Both go when it was taken, dropped, or was too slow. It needs tokio.
    pub(super) fn file(bytes: Vec<u8>, room: OwnedSemaphorePermit, within: Duration) -> GatewayBody {
        if bytes.is_empty() {
            return GatewayBody::default();
        }
        let left = bytes.len() as u64;
        let rest = Arc::new(Mutex::new(Rest::Held { bytes, from: 0, _room: room }));
        let late = Arc::downgrade(&rest);
        let timer = tokio::spawn(async move {
            tokio::time::sleep(within).await;
            if let Some(rest) = late.upgrade() {
                *locked(&rest) = Rest::TooLate;
            }
        });
        GatewayBody(Of::File(File { left, rest, timer: timer.abort_handle() }))
    }
}

fn locked(rest: &Mutex<Rest>) -> MutexGuard<'_, Rest> {
    rest.lock().unwrap_or_else(PoisonError::into_inner)
}

impl File {
    fn next(&mut self) -> Option<io::Result<Bytes>> {
        let mut rest = locked(&self.rest);
        let (chunk, all) = match &mut *rest {
            Rest::Held { bytes, from, .. } => {
                let chunk = &bytes[*from..bytes.len().min(*from + CHUNK)];
                *from += chunk.len();
                (Bytes::copy_from_slice(chunk), *from == bytes.len())
            }
            Rest::Taken => return None,
            Rest::TooLate => {
                return Some(Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "the answer was not taken in time",
                )));
            }
        };
        if all {
            *rest = Rest::Taken;
        }
        drop(rest);
        self.left -= chunk.len() as u64;
        Some(Ok(chunk))
    }
}

impl Drop for File {
    fn drop(&mut self) {
        self.timer.abort();
    }
}

impl From<String> for GatewayBody {
    fn from(text: String) -> GatewayBody {
        GatewayBody::from(text.into_bytes())
    }
}

impl From<Vec<u8>> for GatewayBody {
    fn from(bytes: Vec<u8>) -> GatewayBody {
        GatewayBody(if bytes.is_empty() { Of::Nothing } else { Of::Text(Bytes::from(bytes)) })
    }
}

impl Body for GatewayBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let next = match &mut self.0 {
            Of::Nothing => None,
            Of::Text(_) => match std::mem::take(&mut self.0) {
                Of::Text(text) => Some(Ok(text)),
                Of::Nothing | Of::File(_) => None,
            },
            Of::File(file) => file.next(),
        };
        Poll::Ready(next.map(|chunk| chunk.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.left() == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left())
    }
}

impl GatewayBody {
    fn left(&self) -> u64 {
        match &self.0 {
            Of::Nothing => 0,
            Of::Text(text) => text.len() as u64,
            Of::File(file) => file.left,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use tokio::sync::Semaphore;

    const LONG: Duration = Duration::from_secs(3600);

    fn room() -> Arc<Semaphore> {
        Arc::new(Semaphore::new(1))
    }

    async fn of(room: &Arc<Semaphore>, length: usize, within: Duration) -> GatewayBody {
        let place = Arc::clone(room).acquire_owned().await.unwrap();
        GatewayBody::file((0..length).map(|at| at as u8).collect(), place, within)
    }

    #[tokio::test]
    async fn a_file_holds_its_place_until_it_was_taken_or_dropped() {
        let room = room();
        let mut body = of(&room, 3 * CHUNK - 1, LONG).await;
        let mut taken = Vec::new();
        while let Some(frame) = body.frame().await {
            taken.extend(frame.unwrap().into_data().unwrap());
            let all = taken.len() == 3 * CHUNK - 1;
            assert_eq!((room.available_permits(), body.is_end_stream()), (usize::from(all), all));
            assert_eq!(body.size_hint().exact(), Some((3 * CHUNK - 1 - taken.len()) as u64));
        }
        assert!(taken.iter().enumerate().all(|(at, byte)| *byte == at as u8));
        drop(of(&room, 7, LONG).await);
        assert_eq!(room.available_permits(), 1);
        // One of no length has nothing to hold it for.
        assert!(of(&room, 0, LONG).await.is_end_stream());
        assert_eq!(room.available_permits(), 1);
    }

    #[tokio::test]
    async fn one_that_is_not_taken_in_time_gives_its_place_back_and_ends_in_an_error() {
        let room = room();
        let mut body = of(&room, 2 * CHUNK, Duration::ZERO).await;
        body.frame().await.unwrap().unwrap();
        while room.available_permits() == 0 {
            tokio::task::yield_now().await;
        }
        let error = body.frame().await.unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        // And not as if the file were no longer.
        assert!(!body.is_end_stream());
    }
}
