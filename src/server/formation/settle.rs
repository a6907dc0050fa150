//! Asking until this node belongs to a cluster.

use super::peers::Answer;
use super::{Formation, FormationError, new_cluster_id};
use crate::identity::{Belonging, IdentityError, Incarnation, Member};
use crate::settings::{Founders, Membership, difference};
use futures_util::future::join_all;
use ringfence_api::v1::FormationRefusal;
use ringfence_core::ids::NodeId;
use std::collections::BTreeMap;
use std::time::Duration;

/// How often the others are asked again.
const AGAIN: Duration = Duration::from_millis(200);

impl Formation {
    /// Returns when this node belongs to a cluster. May be dropped and called again at any point.
    ///
    /// # Errors
    /// [`FormationError`]: it must not belong to the cluster that the others belong to.
    pub(crate) async fn settle(&self) -> Result<Belonging, FormationError> {
        if let Some(belonging) = self.identity().belongs {
            return Ok(belonging);
        }
        match &self.inner.membership {
            Membership::Alone => {
                let own = member_of(self.identity().incarnation, self.inner.address.clone());
                self.name(BTreeMap::from([(self.inner.node, own)])).await
            }
            Membership::Found(founders) => self.ask_founders(founders).await,
            Membership::Join => Ok(self.wait_to_be_added().await),
        }
    }

    async fn wait_to_be_added(&self) -> Belonging {
        let (node, address) = (self.inner.node, &self.inner.address);
        self.inner
            .progress
            .step(format!("waits to be added: ringfence cluster add-node {}={address}", node.get()));
        tracing::info!("waits to be added to a cluster as {node} at {address}");
        self.adopted().await
    }

    /// The cluster, once another node has made this one belong to it.
    async fn adopted(&self) -> Belonging {
        let mut belongs = self.inner.belongs.subscribe();
        let found = belongs.wait_for(Option::is_some).await.ok().and_then(|belonging| belonging.clone());
        match found {
            Some(belonging) => belonging,
            // The sender lives as long as `self` does.
            None => std::future::pending().await,
        }
    }

    async fn ask_founders(&self, founders: &Founders) -> Result<Belonging, FormationError> {
        let founder = founders.nodes().keys().next() == Some(&self.inner.node);
        self.inner.progress.step(format!("asking the nodes of {founders}"));
        loop {
            tokio::select! {
                belonging = self.adopted() => return Ok(belonging),
                members = self.ask_round(founders) => if let (true, Some(members)) = (founder, members?) {
                    return self.name(members).await;
                },
            }
            tokio::select! {
                belonging = self.adopted() => return Ok(belonging),
                () = tokio::time::sleep(AGAIN) => {}
            }
        }
    }

    /// Asks every other node once. All of them, when they agree and belong to no cluster.
    async fn ask_round(
        &self,
        founders: &Founders,
    ) -> Result<Option<BTreeMap<NodeId, Member>>, FormationError> {
        let us = self.hello();
        let others = founders.nodes().iter().filter(|(node, _)| **node != self.inner.node);
        let calls = others.map(|(node, address)| {
            let call = self.inner.peers.hello(&us, *node, address);
            async move { (*node, address.clone(), call.await) }
        });
        let own = member_of(us.incarnation, self.inner.address.clone());
        let mut agreed = BTreeMap::from([(self.inner.node, own)]);
        let mut missing = Vec::new();
        for (node, address, answer) in join_all(calls).await {
            let problem = match answer {
                Ok(answer) => match self.judge(founders, node, &address, &answer)? {
                    None => {
                        agreed.insert(node, member_of(answer.hello.incarnation, address));
                        None
                    }
                    problem => problem,
                },
                Err(unreached) => Some(unreached),
            };
            let waits = problem.is_some();
            if self.inner.progress.peer(node, problem.clone())
                && let Some(problem) = &problem
            {
                tracing::info!(peer = %node, "waiting: {problem}");
            }
            if waits {
                missing.push(node.to_string());
            }
        }
        if missing.is_empty() {
            let first = founders.nodes().keys().next().map(ToString::to_string).unwrap_or_default();
            self.inner.progress.step(format!("waiting for the founder, {first}, to name the cluster"));
            return Ok(Some(agreed));
        }
        self.inner.progress.step(format!("waiting for {}", missing.join(", ")));
        Ok(None)
    }

    /// What an answer means: nothing stands in the way, something does and may go away, or this node must not go on.
    fn judge(
        &self,
        founders: &Founders,
        node: NodeId,
        address: &str,
        answer: &Answer,
    ) -> Result<Option<String>, FormationError> {
        let told_by = format!("{node} at {address}");
        let (this, why) = (self.inner.node, answer.why.clone());
        match answer.refusal {
            FormationRefusal::Wiped => return Err(FormationError::Wiped { node: this, told_by, why }),
            FormationRefusal::NotAMember => {
                return Err(FormationError::NotAMember { node: this, told_by, why });
            }
            FormationRefusal::OtherList | FormationRefusal::Unspecified => {}
        }
        if answer.hello.node != node {
            return Ok(Some(format!("at the address of {node}, {address}, answers {}", answer.hello.node)));
        }
        if let Some(cluster) = &answer.hello.cluster {
            // It knows this node's data, so this node was there when the cluster was named: the founder will come back.
            return Ok(Some(format!(
                "{told_by} belongs to cluster {cluster}, and its founder has not asked this node yet"
            )));
        }
        if let Some(why) = difference(founders.nodes(), &answer.hello.founders) {
            let theirs =
                if answer.hello.founders.is_empty() { "none, for it waits to be added (join)" } else { &why };
            return Ok(Some(format!("{told_by} was given another cluster list than this node: {theirs}")));
        }
        Ok(None)
    }

    /// The founder names the cluster, and belongs to it before anybody hears of it.
    async fn name(&self, members: BTreeMap<NodeId, Member>) -> Result<Belonging, FormationError> {
        let cluster = new_cluster_id()
            .map_err(|source| IdentityError::Io { path: "the system's random numbers".into(), source })?;
        let nodes: Vec<String> = members.keys().map(ToString::to_string).collect();
        let belonging = Belonging { cluster, members, founder: true };
        self.belong(belonging.clone()).await?;
        tracing::info!(cluster = %belonging.cluster, nodes = nodes.join(","), "named a new cluster");
        Ok(belonging)
    }
}

fn member_of(incarnation: Incarnation, address: String) -> Member {
    Member { address, incarnation: Some(incarnation) }
}
