//! What one child for all partitions is told on its standard input, and what it answers on its standard output: a JSON object a
//! line.

use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, Read as _};

/// The longest line of a child that is read as one, in bytes. A longer one is passed on in parts.
const MAX_LINE_BYTES: u64 = 64 * 1024;

/// What the child is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum Tell {
    /// The partition is yours: raise its fences to the token, read, say `ready`.
    Granted { partition: u32, epoch: u64, token: String },
    /// It is wanted back: stop, flush, say `released`, within so many milliseconds.
    Revoked { partition: u32, epoch: u64, deadline_ms: u64 },
    /// It is not yours any more. Nothing is to be answered.
    Lost { partition: u32, epoch: u64 },
}

impl Tell {
    /// One line.
    pub(super) fn line(&self) -> String {
        // Numbers and tokens only: it does not fail.
        let mut line = serde_json::to_string(self).unwrap_or_default();
        line.push('\n');
        line
    }
}

/// What the child answers.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum Answer {
    /// The fences are raised and the state is loaded.
    Ready { partition: u32, epoch: u64 },
    /// Nothing of it runs any more.
    Released { partition: u32, epoch: u64 },
}

impl Answer {
    /// `None` for a line that is the program's own affair.
    pub(super) fn read(line: &[u8]) -> Option<Answer> {
        serde_json::from_slice(line).ok()
    }
}

/// Reads a line with its end into `line`, or the part of it that fits. False at the end.
pub(super) fn read_line(from: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    Ok(from.take(MAX_LINE_BYTES).read_until(b'\n', line)? > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_are_a_contract() {
        let token = "prod/orders/17@42".to_owned();
        let (partition, epoch) = (17, 42);
        for (tell, line) in [
            (
                Tell::Granted { partition, epoch, token },
                r#"{"event":"granted","partition":17,"epoch":42,"token":"prod/orders/17@42"}"#,
            ),
            (
                Tell::Revoked { partition, epoch, deadline_ms: 900 },
                r#"{"event":"revoked","partition":17,"epoch":42,"deadline_ms":900}"#,
            ),
            (Tell::Lost { partition, epoch }, r#"{"event":"lost","partition":17,"epoch":42}"#),
        ] {
            assert_eq!(tell.line(), format!("{line}\n"));
        }
        let ready = br#" {"partition": 17, "event": "ready", "epoch": 42, "took_ms": 3} "#;
        assert_eq!(Answer::read(ready), Some(Answer::Ready { partition, epoch }));
        let released = br#"{"event":"released","partition":17,"epoch":42}"#;
        assert_eq!(Answer::read(released), Some(Answer::Released { partition, epoch }));
    }

    #[test]
    fn what_is_no_answer_is_the_programs_own_affair() {
        for line in [
            "",
            "hello",
            "{}",
            r#"{"event":"granted","partition":1,"epoch":2,"token":"x"}"#,
            r#"{"event":"ready","partition":-1,"epoch":2}"#,
            r#"{"event":"ready","partition":4294967296,"epoch":2}"#,
            r#"{"event":"ready","partition":1}"#,
            r#"{"event":"ready","partition":1,"epoch":2} and more"#,
        ] {
            assert_eq!(Answer::read(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn a_line_without_an_end_costs_no_more_than_a_long_one() {
        let text = vec![b'x'; 200_000];
        let (mut from, mut line, mut parts) = (&text[..], Vec::new(), Vec::new());
        while read_line(&mut from, &mut line).unwrap() {
            parts.push(line.len());
        }
        assert_eq!(parts, [65_536, 65_536, 65_536, 3_392]);
    }
}
