//! The operating system's dice, loaded.
//!
//! Hash maps of the standard library and of others, ids, secrets and jitter all draw from `getrandom`. In a simulated world
//! they draw what the seed says, so that the same seed is the same world; everywhere else in this program the kernel answers.
//! The product has no switch for it, and must not have one: a program takes the C library's function only when it has none
//! of that name itself.

use std::sync::atomic::{AtomicU64, Ordering};

/// Zero: the kernel's dice.
static STATE: AtomicU64 = AtomicU64::new(0);

/// From now on every random number of this process comes from the seed. What drew before keeps what it drew, so a world runs
/// on a thread that is started after this.
pub(crate) fn load(seed: u64) {
    STATE.store(seed.wrapping_mul(2) | 1, Ordering::SeqCst);
}

/// The splitmix64 generator (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
fn next() -> u64 {
    let state = STATE.fetch_add(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(2), Ordering::SeqCst);
    let mut mixed = state ^ (state >> 30);
    mixed = mixed.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// As the C library declares it: fills `length` bytes at `buffer`, and returns how many, or -1 with `errno` set.
///
/// # Safety
/// `buffer` must be valid for writes of `length` bytes.
#[cfg(target_os = "linux")]
#[unsafe(no_mangle)]
unsafe extern "C" fn getrandom(buffer: *mut u8, length: usize, flags: u32) -> isize {
    // SAFETY: as the caller promised; and zeros are a value of every byte.
    let bytes = unsafe {
        buffer.write_bytes(0, length);
        std::slice::from_raw_parts_mut(buffer, length)
    };
    if STATE.load(Ordering::SeqCst) == 0 {
        let flags = rustix::rand::GetRandomFlags::from_bits_retain(flags);
        return match rustix::rand::getrandom(bytes, flags) {
            Ok(filled) => isize::try_from(filled).unwrap_or(isize::MAX),
            Err(error) => {
                // Whoever called the C library's function asks there what went wrong, and may well try again.
                nix::errno::Errno::set_raw(error.raw_os_error());
                -1
            }
        };
    }
    for part in bytes.chunks_mut(8) {
        part.copy_from_slice(&next().to_le_bytes()[..part.len()]);
    }
    isize::try_from(length).unwrap_or(-1)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::getrandom;
    use nix::errno::Errno;

    #[test]
    fn what_the_kernel_refuses_is_said_in_errno() {
        let mut buffer = [0_u8; 8];
        Errno::clear();
        // SAFETY: the buffer is as long as is said.
        let filled = unsafe { getrandom(buffer.as_mut_ptr(), buffer.len(), u32::MAX) };
        assert_eq!((filled, Errno::last()), (-1, Errno::EINVAL));
        // SAFETY: as above.
        let filled = unsafe { getrandom(buffer.as_mut_ptr(), buffer.len(), 0) };
        assert_eq!(filled, 8);
    }
}
