//! Writes that storage refused, told and remembered.

use super::world::{World, drain, epoch, release, worker};
use crate::ids::{Epoch, KeyspaceName, LogIndex, PartitionId, PartitionKey, Scope, StoreName};
use crate::state::{Command, PolicyChange, REFUSALS_LEN, RefusalNote, RefusedWrite, RefusedWrites};
use proptest::prelude::*;

fn write(partition: u32, own: u64, highest: u64, store: &str) -> RefusedWrite {
    RefusedWrite {
        scope: Scope::Partition(KeyspaceName::new("orders").unwrap(), PartitionId::new(partition)),
        own: epoch(own),
        highest: epoch(highest),
        store: StoreName::new(store).unwrap(),
        observed: false,
    }
}

fn noted(what: RefusedWrite, count: u64, (first, last): (u64, u64)) -> RefusalNote {
    RefusalNote { what, count, first_unix_ms: first, last_unix_ms: last, reporter: Some(worker("a")) }
}

fn note(world: &mut World, notes: Vec<RefusalNote>) {
    world.ok(Command::NoteRefusals { notes });
}

fn all(world: &World) -> Vec<RefusedWrites> {
    world.state.refusals().cloned().collect()
}

/// The partition goes from `a` to `b`, who has epoch 2 from then on.
fn handed_over() -> (World, PartitionKey) {
    let (mut world, key, a, b, first) = World::owned(PolicyChange::default());
    world.ok(drain(key, first, "b"));
    world.ok(release(key, first, a));
    world.grant(key, b);
    (world, key)
}

#[test]
fn f076_a_refused_write_is_told_with_who_wrote_who_has_it_now_and_how_late_it_was() {
    let (mut world, key) = handed_over();
    let granted = world.partition(key).history()[1].unix_ms;
    let before = world.state.revision();
    note(&mut world, vec![noted(write(0, 1, 2, "ledger"), 3, (granted + 700, granted + 900))]);
    let [told] = &all(&world)[..] else { panic!("one") };
    let names = |holder: &Option<crate::state::Holder>| holder.as_ref().map(|h| (h.worker.clone(), h.epoch));
    assert_eq!(names(&told.writer), Some((worker("a"), epoch(1))));
    assert_eq!(names(&told.successor), Some((worker("b"), epoch(2))));
    assert_eq!((told.count, told.late_ms()), (3, Some(700)));
    assert_eq!(world.state.revision(), before, "nobody's map has changed");
    assert_eq!(world.partition(key).epoch(), Some(epoch(2)));

    // A retry of the same write is the same row; who wrote it stays, also when the history has forgotten.
    note(&mut world, vec![noted(write(0, 1, 2, "ledger"), 4, (granted + 100, granted + 5_000))]);
    let [again] = &all(&world)[..] else { panic!("one") };
    assert_eq!((again.count, again.late_ms()), (7, Some(100)));
    assert_eq!(again.last_unix_ms, granted + 5_000);
    assert_eq!(again.writer, told.writer);

    // Another storage, another mode, other epochs are others.
    let observed = RefusedWrite { observed: true, ..write(0, 1, 2, "ledger") };
    note(&mut world, vec![noted(write(0, 1, 2, "outbox"), 1, (0, 0)), noted(observed, 1, (0, 0))]);
    assert_eq!(all(&world).len(), 3);
}

/// A split leaves an epoch that nobody had, and a keyspace may be gone: a report is kept with what is known.
#[test]
fn what_is_known_no_more_is_left_out_and_the_report_is_kept() {
    let (mut world, _) = handed_over();
    let lock: Scope = "@locks/nightly".parse().unwrap();
    let of_lock = RefusedWrite { scope: lock, ..write(0, 1, 2, "ledger") };
    note(&mut world, vec![noted(write(7, 1, 2, "ledger"), 1, (5, 4)), noted(of_lock, 1, (1, 2))]);
    for told in all(&world) {
        assert_eq!((told.writer.clone(), told.successor.clone(), told.late_ms()), (None, None, None));
        assert!(told.first_unix_ms <= told.last_unix_ms);
    }
}

#[test]
fn the_refusals_that_were_told_last_are_kept_and_no_more_than_the_bound() {
    let (mut world, _) = handed_over();
    let stores: Vec<String> = (0..=REFUSALS_LEN).map(|n| format!("store-{n}")).collect();
    for store in &stores {
        note(&mut world, vec![noted(write(0, 1, 2, store), 1, (1, 1))]);
        // It is told again and again, and so it stays.
        note(&mut world, vec![noted(write(0, 1, 2, "store-0"), 1, (1, 1))]);
    }
    let kept = all(&world);
    assert_eq!(kept.len(), REFUSALS_LEN);
    let last = &kept[REFUSALS_LEN - 1];
    assert_eq!((last.what.store.as_str(), last.count), ("store-0", REFUSALS_LEN as u64 + 2));
    assert!(!kept.iter().any(|writes| writes.what.store.as_str() == "store-1"));
}

#[test]
fn a_count_at_its_end_stays_there() {
    let (mut world, _) = handed_over();
    for _ in 0..2 {
        note(&mut world, vec![noted(write(0, 1, 2, "ledger"), u64::MAX, (1, u64::MAX))]);
    }
    assert_eq!(all(&world)[0].count, u64::MAX);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// However it comes in: nothing is counted twice or lost while there is room, and there is never more than the bound.
    #[test]
    fn what_is_kept_is_bounded_and_adds_up(told in prop::collection::vec((0..400_u32, 1..5_u64), 1..600)) {
        let mut state = crate::state::State::new();
        let mut sums: std::collections::BTreeMap<u32, u64> = std::collections::BTreeMap::new();
        for (index, chunk) in (1..).zip(told.chunks(50)) {
            let notes = chunk.iter().map(|(n, count)| noted(write(*n, 1, 2, "ledger"), *count, (1, 1)));
            let commands = vec![Command::NoteRefusals { notes: notes.collect() }];
            let entry = crate::state::Entry { request: None, proposed_unix_ms: 1, commands };
            state.apply(LogIndex::new(index), &entry).outcome.expect("it is taken");
            for (n, count) in chunk {
                *sums.entry(*n).or_default() += count;
            }
            prop_assert!(state.refusals().count() <= REFUSALS_LEN);
            let again = crate::state::State::from_parts(state.to_parts());
            prop_assert_eq!(again.as_ref(), Ok(&state));
        }
        if sums.len() <= REFUSALS_LEN {
            let kept: u64 = state.refusals().map(|writes| writes.count).sum();
            prop_assert_eq!(kept, sums.values().sum::<u64>());
        }
    }
}

/// Both sides of a comparison are epochs that exist.
#[test]
fn an_epoch_at_the_cap_is_told_like_any_other() {
    let (mut world, _) = handed_over();
    note(&mut world, vec![noted(write(0, 1, Epoch::MAX.get(), "ledger"), 1, (1, 1))]);
    assert_eq!(all(&world)[0].what.highest, Epoch::MAX);
}
