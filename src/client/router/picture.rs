//! How a picture of the map is put together: a full one in pieces, then changes.
//!
//! It does no I/O. Its rules:
//!
//! - Pieces count together, when the last has arrived; a picture that was broken off leaves no trace.
//! - Within a lineage nothing goes back: not the revision, and not a partition's epoch.
//! - Across lineages (a restored cluster) revisions do not compare, but epochs still only grow, and an owner is never
//!   shown under a lower one than was seen.
//! - Another cluster is refused: the endpoints lead elsewhere than they did.

use super::owner::Holder;
use super::view::{KeyspaceView, Slot, View};
use crate::error::{Error, ErrorKind};
use ringfence_api::convert::{self, InvalidField, MapEntry, Phase, checked, partitioner};
use ringfence_api::v1::{self, WatchResponse};
use ringfence_core::ids::{ClusterId, EpochFloor, KeyspaceName, Revision, SessionId};
use ringfence_core::mutant;
use ringfence_core::state::{MAX_KEYSPACES, MAX_TOTAL_PARTITIONS};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Weak};

/// The map as it was last complete, and the pieces of the next picture.
pub(super) struct Picture {
    /// Which keyspaces are wanted; empty: all. A stream may carry more.
    wanted: BTreeSet<KeyspaceName>,
    last: Arc<View>,
    draft: Option<View>,
    holders: Holders,
}

impl Picture {
    pub(super) fn new(wanted: BTreeSet<KeyspaceName>) -> Picture {
        Picture { wanted, last: Arc::new(View::empty()), draft: None, holders: Holders::default() }
    }

    /// The keyspaces wanted; empty: all.
    pub(super) fn wanted(&self) -> &BTreeSet<KeyspaceName> {
        &self.wanted
    }

    /// A stream ended: pieces of an unfinished picture are forgotten, for the next stream sends them again.
    pub(super) fn broken_off(&mut self) {
        self.draft = None;
    }

    /// More pieces must follow, or nothing was ever complete.
    pub(super) fn is_unfinished(&self) -> bool {
        self.draft.is_some() || self.last.cluster.is_none()
    }

    /// Where a stream resumes: lineage and revision of the last complete picture.
    pub(super) fn resume_from(&self) -> (String, u64) {
        (self.last.lineage.to_string(), self.last.revision.get())
    }

    /// Takes one message of the stream; the new picture when it is complete.
    ///
    /// # Errors
    /// The message contradicts what was seen, or makes no sense. The stream is of no more use.
    pub(super) fn take(&mut self, message: WatchResponse) -> Result<Option<Arc<View>>, Error> {
        let more = message.more;
        let mut draft = self.begin(&message)?;
        self.add(&mut draft, message)?;
        if more && !mutant!("router-shows-half-a-picture") {
            self.draft = Some(draft);
            return Ok(None);
        }
        self.last = Arc::new(draft);
        Ok(Some(self.last.clone()))
    }

    /// The picture that this message belongs to, so far.
    fn begin(&mut self, message: &WatchResponse) -> Result<View, Error> {
        let cluster = ClusterId::new(&message.cluster).map_err(Error::malformed)?;
        if let Some(before) = self.last.cluster.as_ref().filter(|before| **before != cluster) {
            let message =
                format!("this is cluster {cluster} and it was {before} before; check the endpoints");
            return Err(Error::own(ErrorKind::WrongCluster, message));
        }
        let same_lineage = *message.lineage == *self.last.lineage;
        let older = same_lineage && message.revision < self.last.revision.get();
        if older && !mutant!("router-revision-goes-back") {
            let (now, before) = (message.revision, self.last.revision);
            return Err(Error::malformed(format_args!("revision {now} follows {before}")));
        }
        let mut draft = match self.draft.take() {
            _ if message.reset => View::empty(),
            Some(draft) if *draft.lineage == *message.lineage => draft,
            None if same_lineage && self.last.cluster.is_some() => (*self.last).clone(),
            _ => return Err(Error::malformed("a change to a picture that was never sent")),
        };
        draft.cluster = Some(cluster);
        if *draft.lineage != *message.lineage {
            draft.lineage = Arc::from(&*message.lineage);
        }
        draft.revision = Revision::new(message.revision);
        Ok(draft)
    }

    fn add(&mut self, draft: &mut View, message: WatchResponse) -> Result<(), Error> {
        // A keyspace that was deleted and created again is in both lists.
        for name in &message.deleted_keyspaces {
            draft.keyspaces.remove(name.as_str());
        }
        let count = |view: &KeyspaceView| u64::from(view.count().get());
        let mut total: u64 = draft.keyspaces().map(count).sum();
        for (place, keyspace) in message.keyspaces.into_iter().enumerate() {
            let name = keyspace.name.clone();
            total -= draft.keyspace(&name).map_or(0, count);
            self.add_keyspace(draft, keyspace).map_err(|e| Error::malformed(e.at("keyspaces", place)))?;
            total += draft.keyspace(&name).map_or(0, count);
            // After each: a few bytes name a million partitions, and a message is long.
            if draft.keyspaces.len() > MAX_KEYSPACES || total > MAX_TOTAL_PARTITIONS {
                return Err(Error::malformed("more keyspaces or partitions than a cluster can have"));
            }
        }
        for (place, entry) in message.partitions.into_iter().enumerate() {
            self.add_entry(draft, entry).map_err(|e| Error::malformed(e.at("partitions", place)))?;
        }
        Ok(())
    }

    fn add_keyspace(&self, draft: &mut View, wire: v1::Keyspace) -> Result<(), InvalidField> {
        // Not the policy: how a keyspace is run is nothing to a caller.
        let name = checked::keyspace_name("name", &wire.name)?;
        let partitioner = partitioner(&wire)?;
        if !self.wanted.is_empty() && !self.wanted.contains(&name) {
            return Ok(());
        }
        let same = |view: &&KeyspaceView| view.partitioner() == partitioner;
        let fewer = |view: &&KeyspaceView| view.count() <= partitioner.count();
        if draft.keyspace(name.as_str()).filter(same).is_some() {
            return Ok(());
        }
        // A keyspace created again under the name is in the list of deleted ones before.
        if let Some(before) = draft.keyspace(name.as_str()).filter(fewer) {
            let grown = Arc::new(before.grown(partitioner));
            draft.keyspaces.insert(Arc::from(name.as_str()), grown);
            return Ok(());
        }
        // In a new picture, what was known before lives on as epochs below which no owner is believed.
        let keyspace = match self.last.keyspace(name.as_str()).filter(fewer) {
            Some(before) => before.only_epochs().grown(partitioner),
            None => KeyspaceView::new(name.clone(), partitioner),
        };
        draft.keyspaces.insert(Arc::from(name.as_str()), Arc::new(keyspace));
        Ok(())
    }

    fn add_entry(&mut self, draft: &mut View, wire: v1::MapEntry) -> Result<(), InvalidField> {
        let entry = MapEntry::try_from(wire)?;
        let owned = matches!(entry.phase, Phase::Owned | Phase::Draining);
        if owned != entry.owner.is_some() || owned && entry.epoch.is_none() {
            return Err(InvalidField::new("owner", "phase, epoch and owner contradict each other"));
        }
        let Some(keyspace) = draft.keyspaces.get_mut(entry.keyspace.as_str()) else {
            if self.wanted.is_empty() || self.wanted.contains(&entry.keyspace) {
                return Err(InvalidField::new(
                    "keyspace",
                    format_args!("{} was not announced", entry.keyspace),
                ));
            }
            return Ok(());
        };
        let slot = Arc::make_mut(keyspace).slot_mut(entry.partition);
        let slot =
            slot.ok_or_else(|| InvalidField::new("partition", "the keyspace does not have so many"))?;
        let epoch = entry.epoch.map_or(EpochFloor::NONE, EpochFloor::of);
        if epoch < slot.epoch && !mutant!("router-epoch-goes-back") {
            // Nobody is the owner under an epoch that was overtaken. A restored cluster may speak of one until it has
            // granted the partition again.
            if slot.holder.is_none() {
                slot.phase = if owned { Phase::Vacant } else { entry.phase };
            }
            return Ok(());
        }
        let holder = entry.owner.map(|owner| self.holders.of(owner));
        *slot = Slot { epoch, phase: entry.phase, ready: entry.ready && owned, holder };
        Ok(())
    }
}

/// One holder a session, shared by all of its partitions.
#[derive(Default)]
struct Holders {
    by_session: HashMap<SessionId, Weak<Holder>>,
    /// How many there may be before those that own nothing any more are swept out.
    sweep_at: usize,
}

impl Holders {
    fn of(&mut self, owner: convert::Owner) -> Arc<Holder> {
        if let Some(holder) = self.by_session.get(&owner.session).and_then(Weak::upgrade)
            && (&holder.worker, &*holder.address) == (&owner.worker, &*owner.address)
        {
            return holder;
        }
        if self.by_session.len() >= self.sweep_at {
            self.by_session.retain(|_, holder| holder.strong_count() > 0);
            self.sweep_at = 64.max(2 * self.by_session.len());
        }
        let convert::Owner { worker, session, address } = owner;
        let holder = Arc::new(Holder { worker, session, address: address.into() });
        self.by_session.insert(session, Arc::downgrade(&holder));
        holder
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_core::ids::{Epoch, PartitionId};
    use ringfence_core::placement::{MAX_PARTITIONS, PartitionCount};

    fn entry(partition: u32, epoch: u64, session: u64) -> v1::MapEntry {
        let owner =
            v1::Owner { worker: format!("w{session}"), session, address: format!("10.0.0.{session}:80") };
        v1::MapEntry {
            keyspace: "orders".to_owned(),
            partition,
            epoch,
            phase: v1::Phase::Owned.into(),
            ready: true,
            owner: Some(owner),
        }
    }

    fn vacant(partition: u32, epoch: u64) -> v1::MapEntry {
        v1::MapEntry {
            phase: v1::Phase::Vacant.into(),
            ready: false,
            owner: None,
            ..entry(partition, epoch, 1)
        }
    }

    fn keyspace(name: &str, partitions: u32) -> v1::Keyspace {
        v1::Keyspace { name: name.to_owned(), partitions, ..Default::default() }
    }

    fn change(revision: u64, partitions: Vec<v1::MapEntry>) -> WatchResponse {
        WatchResponse {
            cluster: "prod".to_owned(),
            lineage: "l1".to_owned(),
            revision,
            partitions,
            ..Default::default()
        }
    }

    fn full(revision: u64, partitions: Vec<v1::MapEntry>) -> WatchResponse {
        WatchResponse { reset: true, keyspaces: vec![keyspace("orders", 4)], ..change(revision, partitions) }
    }

    fn picture() -> Picture {
        Picture::new(BTreeSet::new())
    }

    /// Each partition as `EPOCH:WORKER`.
    fn show(view: &View) -> Vec<String> {
        let worker = |p: &super::super::PartitionView| {
            p.owner().map_or("-".to_owned(), |owner| owner.worker().to_string())
        };
        let orders = view.keyspace("orders").expect("orders");
        orders.partitions().map(|p| format!("{}:{}", p.epoch().map_or(0, Epoch::get), worker(&p))).collect()
    }

    #[test]
    fn f088_pieces_count_when_the_last_has_arrived_and_leave_no_trace_when_broken_off() {
        let mut picture = picture();
        assert!(picture.is_unfinished());
        let first = WatchResponse { more: true, ..full(5, vec![entry(0, 1, 1)]) };
        assert!(picture.take(first.clone()).unwrap().is_none());
        picture.broken_off();
        assert!(picture.take(first).unwrap().is_none());
        let view = picture.take(change(5, vec![entry(1, 2, 2)])).unwrap().expect("complete");
        assert_eq!(show(&view), ["1:w1", "2:w2", "0:-", "0:-"]);
        assert!(!picture.is_unfinished());
        assert_eq!(picture.resume_from(), ("l1".to_owned(), 5));

        let half = WatchResponse { more: true, ..change(6, vec![entry(0, 9, 9)]) };
        assert!(picture.take(half).unwrap().is_none());
        assert!(picture.is_unfinished());
        picture.broken_off();
        assert_eq!(picture.resume_from(), ("l1".to_owned(), 5));
        let view = picture.take(change(7, vec![vacant(1, 2)])).unwrap().expect("complete");
        assert_eq!(show(&view), ["1:w1", "2:-", "0:-", "0:-"]);
    }

    #[test]
    fn t45_an_epoch_never_goes_back_within_a_lineage() {
        let mut picture = picture();
        picture.take(full(5, vec![entry(0, 7, 1)])).unwrap();
        let view = picture.take(change(6, vec![entry(0, 6, 2), entry(1, 1, 2)])).unwrap().unwrap();
        assert_eq!(show(&view), ["7:w1", "1:w2", "0:-", "0:-"]);
    }

    #[test]
    fn f018_a_restored_cluster_shows_no_owner_below_an_epoch_that_was_seen() {
        let mut picture = picture();
        picture.take(full(50, vec![entry(0, 7, 1), entry(1, 7, 1)])).unwrap();
        let restored = |message| WatchResponse { lineage: "l2".to_owned(), ..message };
        let view = picture.take(restored(full(3, vec![entry(0, 4, 1), vacant(1, 4)]))).unwrap().unwrap();
        assert_eq!(show(&view), ["7:-", "7:-", "0:-", "0:-"]);
        assert_eq!(picture.resume_from(), ("l2".to_owned(), 3));
        let view = picture.take(restored(change(4, vec![entry(0, 1_000, 2)]))).unwrap().unwrap();
        assert_eq!(show(&view), ["1000:w2", "7:-", "0:-", "0:-"]);
    }

    #[test]
    fn f033_another_lineage_needs_a_full_picture_and_a_revision_never_goes_back() {
        let mut picture = picture();
        assert_eq!(picture.take(change(4, vec![])).unwrap_err().kind(), ErrorKind::Malformed);
        picture.take(full(5, vec![entry(0, 1, 1)])).unwrap();
        let other = WatchResponse { lineage: "l2".to_owned(), ..change(9, vec![]) };
        assert_eq!(picture.take(other).unwrap_err().kind(), ErrorKind::Malformed);
        assert_eq!(picture.take(change(4, vec![])).unwrap_err().kind(), ErrorKind::Malformed);
        assert_eq!(picture.take(full(4, vec![])).unwrap_err().kind(), ErrorKind::Malformed);
    }

    #[test]
    fn f061_a_keyspace_grows_and_what_is_known_of_its_partitions_stays() {
        let mut picture = picture();
        picture.take(full(5, vec![entry(0, 7, 1), entry(3, 2, 2)])).unwrap();
        let midway = v1::Keyspace { split_from: 4, splitting: true, ..keyspace("orders", 5) };
        let grown = WatchResponse { keyspaces: vec![midway.clone()], ..change(6, vec![entry(4, 9, 1)]) };
        let view = picture.take(grown).unwrap().unwrap();
        assert_eq!(show(&view), ["7:w1", "0:-", "0:-", "2:w2", "9:w1"]);
        let keys = || (0_u32..400).map(u32::to_le_bytes);
        let by_hand = |key: &[u8; 4]| {
            let of = |n| ringfence_core::placement::partition_of(key, PartitionCount::new(n).unwrap()).get();
            if of(8) < 5 { of(8) } else { of(4) }
        };
        let orders = view.keyspace("orders").unwrap();
        assert!(keys().all(|key| orders.partition_of(key).get() == by_hand(&key)));
        // A new picture knows the epochs, and a count that cannot be is refused.
        let again =
            WatchResponse { keyspaces: vec![midway], ..full(8, vec![entry(4, 8, 2), entry(0, 8, 2)]) };
        let view = picture.take(again).unwrap().unwrap();
        assert_eq!(show(&view), ["8:w2", "0:-", "0:-", "2:-", "9:-"]);
        let wrong = v1::Keyspace { split_from: 2, ..keyspace("orders", 5) };
        let wrong = WatchResponse { keyspaces: vec![wrong], ..change(9, vec![]) };
        assert_eq!(picture.take(wrong).unwrap_err().kind(), ErrorKind::Malformed);
    }

    #[test]
    fn another_cluster_is_refused() {
        let mut picture = picture();
        picture.take(full(5, vec![])).unwrap();
        let other = WatchResponse { cluster: "staging".to_owned(), ..full(9, vec![]) };
        assert_eq!(picture.take(other).unwrap_err().kind(), ErrorKind::WrongCluster);
    }

    #[test]
    fn a_keyspace_deleted_and_created_again_in_one_message_is_the_new_one() {
        let mut picture = picture();
        picture.take(full(5, vec![entry(0, 1, 1)])).unwrap();
        let again = WatchResponse {
            deleted_keyspaces: vec!["orders".to_owned()],
            keyspaces: vec![keyspace("orders", 2)],
            ..change(6, vec![entry(1, 3, 2)])
        };
        let view = picture.take(again).unwrap().unwrap();
        assert_eq!(show(&view), ["0:-", "3:w2"]);
        let gone = WatchResponse { deleted_keyspaces: vec!["orders".to_owned()], ..change(7, vec![]) };
        assert!(picture.take(gone).unwrap().unwrap().keyspace("orders").is_none());
    }

    /// A keyspace costs the most partitions in a few bytes, and a message has room for very many such keyspaces.
    #[test]
    fn f096_more_partitions_than_a_cluster_can_have_are_refused_before_they_are_made() {
        let bound = u32::try_from(MAX_TOTAL_PARTITIONS).unwrap();
        let each = MAX_PARTITIONS;
        let many = (0..=bound / each).map(|n| keyspace(&format!("k{n}"), each)).collect::<Vec<_>>();
        // The last one makes no sense, and is never looked at.
        let last = keyspace("", 0);
        let message = WatchResponse { keyspaces: [many, vec![last]].concat(), ..full(5, vec![]) };
        let error = picture().take(message).unwrap_err().to_string();
        assert!(error.contains("more keyspaces or partitions"), "{error}");
    }

    #[test]
    fn keyspaces_that_are_not_wanted_are_left_out() {
        let mut picture = Picture::new([KeyspaceName::new("orders").unwrap()].into());
        let mut message = full(5, vec![entry(0, 1, 1)]);
        message.keyspaces.push(keyspace("other", 8));
        message.partitions.push(v1::MapEntry { keyspace: "other".to_owned(), ..entry(7, 1, 1) });
        assert_eq!(picture.take(message).unwrap().unwrap().keyspaces().len(), 1);
    }

    #[test]
    fn f096_a_message_that_makes_no_sense_is_an_error_that_names_the_field() {
        for (message, field) in [
            (full(1, vec![entry(4, 1, 1)]), "partitions[0].partition"),
            (full(1, vec![entry(0, u64::MAX, 1)]), "partitions[0].epoch"),
            (full(1, vec![entry(0, 0, 1)]), "partitions[0].owner"),
            (full(1, vec![entry(0, 1, 0)]), "partitions[0].owner.session"),
            (full(1, vec![v1::MapEntry { phase: 99, ..entry(0, 1, 1) }]), "partitions[0].phase"),
            (
                full(1, vec![v1::MapEntry { keyspace: "\u{1b}".into(), ..entry(0, 1, 1) }]),
                "partitions[0].keyspace",
            ),
            (
                WatchResponse { keyspaces: vec![keyspace("x", 0)], ..full(1, vec![]) },
                "keyspaces[0].partitions",
            ),
            (WatchResponse { cluster: String::new(), ..full(1, vec![]) }, "cluster"),
        ] {
            let error = picture().take(message).unwrap_err().to_string();
            assert!(error.contains(field) && !error.contains('\u{1b}'), "{field}: {error}");
        }
    }

    #[test]
    fn holders_are_shared_and_those_that_own_nothing_are_swept_out() {
        let mut picture = picture();
        picture.take(full(1, vec![entry(0, 1, 1), entry(1, 1, 1)])).unwrap();
        let slot =
            |p: &Picture, n| p.last.keyspace("orders").unwrap().slot(PartitionId::new(n)).unwrap().clone();
        assert!(Arc::ptr_eq(&slot(&picture, 0).holder.unwrap(), &slot(&picture, 1).holder.unwrap()));
        for n in 2..10_000 {
            picture.take(change(n, vec![entry(0, n, n)])).unwrap();
        }
        assert!(picture.holders.by_session.len() < 200, "{}", picture.holders.by_session.len());
    }
}
