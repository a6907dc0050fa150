//! What storage refused, and fences that are raised again.

use super::{Mutant, core, mutant, sdk};

pub(super) const LIST: &[Mutant] = &[
    mutant(
        "refusals-without-bound",
        "every refused write that is told of is remembered for ever",
        "bounds",
        &[core(
            "state::tests::refusals::the_refusals_that_were_told_last_are_kept_and_no_more_than_the_bound",
        )],
    ),
    mutant(
        "refusals-pile-up",
        "a program that cannot tell of refused writes keeps all of them",
        "bounds",
        &[sdk("refusals::tests::without_a_coordinator_the_heap_has_a_bound_and_the_rest_is_counted")],
    ),
    mutant(
        "seen-of-anyone",
        "whoever says that storage has seen a higher epoch is believed, owner or not",
        "G2",
        &[core("state::tests::reasserts::only_the_owner_of_the_partition_at_its_epoch_is_believed")],
    ),
    mutant(
        "seen-without-bound",
        "an owner's word uses up all epochs of its partition",
        "G4",
        &[core("state::tests::reasserts::what_is_too_far_above_is_not_believed_and_an_operator_is_told")],
    ),
    mutant(
        "operator-raises-anywhere",
        "an operator's word raises a partition to where no fence follows",
        "G4",
        &[core("state::tests::reasserts::an_operator_raises_it_further_and_not_beyond_what_a_fence_takes")],
    ),
    mutant(
        "raise-refused-is-a-failure",
        "an owner whose storage has seen a higher epoch only says that it has failed, for ever",
        "G4",
        &[sdk(
            "worker::tests::story::an_owner_whose_fence_has_seen_a_newer_epoch_never_starts_and_says_what_was_seen",
        )],
    ),
    mutant(
        "reassert-takes-nothing",
        "an order to raise fences again takes no partition from its owner",
        "G1",
        &[core("lead::tests::reasserts::every_owner_is_granted_what_it_has_anew_and_raises_again")],
    ),
];
