//! An operator: keyspaces, moves, members. Orders come from the world; each is tried once, as a person would.

use super::dial::Dials;
use super::worker::Common;
use crate::history::What;
use crate::world::{Host, Process, Rate};
use ringfence::ErrorKind;
use ringfence::admin::{Admin, PolicyChange};
use ringfence::ids::{NodeId, PartitionId, Scope, WorkerId};
use std::time::Duration;
use tokio::sync::mpsc::{self, UnboundedSender};

/// What the operator is told to do.
#[derive(Clone, Debug)]
pub enum Order {
    /// Create a keyspace, as long as it takes.
    Create(String, u32, PolicyChange),
    /// Delete a keyspace, as long as it takes.
    Delete(String),
    /// Move a partition.
    Move(String, PartitionId, WorkerId),
    /// Let another node lead.
    Transfer(Option<NodeId>),
    /// Add a node.
    Add(NodeId, Host),
    /// Remove a node.
    Remove(NodeId),
}

/// The operator's process.
pub struct Operator {
    /// It.
    pub process: Process,
    orders: UnboundedSender<Order>,
}

impl Operator {
    /// Starts the operator's process.
    ///
    /// # Errors
    /// When the system does not give it a runtime.
    pub fn start(host: Host, common: &Common, seed: u64) -> anyhow::Result<Operator> {
        common.net.begin(host);
        let process = Process::new(common.time.now(), Rate::default(), seed)?;
        let admin = Admin::new(&Dials::new(&common.net, host).coordinator(&common.nodes)?);
        let (orders, mut told) = mpsc::unbounded_channel();
        let common = common.clone();
        process.runtime().spawn(async move {
            while let Some(order) = told.recv().await {
                let shown = format!("{order:?}");
                let done = carry_out(&admin, &common, order).await;
                let text = match done {
                    Ok(()) => format!("done: {shown}"),
                    Err(error) => format!("not done: {shown}: {error}"),
                };
                common.recorder.record(common.time.us(), "operator", What::Note { text });
            }
        });
        Ok(Operator { process, orders })
    }

    /// Tells the operator to do something after all that was told before.
    pub fn order(&self, order: Order) {
        // The operator's process runs as long as the world.
        let _ = self.orders.send(order);
    }
}

async fn carry_out(admin: &Admin, common: &Common, order: Order) -> Result<(), ringfence::Error> {
    let record = |what| common.recorder.record(common.time.us(), "operator", what);
    match order {
        Order::Create(name, partitions, policy) => {
            loop {
                match admin.create_keyspace(&name, partitions, &policy).await {
                    Ok(_) => break,
                    Err(error) if error.kind() == ErrorKind::AlreadyExists => break,
                    Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
                }
            }
            if let Ok(keyspace) = name.parse() {
                record(What::KeyspaceCreated { keyspace, partitions });
            }
        }
        Order::Delete(name) => {
            while let Err(error) = admin.delete_keyspace(&name).await {
                if error.kind() == ErrorKind::NotFound {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            if let Ok(keyspace) = name.parse() {
                record(What::KeyspaceDeleted { keyspace });
            }
        }
        Order::Move(keyspace, partition, to) => {
            if let Ok(name) = keyspace.parse() {
                record(What::Moved { scope: Scope::Partition(name, partition), to: to.clone() });
            }
            admin.move_partition(&keyspace, partition, &to).await?;
        }
        Order::Transfer(to) => drop(admin.transfer_leadership(to).await?),
        Order::Add(node, host) => admin.add_node(node, &host.address()).await?,
        Order::Remove(node) => admin.remove_node(node).await?,
    }
    Ok(())
}
