//! What holds after any sequence of entries.

use super::random::{command, entry, state_after, throws};
use crate::ids::{Epoch, KeyspaceName, LockName, LogIndex, PartitionId, PartitionKey, SessionId};
use crate::placement::Share;
use crate::state::{Born, Command, Entry, HISTORY_LEN, Keyspace, LockMode, Outcome, Phase, State};
use proptest::prelude::*;
use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};

fn cases() -> ProptestConfig {
    // Regressions are kept as tests with a name, not as files of seeds.
    ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() }
}

fn hash(state: &State) -> u64 {
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    hasher.finish()
}

/// Every partition, by the name that a fence knows it by.
fn partitions(state: &State) -> impl Iterator<Item = (PartitionKey, KeyspaceName)> {
    state.keyspaces().flat_map(|keyspace| {
        let (id, name) = (keyspace.id(), keyspace.name());
        keyspace
            .count()
            .partitions()
            .map(move |partition| (PartitionKey { keyspace: id, partition }, name.clone()))
    })
}

proptest! {
    #![proptest_config(cases())]

    /// The undo journal takes back all that the commands before the refused one did.
    #[test]
    fn f076_a_refused_entry_leaves_the_state_as_it_was_but_for_the_index(throws in throws(60)) {
        let mut state = State::new();
        for (index, throw) in (1..).zip(&throws) {
            let entry = entry(&state, throw);
            let before = state.clone();
            let applied = state.apply(LogIndex::new(index), &entry);
            prop_assert_eq!(state.applied(), LogIndex::new(index));
            if applied.outcome.is_err() {
                let mut expected = before;
                expected.counters.applied = LogIndex::new(index);
                prop_assert_eq!(&state, &expected);
                prop_assert!(applied.events.is_empty());
            }
        }
    }

    /// Owner implies live session, what sessions hold agrees with who owns what, names agree with keyspaces, counters
    /// are above what they count, history is bounded: all of it is what `from_parts` checks or recomputes.
    #[test]
    fn the_state_always_agrees_with_itself(throws in throws(60)) {
        let mut state = State::new();
        for (index, throw) in (1..).zip(&throws) {
            let entry = entry(&state, throw);
            state.apply(LogIndex::new(index), &entry);
            let again = State::from_parts(state.to_parts());
            prop_assert_eq!(again.as_ref(), Ok(&state));
            for (key, _) in partitions(&state) {
                let partition = state.partition(key).expect("listed");
                prop_assert!(partition.history().len() <= HISTORY_LEN);
                if let Some(owner) = partition.owner() {
                    let owner = state.session(owner);
                    prop_assert!(owner.is_some_and(|session| session.holds().contains(&key)));
                }
            }
        }
    }

    /// G2: by the name that a fence knows, every grant's epoch is above all earlier ones, also when the keyspace is
    /// deleted and created again; and an epoch never changes its owner.
    #[test]
    fn g2_a03_an_epoch_is_granted_to_one_session_once_ever(throws in throws(80)) {
        let mut state = State::new();
        let mut highest: BTreeMap<(KeyspaceName, PartitionId), Epoch> = BTreeMap::new();
        let mut owners: HashMap<(KeyspaceName, PartitionId, Epoch), SessionId> = HashMap::new();
        for (index, throw) in (1..).zip(&throws) {
            let entry = entry(&state, throw);
            let names: BTreeMap<_, _> = partitions(&state).collect();
            let replayed = entry.request.is_some_and(|request| state.is_answered(request));
            let applied = state.apply(LogIndex::new(index), &entry);
            let names: BTreeMap<_, _> = names.into_iter().chain(partitions(&state)).collect();
            for (command, outcome) in entry.commands.iter().zip(applied.outcome.iter().flatten()) {
                let (Command::Grant { partition, .. }, Outcome::Granted(epoch)) = (command, outcome) else { continue };
                // Created, granted and deleted in one entry: nobody ever learnt of it, and the floor has risen.
                let Some(name) = names.get(partition).filter(|_| !replayed) else { continue };
                let before = highest.insert((name.clone(), partition.partition), *epoch);
                prop_assert!(before.is_none_or(|before| before < *epoch), "{} after {:?}", epoch, before);
            }
            for (key, name) in partitions(&state) {
                let partition = state.partition(key).expect("listed");
                let (Some(epoch), Some(owner)) = (partition.epoch(), partition.owner()) else { continue };
                let first = *owners.entry((name, key.partition, epoch)).or_insert(owner);
                prop_assert_eq!(first, owner);
            }
        }
    }

    /// However keyspaces grow: whoever owned a key before, in whatever partition, holds an epoch below one that the key's
    /// next owner raises.
    #[test]
    fn p09_whoever_owned_a_key_before_is_refused_by_what_its_next_owner_raises(throws in throws(120)) {
        let mut state = State::new();
        let mut owned: Vec<(PartitionKey, Epoch, Share)> = Vec::new();
        for (index, throw) in (1..).zip(&throws) {
            let entry = entry(&state, throw);
            let replayed = entry.request.is_some_and(|request| state.is_answered(request));
            let applied = state.apply(LogIndex::new(index), &entry);
            for (command, outcome) in entry.commands.iter().zip(applied.outcome.iter().flatten()) {
                let (Command::Grant { partition: key, .. }, Outcome::Granted(epoch)) = (command, outcome) else { continue };
                // What was split later in the same entry has no owner then, and nobody learnt of this grant.
                let current = |keyspace: &&Keyspace| keyspace.partitions().get(key.partition.get() as usize)
                    .is_some_and(|now| now.epoch() == Some(*epoch));
                let Some(keyspace) = state.keyspace(key.keyspace).filter(current).filter(|_| !replayed) else { continue };
                let share = keyspace.partitioner().share(key.partition);
                let raised: Vec<Born> = keyspace.ancestors(key.partition).collect();
                for sample in (0..64_u8).filter(|sample| share.contains(&[*sample])) {
                    prop_assert_eq!(keyspace.partitioner().partition_of(&[sample]), key.partition);
                    let same = |earlier: &&(PartitionKey, Epoch, Share)| earlier.0.keyspace == key.keyspace;
                    for (other, earlier, _) in owned.iter().filter(same).filter(|o| o.2.contains(&[sample])) {
                        let above = |born: &Born| born.parent == other.partition && born.epoch > *earlier;
                        let refused = (other == key && earlier < epoch) || raised.iter().any(above);
                        prop_assert!(refused, "{} at {} after {} at {}: {:?}", key, epoch, other, earlier, raised);
                    }
                }
                owned.push((*key, *epoch, share));
            }
        }
    }

    /// G2 for locks: an epoch belongs to one lock and to one holder, or to those who hold it together, and is above every
    /// earlier one, however often the lock was forgotten meanwhile.
    #[test]
    fn g2_t46_a_lock_s_epoch_is_granted_to_one_session_or_to_those_who_share_it(throws in throws(120)) {
        let mut state = State::new();
        let mut granted: BTreeMap<Epoch, (LockName, LockMode, SessionId)> = BTreeMap::new();
        let mut above = None;
        for (index, throw) in (1..).zip(&throws) {
            let entry = entry(&state, throw);
            state.apply(LogIndex::new(index), &entry);
            let mut newest = above;
            for lock in state.locks() {
                for grant in lock.holders() {
                    let holder = (lock.name.clone(), grant.wish.mode(), grant.session);
                    match granted.get(&grant.epoch) {
                        Some((name, LockMode::Shared, _)) => {
                            prop_assert_eq!((name, LockMode::Shared), (&lock.name, grant.wish.mode()));
                        }
                        Some(other) => prop_assert_eq!(other, &holder),
                        None => {
                            prop_assert!(above < Some(grant.epoch), "{} after {:?}", grant.epoch, above);
                            newest = newest.max(Some(grant.epoch));
                            granted.insert(grant.epoch, holder);
                        }
                    }
                }
                let alone = lock.grants.iter().any(|grant| grant.wish.mode() == LockMode::Exclusive);
                prop_assert!(!alone || lock.grants.len() == 1, "held alone, and by others: {:?}", lock);
            }
            above = newest;
        }
    }

    /// A wall time is shown and never compared: leaders whose clocks are apart, or jump, make the same history.
    #[test]
    fn t26_wall_clocks_are_for_display_and_change_nothing(throws in throws(80), jump in any::<u64>()) {
        let (mut state, mut other) = (State::new(), State::new());
        for (index, throw) in (1..).zip(&throws) {
            let entry = entry(&state, throw);
            let jump = jump.rotate_left(u32::try_from(index % 64).expect("small"));
            let elsewhere = Entry { proposed_unix_ms: entry.proposed_unix_ms ^ jump, ..entry.clone() };
            let at = LogIndex::new(index);
            prop_assert_eq!(state.apply(at, &entry), other.apply(at, &elsewhere));
        }
    }

    /// A task that was told to stop has stopped; nothing starts it again under its old epoch.
    #[test]
    fn p16_a_draining_partition_never_goes_back_to_owned_under_the_same_epoch(throws in throws(80)) {
        let mut state = State::new();
        for (index, throw) in (1..).zip(&throws) {
            let entry = entry(&state, throw);
            let before = state.clone();
            state.apply(LogIndex::new(index), &entry);
            for (key, _) in partitions(&before) {
                let Some(then) = before.partition(key) else { continue };
                let Some(now) = state.partition(key) else { continue };
                prop_assert!(now.epoch >= then.epoch);
                let over = !matches!(then.phase(), Phase::Owned { .. });
                if over && matches!(now.phase(), Phase::Owned { .. }) {
                    prop_assert!(now.epoch > then.epoch, "{:?} -> {:?}", then, now);
                }
            }
        }
    }

    /// Two replicas that apply the same entries are equal, also when one of them started from a snapshot on the way.
    #[test]
    fn t32_replicas_are_equal_with_or_without_a_snapshot_between(throws in throws(60), cut in any::<prop::sample::Index>()) {
        let cut = cut.index(throws.len());
        let mut entries = Vec::new();
        let mut one = State::new();
        for (index, throw) in (1..).zip(&throws) {
            let entry = entry(&one, throw);
            let applied = one.apply(LogIndex::new(index), &entry);
            entries.push((index, entry, applied));
        }
        let mut two = State::new();
        for (n, (index, entry, applied)) in entries.iter().enumerate() {
            if n == cut {
                two = State::from_parts(two.to_parts()).expect("a reachable state");
            }
            prop_assert_eq!(&two.apply(LogIndex::new(*index), entry), applied);
        }
        prop_assert_eq!(hash(&one), hash(&two));
        prop_assert_eq!(one, two);
    }

    /// A command is refused or taken and never a panic, whatever state it meets and however stale it is.
    #[test]
    fn apply_is_total_for_commands_made_for_another_state(here in throws(40), there in throws(40)) {
        let mut state = state_after(&here);
        let other = state_after(&there);
        for (index, (_, dice)) in (1_000..).zip(&there) {
            let commands = dice.iter().map(|dice| command(&other, *dice)).collect();
            let entry = crate::state::Entry { request: None, proposed_unix_ms: 0, commands };
            state.apply(LogIndex::new(index), &entry);
        }
        let again = State::from_parts(state.to_parts());
        prop_assert_eq!(again, Ok(state));
    }
}

/// A generator that is refused all the time proves nothing.
#[test]
fn the_random_histories_reach_every_phase_and_every_outcome() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let mut seen = BTreeMap::<&str, u32>::new();
    for _ in 0..400 {
        let throws = throws(80).new_tree(&mut runner).expect("a value").current();
        let mut state = State::new();
        for (index, throw) in (1..).zip(&throws) {
            let entry = entry(&state, throw);
            let several = entry.commands.len() > 1;
            let applied = state.apply(LogIndex::new(index), &entry);
            for event in &applied.events {
                if let crate::state::Event::Split(id) = event {
                    let over = state.keyspace(*id).is_some_and(|k| k.split().is_none() && k.needs_splits());
                    *seen.entry(if over { "a finished split" } else { "a step of a split" }).or_default() +=
                        1;
                }
            }
            match &applied.outcome {
                Err(_) if several => *seen.entry("a refused entry of several commands").or_default() += 1,
                Err(_) => *seen.entry("a refused entry").or_default() += 1,
                Ok(outcomes) => {
                    for outcome in outcomes {
                        let name = match outcome {
                            Outcome::Done => "done",
                            Outcome::Unchanged => "unchanged",
                            Outcome::Created(_) => "created",
                            Outcome::Joined(_) => "joined",
                            Outcome::Granted(_) => "granted",
                            Outcome::LeftVacant => "left vacant",
                            Outcome::Draining(_) => "draining",
                            Outcome::Planned(_) => "planned",
                            Outcome::Queued(_) => "queued",
                        };
                        *seen.entry(name).or_default() += 1;
                    }
                }
            }
        }
        for grant in state.locks().flat_map(|lock| &lock.grants) {
            let name = match (grant.cooling, grant.wish.mode()) {
                (Some(_), _) => "a lock cools",
                (None, LockMode::Shared) => "a lock is held together",
                (None, LockMode::Exclusive) => "a lock is held alone",
            };
            *seen.entry(name).or_default() += 1;
        }
        for (key, _) in partitions(&state) {
            let name = match state.partition(key).expect("listed").phase() {
                Phase::Vacant => "phase vacant",
                Phase::Cooling(_) => "phase cooling",
                Phase::Owned { .. } => "phase owned",
                Phase::Draining(_) => "phase draining",
            };
            *seen.entry(name).or_default() += 1;
        }
    }
    assert_eq!(seen.len(), 20, "{seen:?}");
    assert!(seen.values().all(|count| *count >= 20), "{seen:?}");
}
