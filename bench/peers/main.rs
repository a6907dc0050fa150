//! `ringfence-peers`: lock measures of ringfence beside etcd and ZooKeeper.
//!
//! It starts three nodes of each on the loopback, measures one after the other in rounds, so that a noisy minute meets all
//! of them, and prints the median of the rounds and its ratio to the best peer. It says so when a peer wins.
//!
//! | module | what it is |
//! |---|---|
//! | `stage` | servers of this run's own |
//! | `peer` | what is measured, of whichever server |
//! | `etcd`, `zookeeper`, `ringfence` | the servers and their clients |
//! | `measure` | the measures |
//! | `report` | medians and ratios |

mod etcd;
mod measure;
mod ours;
mod peer;
mod report;
mod stage;
mod zookeeper;

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use peer::Peer;
use report::{Better, Report};
use std::time::Duration;

/// Lock measures of ringfence beside etcd and ZooKeeper, in one run.
#[derive(Parser)]
struct Args {
    /// Which servers to measure beside ringfence; `none` for ringfence alone.
    #[arg(long, value_delimiter = ',', default_value = "etcd,zookeeper")]
    peers: Vec<String>,
    /// How often each measure is taken.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// How long each takes, in milliseconds.
    #[arg(long, default_value_t = 2_000)]
    lasts_ms: u64,
    /// Prints JSON instead of a table.
    #[arg(long)]
    json: bool,
    /// Holds a lock until it is killed; for the run itself.
    #[arg(long, hide = true)]
    hold: Option<String>,
    #[arg(long, hide = true, default_value_t = 2_000)]
    ttl_ms: u64,
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    if let Some(hold) = &args.hold {
        let (kind, at) = hold.split_once('=').context("KIND=ADDRESSES")?;
        let peer: Box<dyn Peer> = match kind {
            "etcd" => Box::new(etcd::Etcd::at(at)),
            "zookeeper" => Box::new(zookeeper::ZooKeeper::at(at)),
            "ringfence" => Box::new(ours::Ringfence::at(at, false)),
            "ringfence-fence" => Box::new(ours::Ringfence::at(at, true)),
            other => bail!("there is no peer {other}"),
        };
        return measure::hold(&*peer, Duration::from_millis(args.ttl_ms)).await;
    }

    let ringfence = ours::Ringfence::start().await?;
    let by_fence = ringfence.by_fence();
    let mut all: Vec<Box<dyn Peer>> = vec![Box::new(ringfence)];
    for peer in args.peers.iter().filter(|peer| *peer != "none") {
        all.push(match peer.as_str() {
            "etcd" => Box::new(etcd::Etcd::start().await?),
            "zookeeper" => Box::new(zookeeper::ZooKeeper::start().await?),
            other => bail!("there is no peer {other}: etcd, zookeeper, none"),
        });
    }
    let lasts = Duration::from_millis(args.lasts_ms);
    let mut report = Report::default();
    for round in 1..=args.rounds {
        eprintln!("round {round} of {}", args.rounds);
        for peer in &all {
            let name = peer.name();
            let mut add = |what, better, value| report.add(what, better, &name, value);
            add(
                "hand-overs of one lock, 16 clients, /s",
                Better::More,
                measure::contended(&**peer, lasts).await?,
            );
            add(
                "acquire and release, 64 clients, /s",
                Better::More,
                measure::uncontended(&**peer, lasts).await?,
            );
            add("acquire and release, one client, ms", Better::Less, measure::alone(&**peer, lasts).await?);
            add("holder killed to next holder, TTL 2 s, ms", Better::Less, measure::killed(&**peer).await?);
        }
        let value = measure::killed(&by_fence).await?;
        report.add("holder killed to next holder, TTL 2 s, ms", Better::Less, &by_fence.name(), value);
    }
    if args.json {
        println!("{}", report.json());
    } else {
        print!("{}", report.table());
    }
    Ok(())
}
