//! What the fence needs of a client of etcd, and what etcd's errors mean to it.

use super::txn::{Txn, TxnReply};
use crate::FenceError;
use std::error::Error;
use std::sync::Arc;

/// A client of etcd that runs transactions: [`EtcdConnection`](super::EtcdConnection), or the library that the program has
/// already, in a type of the program's own around it.
///
/// Reads in a transaction have to be linearizable, which is etcd's default.
pub trait EtcdKv: Send {
    /// A number for the connection over which the next [`EtcdKv::txn`] goes; it is connected if need be. It stands for one
    /// life of one server process, so it changes with every new connection: the fence then looks whether the store is still
    /// the one it was.
    ///
    /// A library that connects again by itself, unseen, answers 0. The fence then learns with the answer of a write, and not
    /// before it, that the store was replaced by an older one.
    ///
    /// # Errors
    /// Nothing was sent.
    fn connection(&mut self) -> impl Future<Output = Result<u64, EtcdError>> + Send;

    /// Runs a transaction, once: whatever goes wrong, it is not sent a second time.
    ///
    /// # Errors
    /// See [`EtcdError`].
    fn txn(&mut self, txn: Txn) -> impl Future<Output = Result<TxnReply, EtcdError>> + Send;
}

/// Why a transaction has no answer, and what can be known of its effect.
#[derive(Clone, Debug, thiserror::Error)]
pub enum EtcdError {
    /// etcd did nothing, and the same call may succeed later or elsewhere.
    #[error("etcd did nothing: {0}")]
    NothingHappened(#[source] Arc<dyn Error + Send + Sync>),
    /// etcd did nothing, and never will.
    #[error("etcd refused the call: {0}")]
    Never(String),
    /// It was sent, or may have been. Nobody knows whether it takes effect, or still will.
    #[error("the outcome is unknown: {0}")]
    Unknown(#[source] Arc<dyn Error + Send + Sync>),
}

/// What a server said, or a connection.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Said(String);

/// gRPC's numbers.
mod code {
    pub(super) const INVALID_ARGUMENT: i32 = 3;
    pub(super) const NOT_FOUND: i32 = 5;
    pub(super) const PERMISSION_DENIED: i32 = 7;
    pub(super) const RESOURCE_EXHAUSTED: i32 = 8;
    pub(super) const OUT_OF_RANGE: i32 = 11;
    pub(super) const UNIMPLEMENTED: i32 = 12;
    pub(super) const UNAVAILABLE: i32 = 14;
    pub(super) const UNAUTHENTICATED: i32 = 16;
}

impl EtcdError {
    /// Reads a gRPC status: its number, and the message that etcd sent with it.
    ///
    /// Only what etcd says before it proposes anything, or instead of applying it, counts as "nothing happened". A lost
    /// leader, a time limit and a broken connection are unknown: the proposal may be in the log.
    pub fn of_status(number: i32, message: &str) -> EtcdError {
        let said = || Arc::new(Said(shown(message)));
        let Some(etcd) = message.strip_prefix("etcdserver: ") else {
            return match number {
                code::UNIMPLEMENTED => EtcdError::Never(shown(message)),
                _ => EtcdError::Unknown(said()),
            };
        };
        match number {
            code::INVALID_ARGUMENT if etcd.contains("auth store is old") => {
                EtcdError::NothingHappened(said())
            }
            code::INVALID_ARGUMENT
            | code::NOT_FOUND
            | code::PERMISSION_DENIED
            | code::OUT_OF_RANGE
            | code::UNIMPLEMENTED => EtcdError::Never(shown(message)),
            code::UNAUTHENTICATED => EtcdError::NothingHappened(said()),
            // Not "database space exceeded": a member whose quota is used up applies the transaction and says so afterwards.
            code::RESOURCE_EXHAUSTED if etcd == "too many requests" => EtcdError::NothingHappened(said()),
            code::UNAVAILABLE if etcd == "no leader" || etcd.contains("not supported for learner") => {
                EtcdError::NothingHappened(said())
            }
            _ => EtcdError::Unknown(said()),
        }
    }

    /// The fence's error for it, naming what was being done.
    pub(super) fn into_fence(self, doing: &'static str) -> FenceError {
        match self {
            EtcdError::NothingHappened(source) => FenceError::Busy { doing, source },
            EtcdError::Unknown(source) => FenceError::Store { doing, source },
            EtcdError::Never(why) => FenceError::Unfit { why: format!("{doing}: {why}") },
        }
    }
}

/// A text from outside for a message: escaped, and cut where it is long.
pub(super) fn shown(text: &str) -> String {
    text.chars().take(200).collect::<String>().escape_debug().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FenceErrorKind;

    #[test]
    fn t21_what_etcd_refused_before_it_proposed_is_busy_and_what_may_be_in_the_log_is_unknown() {
        for (number, message, expected) in [
            (8, "etcdserver: too many requests", FenceErrorKind::Busy),
            (8, "etcdserver: mvcc: database space exceeded", FenceErrorKind::Store),
            (14, "etcdserver: no leader", FenceErrorKind::Busy),
            (16, "etcdserver: invalid auth token", FenceErrorKind::Busy),
            (3, "etcdserver: revision of auth store is old", FenceErrorKind::Busy),
            (3, "etcdserver: too many operations in txn request", FenceErrorKind::Unfit),
            (3, "etcdserver: duplicate key given in txn request", FenceErrorKind::Unfit),
            (3, "etcdserver: request is too large", FenceErrorKind::Unfit),
            (5, "etcdserver: requested lease not found", FenceErrorKind::Unfit),
            (7, "etcdserver: permission denied", FenceErrorKind::Unfit),
            (11, "etcdserver: mvcc: required revision has been compacted", FenceErrorKind::Unfit),
            (12, "unknown service etcdserverpb.KV", FenceErrorKind::Unfit),
            (14, "etcdserver: leader changed", FenceErrorKind::Store),
            (14, "etcdserver: request timed out", FenceErrorKind::Store),
            (
                14,
                "etcdserver: request timed out, possibly due to previous leader failure",
                FenceErrorKind::Store,
            ),
            (14, "etcdserver: server stopped", FenceErrorKind::Store),
            (14, "transport error", FenceErrorKind::Store),
            (1, "Timeout expired", FenceErrorKind::Store),
            (4, "context deadline exceeded", FenceErrorKind::Store),
            (8, "a message of the client's own", FenceErrorKind::Store),
            (3, "a message of a proxy's own", FenceErrorKind::Store),
            (2, "", FenceErrorKind::Store),
        ] {
            let kind = EtcdError::of_status(number, message).into_fence("writing").kind();
            assert_eq!(kind, expected, "{number} {message}");
        }
    }
}
