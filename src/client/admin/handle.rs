//! The handle: one method for each thing to ask.

use super::partition::WouldMove;
use super::{
    ClusterStatus, Drill, DrillPlan, DrillReport, Health, Keyspace, Located, MoveStarted, Partition,
    PartitionCount, PartitionDetail, PolicyChange, Worker,
};
use crate::error::{Error, ErrorKind};
use crate::net::{
    Call, Coordinator, Effect, Endpoint, Endpoints, Route, admin, fences, locks, map, placement,
};
use ringfence_api::convert::RequestId;
use ringfence_api::v1::admin_service_client::AdminServiceClient;
use ringfence_api::v1::fence_service_client::FenceServiceClient;
use ringfence_api::v1::lock_service_client::LockServiceClient;
use ringfence_api::v1::placement_service_client::PlacementServiceClient;
use ringfence_api::v1::{self, lookup_request::Target};
use ringfence_core::ids::{Epoch, KeyspaceName, NodeId, PartitionId, WorkerId};
use std::time::Duration;
use tokio::time::{Instant, sleep};
use tonic::transport::Channel;
use tonic::{Response, Status, Streaming};

/// A read that one message answers.
pub(super) const READ: Call = Call::new(Route::Leader, Effect::Read);

/// A read that comes in pieces. Two million partitions take a while to arrive.
pub(super) const READ_ALL: Call = READ.within(Duration::from_secs(60)).patience(Duration::from_secs(20));

/// A change under a request id.
pub(super) const CHANGE: Call = Call::new(Route::Leader, Effect::Repeatable);

/// A change of the cluster itself. It has no request id: what was changed is seen in the cluster's status.
const RECONFIGURE: Call =
    Call::new(Route::Leader, Effect::Once).within(Duration::from_secs(60)).patience(Duration::from_secs(60));

/// A removal that is silent is asked for elsewhere, while there is time left.
const REMOVE_NODE: Call = RECONFIGURE.patience(Duration::from_secs(15));

/// Between two calls for one removal: an election takes a while.
const REMOVE_AGAIN: Duration = Duration::from_millis(200);

/// A new node has to catch up before it is a member, and that is as much as the log and the snapshot are long.
const ADD_NODE: Call = RECONFIGURE.within(Duration::from_secs(300)).patience(Duration::from_secs(300));

/// What a coordinator may take beyond a drill's own time: the worker has a last word.
const AFTER_A_DRILL: Duration = Duration::from_secs(30);

type Client = AdminServiceClient<Channel>;

/// What became of a change to a keyspace's policy, or would.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyspaceUpdate {
    /// The keyspace as it is now, or would be.
    pub keyspace: Keyspace,
    /// Something was changed, or would be. Nothing is when it was so already.
    pub changed: bool,
}

/// Asks the cluster what an operator asks. Cheap to clone. Making one connects to nothing.
///
/// Names are checked before anything is sent: a method that takes one fails with [`ErrorKind::Invalid`] when it is not
/// a name. Every method fails with [`ErrorKind::Unreachable`], [`ErrorKind::NoLeader`] or [`ErrorKind::Unavailable`]
/// when no coordinator could answer within its deadline (10 s; 60 s for lists and changes of the cluster), and one that
/// changes something with [`ErrorKind::UnknownOutcome`] when the answer was lost. Further errors are listed with each.
#[derive(Clone, Debug)]
pub struct Admin {
    coordinator: Coordinator,
    within: Option<Duration>,
    by: String,
    /// Nobody said `by`.
    assumed: bool,
    reason: String,
}

impl Admin {
    /// Asks over these connections.
    pub fn new(coordinator: &Coordinator) -> Admin {
        let (coordinator, by, reason) = (coordinator.clone(), String::new(), String::new());
        Admin { coordinator, within: None, by, assumed: false, reason }
    }

    /// Asks at these endpoints.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] when an endpoint is malformed.
    pub fn at<E>(endpoints: E) -> Result<Admin, Error>
    where
        E: TryInto<Endpoints, Error: Into<Error>>,
    {
        Ok(Admin::new(&Coordinator::new(endpoints.try_into().map_err(Into::into)?)))
    }

    /// Gives every call up after so long, instead of its usual deadline. A call that is given up may still take effect,
    /// and says so.
    #[must_use]
    pub fn within(self, deadline: Duration) -> Admin {
        Admin { within: Some(deadline), ..self }
    }

    /// Says who asks: a person, or the program that asks for one. The coordinator does not check it. It remembers it with
    /// every decision about placement, and histories name it. Cut to 256 bytes.
    #[must_use]
    pub fn by(self, name: impl Into<String>) -> Admin {
        Admin { by: name.into(), assumed: false, ..self }
    }

    /// The same of a name that nobody said, such as that of the user whose program asks. Of what was there before names were
    /// remembered (keyspaces created, updated and deleted, moves, drills, coolings ended) it is remembered once something newer
    /// was used in the cluster: coordinators of the version before cannot read who it was, and would stop.
    #[must_use]
    pub fn assumed_by(self, name: impl Into<String>) -> Admin {
        Admin { by: name.into(), assumed: true, ..self }
    }

    /// Says why, in words for whoever looks later. Remembered like [`Admin::by`].
    #[must_use]
    pub fn because(self, reason: impl Into<String>) -> Admin {
        Admin { reason: reason.into(), ..self }
    }

    /// Creates a keyspace of so many partitions, 1 to 1 000 000; [`Admin::split_keyspace`] doubles them. What `policy` leaves
    /// out has its default.
    ///
    /// # Errors
    /// [`ErrorKind::AlreadyExists`], [`ErrorKind::Invalid`], [`ErrorKind::Limit`].
    pub async fn create_keyspace(
        &self,
        name: &str,
        partitions: u32,
        policy: &PolicyChange,
    ) -> Result<Keyspace, Error> {
        let creation = creation(name, partitions, policy)?;
        let (request, directive) = (Some(self.request_id().await?), self.said());
        let request = v1::CreateKeyspaceRequest { request, directive, ..creation };
        let answer = self.ask(CHANGE, request, async |mut c, r| c.create_keyspace(r).await).await?;
        keyspace(answer.keyspace)
    }

    /// The keyspace that [`Admin::create_keyspace`] would create, as the coordinator would decide it now. Nothing is done.
    ///
    /// # Errors
    /// As [`Admin::create_keyspace`].
    pub async fn plan_create_keyspace(
        &self,
        name: &str,
        partitions: u32,
        policy: &PolicyChange,
    ) -> Result<Keyspace, Error> {
        // A coordinator that knows no dry run refuses a request that has no id, and creates nothing.
        let request = v1::CreateKeyspaceRequest { dry_run: true, ..creation(name, partitions, policy)? };
        let answer = self.ask(READ, request, async |mut c, r| c.create_keyspace(r).await).await?;
        keyspace(answer.keyspace)
    }

    /// Changes a keyspace's policy; what `policy` leaves out stays. A new TTL counts for workers that join from now on.
    ///
    /// **A new `takeover` reaches running workers when they join anew.** The coordinator follows it at once, and a
    /// session that was opened before keeps the rule it joined with. After a change from `lease` to `fence`, such a
    /// worker goes on saying that it owns a partition when it has lost its connection, until its lease has run out,
    /// while the coordinator may have granted the partition to another. Fences hold all the while. Restart the workers
    /// when that matters.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`], [`ErrorKind::Invalid`].
    pub async fn update_keyspace(&self, name: &str, policy: &PolicyChange) -> Result<KeyspaceUpdate, Error> {
        let name = KeyspaceName::new(name)?.to_string();
        let request = v1::UpdateKeyspaceRequest {
            request: Some(self.request_id().await?),
            name,
            policy: Some(policy.into()),
            directive: self.said(),
            dry_run: false,
        };
        let answer = self.ask(CHANGE, request, async |mut c, r| c.update_keyspace(r).await).await?;
        Ok(KeyspaceUpdate { changed: !answer.unchanged, keyspace: keyspace(answer.keyspace)? })
    }

    /// What [`Admin::update_keyspace`] would do, as the coordinator would decide it now. Nothing is done.
    ///
    /// # Errors
    /// As [`Admin::update_keyspace`].
    pub async fn plan_update_keyspace(
        &self,
        name: &str,
        policy: &PolicyChange,
    ) -> Result<KeyspaceUpdate, Error> {
        let request = v1::UpdateKeyspaceRequest {
            // A coordinator that knows no dry run refuses a request that has no id, and changes nothing.
            request: None,
            name: KeyspaceName::new(name)?.to_string(),
            policy: Some(policy.into()),
            directive: None,
            dry_run: true,
        };
        let answer = self.ask(READ, request, async |mut c, r| c.update_keyspace(r).await).await?;
        Ok(KeyspaceUpdate { changed: !answer.unchanged, keyspace: keyspace(answer.keyspace)? })
    }

    /// Deletes a keyspace. Its owners lose their partitions at once. A keyspace created again under the name never
    /// repeats an epoch.
    ///
    /// **Workers that joined the deleted keyspace do not serve one that is created again under its name**: a session
    /// serves the keyspaces that were there when it was opened, and nothing tells the worker. Restart them, after the
    /// keyspace was created. A worker that joins anew while the keyspace is missing ends with
    /// [`ErrorKind::NotFound`].
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`].
    pub async fn delete_keyspace(&self, name: &str) -> Result<(), Error> {
        let name = KeyspaceName::new(name)?;
        let request = v1::DeleteKeyspaceRequest {
            request: Some(self.request_id().await?),
            name: name.to_string(),
            directive: self.said(),
        };
        self.ask(CHANGE, request, async |mut c, r| c.delete_keyspace(r).await).await?;
        Ok(())
    }

    /// All keyspaces, by name.
    ///
    /// # Errors
    /// Those of every method.
    pub async fn keyspaces(&self) -> Result<Vec<Keyspace>, Error> {
        let request = v1::ListKeyspacesRequest {};
        let answer = self.ask(READ, request, async |mut c, r| c.list_keyspaces(r).await).await?;
        all(answer.keyspaces)
    }

    /// One keyspace.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`].
    pub async fn keyspace(&self, name: &str) -> Result<Keyspace, Error> {
        let name = KeyspaceName::new(name)?;
        let found = self.keyspaces().await?.into_iter().find(|keyspace| keyspace.name == name);
        found.ok_or_else(|| Error::own(ErrorKind::NotFound, format!("there is no keyspace {name}")))
    }

    /// All workers that have a session, by name.
    ///
    /// # Errors
    /// Those of every method.
    pub async fn workers(&self) -> Result<Vec<Worker>, Error> {
        let request = v1::ListWorkersRequest {};
        let list = async |mut c: Client, r| gather(c.list_workers(r).await?, |piece| piece.workers).await;
        all(self.ask(READ_ALL, request, list).await?)
    }

    /// The partitions of a keyspace, by number.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`].
    pub async fn partitions(&self, keyspace: &str) -> Result<Vec<Partition>, Error> {
        let request = v1::ListPartitionsRequest { keyspace: KeyspaceName::new(keyspace)?.to_string() };
        let list =
            async |mut c: Client, r| gather(c.list_partitions(r).await?, |piece| piece.partitions).await;
        all(self.ask(READ_ALL, request, list).await?)
    }

    /// One partition with its last owners.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`].
    pub async fn partition(&self, keyspace: &str, partition: PartitionId) -> Result<PartitionDetail, Error> {
        let keyspace = KeyspaceName::new(keyspace)?.to_string();
        let request = v1::GetPartitionRequest { keyspace, partition: partition.get() };
        let answer = self.ask(READ, request, async |mut c, r| c.get_partition(r).await).await?;
        answer.try_into().map_err(Error::malformed)
    }

    /// Starts a planned move: its owner drains the partition, then the worker named is granted it. Returns when the
    /// drain is committed, or at once when that worker owns it already. The partition's history names
    /// [`Admin::by`] and [`Admin::because`], when one is given.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] (partition, worker); [`ErrorKind::Refused`] when the partition cools, the worker does not
    /// serve the keyspace, or another move is in progress.
    pub async fn move_partition(
        &self,
        keyspace: &str,
        partition: PartitionId,
        to: &WorkerId,
    ) -> Result<MoveStarted, Error> {
        let keyspace = KeyspaceName::new(keyspace)?.to_string();
        let request = v1::MovePartitionRequest {
            request: Some(self.request_id().await?),
            keyspace,
            partition: partition.get(),
            to: to.to_string(),
            directive: self.said(),
            dry_run: false,
        };
        let answer = self.ask(CHANGE, request, async |mut c, r| c.move_partition(r).await).await?;
        answer.try_into().map_err(Error::malformed)
    }

    /// What [`Admin::move_partition`] would do, as the coordinator would decide it now. Nothing is done.
    ///
    /// # Errors
    /// As [`Admin::move_partition`].
    pub async fn plan_move(
        &self,
        keyspace: &str,
        partition: PartitionId,
        to: &WorkerId,
    ) -> Result<WouldMove, Error> {
        let request = v1::MovePartitionRequest {
            // A coordinator that knows no dry run refuses a request that has no id, and moves nothing.
            request: None,
            keyspace: KeyspaceName::new(keyspace)?.to_string(),
            partition: partition.get(),
            to: to.to_string(),
            directive: None,
            dry_run: true,
        };
        let answer = self.ask(READ, request, async |mut c, r| c.move_partition(r).await).await?;
        answer.try_into().map_err(Error::malformed)
    }

    /// Ends a partition's cooling now; `epoch` is the one it was seen to cool under. With `takeover = lease` this gives
    /// up the wait that keeps two workers from both believing that they own it.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`], [`ErrorKind::StaleEpoch`], [`ErrorKind::Refused`] (it does not cool).
    pub async fn end_cooling(
        &self,
        keyspace: &str,
        partition: PartitionId,
        epoch: Epoch,
    ) -> Result<(), Error> {
        let keyspace = KeyspaceName::new(keyspace)?.to_string();
        let request = v1::EndCoolingRequest {
            request: Some(self.request_id().await?),
            keyspace,
            partition: partition.get(),
            epoch: epoch.get(),
            directive: self.said(),
        };
        self.ask(CHANGE, request, async |mut c, r| c.end_cooling(r).await).await?;
        Ok(())
    }

    /// The partition that a key belongs to, and its owner, read at the leader after a quorum confirmed it.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`].
    pub async fn locate_key(&self, keyspace: &str, key: impl AsRef<[u8]>) -> Result<Located, Error> {
        self.locate(keyspace, Target::Key(key.as_ref().to_vec().into())).await
    }

    /// A partition's owner, read at the leader after a quorum confirmed it.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`].
    pub async fn locate_partition(&self, keyspace: &str, partition: PartitionId) -> Result<Located, Error> {
        self.locate(keyspace, Target::Partition(partition.get())).await
    }

    async fn locate(&self, keyspace: &str, target: Target) -> Result<Located, Error> {
        let keyspace = KeyspaceName::new(keyspace)?.to_string();
        let request = v1::LookupRequest { keyspace, target: Some(target) };
        let send = |channel| {
            let request = request.clone();
            async move { map(channel).lookup(request).await }
        };
        self.coordinator.call(self.bounded(READ), send).await?.try_into().map_err(Error::malformed)
    }

    /// What a drill would do, checked as far as it can be before it is run. Nothing is done.
    ///
    /// # Errors
    /// As [`Admin::drill`] fails before anything is moved.
    pub async fn plan_drill(&self, drill: &Drill) -> Result<DrillPlan, Error> {
        drill.check()?;
        let request = drill.to_wire(true, None);
        let answer = self.ask(READ, request, async |mut c, r| c.run_drill(r).await).await?;
        answer.try_into().map_err(Error::malformed)
    }

    /// Replaces the owner of a partition on purpose, and has it send a write that it stamped before: see
    /// [`Drill`]. Returns when the write was answered. The report says whether the storage refused it; that it did not is
    /// no error of this call. Dropping the future ends the drill.
    ///
    /// Its deadline is the drill's own, and not that of [`Admin::within`].
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] (keyspace, partition, worker), [`ErrorKind::Invalid`], [`ErrorKind::Refused`] when it cannot
    /// be run, or had no result in time; the message says why, and what was done. [`ErrorKind::Interrupted`] when the
    /// leader changed meanwhile: the worker goes back to work by itself, and the drill may be run again.
    pub async fn drill(&self, drill: &Drill) -> Result<DrillReport, Error> {
        drill.check()?;
        let request = drill.to_wire(false, self.said());
        let within = drill.timeout.saturating_add(AFTER_A_DRILL);
        let call = Call::new(Route::Leader, Effect::Once).within(within).patience(within);
        let send = |channel| {
            let request = request.clone();
            async move { admin(channel).run_drill(request).await }
        };
        let answer = self.coordinator.call(call, send).await.map_err(|error| match error.kind() {
            ErrorKind::UnknownOutcome => Error::own(
                ErrorKind::Interrupted,
                format!(
                    "the drill was cut short, because its leader changed or was lost ({error}). How far it had come is not \
                     known: a held write is dropped, unless it was on its way already; a move that had begun goes to its \
                     end, and a stalled worker renews again or joins anew: run it again"
                ),
            ),
            _ => error,
        })?;
        answer.try_into().map_err(Error::malformed)
    }

    /// The nodes, the leader and the term, as the node that answers sees them. Any node answers, without a quorum.
    ///
    /// # Errors
    /// Those of every method.
    pub async fn cluster_status(&self) -> Result<ClusterStatus, Error> {
        let call = Call::new(Route::Any, Effect::Read);
        let request = v1::ClusterStatusRequest {};
        let answer = self.ask(call, request, async |mut c, r| c.cluster_status(r).await).await?;
        self.coordinator.learn_from(&answer);
        answer.try_into().map_err(Error::malformed)
    }

    /// What a person on call wants to know, from the leader.
    ///
    /// # Errors
    /// Those of every method.
    pub async fn health(&self) -> Result<Health, Error> {
        let request = v1::HealthRequest {};
        let answer = self.ask(READ, request, async |mut c, r| c.health(r).await).await?;
        answer.try_into().map_err(Error::malformed)
    }

    /// Adds a node, which must run with an empty data directory and wait to be added. Returns when it has caught up and
    /// votes, within 5 minutes.
    ///
    /// # Errors
    /// [`ErrorKind::AlreadyExists`], [`ErrorKind::Invalid`], [`ErrorKind::Refused`] (its id was used before; it did not
    /// catch up).
    pub async fn add_node(&self, node: NodeId, address: &str) -> Result<(), Error> {
        Endpoint::from_address(address)?;
        let directive = self.said();
        let request = v1::AddNodeRequest { node: node.get(), address: address.to_owned(), directive };
        self.ask(ADD_NODE, request, async |mut c, r| c.add_node(r).await).await?;
        Ok(())
    }

    /// Removes a node for good; its id is never used again.
    ///
    /// A leader that removes itself may be gone before it has answered. To remove a node twice is to remove it once, so it is
    /// asked again, whoever leads then, until the answer is clear or the deadline has passed.
    ///
    /// Returns whether it was a member still: `false` when it had been removed before, as long as the cluster remembers that.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`], [`ErrorKind::Refused`] (the last node); [`ErrorKind::UnknownOutcome`] when nobody could say what
    /// became of it in time.
    pub async fn remove_node(&self, node: NodeId) -> Result<bool, Error> {
        let request = v1::RemoveNodeRequest { node: node.get(), dry_run_of: 0, directive: self.said() };
        let within = self.within.unwrap_or(RECONFIGURE.within);
        let ends = Instant::now().checked_add(within);
        let mut may_be_done = false;
        loop {
            let left = ends.map_or(within, |ends| ends.saturating_duration_since(Instant::now()));
            let call = REMOVE_NODE.within(left);
            let send = |channel| {
                let (mut client, request) = (admin(channel), request.clone());
                async move { client.remove_node(request).await }
            };
            match self.coordinator.call(call, send).await {
                // Where it is gone already, an earlier call has done it, and its answer was lost.
                Ok(answer) => return Ok(may_be_done || !answer.unchanged),
                Err(error) if may_be_done && error.kind() == ErrorKind::NotFound => return Ok(true),
                Err(error) if error.kind() == ErrorKind::UnknownOutcome => may_be_done = true,
                Err(error) if may_be_done && error.is_retryable() => {}
                Err(error) => return Err(error),
            }
            if ends.is_some_and(|ends| Instant::now() + REMOVE_AGAIN >= ends) {
                return Err(Error::own(
                    ErrorKind::UnknownOutcome,
                    format!(
                        "it is not known whether node {} was removed: nobody has led since that could say it. Ask for it again; it \
                         takes effect once",
                        node.get()
                    ),
                ));
            }
            sleep(REMOVE_AGAIN).await;
        }
    }

    /// Whether [`Admin::remove_node`] would remove a node that is a member still, as the coordinator would decide it now. Nothing is
    /// done.
    ///
    /// # Errors
    /// As [`Admin::remove_node`].
    pub async fn plan_remove_node(&self, node: NodeId) -> Result<bool, Error> {
        let request = v1::RemoveNodeRequest { node: 0, dry_run_of: node.get(), directive: None };
        let answer = self.ask(READ, request, async |mut c, r| c.remove_node(r).await).await?;
        Ok(!answer.unchanged)
    }

    /// Hands the lead to this node, or to whichever voter is the furthest. Returns who leads then.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`], [`ErrorKind::Refused`] (it is not a voter or did not take over).
    pub async fn transfer_leadership(&self, to: Option<NodeId>) -> Result<NodeId, Error> {
        let request = v1::TransferLeadershipRequest { to: to.map_or(0, NodeId::get), directive: self.said() };
        let answer = self.ask(RECONFIGURE, request, async |mut c, r| c.transfer_leadership(r).await).await?;
        NodeId::new(answer.leader).map_err(Error::malformed)
    }

    /// A new request id. The log index in it is one that this client has seen: a request that is so late that the
    /// answer to an earlier sending may have been forgotten is refused rather than run twice.
    pub(super) async fn request_id(&self) -> Result<v1::RequestId, Error> {
        let seen = self.cluster_status().await?.applied;
        let mut id = [0; 16];
        getrandom::fill(&mut id).map_err(|error| {
            Error::own(ErrorKind::Unavailable, format!("no random number to be had: {error}"))
        })?;
        Ok(RequestId { id: u128::from_be_bytes(id), seen }.into())
    }

    pub(super) async fn ask<R: Clone, T>(
        &self,
        call: Call,
        request: R,
        send: impl AsyncFn(Client, R) -> Result<Response<T>, Status>,
    ) -> Result<T, Error> {
        self.coordinator.call(self.bounded(call), |channel| send(admin(channel), request.clone())).await
    }

    /// The same of the placement service.
    pub(super) async fn ask_placement<R: Clone, T>(
        &self,
        call: Call,
        request: R,
        send: impl AsyncFn(PlacementServiceClient<Channel>, R) -> Result<Response<T>, Status>,
    ) -> Result<T, Error> {
        self.coordinator.call(self.bounded(call), |channel| send(placement(channel), request.clone())).await
    }

    /// The same of the service about fences.
    pub(super) async fn ask_fences<R: Clone, T>(
        &self,
        call: Call,
        request: R,
        send: impl AsyncFn(FenceServiceClient<Channel>, R) -> Result<Response<T>, Status>,
    ) -> Result<T, Error> {
        self.coordinator.call(self.bounded(call), |channel| send(fences(channel), request.clone())).await
    }

    /// The same of the service for locks.
    pub(super) async fn ask_locks<R: Clone, T>(
        &self,
        call: Call,
        request: R,
        send: impl AsyncFn(LockServiceClient<Channel>, R) -> Result<Response<T>, Status>,
    ) -> Result<T, Error> {
        self.coordinator.call(self.bounded(call), |channel| send(locks(channel), request.clone())).await
    }

    /// Who wants it, and why, when either was said.
    pub(super) fn said(&self) -> Option<v1::Directive> {
        Some(self.directive()).filter(|given| *given != v1::Directive::default())
    }

    /// Who wants it, and why.
    pub(super) fn directive(&self) -> v1::Directive {
        let assumed = self.assumed && self.reason.is_empty();
        v1::Directive { by: self.by.clone(), reason: self.reason.clone(), assumed }
    }

    fn bounded(&self, call: Call) -> Call {
        self.within.map_or(call, |deadline| shared(call, deadline, self.coordinator.endpoints()))
    }
}

/// The call with this deadline, of which a node that is silent takes no more than its share: what may be asked elsewhere is,
/// within the deadline. The share is no less than the usual patience, so that a slow node is not passed over for being slow.
fn shared(call: Call, deadline: Duration, nodes: usize) -> Call {
    let call = call.within(deadline);
    if call.effect == Effect::Once {
        return call;
    }
    let share = deadline / u32::try_from(nodes.max(1)).unwrap_or(u32::MAX);
    call.patience(call.patience.min(share.max(READ.patience)))
}

/// All pieces of a list. It runs within one try, so that a stream that stops half way is begun again elsewhere.
pub(super) async fn gather<P, T>(
    pieces: Response<Streaming<P>>,
    of: impl Fn(P) -> Vec<T>,
) -> Result<Response<Vec<T>>, Status> {
    let mut pieces = pieces.into_inner();
    let mut list = Vec::new();
    while let Some(piece) = pieces.message().await? {
        list.extend(of(piece));
    }
    Ok(Response::new(list))
}

/// What asks for a keyspace, without a request id.
fn creation(name: &str, partitions: u32, policy: &PolicyChange) -> Result<v1::CreateKeyspaceRequest, Error> {
    let name = KeyspaceName::new(name)?.to_string();
    let count =
        PartitionCount::new(partitions).map_err(|error| Error::own(ErrorKind::Invalid, error.to_string()))?;
    let (partitions, policy) = (count.get(), Some(policy.into()));
    Ok(v1::CreateKeyspaceRequest { name, partitions, policy, ..Default::default() })
}

fn all<W, T>(wire: Vec<W>) -> Result<Vec<T>, Error>
where
    T: TryFrom<W, Error: std::fmt::Display>,
{
    wire.into_iter().map(|one| one.try_into().map_err(Error::malformed)).collect()
}

pub(super) fn keyspace(wire: Option<v1::Keyspace>) -> Result<Keyspace, Error> {
    let wire = wire.ok_or_else(|| Error::malformed("field keyspace: it is missing"))?;
    wire.try_into().map_err(Error::malformed)
}

#[cfg(test)]
mod bounds {
    use super::*;

    #[test]
    fn a_silent_node_takes_no_more_of_a_short_deadline_than_its_share() {
        let secs = Duration::from_secs;
        let patience = |call, deadline, nodes| shared(call, secs(deadline), nodes).patience;
        assert_eq!(patience(READ_ALL, 12, 3), secs(4));
        assert_eq!(patience(READ_ALL, 3, 3), secs(2), "no less than usual");
        assert_eq!(patience(READ_ALL, 12, 1), secs(12));
        assert_eq!(patience(READ_ALL, 600, 3), READ_ALL.patience);
        assert_eq!(patience(CHANGE, 12, 3), CHANGE.patience);
        assert_eq!(patience(RECONFIGURE, 12, 3), RECONFIGURE.patience, "it is sent once");
        assert_eq!(shared(READ_ALL, secs(12), 3).within, secs(12));
    }
}
