//! What a check costs in SQLite, beside the same statements in the same kind of transaction without it, through rusqlite and
//! through sqlx, with fsync on.
//! `cargo bench -p ringfence-fence --bench fence_sqlite`

use ringfence_core::ids::ClusterId;
use ringfence_fence::FencingToken;
use ringfence_fence::sqlite::{SqliteFence, SqlxFence};
use rusqlite::TransactionBehavior::Immediate;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{Connection as _, SqliteConnection};
use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

const ROUNDS: usize = 2_000;
const TABLE: &str = "CREATE TABLE orders (id INTEGER PRIMARY KEY, state INTEGER NOT NULL)";
const UPDATE: &str = "UPDATE orders SET state = state + 1 WHERE id = ?1";

type Outcome<T> = Result<T, Box<dyn Error>>;

fn quantile(times: &mut [Duration], share: f64) -> f64 {
    times.sort_unstable();
    let place = (times.len() as f64 * share) as usize;
    times[place.min(times.len() - 1)].as_secs_f64() * 1e6
}

/// One of each in turn, so that whatever else the machine does meets both alike.
fn report(name: &str, mut plain: Vec<Duration>, mut fenced: Vec<Duration>) {
    let p50 = (quantile(&mut plain, 0.5), quantile(&mut fenced, 0.5));
    let p99 = (quantile(&mut plain, 0.99), quantile(&mut fenced, 0.99));
    println!(
        "{name:46} p50 {:6.0} us, without {:6.0} us: {:.2}x   p99 {:6.0} us, without {:6.0} us",
        p50.1,
        p50.0,
        p50.1 / p50.0,
        p99.1,
        p99.0
    );
}

fn table() -> String {
    let rows: Vec<String> = (0..100).map(|id| format!("({id}, 0)")).collect();
    format!("{TABLE}; INSERT INTO orders VALUES {}", rows.join(", "))
}

fn with_rusqlite(path: &Path, journal: &str, tokens: &[FencingToken], rows: i64) -> Outcome<()> {
    let mut conn = rusqlite::Connection::open(path)?;
    conn.pragma_update(None, "journal_mode", journal)?;
    conn.pragma_update(None, "synchronous", "FULL")?;
    conn.execute_batch(&table())?;
    let fence = SqliteFence::install(&conn, &ClusterId::new("prod")?)?;
    fence.raise_all(&mut conn, tokens)?;
    let (mut plain, mut fenced) = (Vec::new(), Vec::new());
    for round in 0..2 * ROUNDS {
        let start = Instant::now();
        let tx = conn.transaction_with_behavior(Immediate)?;
        if round % 2 == 1 {
            fence.check_all(&tx, tokens)?;
        }
        for row in 0..rows {
            tx.prepare_cached(UPDATE)?.execute([row])?;
        }
        tx.commit()?;
        if round % 2 == 1 { &mut fenced } else { &mut plain }.push(start.elapsed());
    }
    report(&format!("rusqlite, {journal}, {} scope(s), {rows} row(s)", tokens.len()), plain, fenced);
    Ok(())
}

async fn with_sqlx(path: &Path, journal: &str, tokens: &[FencingToken], rows: i64) -> Outcome<()> {
    let options = SqliteConnectOptions::new().filename(path).create_if_missing(true);
    let options =
        options.journal_mode(journal.parse::<SqliteJournalMode>()?).synchronous(SqliteSynchronous::Full);
    let mut conn = SqliteConnection::connect_with(&options).await?;
    sqlx::raw_sql(sqlx::AssertSqlSafe(table())).execute(&mut conn).await?;
    let fence = SqlxFence::install(&mut conn, &ClusterId::new("prod")?).await?;
    fence.raise_all(&mut conn, tokens).await?;
    let (mut plain, mut fenced) = (Vec::new(), Vec::new());
    for round in 0..2 * ROUNDS {
        let start = Instant::now();
        let mut tx = conn.begin_with("BEGIN IMMEDIATE").await?;
        if round % 2 == 1 {
            fence.check_all(&mut tx, tokens).await?;
        }
        for row in 0..rows {
            sqlx::query(UPDATE).bind(row).execute(&mut *tx).await?;
        }
        tx.commit().await?;
        if round % 2 == 1 { &mut fenced } else { &mut plain }.push(start.elapsed());
    }
    report(&format!("sqlx, {journal}, {} scope(s), {rows} row(s)", tokens.len()), plain, fenced);
    Ok(())
}

fn main() -> Outcome<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let tokens =
        (0..4).map(|p| format!("prod/orders/{p}@33").parse()).collect::<Result<Vec<FencingToken>, _>>()?;
    for journal in ["wal", "delete"] {
        for (count, rows) in [(1, 1), (1, 10), (4, 4)] {
            let dir = tempfile::tempdir()?;
            with_rusqlite(&dir.path().join("rusqlite"), journal, &tokens[..count], rows)?;
            runtime.block_on(with_sqlx(&dir.path().join("sqlx"), journal, &tokens[..count], rows))?;
        }
    }
    Ok(())
}
