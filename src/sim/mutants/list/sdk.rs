//! The SDK: what a worker does under its lease, and what a router shows.

use super::{Mutant, mutant, sdk, world};

pub(super) const LIST: &[Mutant] = &[
    mutant(
        "read-before-raise",
        "an owner starts without having raised its fences",
        "G1",
        &[sdk("worker::tests::story::every_declared_fence_is_raised_before_the_task_starts")],
    ),
    mutant(
        "raise-after-read",
        "an owner raises its fences while it already loads",
        "G1",
        &[sdk("worker::tests::story::every_declared_fence_is_raised_before_the_task_starts")],
    ),
    mutant(
        "flag-instead-of-clock",
        "a check asks whether somebody has noticed the end of the lease",
        "G3",
        &[
            world(12, 23_000),
            sdk("ownership::lease::tests::a_jump_of_the_clock_is_seen_by_the_very_next_look"),
        ],
    ),
    mutant(
        "drain-bound-not-checked",
        "a draining partition is believed for as long as the lease",
        "G3",
        &[sdk("ownership::tests::a_bound_ends_one_partition_and_not_the_session")],
    ),
    mutant(
        "refusal-taken-back",
        "a lease comes back after somebody was told that it is over",
        "G3",
        &[sdk(
            "ownership::lease::tests::a_refusal_is_final_even_against_an_acknowledgement_published_just_then",
        )],
    ),
    mutant(
        "forked-child-owns",
        "a forked child owns what its parent owns",
        "G3",
        &[sdk("ownership::tests::a_forked_child_does_not_own")],
    ),
    mutant(
        "read-not-checked-after",
        "a leased read is checked before its answer is computed only",
        "G3",
        &[sdk("ownership::tests::an_answer_that_took_longer_than_the_lease_is_dropped")],
    ),
    mutant(
        "stamp-unchecked",
        "a stamp is given out after the lease",
        "G3",
        &[sdk("ownership::tests::whoever_finds_it_over_first_ends_it_for_everybody")],
    ),
    mutant(
        "starts-without-a-lease",
        "an owner starts before a renewal was acknowledged",
        "G3",
        &[sdk("worker::tests::losses::nothing_starts_before_a_renewal_is_acknowledged")],
    ),
    mutant(
        "two-tasks-at-once",
        "an owner starts beside one of an earlier epoch that has not ended",
        "I9",
        &[sdk("worker::tests::losses::two_tasks_of_one_partition_never_run_at_once")],
    ),
    mutant(
        "released-before-its-task-ends",
        "a partition is released while its task still flushes",
        "G3",
        &[sdk("worker::tests::story::a_drained_partition_is_released_when_its_task_has_ended")],
    ),
    mutant(
        "dropped-task-released",
        "a task that was dropped with its runtime counts as one that returned",
        "G3",
        &[sdk("worker::tests::process::a_runtime_that_is_shut_down_under_its_tasks_releases_nothing")],
    ),
    mutant(
        "revoke-seen-by-a-push",
        "a drain counts as seen before its bound is known",
        "G3",
        &[sdk(
            "worker::tests::story::a_revoke_counts_as_seen_only_when_an_acknowledgement_has_named_the_drain",
        )],
    ),
    mutant(
        "report-said-once",
        "a report that was lost is not repeated",
        "G4",
        &[sdk("worker::tests::story::a_report_is_repeated_until_the_coordinator_knows")],
    ),
    mutant(
        "rejoin-replaces",
        "a process that lost its session ends that of another",
        "G4",
        &[sdk("worker::tests::losses::a_session_that_ended_is_lost_once_and_followed_by_a_new_one")],
    ),
    mutant(
        "wedged-worker-renews",
        "renewals go on while the runtime of the owners stands still",
        "G4",
        &[sdk("worker::host::tests::a_runtime_that_does_not_run_the_probe_is_not_renewed_for")],
    ),
    mutant(
        "ill-worker-renews",
        "renewals go on although the application says that it is ill",
        "G4",
        &[sdk("worker::host::tests::the_applications_own_check_counts_and_a_panic_in_it_is_a_no")],
    ),
    mutant(
        "router-revision-goes-back",
        "a router takes an older picture than it has",
        "watches",
        &[sdk("router::picture::tests::another_lineage_needs_a_full_picture_and_a_revision_never_goes_back")],
    ),
    mutant(
        "router-epoch-goes-back",
        "a router shows an owner that was replaced",
        "watches",
        &[sdk("router::picture::tests::an_epoch_never_goes_back_within_a_lineage")],
    ),
    mutant(
        "router-shows-half-a-picture",
        "a router shows a picture whose last piece has not come",
        "watches",
        &[sdk(
            "router::picture::tests::pieces_count_when_the_last_has_arrived_and_leave_no_trace_when_broken_off",
        )],
    ),
];
