//! Foreign text, made fit to show.
//!
//! Messages end up in logs and on terminals, and parts of them come from the other side of the wire. A control
//! character in such a part could forge a log line or paint on the terminal, and a long one could fill both.

/// The longest message that is shown, in bytes before escaping. A status travels in a header, and headers are bounded.
pub(crate) const MAX_SHOWN_BYTES: usize = 1_024;

/// The text with control characters escaped, cut to [`MAX_SHOWN_BYTES`].
pub(crate) fn shown(text: &str) -> String {
    let kept = cut(text, MAX_SHOWN_BYTES);
    let mut out = String::with_capacity(kept.len());
    for c in kept.chars() {
        if hidden(c) { out.extend(escape(c)) } else { out.push(c) }
    }
    if kept.len() < text.len() {
        out.push_str("...");
    }
    out
}

/// The longest beginning of the text that fits into so many bytes.
pub(crate) fn cut(text: &str, bytes: usize) -> &str {
    let mut end = text.len().min(bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
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
    fn f021_text_is_cut_between_characters() {
        let long = "ä".repeat(MAX_SHOWN_BYTES);
        let text = shown(&long);
        assert!(text.ends_with("ä...") && text.len() <= MAX_SHOWN_BYTES + 3, "{}", text.len());
        assert_eq!(cut("äö", 3), "ä");
    }
}
