//! The name of a request that an operator may repeat.

use super::checked;
use super::field::InvalidField;
use crate::v1;
use prost::bytes::Bytes;
use ringfence_core::ids::LogIndex;
use ringfence_core::state::Request;

/// Names one request, so that a retry takes effect once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId {
    /// Random, the same for each retry of one request.
    pub id: u128,
    /// The log index its sender had seen before it sent the request the first time.
    pub seen: LogIndex,
}

impl From<RequestId> for Request {
    fn from(from: RequestId) -> Request {
        Request::Operator { id: from.id, seen: from.seen }
    }
}

impl From<RequestId> for v1::RequestId {
    fn from(from: RequestId) -> v1::RequestId {
        v1::RequestId { id: Bytes::copy_from_slice(&from.id.to_be_bytes()), seen_index: from.seen.get() }
    }
}

impl TryFrom<v1::RequestId> for RequestId {
    type Error = InvalidField;

    fn try_from(wire: v1::RequestId) -> Result<RequestId, InvalidField> {
        let id = u128::from_be_bytes(checked::bytes("id", &wire.id)?);
        // An id that nobody drew is the same for everybody, and the second one's request would get the first one's answer.
        if id == 0 {
            return Err(InvalidField::new("id", "it is all zeros; draw 16 random bytes"));
        }
        Ok(RequestId { id, seen: LogIndex::new(wire.seen_index) })
    }
}

/// The request id of a call that has to have one.
impl TryFrom<Option<v1::RequestId>> for RequestId {
    type Error = InvalidField;

    fn try_from(wire: Option<v1::RequestId>) -> Result<RequestId, InvalidField> {
        let wire = wire.ok_or_else(|| InvalidField::missing("request"))?;
        RequestId::try_from(wire).map_err(|e| e.within("request"))
    }
}
