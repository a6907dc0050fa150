//! Turns what the library, the applier and the health report say into one status.

use super::health::{Health, Report};
use super::machine::Position;
use super::net::Stores;
use super::status::{Member, RaftStatus, Role};
use super::types::Types;
use openraft::async_runtime::Instant;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::metrics::RaftMetrics;
use openraft::{RaftTypeConfig, ServerState};
use ringfence_core::ids::{LogIndex, NodeId, Term};
use std::sync::Arc;
use tokio::sync::watch;

type Metrics = <<<Types as RaftTypeConfig>::AsyncRuntime as openraft::AsyncRuntime>::Watch as openraft::async_runtime::watch::Watch>::Receiver<RaftMetrics<Types>>;

/// Follows a node until it has stopped.
pub(super) struct Watcher {
    pub(super) metrics: Metrics,
    pub(super) applied: watch::Receiver<Option<Position>>,
    pub(super) health: Arc<Health>,
    pub(super) stores: Stores,
    pub(super) status: watch::Sender<RaftStatus>,
}

impl Watcher {
    pub(super) async fn run(mut self) {
        let mut report = self.health.watch();
        loop {
            self.publish(&mut report);
            let running = tokio::select! {
                changed = self.metrics.changed() => changed.is_ok(),
                // The applier goes with the core, which says so by the metrics.
                Ok(()) = self.applied.changed() => true,
                Ok(()) = report.changed() => true,
            };
            if !running {
                self.health.close();
                self.publish(&mut report);
                return;
            }
        }
    }

    fn publish(&mut self, report: &mut watch::Receiver<Report>) {
        let metrics = self.metrics.borrow_watched().clone();
        let membership = metrics.membership_config.membership();
        self.stores.retain(|node| membership.get_node(&node).is_some());
        for (node, peer) in membership.nodes() {
            self.stores.joined(*node, peer.store);
        }
        if let Err(fatal) = &metrics.running_state {
            // Last in line: whoever stopped the core has said why before.
            self.health.stop(&fatal.to_string());
        }
        let report = report.borrow_and_update().clone();
        let applied = *self.applied.borrow_and_update();
        self.status.send_if_modified(|status| {
            let next = status_of(&metrics, applied, &report, status.node);
            // The time of an acknowledgement moves many times a second and wakes nobody.
            let quiet = RaftStatus { quorum_acked: status.quorum_acked, ..next.clone() };
            let changed = quiet != *status;
            *status = next;
            changed
        });
    }
}

fn status_of(
    metrics: &RaftMetrics<Types>,
    applied: Option<Position>,
    report: &Report,
    node: NodeId,
) -> RaftStatus {
    let membership = metrics.membership_config.membership();
    let known = |id: u64| NodeId::new(id).ok();
    let index = |id: Option<super::types::LogId>| id.map(|id| LogIndex::new(id.index()));
    let voters: Vec<u64> = membership.voter_ids().collect();
    let members = (membership.nodes())
        .filter_map(|(id, peer)| {
            let matched = (metrics.replication.as_ref()).and_then(|all| all.get(id).copied().flatten());
            let voter = voters.contains(id);
            Some((known(*id)?, Member { address: peer.address.clone(), voter, matched: index(matched) }))
        })
        .collect();
    let stopped = report.stopped.clone();
    let role = match metrics.state {
        _ if stopped.is_some() => Role::Stopped,
        ServerState::Leader => Role::Leader,
        ServerState::Candidate => Role::Candidate,
        ServerState::Follower => Role::Follower,
        ServerState::Learner => Role::Learner,
        ServerState::Shutdown => Role::Stopped,
    };
    let leader = (metrics.current_leader)
        .and_then(|id| Some((known(id)?, membership.get_node(&id)?.address.clone())))
        .filter(|_| role != Role::Stopped);
    RaftStatus {
        node,
        term: Term::new(metrics.current_term),
        role,
        leader,
        last_log: metrics.last_log_index.map(LogIndex::new),
        committed: index(metrics.local_committed),
        applied,
        snapshot: index(metrics.snapshot),
        purged: index(metrics.purged),
        members,
        members_changing: metrics.membership_config != metrics.committed_membership_config,
        stopped,
        sick: report.sick.clone(),
        quorum_acked: metrics
            .last_quorum_acked
            .and_then(|at| tokio::time::Instant::now().checked_sub(at.elapsed())),
    }
}
