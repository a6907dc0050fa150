//! Placement: what a plan is made of, who carries it out, and what operators decided.

use super::{Mutant, core, mutant};

pub(super) const LIST: &[Mutant] = &[
    mutant(
        "freeze-ignored",
        "planned moves begin although the keyspace or the cluster is frozen",
        "freezes",
        &[core("lead::tests::operators::what_is_frozen_does_not_move_and_is_repaired_all_the_same")],
    ),
    mutant(
        "partition-freeze-ignored",
        "a frozen partition is moved",
        "freezes",
        &[core("lead::tests::operators::a_frozen_partition_stays_when_the_others_are_balanced")],
    ),
    mutant(
        "worker-freeze-ignored",
        "a frozen worker is moved to and from",
        "freezes",
        &[core("lead::tests::operators::a_frozen_worker_keeps_what_it_has_and_gets_nothing")],
    ),
    mutant(
        "frozen-stand-in-for-nobody",
        "what a lost worker had stays down when all others are frozen",
        "freezes",
        &[core(
            "lead::tests::operators::what_a_lost_worker_had_goes_to_frozen_workers_when_no_other_may_have_it",
        )],
    ),
    mutant(
        "setback-never-forgiven",
        "an owner that fails once a month waits longer each time",
        "G4",
        &[core(
            "lead::tests::operators::an_owner_that_was_ready_for_long_enough_is_forgiven_and_its_next_failure_is_a_first_one",
        )],
    ),
    mutant(
        "budget-holds-up-who-frees-it",
        "a drain of an owner that is not ready waits for the room which that owner takes",
        "G4",
        &[core(
            "lead::tests::operators::a_drain_of_an_owner_that_is_not_ready_does_not_wait_for_the_room_that_it_takes_itself",
        )],
    ),
    mutant(
        "plan-through-freeze",
        "an approved plan goes on although its keyspace is frozen",
        "freezes",
        &[core(
            "lead::tests::approved::a_freeze_of_the_keyspace_pauses_a_plan_and_a_frozen_worker_is_passed_over",
        )],
    ),
    mutant(
        "drain-ignored",
        "a drained worker keeps what it has",
        "drains",
        &[core(
            "lead::tests::operators::a_drained_worker_gives_up_all_it_has_also_where_balancing_is_manual",
        )],
    ),
    mutant(
        "drain-ends-with-a-lost-lease",
        "a drain for a restart ends when the process to be stopped joins again",
        "drains",
        &[core(
            "state::tests::directives::a_drain_until_the_next_join_ends_there_and_leaves_any_other_as_it_is",
        )],
    ),
    mutant(
        "drain-waits-for-balance",
        "drains, pins and labels are carried out only where balancing is",
        "drains",
        &[core(
            "lead::tests::operators::a_drained_worker_gives_up_all_it_has_also_where_balancing_is_manual",
        )],
    ),
    mutant(
        "cordon-ignored",
        "a cordoned worker is given partitions",
        "drains",
        &[core(
            "lead::tests::operators::a_cordoned_worker_keeps_what_it_has_and_gets_nothing_not_even_repairs",
        )],
    ),
    mutant(
        "pin-ignored",
        "a pinned partition stays where it is",
        "pins",
        &[core(
            "lead::tests::operators::a_pinned_partition_goes_to_its_worker_and_back_to_it_after_a_failure",
        )],
    ),
    mutant(
        "weight-ignored",
        "the weight that an operator gave a worker does not count",
        "weights",
        &[core("lead::tests::operators::a_weight_that_an_operator_sets_counts_instead_of_the_worker_s_own")],
    ),
    mutant(
        "hold-forgotten",
        "what waits for a worker that is being restarted goes to others at once",
        "restarts",
        &[core(
            "lead::tests::operators::a_restart_that_was_announced_moves_nothing_and_epochs_grow_all_the_same",
        )],
    ),
    mutant(
        "hold-for-anybody",
        "what waited for a worker that was restarted goes to anybody once it is back",
        "restarts",
        &[core("lead::tests::operators::what_waited_for_a_restarted_worker_goes_to_it_and_to_nobody_else")],
    ),
    mutant(
        "hold-to-its-end",
        "what waits for a worker that is restarted goes on waiting when it is back",
        "restarts",
        &[core(
            "lead::tests::operators::a_restart_that_was_announced_moves_nothing_and_epochs_grow_all_the_same",
        )],
    ),
    mutant(
        "leaver-taken-for-back",
        "a worker that is still leaving is taken for one that is back",
        "restarts",
        &[core(
            "lead::tests::operators::a_new_leader_takes_a_worker_that_is_still_leaving_for_no_one_that_is_back",
        )],
    ),
    mutant(
        "plan-of-another-map",
        "a plan is carried out on another map than it was made from",
        "plans",
        &[core("state::tests::plans::a_plan_starts_only_on_the_map_that_it_was_made_from")],
    ),
    mutant(
        "plan-move-of-another-epoch",
        "a plan starts although a move of it was made for another epoch",
        "plans",
        &[core("state::tests::plans::a_move_made_for_another_epoch_is_refused_though_the_owner_is_the_same")],
    ),
    mutant(
        "moved-from-its-pin",
        "a partition is moved away from the worker that it is pinned to, and taken back",
        "pins",
        &[
            core("lead::tests::receive::a_pinned_partition_is_moved_to_its_pin_alone_while_that_may_have_it"),
            core("lead::tests::approved::a_move_of_what_was_pinned_elsewhere_meanwhile_is_passed_over"),
            core("state::tests::directives::a_move_decided_before_a_pin_does_not_begin_after_it"),
        ],
    ),
    mutant(
        "overtaken-move-kept",
        "a move of a plan that was overtaken is tried again and again instead of being passed over",
        "plans",
        &[core("lead::tests::approved::moves_that_were_overtaken_are_passed_over_and_the_others_begin")],
    ),
    mutant(
        "plan-has-a-budget-of-its-own",
        "a plan and balancing each use up the budget",
        "plans",
        &[core("lead::tests::approved::a_plan_and_balancing_share_one_budget")],
    ),
    mutant(
        "cool-down-forgotten",
        "what an operator moved is balanced back at once",
        "moves",
        &[core(
            "lead::tests::placing::when_everything_was_moved_by_an_operator_balancing_waits_for_the_cool_down",
        )],
    ),
    mutant(
        "cool-down-ends-with-its-leader",
        "what an operator moved is balanced back by the next leader",
        "moves",
        &[core("lead::tests::placing::an_operator_s_move_keeps_its_cool_down_under_the_next_leader")],
    ),
    mutant(
        "manual-balanced",
        "a keyspace that is balanced by hand is balanced",
        "moves",
        &[core("lead::tests::placing::a_keyspace_that_is_not_balanced_by_itself_is_left_alone_until_it_is")],
    ),
    mutant(
        "rate-forgotten",
        "more moves begin in a minute than may",
        "moves",
        &[core("lead::tests::approved::a_bound_on_moves_in_a_minute_holds_for_a_plan")],
    ),
    mutant(
        "settle-delay-off",
        "balancing does not wait for workers that start together",
        "moves",
        &[core("lead::tests::placing::workers_that_join_together_cause_one_round_of_moves")],
    ),
    mutant(
        "unsettled-for-ever",
        "balancing waits as long as members come and go",
        "moves",
        &[core(
            "lead::tests::placing::members_that_come_and_go_without_a_pause_do_not_stop_balancing_for_good",
        )],
    ),
    mutant(
        "away-ignored",
        "what a suspected or absent worker has is balanced, and it is given more",
        "moves",
        &[core(
            "lead::tests::placing::a_suspected_worker_is_neither_source_nor_target_of_a_move_that_can_wait",
        )],
    ),
    mutant(
        "absent-counted-as-there",
        "a worker without a connection is granted what it cannot learn of",
        "moves",
        &[core("lead::tests::presence::an_absent_worker_is_granted_nothing_and_comes_back_into_its_share")],
    ),
    mutant(
        "brake-off",
        "a mass loss is repaired as fast as it can be",
        "G4",
        &[core(
            "lead::tests::repairs::mass_expiry_after_an_outage_is_repaired_at_the_budget_and_never_at_zero",
        )],
    ),
    mutant(
        "brake-at-zero",
        "an owner that never gets ready stops the repairs of all others",
        "G4",
        &[core(
            "lead::tests::repairs::mass_expiry_after_an_outage_is_repaired_at_the_budget_and_never_at_zero",
        )],
    ),
    mutant(
        "moves-under-the-brake",
        "planned moves begin while repairs are slowed down",
        "G4",
        &[core("lead::tests::approved::under_the_brake_no_move_of_a_plan_begins")],
    ),
    mutant(
        "setback-forgotten",
        "a partition that failed is granted to the same worker again",
        "G4",
        &[core("lead::tests::handoff::a_failed_task_waits_and_goes_to_another_worker")],
    ),
    mutant(
        "rest-forgotten",
        "a partition whose task returns is granted again at once",
        "G4",
        &[core("lead::tests::handoff::a_task_that_returns_by_itself_rests")],
    ),
    mutant(
        "error-becomes-empty-plan",
        "an error in a plan is an empty plan",
        "G4",
        &[core(
            "lead::tests::placing::a_plan_that_cannot_be_made_changes_nothing_and_is_shown_until_one_can",
        )],
    ),
    mutant(
        "zones-ignored",
        "partitions are placed wherever there is room, whatever the zone",
        "spread",
        &[core(
            "placement::tests::zones::workers_and_zones_end_within_one_partition_of_their_weighted_shares",
        )],
    ),
    mutant(
        "ties-by-number",
        "between equals the first worker always gets one more",
        "spread",
        &[core("placement::tests::cases::many_small_keyspaces_do_not_all_load_the_same_workers")],
    ),
    mutant(
        "loads-not-smoothed",
        "each measurement of a load is what plans see",
        "loads",
        &[core("placement::smoothing::tests::noise_of_a_tenth_changes_no_load")],
    ),
    mutant(
        "loads-without-tolerance",
        "balancing by load begins at the smallest difference",
        "loads",
        &[core("placement::tests::weighed::what_two_workers_differ_by_within_the_tolerance_moves_nothing")],
    ),
    mutant(
        "loads-not-waited-for",
        "a new leader balances before it knows the loads",
        "loads",
        &[core("lead::tests::loads::a_new_leader_knows_no_loads_and_moves_nothing_because_of_that")],
    ),
    mutant(
        "loads-from-anybody",
        "any worker is believed about the load of any partition",
        "loads",
        &[core("lead::tests::loads::only_the_owner_is_heard_at_the_pace_asked_for_and_within_bounds")],
    ),
];
