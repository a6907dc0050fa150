//! The fence in PostgreSQL: the conformance suite, then case by case, against a server that the tests start themselves.

#![allow(clippy::unwrap_used, reason = "a set-up that fails is a test that fails")]

mod cases;
mod controls;
mod crash;
mod database;
mod effects;
mod installing;
mod interleavings;
mod model;
mod page;
#[path = "../shared/payments.rs"]
mod payments;
#[path = "../shared/rule_in_database.rs"]
mod rule_in_database;
mod server;
mod stale;
#[path = "../shared/stale.rs"]
mod storm;
mod subject;
mod waiting;

use ringfence_fence::conformance::{Outcome, Rule, run_rule};
use ringfence_fence::postgres::PostgresFence;
use server::Server;
use subject::PostgresSubject;

fn conforms(sqlx: bool, isolations: &[&'static str]) {
    let Some(server) = Server::start() else { return };
    for isolation in isolations {
        let functions = PostgresFence::MIGRATION_SQL;
        let subject = PostgresSubject { server: &server, sqlx, isolation, functions };
        for rule in Rule::ALL {
            // A crash takes its time, and knows nothing of isolation, as housekeeping does.
            let of_the_server =
                matches!(rule, Rule::SurvivesCrash | Rule::CrashKeepsBinding | Rule::SurvivesCleanUp);
            if !of_the_server || *isolation == "read committed" {
                assert_eq!(run_rule(&subject, *rule), Outcome::Held, "{isolation}: {}", rule.name());
            }
        }
    }
}

#[test]
fn t01_t02_t03_t07_t09_the_fence_in_postgresql_conforms_with_tokio_postgres_at_every_isolation() {
    conforms(false, &["read committed", "repeatable read", "serializable"]);
}

#[test]
fn t01_t02_t03_t07_t09_the_fence_in_postgresql_conforms_with_sqlx() {
    conforms(true, &["read committed"]);
}
