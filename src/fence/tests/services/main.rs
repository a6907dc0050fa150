//! The fence between services: the conformance suite through both layers, then case by case, over HTTP and gRPC.

#![allow(clippy::unwrap_used, reason = "a set-up that fails is a test that fails")]

mod caller;
mod controls;
mod grpc;
mod hop;
mod refusals;
mod routes;
mod storm;
mod subject;

use ringfence_fence::conformance::{Outcome, Rule, run};
use subject::{Mode, ServiceSubject};

#[test]
fn t01_t02_t03_t07_t13_a_service_behind_its_layer_conforms_and_so_does_one_whose_calls_hold() {
    for mode in [Mode::Guarded, Mode::Holding] {
        let report = run(&ServiceSubject::in_memory(mode));
        for (rule, outcome) in report.outcomes() {
            let held = match rule {
                // A token in a header names no session, and this fence dies with its data.
                Rule::OneSession | Rule::SurvivesCrash | Rule::CrashKeepsBinding => {
                    matches!(outcome, Outcome::DoesNotApply(_))
                }
                _ => *outcome == Outcome::Held,
            };
            assert!(held, "{mode:?}\n{report}");
        }
    }
}

#[test]
fn f011_t09_a_service_with_a_durable_fence_conforms_and_survives_a_crash() {
    for mode in [Mode::Guarded, Mode::Holding] {
        let report = run(&ServiceSubject::in_sqlite(mode));
        for (rule, outcome) in report.outcomes() {
            let held = match rule {
                Rule::OneSession => matches!(outcome, Outcome::DoesNotApply(_)),
                _ => *outcome == Outcome::Held,
            };
            assert!(held, "{mode:?}\n{report}");
        }
    }
}
