//! Why a fence said no.

use crate::FencingToken;
use ringfence_core::ids::{ClusterId, Epoch, Scope, SessionId};
use std::error::Error;
use std::sync::Arc;

/// The refusal of an owner that was replaced: the fence has seen a higher epoch than the token's.
///
/// Whatever the owner was doing, a write, a raise, or several scopes at once, this is what it gets, with both numbers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} is fenced: its epoch is {}, and the fence has seen {}; nothing was written. This owner was replaced: stop its \
     task, and do the work again only under a new grant",
    .token.short(), .token.epoch().get(), .highest.get()
)]
pub struct Fenced {
    token: FencingToken,
    highest: Epoch,
}

impl Fenced {
    /// The refusal of `token` by a fence whose highest epoch is `highest`.
    pub fn new(token: FencingToken, highest: Epoch) -> Fenced {
        Fenced { token, highest }
    }

    /// The token that was refused.
    pub fn token(&self) -> &FencingToken {
        &self.token
    }

    /// The scope it spoke for.
    pub fn scope(&self) -> &Scope {
        self.token.scope()
    }

    /// The epoch that was refused.
    pub fn own(&self) -> Epoch {
        self.token.epoch()
    }

    /// The epoch that won: the highest the fence has seen.
    pub fn highest(&self) -> Epoch {
        self.highest
    }
}

/// A raise waited for transactions that wrote under an earlier epoch, as long as it was allowed to, and raised nothing.
///
/// Such a transaction may be of an owner that is paused in the middle of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the fence of {scope} is held by other transactions, and was not raised: {by}. Raise again, or end them; a limit on \
     idle transactions keeps a paused owner from holding a fence for long"
)]
pub struct Blocked {
    scope: Scope,
    by: String,
}

impl Blocked {
    /// A raise of `scope` that waited for `by`: what the storage tells of each transaction, for people.
    pub fn new(scope: Scope, by: String) -> Blocked {
        Blocked { scope, by }
    }

    /// The scope that was not raised.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Who holds it: connection, state and since when, as far as the storage tells.
    pub fn by(&self) -> &str {
        &self.by
    }
}

/// Why a fence refused, or could not answer.
///
/// Everything but [`FenceError::Busy`], [`FenceError::Blocked`] and [`FenceError::Store`] is a decision: it was made under the fence's lock, and
/// nothing was written or remembered.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FenceError {
    /// The owner was replaced. Stop; a retry can only be refused again.
    #[error(transparent)]
    Fenced(#[from] Fenced),

    /// The fence belongs to another cluster, whose epochs were counted apart from these.
    #[error(
        "the fence belongs to cluster {bound}, and this token to cluster {presented}: point the worker to its own \
         cluster, or give each cluster a storage of its own"
    )]
    WrongCluster {
        /// The cluster of the token, or the cluster that asked to install.
        presented: ClusterId,
        /// The cluster the fence is bound to.
        bound: ClusterId,
    },

    /// A token was shown to the fence of another scope.
    #[error(
        "the token {} was shown to the fence of {fence}: stamp the write with the token of the scope it touches",
        .token.short()
    )]
    WrongScope {
        /// The token shown.
        token: FencingToken,
        /// The scope the fence watches.
        fence: Scope,
    },

    /// Nobody has raised this fence yet, so it cannot tell an owner from an impostor.
    #[error("the fence of {} was never raised: the owner raises it before it reads or writes", .token.short())]
    NotRaised {
        /// The token refused.
        token: FencingToken,
    },

    /// The epoch is so far ahead that no coordinator can have granted it.
    #[error(
        "{scope}: epoch {} is more than 2^48 ahead of {}, which no coordinator grants: find out who sent it; an \
         operator can force a raise that is meant",
        .to.get(), .from.map_or(0, Epoch::get)
    )]
    Implausible {
        /// The scope.
        scope: Scope,
        /// The highest epoch seen; `None` when the fence was never raised.
        from: Option<Epoch>,
        /// The epoch refused.
        to: Epoch,
    },

    /// The epoch was seen from another session. Epochs are granted to one session, so one of the two is forged or cloned.
    #[error(
        "{}: this epoch was already used by session {holder}, and an epoch is granted to one session only: one of the \
         two is a clone or a forgery. Stop both, and let the coordinator grant anew",
        .token.short()
    )]
    OtherSession {
        /// The token refused; it names its session.
        token: FencingToken,
        /// The session that the fence has bound to this epoch.
        holder: SessionId,
    },

    /// A write came without any token.
    #[error("a write without a fencing token is refused: stamp it with the token of every scope it touches")]
    Unstamped,

    /// What the fence remembers cannot be read, so nothing is accepted.
    #[error(
        "{place} holds {found}: everything is refused until an operator repairs it. Give a row an epoch at least as high \
         as any that was granted; never delete one"
    )]
    Corrupt {
        /// What is damaged, such as a row.
        place: String,
        /// What stands there, escaped and cut.
        found: String,
    },

    /// The storage is configured so that a crash may take back what it has answered.
    #[error("the fence would not be durable: {setting}; set {needed}")]
    NotDurable {
        /// The setting found.
        setting: String,
        /// The setting needed.
        needed: &'static str,
    },

    /// The storage has no fence.
    #[error("there is no fence in this storage: install one first")]
    NotInstalled,

    /// The storage is not the one in which this fence was raised, or not as it was: it was restarted, restored from a
    /// copy, or its place was taken by a replica. It may have forgotten a newer owner, so nobody is believed.
    #[error(
        "{}: the storage was replaced since this fence was raised (a restart, a restore or a failover), and may have \
         forgotten a newer owner; nothing was written. An owner that the coordinator still confirms raises again and \
         reads again before it writes; any other stops",
        .token.short()
    )]
    Replaced {
        /// The token refused.
        token: FencingToken,
    },

    /// The call can never work as it was made, or not on this storage. It was found before anything was written.
    #[error("nothing was written: {why}")]
    Unfit {
        /// What is wrong, and what to do.
        why: String,
    },

    /// The storage was busy and did nothing. Run the whole transaction again.
    #[error("the storage was busy while {doing} and did nothing: run the whole transaction again")]
    Busy {
        /// What was being done.
        doing: &'static str,
        /// What the storage said.
        source: Arc<dyn Error + Send + Sync>,
    },

    /// Other transactions hold the fence, and the raise did not wait for them any longer. Its kind is
    /// [`FenceErrorKind::Busy`].
    #[error(transparent)]
    Blocked(#[from] Blocked),

    /// The storage failed. Whether the write took effect is *unknown*: read before writing it again.
    #[error(
        "the storage failed while {doing}; whether the write took effect is unknown: read before writing again"
    )]
    Store {
        /// What was being done.
        doing: &'static str,
        /// What the storage said.
        source: Arc<dyn Error + Send + Sync>,
    },
}

/// The kinds of [`FenceError`], for a metric or a `match`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum FenceErrorKind {
    /// See [`FenceError::Fenced`].
    Fenced,
    /// See [`FenceError::WrongCluster`].
    WrongCluster,
    /// See [`FenceError::WrongScope`].
    WrongScope,
    /// See [`FenceError::NotRaised`].
    NotRaised,
    /// See [`FenceError::Implausible`].
    Implausible,
    /// See [`FenceError::OtherSession`].
    OtherSession,
    /// See [`FenceError::Unstamped`].
    Unstamped,
    /// See [`FenceError::Corrupt`].
    Corrupt,
    /// See [`FenceError::NotDurable`].
    NotDurable,
    /// See [`FenceError::NotInstalled`].
    NotInstalled,
    /// See [`FenceError::Replaced`].
    Replaced,
    /// See [`FenceError::Unfit`].
    Unfit,
    /// See [`FenceError::Busy`] and [`FenceError::Blocked`].
    Busy,
    /// See [`FenceError::Store`].
    Store,
}

impl FenceError {
    /// The storage could not take the lock it needs, and did nothing.
    pub fn busy(doing: &'static str, source: impl Error + Send + Sync + 'static) -> FenceError {
        FenceError::Busy { doing, source: Arc::new(source) }
    }

    /// The storage failed, and the outcome is unknown.
    pub fn store(doing: &'static str, source: impl Error + Send + Sync + 'static) -> FenceError {
        FenceError::Store { doing, source: Arc::new(source) }
    }

    /// The kind of error.
    pub fn kind(&self) -> FenceErrorKind {
        match self {
            FenceError::Fenced(_) => FenceErrorKind::Fenced,
            FenceError::WrongCluster { .. } => FenceErrorKind::WrongCluster,
            FenceError::WrongScope { .. } => FenceErrorKind::WrongScope,
            FenceError::NotRaised { .. } => FenceErrorKind::NotRaised,
            FenceError::Implausible { .. } => FenceErrorKind::Implausible,
            FenceError::OtherSession { .. } => FenceErrorKind::OtherSession,
            FenceError::Unstamped => FenceErrorKind::Unstamped,
            FenceError::Corrupt { .. } => FenceErrorKind::Corrupt,
            FenceError::NotDurable { .. } => FenceErrorKind::NotDurable,
            FenceError::NotInstalled => FenceErrorKind::NotInstalled,
            FenceError::Replaced { .. } => FenceErrorKind::Replaced,
            FenceError::Unfit { .. } => FenceErrorKind::Unfit,
            FenceError::Busy { .. } | FenceError::Blocked(_) => FenceErrorKind::Busy,
            FenceError::Store { .. } => FenceErrorKind::Store,
        }
    }

    /// Whether the same call, with the same token, may succeed later and is safe to repeat.
    ///
    /// A failed storage is not in here: what it did is unknown, and only the caller knows whether its write may run twice.
    pub fn is_retryable(&self) -> bool {
        self.kind().is_retryable()
    }

    /// Whether the fence decided against the token or the write, as opposed to being unable to decide.
    pub fn is_refusal(&self) -> bool {
        self.kind().is_refusal()
    }
}

impl FenceErrorKind {
    /// See [`FenceError::is_retryable`].
    pub fn is_retryable(self) -> bool {
        match self {
            FenceErrorKind::Busy => true,
            FenceErrorKind::Fenced
            | FenceErrorKind::WrongCluster
            | FenceErrorKind::WrongScope
            | FenceErrorKind::NotRaised
            | FenceErrorKind::Implausible
            | FenceErrorKind::OtherSession
            | FenceErrorKind::Unstamped
            | FenceErrorKind::Corrupt
            | FenceErrorKind::NotDurable
            | FenceErrorKind::NotInstalled
            | FenceErrorKind::Replaced
            | FenceErrorKind::Unfit
            | FenceErrorKind::Store => false,
        }
    }

    /// See [`FenceError::is_refusal`].
    pub fn is_refusal(self) -> bool {
        match self {
            FenceErrorKind::Fenced
            | FenceErrorKind::WrongCluster
            | FenceErrorKind::WrongScope
            | FenceErrorKind::NotRaised
            | FenceErrorKind::Implausible
            | FenceErrorKind::OtherSession
            | FenceErrorKind::Replaced
            | FenceErrorKind::Unstamped => true,
            FenceErrorKind::Corrupt
            | FenceErrorKind::NotDurable
            | FenceErrorKind::NotInstalled
            | FenceErrorKind::Unfit
            | FenceErrorKind::Busy
            | FenceErrorKind::Store => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f099_the_message_carries_both_epochs_and_says_what_to_do() {
        let token: FencingToken = "prod/orders/17@41".parse().unwrap();
        let error = FenceError::from(Fenced::new(token, Epoch::new(42).unwrap()));
        let text = error.to_string();
        for part in ["orders/17", "41", "42", "stop"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!error.is_retryable());
    }

    #[test]
    fn a_busy_storage_is_the_only_thing_to_try_again_and_keeps_its_source() {
        let io = || std::io::Error::other("disk I/O error");
        let (busy, store) = (FenceError::busy("raising", io()), FenceError::store("raising", io()));
        assert!(busy.is_retryable() && !store.is_retryable());
        assert_eq!(store.source().map(ToString::to_string), Some("disk I/O error".to_string()));
        assert!(FenceError::Unstamped.is_refusal() && !busy.is_refusal());
    }
}
