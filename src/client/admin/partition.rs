//! What is known of one partition.

use ringfence_api::convert::{InvalidField, MapEntry, Partition, Tenure, checked};
use ringfence_api::v1;
use ringfence_core::ids::{Epoch, MoveId, Revision};

/// A partition with its last owners.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartitionDetail {
    /// The partition.
    pub partition: Partition,
    /// Its last grants, newest first, within a bound.
    pub history: Vec<Tenure>,
}

impl TryFrom<v1::GetPartitionResponse> for PartitionDetail {
    type Error = InvalidField;

    fn try_from(wire: v1::GetPartitionResponse) -> Result<PartitionDetail, InvalidField> {
        let partition = wire.partition.ok_or_else(|| InvalidField::missing("partition"))?;
        let tenure = |(place, tenure): (usize, v1::Tenure)| {
            Tenure::try_from(tenure).map_err(|e| e.at("history", place))
        };
        Ok(PartitionDetail {
            partition: Partition::try_from(partition).map_err(|e| e.within("partition"))?,
            history: wire.history.into_iter().enumerate().map(tenure).collect::<Result<_, _>>()?,
        })
    }
}

/// A planned move that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MoveStarted {
    /// The move that is in progress; `None` when there was nothing to drain: the worker owned the partition already, or
    /// nobody did and it was granted at once.
    pub move_id: Option<MoveId>,
    /// The epoch that is drained. The move is over when the partition has a higher one.
    pub from_epoch: Option<Epoch>,
    /// What may take it away from there again: a pin that cannot be met now. Escaped.
    pub note: Option<String>,
}

/// What a planned move would do, if it were asked for now.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WouldMove {
    /// Something would be done. Nothing is when the worker has the partition, or it is on its way there.
    pub changes: bool,
    /// The move that is in progress already.
    pub move_id: Option<MoveId>,
    /// The epoch that would be drained, or is; `None` when the partition would be granted at once.
    pub from_epoch: Option<Epoch>,
    /// What may take it away from there again: a pin that cannot be met now. Escaped.
    pub note: Option<String>,
}

impl TryFrom<v1::MovePartitionResponse> for WouldMove {
    type Error = InvalidField;

    fn try_from(wire: v1::MovePartitionResponse) -> Result<WouldMove, InvalidField> {
        let changes = wire.would_change;
        let MoveStarted { move_id, from_epoch, note } = MoveStarted::try_from(wire)?;
        Ok(WouldMove { changes, move_id, from_epoch, note })
    }
}

impl TryFrom<v1::MovePartitionResponse> for MoveStarted {
    type Error = InvalidField;

    fn try_from(wire: v1::MovePartitionResponse) -> Result<MoveStarted, InvalidField> {
        Ok(MoveStarted {
            move_id: Some(wire.r#move).filter(|id| *id != 0).map(MoveId::new),
            from_epoch: checked::epoch_or_none("from_epoch", wire.from_epoch)?,
            note: Some(checked::text(&wire.note)).filter(|note| !note.is_empty()),
        })
    }
}

/// Where a key or a partition is, read at the leader.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Located {
    /// The partition and its owner.
    pub entry: MapEntry,
    /// The revision of the map at which it was so.
    pub revision: Revision,
}

impl TryFrom<v1::LookupResponse> for Located {
    type Error = InvalidField;

    fn try_from(wire: v1::LookupResponse) -> Result<Located, InvalidField> {
        let entry = wire.entry.ok_or_else(|| InvalidField::missing("entry"))?;
        Ok(Located {
            entry: MapEntry::try_from(entry).map_err(|e| e.within("entry"))?,
            revision: Revision::new(wire.revision),
        })
    }
}
