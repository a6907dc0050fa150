//! What this machine lends to the run, and what it lacks: a lack is said, and on CI it is a failure.

use anyhow::Context as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Debian's place for it. It moves the wall clock of one process; monotonic clocks stay what they are.
const FAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1";
const SHIM: &str = include_str!("shim.c");
/// The size of a node's disk where it has one of its own.
const DISK: &str = "64m";

/// Set in a run that has a mount namespace of its own: its mounts are gone when its last process is.
const INSIDE: &str = "RINGFENCE_CHAOS_INSIDE";

/// The tools, each `None` when it is not there.
pub(super) struct Tools {
    faketime: Option<&'static str>,
    shim: Option<PathBuf>,
    /// File systems may be mounted.
    pub(super) mounts: bool,
    /// What is not done, and why.
    pub(super) skipped: Vec<String>,
}

impl Tools {
    /// Looks for them; the shim is compiled into `dir`.
    pub(super) fn find(dir: &Path) -> anyhow::Result<Tools> {
        let mut skipped = Vec::new();
        let faketime = Path::new(FAKETIME).exists().then_some(FAKETIME);
        if faketime.is_none() {
            skipped.push(format!("jumps of wall clocks: {FAKETIME} is missing (Debian: faketime)"));
        }
        let shim = compile(dir)
            .map_err(|why| {
                skipped.push(format!(
                    "slow, failing and full disks, and no file descriptors left, by shim: {why}"
                ));
            })
            .ok();
        let mounts = std::env::var_os(INSIDE).is_some();
        if !mounts {
            skipped.push(
                "disks that really are full: it takes root and util-linux's unshare to mount a small one"
                    .to_owned(),
            );
        }
        if std::env::var_os("CI").is_some() && !skipped.is_empty() {
            anyhow::bail!("CI has to have every tool, and it lacks some:\n  {}", skipped.join("\n  "));
        }
        Ok(Tools { faketime, shim, mounts, skipped })
    }

    /// Prepares a process: whether it has a wall clock that can be moved, and a disk that can be spoilt.
    pub(super) fn prepare(&self, command: &mut Command, controls: &Controls, clock: bool) {
        let mut preload: Vec<String> = Vec::new();
        if let Some(shim) = &self.shim {
            preload.push(shim.display().to_string());
            command.env("CHAOS_DISK", &controls.disk).env("CHAOS_FILES", &controls.files);
        }
        if let Some(library) = self.faketime.filter(|_| clock) {
            preload.push(library.to_owned());
            command.env("FAKETIME_TIMESTAMP_FILE", &controls.clock);
            command.env("FAKETIME_CACHE_DURATION", "1").env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        }
        if !preload.is_empty() {
            command.env("LD_PRELOAD", preload.join(":"));
        }
    }

    pub(super) fn has_shim(&self) -> bool {
        self.shim.is_some()
    }

    pub(super) fn has_clock(&self) -> bool {
        self.faketime.is_some()
    }
}

/// The files by which a process's disk and wall clock are spoilt.
#[derive(Clone, Debug)]
pub(super) struct Controls {
    disk: PathBuf,
    clock: PathBuf,
    files: PathBuf,
}

impl Controls {
    /// Fair ones, for a process of this name.
    pub(super) fn fair(dir: &Path, name: &str) -> anyhow::Result<Controls> {
        let file = |what: &str| dir.join(format!("{name}.{what}"));
        let controls = Controls { disk: file("disk"), clock: file("clock"), files: file("files") };
        controls.disk("")?;
        controls.clock("+0")?;
        Ok(controls)
    }

    /// What the disk does, in the words of the shim.
    pub(super) fn disk(&self, wish: &str) -> anyhow::Result<()> {
        replace(&self.disk, wish)
    }

    /// How often the system has refused a file descriptor to processes of this name, as their shims saw it.
    pub(super) fn files_refused(&self) -> anyhow::Result<u64> {
        match std::fs::read(&self.files) {
            // A shim that has just been loaded is about to give the file its size.
            Ok(bytes) => Ok(bytes.try_into().map_or(0, u64::from_ne_bytes)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(error).with_context(|| format!("reading {}", self.files.display())),
        }
    }

    /// How far the wall clock is off, in the words of libfaketime.
    pub(super) fn clock(&self, offset: &str) -> anyhow::Result<()> {
        replace(&self.clock, &format!("{offset}\n"))
    }
}

/// Nobody reads half a wish.
fn replace(path: &Path, text: &str) -> anyhow::Result<()> {
    let new = path.with_extension("new");
    std::fs::write(&new, text)?;
    std::fs::rename(&new, path).with_context(|| format!("writing {}", path.display()))
}

fn compile(dir: &Path) -> Result<PathBuf, String> {
    let (source, library) = (dir.join("shim.c"), dir.join("shim.so"));
    std::fs::write(&source, SHIM).map_err(|error| error.to_string())?;
    let done = Command::new("cc")
        .args(["-O1", "-shared", "-fPIC", "-o"])
        .args([&library, &source])
        .arg("-ldl")
        .output()
        .map_err(|error| format!("there is no C compiler, cc: {error}"))?;
    if !done.status.success() {
        return Err(format!("cc failed: {}", String::from_utf8_lossy(&done.stderr)));
    }
    Ok(library)
}

/// Starts this very program again with mounts of its own, as the same process; returns only where that is not
/// possible, or done already. To be called first of all.
pub fn go_inside() {
    use std::os::unix::process::CommandExt as _;
    let root = rustix::process::geteuid().is_root();
    if !root || std::env::var_os(INSIDE).is_some() {
        return;
    }
    let works = Command::new("unshare").args(["--mount", "true"]).stderr(Stdio::null()).status();
    let Ok(this) = std::env::current_exe() else { return };
    if works.is_ok_and(|status| status.success()) {
        let mut inside = Command::new("unshare");
        inside.args(["--mount", "--propagation", "private"]).arg(this).args(std::env::args_os().skip(1));
        // It returns only when it has failed, and then the run goes on without.
        let _ = inside.env(INSIDE, "1").exec();
    }
}

/// Mounts a small file system; it is the kernel's to take away when the run has ended.
pub(super) fn mount_disk(at: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(at)?;
    let size = format!("size={DISK}");
    let status = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(at).status()?;
    anyhow::ensure!(status.success(), "mounting a small disk at {} failed", at.display());
    Ok(())
}

/// Takes it away; the folder is empty then.
pub(super) fn unmount_disk(at: &Path) {
    let _ = Command::new("umount").arg("--lazy").arg(at).status();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shim(dir: &Path) -> Option<Tools> {
        match compile(dir) {
            Ok(shim) => Some(Tools { faketime: None, shim: Some(shim), mounts: false, skipped: vec![] }),
            Err(why) => {
                assert!(std::env::var_os("CI").is_none(), "{why}");
                eprintln!("SKIPPED: {why}");
                None
            }
        }
    }

    #[test]
    fn a_refused_file_descriptor_is_counted_and_nothing_else_is() {
        let dir = tempfile::tempdir().unwrap();
        let Some(tools) = shim(dir.path()) else { return };
        let controls = Controls::fair(dir.path(), "sh").unwrap();
        // Six are open when it opens one more.
        let opens = |limit: u64, what: &str| {
            let script = format!("exec 3</dev/null 4</dev/null 5</dev/null; ulimit -n {limit}; : <{what}");
            let mut sh = Command::new("sh");
            sh.args(["-c", &script]).stdin(Stdio::null());
            tools.prepare(&mut sh, &controls, false);
            sh.output().unwrap().status.success()
        };
        assert_eq!(controls.files_refused().unwrap(), 0);
        assert!(opens(64, "/dev/null") && !opens(64, "/nonexistent"));
        assert_eq!(controls.files_refused().unwrap(), 0, "another error is none of these");
        assert!(!opens(6, "/dev/null"));
        assert!(controls.files_refused().unwrap() > 0);
    }

    #[test]
    fn a_spoilt_disk_fails_one_process_until_it_is_mended() {
        let dir = tempfile::tempdir().unwrap();
        let Some(tools) = shim(dir.path()) else { return };
        let controls = Controls::fair(dir.path(), "dd").unwrap();
        let file = dir.path().join("file");
        // It writes one block and syncs the file.
        let synced = || {
            let mut dd = Command::new("dd");
            dd.args(["if=/dev/zero", "bs=512", "count=1", "conv=fsync"])
                .arg(format!("of={}", file.display()));
            tools.prepare(&mut dd, &controls, false);
            let done = dd.output().unwrap();
            (done.status.success(), String::from_utf8(done.stderr).unwrap())
        };
        assert!(synced().0);
        controls.disk("fail 5").unwrap();
        let (done, said) = synced();
        assert!(!done && said.contains("Input/output error"), "{said}");
        controls.disk("slow 1").unwrap();
        assert!(synced().0);
        controls.disk("").unwrap();
        assert!(synced().0);
    }
}
