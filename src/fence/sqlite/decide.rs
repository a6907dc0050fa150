//! The decision about a write, for every client: what was read goes in, what is to be remembered comes out.

use super::value::Read;
use crate::high_water::decide_all;
use crate::{FenceError, FencingToken, HighWater, same_cluster};
use ringfence_core::ids::Scope;
use std::collections::BTreeMap;

/// Decides on all tokens of a write, in the order in which they are locked. `read` has every scope of them, as it was read
/// under the lock.
///
/// Answers the rows that change. The owner going on writes nothing: the lock is the database's, not the row's.
///
/// # Errors
/// As [`HighWater::check`], and [`FenceError::WrongCluster`]; nothing is to be written then.
pub(super) fn decide(
    tokens: &[&FencingToken],
    read: &BTreeMap<&Scope, Read>,
) -> Result<Vec<(Scope, HighWater)>, FenceError> {
    for token in tokens {
        // Not found only where a caller has read too little.
        let found =
            read.get(token.scope()).ok_or_else(|| FenceError::NotRaised { token: (*token).clone() })?;
        same_cluster(&found.bound, token)?;
    }
    let after = decide_all(tokens.iter().copied(), |scope| read.get(scope)?.row, HighWater::check)?;
    let changes =
        |(scope, row): &(&Scope, HighWater)| read.get(*scope).and_then(|found| found.row) != Some(*row);
    Ok(after.into_iter().filter(changes).map(|(scope, row)| (scope.clone(), row)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_core::ids::Epoch;

    fn token(text: &str) -> FencingToken {
        text.parse().unwrap()
    }

    #[test]
    fn f057_every_token_of_a_write_is_asked_for_its_cluster_also_where_another_has_its_scope_and_epoch() {
        let tokens = [token("prod/orders/17@5"), token("test/orders/17@5")];
        let row = Some(HighWater::new(Epoch::new(5).unwrap(), None));
        let read = BTreeMap::from([(tokens[0].scope(), Read { bound: tokens[0].cluster().clone(), row })]);
        assert!(decide(&[&tokens[0]], &read).unwrap().is_empty());
        for order in [[0, 1], [1, 0]] {
            let error = decide(&order.map(|n| &tokens[n]), &read).unwrap_err();
            assert!(matches!(error, FenceError::WrongCluster { .. }), "{error}");
        }
    }
}
