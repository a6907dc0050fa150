//! Messages between clients and coordinators.

use crate::fuzz::mutate::split_name;
use prost::Message;
use ringfence::admin::{ClusterStatus, Health, Located, MoveStarted, Node, PartitionDetail, Worker};
use ringfence_api::Failure;
use ringfence_api::convert::{self, InvalidField};
use ringfence_api::v1;
use ringfence_core::state::{Policy, PolicyChange};
use std::fmt::Debug;
use tonic::{Code, Status};

/// A message under its name in the contract.
pub(super) fn message(input: &[u8]) -> Result<(), String> {
    let (name, bytes) = split_name(input);
    match name {
        b"NodeAddress" => both_ways::<v1::NodeAddress, convert::NodeAddress>(bytes),
        b"Owner" => both_ways::<v1::Owner, convert::Owner>(bytes),
        b"Keyspace" => by_reference::<v1::Keyspace, convert::Keyspace>(bytes),
        b"KeyspacePolicy" => by_reference::<v1::KeyspacePolicy, Policy>(bytes),
        b"KeyspaceChange" => by_reference::<v1::KeyspaceChange, PolicyChange>(bytes),
        b"MapEntry" => both_ways::<v1::MapEntry, convert::MapEntry>(bytes),
        b"Partition" => both_ways::<v1::Partition, convert::Partition>(bytes),
        b"Tenure" => both_ways::<v1::Tenure, convert::Tenure>(bytes),
        b"Held" => both_ways::<v1::Held, convert::Held>(bytes),
        b"Gone" => both_ways::<v1::Gone, convert::Gone>(bytes),
        b"DrainLeft" => both_ways::<v1::DrainLeft, convert::DrainLeft>(bytes),
        b"RequestId" => both_ways::<v1::RequestId, convert::RequestId>(bytes),
        b"HealthResponse" => one_way::<v1::HealthResponse, Health>(bytes),
        b"ClusterStatusResponse" => one_way::<v1::ClusterStatusResponse, ClusterStatus>(bytes),
        b"Node" => one_way::<v1::Node, Node>(bytes),
        b"Worker" => one_way::<v1::Worker, Worker>(bytes),
        b"GetPartitionResponse" => one_way::<v1::GetPartitionResponse, PartitionDetail>(bytes),
        b"MovePartitionResponse" => one_way::<v1::MovePartitionResponse, MoveStarted>(bytes),
        b"LookupResponse" => one_way::<v1::LookupResponse, Located>(bytes),
        _ => Err("no message of that name".to_owned()),
    }
}

/// A failed call: the code and the message in the first line, `CODE MESSAGE`, and the detail.
pub(super) fn failure(input: &[u8]) -> Result<(), String> {
    let (line, detail) = split_name(input);
    let line = String::from_utf8_lossy(line);
    let (code, message) = line.split_once(' ').unwrap_or(("", &line));
    let code = Code::from_i32(code.parse().unwrap_or(2));
    let status = Status::with_details(code, message, detail.to_vec().into());
    let read = Failure::decode(&status);
    fit_to_show(read.message());
    if let Some((holder, claimant)) = read.identities() {
        fit_to_show(holder);
        fit_to_show(claimant);
    }
    if Failure::from_status(&status).is_none() {
        return Err(read.to_string());
    }
    let kind = read.kind();
    let again = Failure::decode(&Status::from(read.clone()));
    assert_eq!((again.kind(), again.message()), (kind, read.message()));
    assert_eq!(format!("{again:?}"), format!("{read:?}"), "what is written is not what was read");
    Ok(())
}

/// A stream of the map.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Watched {
    #[prost(message, repeated, tag = "1")]
    pub(crate) stream: Vec<v1::WatchResponse>,
}

pub(super) fn watch(input: &[u8]) -> Result<(), String> {
    let wire = Watched::decode(input).map_err(text)?;
    ringfence::fuzzing::watch(wire.stream).map(drop)
}

/// A worker's session.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Attached {
    #[prost(message, optional, tag = "1")]
    pub(crate) joined: Option<v1::JoinResponse>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) stream: Vec<v1::AttachResponse>,
}

pub(super) fn attach(input: &[u8]) -> Result<(), String> {
    let wire = Attached::decode(input).map_err(text)?;
    ringfence::fuzzing::attach(wire.joined.unwrap_or_default(), wire.stream).map(drop)
}

fn both_ways<W, T>(bytes: &[u8]) -> Result<(), String>
where
    W: Message + Default + From<T>,
    T: TryFrom<W, Error = InvalidField> + Clone + Debug + PartialEq,
{
    let read = T::try_from(W::decode(bytes).map_err(text)?).map_err(text)?;
    let written = W::from(read.clone()).encode_to_vec();
    let again = T::try_from(W::decode(&*written).expect("what is written is a message"));
    assert_eq!(again, Ok(read), "what is written is not what was read");
    Ok(())
}

fn by_reference<W, T>(bytes: &[u8]) -> Result<(), String>
where
    W: Message + Default + for<'a> From<&'a T>,
    T: TryFrom<W, Error = InvalidField> + Debug + PartialEq,
{
    let read = T::try_from(W::decode(bytes).map_err(text)?).map_err(text)?;
    let written = W::from(&read).encode_to_vec();
    let again = T::try_from(W::decode(&*written).expect("what is written is a message"));
    assert_eq!(again, Ok(read), "what is written is not what was read");
    Ok(())
}

fn one_way<W, T>(bytes: &[u8]) -> Result<(), String>
where
    W: Message + Default,
    T: TryFrom<W, Error = InvalidField> + Debug,
{
    T::try_from(W::decode(bytes).map_err(text)?).map(drop).map_err(text)
}

fn fit_to_show(shown: &str) {
    assert!(!shown.chars().any(char::is_control), "it writes to a terminal: {}", shown.escape_debug());
}

fn text(error: impl ToString) -> String {
    error.to_string()
}
