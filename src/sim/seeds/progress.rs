//! Which seeds are done, kept in a file between runs.
//!
//! A seed that held says something of the build it ran in and of no other, so the file names the build.

use serde::{Deserialize, Serialize};
use std::io;
use std::os::unix::fs::MetadataExt as _;
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
        if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
            anyhow::bail!("{} is no file: name one, or none at all (--state '')", path.display());
        }
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
        // Another runner may be writing the same file: each has one of its own to write to, and the later one stands.
        let mut tmp = path.clone().into_os_string();
        tmp.push(format!(".{}.tmp", std::process::id()));
        let written = std::fs::write(&tmp, serde_json::to_vec(&self.kept)?);
        written.and_then(|()| std::fs::rename(&tmp, path)).inspect_err(|_| drop(std::fs::remove_file(&tmp)))
    }
}

/// A name for this build: where the program's file lies on its disk, how long it is and when it was written. A copy counts as
/// another build, which costs time and no truth; reading hundreds of megabytes at each start would cost more.
fn build() -> io::Result<String> {
    let file = std::fs::metadata(std::env::current_exe()?)?;
    let (disk, number, length) = (file.dev(), file.ino(), file.len());
    Ok(format!("{disk:x}-{number:x}-{length:x}-{:x}.{:09}", file.mtime(), file.mtime_nsec()))
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

        assert_eq!(
            std::fs::read_dir(path.parent().unwrap()).unwrap().count(),
            1,
            "nothing else is left there"
        );

        let other = Kept { build: "another".to_owned(), ..again.kept };
        std::fs::write(&path, serde_json::to_vec(&other).unwrap()).unwrap();
        assert_eq!(Progress::open(&path).unwrap().count(), 0);
        std::fs::write(&path, "{").unwrap();
        assert!(Progress::open(&path).unwrap_err().to_string().contains("remove it to start over"));
    }

    #[test]
    fn a_file_that_another_runner_writes_just_now_is_not_touched() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("seeds.json");
        let others: Vec<_> = ["seeds.tmp", "seeds.json.1.tmp"].map(|name| dir.path().join(name)).into();
        for other in &others {
            std::fs::write(other, "half of i").unwrap();
        }
        Progress::open(&path).unwrap().save().unwrap();
        for other in &others {
            assert_eq!(std::fs::read_to_string(other).unwrap(), "half of i");
        }
    }
}
