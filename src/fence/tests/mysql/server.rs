//! A MariaDB server for the tests: in a directory of its own, on a socket in it, gone when the test process is.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

/// How long a server is waited for before the test fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running server. Whoever holds it may stop it; a process that ends, however it ends, stops it as well.
pub(crate) struct Server {
    dir: PathBuf,
    running: Option<Child>,
    // Waits for the end of its input, which comes with the end of this process, and then tidies up.
    keeper: Child,
}

/// The server that tests share; `None`, loudly, where none is installed.
pub(crate) fn shared() -> Option<&'static Server> {
    static SHARED: OnceLock<Option<Server>> = OnceLock::new();
    SHARED.get_or_init(Server::start).as_ref()
}

fn found(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/libexec".into()]);
    places.map(|dir| dir.join(name)).find(|program| program.is_file())
}

/// Says what was not tried, where CI does not have to have it.
pub(crate) fn skipped(why: &str) {
    assert!(std::env::var_os("CI").is_none(), "CI has to have it: {why}");
    // Not `eprintln!`, which is kept from people while the tests pass.
    let _ = std::io::stderr().write_all(format!("SKIPPED: {why}\n").as_bytes());
}

fn program() -> Option<&'static PathBuf> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    PROGRAM
        .get_or_init(|| {
            let program = found("mariadbd").filter(|_| found("mariadb-install-db").is_some());
            if program.is_none() {
                skipped("MariaDB is not installed (Debian: mariadb-server), so its fence was not tried");
            }
            program
        })
        .as_ref()
}

/// The server refuses to be run by root, unless told so.
fn as_user(command: &mut Command) {
    if nix::unistd::geteuid().is_root() {
        command.arg("--user=root");
    }
}

const SIZES: [&str; 3] =
    ["--innodb-log-file-size=8M", "--innodb-buffer-pool-size=64M", "--skip-name-resolve"];

/// For servers whose machine does not crash: what is written stays written when they are killed, and nobody waits for disks.
const UNSYNCED: [&str; 2] = ["--innodb-flush-method=nosync", "--sync-frm=0"];

/// Where files are never on a disk, if there is room: each statement that makes a procedure would wait for one.
fn in_memory() -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    let room = nix::sys::statvfs::statvfs(&memory).map_or(0, |fs| fs.blocks_available() * fs.fragment_size());
    let writable = tempfile::tempdir_in(&memory).is_ok();
    if room > 1 << 30 && writable { memory } else { std::env::temp_dir() }
}

impl Server {
    /// A server of its own, for a test that stops it.
    pub(crate) fn start() -> Option<Server> {
        Server::with(&[])
    }

    /// The same with settings.
    pub(crate) fn with(settings: &[&str]) -> Option<Server> {
        Server::new(in_memory(), &[&UNSYNCED, settings].concat())
    }

    /// One that syncs to a disk as a real one does, to measure with.
    #[allow(dead_code, reason = "for the bench")]
    pub(crate) fn synced() -> Option<Server> {
        Server::new(std::env::temp_dir(), &[])
    }

    fn new(place: PathBuf, settings: &[&str]) -> Option<Server> {
        program()?;
        let dir = tempfile::Builder::new().prefix("ringfence-my-").tempdir_in(place).unwrap().keep();
        let tidy = r#"cat >/dev/null; pid=$(cat "$1/pid" 2>/dev/null)
            [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = mariadbd ] && kill -9 "$pid"; rm -rf "$1""#;
        let mut keeper = Command::new("/bin/sh");
        keeper.args(["-c", tidy, "sh"]).arg(&dir).stdin(Stdio::piped());
        let mut server = Server { running: None, keeper: keeper.spawn().unwrap(), dir };
        let mut install = Command::new("mariadb-install-db");
        install.args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"]);
        install.args(SIZES).arg(format!("--datadir={}", server.data().display()));
        install.arg(format!("--tmpdir={}", server.dir.display()));
        as_user(&mut install);
        let output = install.stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        server.up(settings);
        Some(server)
    }

    fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// Where its socket is.
    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.join("socket")
    }

    /// Starts it and waits until it answers.
    fn up(&mut self, settings: &[&str]) {
        let start = Instant::now();
        while !self.came_up(settings) {
            let log = std::fs::read_to_string(self.dir.join("log")).unwrap_or_default();
            if start.elapsed() > PATIENCE {
                panic!("mariadbd did not start: {log}");
            }
        }
    }

    fn came_up(&mut self, settings: &[&str]) -> bool {
        // One that is dead has left its own.
        let _ = std::fs::remove_file(self.socket());
        let mut command = Command::new(program().unwrap());
        // No TCP: a port could be taken by somebody else in the meantime.
        command
            .args(["--no-defaults", "--skip-networking", "--max-connections=200"])
            .args(SIZES)
            .args(settings);
        for (name, file) in [
            ("datadir", "data"),
            ("socket", "socket"),
            ("pid-file", "pid"),
            ("log-error", "log"),
            ("tmpdir", ""),
        ] {
            command.arg(format!("--{name}={}", self.dir.join(file).display()));
        }
        as_user(&mut command);
        let null = || Stdio::null();
        let mut child = command.stdin(null()).stdout(null()).stderr(null()).spawn().unwrap();
        let start = Instant::now();
        loop {
            if std::os::unix::net::UnixStream::connect(self.socket()).is_ok() {
                self.running = Some(child);
                return true;
            }
            // After a SIGKILL, its files may be locked for a moment.
            if child.try_wait().unwrap().is_some() {
                return false;
            }
            if start.elapsed() > PATIENCE {
                panic!("mariadbd does not answer");
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Kills it as the kernel would, with everything that was not written, and starts it again with these settings.
    pub(crate) fn killed_and_restarted(&mut self, settings: &[&str]) {
        let mut child = self.running.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        self.up(&[&UNSYNCED, settings].concat());
    }

    /// A client program, which takes a text as people run it.
    pub(crate) fn client(&self, program: &str, database: &str) -> Command {
        let mut client = Command::new(program);
        client.args(["--no-defaults", "--user=root"]).arg(format!("--socket={}", self.socket().display()));
        client.arg(database);
        client
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(child) = &mut self.running {
            let _ = child.kill();
            let _ = child.wait();
        }
        // The keeper tidies up when its input ends.
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}
