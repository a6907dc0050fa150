//! Whether this node still hears of a leader. One look wakes all streams when it does not: thousands of them, each with a
//! timer of its own, would keep an idle node busy.

use crate::context::Context;
use ringfence_core::mutant;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Whether this node is in touch with its cluster.
#[derive(Clone)]
pub(crate) struct Contact {
    context: Context,
    leaderless: Duration,
    lost: watch::Receiver<()>,
}

impl Contact {
    /// Looks until `stop` is cancelled. A node that has heard nothing for `leaderless` is out of touch.
    pub(crate) fn watch(context: Context, leaderless: Duration, stop: CancellationToken) -> Contact {
        let (tell, lost) = watch::channel(());
        let contact = Contact { context, leaderless, lost };
        let looker = contact.clone();
        tokio::spawn(async move {
            let mut tick = tokio::time::interval(leaderless / 8);
            loop {
                tokio::select! {
                    () = stop.cancelled() => return,
                    _ = tick.tick() => {}
                }
                if !looker.is_kept() {
                    tell.send_replace(());
                }
            }
        });
        contact
    }

    /// It is in touch.
    pub(crate) fn is_kept(&self) -> bool {
        let since = self.context.raft.since_contact();
        since.is_some_and(|silence| silence <= self.leaderless) || mutant!("leaderless-node-is-followed")
    }

    /// Returns when it is not, a little later than that is so.
    pub(crate) async fn lost(&mut self) {
        if self.lost.changed().await.is_err() {
            // The node stops, which its streams are told by other means.
            std::future::pending::<()>().await;
        }
    }
}
