//! The only conversion between the core's types and the public wire types.
//!
//! Towards the wire a conversion cannot fail (`From`). From the wire it checks every field (`TryFrom`), and the
//! [`InvalidField`] it fails with names the field by its path in the contract. What a message shows of the state is
//! read here too (`read`), so that a node and its neighbours tell one story.

mod address;
pub mod checked;
mod directive;
mod field;
mod held;
mod keyspace;
mod lock;
mod map;
mod partition;
mod phase;
mod request;
mod session_end;

#[cfg(test)]
mod tests;

pub use address::{NodeAddress, Owner};
pub use directive::Directive;
pub use field::InvalidField;
pub use held::{DrainLeft, Gone, Held, lineage};
pub use keyspace::{Keyspace, balance_by_from_wire, balance_by_to_wire, partition_count, partitioner};
pub use lock::{HeldLock, Lock, LockHolder, LockWaiter, MAX_LOCK_TOLD, wish_from_wire, wish_to_wire};
pub use map::MapEntry;
pub use partition::{Partition, Tenure};
pub use phase::Phase;
pub use request::RequestId;
pub use session_end::SessionEnd;
