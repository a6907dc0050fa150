//! A manifest: what the fence remembers, and which objects are the data. It is pure: no store, no clock.
//!
//! There is one current manifest, and each is made from the one before. It holds the ids of the last commits, its own
//! first: the end of a chain in which each names its predecessor.

use super::failure::{Fate, shown, unfit};
use super::ids::{CommitId, DataName};
use crate::high_water::{Decide, decide_all};
use crate::{FenceError, FencingToken, HighWater, same_cluster};
use ringfence_core::ids::{ClusterId, Epoch, Scope, SessionId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How many commits a manifest remembers: within so many a lost answer is resolved. At the few commits a second that a
/// store of S3's kind takes over one object, that is a minute or more; in JSON it is 4 kB.
pub const RECENT_COMMITS: usize = 256;

/// The largest manifest, in bytes of JSON. Each commit reads and writes it whole.
pub const MAX_MANIFEST_BYTES: u64 = 4 << 20;

/// How much of [`MAX_MANIFEST_BYTES`] a write leaves: a successor must always be able to raise. It takes the rows of hundreds
/// of scopes that were never raised before; a scope that has its row takes a few digits.
pub const RAISE_RESERVE_BYTES: u64 = 64 << 10;

/// The longest key of an entry, in bytes.
pub const MAX_KEY_BYTES: usize = 1024;

/// The format written, and the newest that is read.
const FORMAT: u32 = 1;

/// An object that is part of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) object: DataName,
    pub(super) bytes: u64,
}

/// What the fence remembers of a scope, and the number of the commit that brought its epoch in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fencing {
    pub(super) row: HighWater,
    since: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Manifest {
    pub(super) cluster: ClusterId,
    /// Counted from one.
    pub(super) number: u64,
    /// Data that was uploaded before this number and is not named here never will be.
    pub(super) floor: u64,
    pub(super) fences: BTreeMap<Scope, Fencing>,
    pub(super) entries: BTreeMap<String, Entry>,
    /// The newest first, and never empty.
    commits: Vec<CommitId>,
}

impl Manifest {
    /// What follows on `before`, still with all that it holds.
    pub(super) fn after(before: Option<&Manifest>, cluster: &ClusterId, commit: CommitId) -> Manifest {
        let Some(before) = before else {
            let (fences, entries) = (BTreeMap::new(), BTreeMap::new());
            return Manifest {
                cluster: cluster.clone(),
                number: 1,
                floor: 0,
                fences,
                entries,
                commits: vec![commit],
            };
        };
        let commits =
            std::iter::once(commit).chain(before.commits.iter().copied()).take(RECENT_COMMITS).collect();
        Manifest { number: before.number + 1, commits, ..before.clone() }
    }

    pub(super) fn commit(&self) -> CommitId {
        self.commits[0]
    }

    /// What became of a commit under these tokens that would have this number.
    pub(super) fn fate(&self, number: u64, commit: CommitId, tokens: &[FencingToken]) -> Fate {
        let Some(back) = self.number.checked_sub(number) else { return Fate::Open };
        match usize::try_from(back).ok().and_then(|back| self.commits.get(back)) {
            Some(there) if *there == commit => Fate::Committed,
            Some(_) => Fate::Refused,
            // A newer epoch came in with this number or before it, and nothing older has committed since.
            None if tokens.iter().any(|token| self.was_past(token, number)) => Fate::Refused,
            None => Fate::Forgotten,
        }
    }

    fn was_past(&self, token: &FencingToken, number: u64) -> bool {
        let fence = self.fences.get(token.scope());
        fence.is_some_and(|fence| fence.row.epoch() > token.epoch() && fence.since <= number)
    }

    /// Keeps rows that the rule has answered.
    pub(super) fn remember(&mut self, rows: BTreeMap<Scope, HighWater>) {
        for (scope, row) in rows {
            let before = self.fences.get(&scope).filter(|fence| fence.row.epoch() == row.epoch());
            let since = before.map_or(self.number, |fence| fence.since);
            self.fences.insert(scope, Fencing { row, since });
        }
    }

    /// The rows as they must be when the tokens are let through. The first that is not decides.
    pub(super) fn judge(
        of: Option<&Manifest>,
        cluster: &ClusterId,
        tokens: &[FencingToken],
        decide: Decide,
    ) -> Result<BTreeMap<Scope, HighWater>, FenceError> {
        tokens.iter().try_for_each(|token| same_cluster(cluster, token))?;
        if let Some(manifest) = of.filter(|manifest| manifest.cluster != *cluster) {
            return Err(FenceError::WrongCluster {
                presented: cluster.clone(),
                bound: manifest.cluster.clone(),
            });
        }
        let rows = decide_all(tokens, |scope| Some(of?.fences.get(scope)?.row), decide)?;
        Ok(rows.into_iter().map(|(scope, row)| (scope.clone(), row)).collect())
    }

    pub(super) fn encode(&self) -> Result<Vec<u8>, FenceError> {
        let fences = self.fences.iter().map(|(scope, fence)| {
            let (epoch, session) = (fence.row.epoch().get(), fence.row.session().map(SessionId::get));
            (scope.to_string(), Row { epoch, session, since: fence.since })
        });
        let entries = self.entries.iter().map(|(key, entry)| {
            (key.clone(), Object { object: entry.object.to_string(), bytes: entry.bytes })
        });
        let mut commits = String::with_capacity(self.commits.len() * CommitId::DIGITS);
        self.commits.iter().for_each(|id| commits.push_str(&id.to_string()));
        let whole = Whole {
            format: FORMAT,
            cluster: self.cluster.to_string(),
            number: self.number,
            floor: self.floor,
            commits,
            fences: fences.collect(),
            entries: entries.collect(),
        };
        let text = serde_json::to_vec(&whole)
            .map_err(|error| FenceError::Unfit { why: format!("the manifest cannot be written: {error}") })?;
        if text.len() as u64 > MAX_MANIFEST_BYTES {
            return Err(unfit(&format!(
                "the manifest would be {} bytes, and {MAX_MANIFEST_BYTES} (MAX_MANIFEST_BYTES) is the bound: remove keys by \
                 a write, or give each scope a manifest of its own",
                text.len()
            )));
        }
        Ok(text)
    }

    /// The same for a write, which leaves room for raises. One that makes the entries no larger is let through all the same.
    pub(super) fn encode_for_write(&self, before: Option<&Manifest>) -> Result<Vec<u8>, FenceError> {
        const MOST: u64 = MAX_MANIFEST_BYTES - RAISE_RESERVE_BYTES;
        let text = self.encode()?;
        if text.len() as u64 > MOST && self.entries_bytes() > before.map_or(0, Manifest::entries_bytes) {
            return Err(unfit(&format!(
                "the manifest would be {} bytes, and writes may fill it to {MOST} (MAX_MANIFEST_BYTES less what is kept for raises): \
                 remove keys, put more into each object, or give each scope a manifest of its own",
                text.len()
            )));
        }
        Ok(text)
    }

    /// What the entries take, but for what is the same for each.
    fn entries_bytes(&self) -> usize {
        let digits = |number: u64| number.checked_ilog10().unwrap_or(0) as usize + 1;
        // A quote or a control character takes more than itself, and its key stands there or does not.
        let key = |key: &str| serde_json::to_string(key).map_or(key.len(), |text| text.len());
        // Around them stand `:{"object":"...","bytes":},`.
        self.entries.iter().map(|(name, entry)| key(name) + digits(entry.bytes) + 75).sum()
    }

    /// Reads a manifest. `place` is for the message.
    pub(super) fn decode(text: &[u8], place: &str) -> Result<Read, FenceError> {
        let corrupt = |found: String| FenceError::Corrupt { place: place.to_owned(), found };
        let no_json =
            |error: serde_json::Error| corrupt(format!("no manifest ({})", shown(&error.to_string())));
        let whole: Whole = match serde_json::from_slice(text) {
            Ok(whole) => whole,
            // One that was shrunk, or of another format, has other fields.
            Err(error) => match serde_json::from_slice(text).map_err(no_json)? {
                Head { format: FORMAT, shrunk: true } => return Ok(Read::Shrunk),
                Head { format: FORMAT, .. } => return Err(no_json(error)),
                Head { format, .. } => return Err(corrupt(other_format(format))),
            },
        };
        if whole.format != FORMAT {
            return Err(corrupt(other_format(whole.format)));
        }
        whole
            .check()
            .map(Read::Whole)
            .map_err(|(what, value)| corrupt(format!("the {what} \"{}\"", shown(&value))))
    }

    /// What is left of a manifest of a chain that nobody needs any more. Its name stays taken.
    pub(super) fn shrunk(number: u64) -> Vec<u8> {
        format!("{{\"format\":{FORMAT},\"number\":{number},\"shrunk\":true}}").into_bytes()
    }
}

fn other_format(format: u32) -> String {
    format!(
        "a manifest of format {format}, and this program knows format {FORMAT}: run the newer program everywhere"
    )
}

/// What was read.
#[derive(Debug)]
pub(super) enum Read {
    Whole(Manifest),
    Shrunk,
}

pub(super) fn key_must_be_sound(key: &str) -> Result<(), FenceError> {
    if key.is_empty() || key.len() > MAX_KEY_BYTES {
        return Err(unfit(&format!("a key is 1 to {MAX_KEY_BYTES} bytes, and this one has {}", key.len())));
    }
    Ok(())
}

#[derive(Deserialize)]
struct Head {
    format: u32,
    #[serde(default)]
    shrunk: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Whole {
    format: u32,
    cluster: String,
    number: u64,
    floor: u64,
    /// Sixteen digits each, one behind the other.
    commits: String,
    fences: BTreeMap<String, Row>,
    entries: BTreeMap<String, Object>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    epoch: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session: Option<u64>,
    since: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Object {
    object: String,
    bytes: u64,
}

impl Whole {
    /// Each value, or the first that cannot be one.
    fn check(self) -> Result<Manifest, (&'static str, String)> {
        let cluster = ClusterId::new(&self.cluster).map_err(|_| ("cluster", self.cluster.clone()))?;
        // The commits go back to the first one, or as far as they are kept.
        let kept = usize::try_from(self.number).unwrap_or(usize::MAX).min(RECENT_COMMITS);
        if self.number == 0 || self.number == u64::MAX || self.commits.len() != kept * CommitId::DIGITS {
            return Err(("number", format!("{} with {} digits of commits", self.number, self.commits.len())));
        }
        if self.floor > self.number {
            return Err(("floor", self.floor.to_string()));
        }
        let ids = self.commits.as_bytes().chunks(CommitId::DIGITS);
        let commits = ids
            .map(|id| CommitId::read(id).ok_or_else(|| ("commit", String::from_utf8_lossy(id).into_owned())));
        let fences = self.fences.into_iter().map(|(scope, row)| {
            let epoch = Epoch::new(row.epoch).map_err(|_| ("epoch", row.epoch.to_string()))?;
            let session = match row.session {
                Some(number) => Some(SessionId::new(number).ok_or(("session", number.to_string()))?),
                None => None,
            };
            if row.since == 0 || row.since > self.number {
                return Err(("since", row.since.to_string()));
            }
            let fence = Fencing { row: HighWater::new(epoch, session), since: row.since };
            Ok((scope.parse().map_err(|_| ("scope", scope))?, fence))
        });
        let entries = self.entries.into_iter().map(|(key, entry)| {
            key_must_be_sound(&key).map_err(|_| ("key", key.clone()))?;
            let object = entry.object.parse().map_err(|()| ("object", entry.object))?;
            Ok((key, Entry { object, bytes: entry.bytes }))
        });
        Ok(Manifest {
            cluster,
            number: self.number,
            floor: self.floor,
            commits: commits.collect::<Result<_, (&'static str, String)>>()?,
            fences: fences.collect::<Result<_, (&'static str, String)>>()?,
            entries: entries.collect::<Result<_, (&'static str, String)>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn prod() -> ClusterId {
        ClusterId::new("prod").unwrap()
    }

    fn chain(length: u64) -> (Manifest, Vec<CommitId>) {
        let ids: Vec<CommitId> = (0..length).map(|_| CommitId::draw().unwrap()).collect();
        let mut manifest = Manifest::after(None, &prod(), ids[0]);
        for id in &ids[1..] {
            manifest = Manifest::after(Some(&manifest), &prod(), *id);
        }
        (manifest, ids)
    }

    fn read_back(manifest: &Manifest) -> Manifest {
        match Manifest::decode(&manifest.encode().unwrap(), "m").unwrap() {
            Read::Whole(manifest) => manifest,
            Read::Shrunk => panic!("it is whole"),
        }
    }

    fn token(epoch: u64) -> FencingToken {
        format!("prod/orders/17@{epoch}").parse().unwrap()
    }

    fn raised(before: &Manifest, epoch: u64) -> Manifest {
        let mut next = Manifest::after(Some(before), &prod(), CommitId::draw().unwrap());
        let rows = Manifest::judge(Some(before), &prod(), &[token(epoch)], HighWater::raise).unwrap();
        next.remember(rows);
        next
    }

    #[test]
    fn the_chain_tells_what_became_of_a_commit_as_far_back_as_it_goes() {
        let (manifest, ids) = chain(600);
        let manifest = read_back(&manifest);
        let stranger = CommitId::draw().unwrap();
        let fate = |number, id| manifest.fate(number, id, &[token(33)]);
        assert_eq!(fate(600, ids[599]), Fate::Committed);
        assert_eq!(fate(345, ids[344]), Fate::Committed);
        assert_eq!(fate(345, stranger), Fate::Refused);
        assert_eq!(fate(344, ids[343]), Fate::Forgotten);
        assert_eq!(fate(601, stranger), Fate::Open);
    }

    #[test]
    fn what_the_chain_has_forgotten_the_fence_may_know() {
        let (manifest, _) = chain(1);
        let mut manifest = raised(&raised(&manifest, 33), 34);
        for _ in 0..600 {
            // The owner going on keeps the number with which its epoch came.
            manifest = raised(&manifest, 34);
        }
        let manifest = read_back(&manifest);
        let stalled = CommitId::draw().unwrap();
        // 34 came with number 3: under 33 there was no commit of that number or of a higher one.
        assert_eq!(manifest.fate(3, stalled, &[token(33)]), Fate::Refused);
        assert_eq!(manifest.fate(4, stalled, &[token(33)]), Fate::Refused);
        assert_eq!(manifest.fate(2, stalled, &[token(33)]), Fate::Forgotten);
        assert_eq!(manifest.fate(3, stalled, &[token(34)]), Fate::Forgotten);
    }

    #[test]
    fn a_manifest_is_read_back_as_it_was() {
        let (mut manifest, _) = chain(3);
        let row = HighWater::new(Epoch::MAX, SessionId::new(u64::MAX));
        manifest.remember(BTreeMap::from([("orders/17".parse().unwrap(), row)]));
        let entry = Entry { object: DataName::draw(2).unwrap(), bytes: u64::MAX };
        manifest.entries.insert("a \"key\"\n/..".into(), entry);
        assert_eq!(read_back(&manifest), manifest);
        assert!(matches!(Manifest::decode(&Manifest::shrunk(7), "m"), Ok(Read::Shrunk)));
    }

    #[test]
    fn t17_f096_a_manifest_that_is_none_refuses_everything_and_says_what_it_holds() {
        let (manifest, _) = chain(2);
        let text = String::from_utf8(manifest.encode().unwrap()).unwrap();
        let with_row = |row: &str| text.replace("\"fences\":{}", &format!("\"fences\":{{{row}}}"));
        for (bad, word) in [
            (String::new(), "no manifest"),
            ("{}".into(), "format"),
            ("[1]".into(), "no manifest"),
            (text.replace("\"format\":1", "\"format\":2"), "format 2"),
            (text.replace("\"number\":2", "\"number\":3"), "number"),
            (text.replace("\"number\":2", "\"number\":0"), "number"),
            (text.replace("\"number\":2", "\"number\":-2"), "no manifest"),
            (text.replace("\"floor\":0", "\"floor\":9"), "floor"),
            (text.replace("prod", "Prod"), "cluster"),
            (text.replace("\"commits\":\"", "\"commits\":\"0"), "number"),
            (
                text.replace("\"commits\":\"", "\"commits\":\"ABCDEF0123456789")
                    .replace("\"number\":2", "\"number\":3"),
                "commit",
            ),
            (with_row("\"orders/17\":{\"epoch\":0,\"since\":1}"), "epoch"),
            (with_row("\"orders/17\":{\"epoch\":9007199254740992,\"since\":1}"), "epoch"),
            (with_row("\"orders/17\":{\"epoch\":1.5,\"since\":1}"), "no manifest"),
            (with_row("\"orders/17\":{\"epoch\":1,\"session\":0,\"since\":1}"), "session"),
            (with_row("\"orders\":{\"epoch\":1,\"since\":1}"), "scope"),
            (with_row("\"orders/17\":{\"epoch\":1,\"since\":3}"), "since"),
            (
                text.replace("\"entries\":{}", "\"entries\":{\"k\":{\"object\":\"../x\",\"bytes\":1}}"),
                "object",
            ),
            (text.replace("\"entries\"", "\"entires\""), "no manifest"),
            (text[..text.len() - 1].into(), "no manifest"),
        ] {
            match Manifest::decode(bad.as_bytes(), "the manifest") {
                Err(FenceError::Corrupt { found, .. }) => assert!(found.contains(word), "{bad}: {found}"),
                other => panic!("{bad}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_manifest_that_grows_too_large_is_refused_by_its_bound() {
        let (mut manifest, _) = chain(1);
        for at in 0..5_000 {
            let entry = Entry { object: DataName::draw(1).unwrap(), bytes: 1 };
            manifest.entries.insert(format!("{at:01000}"), entry);
        }
        let error = manifest.encode().unwrap_err();
        assert!(error.to_string().contains("MAX_MANIFEST_BYTES"), "{error}");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn f096_no_content_of_a_manifest_is_a_panic(
            at in 0..400_usize, byte in any::<u8>(), cut in any::<bool>(), noise in any::<Vec<u8>>(),
        ) {
            let _ = Manifest::decode(&noise, "m");
            let mut text = chain(3).0.encode().unwrap();
            let at = at % text.len();
            text[at] = byte;
            if cut {
                text.truncate(at);
            }
            if let Ok(Read::Whole(manifest)) = Manifest::decode(&text, "m") {
                prop_assert_eq!(read_back(&manifest), manifest);
            }
        }
    }
}
