//! What a log needs of a file.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

pub(super) trait Disk {
    fn length(&self) -> io::Result<u64>;
    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<()>;
    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()>;
    fn cut(&self, to: u64) -> io::Result<()>;
    /// Everything that was written is on the disk when it answers.
    fn sync(&self) -> io::Result<()>;
}

impl Disk for File {
    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(into, at)
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, at)
    }

    fn cut(&self, to: u64) -> io::Result<()> {
        self.set_len(to)
    }

    fn sync(&self) -> io::Result<()> {
        // The length too: `fdatasync` brings what is needed to read the data.
        self.sync_data()
    }
}
