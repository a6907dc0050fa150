//! Foreign text, made fit for a terminal, and times made fit for people.
//!
//! Addresses, labels and error messages come from workers. A control character in one of them could paint over what
//! stands beside it.

use std::time::Duration;

/// The text with control characters, and those that reorder or hide the text around them, escaped.
pub(crate) fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if hides(c) { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

/// A character that is not shown as itself.
pub(crate) fn hides(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// How long ago that was by this machine's wall clock: `3m 20s ago`. The clock that wrote it was another one.
pub(crate) fn ago(unix_ms: u64) -> String {
    let then = std::time::UNIX_EPOCH + Duration::from_millis(unix_ms.min(i64::MAX as u64 / 2));
    match std::time::SystemTime::now().duration_since(then) {
        Ok(age) => format!("{} ago", short(age)),
        Err(_) => "just now".to_owned(),
    }
}

/// The two largest units of a duration: `3m 20s`, `10s`, `250ms`.
pub(crate) fn short(duration: Duration) -> String {
    let rounded = match duration.as_secs() {
        0 => Duration::from_millis(u64::from(duration.subsec_millis())),
        1..60 => Duration::from_millis(duration.as_millis() as u64 / 100 * 100),
        secs => Duration::from_secs(secs),
    };
    humantime::format_duration(rounded).to_string().split(' ').take(2).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f021_what_writes_to_a_terminal_is_escaped_and_the_rest_is_left() {
        assert_eq!(plain("10.0.0.1:80 ä \"x\""), "10.0.0.1:80 ä \"x\"");
        assert_eq!(plain("a\u{1b}[31m\r\n\t\u{9b}\u{202e}"), "a\\u{1b}[31m\\r\\n\\t\\u{9b}\\u{202e}");
    }

    #[test]
    fn durations_have_at_most_two_units() {
        for (ms, text) in [
            (0, "0s"),
            (250, "250ms"),
            (10_000, "10s"),
            (1_250, "1s 200ms"),
            (200_000, "3m 20s"),
            (90_061_000, "1day 1h"),
        ] {
            assert_eq!(short(Duration::from_millis(ms)), text);
        }
        assert_eq!(ago(u64::MAX), "just now");
    }
}
