//! The inputs that are kept: `tests/corpus/TARGET/NAME`.

use anyhow::Context as _;
use std::fs;
use std::path::{Path, PathBuf};

/// One kept input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Its file.
    pub path: PathBuf,
    /// What is in it.
    pub bytes: Vec<u8>,
}

/// The inputs of a target, by name, so that the same seed does the same on every machine.
///
/// # Errors
/// When the folder, or a file in it, cannot be read.
pub fn read(corpus: &Path, target: &str) -> anyhow::Result<Vec<Kept>> {
    let dir = corpus.join(target);
    let list = || -> std::io::Result<Vec<PathBuf>> {
        fs::read_dir(&dir)?.map(|file| file.map(|file| file.path())).collect()
    };
    let mut paths = list().with_context(|| {
        format!("{}: run it from the root of the repository, or name the folder with --corpus", dir.display())
    })?;
    paths.sort();
    let kept = paths.into_iter().map(|path| {
        let bytes = fs::read(&path).with_context(|| path.display().to_string())?;
        Ok(Kept { path, bytes })
    });
    kept.collect()
}

/// Keeps an input as `KIND-HASH`, and says where.
///
/// # Errors
/// When it cannot be written.
pub fn keep(corpus: &Path, target: &str, kind: &str, bytes: &[u8]) -> anyhow::Result<PathBuf> {
    let dir = corpus.join(target);
    let path = dir.join(format!("{kind}-{:08x}", crc32c::crc32c(bytes)));
    fs::create_dir_all(&dir)
        .and_then(|()| fs::write(&path, bytes))
        .with_context(|| path.display().to_string())?;
    Ok(path)
}
