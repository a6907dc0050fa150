//! The epoch of a grant, and the floor below which none is minted.

use std::fmt;
use std::num::NonZeroU64;

/// The number of one grant of a partition, or of a lock.
///
/// It grows by at least one at every grant and is compared by order, never by equality alone. It is at least 1 and at
/// most [`Epoch::MAX`], 2^53 - 1, so that it survives a signed 64-bit column in SQL and a double in JSON or Lua.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(NonZeroU64);

impl Epoch {
    /// The largest epoch there is: 2^53 - 1.
    pub const MAX: Epoch = match Epoch::from_u64((1 << 53) - 1) {
        Some(epoch) => epoch,
        None => panic!("2^53 - 1 is within the bounds of an epoch"),
    };

    /// The epoch with this number.
    ///
    /// # Errors
    /// [`EpochError`] when it is zero or above [`Epoch::MAX`].
    pub const fn new(number: u64) -> Result<Epoch, EpochError> {
        match Epoch::from_u64(number) {
            Some(epoch) => Ok(epoch),
            None => Err(EpochError { number }),
        }
    }

    const fn from_u64(number: u64) -> Option<Epoch> {
        if number > (1 << 53) - 1 {
            return None;
        }
        match NonZeroU64::new(number) {
            Some(n) => Some(Epoch(n)),
            None => None,
        }
    }

    /// The number, for a column or a wire field.
    pub const fn get(self) -> u64 {
        self.0.get()
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "e{}", self.0)
    }
}

/// A number that cannot be an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{number} is not an epoch: an epoch is between 1 and 9007199254740991 (2^53 - 1)")]
pub struct EpochError {
    /// The number refused.
    pub number: u64,
}

/// The number below which, and at which, no epoch is minted any more.
///
/// Zero means that nothing was granted yet. A floor only rises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EpochFloor(u64);

impl EpochFloor {
    /// Nothing was granted yet.
    pub const NONE: EpochFloor = EpochFloor(0);

    /// The floor at this number.
    ///
    /// # Errors
    /// [`EpochError`] when it is above [`Epoch::MAX`].
    pub const fn new(number: u64) -> Result<EpochFloor, EpochError> {
        if number > Epoch::MAX.get() { Err(EpochError { number }) } else { Ok(EpochFloor(number)) }
    }

    /// The floor that an epoch leaves behind it.
    pub const fn of(epoch: Epoch) -> EpochFloor {
        EpochFloor(epoch.get())
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The epoch at this floor, if anything was granted.
    pub const fn epoch(self) -> Option<Epoch> {
        Epoch::from_u64(self.0)
    }

    /// The first epoch above the floor; `None` when epochs are used up.
    pub const fn next(self) -> Option<Epoch> {
        Epoch::from_u64(self.0 + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t17_width_an_epoch_is_between_1_and_2_to_the_53_minus_1() {
        assert_eq!(Epoch::new(0), Err(EpochError { number: 0 }));
        assert_eq!(Epoch::new(1).map(Epoch::get), Ok(1));
        assert_eq!(Epoch::new((1 << 53) - 1), Ok(Epoch::MAX));
        assert_eq!(Epoch::new(1 << 53), Err(EpochError { number: 1 << 53 }));
        assert_eq!(Epoch::new(u64::MAX), Err(EpochError { number: u64::MAX }));
        assert!(EpochFloor::new(1 << 53).is_err());
    }

    #[test]
    fn t18_the_floor_at_the_cap_mints_nothing() {
        assert_eq!(EpochFloor::of(Epoch::MAX).next(), None);
        assert_eq!(EpochFloor::NONE.next().map(Epoch::get), Some(1));
    }
}
