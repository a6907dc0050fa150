//! What operators decided, and what became of a worker.

use super::settings::WorkerSettings;
use ringfence_api::convert::{InvalidField, checked};
use ringfence_api::v1;
use ringfence_core::ids::{LogIndex, SessionId};

pub use ringfence_api::convert::Directive;

/// One worker: what is set about it, whether it has a session or not, and what is known of its past.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerDetail {
    /// What is set.
    pub settings: WorkerSettings,
    /// Its session, when it has one.
    pub session: Option<SessionId>,
    /// How many partitions it owns.
    pub partitions: u32,
    /// Of how many moves it is the target.
    pub arriving: u32,
    /// What became of it, newest first, within a bound.
    pub events: Vec<WorkerEvent>,
}

/// Something that became of a worker. The texts are escaped.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerEvent {
    /// The entry that says so.
    pub at: LogIndex,
    /// The leader's wall clock then, for display; `None` when it is not known.
    pub unix_ms: Option<u64>,
    /// In words.
    pub what: String,
    /// Who decided it; empty when nobody did.
    pub by: String,
    /// Why, in the operator's words; may be empty.
    pub reason: String,
}

impl WorkerDetail {
    /// Its process may be stopped and nobody notices: it owns nothing, no move goes to it, and it is given nothing,
    /// because it is drained or has no session.
    pub fn may_stop(&self) -> bool {
        let given_nothing = self.settings.drain().is_some() || self.session.is_none();
        self.partitions == 0 && self.arriving == 0 && given_nothing
    }
}

impl From<v1::WorkerEvent> for WorkerEvent {
    fn from(wire: v1::WorkerEvent) -> WorkerEvent {
        WorkerEvent {
            at: LogIndex::new(wire.index),
            unix_ms: Some(wire.unix_ms).filter(|ms| *ms > 0),
            what: checked::text(&wire.what),
            by: checked::text(&wire.by),
            reason: checked::text(&wire.reason),
        }
    }
}

impl TryFrom<v1::GetWorkerResponse> for WorkerDetail {
    type Error = InvalidField;

    fn try_from(wire: v1::GetWorkerResponse) -> Result<WorkerDetail, InvalidField> {
        let settings = wire.settings.ok_or_else(|| InvalidField::missing("settings"))?;
        Ok(WorkerDetail {
            settings: WorkerSettings::try_from(settings).map_err(|e| e.within("settings"))?,
            session: SessionId::new(wire.session),
            partitions: wire.partitions,
            arriving: wire.arriving,
            events: wire.events.into_iter().map(Into::into).collect(),
        })
    }
}
