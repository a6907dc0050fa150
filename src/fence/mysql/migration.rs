//! The migration, statement by statement: a server takes one at a time, and `DELIMITER` is the command-line client's.

use super::MysqlFence;

/// Its statements, in their order.
pub(super) fn statements() -> impl Iterator<Item = &'static str> {
    let (_, statements) = MysqlFence::MIGRATION_SQL.split_once("DELIMITER //\n").unwrap_or_default();
    let (statements, _) = statements.split_once("DELIMITER ;").unwrap_or((statements, ""));
    statements.split("\n//\n").map(str::trim).filter(|statement| !statement.is_empty())
}

/// The one that gives the connection its own `sql_mode` back.
pub(super) const LAST: &str = "SET SESSION sql_mode = @ringfence_sql_mode";

#[cfg(test)]
mod tests {
    use super::super::{FORMAT, REVISION};
    use super::*;
    use ringfence_core::ids::Epoch;

    #[test]
    fn the_migration_is_of_this_format_and_revision() {
        let sql = MysqlFence::MIGRATION_SQL;
        assert!(sql.contains(&format!("Format {FORMAT}, revision {REVISION}.")));
        assert!(sql.contains(&format!("SET revision = {REVISION};")));
        assert!(sql.contains(&crate::MAX_JUMP.to_string()) && sql.contains(&Epoch::MAX.get().to_string()));
    }

    #[test]
    fn every_procedure_is_a_statement_of_its_own_and_the_mode_comes_back_at_the_end() {
        let all: Vec<_> = statements().collect();
        assert_eq!(all.last(), Some(&LAST));
        let made = all.iter().filter(|statement| statement.contains("CREATE PROCEDURE ")).count();
        assert_eq!(made, MysqlFence::MIGRATION_SQL.matches("\nCREATE PROCEDURE ").count());
        assert!(made > 15 && all.iter().all(|statement| !statement.contains("//")), "{made}");
        // A worker's rights are listed by name: each name is of a procedure.
        let head = MysqlFence::MIGRATION_SQL.split_once("DELIMITER").unwrap().0;
        let listed =
            head.split(|c: char| !c.is_ascii_lowercase() && c != '_').filter(|w| w.starts_with("ringfence_"));
        for name in listed.filter(|name| *name != "ringfence_") {
            assert!(sql_makes(name), "{name}");
        }
    }

    fn sql_makes(name: &str) -> bool {
        name == "ringfence_sql" || MysqlFence::MIGRATION_SQL.contains(&format!("CREATE PROCEDURE {name}("))
    }
}
