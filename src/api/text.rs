//! Foreign text, made fit to show.
//!
//! Messages end up in logs and on terminals, and parts of them come from the other side of the wire. A control
//! character in such a part could forge a log line or paint on the terminal, and a long one could fill both.

/// The longest message that is shown, in bytes, with what is escaped in it. A status travels in a header, and headers are
/// bounded.
pub(crate) const MAX_SHOWN_BYTES: usize = 1_024;

const DOTS: &str = "...";

/// The text with control characters escaped, cut to [`MAX_SHOWN_BYTES`]. What was shown once is shown again as it is: a
/// message passes through several hands, and each makes sure.
pub(crate) fn shown(text: &str) -> String {
    shown_within(text, MAX_SHOWN_BYTES)
}

/// The same, cut to so many bytes.
pub(crate) fn shown_within(text: &str, bytes: usize) -> String {
    let mut out = String::with_capacity(text.len().min(bytes));
    // Where dots still fit in.
    let mut end = 0;
    for c in text.chars() {
        if hidden(c) {
            out.extend(escape(c));
        } else {
            out.push(c);
        }
        if out.len() > bytes {
            out.truncate(end);
            return out + DOTS;
        }
        if out.len() + DOTS.len() <= bytes {
            end = out.len();
        }
    }
    out
}

/// Control characters, and those that reorder or hide the text around them.
fn hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// `\n` and its like where there is a short form, `\u{1b}` else.
fn escape(c: char) -> impl Iterator<Item = char> {
    let short = matches!(c, '\n' | '\r' | '\t');
    let (a, b) = if short { (Some(c.escape_default()), None) } else { (None, Some(c.escape_unicode())) };
    a.into_iter().flatten().chain(b.into_iter().flatten())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f021_text_that_writes_to_a_terminal_is_escaped_and_other_text_is_left() {
        assert_eq!(shown("plain, ä and \"quotes\" stay"), "plain, ä and \"quotes\" stay");
        assert_eq!(shown("a\nb\u{1b}[2J\u{202e}c"), "a\\nb\\u{1b}[2J\\u{202e}c");
    }

    #[test]
    fn f021_text_is_cut_between_characters_and_with_its_escapes_counted() {
        for long in ["ä", "\u{1b}", "\n", "\u{202e}x", "plain "].map(|part| part.repeat(MAX_SHOWN_BYTES)) {
            let text = shown(&long);
            assert!(text.ends_with("...") && text.len() <= MAX_SHOWN_BYTES, "{} bytes: {text}", text.len());
            assert!(text.len() > MAX_SHOWN_BYTES - 12, "{} bytes: {text}", text.len());
        }
        assert_eq!(shown_within("äöü\nx", 9), "äöü\\nx");
        assert_eq!(shown_within("äöü\nxy", 9), "äöü...");
    }

    #[test]
    fn f021_what_was_shown_is_shown_again_as_it_is() {
        for length in 0..40 {
            for part in ["x", "ä", "\n", "\u{1b}[2J"] {
                let once = shown_within(&part.repeat(length), 31);
                assert_eq!(shown_within(&once, 31), once);
            }
        }
    }
}
