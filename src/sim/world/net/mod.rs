//! The network: hosts, ports, who connects to whom, and the weather between them. What travels on a connection is in `pipe`.
//!
//! It is as with TCP: a process that was killed resets its connections, and one whose machine lost power says nothing.
//! Everything happens at a tick: what is due is handed over by `Net::deliver`, and nothing wakes anybody in between.

mod pipe;

use super::stream::Stream;
use fastrand::Rng;
use pipe::Pipe;
use ringfence_server::Connection;
use std::collections::BTreeMap;
use std::io;
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use tokio::sync::mpsc;

pub(super) use pipe::PipeId;

/// True time, in milliseconds since the world began.
pub type Ms = u64;

/// A machine on the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Host(pub u16);

impl Host {
    /// The address of its port.
    pub fn address(self) -> String {
        format!("127.7.{}.{}:7600", self.0 >> 8, self.0 & 0xff)
    }

    /// The host of an address.
    pub fn of(address: &str) -> Option<Host> {
        let mut parts = address.strip_prefix("127.7.")?.split([':', '.']);
        let (high, low) = (parts.next()?.parse::<u8>().ok()?, parts.next()?.parse::<u8>().ok()?);
        Some(Host(u16::from(high) << 8 | u16::from(low)))
    }
}

/// What it is like to send from one host to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weather {
    /// How long a segment takes, in milliseconds.
    pub latency: RangeInclusive<u64>,
    /// Of a hundred segments so many are lost and sent again.
    pub loss: u8,
    /// Nothing arrives; what was sent waits.
    pub closed: bool,
}

impl Default for Weather {
    fn default() -> Weather {
        Weather { latency: 1..=4, loss: 0, closed: false }
    }
}

/// After this long a segment that was lost is sent again.
const RESEND_MS: u64 = 60;
/// After this long a closed way is tried again.
const RETRY_MS: u64 = 20;

/// The network. A clone is the same network.
#[derive(Clone)]
pub struct Net {
    inner: Arc<Mutex<Inner>>,
}

type Incoming = mpsc::UnboundedSender<io::Result<Connection>>;

struct Inner {
    now: Ms,
    random: Rng,
    weather: BTreeMap<(Host, Host), Weather>,
    hosts: BTreeMap<Host, Machine>,
    pipes: BTreeMap<PipeId, Pipe>,
    dials: BTreeMap<u64, Dial>,
    /// Hosts that are also known by an address that is not theirs.
    aliases: BTreeMap<String, Host>,
    due: BTreeMap<(Ms, u64), Due>,
    number: u64,
}

/// The kernel of a host.
#[derive(Default)]
struct Machine {
    /// Counts the processes that ran here: a connection belongs to one.
    life: u64,
    up: bool,
    port: Option<Incoming>,
}

enum Due {
    Segments(PipeId),
    Reset(PipeId),
    /// The kernel of a host knows no such connection, and says so if its word gets through.
    Refused(PipeId, Host),
    Dial(u64),
    Dialled(u64),
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct End {
    host: Host,
    life: u64,
}

struct Dial {
    from: End,
    to: Host,
    /// What the other side has said, and is on its way.
    coming: Option<io::Result<(PipeId, PipeId)>>,
    outcome: Option<io::Result<(PipeId, PipeId)>>,
    waker: Option<Waker>,
}

impl Net {
    /// An empty network.
    pub fn new(random: Rng) -> Net {
        let inner = Inner {
            now: 0,
            random,
            weather: BTreeMap::new(),
            hosts: BTreeMap::new(),
            pipes: BTreeMap::new(),
            dials: BTreeMap::new(),
            aliases: BTreeMap::new(),
            due: BTreeMap::new(),
            number: 0,
        };
        Net { inner: Arc::new(Mutex::new(inner)) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the weather from one host to another, that way only.
    pub fn change(&self, from: Host, to: Host, change: impl FnOnce(&mut Weather)) {
        change(self.lock().weather.entry((from, to)).or_default());
    }

    /// Fair weather everywhere.
    pub fn heal(&self) {
        self.lock().weather.clear();
    }

    /// A host is known by this address, too.
    pub fn alias(&self, address: &str, host: Host) {
        self.lock().aliases.insert(address.to_owned(), host);
    }

    /// The host of an address.
    pub fn host(&self, address: &str) -> Option<Host> {
        Host::of(address).or_else(|| self.lock().aliases.get(address).copied())
    }

    /// A process begins on a host.
    pub(crate) fn begin(&self, host: Host) {
        let mut inner = self.lock();
        let machine = inner.hosts.entry(host).or_default();
        machine.life += 1;
        machine.up = true;
    }

    /// The process on a host is gone. Its kernel resets its connections, unless the whole machine lost power.
    pub(crate) fn end(&self, host: Host, power: bool) {
        let mut inner = self.lock();
        let machine = inner.hosts.entry(host).or_default();
        let gone = End { host, life: machine.life };
        machine.life += 1;
        machine.up = !power;
        machine.port = None;
        if !power {
            let others = inner.pipes.iter().filter(|(_, pipe)| pipe.from == gone || pipe.to == gone);
            let others: Vec<PipeId> = others.map(|(id, _)| *id).collect();
            for pipe in others {
                inner.at(2, Due::Refused(pipe, host));
            }
        }
    }

    /// All connections between two hosts break, with an error at both ends.
    pub fn reset(&self, a: Host, b: Host) {
        let mut inner = self.lock();
        let between = inner.pipes.iter().filter(|(_, pipe)| {
            (pipe.from.host, pipe.to.host) == (a, b) || (pipe.from.host, pipe.to.host) == (b, a)
        });
        let between: Vec<PipeId> = between.map(|(id, _)| *id).collect();
        for pipe in between {
            inner.at(0, Due::Reset(pipe));
        }
    }

    /// Listens on the port of a host: connections arrive at the answer.
    pub(crate) fn listen(&self, host: Host) -> mpsc::UnboundedReceiver<io::Result<Connection>> {
        let (port, incoming) = mpsc::unbounded_channel();
        self.lock().hosts.entry(host).or_default().port = Some(port);
        incoming
    }

    /// Connects, from a process that runs on `from`.
    pub fn connect(&self, from: Host, to: Host) -> Connecting {
        let mut inner = self.lock();
        let number = inner.next();
        let life = inner.hosts.get(&from).map_or(0, |machine| machine.life);
        let latency = inner.latency(from, to);
        inner.dials.insert(
            number,
            Dial { from: End { host: from, life }, to, coming: None, outcome: None, waker: None },
        );
        inner.at(latency, Due::Dial(number));
        Connecting { net: self.clone(), number }
    }

    /// Moves the time on, and hands over what is due.
    pub(crate) fn deliver(&self, now: Ms) {
        let mut wake = Vec::new();
        let mut opened = Vec::new();
        {
            let mut inner = self.lock();
            inner.now = now;
            while let Some(entry) = inner.due.first_entry() {
                if entry.key().0 > now {
                    break;
                }
                match entry.remove() {
                    Due::Segments(pipe) => inner.arrive(pipe, &mut wake),
                    Due::Reset(pipe) => inner.reset(pipe, &mut wake),
                    Due::Refused(pipe, by) => inner.refuse(pipe, by, &mut wake),
                    Due::Dial(number) => opened.extend(inner.open(number)),
                    Due::Dialled(number) => {
                        if let Some(dial) = inner.dials.get_mut(&number) {
                            dial.outcome = dial.coming.take();
                            wake.extend(dial.waker.take());
                        }
                    }
                }
            }
        }
        // Outside the lock: a stream that is dropped takes it.
        for (port, outgoing, incoming) in opened {
            let stream = Stream::new(self.clone(), incoming, outgoing);
            // Nobody listens any more: the stream is dropped, and its peer told.
            let _ = port.send(Ok(Connection::new(stream)));
        }
        wake.into_iter().for_each(Waker::wake);
    }
}

fn was_reset() -> io::Error {
    io::ErrorKind::ConnectionReset.into()
}

impl Inner {
    fn next(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    fn at(&mut self, after: u64, due: Due) {
        let key = (self.now + after, self.next());
        self.due.insert(key, due);
    }

    fn weather(&self, from: Host, to: Host) -> Weather {
        self.weather.get(&(from, to)).cloned().unwrap_or_default()
    }

    fn latency(&mut self, from: Host, to: Host) -> u64 {
        let Weather { latency, loss, .. } = self.weather(from, to);
        let lost = loss > 0 && self.random.u8(..100) < loss;
        self.random.u64(latency).max(1) + if lost { RESEND_MS } else { 0 }
    }

    fn lives(&self, end: End) -> bool {
        self.hosts.get(&end.host).is_some_and(|machine| machine.life == end.life)
    }

    fn open(&mut self, number: u64) -> Option<(Incoming, PipeId, PipeId)> {
        let dial = self.dials.get(&number)?;
        let (from, to) = (dial.from, dial.to);
        let life = self.hosts.get(&to).map_or(0, |machine| machine.life);
        let up = self.hosts.get(&to).is_some_and(|machine| machine.up);
        let closed = |a, b| self.weather(a, b).closed;
        if !up || closed(from.host, to) || closed(to, from.host) {
            self.at(RESEND_MS, Due::Dial(number));
            return None;
        }
        let port = self.hosts.get(&to).and_then(|machine| machine.port.clone());
        let latency = self.latency(to, from.host);
        let Some(port) = port.filter(|port| !port.is_closed()) else {
            if let Some(dial) = self.dials.get_mut(&number) {
                dial.coming = Some(Err(io::ErrorKind::ConnectionRefused.into()));
            }
            self.at(latency, Due::Dialled(number));
            return None;
        };
        // An even number and the odd one after it are the two directions of a connection.
        self.number = (self.number + 2) & !1;
        let (there, back) = (self.number, self.number + 1);
        self.number += 2;
        let to = End { host: to, life };
        self.pipes.insert(there, Pipe::new(from, to));
        self.pipes.insert(back, Pipe::new(to, from));
        if let Some(dial) = self.dials.get_mut(&number) {
            dial.coming = Some(Ok((back, there)));
        }
        self.at(latency, Due::Dialled(number));
        Some((port, back, there))
    }
}

/// A connection to be.
pub struct Connecting {
    net: Net,
    number: u64,
}

impl Future for Connecting {
    type Output = io::Result<Stream>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<Stream>> {
        let mut inner = self.net.lock();
        let Some(dial) = inner.dials.get_mut(&self.number) else { return Poll::Ready(Err(was_reset())) };
        match dial.outcome.take() {
            Some(Ok((incoming, outgoing))) => {
                inner.dials.remove(&self.number);
                drop(inner);
                Poll::Ready(Ok(Stream::new(self.net.clone(), incoming, outgoing)))
            }
            Some(Err(error)) => Poll::Ready(Err(error)),
            None => {
                dial.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for Connecting {
    fn drop(&mut self) {
        let dial = self.net.lock().dials.remove(&self.number);
        let made = dial.and_then(|dial| dial.outcome.or(dial.coming)?.ok());
        if let Some((incoming, outgoing)) = made {
            self.net.drop_stream(incoming, outgoing);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::pipe::WINDOW_BYTES;
    use super::*;
    use std::io::ErrorKind;
    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

    const A: Host = Host(1);
    const B: Host = Host(2);

    /// Two hosts with a connection from A to B.
    struct Pair {
        net: Net,
        now: Ms,
        a: Stream,
        b: Connection,
    }

    fn context() -> Context<'static> {
        Context::from_waker(Waker::noop())
    }

    fn dialled(connecting: &mut Connecting) -> Poll<io::Result<Stream>> {
        Pin::new(connecting).poll(&mut context())
    }

    /// What can be read now; `None` when nothing has come.
    fn read(from: &mut (impl AsyncRead + Unpin)) -> Option<Result<Vec<u8>, ErrorKind>> {
        let mut space = [0; 64];
        let mut buf = ReadBuf::new(&mut space);
        match Pin::new(from).poll_read(&mut context(), &mut buf) {
            Poll::Pending => None,
            Poll::Ready(Ok(())) => Some(Ok(buf.filled().to_vec())),
            Poll::Ready(Err(error)) => Some(Err(error.kind())),
        }
    }

    /// How much was taken; `None` when the writer has to wait.
    fn written(to: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> Option<usize> {
        match Pin::new(to).poll_write(&mut context(), bytes) {
            Poll::Pending => None,
            Poll::Ready(taken) => Some(taken.unwrap()),
        }
    }

    impl Pair {
        fn new() -> Pair {
            let net = Net::new(Rng::with_seed(7));
            net.begin(A);
            net.begin(B);
            let mut port = net.listen(B);
            let mut connecting = net.connect(A, B);
            (1..=20).for_each(|now| net.deliver(now));
            let Poll::Ready(Ok(a)) = dialled(&mut connecting) else { panic!("20 ms are enough") };
            let b = port.try_recv().unwrap().unwrap();
            Pair { net, now: 20, a, b }
        }

        fn pass(&mut self, ms: Ms) {
            for _ in 0..ms {
                self.now += 1;
                self.net.deliver(self.now);
            }
        }
    }

    #[test]
    fn bytes_arrive_in_order_however_long_each_takes() {
        let mut pair = Pair::new();
        pair.net.change(A, B, |way| (way.latency, way.loss) = (1..=50, 30));
        for byte in 0..40 {
            assert_eq!(written(&mut pair.a, &[byte]), Some(1));
            pair.pass(1);
        }
        pair.pass(300);
        assert_eq!(read(&mut pair.b), Some(Ok((0..40).collect())));
    }

    #[test]
    fn a_closed_way_holds_back_what_was_sent_and_the_other_way_is_open() {
        let mut pair = Pair::new();
        pair.net.change(A, B, |way| way.closed = true);
        written(&mut pair.a, b"held");
        written(&mut pair.b, b"free");
        pair.pass(100);
        assert_eq!(read(&mut pair.b), None);
        assert_eq!(read(&mut pair.a), Some(Ok(b"free".to_vec())));
        pair.net.change(A, B, |way| way.closed = false);
        pair.pass(RETRY_MS);
        assert_eq!(read(&mut pair.b), Some(Ok(b"held".to_vec())));
    }

    #[test]
    fn a_killed_process_resets_its_connections_and_a_machine_without_power_says_nothing() {
        let mut killed = Pair::new();
        killed.net.end(B, false);
        killed.pass(5);
        assert_eq!(read(&mut killed.a), Some(Err(ErrorKind::ConnectionReset)));

        let mut dark = Pair::new();
        dark.net.end(B, true);
        written(&mut dark.a, b"x");
        dark.pass(1_000);
        assert_eq!(read(&mut dark.a), None);
        dark.net.begin(B);
        dark.pass(2 * RETRY_MS);
        assert_eq!(read(&mut dark.a), Some(Err(ErrorKind::ConnectionReset)));
    }

    #[test]
    fn a_process_killed_behind_a_closed_way_is_not_told_of_before_it_opens() {
        let mut pair = Pair::new();
        pair.net.change(B, A, |way| way.closed = true);
        pair.net.end(B, false);
        written(&mut pair.a, b"x");
        pair.pass(500);
        assert_eq!(read(&mut pair.a), None);
        pair.net.change(B, A, |way| way.closed = false);
        pair.pass(2 * RETRY_MS);
        assert_eq!(read(&mut pair.a), Some(Err(ErrorKind::ConnectionReset)));
    }

    #[test]
    fn a_dial_is_refused_where_nobody_listens_and_waits_where_no_machine_is() {
        let mut pair = Pair::new();
        let mut refused = pair.net.connect(B, A);
        pair.pass(20);
        let answer = dialled(&mut refused);
        assert!(matches!(answer, Poll::Ready(Err(error)) if error.kind() == ErrorKind::ConnectionRefused));
        pair.net.end(A, true);
        let mut waits = pair.net.connect(B, A);
        pair.pass(500);
        assert!(dialled(&mut waits).is_pending());
    }

    #[test]
    fn nobody_knows_of_a_connection_before_the_answer_is_there() {
        let mut pair = Pair::new();
        pair.net.change(B, A, |way| way.latency = 50..=50);
        let _port = pair.net.listen(B);
        let mut connecting = pair.net.connect(A, B);
        pair.pass(20);
        assert!(dialled(&mut connecting).is_pending(), "it was heard, and its answer is on its way");
        pair.pass(40);
        assert!(matches!(dialled(&mut connecting), Poll::Ready(Ok(_))));
    }

    #[test]
    fn a_host_is_found_by_its_own_address_and_by_the_others_it_is_known_by() {
        let net = Net::new(Rng::with_seed(7));
        net.alias("127.0.0.1:39389", A);
        let found = [B.address(), "127.0.0.1:39389".to_owned(), "127.0.0.1:1".to_owned()];
        assert_eq!(found.map(|address| net.host(&address)), [Some(B), Some(A), None]);
    }

    #[test]
    fn a_writer_waits_for_its_reader() {
        let mut pair = Pair::new();
        assert_eq!(written(&mut pair.a, &vec![7; WINDOW_BYTES]), Some(WINDOW_BYTES));
        pair.pass(10);
        assert_eq!(written(&mut pair.a, b"x"), None, "what has arrived is not read yet");
        assert!(read(&mut pair.b).is_some());
        assert_eq!(written(&mut pair.a, b"x"), Some(1));
    }

    #[test]
    fn what_was_sent_before_an_end_arrives_before_it_and_the_other_way_stays_open() {
        let mut pair = Pair::new();
        written(&mut pair.a, b"last");
        assert!(Pin::new(&mut pair.a).poll_shutdown(&mut context()).is_ready());
        pair.pass(10);
        assert_eq!(read(&mut pair.b), Some(Ok(b"last".to_vec())));
        assert_eq!(read(&mut pair.b), Some(Ok(Vec::new())));
        written(&mut pair.b, b"answer");
        pair.pass(10);
        assert_eq!(read(&mut pair.a), Some(Ok(b"answer".to_vec())));
    }

    #[test]
    fn a_connection_whose_peer_was_killed_is_forgotten_when_it_is_let_go() {
        let mut pair = Pair::new();
        pair.net.end(B, false);
        pair.pass(5);
        let Pair { net, a, b, .. } = pair;
        drop((a, b));
        assert!(net.lock().pipes.is_empty());
    }
}
