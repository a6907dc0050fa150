//! The coordinator: its log, its leader's loop, its services.

use super::{Mutant, mutant, server, world};

pub(super) const LIST: &[Mutant] = &[
    // The log.
    mutant(
        "acknowledged-before-fsync",
        "a write is acknowledged when it is queued",
        "G5",
        &[
            world(4, 30_000),
            server("raft::log::tests::after_one_failed_flush_nothing_is_ever_acknowledged_again"),
        ],
    ),
    mutant(
        "failed-flush-forgiven",
        "after a failed flush the next one counts",
        "G5",
        &[server("raft::log::tests::after_one_failed_flush_nothing_is_ever_acknowledged_again")],
    ),
    mutant(
        "vote-not-persisted",
        "a vote is forgotten in a crash",
        "G5",
        &[world(1, 14_000), server("raft::log::tests::what_was_acknowledged_is_there_after_a_restart")],
    ),
    mutant(
        "truncation-not-persisted",
        "entries that a leader took back are there again after a crash",
        "G5",
        &[server("raft::log::tests::what_was_acknowledged_is_there_after_a_restart")],
    ),
    mutant(
        "confirmed-without-a-round",
        "a node takes itself for the leader without asking a quorum",
        "G3",
        &[
            server("raft::tests::elections::an_isolated_leader_can_neither_confirm_nor_write"),
            server("workers::tests::a_leader_that_is_cut_off_acknowledges_no_renewal"),
        ],
    ),
    mutant(
        "proposal-of-any-term",
        "a deposed leader's decision is committed in a later term",
        "G3",
        &[server("raft::tests::elections::a_proposal_is_bound_to_its_term_and_its_size")],
    ),
    // The leader's loop.
    mutant(
        "lessor-before-own-entry",
        "a leader begins before it has applied an entry of its own term",
        "G3",
        &[server("leader::tests::a_leadership_begins_with_an_entry_of_its_own_term_and_ends_with_that_term")],
    ),
    mutant(
        "lessor-kept-across-terms",
        "a node that leads again has its old deadlines",
        "G3",
        &[server("leader::tests::a_leadership_begins_with_an_entry_of_its_own_term_and_ends_with_that_term")],
    ),
    mutant(
        "drain-clock-before-lock",
        "a drain's clock begins before the drain can be told of",
        "G3",
        &[server(
            "replica::tests::the_clock_of_an_entry_is_read_when_nothing_can_be_answered_before_it_applies",
        )],
    ),
    // Workers.
    mutant(
        "renewals-unconfirmed",
        "renewals are answered without a confirmation round",
        "G3",
        &[server("workers::tests::a_leader_that_is_cut_off_acknowledges_no_renewal")],
    ),
    mutant(
        "renewal-of-another-term-answered",
        "a renewal is answered by a lessor that did not note its arrival",
        "G3",
        &[server("workers::tests::a_renewal_is_answered_in_the_term_it_arrived_in_and_while_somebody_reads")],
    ),
    mutant(
        "unread-renewal-counts",
        "a renewal whose answer nobody reads holds a takeover up",
        "G4",
        &[server("workers::tests::a_renewal_is_answered_in_the_term_it_arrived_in_and_while_somebody_reads")],
    ),
    mutant(
        "acknowledged-before-told",
        "an acknowledgement overtakes the assignment that it names",
        "G3",
        &[server(
            "workers::assignment::tests::nothing_is_acknowledged_before_the_assignment_it_names_was_told",
        )],
    ),
    mutant(
        "end-said-unconfirmed",
        "a node that lags ends a worker that another one knows",
        "G4",
        &[server("workers::tests::only_a_leader_says_that_a_session_has_ended")],
    ),
    mutant(
        "secret-unchecked",
        "anybody speaks for a session",
        "secrets",
        &[server("workers::tests::without_the_secret_nobody_reports_leaves_or_replaces")],
    ),
    mutant(
        "young-session-replaced",
        "two processes of one name end each other for ever",
        "G4",
        &[server("workers::tests::a_session_younger_than_its_ttl_that_is_connected_is_not_replaced")],
    ),
    // Watches.
    mutant(
        "watch-resumes-with-a-gap",
        "a reader that is too far behind goes on where it was",
        "watches",
        &[server("map::tests::a_reader_that_is_too_far_behind_starts_over")],
    ),
    mutant(
        "watch-of-a-node-behind",
        "a node that lags shows a reader an older map",
        "watches",
        &[server("map::tests::a_watch_resumes_in_its_own_history_and_starts_over_from_another")],
    ),
    mutant(
        "leaderless-node-is-followed",
        "a node that hears of no leader keeps its readers",
        "watches",
        &[server("map::tests::a_node_that_hears_of_no_leader_ends_its_streams")],
    ),
];
