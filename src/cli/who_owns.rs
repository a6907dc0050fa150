//! `ringfence who-owns`: the partition of a key, and its owner.

use crate::args::Common;
use crate::exit::{Exit, Failed, Outcome};
use crate::output::properties;
use crate::shape::LocatedShape;
use clap::Args;
use ringfence::admin::Located;
use ringfence::ids::KeyspaceName;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;

/// Arguments of `ringfence who-owns`.
#[derive(Debug, Args)]
#[command(after_help = "\
The answer is read at the leader after a quorum confirmed it. The exit code is 0 also when nobody owns the partition now.

Examples:
  ringfence who-owns orders customer-17
  ringfence who-owns orders 00ff --hex -o json")]
pub(crate) struct WhoOwnsArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// The keyspace
    keyspace: KeyspaceName,
    /// The key: its bytes are hashed as they stand
    key: OsString,
    /// The key is written in hexadecimal
    #[arg(long)]
    hex: bool,
}

/// Runs `ringfence who-owns`.
pub(crate) async fn run(args: WhoOwnsArgs) -> Outcome {
    let key = args.key.into_vec();
    let key = if args.hex { from_hex(&key).ok_or_else(not_hex)? } else { key };
    let located = args.common.admin().locate_key(args.keyspace.as_str(), key).await?;
    args.common.output().show(&LocatedShape::from(&located), || text(&located))?;
    Ok(Exit::Done)
}

fn not_hex() -> Failed {
    Failed::usage("KEY is not hexadecimal; write two digits 0-9 and a-f for each byte, such as 00ff")
}

fn from_hex(digits: &[u8]) -> Option<Vec<u8>> {
    let digit = |d: &u8| (*d as char).to_digit(16);
    let (pairs, []) = digits.as_chunks::<2>() else { return None };
    pairs.iter().map(|[high, low]| u8::try_from(digit(high)? * 16 + digit(low)?).ok()).collect()
}

fn text(located: &Located) -> String {
    let entry = &located.entry;
    let owner = entry.owner.as_ref();
    properties([
        ("partition", format!("{}/{}", entry.keyspace, entry.partition.get())),
        ("owner", owner.map(|o| o.worker.to_string()).unwrap_or_default()),
        ("session", owner.map(|o| o.session.to_string()).unwrap_or_default()),
        ("address", owner.map(|o| o.address.clone()).unwrap_or_default()),
        ("epoch", entry.epoch.map(|e| e.to_string()).unwrap_or_default()),
        ("phase", entry.phase.to_string()),
        ("ready", entry.ready.to_string()),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_may_be_any_bytes() {
        assert_eq!(from_hex(b"00ff"), Some(vec![0, 255]));
        assert_eq!(from_hex(b""), Some(vec![]));
        for bad in [&b"0"[..], b"0g", b"+1", b"\xff\xff"] {
            assert_eq!(from_hex(bad), None, "{bad:?}");
        }
        assert!(matches!(not_hex(), Failed::Error { exit: Exit::Usage, .. }));
    }
}
