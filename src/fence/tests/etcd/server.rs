//! Real members of the test's own, on ports and in directories of their own.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ringfence_fence::etcd::{EtcdConnection, EtcdError, EtcdKv, Op, OpReply, Pair, Txn, TxnReply};
use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// How long a server may take to come up, or to get where a test waits for it.
const PATIENCE: Duration = Duration::from_secs(30);

/// Whether there is a server program that is new enough. Without one a test says so loudly and passes; CI has to have it.
pub(crate) fn available() -> bool {
    static AVAILABLE: LazyLock<bool> =
        LazyLock::new(|| program("etcd").is_some_and(|etcd| is_new_enough(&etcd)));
    if *AVAILABLE {
        return true;
    }
    let missing = "there is no etcd of version 3.4 or newer (Debian: etcd-server)";
    assert!(std::env::var_os("CI").is_none(), "{missing}, and CI has to have one");
    eprintln!("SKIPPED: {missing}, so no fence was tried in it");
    false
}

/// The tool of operators, for what a program does not do itself. Skipped as loudly.
pub(crate) fn etcdctl() -> Option<PathBuf> {
    if !available() {
        return None;
    }
    let found = program("etcdctl");
    if found.is_none() {
        let missing = "there is no etcdctl (Debian: etcd-client)";
        assert!(std::env::var_os("CI").is_none(), "{missing}, and CI has to have one");
        eprintln!("SKIPPED: {missing}, so what needs it was not tried");
    }
    found
}

/// By what it says: `etcd Version: 3.4.23`.
fn is_new_enough(etcd: &Path) -> bool {
    let said = Command::new(etcd).arg("--version").output().unwrap();
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let mut numbers = said.split_once("Version: ").map_or("", |(_, rest)| rest).split('.');
    let mut number = || numbers.next().and_then(|digits| digits.parse::<u32>().ok()).unwrap_or(0);
    (number(), number()) >= (3, 4)
}

fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|p| p.is_file())
}

/// It is killed when this is dropped.
pub(crate) struct Server {
    child: Child,
    dir: TempDir,
    arguments: Vec<String>,
    client_port: u16,
}

impl Server {
    pub(crate) fn new() -> Server {
        let mut members = Server::members(1);
        members.remove(0)
    }

    /// A cluster of so many members.
    pub(crate) fn members(count: usize) -> Vec<Server> {
        // Somebody else may take a port between the look and the start.
        for _ in 0..20 {
            let mut members = spawn_all(count);
            if members.iter_mut().all(Server::is_up) {
                return members;
            }
        }
        panic!("etcd did not start");
    }

    pub(crate) fn address(&self) -> String {
        format!("http://127.0.0.1:{}", self.client_port)
    }

    pub(crate) fn client(&self) -> Client {
        Client::to(&[self.address()])
    }

    /// Where its data is.
    pub(crate) fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// As a power cut of the process: nothing more is written.
    pub(crate) fn kill(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
    }

    /// Starts it again over the same directory, on the same ports.
    pub(crate) fn start_again(&mut self) {
        self.start_again_with(&[]);
    }

    pub(crate) fn start_again_with(&mut self, more: &[&str]) {
        // The port may be taken for a moment by a connection on its way out.
        until("the server starts again", || {
            self.child = spawn(self.dir.path(), &self.arguments, more);
            let up = self.is_up();
            if !up {
                self.kill();
            }
            up
        });
    }

    /// Where nobody gets in without a login: it is up when it answers at all.
    pub(crate) fn start_again_behind_a_login(&mut self) {
        let probe = Txn::new().get("up");
        self.child = spawn(self.dir.path(), &self.arguments, &[]);
        until("the server asks for a login", || {
            matches!(self.client().try_txn(probe.clone()), Err(EtcdError::Never(_)))
        });
    }

    /// What it was started with.
    pub(crate) fn argument(&self, name: &str) -> &str {
        let start = format!("--{name}=");
        self.arguments.iter().find_map(|argument| argument.strip_prefix(&start)).unwrap()
    }

    /// Drops what is older than a revision, and gives the space back.
    pub(crate) fn compact(&mut self, revision: i64) {
        let Some(etcdctl) = etcdctl() else { return };
        for words in [vec!["compaction", "--physical", &revision.to_string()], vec!["defrag"]] {
            let out = Command::new(&etcdctl)
                .args(["--endpoints", &self.address()])
                .args(&words)
                .env("ETCDCTL_API", "3")
                .output()
                .unwrap();
            assert!(out.status.success(), "{words:?}: {}", String::from_utf8_lossy(&out.stderr));
        }
    }

    fn is_up(&mut self) -> bool {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if self.child.try_wait().unwrap().is_some() {
                return false;
            }
            let mut client = self.client();
            if client.try_txn(Txn::new().get("up")).is_ok() {
                return true;
            }
            thread::sleep(Duration::from_millis(10));
        }
        false
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn spawn_all(count: usize) -> Vec<Server> {
    // All are held while they are looked for, so that no two are the same.
    let listeners: Vec<_> = (0..2 * count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let ports: Vec<u16> = listeners.iter().map(|l| l.local_addr().unwrap().port()).collect();
    drop(listeners);
    let peer = |n: usize| format!("http://127.0.0.1:{}", ports[2 * n + 1]);
    let all: Vec<String> = (0..count).map(|n| format!("m{n}={}", peer(n))).collect();
    (0..count)
        .map(|n| {
            let dir = tempfile::tempdir().unwrap();
            let client = format!("http://127.0.0.1:{}", ports[2 * n]);
            let arguments: Vec<String> = [
                ("name", format!("m{n}")),
                ("data-dir", dir.path().join("data").display().to_string()),
                ("listen-client-urls", client.clone()),
                ("advertise-client-urls", client),
                ("listen-peer-urls", peer(n)),
                ("initial-advertise-peer-urls", peer(n)),
                ("initial-cluster", all.join(",")),
                ("initial-cluster-token", format!("t{}", ports[0])),
                ("heartbeat-interval", "50".into()),
                ("election-timeout", "500".into()),
                ("logger", "zap".into()),
            ]
            .into_iter()
            .map(|(name, value)| format!("--{name}={value}"))
            .collect();
            let child = spawn(dir.path(), &arguments, &[]);
            Server { child, dir, arguments, client_port: ports[2 * n] }
        })
        .collect()
}

fn spawn(dir: &Path, arguments: &[String], more: &[&str]) -> Child {
    let out = File::options().create(true).append(true).open(dir.join("log")).unwrap();
    Command::new(program("etcd").unwrap())
        .args(arguments)
        .args(more)
        .env("ETCD_UNSUPPORTED_ARCH", std::env::consts::ARCH)
        .stdin(Stdio::null())
        .stdout(out.try_clone().unwrap())
        .stderr(out)
        .spawn()
        .unwrap()
}

/// A connection, and an executor to wait on.
pub(crate) struct Client {
    pub(crate) etcd: EtcdConnection,
    runtime: Runtime,
}

impl Client {
    pub(crate) fn to(addresses: &[String]) -> Client {
        Client::of(EtcdConnection::to(addresses).unwrap())
    }

    pub(crate) fn of(etcd: EtcdConnection) -> Client {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Client { etcd, runtime }
    }

    pub(crate) fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// Waits for something to do with the connection.
    pub(crate) fn with<T>(&mut self, call: impl AsyncFnOnce(&mut EtcdConnection) -> T) -> T {
        self.runtime.block_on(call(&mut self.etcd))
    }

    /// Past the fence.
    pub(crate) fn try_txn(&mut self, txn: Txn) -> Result<TxnReply, EtcdError> {
        self.with(async |etcd| {
            etcd.connection().await?;
            etcd.txn(txn).await
        })
    }

    pub(crate) fn txn(&mut self, txn: Txn) -> TxnReply {
        self.try_txn(txn).unwrap()
    }

    pub(crate) fn put(&mut self, key: &str, value: &str) {
        self.txn(Txn::new().put(key, value));
    }

    pub(crate) fn get(&mut self, key: &str) -> Option<String> {
        let pair = pairs(self.txn(Txn::new().get(key))).pop()?;
        Some(String::from_utf8(pair.value).unwrap())
    }

    /// All keys that begin so.
    pub(crate) fn all(&mut self, prefix: &str) -> Vec<Pair> {
        let mut end = prefix.as_bytes().to_vec();
        match end.last_mut() {
            Some(last) => *last += 1,
            None => end.push(0),
        }
        let key = if prefix.is_empty() { vec![0] } else { prefix.into() };
        let get = ringfence_fence::etcd::Get { key, end, ..Default::default() };
        pairs(self.txn(Txn::new().then(Op::Get(get))))
    }
}

fn pairs(mut reply: TxnReply) -> Vec<Pair> {
    match reply.replies.pop() {
        Some(OpReply::Get { pairs, .. }) => pairs,
        other => panic!("{other:?}"),
    }
}

/// Waits for a state, and gives up when it does not come.
pub(crate) fn until(what: &str, mut reached: impl FnMut() -> bool) {
    let start = Instant::now();
    while !reached() {
        if start.elapsed() > PATIENCE {
            panic!("this was waited for, and did not come: {what}");
        }
        thread::sleep(Duration::from_millis(5));
    }
}
