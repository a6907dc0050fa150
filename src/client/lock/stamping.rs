//! What stamps for a guard from other tasks and threads, and the requests of a client.

use super::NotHeld;
use super::hold::Locked;
use crate::fence::FencingToken;
use crate::ownership::Tenure;
use std::fmt;
use std::sync::Arc;

/// Stamps under one guard's epoch for as long as the lock is held: to hand to other tasks and threads, which do not keep the lock by
/// it. Cheap to clone. With the feature `tower` it stamps the requests of a client, and when the lock is lost, nothing is sent.
///
/// Of a shared lock it stamps until the last in this process has given it back.
#[derive(Clone)]
pub struct LockStamps {
    tenure: Arc<Tenure<Locked>>,
}

impl LockStamps {
    pub(super) fn new(tenure: Arc<Tenure<Locked>>) -> LockStamps {
        LockStamps { tenure }
    }

    /// As [`LockGuard::stamp`](super::LockGuard::stamp).
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn stamp(&self) -> Result<FencingToken, NotHeld> {
        self.tenure.check().map_err(NotHeld::from)?;
        Ok(self.tenure.token().clone())
    }
}

impl fmt::Debug for LockStamps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.tenure.token().short())
    }
}

#[cfg(feature = "tower")]
impl crate::fence::service::StampSource for LockStamps {
    fn stamp(&self) -> Result<FencingToken, crate::fence::service::NoStamp> {
        LockStamps::stamp(self).map_err(|over| crate::fence::service::NoStamp::new(over.to_string()))
    }
}
