//! The stream of one reader: when it waits, when it sends, and when it ends.

use super::cursor::{Cursor, lineage};
use super::{Map, no_such_keyspace};
use crate::contact::Contact;
use futures_util::stream;
use ringfence_api::Failure;
use ringfence_api::convert::checked;
use ringfence_api::v1;
use ringfence_core::ids::{LogIndex, Revision};
use ringfence_core::mutant;
use std::collections::BTreeSet;
use std::pin::Pin;
use std::time::Duration;
use tokio::sync::watch;
use tonic::Status;
use tonic::codegen::tokio_stream::Stream;

/// How long a node that is behind what a reader has seen may take to catch up; then the reader is sent elsewhere.
const CATCH_UP: Duration = Duration::from_secs(2);
/// How long a node that does not lead waits for a keyspace that it does not know: a few heartbeats bring what it lacks.
const KNOWN_WITHIN: Duration = Duration::from_millis(300);
/// The most keyspaces in one watch. More than that are watched as all.
const MAX_KEYSPACES: usize = ringfence_core::state::MAX_KEYSPACES;

/// What a watch yields.
pub(super) type Watching = Pin<Box<dyn Stream<Item = Result<v1::WatchResponse, Status>> + Send>>;

struct Reader {
    map: Map,
    cursor: Cursor,
    contact: Contact,
    applied: watch::Receiver<LogIndex>,
    /// It knows how keys are spread while partitions are split.
    splits: bool,
}

/// Opens the stream, when this node knows as much as the reader.
pub(super) async fn watch(map: Map, request: v1::WatchRequest) -> Result<Watching, Failure> {
    if request.keyspaces.len() > MAX_KEYSPACES {
        return Err(Failure::limit(format_args!(
            "a watch names at most {MAX_KEYSPACES} keyspaces; name none to watch all"
        )));
    }
    let names = request.keyspaces.iter().map(|name| checked::keyspace_name("keyspaces", name));
    let names = names.collect::<Result<BTreeSet<_>, _>>()?;
    let filter = (!names.is_empty()).then_some(names);
    let applied = map.context.replica.applied();
    let contact = map.contact.clone();
    let cursor = Cursor::new(filter.clone());
    let mut reader = Reader { map, contact, cursor, applied, splits: request.splits };
    reader.in_touch()?;
    if reader.catch_up(&request).await? {
        reader.cursor = Cursor::resume(filter, Revision::new(request.revision));
    }
    reader.know_keyspaces().await?;
    Ok(Box::pin(stream::unfold(Some(reader), |reader| async {
        let mut reader = reader?;
        match reader.next().await {
            Ok(response) => Some((Ok(response), Some(reader))),
            Err(failure) => Some((Err(failure.into()), None)),
        }
    })))
}

impl Reader {
    /// Waits until this node has applied what the reader has seen. True: the reader may go on from there; false: it
    /// starts over, because it comes from another history.
    async fn catch_up(&mut self, request: &v1::WatchRequest) -> Result<bool, Failure> {
        let formed = |reader: &Reader| {
            let local = reader.map.context.replica.lock();
            local.state.cluster().map(|cluster| lineage(cluster.lineage))
        };
        let this = self
            .wait_for(CATCH_UP, formed)
            .await
            .ok_or_else(|| Failure::unavailable("the cluster is not formed yet"))?;
        if request.revision == 0 || request.lineage != this {
            return Ok(false);
        }
        let asked = LogIndex::new(request.revision);
        let caught_up =
            |reader: &Reader| (reader.map.context.replica.lock().state.applied() >= asked).then_some(());
        if !mutant!("watch-of-a-node-behind") && self.wait_for(CATCH_UP, caught_up).await.is_none() {
            return Err(Failure::unavailable(format_args!(
                "this node has not got revision {} yet; ask another node",
                request.revision
            )));
        }
        // A revision that this history never had: it is not from here, whatever its lineage says.
        Ok(self.map.context.replica.lock().state.revision().get() >= request.revision)
    }

    /// That there is no such keyspace only the leader can say, and says at once. Another node may lag, and not know one
    /// yet that the reader has been told of elsewhere: it waits a little, and sends the reader to the leader.
    async fn know_keyspaces(&mut self) -> Result<(), Failure> {
        let absent = |reader: &Reader| {
            let local = reader.map.context.replica.lock();
            reader.cursor.absent(&local).map(no_such_keyspace)
        };
        if absent(self).is_none() {
            return Ok(());
        }
        match self.map.context.confirm().await {
            Ok(_) => absent(self).map_or(Ok(()), Err),
            Err(elsewhere) => {
                let known = |reader: &Reader| absent(reader).is_none().then_some(());
                self.wait_for(KNOWN_WITHIN, known).await.ok_or(elsewhere)
            }
        }
    }

    /// Waits, for so long, until there is something.
    async fn wait_for<T>(&mut self, long: Duration, look: impl Fn(&Reader) -> Option<T>) -> Option<T> {
        let deadline = tokio::time::Instant::now() + long;
        loop {
            self.applied.mark_unchanged();
            if let Some(found) = look(self) {
                return Some(found);
            }
            match tokio::time::timeout_at(deadline, self.applied.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return None,
            }
        }
    }

    /// The next response. It waits until there is one.
    async fn next(&mut self) -> Result<v1::WatchResponse, Failure> {
        loop {
            self.in_touch()?;
            self.applied.mark_unchanged();
            {
                let local = self.map.context.replica.lock();
                if let Some(keyspace) = self.cursor.midway(&local).filter(|_| !self.splits) {
                    return Err(Failure::split_unknown(keyspace));
                }
                if let Some(response) = self.cursor.next(&local) {
                    return Ok(response);
                }
            }
            tokio::select! {
                () = self.map.stop.cancelled() => {}
                changed = self.applied.changed() => if changed.is_err() { return Err(stopping()) },
                () = self.contact.lost() => {}
            }
        }
    }

    /// Ends the stream of a node that stops, or that may know nothing new because nobody talks to it.
    fn in_touch(&self) -> Result<(), Failure> {
        if self.map.stop.is_cancelled() {
            return Err(stopping());
        }
        if self.contact.is_kept() { Ok(()) } else { Err(Failure::no_leader()) }
    }
}

fn stopping() -> Failure {
    Failure::unavailable("this node stops; go on at another from the revision you have")
}
