//! What travels on a connection: bytes, in order within each of its two directions, late, and held back while the way is
//! closed; then an end, or the news that the other process is gone.

use super::{Due, End, Host, Inner, Ms, Net, RETRY_MS, was_reset};
use std::collections::VecDeque;
use std::io;
use std::task::{Context, Poll, Waker};

/// The number of one direction of a connection; that of the other differs in the last bit.
pub(in crate::world) type PipeId = u64;

/// What may be on its way in one direction of a connection.
pub(super) const WINDOW_BYTES: usize = 1 << 20;

/// One direction of a connection.
pub(super) struct Pipe {
    pub(super) from: End,
    pub(super) to: End,
    on_the_way: VecDeque<(Ms, Vec<u8>)>,
    /// Sent and not yet read, in bytes.
    unread: usize,
    arrived: VecDeque<u8>,
    scheduled: bool,
    /// The writer has closed; after what is on the way there is an end.
    closed: bool,
    ended: bool,
    reset: bool,
    /// The reader is gone.
    unwanted: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Net {
    pub(in crate::world) fn poll_read(
        &self,
        pipe: PipeId,
        cx: &Context<'_>,
        room: usize,
    ) -> Poll<io::Result<Vec<u8>>> {
        let (read, writer) = {
            let mut inner = self.lock();
            let Some(pipe) = inner.pipes.get_mut(&pipe) else { return Poll::Ready(Err(was_reset())) };
            if pipe.arrived.is_empty() {
                if pipe.reset {
                    return Poll::Ready(Err(was_reset()));
                }
                if pipe.ended {
                    return Poll::Ready(Ok(Vec::new()));
                }
                pipe.reader = Some(cx.waker().clone());
                return Poll::Pending;
            }
            let length = pipe.arrived.len().min(room);
            pipe.unread -= length;
            (pipe.arrived.drain(..length).collect(), pipe.writer.take())
        };
        if let Some(writer) = writer {
            writer.wake();
        }
        Poll::Ready(Ok(read))
    }

    pub(in crate::world) fn poll_write(
        &self,
        id: PipeId,
        cx: &Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut inner = self.lock();
        let (now, Some(pipe)) = (inner.now, inner.pipes.get_mut(&id)) else {
            return Poll::Ready(Err(was_reset()));
        };
        if pipe.reset || pipe.closed {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let room = WINDOW_BYTES.saturating_sub(pipe.unread).min(bytes.len());
        if room == 0 && !bytes.is_empty() {
            pipe.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let (from, to) = (pipe.from.host, pipe.to.host);
        let latency = inner.latency(from, to);
        let Some(pipe) = inner.pipes.get_mut(&id) else { return Poll::Ready(Err(was_reset())) };
        // In order: what was sent later does not arrive earlier.
        let after = pipe.on_the_way.back().map_or(0, |(at, _)| *at);
        pipe.on_the_way.push_back(((now + latency).max(after), bytes[..room].to_vec()));
        pipe.unread += room;
        inner.schedule(id);
        Poll::Ready(Ok(room))
    }

    pub(in crate::world) fn close(&self, pipe: PipeId) {
        let mut inner = self.lock();
        if let Some(pipe) = inner.pipes.get_mut(&pipe) {
            pipe.closed = true;
        }
        inner.schedule(pipe);
    }

    /// A process has let go of both ends of a connection.
    pub(in crate::world) fn drop_stream(&self, incoming: PipeId, outgoing: PipeId) {
        let mut inner = self.lock();
        let of = inner.pipes.get(&outgoing).map(|pipe| pipe.from);
        let of = of.or_else(|| inner.pipes.get(&incoming).map(|pipe| pipe.to));
        let lives = of.is_some_and(|end| inner.lives(end));
        if !lives {
            // It was killed; what becomes of its connections was decided then.
            return;
        }
        if let Some(pipe) = inner.pipes.get_mut(&incoming) {
            pipe.unwanted = true;
            pipe.reader = None;
            if pipe.reset || pipe.ended {
                inner.pipes.remove(&incoming);
            }
        }
        if let Some(pipe) = inner.pipes.get_mut(&outgoing) {
            pipe.closed = true;
            pipe.writer = None;
        }
        inner.schedule(outgoing);
    }
}

impl Inner {
    pub(super) fn schedule(&mut self, id: PipeId) {
        let Some(pipe) = self.pipes.get_mut(&id) else { return };
        if pipe.scheduled {
            return;
        }
        let first = pipe.on_the_way.front().map(|(at, _)| *at);
        let Some(at) = first.or((pipe.closed && !pipe.ended).then_some(self.now + 1)) else { return };
        pipe.scheduled = true;
        self.number += 1;
        self.due.insert((at, self.number), Due::Segments(id));
    }

    pub(super) fn arrive(&mut self, id: PipeId, wake: &mut Vec<Waker>) {
        let now = self.now;
        let Some(pipe) = self.pipes.get_mut(&id) else { return };
        pipe.scheduled = false;
        let (from, to) = (pipe.from, pipe.to);
        let machine = self.hosts.get(&to.host);
        if self.weather(from.host, to.host).closed || machine.is_none_or(|machine| !machine.up) {
            self.number += 1;
            self.due.insert((now + RETRY_MS, self.number), Due::Segments(id));
            if let Some(pipe) = self.pipes.get_mut(&id) {
                pipe.scheduled = true;
            }
            return;
        }
        if !self.lives(to) {
            // Another process runs there now, or none: the kernel knows no such connection.
            return self.at(1, Due::Refused(id, to.host));
        }
        let Some(pipe) = self.pipes.get_mut(&id) else { return };
        while let Some((at, _)) = pipe.on_the_way.front() {
            if *at > now {
                break;
            }
            if let Some((_, bytes)) = pipe.on_the_way.pop_front() {
                if pipe.unwanted {
                    return self.at(1, Due::Refused(id, to.host));
                }
                pipe.arrived.extend(bytes);
            }
        }
        if pipe.closed && pipe.on_the_way.is_empty() {
            pipe.ended = true;
            if pipe.unwanted {
                self.pipes.remove(&id);
                return;
            }
        }
        wake.extend(pipe.reader.take());
        self.schedule(id);
    }

    pub(super) fn refuse(&mut self, id: PipeId, by: Host, wake: &mut Vec<Waker>) {
        let Some(pipe) = self.pipes.get(&id) else { return };
        let peer = if pipe.from.host == by { pipe.to.host } else { pipe.from.host };
        if self.weather(by, peer).closed {
            return self.at(RETRY_MS, Due::Refused(id, by));
        }
        self.reset(id, wake);
    }

    pub(super) fn reset(&mut self, id: PipeId, wake: &mut Vec<Waker>) {
        let Some(pipe) = self.pipes.get_mut(&id) else { return };
        pipe.reset = true;
        pipe.on_the_way.clear();
        pipe.unread = pipe.arrived.len();
        wake.extend(pipe.reader.take());
        wake.extend(pipe.writer.take());
        let forgotten = pipe.unwanted || !self.pipes.get(&id).is_some_and(|pipe| self.lives(pipe.to));
        if forgotten {
            self.pipes.remove(&id);
        }
        // The other direction, which was made beside it.
        let other = id ^ 1;
        if self.pipes.get(&other).is_some_and(|pipe| !pipe.reset) {
            self.reset(other, wake);
        }
    }
}

impl Pipe {
    /// Nothing is on its way.
    pub(super) fn new(from: End, to: End) -> Pipe {
        Pipe {
            from,
            to,
            on_the_way: VecDeque::new(),
            unread: 0,
            arrived: VecDeque::new(),
            scheduled: false,
            closed: false,
            ended: false,
            reset: false,
            unwanted: false,
            reader: None,
            writer: None,
        }
    }
}
