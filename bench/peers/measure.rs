//! The measures: each for a while, of one server at a time, while the others stand idle.

use crate::peer::{Client, Peer};
use anyhow::{Context as _, Result, bail};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;
use tokio::task::JoinSet;

const TTL: Duration = Duration::from_secs(10);
/// How long a server may take until it serves.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until a lock can be taken.
pub async fn until_it_serves(peer: &dyn Peer) -> Result<()> {
    let began = Instant::now();
    loop {
        let tried = async {
            let mut client = peer.client(0, TTL).await?;
            client.acquire("warm-up").await?;
            client.release().await
        };
        match tokio::time::timeout(Duration::from_secs(5), tried).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) if began.elapsed() > PATIENCE => return Err(error.context(peer.name())),
            Err(_) if began.elapsed() > PATIENCE => bail!("{} does not serve", peer.name()),
            _ => tokio::time::sleep(Duration::from_millis(200)).await,
        }
    }
}

async fn clients(peer: &dyn Peer, count: usize) -> Result<Vec<Box<dyn Client>>> {
    let mut clients = Vec::with_capacity(count);
    for number in 0..count {
        clients.push(peer.client(number, TTL).await?);
    }
    Ok(clients)
}

/// Acquire and release in a circle, and how many pairs there were a second. `name` gives each client its lock.
async fn pairs(
    peer: &dyn Peer,
    count: usize,
    lasts: Duration,
    name: impl Fn(usize) -> String,
) -> Result<f64> {
    let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut tasks = JoinSet::new();
    for (number, mut client) in clients(peer, count).await?.into_iter().enumerate() {
        let (stop, done, name) = (Arc::clone(&stop), Arc::clone(&done), name(number));
        tasks.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                client.acquire(&name).await?;
                client.release().await?;
                done.fetch_add(1, Ordering::Relaxed);
            }
            anyhow::Ok(())
        });
    }
    // What is cold costs the first few.
    tokio::time::sleep(lasts / 4).await;
    let (before, began) = (done.load(Ordering::Relaxed), Instant::now());
    tokio::time::sleep(lasts).await;
    let (after, took) = (done.load(Ordering::Relaxed), began.elapsed());
    stop.store(true, Ordering::Relaxed);
    let all_end = async {
        while let Some(ended) = tasks.join_next().await {
            ended??;
        }
        anyhow::Ok(())
    };
    let ended = tokio::time::timeout(PATIENCE, all_end).await;
    ended.with_context(|| format!("{}: somebody waits for a lock that nobody gets", peer.name()))??;
    Ok((after - before) as f64 / took.as_secs_f64())
}

/// Hand-overs a second of one lock that 16 clients want all the time.
pub async fn contended(peer: &dyn Peer, lasts: Duration) -> Result<f64> {
    pairs(peer, 16, lasts, |_| "contended".to_owned()).await
}

/// Pairs of acquire and release a second, of 64 clients with a lock each.
pub async fn uncontended(peer: &dyn Peer, lasts: Duration) -> Result<f64> {
    pairs(peer, 64, lasts, |number| format!("own-{number}")).await
}

/// The same of one client: what it waits for, in milliseconds.
pub async fn alone(peer: &dyn Peer, lasts: Duration) -> Result<f64> {
    Ok(1_000.0 / pairs(peer, 1, lasts, |_| "alone".to_owned()).await?)
}

/// How long after its holder was killed the next one has the lock, in milliseconds. The sessions last two seconds.
pub async fn killed(peer: &dyn Peer) -> Result<f64> {
    let ttl = Duration::from_secs(2);
    let mut holder = Command::new(std::env::current_exe()?)
        .args(["--hold", &peer.address(), "--ttl-ms", &ttl.as_millis().to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let mut said = BufReader::new(holder.stdout.take().context("its output is piped")?).lines();
    if said.next_line().await?.as_deref() != Some("held") {
        bail!("the holder did not come to hold the lock");
    }
    let mut next = peer.client(1, ttl).await?;
    let waiting = tokio::spawn(async move {
        next.acquire("killed").await?;
        let at = Instant::now();
        next.release().await?;
        anyhow::Ok(at)
    });
    // Somewhere between two renewals, so that no run of theirs is favoured.
    tokio::time::sleep(ttl / 2).await;
    let began = Instant::now();
    holder.kill().await?;
    let at =
        tokio::time::timeout(Duration::from_secs(30), waiting).await.context("nobody got the lock")???;
    Ok(at.duration_since(began).as_secs_f64() * 1_000.0)
}

/// What the process does that is killed.
pub async fn hold(peer: &dyn Peer, ttl: Duration) -> Result<()> {
    let mut client = peer.client(0, ttl).await?;
    client.acquire("killed").await?;
    println!("held");
    std::future::pending().await
}
