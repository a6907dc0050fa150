//! The fence in MariaDB: the conformance suite, then case by case, against a server that the tests start themselves.

#![allow(clippy::unwrap_used, reason = "a set-up that fails is a test that fails")]

mod cases;
mod controls;
mod crash;
mod database;
mod ended;
mod installing;
mod interleavings;
mod model;
mod page;
#[path = "../shared/rule_in_database.rs"]
mod rule_in_database;
mod server;
mod stale;
#[path = "../shared/stale.rs"]
mod storm;
mod subject;
mod waiting;

use ringfence_fence::conformance::{Outcome, Rule, run_rule};
use ringfence_fence::mysql::MysqlFence;
use server::Server;
use std::sync::Mutex;
use subject::MysqlSubject;

#[test]
fn t01_t02_t03_t07_t09_the_fence_in_mariadb_conforms_at_every_isolation() {
    let Some(server) = Server::start() else { return };
    let server = Mutex::new(server);
    for isolation in database::ISOLATIONS {
        let subject = MysqlSubject::new(&server, isolation, MysqlFence::MIGRATION_SQL);
        for rule in Rule::ALL {
            // A crash takes its time, and knows nothing of isolation, as housekeeping does.
            let of_the_server =
                matches!(rule, Rule::SurvivesCrash | Rule::CrashKeepsBinding | Rule::SurvivesCleanUp);
            if !of_the_server || isolation == "REPEATABLE READ" {
                assert_eq!(run_rule(&subject, *rule), Outcome::Held, "{isolation}: {}", rule.name());
            }
        }
    }
}
