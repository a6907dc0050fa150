//! A sharded counter: every partition's counter is a row in SQLite, counted up by the partition's owner alone.
//!
//! Worker `a` counts all four partitions. Worker `b` joins and takes two of them over; then `a` leaves, and `b` counts
//! all four. No increment that was acknowledged is missing, and a write that `a` had stamped before it left is refused.
//!
//! ```console
//! $ cargo run --example sharded_counter
//! a counts 4 partitions
//! b has joined: a counts 2 partitions, b counts 2
//! a has left: b counts 4 partitions
//! every increment that was acknowledged is in the file: true
//! a write that a stamped before it left: refused, its epoch was replaced
//! ```

use ringfence::FencingToken;
use ringfence::Ownership;
use ringfence::admin::{Admin, PolicyChange};
use ringfence::fence::{FenceError, sqlite::SqliteFence};
use ringfence::worker::Worker;
use ringfence_server::Coordinator;
use rusqlite::Connection;
use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{oneshot, watch};

const PARTITIONS: u32 = 4;
type Failed = Box<dyn Error + Send + Sync>;

/// The counters of one SQLite file, fenced.
struct Counters {
    conn: Connection,
    fence: SqliteFence,
}

impl Counters {
    /// Opens a partition's counter for the owner that holds `token`: raises the fence, so that nobody older writes any
    /// more, and then reads.
    fn open(path: &Path, token: &FencingToken) -> Result<(Counters, u64), Failed> {
        let mut conn = Connection::open(path)?;
        conn.busy_timeout(Duration::from_secs(10))?;
        conn.execute_batch("CREATE TABLE IF NOT EXISTS counters (scope TEXT PRIMARY KEY, value INTEGER)")?;
        let fence = SqliteFence::install(&conn, token.cluster())?;
        fence.raise(&mut conn, token)?;
        let scope = token.scope().to_string();
        conn.execute("INSERT OR IGNORE INTO counters VALUES (?1, 0)", [&scope])?;
        let value =
            conn.query_row("SELECT value FROM counters WHERE scope = ?1", [&scope], |row| row.get(0))?;
        Ok((Counters { conn, fence }, value))
    }

    /// Writes the counter; the check of the stamp and the write are one transaction.
    fn set(&mut self, stamp: &FencingToken, value: u64) -> Result<(), FenceError> {
        self.fence.write(&mut self.conn, std::slice::from_ref(stamp), |tx| {
            tx.execute("UPDATE counters SET value = ?2 WHERE scope = ?1", (stamp.scope().to_string(), value))
                .map_err(|error| FenceError::store("counting", error))?;
            Ok(())
        })
    }
}

/// Who counts what, and what was acknowledged: the example's own view from outside.
#[derive(Clone, Default)]
struct Seen {
    counting: BTreeMap<u32, &'static str>,
    acknowledged: BTreeMap<u32, u64>,
    last_stamp: BTreeMap<&'static str, FencingToken>,
}

/// Owns one partition. This is all a worker is: open (which raises the fence), say ready, stamp and write until revoked.
async fn count(
    me: &'static str,
    partition: Ownership,
    file: PathBuf,
    seen: Arc<watch::Sender<Seen>>,
) -> Result<(), Failed> {
    let number = partition.partition().get();
    let (counters, mut value) = Counters::open(&file, partition.token())?;
    let counters = Arc::new(Mutex::new(counters));
    partition.ready().await?;
    while partition.until_revoked(tokio::time::sleep(Duration::from_millis(5))).await.is_some() {
        let stamp = partition.stamp()?;
        value += 1;
        let (counters, write) = (Arc::clone(&counters), stamp.clone());
        // SQLite blocks, so it gets a thread.
        let write = move || {
            counters.lock().map_err(|_| "another write panicked")?.set(&write, value).map_err(Failed::from)
        };
        tokio::task::spawn_blocking(write).await??;
        seen.send_modify(|seen| {
            seen.counting.insert(number, me);
            seen.acknowledged.insert(number, value);
            seen.last_stamp.insert(me, stamp);
        });
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Failed> {
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("counters.sqlite");
    Connection::open(&file)?.pragma_update(None, "journal_mode", "WAL")?;
    let coordinator = Coordinator::in_memory().start().await?;
    let admin = Admin::at(coordinator.endpoint().as_str())?;
    admin.create_keyspace("counters", PARTITIONS, &PolicyChange::default()).await?;

    let seen = Arc::new(watch::Sender::new(Seen::default()));
    let mut changes = seen.subscribe();
    let start = |me: &'static str| {
        let (file, seen, endpoint) = (file.clone(), Arc::clone(&seen), coordinator.endpoint());
        async move {
            let own = move |partition| count(me, partition, file.clone(), Arc::clone(&seen));
            let worker =
                Worker::builder(me).coordinator(endpoint.as_str()).own("counters", own).join().await?;
            let (leave, left) = oneshot::channel::<()>();
            let serving = tokio::spawn(worker.serve_until(async {
                let _ = left.await;
            }));
            Ok::<_, Failed>((leave, serving))
        }
    };
    let counts = |seen: &Seen, me: &str| seen.counting.values().filter(|who| **who == me).count();

    let (a_leaves, a) = start("a").await?;
    let shown = changes.wait_for(|seen| counts(seen, "a") == 4).await?.clone();
    println!("a counts {} partitions", counts(&shown, "a"));

    let (b_leaves, b) = start("b").await?;
    let shown = changes.wait_for(|seen| counts(seen, "b") == 2).await?.clone();
    println!("b has joined: a counts {} partitions, b counts {}", counts(&shown, "a"), counts(&shown, "b"));

    let old_stamp = shown.last_stamp.get("a").cloned().ok_or("a never wrote")?;
    drop(a_leaves);
    a.await??;
    let shown = changes.wait_for(|seen| counts(seen, "b") == 4).await?.clone();
    println!("a has left: b counts {} partitions", counts(&shown, "b"));
    drop(b_leaves);
    b.await??;

    let acknowledged = changes.borrow().acknowledged.clone();
    let conn = Connection::open(&file)?;
    let mut kept = 0;
    for (partition, value) in &acknowledged {
        let scope = format!("counters/{partition}");
        let in_file: u64 =
            conn.query_row("SELECT value FROM counters WHERE scope = ?1", [scope], |row| row.get(0))?;
        kept += usize::from(in_file == *value);
    }
    println!("every increment that was acknowledged is in the file: {}", kept == PARTITIONS as usize);

    let fence = SqliteFence::install(&conn, old_stamp.cluster())?;
    let mut late = Counters { conn, fence };
    match late.set(&old_stamp, 0) {
        Err(FenceError::Fenced(_)) => {
            println!("a write that a stamped before it left: refused, its epoch was replaced");
        }
        other => println!("a write that a stamped before it left: {other:?}"),
    }
    coordinator.shutdown().await?;
    Ok(())
}
