//! The core alone: entries applied per second, the time of a full plan, and memory per partition.
//!
//! `cargo bench -p ringfence-core --bench core`

#![allow(missing_docs, clippy::unwrap_used)]

use ringfence_core::ids::{ClusterId, KeyspaceId, KeyspaceName, LogIndex, PartitionKey, SessionId, WorkerId};
use ringfence_core::placement::{Candidate, PartitionCount, Spot, View, Weight, plan};
use ringfence_core::state::{Command, Entry, GrantReason, Join, Outcome, Policy, Released, State};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// A state and the index of its next entry.
struct Log {
    state: State,
    next: u64,
}

impl Log {
    fn apply(&mut self, commands: Vec<Command>) -> Vec<Outcome> {
        self.next += 1;
        let entry = Entry { request: None, proposed_unix_ms: 0, commands };
        self.state.apply(LogIndex::new(self.next), &entry).outcome.unwrap()
    }

    /// One keyspace, and two workers, the first of which owns everything.
    fn with_partitions(partitions: u32) -> (Log, KeyspaceId, [SessionId; 2]) {
        let mut log = Log { state: State::new(), next: 0 };
        log.apply(vec![Command::FormCluster { cluster: ClusterId::new("bench").unwrap(), lineage: 1 }]);
        let created = log.apply(vec![Command::CreateKeyspace {
            keyspace: KeyspaceName::new("orders").unwrap(),
            partitions: PartitionCount::new(partitions).unwrap(),
            policy: Policy::default(),
        }]);
        let Outcome::Created(keyspace) = created[0] else { panic!("{created:?}") };
        let sessions = [1, 2].map(|n: u8| {
            let joined = log.apply(vec![Command::Join(Box::new(Join {
                worker: WorkerId::new(&format!("worker-{n}")).unwrap(),
                nonce: u128::from(n),
                secret_hash: [n; 32],
                address: "127.0.0.1:1".to_string(),
                weight: Weight::ONE,
                labels: BTreeMap::new(),
                keyspaces: BTreeSet::from([keyspace]),
                replaces: None,
                splits: false,
                ends_drain: None,
                ttl: None,
            }))]);
            let Outcome::Joined(session) = joined[0] else { panic!("{joined:?}") };
            session
        });
        let keys: Vec<PartitionKey> = log.state.keyspace(keyspace).unwrap().keys().collect();
        for chunk in keys.chunks(500) {
            let grants = chunk.iter().map(|key| Command::Grant {
                partition: *key,
                replaces: None,
                to: sessions[0],
                why: GrantReason::First,
            });
            log.apply(grants.collect());
        }
        (log, keyspace, sessions)
    }

    /// The commands of one handoff: release by the owner, grant to the other.
    fn handoff(&self, partition: PartitionKey, sessions: [SessionId; 2]) -> [Command; 2] {
        let found = self.state.partition(partition).unwrap();
        let (epoch, owner) = (found.epoch().unwrap(), found.owner().unwrap());
        let to = if owner == sessions[0] { sessions[1] } else { sessions[0] };
        [
            Command::Release { partition, epoch, session: owner, how: Released::Revoked },
            Command::Grant { partition, replaces: Some(epoch), to, why: GrantReason::Balance },
        ]
    }
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * 4096
}

fn handoffs_per_second(partitions_an_entry: usize) -> f64 {
    let (mut log, keyspace, sessions) = Log::with_partitions(10_000);
    let keys: Vec<PartitionKey> = log.state.keyspace(keyspace).unwrap().keys().collect();
    let (start, mut done) = (Instant::now(), 0usize);
    'measure: loop {
        for chunk in keys.chunks(partitions_an_entry) {
            let commands: Vec<Command> = chunk.iter().flat_map(|key| log.handoff(*key, sessions)).collect();
            log.apply(commands);
            done += chunk.len();
            if start.elapsed() > Duration::from_secs(1) {
                break 'measure;
            }
        }
    }
    done as f64 / start.elapsed().as_secs_f64()
}

fn plan_ms(partitions: u32, workers: u32, weighted: bool) -> (f64, u64) {
    let keyspace = KeyspaceName::new("orders").unwrap();
    let mut candidates: Vec<Candidate> = (0..workers)
        .map(|n| {
            Candidate::new(
                WorkerId::new(&format!("worker-{n}")).unwrap(),
                Weight::new(if weighted { 1 + n % 4 } else { 1 }).unwrap(),
            )
        })
        .collect();
    candidates.sort_by(|a, b| a.worker.cmp(&b.worker));
    let spots = vec![Spot::VACANT; partitions as usize];
    let mut best = f64::MAX;
    let mut spread = 0;
    for _ in 0..5 {
        let start = Instant::now();
        let plan = plan(&View::new(&keyspace, &candidates, &spots)).unwrap();
        best = best.min(start.elapsed().as_secs_f64() * 1e3);
        spread = plan.after.spread;
        assert_eq!(plan.moves.len(), partitions as usize);
    }
    (best, spread)
}

fn main() {
    println!("State::apply, one handoff an entry:      {:>10.0} handoffs/s", handoffs_per_second(1));
    println!("State::apply, 500 handoffs an entry:     {:>10.0} handoffs/s", handoffs_per_second(500));
    let (ms, spread) = plan_ms(100_000, 10_000, false);
    println!("full plan, 100000 partitions, 10000 workers:            {ms:>7.1} ms (spread {spread})");
    let (ms, spread) = plan_ms(100_000, 10_000, true);
    println!("full plan, the same, weights 1 to 4:                    {ms:>7.1} ms (spread {spread})");
    let before = resident_bytes();
    let (log, _, _) = Log::with_partitions(1_000_000);
    let bytes = (resident_bytes() - before) as f64 / 1e6;
    println!("memory a partition that was granted once:  {bytes:>8.0} bytes");
    drop(log);
}
