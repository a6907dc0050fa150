//! The replicated state: epochs, phases, sessions, answers.

use super::{Mutant, core, mutant, naive_world, world};

pub(super) const LIST: &[Mutant] = &[
    // Epochs.
    mutant(
        "epoch-minted-when-proposed",
        "an epoch is minted when a grant is proposed, not when it applies",
        "G2",
        &[core("state::tests::epochs::mint_happens_at_apply_so_two_proposals_for_one_epoch_give_one_grant")],
    ),
    mutant(
        "epoch-kept-on-regrant",
        "the same worker is granted a partition again under its earlier epoch",
        "G2",
        &[world(2, 20_000), core("state::tests::epochs::the_same_worker_gets_a_new_epoch_with_every_grant")],
    ),
    mutant(
        "epoch-raised-by-its-owner",
        "an owner that goes on gets a new epoch",
        "G2",
        &[world(0, 5_000), core("state::tests::handoff::a_vacant_partition_is_granted_owned_and_ready")],
    ),
    mutant(
        "owned-granted-again",
        "a partition is granted that somebody owns",
        "G3",
        &[core(
            "state::tests::handoff::a_grant_names_the_epoch_that_it_replaces_and_a_partition_that_is_vacant",
        )],
    ),
    mutant(
        "floor-forgotten",
        "a keyspace created again under its name begins with its first epoch",
        "G2",
        &[
            world(3, 20_000),
            core("state::tests::epochs::a_keyspace_that_is_deleted_and_created_again_repeats_no_epoch"),
        ],
    ),
    // Phases.
    mutant(
        "draining-back-to-owned",
        "a draining partition is owned again under the same epoch",
        "G3",
        &[core("state::tests::handoff::a_worker_that_is_ready_while_it_drains_is_not_owner_again")],
    ),
    mutant(
        "drain-over-of-any-move",
        "the end of one move ends another",
        "G3",
        &[core("state::tests::handoff::a_drain_that_is_over_takes_the_partition_and_names_its_move")],
    ),
    mutant(
        "release-by-name",
        "a release that was sent again frees a newer grant",
        "G3",
        &[core("state::tests::handoff::a_retried_release_frees_no_newer_grant_of_the_same_session")],
    ),
    mutant(
        "seized-by-lease",
        "a partition is taken by fence where a lease protects it",
        "G3",
        &[core(
            "state::tests::handoff::a_partition_is_seized_from_a_live_session_only_where_the_fence_takes_over",
        )],
    ),
    mutant(
        "replaced-at-once",
        "what a replaced worker held is granted before its lease has run out",
        "G3",
        &[
            naive_world(12),
            core("state::tests::sessions::a_replaced_worker_s_partitions_cool_until_its_lease_has_run_out"),
        ],
    ),
    // Sessions.
    mutant(
        "expiry-names-no-suspicion",
        "an expiry ends a session that was heard from since",
        "G3",
        &[core("state::tests::sessions::a_session_heard_from_in_between_is_not_expired")],
    ),
    mutant(
        "thirds-do-not-add-up",
        "a slow leader's suspicion takes the place of a later one",
        "G3",
        &[core("state::tests::sessions::thirds_of_silence_only_add_up")],
    ),
    mutant(
        "any-join-replaces",
        "a delayed duplicate of an old join ends a younger session",
        "G4",
        &[core("state::tests::sessions::a_delayed_duplicate_of_an_old_join_ends_no_younger_session")],
    ),
    mutant(
        "nonce-alone-joins",
        "whoever knows a nonce gets the session of another process",
        "secrets",
        &[core("state::tests::sessions::a_nonce_without_the_secret_is_not_the_same_process")],
    ),
    mutant(
        "assignment-keeps-its-revision",
        "a session's revision stays when what it holds changes",
        "G3",
        &[core("state::tests::sessions::every_change_to_what_a_session_holds_moves_its_assignment")],
    ),
    mutant(
        "node-id-used-twice",
        "a node's id is given out again",
        "G5",
        &[core("state::tests::epochs::a_cluster_has_one_name_and_a_node_id_is_used_once")],
    ),
    // Entries.
    mutant(
        "no-dedup",
        "a retry of a request takes effect again",
        "I8",
        &[core("state::tests::retries::a_retry_gets_the_first_answer_and_has_no_second_effect")],
    ),
    mutant(
        "settled-request-runs-again",
        "a request whose answer the session has settled runs again",
        "I8",
        &[core("state::tests::retries::a_session_s_answers_are_bounded_and_what_it_settled_is_too_old")],
    ),
    mutant(
        "forgotten-request-runs-again",
        "a request older than the window of answers runs again",
        "I8",
        &[core(
            "state::tests::retries::a_busy_operator_pushes_an_answer_out_and_the_retry_is_refused_not_run",
        )],
    ),
    mutant(
        "refused-entry-leaves-a-trace",
        "a refused entry has changed something",
        "I7",
        &[core("state::tests::entries::a_refusal_names_the_command_and_undoes_those_before_it")],
    ),
    mutant(
        "wall-clock-in-apply",
        "applying an entry compares wall clocks",
        "G4",
        &[core("state::tests::sessions::an_expiry_by_a_leader_whose_wall_clock_is_behind_counts")],
    ),
];
