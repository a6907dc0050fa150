//! The nodes a client knows of, one channel for each, and which of them is thought to lead.

use super::{Dial, Endpoint, Endpoints, Route};
use ringfence_api::convert::NodeAddress;
use ringfence_core::ids::NodeId;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use tonic::transport::Channel;

/// How many nodes are learnt beside the endpoints given. A cluster has three, five or seven; the rest is room for
/// nodes that came and went, and the bound for a coordinator that talks nonsense.
const MAX_LEARNT: usize = 64;

/// How much further apart than usual pings are at most: more than five minutes, which is what the strictest proxies ask for.
const MAX_CALM: u32 = 64;

/// One node to ask, over one channel.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) endpoint: Endpoint,
    pub(crate) channel: Channel,
    /// Which channel to that endpoint, so that condemning an old one does not hit its successor.
    life: u64,
}

/// What a client knows of the cluster's nodes. It is plain data behind a lock; whoever holds it never waits.
pub(super) struct Pool {
    dial: Arc<dyn Dial>,
    given: Vec<Endpoint>,
    learnt: BTreeMap<NodeId, Endpoint>,
    leader: Option<Endpoint>,
    /// The node that answered last: reads and watches stay there.
    favourite: Option<Endpoint>,
    channels: HashMap<Endpoint, (Channel, u64)>,
    /// Nodes that were silent when they were asked last. Each of them costs a call its patience, so they are asked last.
    silent: HashSet<Endpoint>,
    /// How much further apart than usual pings are, where they were too many.
    calm: HashMap<Endpoint, u32>,
    lives: u64,
}

impl Pool {
    pub(super) fn new(endpoints: &Endpoints, dial: Arc<dyn Dial>) -> Pool {
        Pool {
            dial,
            given: endpoints.iter().cloned().collect(),
            learnt: BTreeMap::new(),
            leader: None,
            favourite: None,
            channels: HashMap::new(),
            silent: HashSet::new(),
            calm: HashMap::new(),
            lives: 0,
        }
    }

    /// The same knowledge without the connections.
    pub(super) fn without_connections(&self) -> Pool {
        Pool {
            dial: self.dial.clone(),
            given: self.given.clone(),
            learnt: self.learnt.clone(),
            leader: self.leader.clone(),
            favourite: None,
            channels: HashMap::new(),
            silent: self.silent.clone(),
            calm: self.calm.clone(),
            lives: 0,
        }
    }

    /// How many endpoints were given.
    pub(super) fn given(&self) -> usize {
        self.given.len()
    }

    /// Whom to ask next, among those not `asked` in this round; `None` when the round is over.
    ///
    /// The leader first, or the node that answered last; then any, drawn at random, so that a thousand clients that
    /// lose one node do not all turn to the same other one; those that were silent when they were asked last come last.
    pub(super) fn pick(&mut self, route: Route, asked: &[Endpoint]) -> Option<Target> {
        let first = match route {
            Route::Leader => self.leader.as_ref().or(self.favourite.as_ref()),
            Route::Any => self.favourite.as_ref(),
        };
        let endpoint = match first.filter(|endpoint| !asked.contains(endpoint)) {
            Some(endpoint) => endpoint.clone(),
            None => {
                let mut left: Vec<&Endpoint> =
                    self.known().filter(|endpoint| !asked.contains(endpoint)).collect();
                if left.is_empty() {
                    return None;
                }
                if left.iter().any(|endpoint| !self.silent.contains(*endpoint)) {
                    left.retain(|endpoint| !self.silent.contains(*endpoint));
                }
                left.swap_remove(fastrand::usize(..left.len())).clone()
            }
        };
        Some(self.target(endpoint))
    }

    fn known(&self) -> impl Iterator<Item = &Endpoint> {
        let learnt = self.learnt.values().filter(|endpoint| !self.given.contains(endpoint));
        self.given.iter().chain(learnt)
    }

    fn target(&mut self, endpoint: Endpoint) -> Target {
        let (channel, life) = match self.channels.get(&endpoint) {
            Some((channel, life)) => (channel.clone(), *life),
            None => {
                self.lives += 1;
                let channel = match self.calm.get(&endpoint) {
                    Some(times) => self.dial.dial_calmly(&endpoint, *times),
                    None => self.dial.dial(&endpoint),
                };
                self.channels.insert(endpoint.clone(), (channel.clone(), self.lives));
                (channel, self.lives)
            }
        };
        Target { endpoint, channel, life }
    }

    /// It answered, as the leader if the call was one for the leader.
    pub(super) fn worked(&mut self, target: &Target, route: Route) {
        self.answered(target);
        self.favourite = Some(target.endpoint.clone());
        if route == Route::Leader {
            self.leader = Some(target.endpoint.clone());
        }
    }

    /// It answered something.
    pub(super) fn answered(&mut self, target: &Target) {
        self.silent.remove(&target.endpoint);
    }

    /// It did not answer as hoped: nobody's favourite any more, and not the leader.
    pub(super) fn disappointed(&mut self, target: &Target) {
        self.favourite.take_if(|endpoint| *endpoint == target.endpoint);
        self.leader.take_if(|endpoint| *endpoint == target.endpoint);
    }

    /// Its connection may be dead without knowing it. The next call connects anew, and resolves the name anew; calls
    /// and streams that are under way on it go on.
    pub(super) fn condemn(&mut self, target: &Target) {
        if self.channels.get(&target.endpoint).is_some_and(|(_, life)| *life == target.life) {
            self.channels.remove(&target.endpoint);
            let mut silent = std::mem::take(&mut self.silent);
            silent.retain(|endpoint| self.known().any(|known| known == endpoint));
            silent.insert(target.endpoint.clone());
            self.silent = silent;
        }
    }

    /// Its connection was ended because of too many pings: the next one pings half as often. However many calls were under
    /// way on it, that counts once.
    pub(super) fn calm_down(&mut self, target: &Target) {
        if self.channels.get(&target.endpoint).is_some_and(|(_, life)| *life == target.life) {
            self.channels.remove(&target.endpoint);
            let times = self.calm.entry(target.endpoint.clone()).or_insert(1);
            *times = times.saturating_mul(2).min(MAX_CALM);
            tracing::info!(
                endpoint = %target.endpoint,
                times,
                "a connection was ended for too many pings; pings are so many times as far apart now"
            );
        }
    }

    /// A node said who leads.
    pub(super) fn hint(&mut self, leader: &NodeAddress) {
        if let Some(endpoint) = self.learn(leader) {
            self.leader = Some(endpoint);
        }
    }

    /// The cluster's nodes, all of them: those not named are forgotten.
    pub(super) fn learn_all(&mut self, nodes: &[NodeAddress]) {
        self.learnt.clear();
        for node in nodes {
            self.learn(node);
        }
        let known: Vec<Endpoint> = self.known().cloned().collect();
        self.channels.retain(|endpoint, _| known.contains(endpoint));
        self.silent.retain(|endpoint| known.contains(endpoint));
        self.calm.retain(|endpoint, _| known.contains(endpoint));
        self.leader.take_if(|endpoint| !known.contains(endpoint));
        self.favourite.take_if(|endpoint| !known.contains(endpoint));
    }

    /// An address that cannot be dialled from here is no reason to fail: the endpoints given are still there.
    fn learn(&mut self, node: &NodeAddress) -> Option<Endpoint> {
        let endpoint = Endpoint::from_address(&node.address).ok()?;
        if self.learnt.len() < MAX_LEARNT || self.learnt.contains_key(&node.node) {
            self.learnt.insert(node.node, endpoint.clone());
        }
        Some(endpoint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::TcpDial;

    fn node(id: u64, address: &str) -> NodeAddress {
        NodeAddress { node: NodeId::new(id).unwrap(), address: address.to_owned() }
    }

    fn pool(endpoints: &str) -> Pool {
        Pool::new(&endpoints.parse().unwrap(), Arc::new(TcpDial::default()))
    }

    /// All nodes that one round asks, in order.
    fn round(pool: &mut Pool, route: Route) -> Vec<String> {
        let mut asked = Vec::new();
        while let Some(target) = pool.pick(route, &asked) {
            asked.push(target.endpoint);
        }
        asked.iter().map(|endpoint| endpoint.address().to_owned()).collect()
    }

    #[tokio::test]
    async fn a_round_asks_the_leader_first_and_every_node_once() {
        let mut pool = pool("http://a:1,http://b:1");
        pool.hint(&node(3, "c:1"));
        for _ in 0..20 {
            let mut asked = round(&mut pool, Route::Leader);
            assert_eq!(asked[0], "c:1");
            asked.sort();
            assert_eq!(asked, ["a:1", "b:1", "c:1"]);
        }
    }

    #[tokio::test]
    async fn f070_clients_that_lose_one_node_turn_to_different_others() {
        let mut firsts = std::collections::BTreeSet::new();
        for _ in 0..100 {
            firsts.insert(round(&mut pool("http://a:1,http://b:1,http://c:1"), Route::Any)[0].clone());
        }
        assert_eq!(firsts.len(), 3);
    }

    #[tokio::test]
    async fn a_node_that_was_silent_is_asked_last_until_it_answers() {
        let mut pool = pool("http://a:1,http://b:1,http://c:1");
        let silent = pool.target(Endpoint::new("http://b:1").unwrap());
        pool.condemn(&silent);
        for _ in 0..20 {
            assert_eq!(round(&mut pool, Route::Leader)[2], "b:1");
            assert_eq!(round(&mut pool.without_connections(), Route::Any)[2], "b:1");
        }
        let again = pool.target(silent.endpoint.clone());
        pool.answered(&again);
        let firsts: HashSet<String> = (0..100).map(|_| round(&mut pool, Route::Any)[0].clone()).collect();
        assert_eq!(firsts.len(), 3);
    }

    #[tokio::test]
    async fn nodes_that_left_the_cluster_are_forgotten_and_the_endpoints_given_are_not() {
        let mut pool = pool("http://a:1");
        pool.learn_all(&[node(1, "a:1"), node(2, "b:1")]);
        pool.hint(&node(2, "b:1"));
        pool.learn_all(&[node(3, "c:1")]);
        let mut asked = round(&mut pool, Route::Leader);
        asked.sort();
        assert_eq!(asked, ["a:1", "c:1"]);
    }

    #[tokio::test]
    async fn f096_a_coordinator_that_talks_nonsense_fills_no_memory() {
        let mut pool = pool("http://a:1");
        for id in 1..10_000 {
            pool.hint(&node(id, &format!("n{id}:1")));
            pool.hint(&node(1, "not an address"));
        }
        assert!(round(&mut pool, Route::Any).len() <= 1 + MAX_LEARNT);
    }

    #[tokio::test]
    async fn f097_pings_that_are_too_many_become_fewer_once_a_connection_and_up_to_a_bound() {
        let mut pool = pool("http://a:1,http://b:1");
        let endpoint = |name: &str| Endpoint::new(&format!("http://{name}:1")).unwrap();
        for expected in [2, 4, 8, 16, 32, 64, 64] {
            let target = pool.target(endpoint("a"));
            // All the streams of one connection end with it.
            pool.calm_down(&target);
            pool.calm_down(&target);
            assert_eq!(pool.calm.get(&endpoint("a")), Some(&expected));
        }
        assert_eq!(pool.without_connections().calm, pool.calm);
        assert_eq!(pool.calm.get(&endpoint("b")), None);
    }

    #[tokio::test]
    async fn a_condemned_channel_is_replaced_once() {
        let mut pool = pool("http://a:1");
        let first = pool.pick(Route::Any, &[]).unwrap();
        pool.condemn(&first);
        let second = pool.pick(Route::Any, &[]).unwrap();
        assert_ne!(first.life, second.life);
        pool.condemn(&first);
        assert_eq!(pool.pick(Route::Any, &[]).unwrap().life, second.life);
    }
}
