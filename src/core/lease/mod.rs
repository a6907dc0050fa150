//! Time-bounded ownership: the lessor is the leader's side of its clock, the lessee the holder's.

pub mod lessee;
mod lessor;

pub use lessor::{LeasesDue, Lessor, Verdict};
