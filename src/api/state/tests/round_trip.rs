//! What is written is what is read.

use super::random::{entry, state_after, throws};
use super::sample;
use crate::state::{decode_entry, decode_state, encode_entry, encode_state};
use proptest::prelude::*;
use ringfence_core::ids::{LogIndex, WorkerId};
use ringfence_core::state::{Command, Keyspace, Partition, Session, State};
use std::collections::BTreeMap;
use std::time::Duration;

fn cases() -> ProptestConfig {
    ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn any_entry_is_the_same_behind_the_bytes(throws in throws(40)) {
        let mut state = State::new();
        for (index, throw) in (1..).zip(&throws) {
            let entry = entry(&state, throw);
            prop_assert_eq!(decode_entry(&encode_entry(&entry)), Ok(entry.clone()));
            state.apply(LogIndex::new(index), &entry);
        }
    }

    /// Equal states give equal bytes: nodes may compare the checksums of their snapshots.
    #[test]
    fn any_reachable_state_is_the_same_behind_the_bytes(throws in throws(80)) {
        let state = state_after(&throws);
        let bytes = encode_state(&state);
        let again = decode_state(&bytes);
        prop_assert_eq!(again.as_ref(), Ok(&state));
        prop_assert_eq!(encode_state(&state_after(&throws)), bytes);
    }
}

#[test]
fn the_samples_are_the_same_behind_the_bytes() {
    for (name, entry) in sample::entries() {
        assert_eq!(decode_entry(&encode_entry(&entry)), Ok(entry), "{name}");
    }
    assert_eq!(decode_state(&encode_state(&sample::state())), Ok(sample::state()));
    assert_eq!(decode_state(&encode_state(&State::new())), Ok(State::new()));
}

#[test]
fn a_duration_is_cut_before_the_entry_is_applied_so_that_snapshots_cut_nothing() {
    let (_, mut entry) = sample::entries().into_iter().find(|(name, _)| name == "drain").unwrap();
    let Command::Drain { deadline, .. } = &mut entry.commands[0] else { panic!() };
    *deadline = Duration::new(1, 999_999_999);
    let read = decode_entry(&encode_entry(&entry)).unwrap();
    let Command::Drain { deadline, .. } = &read.commands[0] else { panic!() };
    assert_eq!(*deadline, Duration::from_millis(1_999));
}

/// A keyspace of 100 000 partitions on ten workers must not hold 100 000 copies of ten names.
#[test]
fn what_names_one_worker_shares_one_allocation_behind_a_snapshot() {
    let state = decode_state(&encode_state(&sample::state())).unwrap();
    let mut places = BTreeMap::<&WorkerId, *const u8>::new();
    let mut shared = 0;
    let sessions = state.sessions().map(Session::worker);
    let tenures =
        state.keyspaces().flat_map(Keyspace::partitions).flat_map(Partition::history).map(|t| &t.worker);
    for worker in sessions.chain(tenures) {
        let place = *places.entry(worker).or_insert(worker.as_str().as_ptr());
        assert_eq!(place, worker.as_str().as_ptr(), "{worker}");
        shared += 1;
    }
    assert!(shared > 2 * places.len());
}
