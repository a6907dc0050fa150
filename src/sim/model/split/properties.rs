//! What must hold whatever becomes of owners, messages and splits.

use super::world::{Broken, Scene, World, ends_at};
use crate::model::check::{TIME_IS_UP, is_up};
use ringfence_core::ids::{Epoch, PartitionId};
use stateright::Property;
use std::collections::BTreeMap;

/// What a fence has seen stands.
pub const FENCED: &str = "G1 no write takes effect below what its fence has seen";
/// What an owner has read stands.
pub const READ: &str =
    "G1 no write of a key takes effect after its next owner has read, but that owner's own";
/// An epoch is granted once, and that of a split never.
pub const G2: &str = "G2 epochs grow, and that of a split is granted to nobody";

pub(super) fn of(world: &World) -> Vec<Property<World>> {
    let mut properties = vec![
        Property::always(FENCED, |_, scene: &Scene| scene.broken != Some(Broken::BelowTheFence)),
        Property::always(READ, |_, scene: &Scene| scene.broken != Some(Broken::AfterTheNextOwnerRead)),
        Property::always(G2, g2),
        Property::sometimes("an owner from before a split is refused for a key of the child", |_, scene| {
            let Scene { refused, .. } = scene;
            *refused
        }),
        Property::sometimes("a child is read while its parent has no owner", |_, scene: &Scene| {
            let child = |owner: &super::world::Owner| owner.read && !owner.ancestors.is_empty();
            scene.owners.iter().any(child) && scene.is_vacant(PartitionId::new(0))
        }),
        Property::sometimes(
            "all splits are done, and the key's last owner has read",
            |world: &World, scene: &Scene| {
                let last = ends_at(world.splits);
                scene.splits == world.splits
                    && scene.owners.iter().any(|owner| owner.partition == last && owner.read)
            },
        ),
    ];
    if world.until.is_some() {
        properties.push(Property::sometimes(TIME_IS_UP, |world: &World, _: &Scene| is_up(world.until)));
    }
    properties
}

fn g2(_: &World, scene: &Scene) -> bool {
    let mut last: BTreeMap<PartitionId, Epoch> = BTreeMap::new();
    let grow = |(partition, epoch)| last.insert(partition, epoch).is_none_or(|before| before < epoch);
    let minted =
        |partition, epoch| scene.owners.iter().any(|owner| owner.ancestors.contains(&(partition, epoch)));
    let mut grants = scene.owners.iter().map(|owner| (owner.partition, owner.epoch));
    grants.clone().all(|(partition, epoch)| !minted(partition, epoch)) && grants.all(grow)
}
