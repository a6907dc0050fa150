//! Reads the file and says what happened to it. It trusts nobody: what a worker was told counts as acknowledged, what
//! the file holds counts as kept.

use super::ledger::Ack;
use rusqlite::Connection;
use std::collections::{BTreeMap, BTreeSet};

/// What the file shows.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Audit {
    /// Writes that the store took although it had taken one of a higher epoch of that partition before.
    pub(super) stale_accepted: u64,
    /// Acknowledged writes that are not in the file any more.
    pub(super) lost: u64,
    /// Changes of epoch, over all partitions.
    pub(super) handoffs: u64,
    /// For each partition and epoch: when its first and its last write was taken, on the machine's monotonic clock.
    pub(super) tenures: BTreeMap<(u32, u64), (i64, i64)>,
}

/// Reads the whole file against what was acknowledged.
pub(super) fn audit(conn: &Connection, acks: &[Ack]) -> rusqlite::Result<Audit> {
    let mut audit = Audit::default();

    let mut highest: BTreeMap<u32, u64> = BTreeMap::new();
    let mut epochs: BTreeMap<u32, BTreeSet<u64>> = BTreeMap::new();
    let mut journal = conn.prepare("SELECT partition, epoch, at_ns FROM journal ORDER BY n")?;
    let mut rows = journal.query([])?;
    while let Some(row) = rows.next()? {
        let (partition, epoch, at): (u32, u64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let top = highest.entry(partition).or_insert(epoch);
        if epoch < *top {
            audit.stale_accepted += 1;
        }
        *top = epoch.max(*top);
        epochs.entry(partition).or_default().insert(epoch);
        let tenure = audit.tenures.entry((partition, epoch)).or_insert((at, at));
        tenure.0 = tenure.0.min(at);
        tenure.1 = tenure.1.max(at);
    }
    audit.handoffs = epochs.values().map(|of| of.len() as u64 - 1).sum();

    let mut kept: BTreeMap<(u32, u64), u64> = BTreeMap::new();
    let mut records = conn.prepare("SELECT partition, seq, epoch FROM records")?;
    let mut rows = records.query([])?;
    while let Some(row) = rows.next()? {
        kept.insert((row.get(0)?, row.get(1)?), row.get(2)?);
    }
    let is_kept = |ack: &&Ack| kept.get(&(ack.partition, ack.seq)) == Some(&ack.epoch);
    audit.lost = acks.iter().filter(|ack| !is_kept(ack)).count() as u64;
    Ok(audit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(journal: &[(u32, u64, u64)]) -> Connection {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch(
            "CREATE TABLE records (partition, seq, epoch, worker, PRIMARY KEY (partition, seq));
             CREATE TABLE journal (n INTEGER PRIMARY KEY, partition, seq, epoch, worker, at_ns)",
        )
        .unwrap();
        for (n, (partition, seq, epoch)) in journal.iter().enumerate() {
            conn.execute("INSERT OR REPLACE INTO records VALUES (?1, ?2, ?3, 'w')", (partition, seq, epoch))
                .unwrap();
            conn.execute(
                "INSERT INTO journal VALUES (?1, ?2, ?3, ?4, 'w', ?1)",
                (n as i64, partition, seq, epoch),
            )
            .unwrap();
        }
        conn
    }

    fn acks(of: &[(u32, u64, u64)]) -> Vec<Ack> {
        of.iter()
            .map(|(partition, seq, epoch)| Ack { partition: *partition, seq: *seq, epoch: *epoch })
            .collect()
    }

    #[test]
    fn a_clean_handoff_shows_nothing_lost_and_nothing_stale() {
        let writes = [(0, 1, 1), (0, 2, 1), (0, 3, 2)];
        let seen = audit(&file(&writes), &acks(&writes)).unwrap();
        assert_eq!((seen.stale_accepted, seen.lost, seen.handoffs), (0, 0, 1));
    }

    #[test]
    fn a_stale_write_that_overwrites_a_newer_owner_s_is_stale_and_loses_one() {
        let writes = [(0, 1, 1), (0, 2, 2), (0, 2, 1)];
        let seen = audit(&file(&writes), &acks(&writes)).unwrap();
        assert_eq!((seen.stale_accepted, seen.lost, seen.handoffs), (1, 1, 1));
    }

    #[test]
    fn an_acknowledged_write_that_is_not_in_the_file_is_lost() {
        let seen = audit(&file(&[(0, 1, 1)]), &acks(&[(0, 1, 1), (0, 2, 1)])).unwrap();
        assert_eq!(seen.lost, 1);
    }
}
