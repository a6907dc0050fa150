//! A log in memory, for `dev` and for simulations.

use super::{LogBackend, LogOp, Stored};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

/// A log in memory. A clone is the same log, so that whoever keeps one can start a node on it again.
#[derive(Clone, Debug, Default)]
pub struct MemoryLog(Arc<Mutex<Stored>>);

impl MemoryLog {
    /// An empty log.
    pub fn new() -> MemoryLog {
        MemoryLog::default()
    }
}

impl LogBackend for MemoryLog {
    fn load(&mut self) -> io::Result<Stored> {
        Ok(self.0.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    fn commit(&mut self, ops: &[LogOp]) -> io::Result<()> {
        let mut stored = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for op in ops {
            match op {
                LogOp::Append(entries) => stored.entries.extend(entries.iter().cloned()),
                LogOp::TruncateFrom(first) => stored.entries.retain(|(index, _)| index < first),
                LogOp::PurgeTo(last, record) => {
                    stored.entries.retain(|(index, _)| index > last);
                    stored.purged = Some(record.clone());
                }
                LogOp::Vote(record) => stored.vote = Some(record.clone()),
                LogOp::Committed(record) => stored.committed = Some(record.clone()),
            }
        }
        Ok(())
    }

    fn blocks(&self) -> bool {
        false
    }
}
