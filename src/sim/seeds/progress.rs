//! Which seeds are done, kept in a file between runs.
//!
//! A seed that held says something of the build it ran in and of no other, so the file names the build.

use serde::{Deserialize, Serialize};
use std::hash::{DefaultHasher, Hasher};
use std::io;
use std::path::{Path, PathBuf};

/// The seeds that held.
#[derive(Clone, Debug)]
pub struct Progress {
    path: Option<PathBuf>,
    kept: Kept,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    /// The build that ran them.
    build: String,
    /// Ranges of seeds, each from its first to before its last, in order.
    done: Vec<(u64, u64)>,
}

impl Progress {
    /// Nothing is done, and nothing is kept.
    pub fn none() -> Progress {
        Progress { path: None, kept: Kept::default() }
    }

    /// What a file says; nothing when there is none, or when another build wrote it.
    ///
    /// # Errors
    /// When the file is there and cannot be read.
    pub fn open(path: &Path) -> anyhow::Result<Progress> {
        let build = build()?;
        let kept = match std::fs::read(path) {
            Ok(text) => serde_json::from_slice(&text)
                .map_err(|e| anyhow::anyhow!("{}: {e}; remove it to start over", path.display()))?,
            Err(e) if e.kind() == io::ErrorKind::NotFound => Kept::default(),
            Err(e) => return Err(anyhow::anyhow!("{}: {e}", path.display())),
        };
        let kept = if kept.build == build { kept } else { Kept { build, done: Vec::new() } };
        Ok(Progress { path: Some(path.to_owned()), kept })
    }

    /// Whether a seed held.
    pub fn is_done(&self, seed: u64) -> bool {
        self.kept.done.iter().any(|(first, end)| (*first..*end).contains(&seed))
    }

    /// How many held.
    pub fn count(&self) -> u64 {
        self.kept.done.iter().map(|(first, end)| end - first).sum()
    }

    /// A seed held.
    pub fn done(&mut self, seed: u64) {
        if self.is_done(seed) {
            return;
        }
        self.kept.done.push((seed, seed + 1));
        self.kept.done.sort_unstable();
        let mut joined: Vec<(u64, u64)> = Vec::with_capacity(self.kept.done.len());
        for (first, end) in std::mem::take(&mut self.kept.done) {
            match joined.last_mut() {
                Some(last) if last.1 == first => last.1 = end,
                _ => joined.push((first, end)),
            }
        }
        self.kept.done = joined;
    }

    /// Writes the file.
    ///
    /// # Errors
    /// As the disk says.
    pub fn save(&self) -> io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        if let Some(dir) = path.parent() {
            std::fs::create_dir_all(dir)?;
        }
        let tmp = path.with_extension("tmp");
        std::fs::write(&tmp, serde_json::to_vec(&self.kept)?)?;
        std::fs::rename(tmp, path)
    }
}

/// A name for this build: a number of all the bytes of the program.
fn build() -> io::Result<String> {
    let mut hasher = DefaultHasher::new();
    hasher.write(&std::fs::read(std::env::current_exe()?)?);
    Ok(format!("{:016x}", hasher.finish()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_done_is_kept_for_the_same_build_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/seeds.json");
        let mut progress = Progress::open(&path).unwrap();
        for seed in [3, 1, 2, 9, 2] {
            progress.done(seed);
        }
        assert_eq!((progress.count(), &progress.kept.done), (4, &vec![(1, 4), (9, 10)]));
        progress.save().unwrap();
        let again = Progress::open(&path).unwrap();
        assert!(again.is_done(3) && again.is_done(9) && !again.is_done(4) && again.count() == 4);

        let other = Kept { build: "another".to_owned(), ..again.kept };
        std::fs::write(&path, serde_json::to_vec(&other).unwrap()).unwrap();
        assert_eq!(Progress::open(&path).unwrap().count(), 0);
        std::fs::write(&path, "{").unwrap();
        assert!(Progress::open(&path).unwrap_err().to_string().contains("remove it to start over"));
    }
}
