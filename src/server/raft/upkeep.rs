//! What a node does for itself now and then: compacts its log by size and time, notices a sick disk, and as the leader
//! writes down which stores its members have.

use super::members;
use super::node::Inner;
use ringfence_core::ids::LogIndex;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::Instant;

/// Often enough to notice a slow flush within its bound, seldom enough to cost nothing.
const EVERY: Duration = Duration::from_millis(250);

/// Goes on for as long as the node has a handle.
pub(super) async fn run(node: Weak<Inner>) {
    let mut last_snapshot = Mark { index: None, at: Instant::now(), appended: 0 };
    let mut handed_over = None;
    let mut ticks = ticks();
    loop {
        ticks.tick().await;
        let Some(node) = alive(&node) else { return };
        watch_disk(&node, &mut handed_over).await;
        compact(&node, &mut last_snapshot).await;
    }
}

/// The same, for what may have to wait for a quorum, which the rest must not.
pub(super) async fn run_slow(node: Weak<Inner>) {
    let mut ticks = ticks();
    loop {
        ticks.tick().await;
        let Some(node) = alive(&node) else { return };
        members::note_stores(&node).await;
    }
}

fn ticks() -> tokio::time::Interval {
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    ticks
}

fn alive(node: &Weak<Inner>) -> Option<Arc<Inner>> {
    node.upgrade().filter(|node| node.health.stopped().is_none())
}

/// Where things stood when the newest snapshot appeared.
struct Mark {
    index: Option<u64>,
    at: Instant,
    appended: u64,
}

/// A leader whose disk hangs still sends heartbeats, so nobody else would lead: it must step aside by itself. It asks
/// again when nobody has taken over.
async fn watch_disk(node: &Arc<Inner>, asked: &mut Option<Instant>) {
    let slow = node.health.flush_age().filter(|age| *age >= node.config.slow_disk);
    node.health.sick(slow.map(|age| {
        format!("writing the log has taken {} s so far: look at the disk of this node", age.as_secs())
    }));
    let again = node.config.timings.election_max * 4;
    if slow.is_none() {
        *asked = None;
    } else if node.status.borrow().leads() && asked.is_none_or(|at| at.elapsed() >= again) {
        *asked = Some(Instant::now());
        if let Some(to) = members::furthest_voter(node) {
            // An error means that the core has stopped, which the status says.
            let _ = node.raft.trigger().transfer_leader(to).await;
        }
    }
}

async fn compact(node: &Arc<Inner>, last: &mut Mark) {
    let (bytes, appended) = node.log.bytes();
    let (snapshot, applied) = {
        let status = node.status.borrow();
        (status.snapshot.map(LogIndex::get), status.applied.map(|p| p.index.get()))
    };
    if snapshot != last.index {
        *last = Mark { index: snapshot, at: Instant::now(), appended };
    }
    let bounds = &node.config.compaction;
    let grown = appended - last.appended >= bounds.bytes;
    let old = last.at.elapsed() >= bounds.every;
    if applied > snapshot && (grown || old) {
        // Not again before this one had its time.
        last.at = Instant::now();
        last.appended = appended;
        let _ = node.raft.trigger().snapshot().await;
    }
    // The library keeps a number of entries behind a snapshot; when those are large, that number is too many.
    let purged = node.log.purged().map(|id| id.index());
    if bytes >= bounds.bytes.saturating_mul(2)
        && let Some(upto) = snapshot
        && purged < snapshot
    {
        let _ = node.raft.trigger().purge_log(upto).await;
    }
}
