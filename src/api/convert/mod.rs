//! The only conversion between the core's types and the public wire types.
//!
//! Towards the wire a conversion cannot fail (`From`). From the wire it checks every field (`TryFrom`), and the
//! [`InvalidField`] it fails with names the field by its path in the contract. Nothing else in the project takes a
//! generated message apart.

mod address;
pub mod checked;
mod field;
mod keyspace;
mod session_end;

pub use address::{NodeAddress, Owner};
pub use field::InvalidField;
pub use keyspace::{Keyspace, partition_count};
pub use session_end::SessionEnd;
