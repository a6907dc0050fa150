//! What happens in the demo, in order.

use super::audit::{Audit, audit};
use super::ledger::{Ledger, Writer};
use super::messages::{Tell, Told};
use super::report::Report;
use super::stage::{KEYSPACE, PARTITIONS, PATIENCE, Stage};
use super::store;
use super::timeline::{Timeline, Tone};
use anyhow::Context as _;
use ringfence::ErrorKind;
use ringfence::admin::{Admin, PolicyChange};
use ringfence::ids::{PartitionId, WorkerId};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// Short, so that the demo is; long enough for a busy machine.
const TTL: Duration = Duration::from_secs(3);
/// Planned moves whose handoff is measured.
const MOVES: u32 = 12;
/// Acknowledged writes in a partition's new place before the next move, so that each is measured under load.
const WRITES_BETWEEN: usize = 20;

/// Tells the whole story and returns what the file shows.
pub(super) async fn tell(dir: &Path, fence: bool, timeline: &Timeline) -> anyhow::Result<Report> {
    timeline.say(Tone::Plain, "starting three nodes");
    let mut stage = Stage::set(dir, fence, timeline).await?;
    let admin = stage.cluster.admin()?;
    let change = PolicyChange { ttl: Some(TTL), ..PolicyChange::default() };
    admin.create_keyspace(KEYSPACE, PARTITIONS, &change).await?;
    let leader = stage.cluster.leader().await?.leader.context("a leader")?;
    stage.say(Tone::Plain, format!("the cluster has formed, {leader} leads; keyspace {KEYSPACE}: {PARTITIONS} partitions, ttl {TTL:?}"));

    // The file's tables are made before three processes race for it.
    drop(store::open(&stage.database())?);
    for worker in ["w1", "w2", "w3"] {
        stage.start_worker(worker)?;
    }
    stage.balanced(&["w1", "w2", "w3"]).await?;
    stage.say(
        Tone::Plain,
        format!("three workers write to one SQLite file, {} partitions each", PARTITIONS / 3),
    );

    pause(&mut stage).await?;
    let worker_failover_ms = kill_worker(&mut stage).await?;
    let (leader_failover_ms, lost) = kill_leader(&mut stage).await?;
    let moves = planned_moves(&mut stage).await?;

    stage.leave_all().await?;
    stage.say(Tone::Plain, "the workers have left; reading the file");
    let seen = audit(&store::open(&stage.database())?, &stage.ledger.acks)?;
    let report = report(fence, &stage.ledger, &seen, &moves, worker_failover_ms, leader_failover_ms, lost);
    stage.cluster.stop().await?;
    Ok(report)
}

/// A worker stops itself after it has stamped a write and before it sends it, past its lease. Whatever it checks, it has
/// checked before: only the store can refuse.
async fn pause(stage: &mut Stage<'_>) -> anyhow::Result<()> {
    stage.tell("w1", Tell::StopAfterStamping).await?;
    stage.until("w1 has stamped a write and stops", |ledger| ledger.stopping.is_some()).await?;
    stage.stopped("w1").await?;
    let Some(Told::Stopping { partition, epoch, seq }) = stage.ledger.stopping.clone() else {
        anyhow::bail!("w1 stopped without a write");
    };
    stage.say(
        Tone::Fault,
        format!("w1 stamped write {seq} of {KEYSPACE}/{partition} with epoch {epoch}, and is stopped before it sends it (SIGSTOP)"),
    );
    let held = stage.ledger.written_by("w1");
    // Only then is there a newer owner for the stale write to meet.
    stage
        .until("every partition of w1 is written under a higher epoch", |ledger| ledger.all_above(&held))
        .await?;
    let next = &stage.ledger.writers[&partition];
    let text = format!(
        "its lease ran out; {} writes {KEYSPACE}/{partition} under epoch {}",
        next.worker, next.epoch
    );
    stage.say(Tone::Good, text);

    stage.worker("w1")?.resume()?;
    stage.say(Tone::Fault, "w1 is resumed (SIGCONT), and sends the write it stamped");
    let settled = move |ledger: &Ledger| {
        let refused = ledger.refused.iter().any(|told| {
            matches!(told, Told::Refused { partition: p, epoch: e, seq: s, .. } if (*p, *e, *s) == (partition, epoch, seq))
        });
        let accepted = ledger
            .acks
            .iter()
            .rev()
            .any(|ack| (ack.partition, ack.epoch, ack.seq) == (partition, epoch, seq));
        ledger.resumed && (refused || accepted)
    };
    stage.until("the stale write was answered", settled).await?;
    match stage.ledger.refused.first() {
        Some(Told::Refused { epoch, highest, .. }) => {
            let text =
                format!("the store refuses it: epoch {epoch} was replaced, it has seen epoch {highest}");
            stage.say(Tone::Good, text);
        }
        _ => stage
            .say(Tone::Bad, "the store takes it: it overwrites what the new owner wrote under that number"),
    }
    stage.balanced(&["w1", "w2", "w3"]).await?;
    stage.say(Tone::Plain, "w1 has joined anew and writes its share again");
    Ok(())
}

/// A worker dies. Its partitions are written by others after its lease at the latest.
async fn kill_worker(stage: &mut Stage<'_>) -> anyhow::Result<f64> {
    let held = stage.ledger.written_by("w2");
    stage.worker("w2")?.kill().await?;
    let killed = Instant::now();
    stage.say(Tone::Fault, "w2 is killed (SIGKILL)");
    stage
        .until("every partition of w2 is written under a higher epoch", |ledger| ledger.all_above(&held))
        .await?;
    let took =
        held.keys().filter_map(|partition| stage.ledger.writers.get(partition)).map(|writer| writer.since);
    let took_ms = took.max().map_or(0.0, |last| (last - killed).as_secs_f64() * 1e3);
    stage.say(
        Tone::Good,
        format!("all its partitions are written by others, {took_ms:.0} ms after it was killed"),
    );
    stage.start_worker("w2")?;
    stage.balanced(&["w1", "w2", "w3"]).await?;
    stage.say(Tone::Plain, "w2 is started again and writes its share");
    Ok(took_ms)
}

/// The leader dies. Its successor changes nothing about who owns what.
async fn kill_leader(stage: &mut Stage<'_>) -> anyhow::Result<(f64, u64)> {
    let before: BTreeMap<u32, u64> = stage.ledger.writers.iter().map(|(p, w)| (*p, w.epoch)).collect();
    let admin = stage.cluster.admin()?;
    let leader = stage.cluster.leader().await?.leader.context("a leader")?;
    stage.cluster.kill(leader.get()).await?;
    let killed = Instant::now();
    stage.say(Tone::Fault, format!("the leader, {leader}, is killed (SIGKILL)"));
    // Any change that a majority has on disk; setting the ttl to what it is is one, and moves nothing.
    let change = PolicyChange { ttl: Some(TTL), ..PolicyChange::default() };
    stage.meanwhile(admin.update_keyspace(KEYSPACE, &change)).await?;
    let took_ms = killed.elapsed().as_secs_f64() * 1e3;
    let next = stage.cluster.leader().await?.leader.context("a leader")?;
    stage.say(Tone::Good, format!("{next} leads and has committed a change, {took_ms:.0} ms after the kill"));

    // A lease that the failover had shortened would show within a TTL.
    stage.meanwhile(tokio::time::sleep(TTL + Duration::from_millis(500))).await;
    let moved = |(partition, epoch): (&u32, &u64)| {
        stage.ledger.writers.get(partition).is_none_or(|w| w.epoch != *epoch)
    };
    let lost = before.iter().filter(|held| moved(*held)).count() as u64;
    let tone = if lost == 0 { Tone::Good } else { Tone::Bad };
    stage.say(tone, format!("{lost} of {PARTITIONS} partitions changed hands because of it"));
    stage.cluster.restart(leader.get())?;
    Ok((took_ms, lost))
}

/// Partitions move while they are written to. Returns, for each move, the partition and its epochs before and after.
async fn planned_moves(stage: &mut Stage<'_>) -> anyhow::Result<Vec<(u32, u64, u64)>> {
    let admin = stage.cluster.admin()?;
    // Or balancing would answer each move with one of its own, and those measured would not be those made here.
    let change = PolicyChange { balance: Some(false), ..PolicyChange::default() };
    stage.meanwhile(admin.update_keyspace(KEYSPACE, &change)).await?;
    let mut moves = Vec::new();
    for turn in 0..MOVES {
        let partition = turn % PARTITIONS;
        let writer = start_move(stage, &admin, partition).await?;
        let above = BTreeMap::from([(partition, writer.epoch)]);
        stage
            .until("the moved partition is written by its new owner", |ledger| ledger.all_above(&above))
            .await?;
        moves.push((partition, writer.epoch, stage.ledger.writers[&partition].epoch));
        let enough = stage.ledger.acks.len() + WRITES_BETWEEN;
        stage.until("the workers go on writing", |ledger| ledger.acks.len() >= enough).await?;
    }
    stage.say(Tone::Good, format!("{MOVES} partitions were moved under load, one after the other"));
    Ok(moves)
}

/// Starts the move of a partition to a worker that does not own it; returns who wrote it before.
async fn start_move(stage: &mut Stage<'_>, admin: &Admin, partition: u32) -> anyhow::Result<Writer> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let writer = stage.ledger.writers[&partition].clone();
        let to = ["w1", "w2", "w3"].into_iter().find(|worker| *worker != writer.worker).unwrap_or("w1");
        let to = WorkerId::new(to)?;
        let moved = admin.move_partition(KEYSPACE, PartitionId::new(partition), &to);
        match stage.meanwhile(moved).await {
            Ok(_) => return Ok(writer),
            // On a machine busy enough for its lease to run out, that worker is about to join anew.
            Err(error) if error.kind() == ErrorKind::NotFound && Instant::now() < deadline => {
                stage.meanwhile(tokio::time::sleep(Duration::from_millis(100))).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn report(
    fence: bool,
    ledger: &Ledger,
    seen: &Audit,
    moves: &[(u32, u64, u64)],
    worker_failover_ms: f64,
    leader_failover_ms: f64,
    lost_at_leader_failover: u64,
) -> Report {
    // From the last write under the old epoch to the first under the new one, as the file has them.
    let gap = |(partition, from, to): &(u32, u64, u64)| {
        let (_, last) = seen.tenures.get(&(*partition, *from))?;
        let (first, _) = seen.tenures.get(&(*partition, *to))?;
        Some((first - last) as f64 / 1e6)
    };
    let mut gaps: Vec<f64> = moves.iter().filter_map(gap).collect();
    gaps.sort_by(f64::total_cmp);
    let p99 = gaps.get((gaps.len() * 99).div_ceil(100).saturating_sub(1)).copied().unwrap_or(f64::NAN);
    Report {
        fence,
        acknowledged_writes: ledger.acks.len() as u64,
        stale_writes_refused: ledger.refused.len() as u64,
        stale_writes_accepted: seen.stale_accepted,
        acknowledged_writes_lost: seen.lost,
        handoffs: seen.handoffs,
        planned_handoff_ms_p99: p99,
        planned_handoffs: gaps.len() as u64,
        worker_failover_ms,
        leader_failover_ms,
        partitions_lost_at_leader_failover: lost_at_leader_failover,
        ttl_ms: u64::try_from(TTL.as_millis()).unwrap_or(u64::MAX),
    }
}
