//! The SQL of docs/fences.md and docs/effects.md, run as it stands there, block by block, with psql.

use crate::database::Database;
use crate::server::{Server, shared};
use crate::subject::runtime;
use std::io::Write;
use std::process::Stdio;

/// The blocks of SQL of a page, in their order.
fn blocks(page: &str) -> Vec<String> {
    let path = format!("{}/../../docs/{page}", env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(path).unwrap();
    let after = page.split("```sql\n").skip(1);
    after.map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

fn run(server: &Server, database: &str, block: &str) -> (bool, String) {
    let mut psql = server.psql(database);
    psql.args(["-a", "-v", "VERBOSITY=verbose", "-v", "QUIET=off", "-f", "-"]);
    let mut child = psql.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(block.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said =
        [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat();
    (output.status.success(), said)
}

/// Runs the blocks of a page in a database where these migrations were run. Answers how many of the blocks were refused, and
/// how many answers were as they stand there.
fn run_page(page: &str, migrations: &[&str]) -> Option<(u32, u32)> {
    let server = shared()?;
    let db = runtime().block_on(Database::bare(server));
    for migration in migrations {
        let path = format!("{}/postgres/migrations/{migration}", env!("CARGO_MANIFEST_DIR"));
        let (installed, said) = run(server, &db.name, &std::fs::read_to_string(path).unwrap());
        assert!(installed, "{said}");
    }
    let (mut refused, mut answered) = (0, 0);
    for block in blocks(page) {
        let (worked, said) = run(server, &db.name, &block);
        // What a block says of itself, in a comment: `-- refused: SQLSTATE` or `-- answers: TEXT`.
        let refusal = block.lines().find_map(|line| line.strip_prefix("-- refused: "));
        assert_eq!(worked, refusal.is_none(), "{block}\n{said}");
        if let Some(code) = refusal {
            assert!(said.contains(&format!("ERROR:  {code}:")), "{block}\n{said}");
            refused += 1;
        }
        for answer in block.lines().filter_map(|line| line.strip_prefix("-- answers: ")) {
            assert!(said.lines().any(|line| line.trim() == answer), "{block}\n{said}");
            answered += 1;
        }
    }
    Some((refused, answered))
}

#[test]
fn a22_a49_b15_t01_t02_the_sql_of_the_page_does_what_the_page_says() {
    let Some((refused, answered)) = run_page("fences.md", &["0001_ringfence.sql"]) else { return };
    assert!(refused >= 2 && answered >= 9, "{refused} {answered}");
}

#[test]
fn a24_t19_the_sql_of_the_page_of_effects_does_what_the_page_says() {
    let migrations = ["0001_ringfence.sql", "0002_effects.sql"];
    let Some((refused, answered)) = run_page("effects.md", &migrations) else { return };
    assert!(refused >= 1 && answered >= 6, "{refused} {answered}");
}
