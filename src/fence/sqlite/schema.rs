//! Installing the fence, for rusqlite.

use super::failure::failed;
use super::sql::{BIND, FORMAT, TABLES};
use super::{row, value};
use crate::FenceError;
use ringfence_core::ids::ClusterId;
use ringfence_core::mutant;
use rusqlite::Transaction;

/// Makes what is missing, binds the database if it is not bound, and refuses another cluster's.
pub(super) fn install(tx: &Transaction<'_>, cluster: &ClusterId) -> Result<(), FenceError> {
    let doing = "installing the fence";
    if mutant!("fence-forgotten-on-restart") {
        tx.execute_batch("DROP TABLE IF EXISTS main.ringfence_fence").map_err(failed(doing))?;
    }
    tx.execute_batch(TABLES).map_err(failed(doing))?;
    tx.execute(BIND, (FORMAT, cluster.as_str())).map_err(failed(doing))?;
    // Reads through the statement of every check, so a table of the right name and the wrong shape is found now.
    row::read(tx, &value::probe()?)?.must_be_bound_to(cluster)
}
