//! The nodes that form a cluster: `1=HOST:PORT,2=HOST:PORT,3=HOST:PORT`.
//!
//! One, three or five. Two nodes stop when either does, four survive no more than three do: an even number costs a node
//! and buys nothing.

use super::error::shown;
use crate::raft::limits::ADDRESS_BYTES;
use ringfence_core::ids::NodeId;
use std::collections::BTreeMap;
use std::fmt;

/// The nodes that form a cluster, by id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Founders(BTreeMap<NodeId, String>);

/// A list that is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FoundersError {
    /// An entry is not `ID=HOST:PORT`.
    #[error("{entry} is not ID=HOST:PORT: {why}")]
    Entry {
        /// The entry, escaped.
        entry: String,
        /// What is wrong with it.
        why: String,
    },
    /// An id is there twice.
    #[error("node {node} is there twice, at {first} and at {second}: each node has one id")]
    DuplicateId {
        /// The id.
        node: u64,
        /// One address.
        first: String,
        /// The other.
        second: String,
    },
    /// An address is there twice.
    #[error("address {address} is that of node {first} and of node {second}: each node has one address")]
    DuplicateAddress {
        /// The address.
        address: String,
        /// One node.
        first: u64,
        /// The other.
        second: u64,
    },
    /// Not one, three or five.
    #[error(
        "it lists {0} nodes: list 1, 3 or 5; a cluster works while more than half of its nodes do, so an even number \
         survives no more failures than one less"
    )]
    Count(usize),
}

impl Founders {
    /// Takes these as the founders.
    ///
    /// # Errors
    /// [`FoundersError`]: not 1, 3 or 5 nodes, an address that is none, or one that is there twice.
    pub fn new(nodes: BTreeMap<NodeId, String>) -> Result<Founders, FoundersError> {
        if !matches!(nodes.len(), 1 | 3 | 5) {
            return Err(FoundersError::Count(nodes.len()));
        }
        let mut by_address = BTreeMap::new();
        for (node, address) in &nodes {
            check_address(address).map_err(|why| FoundersError::Entry {
                entry: shown(&format!("{}={address}", node.get())),
                why,
            })?;
            if let Some(first) = by_address.insert(address, node) {
                let (first, second) = (first.get(), node.get());
                return Err(FoundersError::DuplicateAddress { address: address.clone(), first, second });
            }
        }
        Ok(Founders(nodes))
    }

    /// Reads entries of the form `ID=HOST:PORT`.
    ///
    /// # Errors
    /// [`FoundersError`].
    pub fn parse<'a>(entries: impl IntoIterator<Item = &'a str>) -> Result<Founders, FoundersError> {
        let mut nodes = BTreeMap::new();
        for entry in entries {
            let entry = entry.trim();
            let wrong = |why: String| FoundersError::Entry { entry: shown(entry), why };
            let (id, address) = entry.split_once('=').ok_or_else(|| wrong("there is no '='".to_owned()))?;
            let number = id.trim().parse::<u64>().map_err(|_| wrong("the id is not a number".to_owned()))?;
            let node = NodeId::new(number).map_err(|e| wrong(e.to_string()))?;
            let address = address.trim();
            check_address(address).map_err(wrong)?;
            if let Some(first) = nodes.insert(node, address.to_owned()) {
                return Err(FoundersError::DuplicateId { node: number, first, second: address.to_owned() });
            }
        }
        Founders::new(nodes)
    }

    /// The nodes and their addresses.
    pub fn nodes(&self) -> &BTreeMap<NodeId, String> {
        &self.0
    }

    /// The address of a node.
    pub fn address(&self, node: NodeId) -> Option<&str> {
        self.0.get(&node).map(String::as_str)
    }

    /// How another list differs from this one, in words; `None` when it does not.
    pub fn difference(&self, other: &Founders) -> Option<String> {
        difference(&self.0, &other.0)
    }
}

/// How the list `theirs` differs from `ours`, in words; `None` when it does not.
pub(crate) fn difference(
    ours: &BTreeMap<NodeId, String>,
    theirs: &BTreeMap<NodeId, String>,
) -> Option<String> {
    let mut parts = Vec::new();
    for (node, address) in ours {
        match theirs.get(node) {
            None => parts.push(format!("it lacks {}={address}", node.get())),
            Some(other) if other != address => {
                parts.push(format!("it has {}={} where this node has {address}", node.get(), shown(other)));
            }
            Some(_) => {}
        }
    }
    let more = theirs.iter().filter(|(node, _)| !ours.contains_key(node));
    parts.extend(more.map(|(node, address)| format!("it has {}={} too", node.get(), shown(address))));
    (!parts.is_empty()).then(|| parts.join(", "))
}

impl fmt::Display for Founders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (node, address)) in self.0.iter().enumerate() {
            write!(f, "{}{}={address}", if at == 0 { "" } else { "," }, node.get())?;
        }
        Ok(())
    }
}

/// `HOST:PORT`, to be dialled: a name or an address, and a port that is not 0.
pub(crate) fn check_address(address: &str) -> Result<(), String> {
    if address.len() > ADDRESS_BYTES {
        return Err(format!("the address is longer than {ADDRESS_BYTES} bytes"));
    }
    let (host, port) = address.rsplit_once(':').ok_or("the port is missing")?;
    if host.is_empty() {
        return Err("the host is missing".to_owned());
    }
    match port.parse::<u16>() {
        Ok(0) | Err(_) => return Err("the port is not a number from 1 to 65535".to_owned()),
        Ok(_) => {}
    }
    let ipv6 = host.starts_with('[') && host.ends_with(']');
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    if ipv6 {
        return host[1..host.len() - 1]
            .parse::<std::net::Ipv6Addr>()
            .map(|_| ())
            .map_err(|_| "the host in brackets is not an IPv6 address".to_owned());
    }
    if host.contains(':') {
        return Err("write an IPv6 address in brackets, [::1]:7600".to_owned());
    }
    if !host.chars().all(plain) {
        return Err("the host has a character that no host has".to_owned());
    }
    Ok(())
}
