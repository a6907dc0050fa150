//! What this node answers its peers while a cluster forms, and when it is added to one.

use super::peers::MESSAGE_BYTES;
use super::wire::{Adopt, Hello};
use super::{Formation, Inner};
use crate::identity::{Identity, IdentityError};
use crate::raft::ClusterSecret;
use crate::settings::{Membership, difference};
use ringfence_api::v1;
use ringfence_api::v1::formation_server::{Formation as FormationRpc, FormationServer};
use std::collections::BTreeMap;
use std::time::Duration;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status};

/// How long an answer waits for Raft to start. Well below the patience of whoever asks.
const OPENING: Duration = Duration::from_secs(1);

/// Answers peers. To be mounted on the node's port.
#[derive(Clone)]
pub(crate) struct FormationService(Formation);

impl FormationService {
    pub(crate) fn new(formation: Formation) -> FormationService {
        FormationService(formation)
    }

    /// The tonic service, with the limits that the peers' clients have too.
    pub(crate) fn server(self) -> FormationServer<FormationService> {
        FormationServer::new(self)
            .max_decoding_message_size(MESSAGE_BYTES)
            .max_encoding_message_size(MESSAGE_BYTES)
    }

    fn admit(&self, metadata: &MetadataMap) -> Result<(), Status> {
        ClusterSecret::demand(self.0.inner.peers.secret(), metadata).map_err(|status| *status)
    }
}

impl Formation {
    /// What this node says about itself.
    pub(super) fn hello(&self) -> Hello {
        let identity = self.identity();
        let founders = self.founders().map(|founders| founders.nodes().clone());
        Hello {
            node: self.inner.node,
            address: self.inner.address.clone(),
            incarnation: identity.incarnation,
            cluster: identity.belongs.map(|belongs| belongs.cluster),
            founders: founders.unwrap_or_default(),
        }
    }
}

impl Inner {
    /// What stands between this node and one that says hello, if anything does.
    fn refusal(&self, us: &Identity, caller: &Hello) -> Option<(v1::FormationRefusal, String)> {
        if caller.cluster.is_some() {
            return None;
        }
        if let Some(belongs) = &us.belongs {
            let cluster = &belongs.cluster;
            return match belongs.members.get(&caller.node) {
                Some(member) if member.incarnation == Some(caller.incarnation) => None,
                // It came after this node did; those who were there know the life of its data.
                Some(member) if member.incarnation.is_none() => None,
                Some(_) => {
                    let why = format!("cluster {cluster} has {} with other data", caller.node);
                    Some((v1::FormationRefusal::Wiped, why))
                }
                None => {
                    let why = format!("cluster {cluster} has formed without {}", caller.node);
                    Some((v1::FormationRefusal::NotAMember, why))
                }
            };
        }
        let ours = match &self.membership {
            Membership::Found(founders) => founders.nodes(),
            Membership::Alone | Membership::Join => {
                let why = format!("{} waits to be added to a cluster (join) and forms none", self.node);
                return Some((v1::FormationRefusal::OtherList, why));
            }
        };
        let why = difference(ours, &caller.founders)?;
        let why = format!("{} was given another cluster list than {}: {why}", caller.node, self.node);
        Some((v1::FormationRefusal::OtherList, why))
    }

    /// Whether this node may belong to the cluster it is asked to belong to.
    fn may_adopt(&self, us: &Identity, adopt: &Adopt) -> Result<(), String> {
        if adopt.incarnation != us.incarnation {
            return Err(format!(
                "{} has other data than when it was asked before: it was wiped in between; if this cluster never formed, \
                 empty the data directories of all its nodes and start again",
                self.node
            ));
        }
        if us.belongs.is_some() {
            // Whether it is the same cluster is checked where it is written down.
            return Ok(());
        }
        match (&self.membership, adopt.added) {
            (Membership::Join, true) => Ok(()),
            (Membership::Found(founders), false) => {
                let theirs: BTreeMap<_, _> = adopt.belonging.addresses();
                match difference(founders.nodes(), &theirs) {
                    None => Ok(()),
                    Some(why) => Err(format!(
                        "{} was given another cluster list than the founder: {why} in the founder's",
                        self.node
                    )),
                }
            }
            (Membership::Found(_), true) => Err(format!(
                "{} forms a cluster by its own list (cluster): start it with join to add it to another",
                self.node
            )),
            (Membership::Join, false) => {
                Err(format!("{} waits to be added to a cluster (join) and forms none", self.node))
            }
            (Membership::Alone, _) => Err(format!("{} is a cluster of its own", self.node)),
        }
    }
}

#[tonic::async_trait]
impl FormationRpc for FormationService {
    async fn hello(
        &self,
        request: Request<v1::FormationHelloRequest>,
    ) -> Result<Response<v1::FormationHelloResponse>, Status> {
        self.admit(request.metadata())?;
        let request = request.into_inner();
        let formation = &self.0;
        meant(formation.inner.node.get(), request.to)?;
        let from = request.from.ok_or_else(|| Status::invalid_argument("field from: it is missing"))?;
        let caller = Hello::try_from(from).map_err(|e| Status::invalid_argument(e.to_string()))?;
        if caller.node == formation.inner.node {
            let ours = &formation.inner.address;
            return Err(Status::failed_precondition(format!(
                "two processes run as {}, at {} and at {ours}: give each node an id of its own",
                caller.node, caller.address
            )));
        }

        let refusal = formation.inner.refusal(&formation.identity(), &caller);
        // Said once while both go on asking.
        let why = refusal.as_ref().map(|(_, why)| why.clone());
        if formation.inner.progress.caller(caller.node, why.clone())
            && let Some(why) = why
        {
            tracing::warn!(peer = %caller.node, address = caller.address, "{why}");
        }
        let (refusal, why) = refusal.unwrap_or_default();
        Ok(Response::new(v1::FormationHelloResponse {
            answered_by: Some((&formation.hello()).into()),
            refusal: refusal.into(),
            why,
        }))
    }

    async fn adopt(
        &self,
        request: Request<v1::FormationAdoptRequest>,
    ) -> Result<Response<v1::FormationAdoptResponse>, Status> {
        self.admit(request.metadata())?;
        let adopt =
            Adopt::try_from(request.into_inner()).map_err(|e| Status::invalid_argument(e.to_string()))?;
        let formation = &self.0;
        meant(formation.inner.node.get(), adopt.to.get())?;
        formation.inner.may_adopt(&formation.identity(), &adopt).map_err(Status::failed_precondition)?;
        let cluster = adopt.belonging.cluster.clone();
        match formation.belong(adopt.belonging).await {
            Ok(()) => {}
            Err(e @ IdentityError::Io { .. }) => return Err(Status::internal(e.to_string())),
            Err(e) => return Err(Status::failed_precondition(e.to_string())),
        }
        tracing::info!(%cluster, "belongs to a cluster");
        // The first vote is asked for as soon as all have answered. It is not lost when Raft takes votes by then; and
        // when Raft takes longer to start, another vote is asked for.
        let mut open = formation.inner.open.subscribe();
        let _ = tokio::time::timeout(OPENING, open.wait_for(|open| *open)).await;
        Ok(Response::new(v1::FormationAdoptResponse {}))
    }
}

fn meant(this: u64, to: u64) -> Result<(), Status> {
    if this == to {
        return Ok(());
    }
    Err(Status::failed_precondition(format!("this is node {this}, not {to}: check the addresses")))
}
