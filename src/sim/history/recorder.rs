//! A history, and the shared notebook in which it is written down.

use super::{Event, What};
use std::io::{BufRead, Write};
use std::sync::{Arc, Mutex, PoisonError};

/// A list of events. The events of one actor stand in the order in which they happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The events.
    pub events: Vec<Event>,
}

/// Why a history cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// The lines could not be read.
    #[error("reading a history: {0}")]
    Read(#[from] std::io::Error),
    /// A line is not an event.
    #[error("line {line} is not an event of a history: {error}")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// What is wrong with it.
        error: serde_json::Error,
    },
}

impl History {
    /// Adds an event.
    pub fn push(&mut self, at: u64, by: impl Into<String>, what: What) {
        self.events.push(Event { at, by: by.into(), what });
    }

    /// When it ends: the time of its latest event.
    pub fn end(&self) -> u64 {
        self.events.iter().map(|event| event.at).max().unwrap_or(0)
    }

    /// Writes one event a line, as JSON.
    ///
    /// # Errors
    /// What the writer says.
    pub fn write_jsonl(&self, mut to: impl Write) -> std::io::Result<()> {
        for event in &self.events {
            serde_json::to_writer(&mut to, event)?;
            to.write_all(b"\n")?;
        }
        to.flush()
    }

    /// Reads one event a line; empty lines count for nothing.
    ///
    /// # Errors
    /// [`HistoryError`], which names the line.
    pub fn read_jsonl(from: impl BufRead) -> Result<History, HistoryError> {
        let mut history = History::default();
        for (number, line) in (1..).zip(from.lines()) {
            let line = line?;
            if line.trim().is_empty() {
                continue;
            }
            let event =
                serde_json::from_str(&line).map_err(|error| HistoryError::Line { line: number, error })?;
            history.events.push(event);
        }
        Ok(history)
    }
}

/// Writes a history down while it happens. Clones write into the same one.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    history: Arc<Mutex<History>>,
}

impl Recorder {
    /// An empty notebook.
    pub fn new() -> Recorder {
        Recorder::default()
    }

    /// Writes down what happened to `by` at `at`, in microseconds of the observer's clock.
    pub fn record(&self, at: u64, by: impl Into<String>, what: What) {
        self.with(|history| history.push(at, by, what));
    }

    /// How many events there are so far.
    pub fn len(&self) -> usize {
        self.with(|history| history.events.len())
    }

    /// True when nothing was written down yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A copy of what was written down so far.
    pub fn history(&self) -> History {
        self.with(|history| history.clone())
    }

    /// Takes what was written down so far; the notebook is empty afterwards.
    pub fn take(&self) -> History {
        self.with(std::mem::take)
    }

    fn with<T>(&self, work: impl FnOnce(&mut History) -> T) -> T {
        // Every change is one push, so a panic elsewhere leaves the list whole.
        work(&mut self.history.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Call, Outcome};
    use ringfence_core::ids::Epoch;

    #[test]
    fn a_history_is_read_back_as_it_was_written() {
        let recorder = Recorder::new();
        let (scope, epoch) = ("orders/17".parse().unwrap(), Epoch::new(34).unwrap());
        let worker: ringfence_core::ids::WorkerId = "w1".parse().unwrap();
        let token = Some(("orders/17".parse().unwrap(), epoch));
        recorder.record(5, "w1.1", What::Began { scope, epoch, worker });
        recorder.record(7, "w1.1", What::Invoked { op: 1, key: "k".into(), call: Call::Append(9), token });
        recorder.clone().record(
            8,
            "c",
            What::Invoked { op: 2, key: "k".into(), call: Call::Read, token: None },
        );
        recorder.record(9, "c", What::Returned { op: 2, outcome: Outcome::Ok(vec![9]) });
        recorder.record(9, "net", What::Healed);
        let mut lines = Vec::new();
        recorder.history().write_jsonl(&mut lines).unwrap();
        let text = String::from_utf8(lines.clone()).unwrap();
        let first = r#"{"at":5,"by":"w1.1","what":{"began":{"scope":"orders/17","epoch":34,"worker":"w1"}}}"#;
        assert_eq!(text.lines().next(), Some(first));
        assert_eq!(History::read_jsonl(&lines[..]).unwrap(), recorder.take());
        assert!(recorder.is_empty());
    }

    #[test]
    fn a_line_that_is_no_event_is_named() {
        let text = "\n{\"at\":1,\"by\":\"x\",\"what\":\"healed\"}\n{\"at\":1}\n";
        let error = History::read_jsonl(text.as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with("line 3 is not an event"), "{error}");
        let zero = r#"{"at":1,"by":"x","what":{"raised":{"scope":"o/1","epoch":0}}}"#;
        let error = History::read_jsonl(zero.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("0 is not an epoch"), "{error}");
    }
}
