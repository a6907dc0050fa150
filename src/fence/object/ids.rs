//! Names that nobody else makes: of commits, and of the objects that hold the data.

use crate::FenceError;
use std::fmt;
use std::str::FromStr;

/// The id of a commit: 64 random bits, drawn by whoever commits.
///
/// By it a writer knows its own commit again, also when the answer was lost on the way; and with the commit's number it
/// makes every manifest unlike every other, so that no ETag ever comes back. (An ETag of S3 is a digest of the content.)
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommitId(u64);

impl CommitId {
    /// How many digits its text has.
    pub(super) const DIGITS: usize = 16;

    pub(super) fn draw() -> Result<CommitId, FenceError> {
        draw().map(|bits| CommitId(u64::from_be_bytes(bits)))
    }
}

fn draw<const BYTES: usize>() -> Result<[u8; BYTES], FenceError> {
    let mut bits = [0; BYTES];
    getrandom::fill(&mut bits).map_err(|error| FenceError::busy("drawing a random id", error))?;
    Ok(bits)
}

/// A number of so many digits, in one form only: lower case, with leading zeros. A manifest has hundreds of them.
fn hex(text: &[u8], digits: usize) -> Option<u128> {
    if text.len() != digits {
        return None;
    }
    let mut number = 0;
    for byte in text {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            _ => return None,
        };
        number = number << 4 | u128::from(digit);
    }
    Some(number)
}

impl fmt::Display for CommitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for CommitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl CommitId {
    /// Its text read back.
    pub(super) fn read(text: &[u8]) -> Option<CommitId> {
        u64::try_from(hex(text, CommitId::DIGITS)?).ok().map(CommitId)
    }
}

/// The name of an object that holds data: the number of the manifest that its writer had seen, and 128 random bits.
///
/// The number is what makes clearing up safe without any clock; see `sweep.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct DataName {
    pub(super) after: u64,
    id: u128,
}

impl DataName {
    pub(super) fn draw(after: u64) -> Result<DataName, FenceError> {
        Ok(DataName { after, id: u128::from_be_bytes(draw()?) })
    }
}

impl fmt::Display for DataName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:020}-{:032x}", self.after, self.id)
    }
}

impl FromStr for DataName {
    type Err = ();

    fn from_str(text: &str) -> Result<DataName, ()> {
        let (after, id) = text.split_once('-').ok_or(())?;
        Ok(DataName { after: number(after).ok_or(())?, id: hex(id.as_bytes(), 32).ok_or(())? })
    }
}

/// A number as names hold it: twenty digits, so that names sort as numbers do.
pub(super) fn number(digits: &str) -> Option<u64> {
    let canonical = digits.len() == 20 && digits.bytes().all(|b| b.is_ascii_digit());
    digits.parse().ok().filter(|_| canonical)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f096_a_name_is_read_in_one_form_only() {
        let name = DataName::draw(17).unwrap();
        assert_eq!(name.to_string().parse(), Ok(name));
        assert_ne!(name, DataName::draw(17).unwrap());
        let commit = CommitId::draw().unwrap();
        assert_eq!(CommitId::read(commit.to_string().as_bytes()), Some(commit));
        for bad in ["", "0", "00000000000000000", "000000000000000G", "+00000000000000a", "000000000000000A"]
        {
            assert!(CommitId::read(bad.as_bytes()).is_none(), "{bad}");
        }
        let id = "0123456789abcdef0123456789abcdef";
        assert!(format!("00000000000000000017-{id}").parse::<DataName>().is_ok());
        for bad in [
            format!("17-{id}"),
            format!("+0000000000000000017-{id}"),
            format!("99999999999999999999-{id}"),
            format!("00000000000000000017-{}", id.to_uppercase()),
            format!("00000000000000000017-+{}", &id[1..]),
            format!("00000000000000000017-{id}0"),
            format!("../000000000000000017-{id}"),
            String::new(),
        ] {
            assert!(bad.parse::<DataName>().is_err(), "{bad}");
        }
    }
}
