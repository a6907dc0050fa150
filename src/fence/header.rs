//! How tokens travel beside a request: the value of one header, `ringfence-token`.
//!
//! It is the same for HTTP and for the metadata of gRPC, and the same in every language: `proto/HEADER.md` is its grammar,
//! and `proto/golden/token_header.tsv` has good and bad values. Exactly one value means a set of tokens, so whoever reads it
//! has nothing to decide, and two hops cannot read one value in two ways.
//!
//! ```
//! use ringfence_fence::header;
//!
//! let tokens = header::read(b"prod/orders/17@42 prod/orders/18@7")?;
//! assert_eq!(header::write(&tokens)?, "prod/orders/17@42 prod/orders/18@7");
//! assert!(header::read(b"prod/orders/17@42, prod/orders/17@43").is_err()); // two headers that a hop has merged
//! # Ok::<(), header::HeaderError>(())
//! ```

use crate::token::in_lock_order;
use crate::{FencingToken, TokenError};
use ringfence_core::ids::{ClusterId, Scope};

/// The name of the header, in the lower case that HTTP/2 asks for.
pub const NAME: &str = "ringfence-token";

/// The most tokens that one request carries. A write over more scopes than this is better cut, and a bound keeps the header
/// below what every server and proxy takes.
pub const MAX_TOKENS: usize = 16;

/// The longest value, in bytes: [`MAX_TOKENS`] of the longest tokens and the spaces between them. A longer one is not read.
pub const MAX_BYTES: usize = MAX_TOKENS * LONGEST_TOKEN + MAX_TOKENS - 1;

/// Cluster, `/`, keyspace, `/`, partition, `@`, epoch. The token of a lock is shorter.
const LONGEST_TOKEN: usize = 63 + 1 + 63 + 1 + 10 + 1 + 16;

/// Why a value is not one of this header, or cannot be made into one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// There is no token in it.
    #[error("{NAME} is empty: it has one token for each scope that the request writes to")]
    Empty,
    /// The header stands there more than once, or a hop has merged two of them with a comma. Which of them the hop before
    /// has acted on is not known.
    #[error("{NAME} was given more than once: several tokens stand in one header, with a space between them")]
    Repeated,
    /// It is longer than any value can be.
    #[error("{NAME} has {0} bytes, and at most {MAX_BYTES} are read")]
    TooLong(usize),
    /// More tokens than one request may carry.
    #[error("{NAME} has {0} tokens, and at most {MAX_TOKENS} are taken")]
    TooMany(usize),
    /// It has a byte that no token has.
    #[error(
        "{NAME} has a byte that no token has: the letters a to z, digits, and . _ - / @ are all there are"
    )]
    NotText,
    /// One of its parts is not a token.
    #[error("token {position} in {NAME}: {why}")]
    Token {
        /// Which one, from 1.
        position: usize,
        /// What is wrong with it.
        #[source]
        why: TokenError,
    },
    /// The tokens are not in the order of their scopes.
    #[error(
        "the tokens in {NAME} are not in the order of their scopes: {0} comes before the one in front of it"
    )]
    Order(Scope),
    /// A scope stands there twice.
    #[error("{NAME} names {0} twice: a write has one token for each scope")]
    Twice(Scope),
    /// Tokens of two clusters in one request.
    #[error("{NAME} has tokens of the clusters {0} and {1}: a request belongs to one")]
    Clusters(ClusterId, ClusterId),
}

/// Reads a value.
///
/// The tokens come in the order of their scopes: partitions before locks, keyspaces and locks by the bytes of their names,
/// partitions by number. It is the order in which fences are locked.
///
/// # Errors
/// [`HeaderError`], which says what is wrong with it.
pub fn read(value: &[u8]) -> Result<Vec<FencingToken>, HeaderError> {
    if value.is_empty() {
        return Err(HeaderError::Empty);
    }
    if value.len() > MAX_BYTES {
        return Err(HeaderError::TooLong(value.len()));
    }
    if value.contains(&b',') {
        return Err(HeaderError::Repeated);
    }
    let plain = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b" ._-/@".contains(b);
    let text = std::str::from_utf8(value).ok().filter(|text| text.bytes().all(|b| plain(&b)));
    let text = text.ok_or(HeaderError::NotText)?;
    let parts = text.split(' ').count();
    if parts > MAX_TOKENS {
        return Err(HeaderError::TooMany(parts));
    }
    let mut tokens: Vec<FencingToken> = Vec::with_capacity(parts);
    for (index, part) in text.split(' ').enumerate() {
        let token: FencingToken =
            part.parse().map_err(|why| HeaderError::Token { position: index + 1, why })?;
        if let Some(before) = tokens.last() {
            follows(before, &token)?;
        }
        tokens.push(token);
    }
    Ok(tokens)
}

/// Reads the header out of all values that a request has under its name.
///
/// # Errors
/// As [`read`], and [`HeaderError::Repeated`] for a second value.
pub fn read_all<'a>(
    mut values: impl Iterator<Item = &'a [u8]>,
) -> Result<Option<Vec<FencingToken>>, HeaderError> {
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => read(value).map(Some),
        (Some(_), Some(_)) => Err(HeaderError::Repeated),
    }
}

/// Writes the value for these tokens, in the order of their scopes. A token that is there twice is written once.
///
/// # Errors
/// [`HeaderError::Empty`], [`HeaderError::TooMany`], [`HeaderError::Clusters`], and [`HeaderError::Twice`] for two epochs of
/// one scope: a piece of work belongs to one of them.
pub fn write(tokens: &[FencingToken]) -> Result<String, HeaderError> {
    let mut tokens = in_lock_order(tokens).ok_or(HeaderError::Empty)?;
    tokens.dedup_by(|a, b| a.order(b) == Some(std::cmp::Ordering::Equal));
    if tokens.len() > MAX_TOKENS {
        return Err(HeaderError::TooMany(tokens.len()));
    }
    for pair in tokens.windows(2) {
        follows(pair[0], pair[1])?;
    }
    Ok(tokens.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
}

fn follows(before: &FencingToken, token: &FencingToken) -> Result<(), HeaderError> {
    if before.cluster() != token.cluster() {
        return Err(HeaderError::Clusters(before.cluster().clone(), token.cluster().clone()));
    }
    match token.scope().cmp(before.scope()) {
        std::cmp::Ordering::Greater => Ok(()),
        std::cmp::Ordering::Equal => Err(HeaderError::Twice(token.scope().clone())),
        std::cmp::Ordering::Less => Err(HeaderError::Order(token.scope().clone())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GOLDEN: &str = include_str!("../../proto/golden/token_header.tsv");

    fn reason(error: &HeaderError) -> &'static str {
        match error {
            HeaderError::Empty => "empty",
            HeaderError::Repeated => "repeated",
            HeaderError::TooLong(_) => "too-long",
            HeaderError::TooMany(_) => "too-many",
            HeaderError::NotText => "not-text",
            HeaderError::Token { .. } => "token",
            HeaderError::Order(_) => "order",
            HeaderError::Twice(_) => "twice",
            HeaderError::Clusters(..) => "clusters",
        }
    }

    /// `\xNN` is a byte, and `{N*TEXT}` is the text N times.
    fn bytes(shown: &str) -> Vec<u8> {
        let mut out = Vec::new();
        let mut rest = shown;
        while let Some(c) = rest.chars().next() {
            if let Some(hex) = rest.strip_prefix("\\x") {
                out.push(u8::from_str_radix(&hex[..2], 16).unwrap());
                rest = &hex[2..];
            } else if let Some((inside, after)) = rest.strip_prefix('{').and_then(|r| r.split_once('}')) {
                let (times, text) = inside.split_once('*').unwrap();
                out.extend(text.repeat(times.parse().unwrap()).bytes());
                rest = after;
            } else {
                out.extend(c.to_string().bytes());
                rest = &rest[c.len_utf8()..];
            }
        }
        out
    }

    #[test]
    fn f096_the_golden_values_are_read_as_the_page_says() {
        let mut seen = 0;
        for line in GOLDEN.lines().filter(|line| !line.starts_with('#')) {
            let fields: Vec<&str> = line.split('\t').collect();
            let [verdict, value, means] = fields[..] else { panic!("{line}") };
            seen += 1;
            match (verdict, read(&bytes(value))) {
                ("good", Ok(tokens)) => {
                    let shown: Vec<String> = tokens.iter().map(|t| t.short().to_string()).collect();
                    assert_eq!(shown.join(";"), means, "{line}");
                    assert_eq!(write(&tokens).unwrap().into_bytes(), bytes(value), "{line}");
                }
                ("bad", Err(error)) => assert_eq!(reason(&error), means, "{line}: {error}"),
                (_, other) => panic!("{line}: {other:?}"),
            }
        }
        assert!(seen > 40, "{seen}");
    }

    /// The same file, read by the few lines of Python that the page has for other languages.
    #[test]
    fn f096_another_language_reads_the_golden_values_alike() {
        let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../../proto/golden");
        let check = std::process::Command::new("python3").arg("token_header.py").current_dir(golden).output();
        match check {
            Ok(out) => assert!(
                out.status.success(),
                "{}{}",
                String::from_utf8_lossy(&out.stdout),
                String::from_utf8_lossy(&out.stderr)
            ),
            Err(_) => eprintln!("SKIPPED: there is no python3, so only Rust has read the golden values"),
        }
    }

    #[test]
    fn t13_what_is_written_is_in_the_order_of_the_fences_whatever_order_it_was_named_in() {
        let token = |text: &str| text.parse::<FencingToken>().unwrap();
        let tokens = [token("p/@locks/a@1"), token("p/o/10@3"), token("p/o/9@4"), token("p/o/9@4")];
        assert_eq!(write(&tokens).unwrap(), "p/o/9@4 p/o/10@3 p/@locks/a@1");
        assert_eq!(write(&[]), Err(HeaderError::Empty));
        assert!(matches!(write(&[token("p/o/9@4"), token("p/o/9@5")]), Err(HeaderError::Twice(_))));
        assert!(matches!(write(&[token("p/o/9@4"), token("q/o/10@5")]), Err(HeaderError::Clusters(..))));
        let many: Vec<FencingToken> = (0..17).map(|n| token(&format!("p/o/{n}@1"))).collect();
        assert_eq!(write(&many), Err(HeaderError::TooMany(17)));
    }

    #[test]
    fn f096_the_bound_is_the_longest_value_that_can_be_written() {
        let name = "n".repeat(63);
        let longest: Vec<FencingToken> = (0..MAX_TOKENS as u32)
            .map(|n| format!("{name}/{name}/{}@{}", u32::MAX - 15 + n, (1_u64 << 53) - 1).parse().unwrap())
            .collect();
        let value = write(&longest).unwrap();
        assert_eq!(value.len(), MAX_BYTES);
        assert_eq!(read(value.as_bytes()).unwrap(), longest);
    }

    #[test]
    fn a_second_header_is_refused_although_it_says_the_same() {
        let value = b"p/o/1@2".as_slice();
        assert_eq!(read_all([value].into_iter()).unwrap().unwrap().len(), 1);
        assert_eq!(read_all([value, value].into_iter()), Err(HeaderError::Repeated));
        assert_eq!(read_all([].into_iter()), Ok(None));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn f096_a_value_means_one_set_of_tokens_or_none_and_is_never_a_panic(
            value in prop_oneof![
                "(p/[a-c]/[0-9]{1,2}@[0-9]{1,3} ?){0,4}".prop_map(String::into_bytes),
                proptest::collection::vec(any::<u8>(), 0..60),
            ],
        ) {
            if let Ok(tokens) = read(&value) {
                prop_assert_eq!(write(&tokens).unwrap().into_bytes(), value);
            }
        }
    }
}
