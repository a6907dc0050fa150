//! A worker whose ownerships a test looks at.

use super::soon;
use super::store::Store;
use ringfence::ownership::NotOwner;
use ringfence::worker::Builder;
use ringfence::{Error, Ownership, Worker};
use tokio::sync::mpsc;

/// A worker of one keyspace whose owner is obedient: it raises, is ready, and returns when it is revoked.
pub(crate) struct Member {
    pub(crate) worker: Worker,
    grants: mpsc::UnboundedReceiver<Ownership>,
}

impl Member {
    /// Joins with owners that write to this store.
    pub(crate) async fn join(builder: Builder, keyspace: &str, store: &Store) -> Member {
        Member::try_join(builder, keyspace, store).await.unwrap()
    }

    /// The same, when it may be refused.
    pub(crate) async fn try_join(builder: Builder, keyspace: &str, store: &Store) -> Result<Member, Error> {
        let (granted, grants) = mpsc::unbounded_channel();
        let own = move |ownership: Ownership| {
            let granted = granted.clone();
            async move {
                ownership.ready().await?;
                // A test that has seen enough has dropped the other end.
                let _ = granted.send(ownership.clone());
                ownership.revoked().await;
                Ok::<(), NotOwner>(())
            }
        };
        let worker = builder.own_fenced(keyspace, store.declared(), own).join().await?;
        Ok(Member { worker, grants })
    }

    /// The next partition it is granted, when its owner has said that it is ready.
    pub(crate) async fn granted(&mut self) -> Ownership {
        soon("a partition is granted", self.grants.recv()).await.unwrap()
    }

    /// So many of them.
    pub(crate) async fn granted_many(&mut self, count: usize) -> Vec<Ownership> {
        let mut all = Vec::new();
        while all.len() < count {
            all.push(self.granted().await);
        }
        all
    }
}
