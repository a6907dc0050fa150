//! Failures behind the wire, and statuses that are none of ours.

use super::*;
use ringfence_core::ids::{NodeId, WorkerId};
use tonic::Code;

fn leader() -> NodeAddress {
    NodeAddress { node: NodeId::new(2).unwrap(), address: "10.0.0.2:7400".to_owned() }
}

fn session() -> SessionId {
    SessionId::new(7).unwrap()
}

fn owner() -> Owner {
    Owner { worker: WorkerId::new("w1").unwrap(), session: session(), address: "10.0.0.9:80".to_owned() }
}

fn all() -> Vec<Failure> {
    vec![
        Failure::not_leader(Some(leader())),
        Failure::not_leader(None),
        Failure::no_leader(),
        Failure::unknown_outcome(),
        Failure::session_ended(session(), SessionEnd::Replaced),
        Failure::wrong_secret(session()),
        Failure::duplicate_identity("w1", "10.0.0.9:80", ""),
        Failure::not_found("there is no keyspace orders"),
        Failure::already_exists("keyspace orders exists"),
        Failure::invalid("field name: it is missing"),
        Failure::stale_epoch(Epoch::new(9).ok(), Some(owner())),
        Failure::stale_epoch(None, None),
        Failure::too_old(),
        Failure::limit("the number of keyspaces is at its bound of 1000"),
        Failure::unsupported_protocol(9),
        Failure::wrong_cluster("other", &ClusterId::new("this").unwrap()),
        Failure::refused("partition p3 cools"),
        Failure::unavailable("the node stops"),
    ]
}

#[test]
fn every_failure_is_the_same_behind_the_wire() {
    for failure in all() {
        let status = Status::from(failure.clone());
        assert_eq!(Failure::from_status(&status), Some(failure.clone()));
        assert_eq!(Failure::decode(&status), failure);
    }
}

#[test]
fn t43_only_what_did_nothing_is_unavailable_for_a_proxy_may_repeat_it() {
    for failure in all() {
        let nothing_done = !failure.kind().may_have_taken_effect() && failure.is_retryable();
        assert_eq!(Status::from(failure.clone()).code() == Code::Unavailable, nothing_done, "{failure}");
    }
}

#[test]
fn t43_a_status_that_no_coordinator_wrote_may_have_taken_effect() {
    for code in [Code::Unavailable, Code::Unknown, Code::Cancelled, Code::DeadlineExceeded, Code::Internal] {
        let failure = Failure::decode(&Status::new(code, "tcp connect error"));
        assert_eq!(failure.kind(), ErrorKind::Transport);
        assert!(failure.is_retryable() && failure.kind().may_have_taken_effect());
    }
    assert_eq!(Failure::decode(&Status::unimplemented("")).kind(), ErrorKind::UnsupportedProtocol);
    assert_eq!(Failure::decode(&Status::out_of_range("too large")).kind(), ErrorKind::Limit);
}

#[test]
fn a_failed_connection_that_is_passed_on_is_an_unknown_outcome() {
    let status = Status::from(Failure::transport("connection reset"));
    assert_eq!(Failure::decode(&status).kind(), ErrorKind::UnknownOutcome);
}

#[test]
fn a_detail_of_an_unknown_kind_or_none_at_all_is_no_failure_of_ours() {
    let status = |details: Vec<u8>| Status::with_details(Code::Unavailable, "", details.into());
    let newer = v1::ErrorDetail { kind: 9_999, ..Default::default() }.encode_to_vec();
    for details in [newer, vec![], vec![0xff; 40], v1::ErrorDetail::default().encode_to_vec()] {
        assert_eq!(Failure::from_status(&status(details)), None);
    }
}

#[test]
fn a_leader_that_cannot_be_read_leaves_the_kind_standing() {
    let leader = v1::NodeAddress { node: 0, address: "x".to_owned() };
    let wire = v1::ErrorDetail { kind: 1, leader: Some(leader), ..Default::default() };
    let status = Status::with_details(Code::Unavailable, "", wire.encode_to_vec().into());
    let failure = Failure::decode(&status);
    assert_eq!((failure.kind(), failure.leader()), (ErrorKind::NotLeader, None));
}

#[test]
fn f021_foreign_text_in_a_message_is_escaped_on_both_sides() {
    let failure = Failure::not_found("there is no keyspace \u{1b}[2J\n");
    assert!(!failure.message().contains(['\u{1b}', '\n']), "{failure}");
    let hostile = Status::new(Code::NotFound, "\u{1b}[2J");
    assert!(!Failure::decode(&hostile).message().contains('\u{1b}'));
    let failure = Failure::duplicate_identity("w1", &"x".repeat(100_000), "");
    assert!(Status::from(failure).details().len() < 1_000);
}
