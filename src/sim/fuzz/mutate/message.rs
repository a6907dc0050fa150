//! Protobuf messages, by what their bytes say of themselves: fields with numbers, and messages within messages.
//!
//! No contract is needed to change a message: a field that repeats, a number at the end of its range or a length that
//! lies is the same in all of them.

use super::{MAX_BYTES, boundary, bytes, few};
use crate::fuzz::judge::SECRET;
use fastrand::Rng;
use std::collections::BTreeSet;

/// How deep messages are taken apart. What lies deeper is bytes.
const DEPTH: usize = 8;

#[derive(Clone, Debug, PartialEq)]
struct Field {
    number: u64,
    value: Value,
}

#[derive(Clone, Debug, PartialEq)]
enum Value {
    Varint(u64),
    Fixed64([u8; 8]),
    Fixed32([u8; 4]),
    Bytes(Vec<u8>),
    Message(Vec<Field>),
    /// Bytes that are not as many as their length says.
    Lying(u64, Vec<u8>),
}

/// A few changes of a message; of its bytes, when they are none.
pub(super) fn mutate(input: &[u8], donor: &[u8], rng: &mut Rng) -> Vec<u8> {
    let Some(mut fields) = parse(input, DEPTH).filter(|_| rng.u8(..) >= 8) else {
        return bytes::mutate(input, donor, rng);
    };
    let donor = parse(donor, DEPTH).unwrap_or_default();
    for _ in 0..few(rng) {
        change(pick(&mut fields, rng), &donor, rng);
    }
    let mut out = Vec::new();
    write(&fields, &mut out);
    if rng.u8(..) < 8 {
        bytes::change(&mut out, &[], rng);
    }
    out
}

/// Overwrites what looks like a secret wherever `before` has none. A mutation may copy a secret into a field of names,
/// and a name is repeated in errors; only where the seeds have it is it one.
pub(super) fn keep_secrets_home(before: &[u8], out: &mut [u8]) {
    let found = occurrences(out);
    if found.is_empty() {
        return;
    }
    let homes = parse(before, DEPTH).map(|fields| secrets(&fields)).unwrap_or_default();
    if parse(out, DEPTH).is_some_and(|fields| secrets(&fields).is_subset(&homes)) {
        return;
    }
    for at in found {
        out[at..at + SECRET.len()].make_ascii_uppercase();
    }
}

fn occurrences(bytes: &[u8]) -> Vec<usize> {
    let windows = bytes.windows(SECRET.len()).enumerate();
    windows.filter(|(_, window)| *window == SECRET.as_bytes()).map(|(at, _)| at).collect()
}

/// Where secrets are: the numbers of the fields on the way to each.
fn secrets(fields: &[Field]) -> BTreeSet<Vec<u64>> {
    let mut found = BTreeSet::new();
    for Field { number, value } in fields {
        match value {
            Value::Bytes(bytes) if !occurrences(bytes).is_empty() => drop(found.insert(vec![*number])),
            Value::Message(inner) => {
                found.extend(secrets(inner).into_iter().map(|path| [vec![*number], path].concat()));
            }
            _ => {}
        }
    }
    found
}

/// The message with one field left out, each of them and at every depth, and with each message emptied.
pub(super) fn smaller(input: &[u8]) -> Vec<Vec<u8>> {
    let Some(fields) = parse(input, DEPTH) else { return Vec::new() };
    let mut all = Vec::new();
    without_one(&fields, &mut |fields| {
        let mut out = Vec::new();
        write(&fields, &mut out);
        all.push(out);
    });
    all.sort_by_key(Vec::len);
    all
}

fn without_one(fields: &[Field], found: &mut dyn FnMut(Vec<Field>)) {
    for at in 0..fields.len() {
        let mut less = fields.to_vec();
        less.remove(at);
        found(less);
        if let Value::Message(inner) = &fields[at].value {
            without_one(inner, &mut |inner| {
                let mut less = fields.to_vec();
                less[at].value = Value::Message(inner);
                found(less);
            });
        }
    }
}

fn parse(mut input: &[u8], depth: usize) -> Option<Vec<Field>> {
    let mut fields = Vec::new();
    while !input.is_empty() {
        let tag = varint(&mut input)?;
        let value = match tag & 7 {
            0 => Value::Varint(varint(&mut input)?),
            1 => Value::Fixed64(*input.split_off(..8)?.first_chunk()?),
            5 => Value::Fixed32(*input.split_off(..4)?.first_chunk()?),
            2 => {
                let length = usize::try_from(varint(&mut input)?).ok()?;
                let inner = input.split_off(..length)?;
                match parse(inner, depth.checked_sub(1)?).filter(|fields| !fields.is_empty()) {
                    Some(fields) => Value::Message(fields),
                    None => Value::Bytes(inner.to_vec()),
                }
            }
            _ => return None,
        };
        fields.push(Field { number: tag >> 3, value });
    }
    Some(fields)
}

fn varint(input: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let byte = *input.split_off_first()?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

fn write(fields: &[Field], out: &mut Vec<u8>) {
    for Field { number, value } in fields {
        let kind = match value {
            Value::Varint(_) => 0,
            Value::Fixed64(_) => 1,
            Value::Fixed32(_) => 5,
            Value::Bytes(_) | Value::Message(_) | Value::Lying(..) => 2,
        };
        put(number << 3 | kind, out);
        match value {
            Value::Varint(number) => put(*number, out),
            Value::Fixed64(bytes) => out.extend(bytes),
            Value::Fixed32(bytes) => out.extend(bytes),
            Value::Bytes(bytes) => sized(bytes.len() as u64, bytes, out),
            Value::Lying(length, bytes) => sized(*length, bytes, out),
            Value::Message(fields) => {
                let mut inner = Vec::new();
                write(fields, &mut inner);
                sized(inner.len() as u64, &inner, out);
            }
        }
    }
}

fn sized(length: u64, bytes: &[u8], out: &mut Vec<u8>) {
    put(length, out);
    out.extend(bytes);
}

fn put(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// A message somewhere in this one, or itself.
fn pick<'a>(fields: &'a mut Vec<Field>, rng: &mut Rng) -> &'a mut Vec<Field> {
    let inner: Vec<usize> =
        (0..fields.len()).filter(|at| matches!(fields[*at].value, Value::Message(_))).collect();
    if inner.is_empty() || rng.u8(..4) == 0 {
        return fields;
    }
    let at = inner[rng.usize(..inner.len())];
    match &mut fields[at].value {
        Value::Message(inner) => pick(inner, rng),
        _ => unreachable!("only messages were listed"),
    }
}

fn change(fields: &mut Vec<Field>, donor: &[Field], rng: &mut Rng) {
    let Some(at) = (!fields.is_empty()).then(|| rng.usize(..fields.len())) else {
        fields.extend(part_of(donor, rng));
        return;
    };
    match rng.u8(..14) {
        0 => drop(fields.remove(at)),
        1 => fields.insert(rng.usize(..=fields.len()), fields[at].clone()),
        2 => {
            let other = rng.usize(..fields.len());
            fields.swap(at, other);
        }
        3 => fields[at].number = if rng.bool() { rng.u64(1..24) } else { fields[at].number ^ 1 },
        4 => fields.insert(at, part_of(donor, rng).unwrap_or(Field { number: 1, value: Value::Varint(1) })),
        5 => {
            // The value of the same field in another message.
            if let Some(found) = find(donor, fields[at].number, rng) {
                fields[at].value = found;
            }
        }
        6 => {
            let times = rng.usize(1..64).min(MAX_BYTES / 16);
            let field = fields[at].clone();
            fields.splice(at..at, std::iter::repeat_n(field, times));
        }
        7 => fields[at].value = Value::Message(Vec::new()),
        8 => {
            let mut bytes = Vec::new();
            write(std::slice::from_ref(&fields[at]), &mut bytes);
            fields[at].value = Value::Lying(boundary(rng), bytes);
        }
        9 => {
            // The message in itself, as deep as it goes.
            for _ in 0..rng.usize(1..120) {
                let inner = std::mem::replace(&mut fields[at].value, Value::Varint(0));
                let number = fields[at].number;
                fields[at].value = Value::Message(vec![Field { number, value: inner }]);
            }
        }
        _ => change_value(&mut fields[at].value, rng),
    }
}

fn change_value(value: &mut Value, rng: &mut Rng) {
    match value {
        Value::Varint(number) => {
            *number = match rng.u8(..6) {
                0 => number.wrapping_add(1),
                1 => number.wrapping_sub(1),
                2 => *number ^ 1 << rng.u8(..64),
                _ => boundary(rng),
            };
        }
        Value::Bytes(bytes) => match rng.u8(..4) {
            // A list of numbers is bytes too.
            0 => put(boundary(rng), bytes),
            1 => *bytes = b"\x1b[2J\n".repeat(1 << rng.u8(..10)),
            2 if !bytes.is_empty() => {
                *bytes = bytes.repeat((MAX_BYTES / 4 / bytes.len()).clamp(1, 1 << rng.u8(1..10)));
            }
            _ => bytes::change(bytes, &[], rng),
        },
        Value::Fixed64(bytes) => bytes[rng.usize(..8)] = rng.u8(..),
        Value::Fixed32(bytes) => bytes[rng.usize(..4)] = rng.u8(..),
        Value::Lying(length, _) => *length = boundary(rng),
        Value::Message(_) => *value = Value::Varint(boundary(rng)),
    }
}

/// Some field of some message in it.
fn part_of(donor: &[Field], rng: &mut Rng) -> Option<Field> {
    let field = (!donor.is_empty()).then(|| &donor[rng.usize(..donor.len())])?;
    match &field.value {
        Value::Message(inner) if rng.bool() => part_of(inner, rng),
        _ => Some(field.clone()),
    }
}

/// Some value under this number.
fn find(donor: &[Field], number: u64, rng: &mut Rng) -> Option<Value> {
    let mut found = Vec::new();
    fn all<'a>(fields: &'a [Field], number: u64, found: &mut Vec<&'a Value>) {
        for field in fields {
            if field.number == number {
                found.push(&field.value);
            }
            if let Value::Message(inner) = &field.value {
                all(inner, number, found);
            }
        }
    }
    all(donor, number, &mut found);
    (!found.is_empty()).then(|| found[rng.usize(..found.len())].clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message as _;
    use ringfence_api::v1;

    #[test]
    fn a_message_is_taken_apart_and_put_together_again() {
        let owner = v1::Owner { worker: "w1".to_owned(), session: 1 << 40, address: "a:1".to_owned() };
        let entry = v1::MapEntry { keyspace: "orders".to_owned(), owner: Some(owner), ..Default::default() };
        let bytes = v1::LookupResponse { entry: Some(entry), revision: 300 }.encode_to_vec();
        let fields = parse(&bytes, DEPTH).unwrap();
        assert!(matches!(&fields[0].value, Value::Message(entry) if entry.len() == 2));
        let mut again = Vec::new();
        write(&fields, &mut again);
        assert_eq!(again, bytes);
        assert_eq!(parse(&bytes[..bytes.len() - 1], DEPTH), None);
    }

    #[test]
    fn mutations_of_a_message_are_mostly_messages_still() {
        let held = v1::Held { keyspace: "orders".to_owned(), partition: 17, epoch: 42, ..Default::default() };
        let wire = v1::Assignment { revision: 9, held: vec![held.clone(), held], ..Default::default() };
        let bytes = wire.encode_to_vec();
        let mut rng = Rng::with_seed(1);
        let made: Vec<_> = (0..1_000).map(|_| mutate(&bytes, &bytes, &mut rng)).collect();
        let read = made.iter().filter(|made| v1::Assignment::decode(&***made).is_ok()).count();
        let other = made.iter().filter(|made| **made != bytes).count();
        assert!(read > 300 && other > 900, "{read} are messages, {other} are not the one they were made of");
    }
}
