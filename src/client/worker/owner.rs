//! The owner function of a keyspace.

use crate::fence::{DeclaredFence, Fence, FenceError, FenceErrorKind, FencingToken};
use crate::ownership::Ownership;
use futures_util::future::BoxFuture;
use ringfence_core::ids::{Epoch, KeyspaceName};
use ringfence_core::mutant;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

/// How long to wait before a fence that was busy, or whose storage failed, is raised again. A raise is idempotent.
const RAISE_AGAIN: Duration = Duration::from_millis(100);

/// Why an owner's task has ended when it should not have.
#[derive(Debug)]
pub(super) enum Ended {
    /// With this error.
    Failed(String),
    /// It was never called: a fence has seen this epoch, which is above its own.
    Behind(Epoch, String),
}

/// One keyspace that a worker serves: its fences, and the function that owns a partition.
#[derive(Clone)]
pub(super) struct Owner {
    pub(super) keyspace: KeyspaceName,
    fences: Arc<[DeclaredFence]>,
    function: Arc<dyn Fn(Ownership) -> BoxFuture<'static, Result<(), String>> + Send + Sync>,
}

impl Owner {
    pub(super) fn new<F, Fut, E>(keyspace: KeyspaceName, fences: Vec<DeclaredFence>, function: F) -> Owner
    where
        F: Fn(Ownership) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: Display,
    {
        let function = move |ownership| -> BoxFuture<'static, Result<(), String>> {
            let task = function(ownership);
            // The alternate form: error types that have one show their causes with it.
            Box::pin(async move { task.await.map_err(|error| format!("{error:#}")) })
        };
        Owner { keyspace, fences: fences.into(), function: Arc::new(function) }
    }

    /// Raises every declared fence to this epoch, one after the other.
    ///
    /// All of them before any state is read: with two storages, an owner that raised and read the first while the
    /// second was open would read what its predecessor still builds on.
    ///
    /// A fence that has seen a higher epoch stops nothing but the owner: the others are raised all the same, and the highest
    /// that any has seen is what the coordinator has to know, or each of them would cost a grant.
    pub(super) async fn raise(&self, token: &FencingToken) -> Result<(), Ended> {
        let mut behind: Option<Ended> = None;
        for fence in &*self.fences {
            let Err(error) = raise(fence, token).await else { continue };
            let text = format!("raising fence {}: {error}", fence.name());
            match &error {
                FenceError::Fenced(fenced) if !mutant!("raise-refused-is-a-failure") => {
                    let seen = fenced.highest();
                    let higher =
                        behind.as_ref().is_none_or(|b| matches!(b, Ended::Behind(e, _) if *e < seen));
                    behind = if higher { Some(Ended::Behind(seen, text)) } else { behind };
                }
                _ => return Err(Ended::Failed(text)),
            }
        }
        behind.map_or(Ok(()), Err)
    }

    /// Raises every declared fence for the partitions that this one was split from: whoever owned its keys before is
    /// refused under their scopes. Where a fence has seen a higher epoch of one, that is done already.
    pub(super) async fn raise_ancestors(&self, ancestors: &[FencingToken]) -> Result<(), Ended> {
        for fence in &*self.fences {
            for token in ancestors {
                match raise(fence, token).await {
                    Err(error) if error.kind() != FenceErrorKind::Fenced => {
                        let (name, token) = (fence.name(), token.short());
                        return Err(Ended::Failed(format!(
                            "raising fence {name} to {token}, which this was split from: {error}"
                        )));
                    }
                    Ok(()) | Err(_) => {}
                }
            }
        }
        Ok(())
    }

    /// The owner's task.
    pub(super) fn run(&self, ownership: Ownership) -> impl Future<Output = Result<(), Ended>> + use<> {
        let task = (self.function)(ownership);
        async move { task.await.map_err(Ended::Failed) }
    }
}

async fn raise(fence: &DeclaredFence, token: &FencingToken) -> Result<(), FenceError> {
    loop {
        match fence.raise(token).await {
            Err(error) if may_pass(error.kind()) => {
                tracing::warn!(token = %token.short(), fence = fence.name(), %error, "raising the fence again");
                tokio::time::sleep(RAISE_AGAIN).await;
            }
            result => return result,
        }
    }
}

/// What the storage could not do now it may do in a moment; a refusal, and what stands wrong in it, stays so.
fn may_pass(kind: FenceErrorKind) -> bool {
    matches!(kind, FenceErrorKind::Busy | FenceErrorKind::Store)
}
