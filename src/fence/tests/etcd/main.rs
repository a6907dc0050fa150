//! The fence in etcd: the conformance suite, then case by case, against real servers.

#![allow(clippy::unwrap_used, reason = "a set-up that fails is a test that fails")]

mod cases;
mod crash;
mod flawed;
mod members;
mod property;
mod raiser;
mod recipe;
mod restore;
mod roles;
mod server;
#[path = "../shared/storm.rs"]
mod shared_storm;
mod storm;
mod subject;
mod write;

use ringfence_fence::conformance::{Outcome, run};
use subject::EtcdSubject;

#[test]
fn t01_t02_t03_t07_t09_the_fence_in_etcd_conforms() {
    if !server::available() {
        return;
    }
    let report = run(&EtcdSubject::new());
    assert!(report.outcomes().all(|(_, outcome)| *outcome == Outcome::Held), "{report}");
}
