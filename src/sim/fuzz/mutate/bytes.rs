//! Bytes of which nothing is known.

use super::{MAX_BYTES, few};
use fastrand::Rng;

/// A few changes of the bytes.
pub(super) fn mutate(input: &[u8], donor: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut out = input.to_vec();
    for _ in 0..few(rng) {
        change(&mut out, donor, rng);
    }
    out
}

/// One change.
pub(super) fn change(out: &mut Vec<u8>, donor: &[u8], rng: &mut Rng) {
    let at = rng.usize(..=out.len());
    match rng.u8(..9) {
        0 => out.truncate(at),
        1 => out.insert(at, rng.u8(..)),
        2 if !donor.is_empty() => {
            // The beginning of one and the end of the other.
            out.truncate(at);
            out.extend(&donor[rng.usize(..donor.len())..]);
        }
        3 => {
            let end = at + rng.usize(..=(out.len() - at).min(16));
            drop(out.drain(at..end));
        }
        4 if out.len() < MAX_BYTES / 2 => {
            let end = at + rng.usize(..=out.len() - at);
            let part = out[at..end].to_vec();
            out.splice(at..at, part);
        }
        _ if out.is_empty() => out.push(rng.u8(..)),
        kind => {
            let at = at.min(out.len() - 1);
            match kind {
                5 => out[at] ^= 1 << rng.u8(..8),
                6 => out[at] = rng.u8(..),
                7 => out[at] = if rng.bool() { 0 } else { 0xff },
                _ => out[at] = out[at].wrapping_add(1),
            }
        }
    }
}

/// The input with parts left out: halves first, single bytes last.
pub(super) fn smaller(input: &[u8]) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    let mut length = input.len() / 2;
    while length > 0 && out.len() < 2_000 {
        for start in (0..input.len()).step_by(length) {
            let end = (start + length).min(input.len());
            out.push([&input[..start], &input[end..]].concat());
        }
        length /= 2;
    }
    out
}
