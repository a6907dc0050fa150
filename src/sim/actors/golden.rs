//! The data directory that version 0.1 wrote, which every later version reads: a single node, with keyspaces, epochs and two
//! sessions in its log and snapshot.

use crate::world::Copied;
use anyhow::Context as _;
use std::path::Path;

/// Where its node is told to be found, by the membership in its log.
pub(crate) const ADDRESS: &str = "127.0.0.1:39389";

const IDENTITY: &[u8] = include_bytes!("../../server/golden/data-dir-1/node.json");
const SNAPSHOT: &[u8] = include_bytes!("../../server/golden/data-dir-1/snapshots/00000000000000000007.snap");
/// The log is mostly holes, so it is kept as its pages that are not empty: offset and bytes, line by line.
const PAGES: &str = include_str!("../../server/golden/data-dir-1/log.redb.pages");

/// The directory, as the one of a node whose data is in `dir`.
///
/// # Errors
/// When the pages are not what they should be.
pub(crate) fn data_dir(dir: &Path) -> anyhow::Result<Copied> {
    let (length, pages) = PAGES.split_once('\n').context("the pages have no length")?;
    let mut log = vec![0; length.parse()?];
    for line in pages.lines() {
        let (at, bytes) = line.split_once(' ').context("a page has no offset")?;
        let at = usize::from_str_radix(at, 16)?;
        for (number, pair) in bytes.as_bytes().chunks(2).enumerate() {
            let byte = log.get_mut(at + number).context("a page is behind the end")?;
            *byte = u8::from_str_radix(std::str::from_utf8(pair)?, 16)?;
        }
    }
    let snapshot = dir.join("snapshots/00000000000000000007.snap");
    let files = [
        (dir.join("node.json"), IDENTITY.to_vec()),
        (dir.join("log.redb"), log),
        (snapshot, SNAPSHOT.to_vec()),
    ];
    Ok(Copied { names: files.into_iter().collect() })
}
