//! Why a partition is where it is.

use super::directives::Directive;
use super::plan::PlannedMove;
use ringfence_api::convert::{InvalidField, Partition, checked};
use ringfence_api::v1;
use ringfence_core::ids::WorkerId;

/// Why a partition is where it is, why no other worker has it, and what it would take. The texts are escaped.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Explanation {
    /// The partition.
    pub partition: Partition,
    /// The worker that the ring prefers for it; `None` when there is none.
    pub home: Option<WorkerId>,
    /// Why it is where it is, a sentence.
    pub because: String,
    /// What keeps it there and what it would take, a sentence each; empty when it is about to move. With a planned move: the
    /// keyspace does not balance by itself, and the move takes an approved plan.
    pub holds: Vec<String>,
    /// The move that is planned for it.
    pub planned: Option<PlannedMove>,
    /// Why others do not have it, in the order in which it prefers them.
    pub others: Vec<WhyNot>,
    /// The directives that bear on it.
    pub directives: Vec<Directive>,
    /// The worker that it is pinned to.
    pub pin: Option<WorkerId>,
    /// How much it counts, and who says so, in a few words; `None` when all count alike.
    pub load: Option<(u32, String)>,
}

/// Why a worker does not have a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WhyNot {
    /// The worker.
    pub worker: WorkerId,
    /// Why not, in words.
    pub why: String,
}

impl TryFrom<v1::ExplainResponse> for Explanation {
    type Error = InvalidField;

    fn try_from(wire: v1::ExplainResponse) -> Result<Explanation, InvalidField> {
        let partition = wire.partition.ok_or_else(|| InvalidField::missing("partition"))?;
        let why_not = |(place, other): (usize, v1::explain_response::WhyNot)| {
            let worker = checked::worker_id("worker", &other.worker).map_err(|e| e.at("others", place))?;
            Ok(WhyNot { worker, why: checked::text(&other.why) })
        };
        let planned = |planned| PlannedMove::try_from(planned).map_err(|e: InvalidField| e.within("planned"));
        Ok(Explanation {
            partition: Partition::try_from(partition).map_err(|e| e.within("partition"))?,
            home: worker_or_none("home", &wire.home)?,
            because: checked::text(&wire.because),
            holds: wire.holds.iter().map(|hold| checked::text(hold)).collect(),
            planned: wire.planned.map(planned).transpose()?,
            others: wire.others.into_iter().enumerate().map(why_not).collect::<Result<_, _>>()?,
            directives: wire.directives.into_iter().map(Into::into).collect(),
            pin: worker_or_none("pin", &wire.pin)?,
            load: (wire.load > 0).then(|| (wire.load, checked::text(&wire.load_source))),
        })
    }
}

pub(super) fn worker_or_none(field: &str, name: &str) -> Result<Option<WorkerId>, InvalidField> {
    if name.is_empty() { Ok(None) } else { checked::worker_id(field, name).map(Some) }
}
