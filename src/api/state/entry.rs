//! Log entries as bytes.

use super::command;
use super::error::DecodeError;
use super::fields::{id_from_wire, id_to_wire};
use super::format::{format_of_entry, read};
use crate::convert::{InvalidField, checked};
use crate::v1;
use prost::Message as _;
use prost::bytes::Bytes;
use ringfence_core::ids::LogIndex;
use ringfence_core::state::{Entry, Request};

const WHAT: &str = "log entry";

/// The entry as the bytes that go into the log.
///
/// Durations are written in milliseconds; what is finer is cut off here, before any node applies the entry.
pub fn encode_entry(entry: &Entry) -> Bytes {
    let wire = v1::LogEntry {
        format: format_of_entry(&entry.commands),
        request: entry.request.map(request_to_wire),
        proposed_unix_ms: entry.proposed_unix_ms,
        commands: entry.commands.iter().map(command::to_wire).collect(),
    };
    wire.encode_to_vec().into()
}

/// The entry in these bytes.
///
/// # Errors
/// [`DecodeError`] when they are damaged, or of a format that this version does not read. Never a panic.
pub fn decode_entry(bytes: &[u8]) -> Result<Entry, DecodeError> {
    let wire: v1::LogEntry = read(WHAT, bytes)?;
    entry_from_wire(wire).map_err(|why| DecodeError::Field { what: WHAT, why })
}

fn entry_from_wire(wire: v1::LogEntry) -> Result<Entry, InvalidField> {
    let request = wire.request.map(|request| request_from_wire(request).map_err(|e| e.within("request")));
    let commands = wire.commands.into_iter().enumerate();
    Ok(Entry {
        request: request.transpose()?,
        proposed_unix_ms: wire.proposed_unix_ms,
        commands: commands
            .map(|(place, command)| command::from_wire(command).map_err(|e| e.at("commands", place)))
            .collect::<Result<_, _>>()?,
    })
}

fn request_to_wire(request: Request) -> v1::LogRequest {
    use v1::log_request::{From, Operator, Session};
    let from = match request {
        Request::Session { session, number, settled_below } => {
            From::Session(Session { session: session.get(), number, settled_below })
        }
        Request::Operator { id, seen } => {
            From::Operator(Operator { id: id_to_wire(id), seen_index: seen.get() })
        }
    };
    v1::LogRequest { from: Some(from) }
}

fn request_from_wire(wire: v1::LogRequest) -> Result<Request, InvalidField> {
    use v1::log_request::From;
    match wire.from.ok_or_else(|| InvalidField::missing("from"))? {
        From::Session(from) => Ok(Request::Session {
            session: checked::session("session.session", from.session)?,
            number: from.number,
            settled_below: from.settled_below,
        }),
        From::Operator(from) => Ok(Request::Operator {
            id: id_from_wire("operator.id", &from.id)?,
            seen: LogIndex::new(from.seen_index),
        }),
    }
}
