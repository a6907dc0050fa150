//! Bytes that every later version must go on reading.
//!
//! `golden/` has one file of entries and one snapshot for each format that was ever released. A file is never changed:
//! a new format gets new files, written by `cargo test -p ringfence-api -- --ignored write_golden`.

use super::sample;
use crate::state::{FORMAT, decode_entry, decode_state, encode_entry, encode_state};
use crate::v1;
use prost::Message as _;
use ringfence_core::state::Entry;
use std::collections::BTreeMap;
use std::path::Path;

const ENTRIES_1: &str = include_str!("../../golden/entries-1.txt");
const ENTRIES_2: &str = include_str!("../../golden/entries-2.txt");
const SNAPSHOT_1: &str = include_str!("../../golden/snapshot-1.txt");
const SNAPSHOT_2: &str = include_str!("../../golden/snapshot-2.txt");

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<char> = text.chars().filter(|c| !c.is_whitespace()).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap()).collect()
}

fn golden_entries(file: &str) -> BTreeMap<String, Vec<u8>> {
    let lines = file.lines().filter_map(|line| line.split_once(' '));
    lines.map(|(name, bytes)| (name.to_owned(), unhex(bytes))).collect()
}

fn format_of(bytes: &[u8]) -> u32 {
    v1::StateFormat::decode(bytes).unwrap().format
}

#[test]
fn entries_of_every_format_are_read_for_ever() {
    let sample: BTreeMap<String, Entry> = sample::entries().into_iter().collect();
    let mut read = 0;
    for (format, file) in [(1, ENTRIES_1), (2, ENTRIES_2)] {
        for (name, bytes) in golden_entries(file) {
            assert_eq!(format_of(&bytes), format, "{name}");
            assert_eq!(decode_entry(&bytes).as_ref(), Ok(&sample[&name]), "{name}");
            read += 1;
        }
    }
    assert_eq!(read, sample.len());
}

#[test]
fn snapshots_of_format_1_are_read_for_ever() {
    assert_eq!(format_of(&unhex(SNAPSHOT_1)), 1);
    assert_eq!(decode_state(&unhex(SNAPSHOT_1)), Ok(sample::state()));
}

#[test]
fn snapshots_of_format_2_are_read_for_ever() {
    assert_eq!(format_of(&unhex(SNAPSHOT_2)), 2);
    assert_eq!(decode_state(&unhex(SNAPSHOT_2)), Ok(sample::state_of_format_2()));
}

/// So that nodes of two versions go on together until something new is used.
#[test]
fn what_an_earlier_format_can_say_is_written_in_it_to_the_byte() {
    let mut golden = golden_entries(ENTRIES_1);
    golden.extend(golden_entries(ENTRIES_2));
    for (name, entry) in sample::entries() {
        assert_eq!(hex(&encode_entry(&entry)), hex(&golden[&name]), "{name}");
    }
    assert_eq!(hex(&encode_state(&sample::state())), hex(&unhex(SNAPSHOT_1)));
    assert_eq!(hex(&encode_state(&sample::state_of_format_2())), hex(&unhex(SNAPSHOT_2)));
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
            .map(|(name, entry)| (name, encode_entry(entry)))
            .filter(|(_, bytes)| format_of(bytes) == FORMAT)
            .map(|(name, bytes)| format!("{name} {}\n", hex(&bytes)))
            .collect(),
    );
    let bytes = encode_state(&sample::state_of_format_2());
    write("snapshot", bytes.chunks(50).map(|line| hex(line) + "\n").collect());
}
