//! A worker's weight.

use std::fmt;
use std::num::NonZeroU32;

/// How much a worker should hold compared with the others: 1 to [`Weight::MAX`].
///
/// Only the proportions count: all at 1 is the same as all at 100. There is no weight zero. A worker that is to get
/// nothing is one that does not accept, which is a different wish and reversible without forgetting its weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Weight(NonZeroU32);

impl Weight {
    /// The smallest weight, and the one for everybody where workers are alike.
    pub const ONE: Weight = Weight(NonZeroU32::MIN);

    /// The largest weight there is. With it products of weights and partitions stay far from 64 bits.
    pub const MAX: u32 = 10_000;

    /// The weight of this number.
    ///
    /// # Errors
    /// [`WeightError`] when it is zero or above [`Weight::MAX`].
    pub const fn new(number: u32) -> Result<Weight, WeightError> {
        match NonZeroU32::new(number) {
            Some(n) if number <= Weight::MAX => Ok(Weight(n)),
            _ => Err(WeightError { number }),
        }
    }

    /// The number, for a wire field.
    pub const fn get(self) -> u32 {
        self.0.get()
    }
}

impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A number that cannot be a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{number} is not a weight: a weight is between 1 and {max}; to give a worker nothing, drain it",
    max = Weight::MAX
)]
pub struct WeightError {
    /// The number refused.
    pub number: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f023_a_weight_that_cannot_work_is_refused_where_it_is_made() {
        assert_eq!(Weight::new(0), Err(WeightError { number: 0 }));
        assert_eq!(Weight::new(1), Ok(Weight::ONE));
        assert_eq!(Weight::new(Weight::MAX).map(Weight::get), Ok(10_000));
        assert!(Weight::new(Weight::MAX + 1).unwrap_err().to_string().contains("between 1 and 10000"));
    }
}
