//! Foreign text, made fit to show.
//!
//! A parser quotes the file that it could not read, and a file that is damaged, or is none of ours, may hold anything: what
//! paints on a terminal, or a line without an end.

/// How much of a line is shown, in characters.
const LINE: usize = 200;

/// How many lines are shown. A parser points at a place with four.
const LINES: usize = 8;

/// The text with what hides or paints escaped, and cut to what a person reads.
pub(crate) fn plain(text: &str) -> String {
    let mut out = String::new();
    for (number, line) in text.trim_end().split('\n').take(LINES).enumerate() {
        if number > 0 {
            out.push('\n');
        }
        for c in line.chars().take(LINE) {
            if hidden(c) { out.extend(c.escape_unicode()) } else { out.push(c) }
        }
        if line.chars().nth(LINE).is_some() {
            out.push_str("...");
        }
    }
    out
}

/// Control characters, and those that reorder or hide the text around them.
fn hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f021_lines_stay_and_what_paints_or_has_no_end_does_not() {
        assert_eq!(plain("line 2\n  | ^ ä\n"), "line 2\n  | ^ ä");
        assert_eq!(plain("a\u{1b}[2J\r\u{202e}b"), "a\\u{1b}[2J\\u{d}\\u{202e}b");
        let long = plain(&"x\n".repeat(10_000).replacen('x', &"y".repeat(10_000), 1));
        assert!(long.starts_with(&("y".repeat(LINE) + "...\nx\n")) && long.len() < 300, "{long}");
    }
}
