//! Single fields, checked: what a name, an epoch or an id on the wire is in the core.
//!
//! Each function takes the field's path for the error. On the wire zero means "none" for an epoch and a session; a
//! function says by its name whether that is allowed.

use super::field::InvalidField;
use crate::text::shown;
use ringfence_core::ids::{
    Epoch, EpochFloor, KeyspaceName, LockName, NodeId, Scope, SessionId, StoreName, WorkerId,
};
use ringfence_core::state::MAX_ADDRESS_BYTES;
use std::time::Duration;

/// A keyspace's name.
pub fn keyspace_name(field: &str, text: &str) -> Result<KeyspaceName, InvalidField> {
    KeyspaceName::new(text).map_err(|why| InvalidField::new(field, why))
}

/// A lock's name.
pub fn lock_name(field: &str, text: &str) -> Result<LockName, InvalidField> {
    LockName::new(text).map_err(|why| InvalidField::new(field, why))
}

/// A worker's name.
pub fn worker_id(field: &str, text: &str) -> Result<WorkerId, InvalidField> {
    WorkerId::new(text).map_err(|why| InvalidField::new(field, why))
}

/// What a fencing token speaks for.
pub fn scope(field: &str, text: &str) -> Result<Scope, InvalidField> {
    text.parse().map_err(|why: ringfence_core::ids::ScopeError| InvalidField::new(field, why))
}

/// What programs call a storage.
pub fn store_name(field: &str, text: &str) -> Result<StoreName, InvalidField> {
    StoreName::new(text).map_err(|why| InvalidField::new(field, why))
}

/// A node's id.
pub fn node_id(field: &str, number: u64) -> Result<NodeId, InvalidField> {
    NodeId::new(number).map_err(|why| InvalidField::new(field, why))
}

/// An epoch that has to be there.
pub fn epoch(field: &str, number: u64) -> Result<Epoch, InvalidField> {
    Epoch::new(number).map_err(|why| InvalidField::new(field, why))
}

/// An epoch, or none for zero.
pub fn epoch_or_none(field: &str, number: u64) -> Result<Option<Epoch>, InvalidField> {
    floor(field, number).map(EpochFloor::epoch)
}

/// The floor of epochs, which may be zero.
pub fn floor(field: &str, number: u64) -> Result<EpochFloor, InvalidField> {
    EpochFloor::new(number).map_err(|why| InvalidField::new(field, why))
}

/// A session that has to be there.
pub fn session(field: &str, number: u64) -> Result<SessionId, InvalidField> {
    SessionId::new(number).ok_or_else(|| InvalidField::missing(field))
}

/// An address: at most 255 bytes, and nothing in it that could write to a terminal.
pub fn address(field: &str, text: &str) -> Result<String, InvalidField> {
    if text.len() > MAX_ADDRESS_BYTES {
        let why = format_args!("it has {} bytes, and {MAX_ADDRESS_BYTES} are allowed", text.len());
        return Err(InvalidField::new(field, why));
    }
    if shown(text) != text {
        return Err(InvalidField::new(field, format_args!("{text} has a character that is not allowed")));
    }
    Ok(text.to_owned())
}

/// A sentence from the other side, for people: escaped, and cut to what is shown at the most.
pub fn text(text: &str) -> String {
    shown(text)
}

/// Exactly so many bytes: a nonce, a request id, a hash.
pub fn bytes<const N: usize>(field: &str, bytes: &[u8]) -> Result<[u8; N], InvalidField> {
    <[u8; N]>::try_from(bytes)
        .map_err(|_| InvalidField::new(field, format_args!("it has {} bytes and needs {N}", bytes.len())))
}

/// The milliseconds that a duration is on the wire. What is finer is cut off, and a duration that does not fit is the
/// longest that does.
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// An enum's value that is 0, or that a newer node wrote.
pub(crate) fn unknown_value(field: &str, number: i32) -> InvalidField {
    match number {
        0 => InvalidField::missing(field),
        _ => InvalidField::new(field, format_args!("this version does not know the value {number}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f021_an_address_of_10_kb_or_with_control_characters_is_refused() {
        assert_eq!(address("address", "10.0.0.1:7400"), Ok("10.0.0.1:7400".to_owned()));
        assert_eq!(address("address", ""), Ok(String::new()));
        let long = address("address", &"x".repeat(10_000)).unwrap_err();
        assert!(long.to_string().contains("255"), "{long}");
        let hostile = address("holder.address", "a\u{1b}[2J").unwrap_err();
        assert_eq!(hostile.field(), "holder.address");
        assert!(!hostile.to_string().contains('\u{1b}'));
    }
}
