//! The system's disk.

use super::{Files, Held, Opened};
use rustix::fs::{Advice, FlockOperation, fadvise, flock};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// The system's disk.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemFiles;

impl Files for SystemFiles {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        fs::create_dir_all(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        fs::read_dir(dir)?.map(|file| Ok(file?.path())).collect()
    }

    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }

    fn len(&self, path: &Path) -> io::Result<u64> {
        Ok(fs::metadata(path)?.len())
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        fs::read(path)
    }

    fn write(&self, path: &Path, parts: &[&[u8]]) -> io::Result<()> {
        let mut file = File::create(path)?;
        for part in parts {
            file.write_all(part)?;
        }
        file.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    /// The system releases it when the process dies, however it dies.
    fn lock(&self, path: &Path) -> io::Result<Option<Held>> {
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Box::new(file))),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    fn open(&self, path: &Path) -> io::Result<Opened> {
        match OpenOptions::new().read(true).write(true).open(path) {
            Ok(file) => {
                // What can still be written is, for only what needs no writing can be given up.
                file.sync_all()?;
                fadvise(&file, 0, None, Advice::DontNeed)?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        Ok(Opened::System(path.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_opened_has_what_was_written_and_what_cannot_be_opened_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        assert!(SystemFiles.open(&path).is_ok() && !path.exists(), "whoever opens it makes it");
        fs::write(&path, vec![7; 100_000]).unwrap();
        assert!(SystemFiles.open(&path).is_ok());
        assert_eq!(fs::read(&path).unwrap(), vec![7; 100_000]);
        assert!(SystemFiles.open(dir.path()).is_err());
    }
}
