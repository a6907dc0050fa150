//! What this process has seen of the store, so that an owner that goes on needs one round trip, and so that a store which
//! has gone back in time is noticed.

use super::row::{Binding, Row};
use super::txn::{Header, TxnReply};
use ringfence_core::ids::Scope;
use std::collections::{BTreeMap, BTreeSet};

/// Of how many scopes the last row is kept. Beyond that all are forgotten, which costs a round trip for each.
const MAX_ROWS: usize = 65_536;

/// How many connections are known at once.
const MAX_CONNECTIONS: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Memory {
    /// The connections that were looked at, each of which stands for one life of one server.
    looked_at: BTreeSet<u64>,
    seen: Header,
    /// The store went back, and nobody has written that down yet.
    went_back: bool,
    binding: Option<Binding>,
    rows: BTreeMap<Scope, Row>,
}

impl Memory {
    /// The store's revision that every later answer has reached.
    pub(super) fn revision(&self) -> i64 {
        self.seen.revision
    }

    pub(super) fn has_looked_at(&self, connection: u64) -> bool {
        self.looked_at.contains(&connection)
    }

    pub(super) fn look_at(&mut self, connection: u64) {
        if self.looked_at.len() >= MAX_CONNECTIONS {
            // They are counted upwards, so the first is the oldest.
            self.looked_at.pop_first();
        }
        self.looked_at.insert(connection);
    }

    /// Takes note of an answer to what was asked when revision `before` had been seen. False when the store it comes from
    /// is not the one it was: another, or the same from an older copy.
    pub(super) fn note(&mut self, before: i64, reply: &TxnReply) -> bool {
        let header = reply.header;
        let known = self.seen != Header::default();
        // What has written has a revision of its own.
        let least = before + i64::from(reply.wrote());
        if known && (header.cluster_id != self.seen.cluster_id || header.revision < least) {
            self.seen = header;
            self.went_back = true;
            self.rows.clear();
            self.looked_at.clear();
            return false;
        }
        let revision = self.seen.revision.max(header.revision);
        self.seen = Header { cluster_id: header.cluster_id, revision };
        true
    }

    /// Whether a store that is bound so has to be given a new incarnation first.
    pub(super) fn must_be_reborn(&self, header: Header, binding: &Binding) -> bool {
        // Who was bound to nothing yet has nothing to forget. Only one that is higher than any known was counted up by somebody
        // else since: the same copy, restored once more, has a lower one.
        let known = self.binding.as_ref();
        let not_counted_up = known.is_some_and(|known| known.incarnation >= binding.incarnation);
        header.cluster_id != binding.etcd || (self.went_back && not_counted_up)
    }

    /// Remembers how the store is bound; the rows belong to one incarnation.
    pub(super) fn bound(&mut self, binding: Binding) {
        self.went_back = false;
        if self.binding.as_ref() != Some(&binding) {
            self.rows.clear();
            self.binding = Some(binding);
        }
    }

    pub(super) fn binding(&self) -> Option<&Binding> {
        self.binding.as_ref()
    }

    pub(super) fn row(&self, scope: &Scope) -> Option<Row> {
        self.rows.get(scope).copied()
    }

    pub(super) fn keep(&mut self, scope: Scope, row: Option<Row>) {
        let Some(row) = row else {
            self.rows.remove(&scope);
            return;
        };
        if self.rows.len() >= MAX_ROWS && !self.rows.contains_key(&scope) {
            self.rows.clear();
        }
        self.rows.insert(scope, row);
    }
}

#[cfg(test)]
mod tests {
    use super::super::txn::OpReply;
    use super::*;
    use ringfence_core::ids::ClusterId;

    fn header(cluster_id: u64, revision: i64) -> Header {
        Header { cluster_id, revision }
    }

    fn reply(cluster_id: u64, revision: i64) -> TxnReply {
        TxnReply { header: header(cluster_id, revision), ..TxnReply::default() }
    }

    #[test]
    fn t15_a_lower_revision_than_was_seen_before_the_question_is_another_store_and_a_late_answer_is_not() {
        let mut memory = Memory::default();
        assert!(memory.note(0, &reply(1, 10)));
        // Asked before that answer came, answered after it.
        assert!(memory.note(0, &reply(1, 9)));
        assert_eq!(memory.revision(), 10);
        assert!(memory.note(10, &reply(1, 10)));
        let mut wrote = reply(1, 10);
        wrote.replies.push(OpReply::Put(None));
        assert!(memory.note(9, &wrote));
        assert!(!memory.note(10, &wrote));
        assert!(!memory.note(11, &reply(1, 9)));
        assert!(!memory.note(0, &reply(2, 99)));
    }

    #[test]
    fn t15_a_store_that_went_back_is_reborn_once_and_not_by_everybody_who_notices() {
        let cluster = ClusterId::new("prod").unwrap();
        let bound = |etcd, incarnation| Binding { cluster: cluster.clone(), etcd, incarnation };
        let mut memory = Memory::default();
        memory.note(0, &reply(1, 10));
        memory.bound(bound(1, 1));
        assert!(!memory.must_be_reborn(header(1, 10), &bound(1, 1)));
        assert!(memory.must_be_reborn(header(2, 10), &bound(1, 1)));
        memory.note(10, &reply(1, 9));
        assert!(memory.must_be_reborn(header(1, 9), &bound(1, 1)));
        assert!(!memory.must_be_reborn(header(1, 9), &bound(1, 2)));
        memory.bound(bound(1, 2));
        assert!(!memory.must_be_reborn(header(1, 9), &bound(1, 2)));
        // The same copy once more: it is of before it was reborn.
        memory.note(9, &reply(1, 8));
        assert!(memory.must_be_reborn(header(1, 8), &bound(1, 1)));
        assert!(!memory.must_be_reborn(header(1, 8), &bound(1, 3)));
    }
}
