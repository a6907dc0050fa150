//! Plans beside other ways to place partitions: how long each takes, how uneven the result is, and how many partitions
//! change hands when a worker joins or leaves.
//!
//! `cargo bench -p ringfence-core --bench placement` for all of it, `-- bars` for the two bars alone.
//!
//! The others are what one would write oneself: a ring with 64 points a worker, the same ring with a bound on the load of
//! each worker that keeps what is there (consistent hashing with bounded loads), rendezvous hashing and jump hashing. They
//! place by hash alone and know no weights here. Imbalance is the most a worker holds over its fair share, and the least;
//! the least number of moves is what any way that ends within the shares needs.

#![allow(missing_docs, clippy::unwrap_used)]

use ringfence_core::ids::{KeyspaceName, WorkerId};
use ringfence_core::placement::{
    Candidate, PartitionCount, PartitionKeys, Ring, Spot, View, Weight, WorkerIx, ZoneIx, plan,
};

/// A combination that hashes more often than this is left out: it would take minutes.
const MOST_HASHES: u64 = 200_000_000;
const POINTS: u64 = 64;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Alike,
    WeightsAndZones,
}

fn workers(count: u32, kind: Kind) -> Vec<Candidate> {
    let mut workers: Vec<Candidate> = (0..count)
        .map(|n| {
            let weight = if kind == Kind::WeightsAndZones { 1 + n % 4 } else { 1 };
            let name = WorkerId::new(&format!("worker-{n}")).unwrap();
            let zone = (kind == Kind::WeightsAndZones).then(|| ZoneIx::new(n % 3));
            Candidate { zone, ..Candidate::new(name, Weight::new(weight).unwrap()) }
        })
        .collect();
    workers.sort_by(|a, b| a.worker.cmp(&b.worker));
    workers
}

fn keyspace() -> KeyspaceName {
    KeyspaceName::new("orders").unwrap()
}

/// The most and the least of what workers hold over their fair share.
fn imbalance(owners: &[u32], weights: &[u32]) -> (f64, f64) {
    let mut held = vec![0_u32; weights.len()];
    owners.iter().for_each(|owner| held[*owner as usize] += 1);
    let total: f64 = weights.iter().map(|weight| f64::from(*weight)).sum();
    let over = held
        .iter()
        .zip(weights)
        .map(|(held, weight)| f64::from(*held) * total / (owners.len() as f64 * f64::from(*weight)));
    (over.clone().fold(0.0, f64::max), over.fold(f64::MAX, f64::min))
}

fn changed(before: &[u32], after: &[u32], renamed: impl Fn(u32) -> Option<u32>) -> usize {
    before.iter().zip(after).filter(|(before, after)| renamed(**before) != Some(**after)).count()
}

/// How long this thread has computed. A plan is made by one thread alone, and what else runs on the machine should not
/// count.
fn cpu_ms() -> f64 {
    // What a running thread has used is brought up to date when it yields.
    std::thread::yield_now();
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    schedstat.split_whitespace().next().unwrap().parse::<u64>().unwrap() as f64 / 1e6
}

/// What one way of placing does in one world: the first assignment, a worker more, a worker less.
struct Row {
    first_ms: f64,
    imbalance: (f64, f64),
    join_ms: f64,
    joined: usize,
    leave_ms: f64,
    left: usize,
}

fn print(name: &str, row: Option<&Row>) {
    match row {
        None => println!("    {name:<28} left out: it takes minutes"),
        Some(Row { first_ms, imbalance: (most, least), join_ms, joined, leave_ms, left }) => println!(
            "    {name:<28} {first_ms:>9.1}   {most:>6.3} {least:>6.3}   {join_ms:>9.1} {joined:>8}   {leave_ms:>9.1} {left:>8}"
        ),
    }
}

/// The product: the full plan builds ring and keys, the others are given both as the leader keeps them, but for the ring
/// of the new set of workers.
fn ours(partitions: u32, count: u32, kind: Kind) -> Row {
    let (name, first) = (keyspace(), workers(count, kind));
    let weights: Vec<u32> = first.iter().map(|worker| worker.weight.get()).collect();
    let keys = PartitionKeys::new(&name, PartitionCount::new(partitions).unwrap());
    let vacant = vec![Spot::VACANT; partitions as usize];
    let mut first_ms = f64::MAX;
    let mut owners = Vec::new();
    for _ in 0..3 {
        let start = cpu_ms();
        let made = plan(&View::new(&name, &first, &vacant)).unwrap();
        first_ms = first_ms.min(cpu_ms() - start);
        assert!(made.after.spread <= 1 && made.after.zone_spread <= 1);
        assert_eq!(made.moves.len(), partitions as usize);
        owners = vec![0; partitions as usize];
        made.moves.iter().for_each(|m| owners[m.partition.get() as usize] = m.to.get() as u32);
    }
    let imbalance = imbalance(&owners, &weights);

    // The ring is changed with the workers, and its building is measured with the plan.
    let again = |workers: &[Candidate], spots: &[Spot]| {
        let mut best = f64::MAX;
        let mut moves = 0;
        for _ in 0..3 {
            let start = cpu_ms();
            let ring = Ring::new(workers).unwrap();
            let made = plan(&View::new(&name, workers, spots).with_ring(&ring).with_keys(&keys)).unwrap();
            best = best.min(cpu_ms() - start);
            assert!(made.after.spread <= 1 && made.after.zone_spread <= 1);
            moves = made.moves.len();
        }
        (best, moves)
    };
    // A name that sorts last leaves the indices of the others.
    let mut more = first.clone();
    more.push(Candidate::new(WorkerId::new("worker-x").unwrap(), Weight::ONE));
    let owned: Vec<Spot> = owners.iter().map(|owner| Spot::owned(WorkerIx::new(*owner))).collect();
    let (join_ms, joined) = again(&more, &owned);
    let gone = count - 1;
    let left_over: Vec<Spot> = owners
        .iter()
        .map(|owner| if *owner == gone { Spot::VACANT } else { Spot::owned(WorkerIx::new(*owner)) })
        .collect();
    let (leave_ms, left) = again(&first[..gone as usize], &left_over);
    Row { first_ms, imbalance, join_ms, joined, leave_ms, left }
}

/// The same with a load for each partition, from 1 to 100: it balances to half of a tenth of the mean load, so the moves
/// are fewer than a fair share.
fn by_load(partitions: u32, count: u32) -> Row {
    let (name, first) = (keyspace(), workers(count, Kind::Alike));
    let loads: Vec<u32> =
        (0..partitions).map(|partition| 1 + (mixed(partition.into(), 5) % 100) as u32).collect();
    let planned = |workers: &[Candidate], spots: &[Spot]| {
        let start = cpu_ms();
        let made = plan(&View::new(&name, workers, spots).with_loads(&loads)).unwrap();
        (cpu_ms() - start, made)
    };
    let (first_ms, made) = planned(&first, &vec![Spot::VACANT; partitions as usize]);
    let mean = made.after.loads.iter().sum::<u64>() as f64 / f64::from(count);
    let over = |load: Option<&u64>| *load.unwrap() as f64 / mean;
    let imbalance = (over(made.after.loads.iter().max()), over(made.after.loads.iter().min()));
    let mut owned = vec![Spot::VACANT; partitions as usize];
    made.moves.iter().for_each(|m| owned[m.partition.get() as usize] = Spot::owned(m.to));
    let mut more = first.clone();
    more.push(Candidate::new(WorkerId::new("worker-x").unwrap(), Weight::ONE));
    let (join_ms, joined) = planned(&more, &owned);
    let gone = Some(Spot::owned(WorkerIx::new(count - 1)));
    owned.iter_mut().filter(|spot| Some(**spot) == gone).for_each(|spot| *spot = Spot::VACANT);
    let (leave_ms, left) = planned(&first[..count as usize - 1], &owned);
    Row { first_ms, imbalance, join_ms, joined: joined.moves.len(), leave_ms, left: left.moves.len() }
}

/// A mixer of 64 bits (splitmix64): good enough to spread, and quick.
fn mixed(a: u64, b: u64) -> u64 {
    let mut x = a.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ b.wrapping_mul(0xd1b5_4a32_d192_ed03);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

fn points(workers: u32) -> Vec<(u64, u32)> {
    let point = |worker: u32| (0..POINTS).map(move |n| (mixed(u64::from(worker) << 8 | n, 1), worker));
    let mut points: Vec<(u64, u32)> = (0..workers).flat_map(point).collect();
    points.sort_unstable();
    points
}

fn at_or_after(points: &[(u64, u32)], partition: u32) -> usize {
    let key = mixed(partition.into(), 2);
    points.partition_point(|point| point.0 < key) % points.len()
}

fn plain_ring(partitions: u32, workers: u32, _: &[Option<u32>]) -> Vec<u32> {
    let points = points(workers);
    (0..partitions).map(|partition| points[at_or_after(&points, partition)].1).collect()
}

/// Nobody holds more than the mean rounded up; who owns a partition keeps it while that holds.
fn bounded_ring(partitions: u32, workers: u32, owned: &[Option<u32>]) -> Vec<u32> {
    let points = points(workers);
    let bound = partitions.div_ceil(workers);
    let mut held = vec![0; workers as usize];
    let mut owners = vec![u32::MAX; partitions as usize];
    for (owner, before) in owners.iter_mut().zip(owned) {
        if let Some(before) = before.filter(|before| held[*before as usize] < bound) {
            *owner = before;
            held[before as usize] += 1;
        }
    }
    // Full points are skipped for good, with halved paths, or this would take minutes.
    let mut next: Vec<u32> = (0..points.len() as u32).collect();
    for partition in 0..partitions {
        if owners[partition as usize] != u32::MAX {
            continue;
        }
        let mut at = at_or_after(&points, partition);
        loop {
            while next[at] as usize != at {
                next[at] = next[next[at] as usize];
                at = next[at] as usize;
            }
            let worker = points[at].1;
            if held[worker as usize] < bound {
                owners[partition as usize] = worker;
                held[worker as usize] += 1;
                break;
            }
            // Around the end nobody is linked, so that no path is a circle.
            let after = (at + 1) % points.len();
            if after > at {
                next[at] = after as u32;
            }
            at = after;
        }
    }
    owners
}

fn rendezvous(partitions: u32, workers: u32, _: &[Option<u32>]) -> Vec<u32> {
    let best =
        |partition: u32| (0..workers).max_by_key(|worker| mixed(partition.into(), u64::from(*worker) + 3));
    (0..partitions).map(|partition| best(partition).unwrap()).collect()
}

/// Lamping and Veach 2014. It knows only numbers of workers, so whoever leaves is the last one.
fn jump(partitions: u32, workers: u32, _: &[Option<u32>]) -> Vec<u32> {
    let of = |partition: u32| {
        let (mut key, mut at, mut next) = (mixed(partition.into(), 4), 0_i64, 0_i64);
        while next < i64::from(workers) {
            at = next;
            key = key.wrapping_mul(2_862_933_555_777_941_757).wrapping_add(1);
            next = ((at + 1) as f64 * ((1_u64 << 31) as f64 / ((key >> 33) + 1) as f64)) as i64;
        }
        at as u32
    };
    (0..partitions).map(of).collect()
}

fn theirs(partitions: u32, count: u32, place: impl Fn(u32, u32, &[Option<u32>]) -> Vec<u32>) -> Row {
    let timed = |workers: u32, owned: &[Option<u32>]| {
        let start = cpu_ms();
        let owners = place(partitions, workers, owned);
        (cpu_ms() - start, owners)
    };
    let (first_ms, owners) = timed(count, &vec![None; partitions as usize]);
    let owned: Vec<Option<u32>> = owners.iter().copied().map(Some).collect();
    let (join_ms, joined) = timed(count + 1, &owned);
    let left_over: Vec<Option<u32>> =
        owned.iter().map(|owner| owner.filter(|owner| *owner != count - 1)).collect();
    let (leave_ms, left) = timed(count - 1, &left_over);
    Row {
        first_ms,
        imbalance: imbalance(&owners, &vec![1; count as usize]),
        join_ms,
        joined: changed(&owners, &joined, Some),
        leave_ms,
        left: changed(&owners, &left, |owner| (owner != count - 1).then_some(owner)),
    }
}

fn bar(what: &str, measured: f64, at_most: f64) {
    let verdict = if measured <= at_most { "met" } else { "MISSED" };
    println!("{what}: {measured:.1} ms, at most {at_most} ms: {verdict}");
}

fn bars(full: f64, changes: &[f64]) {
    bar("full plan of 100000 partitions on 10000 workers, weights and zones", full, 50.0);
    let slowest = changes.iter().copied().fold(0.0, f64::max);
    bar("one join or leave, 1000000 partitions on 1000 workers, the slowest of four", slowest, 100.0);
}

fn main() {
    let changes_of = |rows: [&Row; 2]| rows.map(|row| [row.join_ms, row.leave_ms]).concat();
    if std::env::args().any(|arg| arg == "bars") {
        let full = ours(100_000, 10_000, Kind::WeightsAndZones);
        let many = [Kind::Alike, Kind::WeightsAndZones].map(|kind| ours(1_000_000, 1_000, kind));
        return bars(full.first_ms, &changes_of([&many[0], &many[1]]));
    }
    println!(
        "ms of the first assignment; the most and the least over the fair share; ms and moves of one join; of one leave"
    );
    let (mut full, mut changes) = (0.0, Vec::new());
    for partitions in [1_000, 100_000, 1_000_000] {
        for count in [10, 1_000, 10_000] {
            println!("{partitions} partitions, {count} workers");
            let alike = ours(partitions, count, Kind::Alike);
            let rich = ours(partitions, count, Kind::WeightsAndZones);
            print("ringfence", Some(&alike));
            print("ringfence, weights and zones", Some(&rich));
            if (partitions, count) == (100_000, 10_000) {
                full = rich.first_ms;
            }
            if (partitions, count) == (1_000_000, 1_000) {
                changes = changes_of([&alike, &rich]);
            }
            print("ringfence, by load", Some(&by_load(partitions, count)));
            print("plain ring", Some(&theirs(partitions, count, plain_ring)));
            print("bounded ring", Some(&theirs(partitions, count, bounded_ring)));
            let hashes = 3 * u64::from(partitions) * u64::from(count);
            let rendezvous = (hashes <= MOST_HASHES).then(|| theirs(partitions, count, rendezvous));
            print("rendezvous", rendezvous.as_ref());
            print("jump", Some(&theirs(partitions, count, jump)));
        }
    }
    println!();
    bars(full, &changes);
}
