//! `google.rpc.Status` with one `google.rpc.ErrorInfo`, by hand: two small messages of strings, and no library for them.
//!
//! What is read came over the network, so everything is bounded and nothing is believed.

use super::Refusal;

const TYPE_URL: &str = "type.googleapis.com/google.rpc.ErrorInfo";
const DOMAIN: &str = "ringfence";
/// More than any refusal is.
const MAX_BYTES: usize = 8 * 1024;

/// The fields of a refusal by their names.
pub(super) fn fields(refusal: &Refusal) -> Vec<(&'static str, String)> {
    let mut fields = Vec::new();
    if let Some(token) = &refusal.token {
        fields.push(("token", token.to_string()));
    }
    if let Some(highest) = refusal.highest {
        fields.push(("highest", highest.get().to_string()));
    }
    if let Some(cluster) = &refusal.cluster {
        fields.push(("cluster", cluster.to_string()));
    }
    if let Some(owner) = &refusal.owner {
        fields.push(("owner", owner.clone()));
    }
    fields
}

pub(super) fn encode(refusal: &Refusal) -> Vec<u8> {
    let mut info = Vec::new();
    text(&mut info, 1, &refusal.reason.as_str().to_ascii_uppercase().replace('-', "_"));
    text(&mut info, 2, DOMAIN);
    for (name, value) in fields(refusal) {
        let mut entry = Vec::new();
        text(&mut entry, 1, name);
        text(&mut entry, 2, &value);
        bytes(&mut info, 3, &entry);
    }
    let mut any = Vec::new();
    text(&mut any, 1, TYPE_URL);
    bytes(&mut any, 2, &info);
    let mut status = Vec::new();
    status.push(1 << 3);
    varint(&mut status, u64::try_from(refusal.reason.grpc_code()).unwrap_or(0));
    text(&mut status, 2, &refusal.detail);
    bytes(&mut status, 3, &any);
    status
}

fn text(out: &mut Vec<u8>, field: u8, value: &str) {
    bytes(out, field, value.as_bytes());
}

fn bytes(out: &mut Vec<u8>, field: u8, value: &[u8]) {
    out.push(field << 3 | 2);
    varint(out, value.len() as u64);
    out.extend(value);
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value > 0x7f {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// What an `ErrorInfo` of this domain says.
#[derive(Debug, Default)]
pub(super) struct Said {
    pub(super) reason: String,
    pub(super) detail: String,
    pub(super) fields: Vec<(String, String)>,
}

pub(super) fn decode(status: &[u8]) -> Option<Said> {
    if status.len() > MAX_BYTES {
        return None;
    }
    let mut said = Said::default();
    let mut found = false;
    for (field, value) in Fields(status) {
        match field? {
            2 => said.detail = string(value)?,
            3 => found |= error_info(value, &mut said)?,
            _ => {}
        }
    }
    found.then_some(said)
}

/// Whether it is an `ErrorInfo` of ours; `None` when it cannot be read.
fn error_info(any: &[u8], said: &mut Said) -> Option<bool> {
    let (mut url, mut info) = (String::new(), [].as_slice());
    for (field, value) in Fields(any) {
        match field? {
            1 => url = string(value)?,
            2 => info = value,
            _ => {}
        }
    }
    if url != TYPE_URL {
        return Some(false);
    }
    let (mut reason, mut domain, mut entries) = (String::new(), String::new(), Vec::new());
    for (field, value) in Fields(info) {
        match field? {
            1 => reason = string(value)?,
            2 => domain = string(value)?,
            3 => entries.push(entry(value)?),
            _ => {}
        }
    }
    if domain != DOMAIN {
        return Some(false);
    }
    said.reason = reason.to_ascii_lowercase().replace('_', "-");
    said.fields = entries;
    Some(true)
}

fn entry(entry: &[u8]) -> Option<(String, String)> {
    let (mut name, mut text) = (String::new(), String::new());
    for (field, value) in Fields(entry) {
        match field? {
            1 => name = string(value)?,
            2 => text = string(value)?,
            _ => {}
        }
    }
    Some((name, text))
}

fn string(value: &[u8]) -> Option<String> {
    String::from_utf8(value.to_vec()).ok()
}

/// The fields of a message that have a length; numbers are skipped. A field that cannot be read is `None`, and the last.
struct Fields<'a>(&'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = (Option<u64>, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        while !self.0.is_empty() {
            match self.field() {
                Some((number, Some(value))) => return Some((Some(number), value)),
                Some((_, None)) => {}
                None => {
                    self.0 = &[];
                    return Some((None, &[]));
                }
            }
        }
        None
    }
}

impl<'a> Fields<'a> {
    fn field(&mut self) -> Option<(u64, Option<&'a [u8]>)> {
        let key = self.varint()?;
        match key & 7 {
            0 => self.varint().map(|_| (key >> 3, None)),
            1 => self.take(8).map(|_| (key >> 3, None)),
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                self.take(length).map(|value| (key >> 3, Some(value)))
            }
            5 => self.take(4).map(|_| (key >> 3, None)),
            _ => None,
        }
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (first, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(first & 0x7f) << shift;
            if first & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }
}

/// Base64 without padding, as `-bin` metadata of gRPC has it.
pub(super) fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let group =
            chunk.iter().fold(0_u32, |group, b| group << 8 | u32::from(*b)) << (8 * (3 - chunk.len()));
        for index in 0..=chunk.len() {
            out.push(char::from(LETTERS[(group >> (18 - 6 * index) & 63) as usize]));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn base64_is_that_of_the_rfc_without_its_padding() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg"),
            ("fo", "Zm8"),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg"),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
        assert_eq!(base64(&[0xfb, 0xff]), "+/8");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn f096_details_from_outside_are_never_a_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            at in any::<prop::sample::Index>(),
            with in any::<u8>(),
        ) {
            let _ = Refusal::from_details(&bytes);
            let token = "prod/orders/17@33".parse().unwrap();
            let fenced = crate::Fenced::new(token, ringfence_core::ids::Epoch::new(34).unwrap());
            let mut damaged = encode(&Refusal::from(&crate::FenceError::from(fenced)));
            let at = at.index(damaged.len());
            damaged[at] = with;
            let _ = Refusal::from_details(&damaged);
            let _ = Refusal::from_details(&damaged[..at]);
        }
    }
}
