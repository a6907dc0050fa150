//! What the test kit grants.

use super::Control;
use crate::error::{Error, ErrorKind};
use crate::ownership::Ownership;
use ringfence_core::ids::{ClusterId, Epoch, KeyspaceName, PartitionId};
use ringfence_core::placement::{PartitionCount, Share};
use std::time::Duration;

/// A grant to make an [`Ownership`] from: partition, epoch, lease.
#[derive(Clone, Debug)]
#[must_use = "nothing is granted before `start`"]
pub struct Granted {
    cluster: String,
    keyspace: String,
    partition: u32,
    epoch: u64,
    ttl: Duration,
    takeover_by_fence: bool,
    partitions: Option<u32>,
}

impl Granted {
    /// Partition `partition` of `keyspace`, under epoch 1, in cluster `test`, with a lease of 10 s.
    pub fn new(keyspace: &str, partition: u32) -> Granted {
        Granted {
            cluster: "test".to_owned(),
            keyspace: keyspace.to_owned(),
            partition,
            epoch: 1,
            ttl: Duration::from_secs(10),
            takeover_by_fence: false,
            partitions: None,
        }
    }

    /// Under this epoch.
    pub fn epoch(self, epoch: u64) -> Granted {
        Granted { epoch, ..self }
    }

    /// In this cluster, when the fence under test belongs to one.
    pub fn cluster(self, cluster: &str) -> Granted {
        Granted { cluster: cluster.to_owned(), ..self }
    }

    /// With a lease of this TTL: a [`Control::pause`] of as much loses it.
    pub fn ttl(self, ttl: Duration) -> Granted {
        Granted { ttl, ..self }
    }

    /// In a keyspace that is taken over by fence: [`Control::disconnect`] then pauses the ownership.
    pub fn takeover_by_fence(self) -> Granted {
        Granted { takeover_by_fence: true, ..self }
    }

    /// In a keyspace of so many partitions: [`Ownership::covers`] then says which keys are the partition's. Without this it
    /// covers every key.
    pub fn partitions(self, partitions: u32) -> Granted {
        Granted { partitions: Some(partitions), ..self }
    }

    /// Grants it: a valid ownership in phase `Loading`, as an owner function gets it.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] when a name, the epoch or the TTL is out of bounds; the message says which.
    pub fn start(self) -> Result<(Ownership, Control), Error> {
        let cluster = ClusterId::new(&self.cluster)?;
        let keyspace = KeyspaceName::new(&self.keyspace)?;
        let epoch = epoch(self.epoch)?;
        let partition = PartitionId::new(self.partition);
        let count = self.partitions.map(PartitionCount::new).transpose();
        let count = count.map_err(|error| Error::own(ErrorKind::Invalid, error.to_string()))?;
        let share = count.map(|of| Share { partition, of });
        Control::grant(cluster, keyspace, partition, epoch, self.ttl, self.takeover_by_fence, share)
    }
}

pub(super) fn epoch(number: u64) -> Result<Epoch, Error> {
    Epoch::new(number).map_err(|error| Error::own(ErrorKind::Invalid, error.to_string()))
}
