//! Partitions, as an operator sees them.

use super::Pieces;
use crate::context::Context;
use crate::map::{no_such_keyspace, no_such_partition};
use crate::replica::Local;
use futures_util::stream;
use prost::Message as _;
use ringfence_api::convert::{Partition, Tenure, checked};
use ringfence_api::{Failure, PIECE_BYTES, v1};
use ringfence_core::ids::{KeyspaceId, KeyspaceName, PartitionId, PartitionKey};

/// The partitions of a keyspace in order. Each piece is made when it is sent, from what is there then.
pub(super) async fn list(
    context: &Context,
    request: v1::ListPartitionsRequest,
) -> Result<Pieces<v1::ListPartitionsResponse>, Failure> {
    let name = checked::keyspace_name("keyspace", &request.keyspace)?;
    context.confirm().await?;
    let id = {
        let local = context.replica.lock();
        local.state.keyspace_named(&name).ok_or_else(|| no_such_keyspace(&name))?.id()
    };
    let next = Some(Next { context: context.clone(), name, id, number: 0 });
    Ok(Box::pin(stream::unfold(next, |next| async {
        let mut next = next?;
        match next.piece() {
            Ok(None) => None,
            Ok(Some(partitions)) => Some((Ok(v1::ListPartitionsResponse { partitions }), Some(next))),
            Err(failure) => Some((Err(failure.into()), None)),
        }
    })))
}

struct Next {
    context: Context,
    name: KeyspaceName,
    id: KeyspaceId,
    number: u32,
}

impl Next {
    fn piece(&mut self) -> Result<Option<Vec<v1::Partition>>, Failure> {
        let local = self.context.replica.lock();
        let count = local.state.keyspace(self.id).map(|keyspace| keyspace.count().get());
        // Deleted while it was listed: half a list must not look like a whole one.
        let count = count.ok_or_else(|| no_such_keyspace(&self.name))?;
        let (mut partitions, mut bytes) = (Vec::new(), 0);
        while self.number < count && bytes < PIECE_BYTES {
            let key = PartitionKey { keyspace: self.id, partition: PartitionId::new(self.number) };
            self.number += 1;
            if let Some(partition) = Partition::read(&local.state, key) {
                let message = with_load(&local, key, partition);
                bytes += message.encoded_len();
                partitions.push(message);
            }
        }
        Ok((!partitions.is_empty()).then_some(partitions))
    }
}

/// With the load that was measured of it, when this node leads and knows one.
pub(crate) fn with_load(local: &Local, key: PartitionKey, partition: Partition) -> v1::Partition {
    let load = local.leadership.as_ref().and_then(|led| led.loads.measured(key));
    Partition { load, ..partition }.into()
}

/// One partition with the history of its last owners, newest first.
pub(super) async fn get(
    context: &Context,
    request: v1::GetPartitionRequest,
) -> Result<v1::GetPartitionResponse, Failure> {
    let name = checked::keyspace_name("keyspace", &request.keyspace)?;
    let number = PartitionId::new(request.partition);
    context.confirm().await?;
    let local = context.replica.lock();
    let keyspace = local.state.keyspace_named(&name).ok_or_else(|| no_such_keyspace(&name))?;
    let key = PartitionKey { keyspace: keyspace.id(), partition: number };
    let absent = || no_such_partition(keyspace, number);
    let shown = Partition::read(&local.state, key).ok_or_else(absent)?;
    let history = local.state.partition(key).ok_or_else(absent)?.history();
    Ok(v1::GetPartitionResponse {
        partition: Some(with_load(&local, key, shown)),
        history: history.iter().rev().map(|tenure| Tenure::read(&local.state, tenure).into()).collect(),
    })
}
