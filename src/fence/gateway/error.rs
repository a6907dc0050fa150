//! Why a gateway did not do it.

use super::PathError;
use crate::FenceError;
use std::io;
use std::sync::Arc;

/// Why a file was not written, or not read.
///
/// Everything but [`GatewayError::Unknown`], and a [`FenceError::Store`], is certain: the file is as it was.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GatewayError {
    /// The fence refused, or could not answer.
    #[error(transparent)]
    Fence(#[from] FenceError),
    /// The path is none.
    #[error(transparent)]
    Path(#[from] PathError),
    /// There is no such file.
    #[error("there is no such file")]
    NotFound,
    /// Something else than a file stands there, or on the way there: a folder, a link, a device. It is not touched.
    #[error(
        "what stands there is no plain file, or a folder on the way is a link or a file; nothing was changed"
    )]
    NotAFile,
    /// The file would be, or is, larger than the gateway takes.
    #[error("more than {limit} bytes: the gateway takes no larger file; nothing was changed")]
    TooLarge {
        /// The bound, in bytes.
        limit: u64,
    },
    /// An append that named the length it expected, and the file has another: somebody appended, or this append was made already.
    #[error(
        "the file has {length} bytes and not the number that was named: read before appending again; nothing was changed"
    )]
    OtherLength {
        /// The length of the file.
        length: u64,
    },
    /// The disk, or a quota, is full.
    #[error("no space is left for it; nothing was changed")]
    Full,
    /// The folder is served by another gateway.
    #[error("another gateway serves this folder; one folder has one")]
    InUse,
    /// It failed before anything was changed.
    #[error("it failed while {doing}; nothing was changed")]
    Failed {
        /// What was being done.
        doing: &'static str,
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// It failed after the change, before the change was certain to last: whether it is there after a crash is *unknown*.
    #[error("it failed while {doing}, and whether the change lasts is unknown: read before writing again")]
    Unknown {
        /// What was being done.
        doing: &'static str,
        /// What the system said.
        source: Arc<io::Error>,
    },
}

impl GatewayError {
    /// What an error of the system means, where nothing was changed yet.
    pub(super) fn before(doing: &'static str) -> impl Fn(io::Error) -> GatewayError {
        move |error| match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => GatewayError::Full,
            io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory => GatewayError::NotAFile,
            _ => GatewayError::Failed { doing, source: Arc::new(error) },
        }
    }

    /// The same after the change.
    pub(super) fn after(doing: &'static str) -> impl Fn(io::Error) -> GatewayError {
        move |error| GatewayError::Unknown { doing, source: Arc::new(error) }
    }
}
