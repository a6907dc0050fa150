//! What the fuzzer reads of `formation.proto`.

use super::wire::{Adopt, Hello};
use prost::Message as _;
use ringfence_api::v1;

/// Reads a message of a peer by its name in `formation.proto`; `None` when there is none of that name. What is written
/// again and then reads as something else is a panic.
pub fn formation_message(name: &str, bytes: &[u8]) -> Option<Result<(), String>> {
    match name {
        "FormationSelf" => Some(hello(bytes)),
        "FormationAdoptRequest" => Some(adopt(bytes)),
        _ => None,
    }
}

fn hello(bytes: &[u8]) -> Result<(), String> {
    let wire = v1::FormationSelf::decode(bytes).map_err(|e| e.to_string())?;
    let read = Hello::try_from(wire).map_err(|e| e.to_string())?;
    assert_eq!(Hello::try_from(v1::FormationSelf::from(&read)).as_ref(), Ok(&read));
    Ok(())
}

fn adopt(bytes: &[u8]) -> Result<(), String> {
    let wire = v1::FormationAdoptRequest::decode(bytes).map_err(|e| e.to_string())?;
    let read = Adopt::try_from(wire).map_err(|e| e.to_string())?;
    assert_eq!(Adopt::try_from(read.to_wire()).as_ref(), Ok(&read));
    Ok(())
}
