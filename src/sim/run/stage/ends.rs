//! What happens later: the end of a fault above all, and of the last one.

use super::Stage;
use crate::history::What;
use crate::world::disk::Trouble;
use crate::world::{Host, Weather};

/// What happens later, at the end of a fault above all.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Later {
    Open(Host, Host),
    Fair(Host, Host),
    Start(Host),
    HasRoom(Host),
    Fast(Host),
    StoreFair(Host),
    Leave(Host),
    /// It is not started again.
    Gone(Host),
    /// Whoever leads is stuck from then on.
    Stick(bool, Host, u64),
}

impl Stage {
    pub(super) fn later(&mut self, after: u64, what: Later) {
        self.number += 1;
        self.later.insert((self.now + after, self.number), what);
    }

    /// Ends a fault after so long, or when a longer one of its kind does.
    pub(super) fn undo(&mut self, after: u64, what: Later) {
        let until = self.until.entry(what.clone()).or_default();
        *until = (*until).max(self.now + after);
        self.later(after, what);
    }

    pub(super) fn end_of_fault(&mut self, what: Later) -> anyhow::Result<()> {
        match what {
            Later::Open(from, to) => self.common.net.change(from, to, |weather| weather.closed = false),
            Later::Fair(from, to) => self.common.net.change(from, to, |weather| {
                *weather = Weather { closed: weather.closed, ..Weather::default() };
            }),
            Later::Start(host) => self.start(host)?,
            Later::HasRoom(host) => self.disk(host, |trouble| trouble.full = false),
            Later::Fast(host) => self.disk(host, |trouble| trouble.takes_us = Trouble::default().takes_us),
            Later::StoreFair(host) => self.common.store.change(host, None),
            Later::Stick(one, worker, for_ms) => self.stick(one, worker, for_ms),
            // Whether it was removed or not, an operator has let go of it: it is not started again.
            Later::Gone(host) => {
                self.gone.insert(host);
                self.kill(host, false);
            }
            Later::Leave(host) => {
                if let Some(worker) = self.workers.get(&host) {
                    worker.leave();
                }
            }
        }
        Ok(())
    }

    /// The last fault is over.
    pub(super) fn heal(&mut self) -> anyhow::Result<()> {
        self.common.net.heal();
        self.common.store.heal();
        for node in self.nodes.values() {
            node.disk.trouble(|trouble| *trouble = Default::default());
        }
        self.paused.clear();
        self.until.clear();
        self.back.clear();
        for host in self.everybody() {
            self.start(host)?;
        }
        self.record(What::Healed);
        Ok(())
    }
}
