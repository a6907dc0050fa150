//! The fencing token: what a write carries.

use ringfence_core::ids::{ClusterId, Epoch, NameError, Scope, ScopeError, SessionId};
use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// What a write carries, so that storage can refuse the write of an owner that was replaced: (cluster, scope, epoch).
///
/// (Chubby, where the idea was first published, calls it a *sequencer*.) Its text form is `CLUSTER/orders/17@42` for a
/// partition and `CLUSTER/@locks/NAME@9` for a lock; it is what goes into a header, a column or an environment variable.
/// People are shown [`FencingToken::short`].
///
/// A token is taken from the coordinator's grant when an operation *starts* and stays with it. Never make one at the
/// moment of sending: an operation that began under an older grant would pass for one of the newer.
///
/// Tokens have no `Ord`: epochs of two scopes say nothing about each other. See [`FencingToken::order`].
///
/// Cloning copies a pointer and two numbers.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct FencingToken {
    // Shared, because one owner stamps thousands of writes of the same scope.
    subject: Arc<Subject>,
    epoch: Epoch,
    session: Option<SessionId>,
}

/// What a token speaks for. A fence keeps one too, so that the usual comparison is of two pointers.
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct Subject {
    pub(crate) cluster: ClusterId,
    pub(crate) scope: Scope,
}

impl FencingToken {
    /// The token of this grant.
    pub fn new(cluster: ClusterId, scope: Scope, epoch: Epoch) -> FencingToken {
        FencingToken { subject: Arc::new(Subject { cluster, scope }), epoch, session: None }
    }

    /// The same token, naming the session that the epoch was granted to.
    ///
    /// An epoch is granted to one session, once, ever, so fences compare epochs only. A fence that keeps the session too
    /// ([`HighWater`](crate::HighWater) does) notices when that promise is broken: a second session under the same epoch
    /// is refused before anything is written. The session is not in the text form, and a token without one is compared
    /// by its epoch alone.
    #[must_use]
    pub fn held_by(mut self, session: SessionId) -> FencingToken {
        self.session = Some(session);
        self
    }

    /// The cluster whose coordinator granted it.
    pub fn cluster(&self) -> &ClusterId {
        &self.subject.cluster
    }

    /// The partition or lock it speaks for.
    pub fn scope(&self) -> &Scope {
        &self.subject.scope
    }

    /// The epoch of the grant.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The session the epoch was granted to, when the token names it.
    pub fn session(&self) -> Option<SessionId> {
        self.session
    }

    /// Which of two tokens of one scope is the newer; `None` when they are of different scopes or clusters, because
    /// those epochs were counted apart.
    pub fn order(&self, other: &FencingToken) -> Option<Ordering> {
        (self.subject == other.subject).then(|| self.epoch.cmp(&other.epoch))
    }

    /// The form shown to people, without the cluster: `orders/17@42`.
    pub fn short(&self) -> Short<'_> {
        Short(self)
    }

    pub(crate) fn subject(&self) -> &Arc<Subject> {
        &self.subject
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.cluster(), self.short())
    }
}

impl fmt::Debug for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")?;
        self.session.map_or(Ok(()), |session| write!(f, " of {session}"))
    }
}

/// A token as shown to people: `orders/17@42`. Made by [`FencingToken::short`].
#[derive(Clone, Copy, Debug)]
pub struct Short<'a>(&'a FencingToken);

impl fmt::Display for Short<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.0.scope(), self.0.epoch.get())
    }
}

/// The tokens of one write in the order in which their fences are locked, or `None` when there are none.
///
/// By scope, so that two writes over the same scopes never wait for each other. Within a scope the newest comes first:
/// it makes the older one refused, whichever order the caller named them in.
pub(crate) fn in_lock_order(tokens: &[FencingToken]) -> Option<Vec<&FencingToken>> {
    let mut tokens: Vec<&FencingToken> = tokens.iter().collect();
    tokens.sort_by(|a, b| a.scope().cmp(b.scope()).then(b.epoch.cmp(&a.epoch)));
    (!tokens.is_empty()).then_some(tokens)
}

/// Why a text is not a fencing token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// It has not the shape of one.
    #[error("a fencing token is written CLUSTER/KEYSPACE/PARTITION@EPOCH or CLUSTER/@locks/NAME@EPOCH")]
    Shape,
    /// The cluster in it is not a name.
    #[error("the cluster of a fencing token: {0}")]
    Cluster(#[source] NameError),
    /// The scope in it is not a scope.
    #[error("the scope of a fencing token: {0}")]
    Scope(#[source] ScopeError),
    /// The epoch in it is not an epoch.
    #[error(
        "the epoch of a fencing token is between 1 and 9007199254740991 (2^53 - 1), in digits without leading zeros"
    )]
    Epoch,
}

impl FromStr for FencingToken {
    type Err = TokenError;

    /// Reads the text form. Exactly one text means a token, so texts can be compared as well.
    fn from_str(text: &str) -> Result<FencingToken, TokenError> {
        let (cluster, rest) = text.split_once('/').ok_or(TokenError::Shape)?;
        // From the right: the scope of a lock begins with an `@` of its own.
        let (scope, digits) = rest.rsplit_once('@').ok_or(TokenError::Shape)?;
        let cluster = ClusterId::new(cluster).map_err(TokenError::Cluster)?;
        let scope = scope.parse().map_err(TokenError::Scope)?;
        let canonical = digits.bytes().all(|b| b.is_ascii_digit()) && !digits.starts_with('0');
        let number = digits.parse::<u64>().ok().filter(|_| canonical).ok_or(TokenError::Epoch)?;
        let epoch = Epoch::new(number).map_err(|_| TokenError::Epoch)?;
        Ok(FencingToken::new(cluster, scope, epoch))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn token(text: &str) -> FencingToken {
        text.parse().unwrap()
    }

    #[test]
    fn the_text_form_is_read_back_and_people_see_the_short_one() {
        for (text, short) in [
            ("prod/orders/17@42", "orders/17@42"),
            ("prod/@locks/nightly@9", "@locks/nightly@9"),
            ("a.b-c_d/o/0@9007199254740991", "o/0@9007199254740991"),
        ] {
            let token = token(text);
            assert_eq!(token.to_string(), text);
            assert_eq!(token.short().to_string(), short);
        }
    }

    #[test]
    fn f096_a_hostile_text_is_refused_and_never_a_panic() {
        for (bad, why) in [
            ("", "shape"),
            ("prod", "shape"),
            ("prod/orders/17", "shape"),
            ("/orders/17@42", "cluster"),
            ("Prod/orders/17@42", "cluster"),
            ("prod/orders@42", "scope"),
            ("prod/orders/017@42", "scope"),
            ("prod/orders/4294967296@42", "scope"),
            ("prod/@locks/@42", "scope"),
            ("prod/orders/17@42@43", "scope"),
            ("prod/orders/17@", "epoch"),
            ("prod/orders/17@0", "epoch"),
            ("prod/orders/17@042", "epoch"),
            ("prod/orders/17@+42", "epoch"),
            ("prod/orders/17@-1", "epoch"),
            ("prod/orders/17@9007199254740992", "epoch"),
            ("prod/orders/17@18446744073709551615", "epoch"),
            ("prod/orders/17@99999999999999999999999999", "epoch"),
            ("prod/orders/17@4\u{0662}", "epoch"),
        ] {
            let error = bad.parse::<FencingToken>().expect_err(bad);
            let got = match error {
                TokenError::Shape => "shape",
                TokenError::Cluster(_) => "cluster",
                TokenError::Scope(_) => "scope",
                TokenError::Epoch => "epoch",
            };
            assert_eq!(got, why, "{bad}");
        }
        assert!("x".repeat(1 << 20).parse::<FencingToken>().unwrap_err().to_string().len() < 200);
    }

    #[test]
    fn t01_order_is_defined_within_one_scope_of_one_cluster_only() {
        let (e41, e42) = (token("prod/orders/17@41"), token("prod/orders/17@42"));
        assert_eq!(e41.order(&e42), Some(Ordering::Less));
        assert_eq!(e42.order(&e42.clone()), Some(Ordering::Equal));
        assert_eq!(e42.order(&e41), Some(Ordering::Greater));
        assert_eq!(e41.order(&token("prod/orders/18@42")), None);
        assert_eq!(e41.order(&token("test/orders/17@42")), None);
    }

    #[test]
    fn t17_width_the_text_carries_every_epoch_exactly() {
        for number in [1, (1 << 31) + 1, (1 << 32) + 1, (1 << 53) - 2, (1u64 << 53) - 1] {
            assert_eq!(token(&format!("prod/orders/17@{number}")).epoch().get(), number);
        }
    }

    #[test]
    fn t13_locks_are_taken_by_scope_and_the_newest_epoch_is_asked_first() {
        let tokens = [token("prod/b/2@5"), token("prod/a/10@5"), token("prod/b/2@6"), token("prod/a/9@5")];
        let order: Vec<String> =
            in_lock_order(&tokens).unwrap().into_iter().map(|t| t.short().to_string()).collect();
        assert_eq!(order, ["a/9@5", "a/10@5", "b/2@6", "b/2@5"]);
        assert!(in_lock_order(&[]).is_none());
    }

    #[test]
    fn a_token_is_cheap_to_copy() {
        assert!(size_of::<FencingToken>() <= 24);
    }
    proptest! {
        #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn f096_a_text_means_one_token_or_none_and_is_never_a_panic(
            text in prop_oneof!["[a-z0-9.-]{0,8}/[a-z@/]{0,9}/[0-9]{0,11}@[0-9]{0,20}", any::<String>()],
        ) {
            if let Ok(token) = text.parse::<FencingToken>() {
                prop_assert_eq!(token.to_string(), text);
            }
        }

        /// As their epochs do, whatever way they came: as a grant, as a text, with a session or without.
        #[test]
        fn t01_tokens_of_one_scope_are_ordered_as_their_epochs(
            name in "[a-z0-9][a-z0-9._-]{0,62}",
            partition in any::<u32>(),
            epochs in (1..1_u64 << 53, 1..1_u64 << 53),
        ) {
            let text = |epoch| format!("{name}/{name}/{partition}@{epoch}");
            let (one, two) = (token(&text(epochs.0)), token(&text(epochs.1)));
            prop_assert_eq!(one.to_string(), text(epochs.0));
            let named = one.clone().held_by(SessionId::new(7).expect("a session"));
            for one in [&one, &named] {
                prop_assert_eq!(one.order(&two), Some(epochs.0.cmp(&epochs.1)));
                prop_assert_eq!(two.order(one), Some(epochs.1.cmp(&epochs.0)));
            }
        }
    }
}
