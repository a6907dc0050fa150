//! A directory of this thread's own, for readers that read files. It goes with the thread.

use std::path::PathBuf;
use tempfile::TempDir;

thread_local! {
    static DIR: TempDir = TempDir::with_prefix("ringfence-fuzz-").expect("a directory for temporary files");
}

/// The directory.
pub(crate) fn dir() -> PathBuf {
    DIR.with(|dir| dir.path().to_owned())
}

/// A new, empty directory in it under this name.
pub(crate) fn fresh(name: &str) -> PathBuf {
    let dir = dir().join(name);
    if dir.exists() {
        std::fs::remove_dir_all(&dir).expect("the scratch directory can be emptied");
    }
    std::fs::create_dir(&dir).expect("the scratch directory takes a directory");
    dir
}
