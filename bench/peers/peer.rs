//! What is measured, of whichever server.

use anyhow::Result;
use async_trait::async_trait;
use std::time::Duration;

/// A server with locks.
#[async_trait]
pub trait Peer: Send + Sync {
    /// What it is called in the table.
    fn name(&self) -> String;

    /// A client with a connection and a session of its own, which it keeps alive. The number says which node it goes to
    /// where a client has to choose.
    async fn client(&self, number: usize, ttl: Duration) -> Result<Box<dyn Client>>;

    /// What a process that is started to be killed has to be told: the kind of peer, and where it is.
    fn address(&self) -> String;
}

/// One client. It holds one lock at a time.
#[async_trait]
pub trait Client: Send {
    /// Waits until it has the lock.
    async fn acquire(&mut self, lock: &str) -> Result<()>;

    /// Gives it back, and waits until that is done.
    async fn release(&mut self) -> Result<()>;
}
