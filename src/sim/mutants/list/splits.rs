//! Splits: which epoch is whose, which keys, and that it is finished.

use super::{Mutant, core, mutant, sdk};

pub(super) const LIST: &[Mutant] = &[
    mutant(
        "split-mints-no-epoch",
        "a split mints no epoch of the parent: whoever owned it last is not refused for the child's keys",
        "G1",
        &[core(
            "state::tests::splits::a_split_mints_an_epoch_that_nobody_is_granted_and_the_child_begins_above_it",
        )],
    ),
    mutant(
        "old-client-joins-a-split",
        "a worker that does not know of splits joins a keyspace whose partitions are split",
        "G1",
        &[core(
            "state::tests::splits::a_worker_that_cannot_own_split_partitions_and_a_split_exclude_each_other",
        )],
    ),
    mutant(
        "split-epoch-granted",
        "the parent's next owner is granted the epoch that its split minted",
        "G1",
        &[core(
            "state::tests::splits::a_split_mints_an_epoch_that_nobody_is_granted_and_the_child_begins_above_it",
        )],
    ),
    mutant(
        "split-under-its-owner",
        "a partition is split while somebody owns it",
        "G3",
        &[core("state::tests::splits::a_partition_that_somebody_owns_is_not_split")],
    ),
    mutant(
        "split-out-of-turn",
        "another partition is split than the one whose keys the hash gives away",
        "G1",
        &[core("state::tests::splits::the_partitions_are_split_in_order_and_the_last_one_ends_it")],
    ),
    mutant(
        "child-cools-not",
        "a child is granted while the owner of its parent may still believe",
        "G3",
        &[core("state::tests::splits::the_child_cools_for_the_lease_of_whoever_owned_the_parent")],
    ),
    mutant(
        "split-stops-midway",
        "a split that has begun is not gone on with",
        "G4",
        &[core("lead::tests::splitting::a_split_that_is_interrupted_is_finished_by_the_next_leader")],
    ),
    mutant(
        "split-through-freeze",
        "partitions are split where everything is frozen",
        "freezes",
        &[core("lead::tests::splitting::nothing_is_split_where_it_is_frozen")],
    ),
    mutant(
        "child-forgets-parent",
        "the owner of a split partition raises its own fence and not those of what it was split from",
        "G1",
        &[sdk(
            "worker::tests::splits::the_fences_of_all_that_a_partition_was_split_from_are_raised_before_its_task_starts",
        )],
    ),
    mutant(
        "parent-raised-after-read",
        "the owner of a split partition raises the fence of what it was split from while it already loads",
        "G1",
        &[sdk(
            "worker::tests::splits::the_fences_of_all_that_a_partition_was_split_from_are_raised_before_its_task_starts",
        )],
    ),
    mutant(
        "owner-keeps-split-keys",
        "an owner takes keys for its own that were split away",
        "G1",
        &[sdk("worker::tests::splits::an_ownership_says_which_keys_are_its_partitions")],
    ),
    mutant(
        "router-hashes-by-the-old-count",
        "a router hashes by the number of partitions from before the split",
        "G4",
        &[sdk("router::picture::tests::a_keyspace_grows_and_what_is_known_of_its_partitions_stays")],
    ),
];
