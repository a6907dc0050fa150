//! The fence in Redis: the conformance suite, then case by case, against real servers.

#![allow(clippy::unwrap_used, reason = "a set-up that fails is a test that fails")]

mod cases;
mod crash;
mod damaged;
mod failover;
mod flawed;
mod property;
mod raiser;
mod server;
#[path = "../shared/storm.rs"]
mod shared_storm;
mod storm;
mod subject;
mod write;

use ringfence_fence::conformance::{Outcome, run};
use subject::RedisSubject;

#[test]
fn t01_t02_t03_t07_t09_the_fence_in_redis_conforms() {
    if !server::available() {
        return;
    }
    let report = run(&RedisSubject::Alone);
    assert!(report.outcomes().all(|(_, outcome)| *outcome == Outcome::Held), "{report}");
}

#[test]
fn t13_the_fence_in_a_redis_cluster_conforms() {
    if !server::available() {
        return;
    }
    let report = run(&RedisSubject::in_a_cluster());
    assert!(report.outcomes().all(|(_, outcome)| *outcome == Outcome::Held), "{report}");
}
