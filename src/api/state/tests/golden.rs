//! Bytes that every later version must go on reading.
//!
//! `golden/` has one file of entries and one snapshot for each format that was ever released. A file is never changed:
//! a new format gets new files, written by `cargo test -p ringfence-api -- --ignored write_golden`.

use super::sample;
use crate::state::{FORMAT, decode_entry, decode_state, encode_entry, encode_state};
use std::collections::BTreeMap;
use std::path::Path;

const ENTRIES: &str = include_str!("../../golden/entries-1.txt");
const SNAPSHOT: &str = include_str!("../../golden/snapshot-1.txt");

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<char> = text.chars().filter(|c| !c.is_whitespace()).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap()).collect()
}

fn golden_entries() -> BTreeMap<String, Vec<u8>> {
    let lines = ENTRIES.lines().filter_map(|line| line.split_once(' '));
    lines.map(|(name, bytes)| (name.to_owned(), unhex(bytes))).collect()
}

#[test]
fn entries_of_format_1_are_read_for_ever() {
    let golden = golden_entries();
    assert_eq!(golden.len(), sample::entries().len());
    for (name, entry) in sample::entries() {
        assert_eq!(decode_entry(&golden[&name]), Ok(entry), "{name}");
    }
}

#[test]
fn snapshots_of_format_1_are_read_for_ever() {
    assert_eq!(decode_state(&unhex(SNAPSHOT)), Ok(sample::state()));
}

#[test]
fn this_version_writes_format_1_to_the_byte() {
    let golden = golden_entries();
    for (name, entry) in sample::entries() {
        assert_eq!(hex(&encode_entry(&entry)), hex(&golden[&name]), "{name}");
    }
    assert_eq!(hex(&encode_state(&sample::state())), hex(&unhex(SNAPSHOT)));
}

#[test]
#[ignore = "writes the files of a new format; never over those of a released one"]
fn write_golden() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden");
    let write = |what: &str, text: String| {
        let file = dir.join(format!("{what}-{FORMAT}.txt"));
        std::fs::File::create_new(&file)
            .and_then(|mut f| std::io::Write::write_all(&mut f, text.as_bytes()))
            .unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    };
    write(
        "entries",
        sample::entries()
            .iter()
            .map(|(name, entry)| format!("{name} {}\n", hex(&encode_entry(entry))))
            .collect(),
    );
    let bytes = encode_state(&sample::state());
    write("snapshot", bytes.chunks(50).map(|line| hex(line) + "\n").collect());
}
