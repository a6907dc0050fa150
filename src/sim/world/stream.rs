//! One end of a connection.

use super::net::{Net, PipeId};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// One end of a connection.
pub struct Stream {
    net: Net,
    incoming: PipeId,
    outgoing: PipeId,
}

impl Stream {
    pub(super) fn new(net: Net, incoming: PipeId, outgoing: PipeId) -> Stream {
        Stream { net, incoming, outgoing }
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let bytes = ready!(self.net.poll_read(self.incoming, cx, buf.remaining()))?;
        buf.put_slice(&bytes);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.net.poll_write(self.outgoing, cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.net.close(self.outgoing);
        Poll::Ready(Ok(()))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.net.drop_stream(self.incoming, self.outgoing);
    }
}
