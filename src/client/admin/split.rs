//! Splitting every partition of a keyspace in two.

use super::handle::{Admin, CHANGE, READ, keyspace};
use crate::error::Error;
use ringfence_api::convert::Keyspace;
use ringfence_api::v1;
use ringfence_core::ids::KeyspaceName;

impl Admin {
    /// Begins to split every partition of a keyspace in two, one after the other, while workers own them. `from` is how many
    /// it has, and it is refused when it has another number; so it takes effect once, however often it is said.
    ///
    /// Returns when that is committed. The split then goes on by itself, whoever leads; [`Keyspace::split_from`] says how far
    /// it is, and is `None` when it is over. Each partition changes hands once, to the worker that has it: its owner function
    /// is revoked, and called again for half of the keys; the new partition goes to the same worker, and is balanced later.
    ///
    /// A number of partitions changes in no other way.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](crate::ErrorKind::NotFound), [`ErrorKind::Limit`](crate::ErrorKind::Limit), and
    /// [`ErrorKind::Refused`](crate::ErrorKind::Refused) when it has another number of partitions, is being split already, or
    /// a worker that serves it has not said that its partitions may be split.
    pub async fn split_keyspace(&self, name: &str, from: u32) -> Result<Keyspace, Error> {
        self.split(name, (from, from.saturating_mul(2)), false).await
    }

    /// Whether [`Admin::split_keyspace`] could begin now. Nothing is changed.
    ///
    /// # Errors
    /// As [`Admin::split_keyspace`].
    pub async fn can_split_keyspace(&self, name: &str, from: u32) -> Result<Keyspace, Error> {
        self.could_split(name, (from, from.saturating_mul(2)), false).await
    }

    /// Takes the beginning of a split back. Once a partition is split it is refused: what was split is not put together
    /// again, and the split is finished.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](crate::ErrorKind::NotFound), [`ErrorKind::Refused`](crate::ErrorKind::Refused).
    pub async fn cancel_split(&self, name: &str) -> Result<Keyspace, Error> {
        self.split(name, (0, 0), true).await
    }

    /// Whether [`Admin::cancel_split`] could take it back now. Nothing is changed.
    ///
    /// # Errors
    /// As [`Admin::cancel_split`].
    pub async fn can_cancel_split(&self, name: &str) -> Result<Keyspace, Error> {
        self.could_split(name, (0, 0), true).await
    }

    async fn could_split(&self, name: &str, (from, to): (u32, u32), cancel: bool) -> Result<Keyspace, Error> {
        let name = KeyspaceName::new(name)?;
        let request = v1::SplitKeyspaceRequest {
            request: Some(self.request_id().await?),
            name: name.to_string(),
            from,
            to,
            cancel,
            dry_run: true,
            directive: None,
        };
        let answer = self.ask(READ, request, async |mut c, r| c.split_keyspace(r).await).await?;
        keyspace(answer.keyspace)
    }

    async fn split(&self, name: &str, (from, to): (u32, u32), cancel: bool) -> Result<Keyspace, Error> {
        let name = KeyspaceName::new(name)?;
        let request = v1::SplitKeyspaceRequest {
            request: Some(self.request_id().await?),
            name: name.to_string(),
            from,
            to,
            cancel,
            dry_run: false,
            directive: Some(self.directive()),
        };
        let answer = self.ask(CHANGE, request, async |mut c, r| c.split_keyspace(r).await).await?;
        keyspace(answer.keyspace)
    }
}
