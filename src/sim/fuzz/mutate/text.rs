//! Texts, by their words.

use super::{boundary, bytes, few};
use fastrand::Rng;

/// What means something somewhere, or should mean nothing anywhere.
const WORDS: [&str; 46] = [
    "=",
    ",",
    "/",
    "@",
    ":",
    ".",
    "-",
    "_",
    "+",
    " ",
    "\n",
    "\t",
    "\"",
    "'",
    "\\",
    "[",
    "]",
    "{",
    "}",
    "#",
    "%",
    "\"\"\"",
    "@locks",
    "http://",
    "https://",
    "[::1]",
    "0.0.0.0",
    "127.0.0.1",
    "localhost",
    "true",
    "null",
    "-1",
    "1e9",
    "0x10",
    "007",
    "node",
    "cluster",
    "listen",
    "\0",
    "\u{1b}[2J",
    "\u{202e}",
    "\u{feff}",
    "\u{0662}",
    "ä",
    "\u{1f980}",
    "",
];

/// A few changes of a text. Now and then of its bytes, so that it is none any more.
pub(super) fn mutate(input: &[u8], donor: &[u8], rng: &mut Rng) -> Vec<u8> {
    let (text, donor) = (String::from_utf8_lossy(input), String::from_utf8_lossy(donor));
    let (mut words, others) = (split(&text), split(&donor));
    for _ in 0..few(rng) {
        change(&mut words, &others, rng);
    }
    let mut out = words.concat().into_bytes();
    if rng.u8(..) < 16 {
        bytes::change(&mut out, &[], rng);
    }
    out
}

/// Runs of letters or digits, and each other character by itself.
fn split(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let class = |c: char| (c.is_ascii_digit(), c.is_alphabetic());
    let mut last = (false, false);
    for c in text.chars() {
        match words.last_mut() {
            Some(word) if class(c) == last && last != (false, false) => word.push(c),
            _ => words.push(c.to_string()),
        }
        last = class(c);
    }
    words
}

fn change(words: &mut Vec<String>, others: &[String], rng: &mut Rng) {
    let at = rng.usize(..=words.len());
    let word = |rng: &mut Rng| match rng.u8(..4) {
        0 => boundary(rng).to_string(),
        1 if !others.is_empty() => others[rng.usize(..others.len())].clone(),
        _ => WORDS[rng.usize(..WORDS.len())].to_owned(),
    };
    match rng.u8(..9) {
        0 => words.insert(at, word(rng)),
        1 => words.truncate(at),
        2 if !others.is_empty() => {
            words.truncate(at);
            words.extend_from_slice(&others[rng.usize(..others.len())..]);
        }
        3 if words.len() < 1_000 => {
            let end = at + rng.usize(..=(words.len() - at).min(8));
            let part = words[at..end].to_vec().concat().repeat(rng.usize(1..40));
            words.insert(at, part);
        }
        _ if words.is_empty() => words.push(word(rng)),
        kind => {
            let at = at.min(words.len() - 1);
            match kind {
                4 => drop(words.remove(at)),
                5 => words[at] = word(rng),
                6 => {
                    let other = rng.usize(..words.len());
                    words.swap(at, other);
                }
                7 => words[at] = words[at].to_uppercase(),
                _ => {
                    words[at] = match words[at].parse::<u64>() {
                        Ok(number) => number.wrapping_add(1).to_string(),
                        Err(_) => words[at].repeat(2),
                    }
                }
            }
        }
    }
}
