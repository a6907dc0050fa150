//! A real server of the test's own, on a port and in a directory of its own.

use redis::aio::MultiplexedConnection;
use redis::{Cmd, FromRedisValue};
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

/// Everything that was answered is on disk.
pub(crate) const DURABLE: &[&str] = &["--appendonly", "yes", "--appendfsync", "always", "--save", ""];

/// Nothing is: for what asks a thousand times and crashes nothing.
pub(crate) const FORGETFUL: &[&str] = &["--appendonly", "no", "--save", ""];

/// Whether there is a server program that is new enough. Without one a test says so loudly and passes; CI has to have it.
pub(crate) fn available() -> bool {
    static AVAILABLE: LazyLock<bool> =
        LazyLock::new(|| program().is_some_and(|program| is_new_enough(&program)));
    if *AVAILABLE {
        return true;
    }
    let missing =
        "there is no redis-server of version 7 or newer, and no valkey-server (Debian: redis-server)";
    assert!(std::env::var_os("CI").is_none(), "{missing}, and CI has to have one");
    eprintln!("SKIPPED: {missing}, so no fence was tried in it");
    false
}

/// By what it says: `Redis server v=7.0.15 sha=...`, or `Valkey server v=8.1.1 sha=...`.
fn is_new_enough(program: &Path) -> bool {
    let said = Command::new(program).arg("--version").output().unwrap();
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let major = said.split_once("v=").and_then(|(_, version)| version.split('.').next()?.parse::<u32>().ok());
    major.is_some_and(|major| major >= 7)
}

fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let named = |name: &'static str| {
        std::env::split_paths(&path).map(move |dir| dir.join(name)).find(|p| p.is_file())
    };
    named("redis-server").or_else(|| named("valkey-server"))
}

/// It is killed when this is dropped.
pub(crate) struct Server {
    child: Child,
    dir: TempDir,
    port: u16,
    settings: Vec<String>,
}

impl Server {
    pub(crate) fn new(settings: &[&str]) -> Server {
        let dir = tempfile::tempdir().unwrap();
        let settings: Vec<String> = settings.iter().map(ToString::to_string).collect();
        // Somebody else may take the port between the look and the start.
        for _ in 0..20 {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let mut child = spawn(dir.path(), port, &settings);
            if is_up(&mut child, port) {
                return Server { child, dir, port, settings };
            }
            end(&mut child);
        }
        panic!("redis-server did not start: {}", log(dir.path()));
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// As a power cut of the process: nothing more is written.
    pub(crate) fn kill(&mut self) {
        end(&mut self.child);
    }

    /// Starts it again over the same directory, on the same port.
    pub(crate) fn start_again(&mut self) {
        let (dir, port) = (self.dir.path(), self.port);
        let mut started = None;
        // The port may be taken for a moment by a connection on its way out.
        until("the server starts again", || {
            let mut child = spawn(dir, port, &self.settings);
            if is_up(&mut child, port) {
                started = Some(child);
            } else {
                end(&mut child);
            }
            started.is_some()
        });
        self.child = started.unwrap();
    }

    pub(crate) fn client(&self) -> Client {
        Client::to(self.port).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

fn spawn(dir: &Path, port: u16, settings: &[String]) -> Child {
    let out = File::options().create(true).append(true).open(dir.join("log")).unwrap();
    Command::new(program().unwrap())
        .args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--daemonize", "no", "--dir"])
        .arg(dir)
        .args(["--repl-diskless-sync-delay", "0", "--enable-debug-command", "local"])
        .args(settings)
        .stdin(Stdio::null())
        .stdout(out.try_clone().unwrap())
        .stderr(out)
        .spawn()
        .unwrap()
}

fn end(child: &mut Child) {
    // It may have ended by itself.
    let _ = child.kill();
    let _ = child.wait();
}

fn is_up(child: &mut Child, port: u16) -> bool {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        if child.try_wait().unwrap().is_some() {
            return false;
        }
        // Not while it is loading; and not another server that has taken the port.
        let mine = Client::to(port).and_then(|mut client| client.try_ask::<String>(command("INFO server")));
        let pid = format!("process_id:{}", child.id());
        let up = mine.is_ok_and(|info| info.lines().any(|line| line == pid))
            && Client::to(port).is_ok_and(|mut client| client.info("loading") == "0");
        if up {
            return true;
        }
        thread::sleep(Duration::from_millis(5));
    }
    false
}

fn log(dir: &Path) -> String {
    std::fs::read_to_string(dir.join("log")).unwrap_or_default()
}

/// A connection, and an executor to wait on.
pub(crate) struct Client {
    pub(crate) conn: MultiplexedConnection,
    runtime: Runtime,
}

impl Client {
    pub(crate) fn to(port: u16) -> redis::RedisResult<Client> {
        Client::open(&format!("redis://127.0.0.1:{port}/"))
    }

    /// One that is answered in the newer protocol, with types of its own for sets and texts.
    pub(crate) fn of_resp3(port: u16) -> Client {
        Client::open(&format!("redis://127.0.0.1:{port}/?protocol=resp3")).unwrap()
    }

    fn open(url: &str) -> redis::RedisResult<Client> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let client = redis::Client::open(url)?;
        let slow = redis::AsyncConnectionConfig::new()
            .set_response_timeout(Some(PATIENCE))
            .set_connection_timeout(Some(PATIENCE));
        let conn = runtime.block_on(client.get_multiplexed_async_connection_with_config(&slow))?;
        Ok(Client { conn, runtime })
    }

    pub(crate) fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// Waits for something to do with the connection.
    pub(crate) fn with<T>(&mut self, call: impl AsyncFnOnce(&mut MultiplexedConnection) -> T) -> T {
        self.runtime.block_on(call(&mut self.conn))
    }

    pub(crate) fn try_ask<T: FromRedisValue>(&mut self, command: Cmd) -> redis::RedisResult<T> {
        self.runtime.block_on(command.query_async(&mut self.conn))
    }

    /// Asks in words that stand between spaces.
    pub(crate) fn ask<T: FromRedisValue>(&mut self, words: &str) -> T {
        self.try_ask(command(words)).unwrap_or_else(|error| panic!("{words}: {error}"))
    }

    /// A field of INFO.
    pub(crate) fn info(&mut self, field: &str) -> String {
        let info: String = self.ask("INFO");
        let line = info.lines().find_map(|line| line.strip_prefix(&format!("{field}:")));
        line.unwrap_or_default().trim_end().to_string()
    }

    /// Waits until a command answers this number.
    pub(crate) fn until_asked(&mut self, words: &str, number: i64) {
        until(words, || self.ask::<i64>(words) == number);
    }

    /// Waits until a field of INFO has this value.
    pub(crate) fn until(&mut self, field: &str, value: &str) {
        until(&format!("{field} is {value}"), || self.info(field) == value);
    }

    /// Waits until a cluster takes commands.
    pub(crate) fn until_cluster_is_up(&mut self) {
        until("the cluster takes commands", || {
            let info: String = self.ask("CLUSTER INFO");
            info.lines().any(|line| line.trim_end() == "cluster_state:ok")
        });
    }
}

pub(crate) fn command(words: &str) -> Cmd {
    let mut words = words.split(' ');
    let mut command = redis::cmd(words.next().unwrap());
    words.for_each(|word| {
        command.arg(word);
    });
    command
}

/// Waits for a state, and gives up when it does not come.
fn until(what: &str, mut reached: impl FnMut() -> bool) {
    let start = Instant::now();
    while !reached() {
        if start.elapsed() > PATIENCE {
            panic!("this was waited for, and did not come: {what}");
        }
        thread::sleep(Duration::from_millis(5));
    }
}
