//! What a check costs in PostgreSQL, beside the same transaction without it. It starts a server of its own, with fsync on.
//! `cargo bench -p ringfence-fence --bench fence_postgres`

#[allow(
    dead_code,
    clippy::unwrap_used,
    reason = "the tests use more of it, and a bench that cannot start is over"
)]
#[path = "../src/fence/tests/postgres/server.rs"]
mod server;

use ringfence_core::ids::ClusterId;
use ringfence_fence::postgres::PostgresFence;
use ringfence_fence::{FenceError, FencingToken};
use sqlx::Connection as _;
use std::error::Error;
use std::time::{Duration, Instant};
use tokio_postgres::{Client, NoTls};

const ROUNDS: usize = 3_000;
const UPDATE: &str = "UPDATE orders SET state = state + 1 WHERE id = $1";

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

async fn with_tokio(
    client: &mut Client,
    fence: &PostgresFence,
    tokens: &[FencingToken],
    rows: i64,
) -> Outcome<()> {
    let (mut plain, mut fenced) = (Vec::new(), Vec::new());
    let update = client.prepare(UPDATE).await?;
    for round in 0..2 * ROUNDS {
        let start = Instant::now();
        let tx = client.transaction().await?;
        if round % 2 == 1 {
            fence.check_all(&tx, tokens).await?;
        }
        for row in 0..rows {
            tx.execute(&update, &[&row]).await?;
        }
        tx.commit().await?;
        if round % 2 == 1 { &mut fenced } else { &mut plain }.push(start.elapsed());
    }
    report(&format!("tokio-postgres, {} scope(s), {rows} row(s)", tokens.len()), plain, fenced);
    Ok(())
}

/// The check and the first statement on their way at once: a refusal ends the transaction, so nothing is at stake.
async fn together(client: &mut Client, fence: &PostgresFence, token: &FencingToken) -> Outcome<()> {
    let (mut plain, mut fenced) = (Vec::new(), Vec::new());
    let update = client.prepare(UPDATE).await?;
    for round in 0..2 * ROUNDS {
        let start = Instant::now();
        let tx = client.transaction().await?;
        if round % 2 == 1 {
            let write =
                async { tx.execute(&update, &[&7_i64]).await.map_err(|e| FenceError::store("writing", e)) };
            tokio::try_join!(fence.check(&tx, token), write)?;
        } else {
            tx.execute(&update, &[&7_i64]).await?;
        }
        tx.commit().await?;
        if round % 2 == 1 { &mut fenced } else { &mut plain }.push(start.elapsed());
    }
    report("tokio-postgres, sent with the first statement", plain, fenced);
    Ok(())
}

async fn with_sqlx(
    conn: &mut sqlx::PgConnection,
    fence: &PostgresFence,
    token: &FencingToken,
) -> Outcome<()> {
    let (mut plain, mut fenced) = (Vec::new(), Vec::new());
    for round in 0..2 * ROUNDS {
        let start = Instant::now();
        let mut tx = conn.begin().await?;
        if round % 2 == 1 {
            fence.check(&mut tx, token).await?;
        }
        sqlx::query(UPDATE).bind(7_i64).execute(&mut *tx).await?;
        tx.commit().await?;
        if round % 2 == 1 { &mut fenced } else { &mut plain }.push(start.elapsed());
    }
    report("sqlx, 1 scope(s), 1 row(s)", plain, fenced);
    Ok(())
}

async fn raises(client: &Client, fence: &PostgresFence, cluster: &ClusterId) -> Outcome<()> {
    let mut times = Vec::new();
    for epoch in 1..=ROUNDS {
        let token: FencingToken = format!("{cluster}/raised/1@{epoch}").parse()?;
        let start = Instant::now();
        fence.raise(client, &token).await?;
        times.push(start.elapsed());
    }
    println!("{:46} p50 {:6.0} us", "raise", quantile(&mut times, 0.5));
    Ok(())
}

async fn run(server: &server::Server) -> Outcome<()> {
    let mut config = tokio_postgres::Config::new();
    config.host_path(server.socket()).user("postgres").dbname("postgres");
    let (mut client, connection) = config.connect(NoTls).await?;
    tokio::spawn(connection);
    let table = "CREATE TABLE orders (id bigint PRIMARY KEY, state bigint NOT NULL);
                 INSERT INTO orders SELECT n, 0 FROM generate_series(0, 99) n; VACUUM ANALYZE orders";
    for statement in table.split(';') {
        client.batch_execute(statement).await?;
    }
    let cluster = ClusterId::new("prod")?;
    let fence = PostgresFence::install(&client, &cluster).await?;
    let tokens =
        (0..4).map(|p| format!("prod/orders/{p}@33").parse()).collect::<Result<Vec<FencingToken>, _>>()?;
    fence.raise_all(&client, &tokens).await?;
    with_tokio(&mut client, &fence, &tokens[..1], 1).await?;
    together(&mut client, &fence, &tokens[0]).await?;
    with_tokio(&mut client, &fence, &tokens[..1], 10).await?;
    with_tokio(&mut client, &fence, &tokens, 4).await?;
    let options = sqlx::postgres::PgConnectOptions::new_without_pgpass()
        .socket(server.socket())
        .username("postgres")
        .database("postgres");
    with_sqlx(&mut sqlx::PgConnection::connect_with(&options).await?, &fence, &tokens[0]).await?;
    raises(&client, &fence, &cluster).await
}

fn main() -> Outcome<()> {
    let Some(server) = server::Server::start() else { return Ok(()) };
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(run(&server))
}
