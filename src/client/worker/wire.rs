//! The coordinator's messages in the lessee's terms.
//!
//! Everything is checked here; what makes no sense is an error that names the field, and no message makes it panic.

use ringfence_api::convert::{HeldLock, InvalidField, Keyspace, lineage};
use ringfence_api::v1;
use ringfence_core::ids::{Epoch, KeyspaceName, LockName, LogIndex, PartitionId, Scope};
use ringfence_core::lease::lessee::{Acknowledgement, Assignment, DrainLeft, Gone, Held, Lineage};
use ringfence_core::placement::PartitionCount;
use ringfence_core::state::Takeover;
use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

/// One partition, by the names that a worker knows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Place {
    pub(super) keyspace: KeyspaceName,
    pub(super) partition: PartitionId,
}

impl Place {
    pub(super) fn scope(&self) -> Scope {
        Scope::Partition(self.keyspace.clone(), self.partition)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.keyspace, self.partition.get())
    }
}

/// One grant of a lock, by the request that it was granted to. A number is used once in a session, so a grant that was given
/// back is never taken for the next one, which under a shared lock may have the same epoch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct LockKey {
    pub(super) lock: LockName,
    pub(super) number: u64,
}

/// What a session holds: to the lessee all of it is one, so that every rule of leases holds for locks too.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Key {
    Partition(Place),
    Lock(LockKey),
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Partition(place) => place.fmt(f),
            Key::Lock(key) => Scope::Lock(key.lock.clone()).fmt(f),
        }
    }
}

/// The keyspaces that a session joined.
pub(super) type Keyspaces = HashMap<String, Joined>;

/// A keyspace that a session joined: its name, which is shared rather than copied a thousand times, how it is taken over,
/// and how many partitions it had then.
#[derive(Clone, Debug)]
pub(super) struct Joined {
    pub(super) name: KeyspaceName,
    takeover: Takeover,
    pub(super) partitions: PartitionCount,
}

pub(super) fn keyspaces(wire: Vec<v1::Keyspace>) -> Result<Keyspaces, InvalidField> {
    let mut all = Keyspaces::new();
    for (at, keyspace) in wire.into_iter().enumerate() {
        let keyspace = Keyspace::try_from(keyspace).map_err(|e| e.at("keyspaces", at))?;
        let (takeover, partitions) = (keyspace.policy.takeover(), keyspace.partitions);
        all.insert(keyspace.name.to_string(), Joined { name: keyspace.name, takeover, partitions });
    }
    Ok(all)
}

pub(super) fn assignment(
    wire: v1::Assignment,
    keyspaces: &Keyspaces,
) -> Result<Assignment<Key>, InvalidField> {
    let held = wire.held.iter().enumerate().map(|(at, held)| {
        let (key, takeover) =
            place(keyspaces, &held.keyspace, held.partition).map_err(|e| e.at("held", at))?;
        let epoch = epoch(held.epoch).map_err(|e| e.at("held", at))?;
        let lineage = lineage(held.divisor, &held.ancestors).map_err(|e| e.at("held", at))?;
        Ok(Held { key: Key::Partition(key), epoch, draining: held.draining, takeover, lineage })
    });
    let locks = wire.locks.iter().enumerate().map(|(at, held)| {
        let HeldLock { lock, epoch, takeover, number, mode: _ } =
            HeldLock::try_from(held.clone()).map_err(|e| e.at("locks", at))?;
        let (key, lineage) = (Key::Lock(LockKey { lock, number }), Lineage::default());
        Ok(Held { key, epoch, draining: false, takeover, lineage })
    });
    let gone = wire.gone.iter().enumerate().map(|(at, gone)| {
        let (key, _) = place(keyspaces, &gone.keyspace, gone.partition).map_err(|e| e.at("gone", at))?;
        Ok(Gone { key: Key::Partition(key), epoch: epoch(gone.epoch).map_err(|e| e.at("gone", at))? })
    });
    let gone_locks = wire.gone_locks.iter().enumerate().map(|(at, gone)| {
        let lock =
            LockName::new(&gone.lock).map_err(|why| InvalidField::new("lock", why).at("gone_locks", at))?;
        let key = Key::Lock(LockKey { lock, number: gone.number });
        Ok(Gone { key, epoch: epoch(gone.epoch).map_err(|e| e.at("gone_locks", at))? })
    });
    Ok(Assignment {
        revision: LogIndex::new(wire.revision),
        complete: wire.complete,
        more: wire.more,
        held: held.chain(locks).collect::<Result<_, InvalidField>>()?,
        gone: gone.chain(gone_locks).collect::<Result<_, InvalidField>>()?,
    })
}

pub(super) fn acknowledgement(
    wire: v1::Acknowledgement,
    keyspaces: &Keyspaces,
) -> Result<Acknowledgement<Key>, InvalidField> {
    let drains = wire.drains.iter().enumerate().map(|(at, drain)| {
        let (key, _) = place(keyspaces, &drain.keyspace, drain.partition).map_err(|e| e.at("drains", at))?;
        let epoch = epoch(drain.epoch).map_err(|e| e.at("drains", at))?;
        Ok(DrainLeft { key: Key::Partition(key), epoch, left: Duration::from_millis(drain.left_ms) })
    });
    Ok(Acknowledgement {
        number: wire.number,
        revision: LogIndex::new(wire.revision),
        drains: drains.collect::<Result<_, InvalidField>>()?,
    })
}

fn place(keyspaces: &Keyspaces, keyspace: &str, partition: u32) -> Result<(Place, Takeover), InvalidField> {
    let joined = keyspaces.get(keyspace).ok_or_else(|| {
        InvalidField::new("keyspace", format!("{keyspace} is none of those that this session joined"))
    })?;
    let place = Place { keyspace: joined.name.clone(), partition: PartitionId::new(partition) };
    Ok((place, joined.takeover))
}

fn epoch(number: u64) -> Result<Epoch, InvalidField> {
    Epoch::new(number).map_err(|why| InvalidField::new("epoch", why))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined() -> Keyspaces {
        let orders = KeyspaceName::new("orders").unwrap();
        let (takeover, partitions) = (Takeover::Fence, PartitionCount::new(18).unwrap());
        Keyspaces::from([("orders".to_owned(), Joined { name: orders, takeover, partitions })])
    }

    fn held(keyspace: &str, epoch: u64) -> v1::Held {
        let keyspace = keyspace.to_owned();
        let ancestors = vec![v1::Ancestor { partition: 5, epoch: 3 }];
        v1::Held { keyspace, partition: 17, epoch, ready: false, draining: true, divisor: 24, ancestors }
    }

    #[test]
    fn a_picture_arrives_as_it_was_sent() {
        let wire = v1::Assignment {
            revision: 9,
            complete: true,
            held: vec![held("orders", 4)],
            ..Default::default()
        };
        let picture = assignment(wire, &joined()).unwrap();
        assert_eq!((picture.revision.get(), picture.complete, picture.more), (9, true, false));
        assert_eq!(picture.held[0].key.to_string(), "orders/17");
        assert!(picture.held[0].draining && picture.held[0].takeover == Takeover::Fence);
        let lineage = &picture.held[0].lineage;
        assert_eq!(lineage.of.map(PartitionCount::get), Some(24));
        assert_eq!((lineage.ancestors[0].parent.get(), lineage.ancestors[0].epoch.get()), (5, 3));
    }

    #[test]
    fn a_grant_of_a_lock_is_named_by_its_request() {
        let held = v1::HeldLock {
            lock: "nightly".to_owned(),
            epoch: 7,
            mode: v1::LockMode::Shared.into(),
            takeover: v1::Takeover::Fence.into(),
            number: 3,
        };
        let gone = v1::GoneLock { lock: "nightly".to_owned(), epoch: 7, number: 2 };
        let wire = v1::Assignment { locks: vec![held], gone_locks: vec![gone], ..Default::default() };
        let picture = assignment(wire.clone(), &joined()).unwrap();
        assert_eq!((picture.held[0].takeover, picture.held[0].epoch.get()), (Takeover::Fence, 7));
        assert_ne!(picture.held[0].key, picture.gone[0].key);
        assert_eq!(picture.held[0].key.to_string(), "@locks/nightly");
        for (bad, field) in [
            (v1::HeldLock { number: 0, ..wire.locks[0].clone() }, "locks[0].number"),
            (v1::HeldLock { mode: 9, ..wire.locks[0].clone() }, "locks[0].mode"),
            (v1::HeldLock { lock: "No".to_owned(), ..wire.locks[0].clone() }, "locks[0].lock"),
        ] {
            let wire = v1::Assignment { locks: vec![bad], ..Default::default() };
            assert_eq!(assignment(wire, &joined()).unwrap_err().field(), field);
        }
    }

    #[test]
    fn f096_a_message_that_makes_no_sense_names_the_field_and_does_not_panic() {
        for (bad, field) in [(held("other", 4), "held[0].keyspace"), (held("orders", 0), "held[0].epoch")] {
            let wire = v1::Assignment { held: vec![bad], ..Default::default() };
            assert_eq!(assignment(wire, &joined()).unwrap_err().field(), field);
        }
        let drain = v1::DrainLeft { keyspace: "orders".to_owned(), epoch: 1 << 60, ..Default::default() };
        let wire = v1::Acknowledgement { drains: vec![drain], ..Default::default() };
        assert_eq!(acknowledgement(wire, &joined()).unwrap_err().field(), "drains[0].epoch");
        let endless = v1::DrainLeft {
            keyspace: "orders".to_owned(),
            epoch: 1,
            left_ms: u64::MAX,
            ..Default::default()
        };
        let wire = v1::Acknowledgement { drains: vec![endless], ..Default::default() };
        assert!(acknowledgement(wire, &joined()).is_ok());
    }
}
