//! Locks.

use super::{Mutant, core, mutant};

pub(super) const LIST: &[Mutant] = &[
    mutant(
        "lock-granted-twice",
        "a session that asks again for what it holds waits for itself",
        "G4",
        &[core("state::tests::locks::asking_again_is_answered_with_the_same_grant_or_the_same_place")],
    ),
    mutant(
        "lock-queue-jumped",
        "those who hold a lock together keep out for ever whoever wants it alone",
        "G4",
        &[core(
            "state::tests::locks::those_who_hold_it_together_have_one_epoch_and_whoever_wants_it_alone_is_not_overtaken",
        )],
    ),
    mutant(
        "lock-epoch-of-its-own",
        "a lock that was forgotten begins again at epoch 1",
        "G2",
        &[core(
            "state::tests::locks::a_lock_that_was_forgotten_repeats_no_epoch_and_the_cluster_s_floor_counts",
        )],
    ),
    mutant(
        "lock-wakes-them-all",
        "a release wakes everybody who waits",
        "the herd",
        &[core(
            "state::tests::locks::waiters_are_served_in_the_order_in_which_they_came_and_a_release_wakes_one",
        )],
    ),
    mutant(
        "lock-released-by-name",
        "a release that was sent again frees a newer grant of the lock",
        "G3",
        &[core("state::tests::locks::a_repeated_release_does_not_free_a_newer_grant_of_the_same_session")],
    ),
    mutant(
        "lock-granted-to-the-dead",
        "a waiter whose session has ended is still granted the lock",
        "G4",
        &[core("state::tests::locks::a_waiter_whose_session_has_ended_is_never_granted_the_lock")],
    ),
    mutant(
        "lock-delay-forgotten",
        "a lock that was lost does not rest",
        "lock delay",
        &[core(
            "state::tests::locks::the_lock_delay_follows_a_failure_and_no_release_and_the_queue_keeps_its_order",
        )],
    ),
    mutant(
        "lock-seized-by-lease",
        "a lock is taken from a holder that is to be replaced by lease",
        "G3",
        &[core("state::tests::locks::by_fence_nobody_waits_for_a_lease_and_a_lost_connection_is_enough")],
    ),
    mutant(
        "lock-cooled-while-held",
        "the end of a wait that is over frees what is held",
        "G3",
        &[core("state::tests::locks::what_has_cooled_before_ends_nothing_that_is_held")],
    ),
];
