//! Texts of bounded length.

/// As much of a text as fits into so many bytes, ending between two characters.
pub fn cut(text: &str, bytes: usize) -> &str {
    let mut end = text.len().min(bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
