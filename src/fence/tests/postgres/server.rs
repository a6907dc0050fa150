//! A PostgreSQL server for the tests: in a directory of its own, on a socket in it, gone when the test process is.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::Write as _;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

/// How long a server is waited for before the test fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running server. Whoever holds it may stop it; a process that ends, however it ends, stops it as well.
pub(crate) struct Server {
    tools: &'static Tools,
    dir: PathBuf,
    // Waits for the end of its input, which comes with the end of this process, and then tidies up.
    _keeper: Child,
}

/// The programs of the server, and whom they run as: they refuse to be run by root.
struct Tools {
    bin: PathBuf,
    user: Option<(u32, u32)>,
}

/// The server that tests share; `None`, loudly, where none is installed.
pub(crate) fn shared() -> Option<&'static Server> {
    static SHARED: OnceLock<Option<Server>> = OnceLock::new();
    SHARED.get_or_init(Server::start).as_ref()
}

fn tools() -> Option<&'static Tools> {
    static TOOLS: OnceLock<Option<Tools>> = OnceLock::new();
    TOOLS
        .get_or_init(|| {
            let found = directories().into_iter().find(|bin| bin.join("initdb").exists());
            if found.is_none() {
                assert!(std::env::var_os("CI").is_none(), "PostgreSQL is missing, and CI has to have it");
                // Not `eprintln!`, which is kept from people while the tests pass.
                let said =
                    "SKIPPED: PostgreSQL is not installed (Debian: postgresql), so its fence was not tried\n";
                let _ = std::io::stderr().write_all(said.as_bytes());
            }
            let root = nix::unistd::geteuid().is_root();
            found.map(|bin| Tools { bin, user: root.then(user_of_the_server) })
        })
        .as_ref()
}

/// Where distributions put the programs, the newest version first.
fn directories() -> Vec<PathBuf> {
    let asked = Command::new("pg_config").arg("--bindir").output().ok();
    let told = asked.map(|output| PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()));
    let listed = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut versions: Vec<(u32, PathBuf)> = listed
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .collect();
    versions.sort_by_key(|(version, _)| std::cmp::Reverse(*version));
    versions.into_iter().map(|(_, bin)| bin).chain(told).collect()
}

fn user_of_the_server() -> (u32, u32) {
    let users = std::fs::read_to_string("/etc/passwd").unwrap();
    let fields = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let user = fields.into_iter().find(|fields| fields[0] == "postgres");
    let user = user.expect("a user postgres, because the server refuses to be run by root");
    (user[2].parse().unwrap(), user[3].parse().unwrap())
}

impl Tools {
    fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(self.bin.join(program));
        if let Some((uid, gid)) = self.user {
            command.uid(uid).gid(gid);
        }
        command.current_dir("/").stdin(Stdio::null()).env("LC_ALL", "C");
        command
    }
}

fn run(mut command: Command) {
    let output = command.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {out}{err}");
}

impl Server {
    /// A server of its own, for a test that stops it. It syncs to the disk as a real one does.
    pub(crate) fn start() -> Option<Server> {
        let server = Server::empty(tools()?);
        let mut initdb = server.tools.command("initdb");
        initdb.args(["-N", "-A", "trust", "-U", "postgres", "-E", "UTF8", "--wal-segsize=1", "-D"]);
        initdb.arg(server.data());
        run(initdb);
        server.configure("shared_buffers = 64MB\nmax_connections = 60\nmax_prepared_transactions = 5\ncheckpoint_timeout = 1h\n");
        server.restarted();
        Some(server)
    }

    /// A replica that follows this server.
    pub(crate) fn replica(&self) -> Server {
        let replica = Server::empty(self.tools);
        let mut copy = self.tools.command("pg_basebackup");
        copy.args(["-R", "-c", "fast", "-U", "postgres", "-h"]).arg(&self.dir).arg("-D").arg(replica.data());
        run(copy);
        replica.restarted();
        replica
    }

    fn empty(tools: &'static Tools) -> Server {
        let dir = tempfile::Builder::new().prefix("ringfence-pg-").tempdir().unwrap().keep();
        if let Some((uid, gid)) = tools.user {
            chown(&dir, Some(uid), Some(gid)).unwrap();
        }
        let mut keeper = tools.command("/bin/sh");
        let tidy =
            r#"cat >/dev/null; "$1/pg_ctl" -D "$2/data" -m immediate stop >/dev/null 2>&1; rm -rf "$2""#;
        keeper.args(["-c", tidy, "sh"]).arg(&tools.bin).arg(&dir).stdin(Stdio::piped());
        Server { tools, _keeper: keeper.spawn().unwrap(), dir }
    }

    fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// Where its socket is.
    pub(crate) fn socket(&self) -> &Path {
        &self.dir
    }

    /// Adds settings; they count from the next start.
    pub(crate) fn configure(&self, settings: &str) {
        let path = self.data().join("postgresql.conf");
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(path, format!("{text}\n{settings}")).unwrap();
    }

    /// Starts it and waits until it answers.
    pub(crate) fn restarted(&self) {
        let start = Instant::now();
        loop {
            let mut ctl = self.tools.command("pg_ctl");
            // No TCP: a port could be taken by somebody else in the meantime.
            ctl.args(["start", "-w", "-s", "-o"])
                .arg(format!("-c listen_addresses='' -c unix_socket_directories='{}'", self.dir.display()));
            ctl.arg("-l").arg(self.dir.join("log")).arg("-D").arg(self.data());
            let output = ctl.output().unwrap();
            if output.status.success() {
                return;
            }
            // After a SIGKILL, the last of its backends may still be there.
            let log = std::fs::read_to_string(self.dir.join("log")).unwrap_or_default();
            if start.elapsed() > PATIENCE {
                panic!("{output:?}: {log}");
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Kills it as the kernel would, with everything that was not on the disk, and starts it again.
    pub(crate) fn killed_and_restarted(&self) {
        let pid = std::fs::read_to_string(self.data().join("postmaster.pid")).unwrap();
        let pid = Pid::from_raw(pid.lines().next().unwrap().parse().unwrap());
        kill(pid, Signal::SIGKILL).unwrap();
        let start = Instant::now();
        while kill(pid, None).is_ok() {
            if start.elapsed() > PATIENCE {
                panic!("it does not die");
            }
            thread::sleep(Duration::from_millis(5));
        }
        self.restarted();
    }

    /// Stops it without a checkpoint, and starts it again.
    pub(crate) fn stopped_immediately_and_restarted(&self) {
        let mut ctl = self.tools.command("pg_ctl");
        ctl.args(["stop", "-s", "-m", "immediate", "-D"]).arg(self.data());
        run(ctl);
        self.restarted();
    }

    /// `psql`, for a text as people run it.
    pub(crate) fn psql(&self, database: &str) -> Command {
        let mut psql = self.tools.command("psql");
        psql.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-d", database, "-h"])
            .arg(&self.dir);
        psql
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The keeper tidies up when its input ends.
        drop(self._keeper.stdin.take());
        let _ = self._keeper.wait();
    }
}
