//! What must hold in every scene, and what must be seen in some, or a world proves nothing.

use super::rules::Rule;
use super::scene::Scene;
use super::world::World;
use crate::model::check::{TIME_IS_UP, is_up};
use ringfence_core::ids::{Epoch, PartitionKey, SessionId};
use ringfence_core::state::{Command, EndReason, Event};
use stateright::Property;
use std::collections::BTreeMap;

/// Epochs only grow, and each is one session's.
pub const G2: &str = "G2 an epoch is granted to one session, once";
/// Nobody believes in what was granted to another.
pub const G3: &str = "G3 no two workers believe";
/// What a dead worker held is granted again.
pub const G4: &str = "G4 a dead owner's partition is granted again in time";

pub(super) fn of(world: &World) -> Vec<Property<World>> {
    let mut properties = vec![Property::always(G2, g2)];
    if world.until.is_some() {
        properties.push(Property::sometimes(TIME_IS_UP, |world: &World, _| is_up(world.until)));
    }
    if world.progress.is_some() {
        properties.push(Property::always(G4, g4));
        properties.push(Property::sometimes("the partition is granted on", |_, scene| granted_on(scene)));
        if world.terms > 1 {
            properties.push(Property::sometimes("a later leader grants it on", |_, scene: &Scene| {
                granted_on(scene) && scene.log.last_term() > 1
            }));
        }
        return properties;
    }
    properties.push(Property::always(G3, g3));
    properties.push(Property::sometimes("the partition is granted on", |_, scene| granted_on(scene)));
    if world.expiry {
        properties.push(Property::sometimes("a suspicion is taken back", |_, scene| {
            events(scene).any(|event| matches!(event, Event::Cleared(_)))
        }));
        properties.push(Property::sometimes("a lease runs out", |_, scene| {
            events(scene).any(|event| matches!(event, Event::Ended { why: EndReason::Expired, .. }))
        }));
    }
    if world.expiry && world.terms > 1 {
        properties.push(Property::sometimes("a lease runs out under a later leader", |_, scene: &Scene| {
            scene.log.last_term() > 1
                && events(scene).any(|e| matches!(e, Event::Ended { why: EndReason::Expired, .. }))
        }));
    }
    if world.drains > 0 {
        properties.push(Property::sometimes("a drain ends without its owner", |_, scene| {
            does(scene, |c| matches!(c, Command::DrainOver { .. } | Command::EndLockCooling { .. }))
        }));
        // A holder to which each acknowledgement counts by itself has no memory of what it gave back, and gives nothing.
        if !world.lacks(Rule::WhatIsOverStaysOver) {
            properties.push(Property::sometimes("an owner releases", |_, scene| {
                does(scene, |c| matches!(c, Command::Release { .. } | Command::ReleaseLock { .. }))
            }));
        }
    }
    if world.joins > 0 {
        properties.push(Property::sometimes("a session is replaced", |_, scene| {
            events(scene).any(|event| matches!(event, Event::Ended { why: EndReason::Replaced, .. }))
        }));
    }
    properties
}

fn g2(_: &World, scene: &Scene) -> bool {
    let mut last: BTreeMap<PartitionKey, Epoch> = BTreeMap::new();
    let grow =
        scene.log.grants().all(|(key, epoch, _)| last.insert(key, epoch).is_none_or(|before| before < epoch));
    let mut whose: BTreeMap<(PartitionKey, Epoch), SessionId> = BTreeMap::new();
    let held = scene
        .workers
        .iter()
        .flat_map(|worker| worker.lessee.holds().map(|(key, epoch)| (*key, epoch, worker.session)));
    let mut all = scene.log.grants().chain(held);
    grow && all.all(|(key, epoch, session)| *whose.entry((key, epoch)).or_insert(session) == session)
}

/// At its worst: the next owner may believe from the moment its grant is committed.
fn g3(_: &World, scene: &Scene) -> bool {
    let now = scene.clocks.worker(scene.tick);
    let truth = scene.log.truth();
    let granted = |key| match truth.partition(key) {
        Some(partition) => partition.epoch(),
        None => truth.lock_epoch().epoch(),
    };
    scene.workers.iter().all(|worker| worker.believes(now).all(|(key, epoch)| granted(key) == Some(epoch)))
}

fn g4(world: &World, scene: &Scene) -> bool {
    world.progress.is_none_or(|progress| scene.kept <= progress.within)
}

fn granted_on(scene: &Scene) -> bool {
    scene.log.grants().nth(1).is_some()
}

fn events(scene: &Scene) -> impl Iterator<Item = &Event> {
    scene.log.after(0).iter().flat_map(|committed| &committed.applied.events)
}

fn does(scene: &Scene, what: impl Fn(&Command) -> bool) -> bool {
    let took_effect = scene.log.after(0).iter().filter(|committed| committed.applied.outcome.is_ok());
    took_effect
        .flat_map(|committed| committed.proposal.entry.iter())
        .flat_map(|entry| &entry.commands)
        .any(what)
}
