//! The calls of the fence's procedures, with their arguments.

use super::failure::failed;
use crate::{FenceError, FencingToken};
use sqlx::mysql::MySqlArguments;
use sqlx::query::Query;
use sqlx::{MySql, MySqlConnection};
use std::fmt::Write as _;
use std::time::Duration;

/// One call, and what it is for.
pub(super) struct Call<'q> {
    pub(super) doing: &'static str,
    query: Query<'q, MySql, MySqlArguments>,
}

impl Call<'_> {
    pub(super) fn check(tokens: &[FencingToken]) -> Call<'static> {
        let query = match tokens {
            // Without the sorting that several need.
            [token] => {
                sqlx::query("CALL ringfence_check_by(?, ?)").bind(token.to_string()).bind(session(token))
            }
            _ => with(sqlx::query("CALL ringfence_check_all(?, ?)"), tokens),
        };
        Call { doing: "checking the fence", query }
    }

    pub(super) fn raise(tokens: &[FencingToken], wait: Duration) -> Call<'static> {
        let query = with(sqlx::query("CALL ringfence_raise_all(?, ?, ?)"), tokens).bind(seconds(wait));
        Call { doing: "raising the fence", query }
    }

    pub(super) fn force_raise(token: &FencingToken, wait: Duration) -> Call<'static> {
        let tokens = std::slice::from_ref(token);
        let query = with(sqlx::query("CALL ringfence_force_raise(?, ?, ?)"), tokens).bind(seconds(wait));
        Call { doing: "raising the fence", query }
    }

    pub(super) async fn run(
        self,
        conn: &mut MySqlConnection,
        tokens: &[FencingToken],
    ) -> Result<(), FenceError> {
        let doing = self.doing;
        self.query.execute(conn).await.map(|_| ()).map_err(|error| failed(doing, error, tokens))
    }
}

type Of<'q> = Query<'q, MySql, MySqlArguments>;

/// The tokens as two arrays of JSON.
pub(super) fn with<'q>(query: Of<'q>, tokens: &[FencingToken]) -> Of<'q> {
    let (texts, sessions) = arrays(tokens);
    query.bind(texts).bind(sessions)
}

pub(super) fn arrays(tokens: &[FencingToken]) -> (String, String) {
    let (mut texts, mut sessions) = (String::from("["), String::from("["));
    for (place, token) in tokens.iter().enumerate() {
        let comma = if place == 0 { "" } else { "," };
        // No character of a token needs escaping.
        let written = write!(texts, "{comma}\"{token}\"").and_then(|()| match session(token) {
            Some(session) => write!(sessions, "{comma}{session}"),
            None => write!(sessions, "{comma}null"),
        });
        written.unwrap_or_else(|_| unreachable!("a String takes every text"));
    }
    texts.push(']');
    sessions.push(']');
    (texts, sessions)
}

/// A session is compared by equality only, so its bits may pass through a signed column.
fn session(token: &FencingToken) -> Option<i64> {
    token.session().map(|session| session.get().cast_signed())
}

/// Whole seconds, which is what the server counts in; never fewer than asked for.
fn seconds(wait: Duration) -> i32 {
    let whole = wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0));
    // As far as `innodb_lock_wait_timeout` reaches.
    i32::try_from(whole).unwrap_or(i32::MAX).clamp(1, 100_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_core::ids::SessionId;

    #[test]
    fn tokens_and_sessions_are_two_arrays_in_one_order() {
        let tokens: Vec<FencingToken> = vec![
            "prod/orders/17@33".parse::<FencingToken>().unwrap().held_by(SessionId::new(u64::MAX).unwrap()),
            "prod/@locks/nightly@9".parse().unwrap(),
        ];
        let (texts, sessions) = arrays(&tokens);
        assert_eq!(
            (texts.as_str(), sessions.as_str()),
            (r#"["prod/orders/17@33","prod/@locks/nightly@9"]"#, "[-1,null]")
        );
        assert_eq!(arrays(&[]), ("[]".into(), "[]".into()));
    }

    #[test]
    fn a_wait_is_rounded_up_to_seconds_and_is_never_none() {
        for (wait, expected) in [(0, 1), (1, 1), (1_000, 1), (1_001, 2), (5_000, 5), (u64::MAX, 100_000_000)]
        {
            assert_eq!(seconds(Duration::from_millis(wait)), expected);
        }
    }
}
