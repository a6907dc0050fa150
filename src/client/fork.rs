//! Whether this process is a fork of the one that holds the lease.
//!
//! A forked child has the parent's memory: its ownerships, their epochs, their deadlines. The fence cannot tell the two
//! apart, since both stamp the same epoch. So a check has to, on every stamp, and asking for the process id would cost
//! several times the rest of the stamp. Instead one byte lives on a page that the kernel wipes in a child
//! (`MADV_WIPEONFORK`, Linux 4.14); reading it costs a load. Where that cannot be had, the process id is compared.
//!
//! The one place of the SDK with `unsafe`: a page is mapped, and read as an atomic.
#![allow(unsafe_code)]

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

/// The process in which it was taken.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Birth {
    /// One byte that is set here and zero in a child.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    Page(&'static AtomicU8),
    /// The process id.
    Process(u32),
}

impl Birth {
    /// This process.
    pub(crate) fn here() -> Birth {
        static BIRTH: OnceLock<Birth> = OnceLock::new();
        let birth = *BIRTH.get_or_init(Birth::make);
        // A child that joins by itself is a process of its own, but finds its parent's page, wiped.
        if birth.is_elsewhere() { Birth::Process(std::process::id()) } else { birth }
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn make() -> Birth {
        page().map_or_else(|_| Birth::Process(std::process::id()), Birth::Page)
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    fn make() -> Birth {
        Birth::Process(std::process::id())
    }

    /// True in a child of that process.
    #[inline]
    pub(crate) fn is_elsewhere(self) -> bool {
        match self {
            #[cfg(any(target_os = "linux", target_os = "android"))]
            Birth::Page(byte) => byte.load(Ordering::Relaxed) == 0,
            Birth::Process(id) => id != std::process::id(),
        }
    }
}

/// A page that is set here and wiped in a child. It is kept for the life of the process.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn page() -> rustix::io::Result<&'static AtomicU8> {
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
    const BYTES: usize = 4_096;

    // SAFETY: a new private mapping at an address of the kernel's choice aliases nothing.
    let page = unsafe {
        mmap_anonymous(std::ptr::null_mut(), BYTES, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)?
    };
    // SAFETY: the advice changes what a child sees of the page mapped above, and nothing here.
    if let Err(error) = unsafe { madvise(page, BYTES, Advice::LinuxWipeOnFork) } {
        // SAFETY: mapped above, and no reference to it was made.
        unsafe { munmap(page, BYTES)? };
        return Err(error);
    }
    // SAFETY: the page is mapped readable and writable, zeroed and aligned, is never unmapped from here on, and is only
    // ever accessed through this atomic.
    let byte: &'static AtomicU8 = unsafe { &*page.cast::<AtomicU8>() };
    byte.store(1, Ordering::Relaxed);
    Ok(byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_not_elsewhere() {
        assert!(!Birth::here().is_elsewhere());
        assert!(!Birth::Process(std::process::id()).is_elsewhere());
        assert!(Birth::Process(1).is_elsewhere());
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn t12_the_page_is_available_here() {
        assert!(matches!(Birth::here(), Birth::Page(_)));
    }
}
