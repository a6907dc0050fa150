//! Bytes that nobody should have written.

use super::random::{entry, state_after, throws};
use super::sample;
use crate::state::{DecodeError, FORMAT, decode_entry, decode_state, encode_entry, encode_state};
use crate::v1;
use proptest::prelude::*;
use proptest::sample::Index;
use prost::Message as _;
use ringfence_core::state::State;

fn cases() -> ProptestConfig {
    ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() }
}

/// Bytes with some of their bits flipped, and cut.
fn damage(bytes: &[u8], flips: &[(Index, u8)], cut: Option<&Index>) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for (place, bit) in flips {
        let place = place.index(bytes.len());
        bytes[place] ^= 1 << (bit % 8);
    }
    if let Some(cut) = cut {
        bytes.truncate(cut.index(bytes.len()));
    }
    bytes
}

/// Whatever is read as a state is one.
fn read_state(bytes: &[u8]) -> Result<State, DecodeError> {
    let state = decode_state(bytes)?;
    assert_eq!(State::from_parts(state.to_parts()).as_ref(), Ok(&state));
    assert_eq!(decode_state(&encode_state(&state)).as_ref(), Ok(&state));
    Ok(state)
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn damaged_entries_never_panic(
        throws in throws(10),
        flips in prop::collection::vec(any::<(Index, u8)>(), 0..4),
        cut in any::<Option<Index>>(),
    ) {
        let state = state_after(&throws);
        for throw in &throws {
            let bytes = damage(&encode_entry(&entry(&state, throw)), &flips, cut.as_ref());
            if let Ok(entry) = decode_entry(&bytes) {
                prop_assert_eq!(decode_entry(&encode_entry(&entry)), Ok(entry));
            }
        }
    }

    #[test]
    fn damaged_snapshots_never_panic(
        throws in throws(60),
        flips in prop::collection::vec(any::<(Index, u8)>(), 1..4),
        cut in any::<Option<Index>>(),
    ) {
        let bytes = encode_state(&state_after(&throws));
        let _ = read_state(&damage(&bytes, &flips, cut.as_ref()));
    }

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode_entry(&bytes);
        let _ = read_state(&bytes);
    }
}

#[test]
fn every_prefix_and_every_flipped_bit_of_the_samples_is_read_or_refused() {
    let snapshot = encode_state(&sample::state());
    let entries: Vec<_> = sample::entries().iter().map(|(_, entry)| encode_entry(entry)).collect();
    for cut in 0..snapshot.len() {
        let _ = read_state(&snapshot[..cut]);
    }
    for place in 0..snapshot.len() * 8 {
        let mut bytes = snapshot.clone();
        bytes[place / 8] ^= 1 << (place % 8);
        let _ = read_state(&bytes);
    }
    for entry in entries {
        for cut in 0..entry.len() {
            let _ = decode_entry(&entry[..cut]);
        }
        for place in 0..entry.len() * 8 {
            let mut bytes = entry.to_vec();
            bytes[place / 8] ^= 1 << (place % 8);
            let _ = decode_entry(&bytes);
        }
    }
}

#[test]
fn an_unknown_format_is_refused_before_anything_else_and_says_what_to_do() {
    let (_, entry) = sample::entries().remove(0);
    let mut newer = v1::LogEntry::decode(encode_entry(&entry)).unwrap();
    newer.format = FORMAT + 1;
    // What else is in it cannot be read, and does not matter.
    newer.commands.push(v1::LogCommand { command: None });
    let error = decode_entry(&newer.encode_to_vec()).unwrap_err();
    assert_eq!(error, DecodeError::Format { what: "log entry", found: FORMAT + 1, reads: FORMAT });
    assert_eq!(
        error.to_string(),
        "the log entry is of format 3 and this node reads formats 1 to 2; a newer node wrote it: upgrade this node"
    );
    let newer = v1::StateSnapshot { format: u32::MAX, ..Default::default() };
    let error = decode_state(&newer.encode_to_vec()).unwrap_err();
    assert_eq!(error, DecodeError::Format { what: "snapshot", found: u32::MAX, reads: FORMAT });
}

#[test]
fn no_bytes_at_all_are_neither_an_entry_nor_a_snapshot() {
    let error = decode_entry(&[]).unwrap_err();
    assert!(error.to_string().contains("format 0") && error.to_string().contains("damaged"), "{error}");
    assert!(matches!(decode_state(&[]), Err(DecodeError::Format { found: 0, .. })));
}

#[test]
fn a_command_that_a_newer_node_added_is_an_error_and_not_passed_over() {
    // Field 200 of LogCommand, which this version does not know: a message of no bytes.
    let unknown_command = [0xc2, 0x0c, 0x00];
    let mut bytes = v1::LogEntry { format: FORMAT, ..Default::default() }.encode_to_vec();
    bytes.extend([0x22, unknown_command.len() as u8]);
    bytes.extend(unknown_command);
    let error = decode_entry(&bytes).unwrap_err().to_string();
    assert!(error.contains("commands[0].command") && error.contains("newer node"), "{error}");
}

#[test]
fn an_error_names_the_field_by_its_path() {
    let path = |break_it: fn(&mut v1::StateSnapshot)| {
        let mut wire = v1::StateSnapshot::decode(&*encode_state(&sample::state())).unwrap();
        break_it(&mut wire);
        match decode_state(&wire.encode_to_vec()) {
            Err(DecodeError::Field { why, .. }) => why.field().to_owned(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(path(|s| s.workers[0] = "A".to_owned()), "workers");
    assert_eq!(path(|s| s.nodes[0] = 0), "nodes");
    assert_eq!(path(|s| s.epoch_floor = u64::MAX), "epoch_floor");
    assert_eq!(path(|s| s.keyspaces[0].policy = None), "keyspaces[0].policy");
    assert_eq!(path(|s| s.keyspaces[0].partitions[2].phase = None), "keyspaces[0].partitions[2].phase");
    assert_eq!(
        path(|s| s.keyspaces[0].partitions[3].history[1].worker = 99),
        "keyspaces[0].partitions[3].history[1].worker"
    );
    assert_eq!(path(|s| s.sessions[1].secret_sha256 = vec![0; 31].into()), "sessions[1].secret_sha256");
    assert_eq!(
        path(|s| s.sessions[0].answers[0].outcomes[0].outcome = None),
        "sessions[0].answers[0].outcomes[0].outcome"
    );
    assert_eq!(path(|s| s.ended[0].why = 4), "ended[0].why");
    assert_eq!(path(|s| s.answers[1].id = vec![1].into()), "answers[1].id");
}

#[test]
fn a_snapshot_that_contradicts_itself_is_refused() {
    let mut wire = v1::StateSnapshot::decode(&*encode_state(&sample::state())).unwrap();
    wire.sessions.remove(0);
    let error = decode_state(&wire.encode_to_vec()).unwrap_err();
    assert!(matches!(error, DecodeError::Parts(_)), "{error}");
    assert!(error.to_string().contains("its owner's session is not there"), "{error}");
}
