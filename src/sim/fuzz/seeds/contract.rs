//! Messages made from the contract itself: every field is there, with a value that its name asks for.

use crate::fuzz::judge::SECRET;
use prost::Message as _;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorSet};
use ringfence_api::v1;

/// The messages that clients and coordinators read.
pub(super) const MESSAGES: [&str; 19] = [
    "NodeAddress",
    "Owner",
    "Keyspace",
    "KeyspacePolicy",
    "KeyspaceChange",
    "MapEntry",
    "Partition",
    "Tenure",
    "Held",
    "Gone",
    "DrainLeft",
    "RequestId",
    "HealthResponse",
    "ClusterStatusResponse",
    "Node",
    "Worker",
    "GetPartitionResponse",
    "MovePartitionResponse",
    "LookupResponse",
];

/// The messages that nodes read.
pub(super) const PEERS: [&str; 9] = [
    "RaftAppendRequest",
    "RaftAppendResponse",
    "RaftVoteRequest",
    "RaftVoteResponse",
    "RaftTransferRequest",
    "RaftEntry",
    "RaftStoredMembership",
    "FormationSelf",
    "FormationAdoptRequest",
];

/// A message of this name. Of those of its fields that exclude each other it has the one of this number, counted around.
pub(super) fn sample(name: &str, kind: usize) -> Vec<u8> {
    let set = FileDescriptorSet::decode(v1::FILE_DESCRIPTOR_SET).unwrap();
    let of_contract = set.file.iter().filter(|file| file.package() == "ringfence.v1");
    let mut all = Vec::new();
    for message in of_contract.flat_map(|file| &file.message_type) {
        list("", message, &mut all);
    }
    write(&all, name, kind, 0)
}

type Messages<'a> = Vec<(String, &'a DescriptorProto)>;

fn list<'a>(outer: &str, message: &'a DescriptorProto, all: &mut Messages<'a>) {
    let name = format!("{outer}{}", message.name());
    message.nested_type.iter().for_each(|inner| list(&format!("{name}."), inner, all));
    all.push((name, message));
}

/// `place` is where the message stands in a list of such; a map is a list whose keys differ.
fn write(all: &Messages<'_>, name: &str, kind: usize, place: u64) -> Vec<u8> {
    let (_, message) = all.iter().find(|(found, _)| found == name).unwrap_or_else(|| panic!("{name}"));
    let mut out = Vec::new();
    for field in &message.field {
        let exclusive = |other: &&FieldDescriptorProto| other.oneof_index == field.oneof_index;
        if field.oneof_index.is_some() && !field.proto3_optional() {
            let kinds: Vec<_> = message.field.iter().filter(exclusive).collect();
            if kinds[kind % kinds.len()].number() != field.number() {
                continue;
            }
        }
        let times = if field.label() == Label::Repeated { 2 } else { 1 };
        for time in 0..times {
            let time = if matches!(field.name(), "key" | "node") { place } else { time };
            write_field(all, field, kind, time, &mut out);
        }
    }
    out
}

fn write_field(all: &Messages<'_>, field: &FieldDescriptorProto, kind: usize, time: u64, out: &mut Vec<u8>) {
    let number = u64::try_from(field.number()).unwrap();
    let sized = match field.r#type() {
        Type::Message => write(all, field.type_name().trim_start_matches(".ringfence.v1."), kind, time),
        Type::String => text(field.name(), time),
        Type::Bytes => bytes(field.name()),
        _ => {
            put(number << 3, out);
            return put(value(field, time), out);
        }
    };
    put(number << 3 | 2, out);
    put(sized.len() as u64, out);
    out.extend(sized);
}

fn text(field: &str, time: u64) -> Vec<u8> {
    match field {
        "address" | "holder_address" | "claimant_address" => format!("10.0.0.{}:7600", time + 1),
        "cluster" => "c1".to_owned(),
        "scope" => format!("orders/{time}"),
        "worker" | "to" | "moving_to" => format!("w{}", time + 1),
        _ => format!("orders-{time}"),
    }
    .into_bytes()
}

fn bytes(field: &str) -> Vec<u8> {
    match field {
        "id" | "nonce" => vec![7; 16],
        "secret_sha256" => vec![9; 32],
        _ => SECRET.as_bytes().to_vec(),
    }
}

fn value(field: &FieldDescriptorProto, time: u64) -> u64 {
    match field.name() {
        "epoch" | "from_epoch" => 42,
        "ttl_ms" | "drain_deadline_ms" | "lock_delay_ms" => 10_000,
        "partitions" | "max_moves_in_flight" => 64,
        // Half of them were there before, and most have been split.
        "split_from" => 40,
        "node" | "key" => time + 1,
        "index" => 0,
        _ => 1,
    }
}

fn put(number: u64, out: &mut Vec<u8>) {
    prost::encoding::encode_varint(number, out);
}
