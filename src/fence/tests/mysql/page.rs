//! The SQL of docs/fences-mysql.md, run as it stands there, block by block, with the command-line client.

use crate::database::Database;
use crate::server::{Server, shared};
use crate::subject::runtime;
use std::io::Write;
use std::process::Stdio;

/// The blocks of SQL of the page, in their order.
fn blocks() -> Vec<String> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/fences-mysql.md");
    let page = std::fs::read_to_string(page).unwrap();
    let after = page.split("```sql\n").skip(1);
    after.map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

fn run(server: &Server, database: &str, block: &str) -> (bool, String) {
    let mut client = server.client("mariadb", database);
    let mut child =
        client.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(block.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said =
        [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat();
    (output.status.success(), said)
}

#[test]
fn a22_a49_b15_t01_t02_the_sql_of_the_page_does_what_the_page_says() {
    let Some(server) = shared() else { return };
    let db = runtime().block_on(Database::bare(server));
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/mysql/migrations/0001_ringfence.sql");
    let (installed, said) = run(server, &db.name, &std::fs::read_to_string(path).unwrap());
    assert!(installed, "{said}");
    let (mut refused, mut answered) = (0, 0);
    for block in blocks() {
        let (worked, said) = run(server, &db.name, &block);
        // What a block says of itself, in a comment: `-- refused: SQLSTATE` or `-- answers: TEXT`.
        let refusal = block.lines().find_map(|line| line.strip_prefix("-- refused: "));
        assert_eq!(worked, refusal.is_none(), "{block}\n{said}");
        if let Some(code) = refusal {
            assert!(said.contains(&format!("ERROR 1644 ({code})")), "{block}\n{said}");
            refused += 1;
        }
        for answer in block.lines().filter_map(|line| line.strip_prefix("-- answers: ")) {
            assert!(said.lines().any(|line| line.replace('\t', " ") == answer), "{block}\n{said}");
            answered += 1;
        }
    }
    assert!(refused >= 2 && answered >= 11, "{refused} {answered}");
}
