//! A node's files. What is damaged is refused with the file named, or is read as what was written; never as anything else.

use crate::fuzz::mutate::split_name;
use crate::fuzz::scratch;
use bytes::Bytes;
use prost::Message;
use ringfence_api::v1;
use ringfence_core::ids::{ClusterId, LogIndex, NodeId, Term};
use ringfence_server::files::{Files, SystemFiles};
use ringfence_server::fuzzing;
use ringfence_server::identity::{Identity, IdentityStore};
use ringfence_server::raft::{Disk, LogOp, Position, Snapshot, Stored};
use std::cell::OnceCell;
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// What is in a log, as messages; their records are made here, so that changes get past the checksums.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Log {
    #[prost(message, repeated, tag = "1")]
    pub(crate) rows: Vec<Row>,
    #[prost(message, optional, tag = "2")]
    pub(crate) vote: Option<v1::RaftVote>,
    #[prost(message, optional, tag = "3")]
    pub(crate) purged: Option<v1::RaftLogId>,
    #[prost(message, optional, tag = "4")]
    pub(crate) committed: Option<v1::RaftLogId>,
    /// A row whose record is these bytes, with no frame around them.
    #[prost(bytes = "bytes", optional, tag = "5")]
    pub(crate) raw: Option<Bytes>,
}

/// An entry, and the index it is stored under.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Row {
    #[prost(uint64, tag = "1")]
    pub(crate) index: u64,
    #[prost(message, optional, tag = "2")]
    pub(crate) entry: Option<v1::RaftEntry>,
}

/// The records of a log.
pub(super) fn log(input: &[u8]) -> Result<(), String> {
    let wire = Log::decode(input).map_err(|e| e.to_string())?;
    let mut entries: Vec<(u64, Bytes)> = wire
        .rows
        .iter()
        .map(|row| (row.index, fuzzing::record(&row.entry.clone().unwrap_or_default())))
        .collect();
    if let Some(raw) = wire.raw {
        let next = entries.last().map_or(0, |(index, _)| index.wrapping_add(1));
        entries.push((next, raw));
    }
    let stored = Stored {
        entries,
        vote: wire.vote.as_ref().map(fuzzing::record),
        purged: wire.purged.as_ref().map(fuzzing::record),
        committed: wire.committed.as_ref().map(fuzzing::record),
    };
    let read = fuzzing::log(stored.clone())?;
    let indexes = |stored: &Stored| stored.entries.iter().map(|(index, _)| *index).collect::<Vec<_>>();
    assert_eq!(indexes(&read), indexes(&stored));
    Ok(())
}

/// The bytes of a snapshot's file. The first line is `sealed INDEX`, and then the checksum at the end is made right, or
/// `as-is INDEX`.
pub(super) fn snapshot_file(input: &[u8]) -> Result<(), String> {
    let (line, bytes) = split_name(input);
    let line = String::from_utf8_lossy(line);
    let (how, index) = line.split_once(' ').unwrap_or((&line, "0"));
    let index: u64 = index.parse().unwrap_or(0);
    let mut bytes = bytes.to_vec();
    if let ("sealed", Some((body, sum))) = (how, bytes.split_last_chunk_mut::<4>()) {
        *sum = crc32c::crc32c(body).to_le_bytes();
    }
    let dir = scratch::fresh("snapshots");
    let name = format!("{index:020}.snap");
    fs::write(dir.join(&name), &bytes).expect("the scratch directory takes a file");
    let store = fuzzing::snapshot_files(&dir).expect("a directory");
    let read = store.newest().map_err(|e| e.to_string());
    let snapshot = match read {
        Ok(snapshot) => snapshot.expect("there is one"),
        Err(why) => {
            assert!(why.contains(&name), "the file is not named: {why}");
            return Err(why);
        }
    };
    assert_eq!(snapshot.at.index.get(), index);
    store.save(&snapshot).expect("the scratch directory takes a file");
    assert!(
        fs::read(dir.join(&name)).is_ok_and(|again| again == bytes),
        "what is written is not what was read"
    );
    Ok(())
}

/// A node's `node.json`, and the same with a checksum that is right.
pub(super) fn identity_file(input: &[u8]) -> Result<(), String> {
    let dir = scratch::fresh("identity");
    let first = open_identity(&dir, input);
    let Err(why) = first else { return Ok(()) };
    let Some(sealed) = sealed(&why, input) else { return Err(why) };
    open_identity(&dir, &sealed).map(drop)
}

fn open_identity(dir: &Path, bytes: &[u8]) -> Result<Identity, String> {
    fs::write(dir.join("node.json"), bytes).expect("the scratch directory takes a file");
    let node = NodeId::new(1).expect("an id");
    let opened = IdentityStore::open(Arc::new(SystemFiles), dir, node).map_err(|e| e.to_string());
    match opened {
        Ok(store) => {
            let read = store.identity().clone();
            assert_eq!(read.node, node, "the identity of another node is taken");
            Ok(read)
        }
        Err(why) => {
            assert!(why.contains(&dir.display().to_string()), "the file is not named: {why}");
            Err(why)
        }
    }
}

/// The bytes with the checksum that the error says they should have.
fn sealed(why: &str, bytes: &[u8]) -> Option<Vec<u8>> {
    let (_, rest) = why.split_once("its checksum is ")?;
    let (right, rest) = rest.split_once(", and ")?;
    let (written, _) = rest.split_once(' ')?;
    let text = std::str::from_utf8(bytes).ok()?;
    Some(text.replacen(written, right, 1).into_bytes())
}

/// A data directory with damage: five bytes each, of which the first says to which file, three where, and one what.
pub(super) fn data_dir(input: &[u8]) -> Result<(), String> {
    thread_local! {
        static WHOLE: OnceCell<Whole> = const { OnceCell::new() };
    }
    WHOLE.with(|whole| whole.get_or_init(Whole::make).damage(input))
}

/// A data directory as a node leaves it, and what is in it.
struct Whole {
    files: Vec<(String, Vec<u8>)>,
    stored: Stored,
    snapshot: Option<Snapshot>,
}

impl Whole {
    fn make() -> Whole {
        let dir = scratch::fresh("whole");
        let (mut log, snapshots) = fuzzing::stores(open(&dir).expect("an empty directory"));
        let id = |index| v1::RaftLogId { term: 3, index };
        let entry = |index| v1::RaftEntry {
            id: Some(id(index)),
            payload: Some(v1::raft_entry::Payload::Normal(vec![index as u8; 40].into())),
        };
        let rows = |range: std::ops::Range<u64>| range.map(|i| (i, fuzzing::record(&entry(i)))).collect();
        let vote = v1::RaftVote { term: 3, node: 1, committed: true };
        let at = Position { term: Term::new(3), index: LogIndex::new(20) };
        let data = Bytes::from_static(&[7; 300]);
        snapshots.save(&Snapshot { at, membership: Bytes::from_static(b"members"), data }).expect("saved");
        for op in [
            LogOp::Vote(fuzzing::record(&vote)),
            LogOp::Append(rows(0..40)),
            LogOp::PurgeTo(20, fuzzing::record(&id(20))),
            LogOp::Append(rows(40..60)),
            LogOp::Committed(fuzzing::record(&id(59))),
            LogOp::TruncateFrom(58),
        ] {
            log.commit(&[op]).expect("written");
        }
        let stored = log.load().expect("read");
        let snapshot = snapshots.newest().expect("read");
        drop(log);
        let read = |path: &str| (path.to_owned(), fs::read(dir.join(path)).expect("it was written"));
        let files = vec![read("log.redb"), read("snapshots/00000000000000000020.snap")];
        Whole { files, stored, snapshot }
    }

    fn damage(&self, input: &[u8]) -> Result<(), String> {
        let dir = scratch::fresh("damaged");
        fs::create_dir(dir.join("snapshots")).expect("the scratch directory takes a directory");
        for (at, (path, bytes)) in self.files.iter().enumerate() {
            let mut bytes = bytes.clone();
            for blow in input.as_chunks::<5>().0.iter().filter(|blow| usize::from(blow[0] & 1) == at) {
                strike(&mut bytes, *blow);
            }
            fs::write(dir.join(path), bytes).expect("the scratch directory takes a file");
        }
        let named = |why: String| {
            assert!(why.contains(&dir.display().to_string()), "the file is not named: {why}");
            why
        };
        let (mut log, snapshots) = fuzzing::stores(open(&dir).map_err(named)?);
        let stored = log.load().map_err(|e| named(e.to_string()))?;
        let snapshot = snapshots.newest().map_err(|e| named(e.to_string()))?;
        assert!(snapshot == self.snapshot, "a damaged snapshot is taken for the one written");
        assert!(stored == self.stored, "a damaged log is taken for the one written");
        Ok(())
    }
}

/// A flipped bit, a byte or a page overwritten, or the end cut off.
fn strike(bytes: &mut Vec<u8>, [how, a, b, c, what]: [u8; 5]) {
    if bytes.is_empty() {
        return;
    }
    let at = u32::from_le_bytes([a, b, c, 0]) as usize % bytes.len();
    match how >> 1 & 7 {
        0 => bytes.truncate(at),
        1 => {
            let end = (at + 4_096).min(bytes.len());
            bytes[at..end].fill(what);
        }
        // Where the store keeps what it finds everything else by.
        2 => bytes[at % 512] ^= what | 1,
        3 => bytes[at] = what,
        _ => bytes[at] ^= 1 << (what & 7),
    }
}

fn open(dir: &Path) -> Result<Disk, String> {
    let (cluster, node) = (ClusterId::new("c1").expect("a name"), NodeId::new(1).expect("an id"));
    Disk::open(&(Arc::new(SystemFiles) as Arc<dyn Files>), dir, &cluster, node).map_err(|e| e.to_string())
}
