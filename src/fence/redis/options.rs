//! How a store is asked to hold a fence, and what is accepted of it.

use super::RedisFence;
use super::commands::{Commands, unfit};
use super::keys::{BINDING, Tagging};
use super::reply::{Answer, corrupt_binding};
use super::script;
use super::server::Server;
use crate::FenceError;
use redis::aio::ConnectionLike;
use ringfence_core::ids::ClusterId;
use std::sync::Arc;
use std::time::Duration;

/// What of the answered raises a restart of the server may take back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    Nothing,
    OfASecond,
    AtRestart,
}

/// Whom a raise waits for, beyond the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wait {
    pub(super) replicas: u32,
    pub(super) on_disk: bool,
    pub(super) within: Duration,
}

/// What to ask of a store before it is believed, and what to accept. Made by [`RedisFence::options`].
///
/// Each method that takes something away is named after what it takes.
#[derive(Clone, Debug)]
pub struct RedisOptions {
    cluster: ClusterId,
    tagging: Tagging,
    loss: Loss,
    stated: bool,
    detecting: bool,
    wait: Option<Wait>,
}

impl RedisOptions {
    pub(super) fn new(cluster: ClusterId) -> RedisOptions {
        let (tagging, loss) = (Tagging::EachScope, Loss::Nothing);
        RedisOptions { cluster, tagging, loss, stated: false, detecting: true, wait: None }
    }

    /// Accepts `appendfsync everysec`: a crash may take back the raises (and writes) of the last second or two.
    ///
    /// A restart is noticed (see [`FenceError::Replaced`]) whatever it has lost, so a replaced owner that had raised before it
    /// stays refused. What is given up is the owner's own acknowledged writes.
    #[must_use]
    pub fn accepting_loss_of_a_second(mut self) -> RedisOptions {
        self.loss = self.loss.max_of(Loss::OfASecond);
        self
    }

    /// Accepts a server that keeps nothing, or old snapshots only (`appendonly no`): data and fence go back together.
    #[must_use]
    pub fn accepting_loss_at_restart(mut self) -> RedisOptions {
        self.loss = self.loss.max_of(Loss::AtRestart);
        self
    }

    /// Takes the caller's word, where a managed service hides CONFIG, that every answered write is on disk
    /// (`appendonly yes`, `appendfsync always`) and that no key without a time to live is evicted. What can be read is
    /// judged all the same.
    #[must_use]
    pub fn stating_durable_settings(mut self) -> RedisOptions {
        self.stated = true;
        self
    }

    /// Does not ask in each script which life of which server it runs on. For servers that do not tell their replication id
    /// (`INFO replication`). A failover that lost a raise, or a restore from a copy, then lets a replaced owner write until the
    /// new owner has raised again.
    #[must_use]
    pub fn without_detecting_replacement(mut self) -> RedisOptions {
        self.detecting = false;
        self
    }

    /// Puts all fences under one hash tag, such as `shop`, so that a write can cover several scopes in a cluster, which
    /// then all live in one slot. A tag is 1 to 63 characters without braces.
    ///
    /// Every process must use the same: other tags mean other fences. A store that is not a cluster remembers its tag and
    /// refuses another; a cluster cannot.
    #[must_use]
    pub fn together(mut self, tag: &str) -> RedisOptions {
        self.tagging = Tagging::Together(tag.into());
        self
    }

    /// A raise also waits until so many replicas have received it (`WAIT`), which narrows what a failover can lose and does
    /// not close it.
    ///
    /// It holds up everybody on the connection, so the raises should have one of their own, whose response timeout is
    /// longer than `within`. Not through a cluster's connection.
    #[must_use]
    pub fn waiting_for_replicas(mut self, replicas: u32, within: Duration) -> RedisOptions {
        self.wait = Some(Wait { replicas, on_disk: false, within });
        self
    }

    /// As [`RedisOptions::waiting_for_replicas`], until so many replicas, and this server, have it on disk (`WAITAOF`).
    /// Installing refuses a server that has no such command: Redis has it since 7.2.
    #[must_use]
    pub fn waiting_for_disks_of_replicas(mut self, replicas: u32, within: Duration) -> RedisOptions {
        self.wait = Some(Wait { replicas, on_disk: true, within });
        self
    }

    /// Looks at the server, and binds the store to the cluster at first use. Installing again changes nothing, so a program
    /// does it at every start.
    ///
    /// In Redis Cluster, install through a plain connection to each primary; nothing is bound there but each fence itself.
    ///
    /// # Errors
    /// [`FenceError::NotDurable`] with the setting that may lose a raise; [`FenceError::Unfit`] for a replica, a version
    /// below 7.0, settings that are hidden, a missing permission; [`FenceError::WrongCluster`] when the store is bound to
    /// another cluster; [`FenceError::Corrupt`], [`FenceError::Busy`] and [`FenceError::Store`].
    pub async fn install<C: ConnectionLike + Send>(self, conn: &mut C) -> Result<RedisFence, FenceError> {
        self.tagging.must_be_sound()?;
        let server = Server::of(conn).await?;
        server.must_be_able(self.detecting)?;
        server.must_keep(conn, self.loss, self.stated).await?;
        let commands = Commands::of(conn).await?;
        self.wait_must_work(&server, &commands)?;
        if !server.is_cluster() {
            self.bind(conn).await?;
        }
        Ok(RedisFence {
            cluster: self.cluster,
            tagging: self.tagging,
            detecting: self.detecting,
            wait: self.wait,
            in_cluster: server.is_cluster(),
            commands: Arc::new(commands),
        })
    }

    fn wait_must_work(&self, server: &Server, commands: &Commands) -> Result<(), FenceError> {
        let Some(wait) = self.wait else { return Ok(()) };
        let name = if wait.on_disk { "waitaof" } else { "wait" };
        if !commands.has(name) {
            return Err(unfit(&format!(
                "the server has no {}, which Redis has since 7.2",
                name.to_uppercase()
            )));
        }
        if server.is_cluster() {
            return Err(unfit(
                "in a cluster a raise cannot wait for replicas: a cluster's connection sends WAIT elsewhere",
            ));
        }
        if wait.within.as_millis() == 0 {
            return Err(unfit("a raise that waits for replicas needs a limit: Redis takes 0 ms for ever"));
        }
        Ok(())
    }

    async fn bind(&self, conn: &mut (impl ConnectionLike + Send)) -> Result<(), FenceError> {
        let tag = self.tagging.recorded();
        let answer = script::install()
            .call(
                conn,
                "installing the fence",
                &[BINDING.into()],
                &[self.cluster.as_str().into(), tag.into()],
            )
            .await?;
        match Answer::read(answer)? {
            Answer::Bound { cluster, .. } if cluster != self.cluster.as_str() => {
                let bound = ClusterId::new(&cluster).map_err(|_| corrupt_binding("cluster", &cluster))?;
                Err(FenceError::WrongCluster { presented: self.cluster.clone(), bound })
            }
            Answer::Bound { tag: bound, .. } if bound != tag => Err(unfit(&format!(
                "this store was installed with {}, and is now asked for {}: other tags mean other fences",
                Tagging::shown(&bound),
                Tagging::shown(tag)
            ))),
            Answer::Bound { .. } => Ok(()),
            other => Err(other.into_error(&self.cluster, &[])),
        }
    }
}

impl Loss {
    fn max_of(self, other: Loss) -> Loss {
        if self == Loss::AtRestart { self } else { other }
    }
}
