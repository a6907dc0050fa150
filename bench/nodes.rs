//! Nodes for benches of whole clusters.

use ringfence_server::{Coordinator, Given};
use std::net::TcpListener;

/// Three durable nodes on loopback that have formed a cluster.
pub(crate) async fn three_nodes(dir: &std::path::Path) -> Vec<Coordinator> {
    let reserved: Vec<TcpListener> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let list: Vec<String> =
        (1..).zip(&reserved).map(|(id, at)| format!("{id}={}", at.local_addr().unwrap())).collect();
    let mut nodes = Vec::new();
    for (id, listener) in (1..).zip(reserved) {
        let given = Given {
            node: Some(id),
            listen: Some(listener.local_addr().unwrap().to_string()),
            data_dir: Some(dir.join(id.to_string())),
            cluster: Some(list.clone()),
            ..Given::default()
        };
        nodes.push(Coordinator::with(given.check().unwrap()).listener(listener).start().await.unwrap());
    }
    for node in &nodes {
        node.ready().await.unwrap();
    }
    nodes
}
