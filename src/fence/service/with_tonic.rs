//! A refusal as tonic's status, and back.

use super::Refusal;
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};

/// For a handler: `presented.guarded(..).map_err(|error| Refusal::from(error))?`.
impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Status {
        Status::with_details_and_metadata(
            Code::from_i32(refusal.reason().grpc_code()),
            refusal.detail(),
            refusal.grpc_details().into(),
            MetadataMap::from_headers(refusal.headers()),
        )
    }
}

impl Refusal {
    /// Reads a refusal out of a status that a call ended with; `None` when it is none. The headers are asked first, then the
    /// details.
    pub fn from_status(status: &Status) -> Option<Refusal> {
        Refusal::from_headers(status.metadata().as_ref()).or_else(|| Refusal::from_details(status.details()))
    }
}
