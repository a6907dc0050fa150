//! The service for callers: which worker owns which partition. Any node answers watches; the leader answers lookups.
//!
//! Nothing is queued for a reader. A stream is woken when something was applied, looks at what changed since it looked
//! last, and sends what is there now. So a reader that does not read holds a place in the map and nothing else, and
//! finds the latest when it goes on; and a reader that comes or goes changes nothing for anybody.
//!
//! | module | what it is |
//! |---|---|
//! | `cursor` | how far a reader is: what it still has to be sent |
//! | `watch` | the stream: when it waits, sends, and ends |

mod cursor;
mod watch;

#[cfg(test)]
mod tests;

use crate::contact::Contact;
use crate::context::Context;
use ringfence_api::Failure;
use ringfence_api::convert::{InvalidField, MapEntry, checked};
use ringfence_api::v1;
use ringfence_api::v1::lookup_request::Target;
use ringfence_api::v1::map_service_server::MapService;
use ringfence_core::ids::{KeyspaceName, PartitionId, PartitionKey};
use ringfence_core::state::Keyspace;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

/// The service. A clone is the same service.
#[derive(Clone)]
pub struct Map {
    context: Context,
    contact: Contact,
    stop: CancellationToken,
}

impl Map {
    /// The service of one node. Streams end when `stop` is cancelled, or when the node has not heard of a leader for
    /// `leaderless`.
    pub fn new(context: Context, leaderless: Duration, stop: CancellationToken) -> Map {
        let contact = Contact::watch(context.clone(), leaderless, stop.clone());
        Map { context, contact, stop }
    }

    async fn look_up(&self, request: v1::LookupRequest) -> Result<v1::LookupResponse, Failure> {
        let name = checked::keyspace_name("keyspace", &request.keyspace)?;
        let target =
            request.target.ok_or_else(|| InvalidField::new("target", "give a key or a partition"))?;
        self.context.confirm().await?;
        let local = self.context.replica.lock();
        let keyspace = local.state.keyspace_named(&name).ok_or_else(|| no_such_keyspace(&name))?;
        let number = match target {
            Target::Key(key) => keyspace.partitioner().partition_of(&key),
            Target::Text(key) => keyspace.partitioner().partition_of(key.as_bytes()),
            Target::Partition(number) => PartitionId::new(number),
        };
        let key = PartitionKey { keyspace: keyspace.id(), partition: number };
        let entry = MapEntry::read(&local.state, key).ok_or_else(|| no_such_partition(keyspace, number))?;
        Ok(v1::LookupResponse { entry: Some(entry.into()), revision: local.state.revision().get() })
    }
}

/// The failure for a partition's number that is too large.
pub(crate) fn no_such_partition(keyspace: &Keyspace, number: PartitionId) -> Failure {
    let (name, last) = (keyspace.name(), keyspace.count().get().saturating_sub(1));
    Failure::not_found(format_args!("keyspace {name} has partitions 0 to {last} and no {}", number.get()))
}

/// The failure for a name that no keyspace has.
pub(crate) fn no_such_keyspace(name: &KeyspaceName) -> Failure {
    Failure::not_found(format_args!(
        "there is no keyspace {name}; create it with: ringfence keyspace create {name} --partitions N"
    ))
}

#[tonic::async_trait]
impl MapService for Map {
    type WatchStream = watch::Watching;

    async fn watch(&self, request: Request<v1::WatchRequest>) -> Result<Response<watch::Watching>, Status> {
        Ok(Response::new(watch::watch(self.clone(), request.into_inner()).await?))
    }

    async fn lookup(
        &self,
        request: Request<v1::LookupRequest>,
    ) -> Result<Response<v1::LookupResponse>, Status> {
        Ok(Response::new(self.look_up(request.into_inner()).await?))
    }
}
