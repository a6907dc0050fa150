//! The fence in object stores: the conformance suite, then case by case, in memory, in a folder, and against S3.

#![allow(clippy::unwrap_used, reason = "a set-up that fails is a test that fails")]

mod cases;
mod conditions;
mod crash;
mod dumb;
mod flawed;
mod folders;
mod full;
mod moto;
mod store;
mod storm;
mod subject;
mod sweep;
mod unknown;
mod wire;

use moto::Moto;
use ringfence_fence::conformance::{Outcome, Rule, run, run_rule};
use subject::{Kind, ObjectSubject};

/// Where a crash leaves neither data nor fence.
const LOST_TOGETHER: [Rule; 2] = [Rule::SurvivesCrash, Rule::CrashKeepsBinding];

/// Holds every rule but those that say nothing, as everything is lost together.
fn conforms(kind: Kind, silent: &[Rule]) {
    let report = run(&ObjectSubject(kind));
    let not_held: Vec<Rule> =
        report.outcomes().filter(|(_, outcome)| **outcome != Outcome::Held).map(|(rule, _)| rule).collect();
    assert!(report.conforms() && not_held == silent, "{kind:?}\n{report}");
}

#[test]
fn t01_t02_t03_t07_t09_t13_the_fence_in_an_object_store_conforms() {
    conforms(Kind::Memory, &LOST_TOGETHER);
    conforms(Kind::MemoryByCreating, &LOST_TOGETHER);
}

#[test]
fn t01_t02_t03_t07_t09_t13_the_fence_in_a_folder_conforms() {
    conforms(Kind::Folder, &[]);
}

#[test]
fn t01_t02_t03_t07_t09_t13_the_fence_over_http_conforms() {
    conforms(Kind::Http, &LOST_TOGETHER);
}

#[test]
fn t01_t02_t03_t07_t09_t13_the_fence_in_s3_conforms() {
    if moto::available() {
        let _running = Moto::shared();
        conforms(Kind::S3, &LOST_TOGETHER);
    }
}

#[test]
fn t01_t02_t03_t07_t09_t13_the_fence_in_s3_conforms_by_creating() {
    if moto::available() {
        let _running = Moto::shared();
        // What rests on the store, and not on the rule alone: that was tried in memory, and takes most requests.
        for rule in
            [Rule::RaiseFences, Rule::OneStep, Rule::NoDeadlock, Rule::RacingRaises, Rule::SurvivesCleanUp]
        {
            assert_eq!(run_rule(&ObjectSubject(Kind::S3ByCreating), rule), Outcome::Held, "{rule}");
        }
    }
}
