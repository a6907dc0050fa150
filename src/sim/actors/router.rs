//! A caller that asks who owns what, from the picture that a watch keeps.

use super::dial::Dials;
use super::worker::Common;
use crate::history::What;
use crate::world::{Host, Process, Rate};
use ringfence::ids::{PartitionId, Scope};
use ringfence::router::Router;
use std::collections::BTreeMap;
use std::time::Duration;

/// How often it asks.
const EVERY: Duration = Duration::from_millis(40);

/// A router's process.
pub(crate) struct RouterHost {
    /// It.
    pub(crate) process: Process,
}

impl RouterHost {
    /// Starts one, which asks for every partition of the keyspaces: so many there are at the most.
    ///
    /// # Errors
    /// When the system does not give it a runtime.
    pub(crate) fn start(
        host: Host,
        common: &Common,
        partitions: u32,
        seed: u64,
    ) -> anyhow::Result<RouterHost> {
        common.net.begin(host);
        let process = Process::new(common.time.now(), Rate::default(), seed)?;
        let coordinator = Dials::new(&common.net, host).coordinator(&common.nodes)?;
        let common = common.clone();
        process.runtime().spawn(async move {
            let router = loop {
                match Router::follow(&coordinator, &common.keyspaces).await {
                    Ok(router) => break router,
                    // The keyspaces may not be there yet.
                    Err(_) => tokio::time::sleep(EVERY).await,
                }
            };
            let mut known = BTreeMap::new();
            loop {
                for keyspace in &common.keyspaces {
                    for partition in (0..partitions).map(PartitionId::new) {
                        let Some(owner) = router.owner_of(keyspace, partition) else { continue };
                        let Ok(name) = keyspace.parse() else { continue };
                        let scope = Scope::Partition(name, partition);
                        // The same answer again says nothing new.
                        let answer = (owner.epoch(), owner.worker().clone());
                        if known.insert(scope.clone(), answer.clone()) == Some(answer) {
                            continue;
                        }
                        let routed =
                            What::Routed { scope, epoch: owner.epoch(), worker: owner.worker().clone() };
                        common.recorder.record(common.time.us(), format!("router {}", host.0), routed);
                    }
                }
                // Where there are many partitions, each is asked for less often.
                tokio::time::sleep(EVERY * (1 + partitions / 64)).await;
            }
        });
        Ok(RouterHost { process })
    }
}
