//! Orders to raise fences again: which partitions are taken from their owners now.
//!
//! Each is drained to the very worker that has it, which is granted it anew; its storage is closed meanwhile, so this waits
//! for no budget and no brake, only for what an operator has frozen. An owner that does not give it up loses it when the
//! drain is over, and whoever gets it then raises as well.

use super::MAX_COMMANDS;
use super::budget::Budget;
use crate::ids::{KeyspaceId, LogIndex, PartitionId, PartitionKey};
use crate::mutant;
use crate::state::{Command, GrantReason, Keyspace, Phase, Reassert, State};
use crate::time::Instant;
use std::collections::BTreeMap;

/// The most partitions of an order that are being given back at once: one entry's worth.
const IN_FLIGHT: usize = MAX_COMMANDS - 1;

/// How far each order is, as this leader has seen it.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Reasserts {
    /// Below these no partition is owned under a grant from before the order. None ever will be again.
    from: BTreeMap<(LogIndex, KeyspaceId, Option<PartitionId>), u32>,
}

impl Reasserts {
    /// The commands that bring every order a step further.
    pub(super) fn due(&mut self, now: Instant, state: &State, budget: &mut Budget) -> Vec<Vec<Command>> {
        let open: Vec<&Reassert> = state.reasserts().filter(|order| !order.handed_out).collect();
        let name = |order: &Reassert| (order.at, order.keyspace, order.partition);
        self.from.retain(|named, _| open.iter().any(|order| name(order) == *named));
        let mut entries = Vec::new();
        for order in open {
            let Some(keyspace) = state.keyspace(order.keyspace) else { continue };
            let range = order.partitions(keyspace);
            let from = self.from.entry(name(order)).or_insert(range.start);
            let drains = step(state, keyspace, order, from, range.end);
            for drain in &drains {
                if let Command::Drain { partition, .. } = drain {
                    budget.begins(keyspace, *partition, now);
                }
            }
            if *from >= range.end {
                let (order, keyspace, partition) = name(order);
                entries.push(vec![Command::EndReassert { order, keyspace, partition }]);
            } else if !drains.is_empty() && !mutant!("reassert-takes-nothing") {
                entries.push(std::iter::once(Command::Under { directive: order.by }).chain(drains).collect());
            }
        }
        entries
    }
}

/// The drains of one step. `from` moves past what is done.
fn step(state: &State, keyspace: &Keyspace, order: &Reassert, from: &mut u32, end: u32) -> Vec<Command> {
    let mut drains = Vec::new();
    let (mut in_flight, mut all_done) = (0, true);
    for number in *from..end {
        let key = PartitionKey { keyspace: keyspace.id(), partition: PartitionId::new(number) };
        let Some(partition) = state.partition(key).filter(|partition| order.waits_for(partition)) else {
            *from = if all_done { number + 1 } else { *from };
            continue;
        };
        all_done = false;
        let Phase::Owned { session, .. } = partition.phase() else {
            in_flight += 1;
            continue;
        };
        let Some((owner, epoch)) = state.session(*session).zip(partition.epoch()) else { continue };
        if state.freeze_of_move(key, owner.worker()).is_some() {
            continue;
        }
        if in_flight + drains.len() >= IN_FLIGHT {
            break;
        }
        drains.push(Command::Drain {
            partition: key,
            epoch,
            to: owner.worker().clone(),
            deadline: keyspace.policy().drain_deadline(),
            why: GrantReason::Reassert,
        });
    }
    drains
}
