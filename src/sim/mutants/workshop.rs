//! The one build that has all faults in it.

use super::wrapper::{NAME, SWITCH};
use super::{Binary, without_ids};
use anyhow::{Context, ensure};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The crate that says which fault is chosen.
const SWITCH_SOURCE: &str = include_str!("switch.rs");

/// A test binary, and the directory that cargo would run it in.
pub(super) struct Built {
    pub(super) executable: PathBuf,
    pub(super) package_dir: PathBuf,
    /// Its tests: without ids, and as they are called.
    pub(super) tests: BTreeMap<String, String>,
}

impl Built {
    fn new(binary: Binary, executable: PathBuf, package_dir: PathBuf) -> anyhow::Result<Built> {
        if binary == Binary::Sim {
            return Ok(Built { executable, package_dir, tests: BTreeMap::new() });
        }
        let list = Command::new(&executable).args(["--list", "--format", "terse"]).output()?;
        let tests = String::from_utf8_lossy(&list.stdout)
            .lines()
            .filter_map(|line| line.strip_suffix(": test"))
            .map(|test| (without_ids(test), test.to_owned()))
            .collect();
        Ok(Built { executable, package_dir, tests })
    }
}

/// Builds the test binaries with all faults in them, and none chosen.
///
/// Everything of the workspace is selected, as its tests select it: cargo unifies features over what is selected, and
/// other features would mean other builds of the dependencies.
pub(super) fn build() -> anyhow::Result<BTreeMap<Binary, Built>> {
    let wrapper = wrapper()?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).context("the workspace")?;
    // The simulator's own test brings its program with it, as that of the coordinator's would bring the product.
    let targets = ["--lib", "--test", "conformance", "--test", "sqlite", "--test", "sim"];
    let out = Command::new(tool("CARGO", "cargo"))
        .args(["test", "--workspace", "--locked", "--no-run", "--message-format=json-render-diagnostics"])
        .args(targets)
        .env("RUSTC_WORKSPACE_WRAPPER", &wrapper)
        .current_dir(root)
        .stderr(Stdio::inherit())
        .output()
        .context("cargo could not be run")?;
    ensure!(out.status.success(), "the build with mutants failed: {}", out.status);
    let built = artifacts(&String::from_utf8_lossy(&out.stdout))?;
    let mut binaries = BTreeMap::new();
    for binary in Binary::ALL {
        let (package, target) = binary.target();
        let manifest = format!("/{}/Cargo.toml", package.strip_prefix("ringfence-").unwrap_or("client"));
        let of = |found: &&(PathBuf, String, PathBuf)| {
            found.1 == target && found.0.to_string_lossy().ends_with(&manifest)
        };
        let (manifest, _, executable) =
            built.iter().find(of).with_context(|| format!("cargo did not name {package} {target}"))?;
        let package_dir = manifest.parent().context("a manifest has a directory")?;
        let executable = match binary {
            Binary::Sim => aside(executable, &wrapper)?,
            _ => executable.clone(),
        };
        binaries.insert(binary, Built::new(binary, executable, package_dir.to_path_buf())?);
    }
    Ok(binaries)
}

/// Takes the simulator with all faults in it away from where cargo puts programs for people, and puts this one back there:
/// nobody but a hunt is to run it.
fn aside(executable: &Path, wrapper: &Path) -> anyhow::Result<PathBuf> {
    let aside = wrapper.with_file_name("ringfence-sim");
    let own = std::env::current_exe().context("this executable")?;
    // Of two names of one file none is moved over the other.
    let _ = std::fs::remove_file(&aside);
    std::fs::rename(executable, &aside)
        .with_context(|| format!("{} could not be moved", executable.display()))?;
    if executable.parent() == own.parent() {
        put(wrapper, executable)?;
    }
    Ok(aside)
}

/// The same file at another place.
fn put(file: &Path, at: &Path) -> anyhow::Result<()> {
    let new = at.with_extension("new");
    let _ = std::fs::remove_file(&new);
    if std::fs::hard_link(file, &new).is_err() {
        std::fs::copy(file, &new).with_context(|| format!("{} could not be made", new.display()))?;
    }
    std::fs::rename(&new, at)?;
    // It is still there when both were one file before.
    let _ = std::fs::remove_file(&new);
    Ok(())
}

#[derive(Deserialize)]
struct Message {
    reason: String,
    manifest_path: Option<PathBuf>,
    target: Option<Target>,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

fn artifacts(stdout: &str) -> anyhow::Result<Vec<(PathBuf, String, PathBuf)>> {
    let mut found = Vec::new();
    for line in stdout.lines().filter(|line| line.starts_with('{')) {
        let message: Message = serde_json::from_str(line).context("a message of cargo")?;
        if let ("compiler-artifact", Some(manifest), Some(target), Some(executable)) =
            (message.reason.as_str(), message.manifest_path, message.target, message.executable)
        {
            found.push((manifest, target.name, executable));
        }
    }
    Ok(found)
}

fn tool(variable: &str, name: &str) -> OsString {
    std::env::var_os(variable).unwrap_or_else(|| name.into())
}

/// This executable under the name that makes it a compiler, with the switch beside it. The directory is named for what
/// the switch is made of: another switch, or another compiler, is another build.
fn wrapper() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("this executable")?;
    let target = own.ancestors().nth(2).context("the target directory")?;
    let rustc = tool("RUSTC", "rustc");
    let version = Command::new(&rustc).arg("-vV").output().context("rustc could not be run")?;
    let mut hash = DefaultHasher::new();
    (SWITCH_SOURCE, version.stdout).hash(&mut hash);
    let dir = target.join("mutants").join(format!("{:016x}", hash.finish()));
    std::fs::create_dir_all(&dir)?;

    let switch = dir.join(SWITCH);
    if !switch.exists() {
        let (source, new) = (dir.join("switch.rs"), dir.join("new.rlib"));
        std::fs::write(&source, SWITCH_SOURCE)?;
        let made = Command::new(&rustc)
            .args(["--edition", "2024", "--crate-type", "rlib", "--crate-name", "ringfence_mutants", "-o"])
            .args([&new, &source])
            .status()?;
        ensure!(made.success(), "the switch could not be compiled");
        std::fs::rename(&new, &switch)?;
    }

    let wrapper = dir.join(NAME);
    put(&own, &wrapper)?;
    Ok(wrapper)
}
