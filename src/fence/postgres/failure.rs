//! What the database's errors mean to a fence.
//!
//! A refusal comes as an error with a SQLSTATE of ours, and with its values in DETAIL; the migration lists them.

use crate::{Blocked, FenceError, Fenced, FencingToken};
use ringfence_core::ids::{ClusterId, Epoch, Scope, SessionId};
use std::error::Error;
use std::sync::Arc;

/// An error of either client, as far as it matters here.
#[derive(Debug)]
pub struct Failure {
    /// The SQLSTATE, when the server answered.
    pub(super) code: Option<String>,
    pub(super) message: String,
    pub(super) detail: Option<String>,
    pub(super) source: Arc<dyn Error + Send + Sync>,
}

/// The code of a call that was refused before it was sent; as SQLSTATE it stands for an argument that is no token.
const UNFIT: &str = "RF010";

impl Failure {
    /// A call that can never work as it was made.
    pub(super) fn unfit(why: &str) -> Failure {
        let source = Arc::new(std::io::Error::other(why.to_owned()));
        Failure { code: Some(UNFIT.into()), message: why.into(), detail: None, source }
    }

    /// The error of a call that was made with these tokens.
    pub(super) fn into_error(self, doing: &'static str, tokens: &[FencingToken]) -> FenceError {
        match self.code.as_deref() {
            Some(UNFIT) => FenceError::Unfit { why: self.message },
            Some(code) if code.starts_with("RF") => {
                refusal(code, self.detail.as_deref().unwrap_or_default(), tokens)
                    .unwrap_or(FenceError::Store { doing, source: self.source })
            }
            // A serialization failure, a deadlock, a lock or a statement that waited for too long: all are rolled back.
            Some("40001" | "40P01" | "55P03" | "57014") => FenceError::Busy { doing, source: self.source },
            Some("25006") => FenceError::NotDurable {
                setting: "the transaction is read-only, as every transaction on a replica is".into(),
                needed: needed("the transaction is read-only"),
            },
            _ if self.is_of_a_missing_fence() => FenceError::NotInstalled,
            _ => FenceError::Store { doing, source: self.source },
        }
    }

    /// Whether the schema, or what is asked of it, is not there.
    pub(super) fn is_of_a_missing_fence(&self) -> bool {
        matches!(self.code.as_deref(), Some("3F000" | "42883" | "42P01"))
            && self.message.contains("ringfence")
    }
}

/// The refusal that a SQLSTATE and its DETAIL stand for; `None` when they do not say what they should.
pub(super) fn refusal(code: &str, detail: &str, tokens: &[FencingToken]) -> Option<FenceError> {
    let scope = || value(detail, "scope")?.parse::<Scope>().ok();
    let epoch = |name| Epoch::new(value(detail, name)?.parse().ok()?).ok();
    let cluster = |name| ClusterId::new(value(detail, name)?).ok();
    let token = || {
        let (scope, own) = (scope()?, epoch("own")?);
        tokens.iter().find(|token| *token.scope() == scope && token.epoch() == own).cloned()
    };
    Some(match code {
        "RF001" => Fenced::new(token()?, epoch("highest")?).into(),
        "RF002" => FenceError::WrongCluster { presented: cluster("presented")?, bound: cluster("bound")? },
        "RF003" => FenceError::NotRaised { token: token()? },
        "RF004" => FenceError::Implausible { scope: scope()?, from: epoch("highest"), to: epoch("own")? },
        "RF005" => {
            let holder = SessionId::new(value(detail, "holder")?.parse::<i64>().ok()?.cast_unsigned())?;
            let (scope, own) = (scope()?, epoch("own")?);
            // The same epoch may have been presented by several sessions, and one session several epochs: the one refused is
            // at that epoch, and not the holder's.
            let refused = |token: &&FencingToken| {
                *token.scope() == scope
                    && token.epoch() == own
                    && token.session().is_some_and(|session| session != holder)
            };
            FenceError::OtherSession { token: tokens.iter().find(refused)?.clone(), holder }
        }
        "RF006" => FenceError::Unstamped,
        "RF007" => {
            FenceError::Corrupt { place: line(detail, "place")?.into(), found: line(detail, "found")?.into() }
        }
        "RF008" => {
            let setting = line(detail, "setting")?;
            FenceError::NotDurable { setting: setting.into(), needed: needed(setting) }
        }
        "RF009" => FenceError::Blocked(Blocked::new(scope()?, line(detail, "blockers")?.into())),
        "RF011" => FenceError::NotInstalled,
        _ => return None,
    })
}

/// The word after `name=`.
fn value<'a>(detail: &'a str, name: &str) -> Option<&'a str> {
    detail.split([' ', '\n']).find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

/// What follows `name=`, up to the line's end.
fn line<'a>(detail: &'a str, name: &str) -> Option<&'a str> {
    let after = |line: &'a str| {
        let (before, after) = line.split_once(&format!("{name}="))?;
        (before.is_empty() || before.ends_with(' ')).then_some(after)
    };
    detail.lines().find_map(after)
}

fn needed(setting: &str) -> &'static str {
    if setting.starts_with("fsync") {
        "fsync = on"
    } else if setting.starts_with("the table") {
        "the table back to ALTER TABLE .. SET LOGGED"
    } else if setting.starts_with("the transaction") {
        "it to READ WRITE, on the primary"
    } else {
        "target_session_attrs=read-write, which finds the primary"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FenceErrorKind;
    use proptest::prelude::*;

    fn token(text: &str) -> FencingToken {
        text.parse().unwrap()
    }

    fn failure(code: &str, message: &str, detail: Option<&str>) -> Failure {
        Failure {
            code: Some(code.into()),
            message: message.into(),
            detail: detail.map(Into::into),
            source: Arc::new(std::io::Error::other("db error")),
        }
    }

    #[test]
    fn t21_each_sqlstate_is_one_kind_of_refusal() {
        let tokens =
            [token("prod/orders/17@33").held_by(SessionId::new(7).unwrap()), token("prod/orders/18@5")];
        for (code, detail, kind) in [
            ("RF001", "scope=orders/17 own=33 highest=34", FenceErrorKind::Fenced),
            ("RF002", "presented=prod bound=test", FenceErrorKind::WrongCluster),
            ("RF003", "scope=orders/18 own=5", FenceErrorKind::NotRaised),
            ("RF004", "scope=orders/18 own=5 highest=0", FenceErrorKind::Implausible),
            ("RF005", "scope=orders/17 own=33 holder=-1", FenceErrorKind::OtherSession),
            ("RF006", "", FenceErrorKind::Unstamped),
            ("RF007", "place=the row\nfound=the epoch 0", FenceErrorKind::Corrupt),
            ("RF008", "setting=fsync is off\nneeded=fsync = on", FenceErrorKind::NotDurable),
            ("RF009", "scope=orders/17 blockers=pid 7 (idle in transaction)", FenceErrorKind::Busy),
            ("RF010", "found='x'", FenceErrorKind::Unfit),
            ("RF011", "", FenceErrorKind::NotInstalled),
            ("40001", "", FenceErrorKind::Busy),
            ("40P01", "", FenceErrorKind::Busy),
            ("55P03", "", FenceErrorKind::Busy),
            ("57014", "", FenceErrorKind::Busy),
            ("25006", "", FenceErrorKind::NotDurable),
            ("23505", "", FenceErrorKind::Store),
        ] {
            let error = failure(code, "", Some(detail)).into_error("testing", &tokens);
            assert_eq!(error.kind(), kind, "{code}: {error}");
        }
        let missing = failure("3F000", "schema \"ringfence\" does not exist", None);
        assert_eq!(missing.into_error("testing", &[]).kind(), FenceErrorKind::NotInstalled);
        let another = failure("42883", "function nothing() does not exist", None);
        assert_eq!(another.into_error("testing", &[]).kind(), FenceErrorKind::Store);
    }

    /// A clone that presents an older epoch of the scope beside the one that it shares with another session.
    #[test]
    fn of_several_tokens_of_a_scope_the_one_that_was_refused_is_named() {
        let of = |text| token(text).held_by(SessionId::new(9).unwrap());
        let tokens = [of("prod/orders/8@1"), of("prod/orders/8@5")];
        let error =
            failure("RF005", "", Some("scope=orders/8 own=5 holder=1")).into_error("testing", &tokens);
        assert!(
            matches!(&error, FenceError::OtherSession { token, .. } if token.epoch().get() == 5),
            "{error}"
        );
    }

    #[test]
    fn who_blocks_and_what_is_damaged_is_told_whole() {
        let detail = "scope=orders/17 blockers=pid 7 (idle in transaction, since 2026-11-30, user app)";
        let error = refusal("RF009", detail, &[]).unwrap();
        assert!(error.is_retryable() && !error.is_refusal());
        let text = error.to_string();
        assert!(text.contains("orders/17") && text.contains("pid 7 (idle in transaction, since"), "{text}");
        let corrupt =
            refusal("RF007", "place=the row of orders/17 in ringfence.fence\nfound=the epoch 0", &[])
                .unwrap();
        assert!(corrupt.to_string().starts_with("the row of orders/17 in ringfence.fence holds the epoch 0"));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn f096_whatever_stands_in_a_detail_is_an_error_and_never_a_panic(
            code in "RF0[01][0-9]",
            detail in "((scope|own|highest|holder|found|place|bound)=[a-z0-9/@=-]{0,24}[ \n]?){0,5}|.{0,40}",
        ) {
            let error = failure(&code, "", Some(&detail)).into_error("testing", &[token("prod/orders/17@33")]);
            prop_assert!(!error.to_string().is_empty());
        }
    }
}
