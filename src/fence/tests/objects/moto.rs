//! A real server of S3 of the test's own: `moto_server`, in memory, on a port of its own.
//!
//! It looks at a condition first and writes then, in threads that seldom meet in between: the fence's own test of a store
//! found two of eight that had replaced one version at once, on a machine that was very busy. So it gets one request at a
//! time, and what is tried here is what it says to a condition, not that it can do so to many at once.

use crate::wire::{Wire, ask};
use object_store::aws::AmazonS3;
use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock, Mutex, Weak};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long it may take to come up.
const PATIENCE: Duration = Duration::from_secs(30);

/// Whether there is a server program. Without one a test says so loudly and passes; CI has to have it.
pub(crate) fn available() -> bool {
    static AVAILABLE: LazyLock<bool> = LazyLock::new(|| program().is_some());
    if *AVAILABLE {
        return true;
    }
    let missing = "there is no moto_server, on the path or in RINGFENCE_MOTO_SERVER (pip install 'moto[server,s3]==5.2.5')";
    assert!(std::env::var_os("CI").is_none(), "{missing}, and CI has to have one");
    eprintln!("SKIPPED: {missing}, so no fence was tried in S3");
    false
}

fn program() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("RINGFENCE_MOTO_SERVER") {
        return Some(named.into());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join("moto_server")).find(|program| program.is_file())
}

/// It is killed when the last test that uses it is over.
pub(crate) struct Moto {
    child: Child,
    port: u16,
    buckets: AtomicU32,
    _dir: TempDir,
}

impl Moto {
    /// The server that is running, or a new one.
    pub(crate) fn shared() -> Arc<Moto> {
        static SHARED: Mutex<Weak<Moto>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap();
        shared.upgrade().unwrap_or_else(|| {
            let moto = Arc::new(Moto::new());
            *shared = Arc::downgrade(&moto);
            moto
        })
    }

    fn new() -> Moto {
        let dir = tempfile::tempdir().unwrap();
        // Somebody else may take the port between the look and the start.
        for _ in 0..20 {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let mut child = spawn(dir.path(), port);
            if is_up(&mut child, port) {
                return Moto { child, port, buckets: AtomicU32::new(0), _dir: dir };
            }
            end(&mut child);
        }
        panic!("moto_server did not start: {}", std::fs::read_to_string(dir.path().join("log")).unwrap());
    }

    /// A client of a bucket of its own.
    pub(crate) fn bucket(&self, wire: &Wire) -> AmazonS3 {
        let name = format!("bucket-{}", self.buckets.fetch_add(1, Ordering::Relaxed));
        assert_eq!(wait(ask(self.port, "PUT", &format!("/{name}"))).unwrap(), 200);
        wire.one_at_a_time();
        wire.s3(self.port, &name)
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

fn spawn(dir: &Path, port: u16) -> Child {
    let out = File::options().create(true).append(true).open(dir.join("log")).unwrap();
    Command::new(program().unwrap())
        .args(["-H", "127.0.0.1", "-p", &port.to_string()])
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
        // It ends when somebody else has the port.
        if child.try_wait().unwrap().is_some() {
            return false;
        }
        if wait(ask(port, "GET", "/moto-api/")).is_ok_and(|status| status == 200) {
            return child.try_wait().unwrap().is_none();
        }
        thread::sleep(Duration::from_millis(20));
    }
    false
}

/// Waits for something that needs no runtime for longer.
pub(crate) fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}
