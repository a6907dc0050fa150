//! Leases, and what a leader decides: `core/lease` and `core/lead`.

use super::{Mutant, core, mutant, naive_world, troubled_world, world};

pub(super) const LIST: &[Mutant] = &[
    // The holder.
    mutant(
        "deadline-from-receipt",
        "a lease counts from the receipt of its acknowledgement",
        "G3",
        &[
            world(12, 7_000),
            core("lease::lessee::tests::a_deadline_counted_from_the_receipt_outlives_the_coordinators"),
        ],
    ),
    mutant(
        "no-drift-margin",
        "a lease is worth its whole TTL on the holder's clock",
        "G3",
        &[core(
            "lease::lessee::timing::tests::a_holder_whose_clock_runs_one_percent_slow_still_stops_before_the_coordinator_grants",
        )],
    ),
    mutant(
        "expired-lease-revived",
        "a late acknowledgement brings back a lease that ran out",
        "G3",
        &[core("lease::lessee::tests::a_late_acknowledgement_does_not_bring_an_expired_lease_back")],
    ),
    mutant(
        "acknowledgement-without-revision",
        "an acknowledgement extends what the holder does not hold any more",
        "G3",
        &[core("lease::lessee::tests::an_acknowledgement_extends_nothing_while_the_picture_is_behind_it")],
    ),
    mutant(
        "older-picture-believed",
        "the holder's picture goes back",
        "G3",
        &[core("lease::lessee::tests::the_picture_only_moves_forward")],
    ),
    mutant(
        "late-grant-believed",
        "the word of a grant that comes after its release is believed",
        "G3",
        &[world(4, 14_000), core("lease::lessee::tests::a_late_grant_after_a_release_is_not_believed")],
    ),
    mutant(
        "bound-moves-back",
        "a new leader gives back what an earlier one's drain had taken",
        "G3",
        &[core("lease::lessee::tests::a_bound_never_moves_back")],
    ),
    // The leader's clocks.
    mutant(
        "takeover-before-lease-end",
        "a suspected session is ended before its lease has run out",
        "G3",
        &[
            world(0, 14_000),
            naive_world(12),
            core("lease::lessor::tests::a_lease_counts_from_the_arrival_not_from_the_answer"),
        ],
    ),
    mutant(
        "suspicion-cleared-without-entry",
        "a renewal takes a suspicion back without a word in the log",
        "G3",
        &[
            naive_world(12),
            core("lease::lessor::tests::renewal_acknowledged_while_the_suspicion_is_in_flight"),
        ],
    ),
    mutant(
        "suspicion-marked-when-applied",
        "renewals are acknowledged while a suspicion is on its way",
        "G3",
        &[core("lease::lessor::tests::renewal_acknowledged_while_the_suspicion_is_in_flight")],
    ),
    mutant(
        "suspected-acknowledged",
        "renewals of a suspected session are acknowledged",
        "G3",
        &[
            troubled_world(4),
            core("lease::lessor::tests::renewal_acknowledged_while_the_suspicion_is_in_flight"),
        ],
    ),
    mutant(
        "suspected-over-a-renewal",
        "a session is suspected although a renewal of it waits",
        "G3",
        &[core("lease::lessor::tests::a_renewal_that_waits_for_its_round_forbids_a_suspicion")],
    ),
    mutant(
        "clears-not-counted",
        "a clear below a later suspicion takes that one back",
        "G3",
        &[core("lease::lessor::tests::a_clear_that_applies_below_a_later_suspicion_does_not_take_it_back")],
    ),
    mutant(
        "remainder-third-short",
        "a new leader arms a third less than is left",
        "G3",
        &[
            naive_world(12),
            core("lease::lessor::tests::repeated_elections_thirds_add_up_to_no_more_than_was_measured"),
        ],
    ),
    mutant(
        "unsuspected-armed-short",
        "a new leader ends sessions early that nobody suspected",
        "G3",
        &[
            naive_world(12),
            core("lease::lessor::tests::a_new_leader_counts_a_full_ttl_from_its_own_beginning"),
        ],
    ),
    mutant(
        "new-leader-does-not-rearm",
        "a new leader counts from before its own beginning",
        "G3",
        &[
            naive_world(12),
            core("lease::lessor::tests::a_new_leader_counts_a_full_ttl_from_its_own_beginning"),
        ],
    ),
    mutant(
        "unknown-lease-cools-not",
        "what an earlier leader promised a replaced session is forgotten",
        "G3",
        &[core("lead::tests::leases::under_a_new_leader_replaced_partitions_cool_for_a_full_ttl")],
    ),
    // Drains.
    mutant(
        "drain-rearmed",
        "a second drain arms the first one anew",
        "G3",
        &[core("lead::tests::leases::a_second_drain_does_not_rearm")],
    ),
    mutant(
        "drain-untold",
        "acknowledgements do not say what is left of a drain",
        "G3",
        &[
            naive_world(12),
            core("lead::tests::leases::each_acknowledgement_says_what_is_left_when_it_is_answered"),
        ],
    ),
    mutant(
        "unseen-drain-over-at-deadline",
        "a drain that its owner has not seen is over before the lease",
        "G3",
        &[
            naive_world(12),
            core(
                "lead::tests::leases::drain_deadline_an_owner_that_has_not_seen_it_keeps_the_partition_for_a_ttl",
            ),
        ],
    ),
    // What goes where.
    mutant(
        "budget-blind-to-moves",
        "moves that are under way do not count against the budget",
        "G4",
        &[core("lead::tests::placing::moves_run_within_the_budget_until_the_new_owner_is_ready")],
    ),
    mutant(
        "plan-blind-to-moves",
        "a plan does not see the moves that are under way",
        "G4",
        &[core("lead::tests::placing::with_steady_membership_moves_go_to_zero_and_stay_there")],
    ),
    mutant(
        "lost-in-a-crowd-taken",
        "a proxy that restarts costs everybody their partitions",
        "G4",
        &[core("lead::tests::presence::a_proxy_that_restarts_moves_nothing_however_long_it_takes")],
    ),
    mutant(
        "fence-takes-in-the-first-third",
        "an election costs those their partitions who reconnect",
        "G4",
        &[core("lead::tests::presence::nothing_is_taken_in_a_leader_s_first_third_of_a_ttl")],
    ),
];
