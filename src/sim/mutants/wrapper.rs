//! The compiler of the mutants build: rustc, told of the faults.
//!
//! cargo runs a `RUSTC_WORKSPACE_WRAPPER` for the crates of the workspace only, and keeps what it makes apart by the
//! wrapper's path. So dependencies are used as they are, and the product's own build stays as it was.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

/// This executable under this name is the compiler. Beside it lies the crate that says which fault is chosen.
pub(super) const NAME: &str = "mutants-rustc";
/// The crate beside it.
pub(super) const SWITCH: &str = "libringfence_mutants.rlib";

/// When this process was started as the compiler, becomes the compiler and does not come back; `None` when it was not.
pub fn as_compiler() -> Option<ExitCode> {
    let mut args = std::env::args_os();
    let own = args.next()?;
    if Path::new(&own).file_name()? != NAME {
        return None;
    }
    let rustc = args.next()?;
    let mut args: Vec<OsString> = args.collect();
    // cargo also asks the compiler who it is and what it can do.
    if args.iter().any(|arg| arg == "--crate-name") {
        args.extend(with_faults(Path::new(&own).parent()?));
    }
    let error = Command::new(&rustc).args(args).exec();
    eprintln!("error: {} could not be run: {error}", rustc.display());
    Some(ExitCode::FAILURE)
}

fn with_faults(dir: &Path) -> Vec<OsString> {
    let mut named = OsString::from("ringfence_mutants=");
    named.push(dir.join(SWITCH));
    // Named for the crate's own hooks, and in a search path for those of the crates that it uses.
    let mut search = OsString::from("dependency=");
    search.push(dir);
    vec!["--cfg".into(), "ringfence_mutants".into(), "--extern".into(), named, "-L".into(), search]
}
