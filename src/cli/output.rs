//! Standard output: tables for people, JSON for programs.
//!
//! With `-o json` each answer is one document on one line (`watch`: one a change), of the shapes in `docs/cli.md`. What
//! controls a terminal is escaped in both.

use crate::exit::Failed;
use crate::text::{hides, plain};
use clap::ValueEnum;
use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter, Serializer};
use std::fmt::Write as _;
use std::io::{self, Write};

/// How an answer is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Table,
    /// For programs
    Json,
}

impl Format {
    /// For programs.
    pub(crate) fn is_json(self) -> bool {
        self == Format::Json
    }
}

/// Where a command's answer goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    format: Format,
}

impl Output {
    pub(crate) fn new(format: Format) -> Output {
        Output { format }
    }

    /// For programs.
    pub(crate) fn is_json(&self) -> bool {
        self.format.is_json()
    }

    /// Writes the answer: the shape for programs, or the text for people. That nobody reads it does not change what it is: the
    /// exit code says it as well.
    pub(crate) fn show(&self, shape: &impl Serialize, text: impl FnOnce() -> String) -> io::Result<()> {
        self.one_of_many(shape, text).or_else(|error| match error.kind() {
            io::ErrorKind::BrokenPipe => Ok(()),
            _ => Err(error),
        })
    }

    /// Writes one answer of a row that has no end but that nobody reads it any more, which is an error.
    pub(crate) fn one_of_many(
        &self,
        shape: &impl Serialize,
        text: impl FnOnce() -> String,
    ) -> io::Result<()> {
        match self.format {
            Format::Json => write_json(shape),
            Format::Table => {
                let mut out = io::stdout().lock();
                out.write_all(text().as_bytes())?;
                out.flush()
            }
        }
    }
}

impl Output {
    /// Writes what became of a change, of which `result` is the word. When that cannot be written, the change was made all the
    /// same, and whoever called must not take it for one that failed.
    pub(crate) fn changed(
        &self,
        result: &str,
        shape: &impl Serialize,
        text: impl FnOnce() -> String,
    ) -> Result<(), Failed> {
        self.show(shape, text).map_err(|error| match Failed::from(error) {
            failed if is_nothing(result) => failed,
            failed => failed.after_a_change(DONE_ALL_THE_SAME),
        })
    }
}

/// What the message of a change begins with that was made, and of which nothing could be said.
pub(crate) const DONE_ALL_THE_SAME: &str =
    "what was asked for is done, and only the answer could not be written; do not do it again, look at it";

/// Nothing was changed, by the word for what became of it.
fn is_nothing(result: &str) -> bool {
    matches!(result, "unchanged" | "planned")
}

/// Writes one document on one line to standard output.
pub(crate) fn write_json(shape: &impl Serialize) -> io::Result<()> {
    let mut line = json(shape)?;
    line.push('\n');
    let mut out = io::stdout().lock();
    out.write_all(line.as_bytes())?;
    out.flush()
}

/// One document on one line.
pub(crate) fn json(shape: &impl Serialize) -> io::Result<String> {
    let mut bytes = Vec::new();
    shape.serialize(&mut Serializer::with_formatter(&mut bytes, Escaping))?;
    String::from_utf8(bytes).map_err(io::Error::other)
}

/// JSON has to escape only the oldest of the control characters; this escapes the others as well.
struct Escaping;

impl Formatter for Escaping {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        let mut rest = fragment;
        while let Some(at) = rest.find(hides) {
            CompactFormatter.write_string_fragment(writer, &rest[..at])?;
            let mut chars = rest[at..].chars();
            if let Some(c) = chars.next() {
                let mut units = [0; 2];
                for unit in c.encode_utf16(&mut units) {
                    write!(writer, "\\u{unit:04x}")?;
                }
            }
            rest = chars.as_str();
        }
        CompactFormatter.write_string_fragment(writer, rest)
    }
}

/// A table: columns as wide as their widest cell, two spaces between them.
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these headings.
    pub(crate) fn new<const N: usize>(headings: [&str; N]) -> Table {
        Table { rows: vec![headings.map(str::to_owned).to_vec()] }
    }

    /// Adds a row. An empty cell is shown as `-`.
    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        let cell = |text: String| if text.is_empty() { "-".to_owned() } else { plain(&text) };
        self.rows.push(cells.map(cell).to_vec());
    }

    /// The table as text, each line indented by so many spaces.
    pub(crate) fn indented(&self, by: usize) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let widest = |column: usize| {
            self.rows.iter().filter_map(|row| row.get(column)).map(|cell: &String| cell.chars().count()).max()
        };
        let widths: Vec<usize> = (0..columns).map(|column| widest(column).unwrap_or(0)).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = " ".repeat(by);
            for (cell, width) in row.iter().zip(&widths) {
                // Writing to a string does not fail.
                let _ = write!(line, "{cell:width$}  ");
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }

    /// The table as text.
    pub(crate) fn text(&self) -> String {
        self.indented(0)
    }
}

/// Lines of `name: value`, the values under each other.
pub(crate) fn properties<const N: usize>(lines: [(&str, String); N]) -> String {
    let width = lines.iter().map(|(name, _)| name.len() + 1).max().unwrap_or(0);
    let mut text = String::new();
    for (name, value) in lines {
        let value = if value.is_empty() { "-".to_owned() } else { plain(&value) };
        let name = format!("{name}:");
        let _ = writeln!(text, "{name:width$}  {value}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_as_wide_as_its_widest_cells() {
        let mut table = Table::new(["WORKER", "ADDRESS", "N"]);
        table.row(["w1".to_owned(), "10.0.0.1:80".to_owned(), "7".to_owned()]);
        table.row(["a-long-name".to_owned(), String::new(), "12".to_owned()]);
        assert_eq!(
            table.text(),
            "WORKER       ADDRESS      N\n\
             w1           10.0.0.1:80  7\n\
             a-long-name  -            12\n"
        );
        assert!(table.indented(2).starts_with("  WORKER"));
    }

    #[test]
    fn f021_a_cell_cannot_write_to_the_terminal_or_begin_a_line() {
        let mut table = Table::new(["ERROR"]);
        table.row(["boom\n\u{1b}[2Jall is well".to_owned()]);
        assert_eq!(table.text(), "ERROR\nboom\\n\\u{1b}[2Jall is well\n");
    }

    #[test]
    fn f021_json_escapes_what_a_terminal_would_obey_and_is_read_back_the_same() {
        let hostile = "a\u{1b}[2J\u{9b}\u{202e}\"\\ä\u{1f600}";
        let text = json(&hostile).unwrap();
        assert_eq!(text, "\"a\\u001b[2J\\u009b\\u202e\\\"\\\\ä\u{1f600}\"");
        assert_eq!(serde_json::from_str::<String>(&text).unwrap(), hostile);
    }

    #[test]
    fn what_changed_nothing_is_told_from_what_did() {
        for nothing in ["unchanged", "planned"] {
            assert!(is_nothing(nothing), "{nothing}");
        }
        for done in
            ["changed", "created", "deleted", "started", "moved", "approved", "done", "drained", "fenced"]
        {
            assert!(!is_nothing(done), "{done}");
        }
    }

    #[test]
    fn properties_stand_under_each_other() {
        let text = properties([("name", "orders".to_owned()), ("takeover", String::new())]);
        assert_eq!(text, "name:      orders\ntakeover:  -\n");
    }
}
