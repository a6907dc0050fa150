//! What a check costs in MariaDB, beside the same transaction without it. It starts a server of its own, with fsync on.
//! `cargo bench -p ringfence-fence --bench fence_mysql`

#[allow(
    dead_code,
    clippy::unwrap_used,
    reason = "the tests use more of it, and a bench that cannot start is over"
)]
#[path = "../src/fence/tests/mysql/server.rs"]
mod server;

use ringfence_core::ids::ClusterId;
use ringfence_fence::FencingToken;
use ringfence_fence::mysql::MysqlFence;
use sqlx::mysql::{MySqlConnectOptions, MySqlSslMode};
use sqlx::{Connection as _, MySqlConnection};
use std::error::Error;
use std::time::{Duration, Instant};

const ROUNDS: usize = 2_000;
const UPDATE: &str = "UPDATE orders SET state = state + 1 WHERE id = ?";

type Outcome<T> = Result<T, Box<dyn Error>>;

fn quantile(times: &mut [Duration], share: f64) -> f64 {
    times.sort_unstable();
    let place = (times.len() as f64 * share) as usize;
    times[place.min(times.len() - 1)].as_secs_f64() * 1e6
}

/// One of each in turn, so that whatever else the machine does meets both alike.
async fn writes(
    conn: &mut MySqlConnection,
    fence: &MysqlFence,
    tokens: &[FencingToken],
    rows: i64,
) -> Outcome<()> {
    let (mut plain, mut fenced) = (Vec::new(), Vec::new());
    for round in 0..2 * ROUNDS {
        let start = Instant::now();
        let mut tx = conn.begin().await?;
        if round % 2 == 1 {
            fence.check_all(&mut tx, tokens).await?;
        }
        for row in 0..rows {
            sqlx::query(UPDATE).bind(row).execute(&mut *tx).await?;
        }
        if round % 2 == 1 {
            fence.commit(tx).await?;
            fenced.push(start.elapsed());
        } else {
            tx.commit().await?;
            plain.push(start.elapsed());
        }
    }
    let p50 = (quantile(&mut plain, 0.5), quantile(&mut fenced, 0.5));
    let p99 = (quantile(&mut plain, 0.99), quantile(&mut fenced, 0.99));
    println!(
        "{:30} p50 {:6.0} us, without {:6.0} us: {:.2}x   p99 {:6.0} us, without {:6.0} us",
        format!("{} scope(s), {rows} row(s)", tokens.len()),
        p50.1,
        p50.0,
        p50.1 / p50.0,
        p99.1,
        p99.0
    );
    Ok(())
}

async fn run(server: &server::Server) -> Outcome<()> {
    let options = MySqlConnectOptions::new().socket(server.socket()).username("root").database("mysql");
    let mut conn = MySqlConnection::connect_with(&options.ssl_mode(MySqlSslMode::Disabled)).await?;
    let rows: Vec<String> = (0..100).map(|id| format!("({id}, 0)")).collect();
    for statement in [
        "CREATE DATABASE bench",
        "USE bench",
        "CREATE TABLE orders (id BIGINT PRIMARY KEY, state BIGINT NOT NULL) ENGINE = InnoDB",
        &format!("INSERT INTO orders VALUES {}", rows.join(", ")),
    ] {
        sqlx::raw_sql(sqlx::AssertSqlSafe(statement)).execute(&mut conn).await?;
    }
    let fence = MysqlFence::install(&mut conn, &ClusterId::new("prod")?).await?;
    let tokens =
        (0..4).map(|p| format!("prod/orders/{p}@33").parse()).collect::<Result<Vec<FencingToken>, _>>()?;
    fence.raise_all(&mut conn, &tokens).await?;
    for (count, rows) in [(1, 1), (1, 10), (4, 4)] {
        writes(&mut conn, &fence, &tokens[..count], rows).await?;
    }
    let mut times = Vec::new();
    for epoch in 1..=ROUNDS / 4 {
        let token: FencingToken = format!("prod/raised/1@{epoch}").parse()?;
        let start = Instant::now();
        fence.raise(&mut conn, &token).await?;
        times.push(start.elapsed());
    }
    println!("{:30} p50 {:6.0} us", "raise", quantile(&mut times, 0.5));
    Ok(())
}

fn main() -> Outcome<()> {
    let Some(server) = server::Server::synced() else { return Ok(()) };
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(run(&server))
}
