//! Why an effect was not recorded.

use super::{EffectKey, State};
use crate::FenceError;
use ringfence_core::ids::Scope;

/// Why an effect was not recorded, claimed or settled. Nothing was changed, unless it is [`FenceError::Store`].
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EffectError {
    /// The fence refused, or the storage failed.
    #[error(transparent)]
    Fence(#[from] FenceError),

    /// What was asked for can never work.
    #[error("nothing was recorded: {why}")]
    Unfit {
        /// What is wrong.
        why: String,
    },

    /// Nothing is recorded under this key.
    #[error(
        "no effect is recorded as {key}: record the intention first, in the transaction of the work that it is of"
    )]
    NotIntended {
        /// The key.
        key: EffectKey,
    },

    /// The operation is recorded with another payload. One of the two is another operation.
    #[error(
        "{key} is recorded with another payload: an operation that does something else needs an id of its own, or the other \
         side answers it with what it did for the first"
    )]
    PayloadDiffers {
        /// The key.
        key: EffectKey,
    },

    /// The effect belongs to another partition.
    #[error(
        "{key} belongs to {scope}: its owner sends it. After a split, the owner of the key adopts it first"
    )]
    OtherScope {
        /// The key.
        key: EffectKey,
        /// The scope it is recorded under.
        scope: Scope,
    },

    /// This call is not the one that is under way: it was settled, held, or claimed again since.
    #[error("{key} is {}, and not in the call that is to be settled: nothing was changed", .state.name())]
    NotClaimed {
        /// The key.
        key: EffectKey,
        /// Where the effect stands.
        state: State,
    },

    /// Only what is held is resolved.
    #[error("{key} is {}, and not held: there is nothing for a person to resolve", .state.name())]
    NotHeld {
        /// The key.
        key: EffectKey,
        /// Where the effect stands.
        state: State,
    },

    /// Too many effects of the scope are open.
    #[error(
        "{scope} has {} effects that are not settled: send them, or have a person resolve what is held, before there are more",
        super::MAX_OPEN
    )]
    TooMany {
        /// The scope.
        scope: Scope,
    },
}

impl EffectError {
    /// Whether the same call may succeed later and is safe to repeat.
    pub fn is_retryable(&self) -> bool {
        match self {
            EffectError::Fence(error) => error.is_retryable(),
            EffectError::Unfit { .. }
            | EffectError::NotIntended { .. }
            | EffectError::PayloadDiffers { .. }
            | EffectError::OtherScope { .. }
            | EffectError::NotClaimed { .. }
            | EffectError::NotHeld { .. }
            | EffectError::TooMany { .. } => false,
        }
    }
}
