//! The handle: lookups in the current picture, and waiting for another.

use super::follow::Follower;
use super::owner::Owner;
use super::picture::Picture;
use super::view::View;
use crate::error::{Error, ErrorKind};
use crate::net::{Coordinator, Endpoints};
use arc_swap::ArcSwap;
use ringfence_core::ids::{KeyspaceName, PartitionId};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};

/// How long [`Router::connect`] waits for the first picture: longer than it takes to give up a call, so that the error
/// that says which endpoints were tried comes first.
const FIRST_PICTURE: Duration = Duration::from_secs(15);

/// Maps key -> partition -> owner from a copy of the map that follows the coordinator's.
///
/// Cheap to clone; clones share one stream, which ends with the last of them.
#[derive(Clone)]
pub struct Router(Arc<Inner>);

struct Inner {
    shared: Arc<Shared>,
    follower: AbortHandle,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.follower.abort();
    }
}

/// What the router and its task share.
pub(super) struct Shared {
    view: ArcSwap<View>,
    changed: watch::Sender<()>,
    started: Instant,
    /// Milliseconds after `started` at which the stream was lost; [`ALIVE`] while it is open.
    lost_at_ms: AtomicU64,
}

const ALIVE: u64 = u64::MAX;

impl Shared {
    pub(super) fn publish(&self, view: Arc<View>) {
        self.view.store(view);
        self.changed.send_replace(());
    }

    pub(super) fn alive(&self) {
        self.lost_at_ms.store(ALIVE, Ordering::Relaxed);
    }

    pub(super) fn lost(&self) {
        let now = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(ALIVE - 1);
        self.lost_at_ms.store(now, Ordering::Relaxed);
    }
}

impl Router {
    /// Connects, and returns with the first full picture of these keyspaces; of all of them when none is named.
    ///
    /// # Errors
    /// A keyspace does not exist, an endpoint or name is malformed, no node answered within 10 s, or no
    /// picture was complete within 15 s.
    pub async fn connect<E, K>(endpoints: E, keyspaces: K) -> Result<Router, Error>
    where
        E: TryInto<Endpoints, Error: Into<Error>>,
        K: IntoIterator<Item: AsRef<str>>,
    {
        Router::follow(&Coordinator::new(endpoints.try_into().map_err(Into::into)?), keyspaces).await
    }

    /// Like [`Router::connect`], over connections that are there already.
    ///
    /// # Errors
    /// As [`Router::connect`].
    pub async fn follow<K>(coordinator: &Coordinator, keyspaces: K) -> Result<Router, Error>
    where
        K: IntoIterator<Item: AsRef<str>>,
    {
        let names = keyspaces.into_iter().map(|name| KeyspaceName::new(name.as_ref()));
        let wanted = names.collect::<Result<BTreeSet<_>, _>>()?;
        let shared = Arc::new(Shared {
            view: ArcSwap::from_pointee(View::empty()),
            changed: watch::Sender::new(()),
            started: Instant::now(),
            lost_at_ms: AtomicU64::new(ALIVE),
        });
        let mut follower = Follower::new(coordinator.clone(), Picture::new(wanted), shared.clone());
        let first = match timeout(FIRST_PICTURE, follower.first()).await {
            Ok(first) => first?,
            Err(_) => {
                let message = "no full picture of the map arrived within 15s; see that a majority of the coordinators runs";
                return Err(Error::own(ErrorKind::Unreachable, message));
            }
        };
        let follower = tokio::spawn(follower.run(first)).abort_handle();
        Ok(Router(Arc::new(Inner { shared, follower })))
    }

    /// The owner of the partition that this key belongs to. `None` when nobody owns it now, or when the keyspace does
    /// not exist or is not followed.
    ///
    /// A few loads from memory; it takes no lock and makes no call.
    pub fn owner(&self, keyspace: &str, key: impl AsRef<[u8]>) -> Option<Owner> {
        self.0.shared.view.load().owner(keyspace, key)
    }

    /// The owner of a partition; `None` as in [`Router::owner`].
    pub fn owner_of(&self, keyspace: &str, partition: PartitionId) -> Option<Owner> {
        self.0.shared.view.load().keyspace(keyspace)?.owner(partition)
    }

    /// The partition that this key belongs to; `None` when the keyspace does not exist or is not followed.
    pub fn partition_of(&self, keyspace: &str, key: impl AsRef<[u8]>) -> Option<PartitionId> {
        Some(self.0.shared.view.load().keyspace(keyspace)?.partition_of(key))
    }

    /// The owner of the partition that this key belongs to, as soon as there is one and it is ready.
    ///
    /// It waits as long as that takes: bound it with `tokio::time::timeout`.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] when the keyspace does not exist, is deleted meanwhile, or is not followed.
    pub async fn ready_owner(&self, keyspace: &str, key: impl AsRef<[u8]>) -> Result<Owner, Error> {
        let key = key.as_ref();
        let settled = |view: &View| match view.keyspace(keyspace) {
            None => true,
            Some(_) => view.owner(keyspace, key).is_some_and(|owner| owner.is_ready()),
        };
        let view = self.wait_for(settled).await;
        view.owner(keyspace, key).ok_or_else(|| {
            let message = format!("keyspace {keyspace:?} does not exist or is not followed by this router");
            Error::own(ErrorKind::NotFound, message)
        })
    }

    /// The current picture.
    pub fn view(&self) -> Arc<View> {
        self.0.shared.view.load_full()
    }

    /// The first picture, from the current one on, of which this is true. A picture that was current for a moment
    /// only may be passed over.
    pub async fn wait_for(&self, mut is_so: impl FnMut(&View) -> bool) -> Arc<View> {
        let mut changed = self.0.shared.changed.subscribe();
        loop {
            let view = self.view();
            if is_so(&view) {
                return view;
            }
            // The sender lives in `shared`, which this router holds: it does not fail.
            let _ = changed.changed().await;
        }
    }

    /// The next picture that differs from this one, at once when the current one does.
    pub async fn changed_since(&self, seen: &View) -> Arc<View> {
        self.wait_for(|view| (view.lineage(), view.revision()) != (seen.lineage(), seen.revision())).await
    }

    /// How long the picture has not been followed: zero while the stream is open.
    ///
    /// A stream whose other end vanished without a word counts as open for up to 8 s more, until the connection's
    /// keep-alive has found it dead.
    pub fn stale_for(&self) -> Duration {
        match self.0.shared.lost_at_ms.load(Ordering::Relaxed) {
            ALIVE => Duration::ZERO,
            lost_at_ms => self.0.shared.started.elapsed().saturating_sub(Duration::from_millis(lost_at_ms)),
        }
    }
}

impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Router").field("view", &self.view()).field("stale_for", &self.stale_for()).finish()
    }
}
