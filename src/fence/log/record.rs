//! One record of a log as bytes: what it says, under which epochs, and what it is chained to.
//!
//! | bytes | what |
//! |---|---|
//! | 0..4 | `RFL1` |
//! | 4..8 | CRC-32C of bytes 8..28 |
//! | 8..12 | length of the body |
//! | 12..16 | bytes 4..8 of the record before; 0 in the first |
//! | 16..24 | number of the record, from 0 |
//! | 24..28 | CRC-32C of the body |
//! | 28.. | the body: kind, number of stamps, the stamps, the payload |
//!
//! A stamp is the length of its scope (2 bytes), the scope as text, its epoch (8) and session (8; 0 for none). All numbers
//! are little-endian. The kinds: 1 binds the log to the cluster that is its payload, 2 raises, 3 raises by an operator's
//! word, 4 writes, 5 seals the segment before.

use crate::{FenceError, FencingToken};
use ringfence_core::ids::{Epoch, Scope, SessionId};

/// What a record begins with; the digit is the format.
pub(super) const MAGIC: [u8; 4] = *b"RFL1";

pub(super) const HEAD: usize = 28;

/// Where the sum of a record ends.
pub(super) const SUM_END: usize = 8;

/// How many bytes one entry may have: 16 MiB.
pub const MAX_PAYLOAD: usize = 16 << 20;

/// How many scopes one entry may be stamped with.
pub const MAX_STAMPS: usize = 255;

/// More than any body has: the payload, and as many stamps of the longest scopes.
const MAX_BODY: usize = MAX_PAYLOAD + 2 + MAX_STAMPS * (2 + 128 + 16);

/// More than any record has.
pub(super) const MAX_RECORD: usize = HEAD + MAX_BODY;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Bind = 1,
    Raise = 2,
    Force = 3,
    Write = 4,
    Seal = 5,
}

impl Kind {
    fn of(byte: u8) -> Option<Kind> {
        [Kind::Bind, Kind::Raise, Kind::Force, Kind::Write, Kind::Seal].into_iter().find(|k| *k as u8 == byte)
    }
}

/// A token without its cluster, which is the log's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) scope: Scope,
    pub(super) epoch: Epoch,
    pub(super) session: Option<SessionId>,
}

impl From<&FencingToken> for Stamp {
    fn from(token: &FencingToken) -> Stamp {
        Stamp { scope: token.scope().clone(), epoch: token.epoch(), session: token.session() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) kind: Kind,
    pub(super) stamps: Vec<Stamp>,
    pub(super) payload: Vec<u8>,
}

/// What the next record is chained to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) number: u64,
    pub(super) sum: u32,
}

/// What stands at a place of a log.
#[derive(Debug)]
pub(super) enum Found {
    Record {
        record: Record,
        length: usize,
        next: Link,
    },
    /// The log ends here.
    End,
    /// The beginning of a record that was never finished, and nothing behind it.
    Torn,
    /// What no unfinished write leaves.
    Damaged(&'static str),
}

impl Record {
    /// Appends it to `out`, and says what the next one is chained to.
    ///
    /// # Errors
    /// [`FenceError::Unfit`] beyond what a record holds.
    pub(super) fn encode(&self, link: Link, out: &mut Vec<u8>) -> Result<Link, FenceError> {
        if self.payload.len() > MAX_PAYLOAD || self.stamps.len() > MAX_STAMPS {
            let (bytes, scopes) = (self.payload.len(), self.stamps.len());
            return Err(FenceError::Unfit {
                why: format!(
                    "an entry has at most {MAX_PAYLOAD} bytes (MAX_PAYLOAD) and {MAX_STAMPS} scopes (MAX_STAMPS), and this one \
                     {bytes} and {scopes}: split it"
                ),
            });
        }
        let mut body = vec![self.kind as u8, self.stamps.len().to_le_bytes()[0]];
        for stamp in &self.stamps {
            let scope = stamp.scope.to_string();
            // A scope is at most two names of 63 bytes long.
            body.extend(u16::try_from(scope.len()).unwrap_or(u16::MAX).to_le_bytes());
            body.extend(scope.as_bytes());
            body.extend(stamp.epoch.get().to_le_bytes());
            body.extend(stamp.session.map_or(0, SessionId::get).to_le_bytes());
        }
        body.extend(&self.payload);
        let mut rest = Vec::with_capacity(HEAD - 8);
        rest.extend(u32::try_from(body.len()).unwrap_or(u32::MAX).to_le_bytes());
        rest.extend(link.sum.to_le_bytes());
        rest.extend(link.number.to_le_bytes());
        rest.extend(crc32c::crc32c(&body).to_le_bytes());
        let sum = crc32c::crc32c(&rest);
        out.extend(MAGIC);
        out.extend(sum.to_le_bytes());
        out.extend(rest);
        out.extend(body);
        Ok(Link { number: link.number + 1, sum })
    }

    /// Reads what stands at the start of `bytes`, which go on to the end of the log.
    pub(super) fn decode(link: Link, bytes: &[u8]) -> Found {
        if bytes.is_empty() {
            return Found::End;
        }
        match sound(bytes) {
            Some(Head { length, sum, previous, number }) => {
                if (previous, number) != (link.sum, link.number) {
                    return Found::Damaged("a sound record that does not follow the one before it");
                }
                match parse(&bytes[HEAD..length]) {
                    Some(record) => Found::Record { record, length, next: Link { number: number + 1, sum } },
                    None => Found::Damaged("a record of another format"),
                }
            }
            None => unsound(bytes),
        }
    }
}

/// The sum in the start of a record; `None` when it is none.
pub(super) fn sum(start: [u8; SUM_END]) -> Option<u32> {
    let [a, b, c, d, sum @ ..] = start;
    ([a, b, c, d] == MAGIC).then(|| u32::from_le_bytes(sum))
}

struct Head {
    length: usize,
    sum: u32,
    previous: u32,
    number: u64,
}

/// The head at the start, when it is whole.
fn head(bytes: &[u8]) -> Option<(Head, u32)> {
    let word = |at: usize| bytes.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
    let head = bytes.get(..HEAD).filter(|head| head[..4] == MAGIC)?;
    let (sum, body, previous, body_sum) = (word(4)?, word(8)? as usize, word(12)?, word(24)?);
    if crc32c::crc32c(&head[8..]) != sum || body > MAX_BODY {
        return None;
    }
    let number = u64::from_le_bytes(head[16..24].try_into().ok()?);
    Some((Head { length: HEAD + body, sum, previous, number }, body_sum))
}

/// The head of a record that is whole, wherever it belongs.
fn sound(bytes: &[u8]) -> Option<Head> {
    let (head, body_sum) = head(bytes)?;
    (crc32c::crc32c(bytes.get(HEAD..head.length)?) == body_sum).then_some(head)
}

/// A write that was cut short leaves the beginning of a record, or the zeros of a file that was made longer first, and
/// nothing behind. Everything else was whole once, and may have been answered.
fn unsound(bytes: &[u8]) -> Found {
    // Its head says how long it was to be, and is sound. What was written of its payload may look like anything, also like records.
    if head(bytes).is_some_and(|(head, _)| bytes.len() < head.length) {
        return Found::Torn;
    }
    let starts = |at: &usize| bytes[*at..].starts_with(&MAGIC) && sound(&bytes[*at..]).is_some();
    if (1..bytes.len()).any(|at| starts(&at)) {
        return Found::Damaged("bytes that are no record, with sound records behind them");
    }
    if bytes.len() < HEAD || bytes.iter().all(|byte| *byte == 0) {
        Found::Torn
    } else {
        Found::Damaged("bytes that are no record, and no beginning of one")
    }
}

fn parse(body: &[u8]) -> Option<Record> {
    let (&[kind, count], mut rest) = body.split_first_chunk()?;
    let kind = Kind::of(kind)?;
    let mut stamps = Vec::with_capacity(count.into());
    for _ in 0..count {
        let (length, after) = rest.split_first_chunk()?;
        let (scope, after) = after.split_at_checked(u16::from_le_bytes(*length).into())?;
        let (epoch, after) = after.split_first_chunk()?;
        let (session, after) = after.split_first_chunk()?;
        stamps.push(Stamp {
            scope: std::str::from_utf8(scope).ok()?.parse().ok()?,
            epoch: Epoch::new(u64::from_le_bytes(*epoch)).ok()?,
            session: SessionId::new(u64::from_le_bytes(*session)),
        });
        rest = after;
    }
    Some(Record { kind, stamps, payload: rest.to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(payload: &[u8]) -> Record {
        let tokens: [FencingToken; 2] =
            ["prod/orders/17@9007199254740991".parse().unwrap(), "prod/@locks/nightly@1".parse().unwrap()];
        let stamps =
            tokens.iter().map(|t| Stamp::from(&t.clone().held_by(SessionId::new(7).unwrap()))).collect();
        Record { kind: Kind::Write, stamps, payload: payload.to_vec() }
    }

    /// Three records; where each ends.
    fn log() -> (Vec<u8>, Vec<usize>) {
        let (mut bytes, mut link, mut ends) = (Vec::new(), Link::default(), Vec::new());
        for payload in [b"one".as_slice(), b"", &[0; 700]] {
            link = record(payload).encode(link, &mut bytes).unwrap();
            ends.push(bytes.len());
        }
        (bytes, ends)
    }

    /// How many records are read, and what stops it.
    fn read(bytes: &[u8]) -> (usize, Found) {
        let (mut at, mut link, mut count) = (0, Link::default(), 0);
        loop {
            match Record::decode(link, &bytes[at..]) {
                Found::Record { length, next, .. } => (at, link, count) = (at + length, next, count + 1),
                other => return (count, other),
            }
        }
    }

    #[test]
    fn t17_a_record_is_read_back_as_it_was_written() {
        let (bytes, _) = log();
        match Record::decode(Link::default(), &bytes) {
            Found::Record { record: read, .. } => assert_eq!(read, record(b"one")),
            other => panic!("{other:?}"),
        }
        assert!(matches!(read(&bytes), (3, Found::End)));
        let fat = Record { payload: vec![0; MAX_PAYLOAD + 1], ..record(b"") };
        assert!(matches!(fat.encode(Link::default(), &mut Vec::new()), Err(FenceError::Unfit { .. })));
    }

    #[test]
    fn t48_wherever_a_log_is_cut_the_whole_records_are_read_and_the_rest_is_torn() {
        let (bytes, ends) = log();
        for cut in 0..bytes.len() {
            let whole = ends.iter().filter(|end| **end <= cut).count();
            match read(&bytes[..cut]) {
                (count, Found::End) => assert!(count == whole && (cut == 0 || ends.contains(&cut))),
                (count, Found::Torn) => assert_eq!(count, whole),
                other => panic!("cut at {cut}: {other:?}"),
            }
            // A file that was made longer before its bytes came.
            let mut zeros = bytes[..cut].to_vec();
            zeros.resize(cut + 600, 0);
            if ends.contains(&cut) || cut == 0 {
                assert!(matches!(read(&zeros), (_, Found::Torn)), "{cut}");
            }
        }
    }

    #[test]
    fn t48_every_flipped_bit_of_what_was_whole_is_damage_and_never_a_torn_tail_or_a_record() {
        let (bytes, ends) = log();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            let before = ends.iter().filter(|end| **end <= at).count();
            match read(&damaged) {
                (count, Found::Damaged(_)) => assert_eq!(count, before, "{at}"),
                other => panic!("byte {at}: {other:?}"),
            }
        }
    }

    #[test]
    fn records_that_change_places_are_damage() {
        let (bytes, ends) = log();
        let swapped = [&bytes[ends[0]..ends[1]], &bytes[..ends[0]], &bytes[ends[1]..]].concat();
        let dropped = [&bytes[..ends[0]], &bytes[ends[1]..]].concat();
        let repeated = [&bytes[..ends[0]], &bytes[..]].concat();
        for bytes in [swapped, dropped, repeated] {
            assert!(matches!(read(&bytes), (_, Found::Damaged(_))));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn f096_no_bytes_are_a_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..300),
            body in proptest::collection::vec(any::<u8>(), 0..80),
        ) {
            let _ = Record::decode(Link::default(), &bytes);
            let _ = parse(&body);
            // With sums that are right.
            let mut rest = (body.len() as u32).to_le_bytes().to_vec();
            rest.extend([0; 12]);
            rest.extend(crc32c::crc32c(&body).to_le_bytes());
            let whole = [&MAGIC[..], &crc32c::crc32c(&rest).to_le_bytes(), &rest, &body].concat();
            let _ = Record::decode(Link::default(), &whole);
        }
    }
}
