//! What is wrong with one field of a message.

use crate::text::shown;
use std::fmt;

/// A field that is missing, malformed or out of bounds.
///
/// The path is the one in the contract (`policy.ttl_ms`, `items[3].epoch`), so that whoever wrote the message finds
/// the place. The reason shows foreign text escaped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidField {
    field: String,
    why: String,
}

impl InvalidField {
    /// This field is wrong, and why. The reason may hold foreign text; it is escaped.
    pub fn new(field: &str, why: impl fmt::Display) -> InvalidField {
        InvalidField { field: field.to_owned(), why: shown(&why.to_string()) }
    }

    /// This field has to be there and is not.
    pub fn missing(field: &str) -> InvalidField {
        InvalidField::new(field, "it is missing")
    }

    /// The same, seen from the message that holds the wrong one in its field `outer`.
    #[must_use]
    pub fn within(mut self, outer: &str) -> InvalidField {
        self.field = format!("{outer}.{}", self.field);
        self
    }

    /// The same, seen from the message that holds the wrong one at a place of its repeated field `outer`.
    #[must_use]
    pub fn at(mut self, outer: &str, place: usize) -> InvalidField {
        self.field = format!("{outer}[{place}].{}", self.field);
        self
    }

    /// The path of the field.
    pub fn field(&self) -> &str {
        &self.field
    }

    /// What is wrong with it.
    pub fn why(&self) -> &str {
        &self.why
    }
}

impl fmt::Display for InvalidField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "field {}: {}", self.field, self.why)
    }
}

impl std::error::Error for InvalidField {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_leads_from_the_message_to_the_field() {
        let error = InvalidField::missing("epoch").at("items", 3).within("report");
        assert_eq!(error.to_string(), "field report.items[3].epoch: it is missing");
    }

    #[test]
    fn f021_foreign_text_in_the_reason_is_escaped() {
        let error = InvalidField::new("worker", "\u{1b}[31mred\n is not a name");
        assert_eq!(error.why(), "\\u{1b}[31mred\\n is not a name");
    }
}
