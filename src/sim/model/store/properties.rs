//! What must hold whatever storage, network and owners do.

use super::world::{Broken, Scene, World};
use crate::model::check::{TIME_IS_UP, is_up};
use stateright::Property;

/// What a fence has seen stands.
pub const FENCED: &str = "G1 no write takes effect below what its fence has seen";
/// What an owner has read stands.
pub const READ: &str = "G1 no write of an older owner takes effect after a newer one has read";
/// An epoch is one session's.
pub const G2: &str = "G2 an epoch is granted to one session, once";

pub(super) fn of(world: &World) -> Vec<Property<World>> {
    let mut properties = vec![
        Property::always(FENCED, |_, scene: &Scene| scene.broken != Some(Broken::BelowTheFence)),
        Property::always(READ, |_, scene: &Scene| scene.broken != Some(Broken::AfterALaterOwnerRead)),
        Property::always(G2, |_, scene: &Scene| {
            scene.owners.windows(2).all(|pair| pair[0].epoch < pair[1].epoch)
        }),
        Property::sometimes("a replaced owner's write is refused", |_, scene: &Scene| scene.refused),
        Property::sometimes("the last owner has read everything", |world: &World, scene: &Scene| {
            scene.owners.len() as u64 == world.epochs
                && scene.owners.iter().rev().take(1).all(|owner| !owner.read.contains(&false))
        }),
    ];
    if world.until.is_some() {
        properties.push(Property::sometimes(TIME_IS_UP, |world: &World, _: &Scene| is_up(world.until)));
    }
    if world.crashes > 0 {
        properties.push(Property::sometimes(
            "a storage crashes between a raise and a write",
            |world: &World, scene: &Scene| {
                scene.crashes < world.crashes
                    && scene.owners.len() > 1
                    && scene.owners[1].raised.contains(&true)
            },
        ));
    }
    properties
}
