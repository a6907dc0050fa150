//! The fence: G1 is held here, and nowhere else.

use super::{Mutant, fence, mutant, sqlite, world};

pub(super) const LIST: &[Mutant] = &[
    mutant(
        "fence-off",
        "a lower epoch is accepted",
        "G1",
        &[
            world(4, 9_000),
            fence("high_water::tests::equal_is_the_owner_going_on_lower_is_refused_higher_is_remembered"),
        ],
    ),
    mutant(
        "fence-by-equality",
        "a check compares by equality: a newer owner is refused",
        "G4",
        &[fence("high_water::tests::equal_is_the_owner_going_on_lower_is_refused_higher_is_remembered")],
    ),
    mutant(
        "fence-last-raise-wins",
        "a raise moves the fence back",
        "G1",
        &[
            world(3, 20_000),
            fence("high_water::tests::equal_is_the_owner_going_on_lower_is_refused_higher_is_remembered"),
        ],
    ),
    mutant(
        "fence-open-until-raised",
        "a write to a scope that nobody has raised is accepted",
        "G1",
        &[fence("high_water::tests::without_a_row_a_write_is_refused_and_a_raise_makes_it")],
    ),
    mutant(
        "fence-of-any-session",
        "another session is accepted under an epoch that is bound",
        "G1",
        &[fence(
            "high_water::tests::the_first_session_seen_under_an_epoch_is_bound_to_it_and_another_is_refused",
        )],
    ),
    mutant(
        "fence-of-any-cluster",
        "a token of another cluster is accepted",
        "G1",
        &[fence("high_water::tests::a_token_of_another_cluster_is_refused_with_both_names")],
    ),
    mutant(
        "fence-jumps-anywhere",
        "one forged token uses up all epochs",
        "G4",
        &[fence(
            "high_water::tests::a_jump_of_more_than_2_to_the_48_is_implausible_and_an_operator_can_force_it",
        )],
    ),
    mutant(
        "fence-forgotten-on-restart",
        "installing the SQLite fence forgets what it has seen",
        "G1",
        &[sqlite("cases::no_clean_up_takes_the_fence_with_it")],
    ),
    mutant(
        "raise-not-durable",
        "a raise answers before the disk has it",
        "G1",
        &[fence("sqlite::durable::tests::the_transaction_runs_at_extra_and_the_setting_comes_back")],
    ),
    mutant(
        "check-takes-no-lock",
        "between check and write another may raise",
        "G1",
        &[sqlite(
            "locking::the_check_holds_the_write_lock_even_in_a_deferred_transaction_and_when_it_writes_nothing",
        )],
    ),
    mutant(
        "effect-key-with-epoch",
        "the next owner sends an effect again under another key",
        "effects",
        &[fence(
            "effects::key::tests::the_key_is_the_same_for_every_owner_and_after_a_split_and_fits_into_a_header",
        )],
    ),
    mutant(
        "unkeyed-effect-sent-again",
        "what may have happened is sent again to an API that keeps no keys",
        "effects",
        &[fence(
            "effects::interleavings::in_every_order_a_key_that_is_kept_makes_it_once_and_without_keys_nobody_does_it_twice",
        )],
    ),
    mutant(
        "effect-settled-by-any-call",
        "an earlier call of an effect settles a later one",
        "effects",
        &[sqlite("effects::an_earlier_call_of_the_same_owner_settles_nothing_after_it_was_claimed_again")],
    ),
];
