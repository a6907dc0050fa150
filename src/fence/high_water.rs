//! What a fence remembers of one scope, and the rule it decides by.
//!
//! It is pure: a row goes in, the row as it must be afterwards comes out, or the reason why not. Storage reads the row
//! under a lock, asks, and writes the answer in the same transaction as the user's write. No adapter compares epochs
//! of its own, so there is one place where `<` could be wrong.

use crate::{FenceError, Fenced, FencingToken};
use ringfence_core::ids::{ClusterId, Epoch, Scope, SessionId};
use ringfence_core::mutant;
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// How far a fence can be raised at once: 2^48.
///
/// A coordinator steps by one, and after a restore to the wall clock's milliseconds, which stay below 2^48 for 8 000
/// years. Whatever jumps further was not granted, and would leave no epochs for those that are.
pub const MAX_JUMP: u64 = 1 << 48;

/// What a fence remembers of one scope: the highest epoch seen, and the session it came from when tokens name theirs.
///
/// A scope that was never raised has no `HighWater`: absence is `Option::None`, never a zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HighWater {
    epoch: Epoch,
    session: Option<SessionId>,
}

impl HighWater {
    /// What was read from a fence's row.
    pub const fn new(epoch: Epoch, session: Option<SessionId>) -> HighWater {
        HighWater { epoch, session }
    }

    /// The highest epoch seen.
    pub const fn epoch(self) -> Epoch {
        self.epoch
    }

    /// The session it was seen from, if a token has named it.
    pub const fn session(self) -> Option<SessionId> {
        self.session
    }

    /// Decides on a write. `row` is what the storage holds; the answer is what it must hold together with the write.
    ///
    /// # Errors
    /// [`FenceError::NotRaised`] without a row; [`FenceError::Fenced`] below the highest epoch;
    /// [`FenceError::OtherSession`] at it, from another session; [`FenceError::Implausible`] more than [`MAX_JUMP`] above.
    pub fn check(row: Option<HighWater>, token: &FencingToken) -> Result<HighWater, FenceError> {
        match row {
            Some(seen) if mutant!("fence-by-equality") && token.epoch() != seen.epoch => {
                Err(Fenced::new(token.clone(), seen.epoch).into())
            }
            Some(seen) => seen.advance(token, MAX_JUMP),
            None if mutant!("fence-open-until-raised") => Ok(HighWater::new(token.epoch(), token.session())),
            // Accepting here would let a stale owner in after anything that loses rows, and it would be the first.
            None => Err(FenceError::NotRaised { token: token.clone() }),
        }
    }

    /// Decides on a raise: as [`HighWater::check`], but a scope that has no row gets one.
    ///
    /// # Errors
    /// As [`HighWater::check`], without [`FenceError::NotRaised`].
    pub fn raise(row: Option<HighWater>, token: &FencingToken) -> Result<HighWater, FenceError> {
        raise_within(row, token, MAX_JUMP)
    }

    /// Decides on a raise that an operator has confirmed: as [`HighWater::raise`], however far it jumps.
    ///
    /// # Errors
    /// [`FenceError::Fenced`] and [`FenceError::OtherSession`]: nobody moves a fence back.
    pub fn force_raise(row: Option<HighWater>, token: &FencingToken) -> Result<HighWater, FenceError> {
        raise_within(row, token, u64::MAX)
    }

    fn advance(self, token: &FencingToken, max_jump: u64) -> Result<HighWater, FenceError> {
        match token.epoch().cmp(&self.epoch) {
            Ordering::Less if mutant!("fence-off") => Ok(self),
            Ordering::Less => Err(Fenced::new(token.clone(), self.epoch).into()),
            Ordering::Equal => match (self.session, token.session()) {
                (Some(holder), Some(presented))
                    if holder != presented && !mutant!("fence-of-any-session") =>
                {
                    Err(FenceError::OtherSession { token: token.clone(), holder })
                }
                (bound, presented) => Ok(HighWater::new(self.epoch, bound.or(presented))),
            },
            Ordering::Greater => {
                plausible(Some(self.epoch), token, max_jump)?;
                Ok(HighWater::new(token.epoch(), token.session()))
            }
        }
    }
}

/// [`HighWater::check`], [`HighWater::raise`] or [`HighWater::force_raise`].
pub(crate) type Decide = fn(Option<HighWater>, &FencingToken) -> Result<HighWater, FenceError>;

/// Decides on all tokens of one write or raise: the rows as they must be afterwards, or the first refusal. `found` is what the
/// storage holds of a scope, read under the lock. Where a scope has several tokens, each is judged by what the one before it
/// leaves.
pub(crate) fn decide_all<'t>(
    tokens: impl IntoIterator<Item = &'t FencingToken>,
    found: impl Fn(&Scope) -> Option<HighWater>,
    decide: Decide,
) -> Result<BTreeMap<&'t Scope, HighWater>, FenceError> {
    let mut after: BTreeMap<&Scope, HighWater> = BTreeMap::new();
    for token in tokens {
        let row = after.get(token.scope()).copied().or_else(|| found(token.scope()));
        after.insert(token.scope(), decide(row, token)?);
    }
    Ok(after)
}

fn raise_within(
    row: Option<HighWater>,
    token: &FencingToken,
    max_jump: u64,
) -> Result<HighWater, FenceError> {
    match row {
        Some(_) if mutant!("fence-last-raise-wins") => Ok(HighWater::new(token.epoch(), token.session())),
        Some(seen) => seen.advance(token, max_jump),
        None => {
            plausible(None, token, max_jump)?;
            Ok(HighWater::new(token.epoch(), token.session()))
        }
    }
}

fn plausible(from: Option<Epoch>, token: &FencingToken, max_jump: u64) -> Result<(), FenceError> {
    // Called for a higher epoch only, so the difference cannot wrap.
    if token.epoch().get() - from.map_or(0, Epoch::get) > max_jump && !mutant!("fence-jumps-anywhere") {
        return Err(FenceError::Implausible { scope: token.scope().clone(), from, to: token.epoch() });
    }
    Ok(())
}

/// Decides whether a token may speak to a fence of cluster `bound` at all. An adapter asks this before anything else.
///
/// # Errors
/// [`FenceError::WrongCluster`] with both names.
pub fn same_cluster(bound: &ClusterId, token: &FencingToken) -> Result<(), FenceError> {
    if token.cluster() == bound || mutant!("fence-of-any-cluster") {
        Ok(())
    } else {
        Err(FenceError::WrongCluster { presented: token.cluster().clone(), bound: bound.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(epoch: u64) -> FencingToken {
        format!("prod/orders/17@{epoch}").parse().unwrap()
    }

    fn row(epoch: u64) -> Option<HighWater> {
        Some(HighWater::new(Epoch::new(epoch).unwrap(), None))
    }

    fn session(number: u64) -> SessionId {
        SessionId::new(number).unwrap()
    }

    #[test]
    fn t01_equal_is_the_owner_going_on_lower_is_refused_higher_is_remembered() {
        assert_eq!(HighWater::check(row(34), &token(34)).ok(), row(34));
        assert_eq!(HighWater::check(row(34), &token(35)).ok(), row(35));
        assert_eq!(HighWater::raise(row(34), &token(36)).ok(), row(36));
        for decide in [HighWater::check, HighWater::raise, HighWater::force_raise] {
            match decide(row(34), &token(33)) {
                Err(FenceError::Fenced(f)) => assert_eq!((f.own().get(), f.highest().get()), (33, 34)),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn t07_without_a_row_a_write_is_refused_and_a_raise_makes_it() {
        assert!(matches!(HighWater::check(None, &token(1)), Err(FenceError::NotRaised { .. })));
        assert_eq!(HighWater::raise(None, &token(1)).ok(), row(1));
    }

    #[test]
    fn f096_a_jump_of_more_than_2_to_the_48_is_implausible_and_an_operator_can_force_it() {
        for decide in [HighWater::check, HighWater::raise] {
            assert_eq!(decide(row(5), &token(5 + MAX_JUMP)).ok(), row(5 + MAX_JUMP));
            match decide(row(5), &token(6 + MAX_JUMP)) {
                Err(FenceError::Implausible { from, to, .. }) => {
                    assert_eq!((from.map(Epoch::get), to.get()), (Some(5), 6 + MAX_JUMP));
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(matches!(HighWater::raise(None, &token(1 + MAX_JUMP)), Err(FenceError::Implausible { .. })));
        assert_eq!(HighWater::force_raise(row(5), &token(Epoch::MAX.get())).ok(), row(Epoch::MAX.get()));
        let restored_in_2200_ms = 7_258_118_400_000;
        assert!(HighWater::raise(row(5), &token(restored_in_2200_ms)).is_ok());
    }

    #[test]
    fn f040_the_same_owner_granted_again_is_a_new_epoch_and_its_earlier_self_is_refused() {
        let (first, again) = (token(7).held_by(session(1)), token(8).held_by(session(1)));
        let seen = HighWater::raise(None, &first).unwrap();
        let seen = HighWater::raise(Some(seen), &again).unwrap();
        assert!(matches!(HighWater::check(Some(seen), &first), Err(FenceError::Fenced(_))));
    }

    #[test]
    fn f042_the_first_session_seen_under_an_epoch_is_bound_to_it_and_another_is_refused() {
        let (mine, forged) = (token(7).held_by(session(1)), token(7).held_by(session(2)));
        // A token without a session, such as one read from its text, binds nothing and is judged by its epoch.
        let seen = HighWater::raise(None, &token(7)).unwrap();
        let seen = HighWater::check(Some(seen), &mine).unwrap();
        match HighWater::check(Some(seen), &forged) {
            Err(FenceError::OtherSession { holder, .. }) => assert_eq!(holder, session(1)),
            other => panic!("{other:?}"),
        }
        assert_eq!(HighWater::check(Some(seen), &token(7)).ok(), Some(seen));
        let next = HighWater::raise(Some(seen), &token(8).held_by(session(2))).unwrap();
        assert_eq!(next.session(), Some(session(2)));
    }

    #[test]
    fn f057_a_token_of_another_cluster_is_refused_with_both_names() {
        let test = ClusterId::new("test").unwrap();
        let text = same_cluster(&test, &token(1)).unwrap_err().to_string();
        assert!(text.contains("test") && text.contains("prod"), "{text}");
    }

    #[test]
    fn t17_width_neighbours_at_the_top_are_told_apart() {
        let top = Epoch::MAX.get();
        assert!(HighWater::check(row(top), &token(top)).is_ok());
        assert!(matches!(HighWater::check(row(top), &token(top - 1)), Err(FenceError::Fenced(_))));
    }
}
