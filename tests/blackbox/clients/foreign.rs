//! What the clients are made with, and one of them as a process.

use crate::harness::wait_for;
use crate::house::root;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tempfile::TempDir;

/// A client that was made for this run: generated code, or compiled code. Taken away with the last test that uses it.
pub(super) struct Languages {
    /// Where it was made.
    made: Arc<TempDir>,
    is_python: bool,
}

static PYTHON: Mutex<Weak<TempDir>> = Mutex::new(Weak::new());
static TYPESCRIPT: Mutex<Weak<TempDir>> = Mutex::new(Weak::new());

/// The client in Python, or a loud word that something is missing.
pub(super) fn python() -> Option<Languages> {
    let grpc = succeeds("/usr/bin/python3", &["-c", "import grpc, google.protobuf"]);
    let plugin = ["/usr/bin", "/usr/local/bin"].map(|dir| Path::new(dir).join("grpc_python_plugin"));
    let plugin = plugin.into_iter().find(|plugin| plugin.exists());
    let Some(plugin) = plugin.filter(|_| grpc && succeeds("protoc", &["--version"])) else {
        return missing(
            "python3-grpcio, protobuf-compiler or protobuf-compiler-grpc",
            "the client in Python",
        );
    };
    let made = make(&PYTHON, |dir| {
        let contract = root().join("proto");
        let files = ["common", "drill", "lock", "map", "worker"].map(|f| format!("ringfence/v1/{f}.proto"));
        let mut protoc = Command::new("protoc");
        protoc.arg("-I").arg(&contract).arg("--python_out").arg(dir).arg("--grpc_out").arg(dir);
        protoc.arg(format!("--plugin=protoc-gen-grpc={}", plugin.display())).args(files);
        protoc
    });
    Some(Languages { made, is_python: true })
}

/// The client in TypeScript, or a loud word that something is missing.
pub(super) fn typescript() -> Option<Languages> {
    let is_new = "process.exit(typeof fetch === 'function' ? 0 : 1)";
    if !succeeds("node", &["-e", is_new]) || !succeeds("tsc", &["--version"]) {
        return missing("node (18 or later) or tsc (Debian: node-typescript)", "the client in TypeScript");
    }
    let made = make(&TYPESCRIPT, |dir| {
        let sources = root().join("examples/clients/typescript");
        let mut tsc = Command::new("tsc");
        tsc.args(["--strict", "--target", "es2020", "--lib", "es2020,dom", "--module", "commonjs"]);
        tsc.args(["--noUnusedLocals", "--noUnusedParameters", "--noImplicitReturns", "--outDir"]).arg(dir);
        tsc.arg(sources.join("example.ts"));
        tsc
    });
    Some(Languages { made, is_python: false })
}

fn succeeds(program: &str, args: &[&str]) -> bool {
    Command::new(program).args(args).output().is_ok_and(|output| output.status.success())
}

fn missing<T>(what: &str, who: &str) -> Option<T> {
    assert!(std::env::var_os("CI").is_none(), "{what} is missing, and CI has to have it");
    let said = format!("SKIPPED: {what} is not installed, so {who} was not tried\n");
    let _ = std::io::stderr().write_all(said.as_bytes());
    None
}

/// What another test has made already, or made by this command.
fn make(slot: &Mutex<Weak<TempDir>>, by: impl FnOnce(&Path) -> Command) -> Arc<TempDir> {
    let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(made) = slot.upgrade() {
        return made;
    }
    let dir = Arc::new(tempfile::tempdir().unwrap());
    let ran = by(dir.path()).output().unwrap();
    let said = [ran.stdout, ran.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
    assert!(ran.status.success(), "{}", said.concat());
    *slot = Arc::downgrade(&dir);
    dir
}

impl Languages {
    fn command(&self) -> Command {
        let mut command = Command::new(if self.is_python { "/usr/bin/python3" } else { "node" });
        let clients = root().join("examples/clients/python");
        let path = std::env::join_paths([self.made.path(), clients.as_path()]).unwrap();
        command
            .env("PYTHONPATH", path)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("NODE_PATH", self.made.path());
        command
    }

    /// As this client takes the URLs of nodes.
    pub(super) fn endpoints(&self, urls: &str) -> String {
        if self.is_python { urls.replace("http://", "") } else { urls.to_owned() }
    }

    /// A script that prints the hash of a key.
    pub(super) fn hash_script(&self) -> &'static str {
        match self.is_python {
            true => {
                "import sys\nfrom coordinator import siphash\nprint(f'{siphash(bytes.fromhex(sys.argv[1])):016x}')"
            }
            false => {
                "const key = Buffer.from(process.argv[1], 'hex');
                console.log(require('ringfence').sipHash(key).toString(16).padStart(16, '0'))"
            }
        }
    }

    /// Runs a script that uses the client, and returns what it printed.
    pub(super) fn script(&self, text: &str, args: &[&str]) -> String {
        let mut command = self.command();
        let ran = match self.is_python {
            true => command.arg("-c").arg(text).args(args),
            false => command.arg("-e").arg(text).arg("--").args(args),
        };
        ran.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = ran.spawn().unwrap();
        // What it prints fits into a pipe.
        wait_for("a script ends", || child.try_wait().unwrap());
        let ran = child.wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{errors}");
        String::from_utf8(ran.stdout).unwrap()
    }

    /// Starts its example with these arguments.
    pub(super) fn example(&self, name: &str, args: &[&str]) -> Foreign {
        let mut command = self.command();
        match self.is_python {
            true => command.arg(root().join("examples/clients/python/example.py")),
            false => command.arg(self.made.path().join("example.js")),
        };
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (said, errors) = (Arc::<Mutex<Vec<String>>>::default(), Arc::<Mutex<String>>::default());
        let (output, lines) = (child.stdout.take().unwrap(), Arc::clone(&said));
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                lines.lock().unwrap().push(line);
            }
        });
        let (mut pipe, text) = (child.stderr.take().unwrap(), Arc::clone(&errors));
        let errors_read = std::thread::spawn(move || {
            let mut all = Vec::new();
            let _ = pipe.read_to_end(&mut all);
            text.lock().unwrap().push_str(&String::from_utf8_lossy(&all));
        });
        let input = child.stdin.take();
        Foreign { name: name.to_owned(), child, input, said, errors, errors_read: Some(errors_read) }
    }
}

/// A client that runs. Dropping it kills it.
pub(super) struct Foreign {
    name: String,
    child: Child,
    input: Option<ChildStdin>,
    said: Arc<Mutex<Vec<String>>>,
    errors: Arc<Mutex<String>>,
    errors_read: Option<std::thread::JoinHandle<()>>,
}

impl Foreign {
    /// The lines it has printed so far.
    pub(super) fn said(&self) -> Vec<String> {
        self.said.lock().unwrap().clone()
    }

    /// Waits for a line that begins so, and returns its rest.
    #[track_caller]
    pub(super) fn says(&mut self, beginning: &str) -> String {
        wait_for(&format!("{} says {beginning:?}", self.name), || {
            let found = self.said().iter().find_map(|line| line.strip_prefix(beginning).map(str::to_owned));
            if found.is_none() && self.child.try_wait().unwrap().is_some() {
                let errors = self.errors();
                let said = self.said();
                // What it said last may have been read only now.
                let late = said.iter().find_map(|line| line.strip_prefix(beginning).map(str::to_owned));
                assert!(late.is_some(), "{} has ended: {said:?} {errors}", self.name);
                return late;
            }
            found
        })
    }

    /// Gives it a line.
    pub(super) fn enter(&mut self) {
        self.input.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    pub(super) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), signal).unwrap();
    }

    /// SIGSTOP, and waits until the kernel says that it is stopped.
    pub(super) fn stop(&self) {
        self.signal(Signal::SIGSTOP);
        let stat = format!("/proc/{}/stat", self.child.id());
        wait_for(&format!("{} is stopped", self.name), || {
            let stat = std::fs::read_to_string(&stat).unwrap();
            stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('T')).then_some(())
        });
    }

    /// SIGKILL, and waits until it is gone.
    pub(super) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits until it has ended by itself.
    #[track_caller]
    pub(super) fn ended(&mut self) -> ExitStatus {
        let child = &mut self.child;
        wait_for(&format!("{} ends", self.name), || child.try_wait().unwrap())
    }

    /// What it wrote to standard error, when it has ended.
    pub(super) fn errors(&mut self) -> String {
        if let Some(reader) = self.errors_read.take() {
            reader.join().unwrap();
        }
        self.errors.lock().unwrap().clone()
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let errors = self.errors();
            eprintln!("{} said {:?} {errors}", self.name, self.said());
        }
    }
}
