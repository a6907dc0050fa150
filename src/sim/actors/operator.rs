//! An operator: keyspaces, moves, members. Orders come from the world; each is tried once, as a person would.

use super::decision::{self, Decision};
use super::dial::Dials;
use super::worker::Common;
use crate::history::What;
use crate::ledger::Ledger;
use crate::world::{Host, Ms, Process, Rate};
use ringfence::ErrorKind;
use ringfence::admin::{Admin, NodeRole, PolicyChange};
use ringfence::ids::{NodeId, PartitionId, Scope, SessionId, WorkerId};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc::{self, UnboundedSender};

/// What the operator is told to do.
#[derive(Clone, Debug)]
pub(crate) enum Order {
    /// Create a keyspace, as long as it takes.
    Create(String, u32, PolicyChange),
    /// Delete a keyspace, as long as it takes.
    Delete(String),
    /// Move a partition.
    Move(String, PartitionId, WorkerId),
    /// Split every partition of a keyspace in two; it is tried until that has begun, or this time has come.
    Split(String, Ms),
    /// Take the beginning of a split back.
    CancelSplit(String),
    /// Let another node lead.
    Transfer,
    /// Add a node.
    Add(NodeId, Host),
    /// Say that a keyspace was created again, when all that was told before is done.
    SayRecreated,
    /// Remove a node.
    Remove(NodeId),
    /// Add a node, and when it is in, remove another: again and again, until it is done or this time has come.
    Exchange(Option<(NodeId, Host)>, Option<(NodeId, Host)>, Ms),
    /// Decide something about where partitions are; it is left as it is when this time has come.
    Decide(Decision, Ms),
    /// Restart a worker as a rolling restart does: drain it until it joins again, and stop it when it is empty. When this time
    /// has come it is left as it is, and let back in.
    Roll(WorkerId, Host, Ms),
}

/// What the operator has certainly done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    /// A node was removed.
    Removed(Host),
    /// A keyspace was created again.
    Recreated,
    /// A worker that is to be restarted owns nothing.
    Emptied(Host),
}

/// How often the value in the ledger is changed, and read.
const LEDGER_EVERY: Duration = Duration::from_millis(300);
/// A cluster is not made smaller than this.
const LEAST_MEMBERS: usize = 3;

/// The operator's process.
pub(crate) struct Operator {
    /// It.
    pub(crate) process: Process,
    orders: UnboundedSender<Order>,
    done: Arc<Mutex<Vec<Done>>>,
}

impl Operator {
    /// Starts the operator's process.
    ///
    /// # Errors
    /// When the system does not give it a runtime.
    pub(crate) fn start(host: Host, common: &Common, seed: u64) -> anyhow::Result<Operator> {
        common.net.begin(host);
        let process = Process::new(common.time.now(), Rate::default(), seed)?;
        let admin = Admin::new(&Dials::new(&common.net, host).coordinator(&common.nodes)?);
        let (orders, mut told) = mpsc::unbounded_channel();
        let (common, done) = (common.clone(), Arc::default());
        let does = Arc::clone(&done);
        process.runtime().spawn(async move {
            while let Some(order) = told.recv().await {
                let shown = format!("{order:?}");
                let done = carry_out(&admin, &common, &does, order).await;
                let text = match done {
                    Ok(()) => format!("done: {shown}"),
                    Err(error) => format!("not done: {shown}: {error}"),
                };
                common.recorder.record(common.time.us(), "operator", What::Note { text });
            }
        });
        Ok(Operator { process, orders, done })
    }

    /// Besides all else it keeps the ledger: by what the coordinator acknowledges there it is judged.
    ///
    /// # Errors
    /// When there is no node.
    pub(crate) fn keep_ledger(&self, host: Host, common: &Common) -> anyhow::Result<()> {
        let admin = Admin::new(&Dials::new(&common.net, host).coordinator(&common.nodes)?);
        let (recorder, time) = (common.recorder.clone(), common.time.clone());
        let mut ledger = Ledger::new(admin, move |what| recorder.record(time.us(), "ledger", what));
        self.process.runtime().spawn(async move {
            ledger.create().await;
            loop {
                ledger.turn().await;
                tokio::time::sleep(LEDGER_EVERY).await;
            }
        });
        Ok(())
    }

    /// What was done since it was asked last.
    pub(crate) fn take_done(&self) -> Vec<Done> {
        std::mem::take(&mut *self.done.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Tells the operator to do something after all that was told before.
    pub(crate) fn order(&self, order: Order) {
        // The operator's process runs as long as the world.
        let _ = self.orders.send(order);
    }
}

async fn carry_out(
    admin: &Admin,
    common: &Common,
    done: &Mutex<Vec<Done>>,
    order: Order,
) -> Result<(), ringfence::Error> {
    let record = |what| common.recorder.record(common.time.us(), "operator", what);
    let say = |what| done.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    match order {
        Order::SayRecreated => say(Done::Recreated),
        Order::Create(name, partitions, policy) => {
            loop {
                match admin.create_keyspace(&name, partitions, &policy).await {
                    Ok(_) => break,
                    Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                        // An old one, which is to be like the new ones.
                        if admin.update_keyspace(&name, &policy).await.is_ok() {
                            break;
                        }
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
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
        Order::Split(name, until) => {
            within(common, until, split(admin, &name)).await.transpose()?;
        }
        Order::CancelSplit(name) => drop(admin.cancel_split(&name).await?),
        Order::Transfer => drop(admin.transfer_leadership(None).await?),
        Order::Decide(decision, until) => {
            let decided = within(common, until, decision::carry_out(admin, decision)).await;
            if let Some(text) = decided.transpose()? {
                record(What::Note { text });
            }
        }
        Order::Roll(worker, host, until) => {
            let roll = async {
                admin.set_worker(&worker, &decision::drained_until_join(true)).await?;
                decision::emptied(admin, &worker).await?;
                let session = admin.worker(&worker).await?.session;
                say(Done::Emptied(host));
                decision::came_back(admin, &worker, session.map(SessionId::get)).await
            };
            let rolled = within(common, until, roll).await;
            admin.set_worker(&worker, &decision::drained_until_join(false)).await?;
            rolled.transpose()?;
        }
        Order::Add(node, host) => admin.add_node(node, &host.address()).await?,
        Order::Remove(node) => drop(admin.remove_node(node).await?),
        Order::Exchange(comes, leaves, until) => {
            let exchange = async {
                if let Some((node, host)) = comes {
                    add(admin, node, host).await?;
                }
                if let Some((node, host)) = leaves {
                    remove(admin, node).await;
                    say(Done::Removed(host));
                }
                Ok::<(), ringfence::Error>(())
            };
            within(common, until, exchange).await.transpose()?;
        }
    }
    Ok(())
}

/// Does something until a time has come. What was not done by then is left undone, as after an operator who went home.
async fn within<T>(common: &Common, until: Ms, work: impl Future<Output = T>) -> Option<T> {
    let left = Duration::from_millis(until.saturating_sub(common.time.now()));
    let done = tokio::time::timeout(left, work).await.ok();
    if done.is_none() {
        let text = "it takes too long, and is left as it is".to_owned();
        common.recorder.record(common.time.us(), "operator", What::Note { text });
    }
    done
}

/// Begins to split a keyspace. It has the number of partitions that it has: one that was begun is not begun again.
async fn split(admin: &Admin, name: &str) -> Result<(), ringfence::Error> {
    loop {
        let begun = async {
            let has = admin.keyspace(name).await?.partitions.get();
            admin.split_keyspace(name, has).await
        };
        match begun.await {
            Err(error) if error.is_retryable() => tokio::time::sleep(Duration::from_millis(100)).await,
            answer => return answer.map(drop),
        }
    }
}

async fn add(admin: &Admin, node: NodeId, host: Host) -> Result<(), ringfence::Error> {
    loop {
        match admin.add_node(node, &host.address()).await {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(()),
            // It was a member for a moment and is none any more: its id is used up.
            Err(error) if error.kind() == ErrorKind::Refused => return Err(error),
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

/// Removes a node where enough others are members, as they are now.
async fn remove(admin: &Admin, node: NodeId) {
    loop {
        if let Ok(status) = admin.cluster_status().await {
            let voters = || status.nodes.iter().filter(|node| node.role != NodeRole::Learner);
            if voters().all(|voter| voter.id != node) || voters().count() > LEAST_MEMBERS {
                match admin.remove_node(node).await {
                    Ok(_) => return,
                    Err(error) if error.kind() == ErrorKind::NotFound => return,
                    Err(_) => {}
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
