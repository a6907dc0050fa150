//! Orders to a drill: whether this worker can play its part, and with what.

use super::{Life, Stage};
use crate::ownership::{Ownership, Phase};
use crate::worker::drill::{Course, Probe};
use ringfence_api::v1::{DrillMode, DrillOrder};
use std::sync::Arc;

impl Life<'_> {
    /// The coordinator asks for a drill. Whatever is in the way is told by the drill's own stream.
    pub(super) fn on_drill(&mut self, order: DrillOrder) {
        let running = self.keeper.drilling.id();
        if running == Some(&order.drill[..]) {
            return;
        }
        let part = if running.is_some() {
            Err("another drill of this worker has not ended; try again shortly".to_owned())
        } else {
            self.part_in(&order)
        };
        let plays = part.is_ok();
        let (id, stall) = (order.drill.to_vec(), Arc::default());
        let course = Course {
            order,
            session: self.session.id,
            secret: self.session.secret.clone(),
            coordinator: self.keeper.coordinator.clone(),
            runtime: self.keeper.host.runtime.clone(),
            clock: self.keeper.clock.clone(),
            stall: Arc::clone(&stall),
        };
        let task = tokio::spawn(course.run(part));
        // One that declines ends by itself within seconds.
        if plays {
            self.keeper.drilling.began(id, task, stall);
        }
    }

    /// What the drill is played with: the ownership that it names, and the keyspace's probe.
    fn part_in(&self, order: &DrillOrder) -> Result<(Ownership, Probe), String> {
        if order.mode() == DrillMode::Unspecified {
            return Err(format!(
                "this worker's SDK does not know the mode {} of a drill; upgrade it",
                order.mode
            ));
        }
        if !matches!(self.stage, Stage::Serving) {
            return Err("the worker is about to leave".to_owned());
        }
        let found = self.held.iter().find(|(place, holding)| {
            place.keyspace.as_str() == order.keyspace
                && place.partition.get() == order.partition
                && holding.tenure.token().epoch().get() == order.epoch
        });
        let (place, holding) = found
            .ok_or_else(|| "this worker does not own the partition under that epoch any more".to_owned())?;
        if holding.tenure.phase() != Phase::Active {
            return Err("the partition is not served: its owner is not ready, or is about to stop".to_owned());
        }
        let probe = self.keeper.profile.probes.get(&place.keyspace);
        let probe = probe.ok_or_else(|| "this worker allows no drills of the keyspace".to_owned())?;
        Ok((Ownership::new(Arc::clone(&holding.tenure)), Arc::clone(probe)))
    }
}
