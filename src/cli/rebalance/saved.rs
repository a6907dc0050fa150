//! A plan in a file, between the one who made it and the one who applies it.
//!
//! It is JSON, for people to read and for programs to make. What is read is held against every rule before anything of it is
//! sent: the file may have been cut short, edited, or made by another version or for another cluster. Its lineage, its
//! revision and its epochs are what keeps it from being applied to another map: a cluster that was restored has another
//! lineage, and a keyspace that was created again higher epochs. The coordinator compares them.

use crate::exit::Failed;
use ringfence::admin::{Plan, Proposal, ProposedMove};
use ringfence::ids::{ClusterId, Epoch, KeyspaceName, PartitionId, Revision, WorkerId};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use tempfile::NamedTempFile;

/// What this version writes, and the newest that it reads.
const FORMAT: u64 = 1;
/// The largest file that is read: a million moves with the longest names.
const MAX_BYTES: u64 = 512 << 20;

/// The file.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SavedPlan {
    format: u64,
    cluster_id: String,
    keyspace: String,
    /// The map that it was made from.
    lineage: String,
    revision: u64,
    /// How many moves follow: a file that was cut and mended is noticed.
    size: usize,
    moves: Vec<SavedMove>,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedMove {
    partition: u32,
    epoch: u64,
    from: String,
    to: String,
    reason: String,
}

/// The one field that every format has.
#[derive(Deserialize)]
struct Head {
    format: u64,
}

impl SavedPlan {
    /// What there is to approve of a plan.
    pub(super) fn of(plan: &Plan, cluster: &ClusterId) -> Result<SavedPlan, Failed> {
        let proposal = plan.proposal()?;
        // Both are ascending: but for the moves that are left out, they go side by side.
        let mut rest = plan.moves.iter();
        let mut reason_of = |partition| {
            let planned = rest.by_ref().find(|planned| planned.partition == partition);
            planned.map(|planned| planned.reason.clone()).unwrap_or_default()
        };
        let saved = |planned: &ProposedMove| SavedMove {
            partition: planned.partition.get(),
            epoch: planned.epoch.get(),
            from: planned.from.to_string(),
            to: planned.to.to_string(),
            reason: reason_of(planned.partition),
        };
        let moves: Vec<SavedMove> = proposal.moves.iter().map(saved).collect();
        Ok(SavedPlan {
            format: FORMAT,
            cluster_id: cluster.to_string(),
            keyspace: plan.keyspace.to_string(),
            lineage: plan.lineage.to_string(),
            revision: plan.revision.get(),
            size: moves.len(),
            moves,
        })
    }

    /// Writes the file, whole or not at all. What is there already is replaced when it is a file; a link is followed.
    pub(super) fn write(&self, path: &Path) -> Result<(), Failed> {
        let resolved = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        if std::fs::metadata(&resolved).is_ok_and(|found| !found.is_file()) {
            return Err(Failed::refused(format!(
                "{} is no file, and a plan is not written to it: name a file, or leave --save out and take -o json",
                path.display()
            )));
        }
        let path = resolved.as_path();
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let write = || -> io::Result<()> {
            let mut file = NamedTempFile::new_in(dir)?;
            serde_json::to_writer_pretty(&mut file, self)?;
            writeln!(file)?;
            file.as_file().sync_all()?;
            file.persist(path).map_err(|error| error.error)?;
            Ok(())
        };
        write().map_err(|error| Failed::io(format!("writing {}: {error}", path.display())))
    }

    /// Reads a file, and checks all of it.
    pub(super) fn read(path: &Path) -> Result<(ClusterId, Proposal), Failed> {
        let shown = path.display();
        let reading = |error: io::Error| Failed::io(format!("reading {shown}: {error}"));
        let file = File::open(path).map_err(reading)?;
        let mut text = String::new();
        let read = file.take(MAX_BYTES + 1).read_to_string(&mut text);
        if read.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::InvalidData) {
            read.map_err(reading)?;
        }
        let no_plan = |why: String| {
            Failed::refused(format!(
                "{shown} is not a plan that `ringfence rebalance plan --save` wrote: {why}; make it again"
            ))
        };
        if text.len() as u64 > MAX_BYTES {
            return Err(no_plan(format!("it has more than {MAX_BYTES} bytes")));
        }
        let head: Head = serde_json::from_str(&text).map_err(|error| no_plan(error.to_string()))?;
        if head.format > FORMAT {
            return Err(Failed::refused(format!(
                "{shown} was written by a newer ringfence: it has format {}, and this version reads up to {FORMAT}; use \
                 that version, or make the plan again with this one",
                head.format
            )));
        }
        let saved: SavedPlan = serde_json::from_str(&text).map_err(|error| no_plan(error.to_string()))?;
        saved.checked().map_err(no_plan)
    }

    fn checked(self) -> Result<(ClusterId, Proposal), String> {
        if self.format != FORMAT {
            return Err(format!("there is no format {}", self.format));
        }
        if self.size != self.moves.len() {
            return Err(format!("it says that it has {} moves, and has {}", self.size, self.moves.len()));
        }
        let cluster = ClusterId::new(&self.cluster_id).map_err(|error| format!("cluster_id: {error}"))?;
        let keyspace = KeyspaceName::new(&self.keyspace).map_err(|error| format!("keyspace: {error}"))?;
        let moves = self.moves.iter().enumerate();
        let moves =
            moves.map(|(place, saved)| saved.checked().map_err(|why| format!("moves[{place}]: {why}")));
        let moves: Vec<ProposedMove> = moves.collect::<Result<_, _>>()?;
        if !moves.is_sorted_by(|a, b| a.partition < b.partition) {
            return Err("its moves are not ascending by partition".to_owned());
        }
        let lineage: u64 = self.lineage.parse().map_err(|_| "lineage: it is no number".to_owned())?;
        // On the wire 0 stands for none, and what is not named is not checked.
        if lineage == 0 || self.revision == 0 {
            return Err("lineage and revision: neither is 0".to_owned());
        }
        let (revision, lineage) = (Some(Revision::new(self.revision)), Some(lineage));
        Ok((cluster, Proposal { keyspace, moves, undoes: None, revision, lineage }))
    }
}

impl SavedMove {
    fn checked(&self) -> Result<ProposedMove, String> {
        let worker =
            |field: &str, name: &str| WorkerId::new(name).map_err(|error| format!("{field}: {error}"));
        let planned = ProposedMove {
            partition: PartitionId::new(self.partition),
            epoch: Epoch::new(self.epoch).map_err(|error| format!("epoch: {error}"))?,
            from: worker("from", &self.from)?,
            to: worker("to", &self.to)?,
            arrives: false,
        };
        if planned.from == planned.to {
            return Err("from and to are the same worker".to_owned());
        }
        Ok(planned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    const CLUSTER: &str = "cluster-1";

    fn saved() -> SavedPlan {
        let one = |partition| SavedMove {
            partition,
            epoch: 5,
            from: "w1".to_owned(),
            to: "w2".to_owned(),
            reason: "balance".to_owned(),
        };
        SavedPlan {
            format: FORMAT,
            cluster_id: CLUSTER.to_owned(),
            keyspace: "orders".to_owned(),
            lineage: u64::MAX.to_string(),
            revision: 9,
            size: 2,
            moves: vec![one(1), one(4)],
        }
    }

    fn refused(text: &str) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path: PathBuf = dir.path().join("plan");
        std::fs::write(&path, text).unwrap();
        match SavedPlan::read(&path).unwrap_err() {
            Failed::Error { message, .. } => message,
            Failed::PipeClosed => panic!("{text}"),
        }
    }

    #[test]
    fn a_saved_plan_is_the_same_when_it_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("plan");
        saved().write(&path).unwrap();
        let (cluster, proposal) = SavedPlan::read(&path).unwrap();
        assert_eq!((cluster.to_string().as_str(), proposal.keyspace.as_str()), (CLUSTER, "orders"));
        let moves: Vec<(u32, u64)> =
            proposal.moves.iter().map(|planned| (planned.partition.get(), planned.epoch.get())).collect();
        assert_eq!(moves, [(1, 5), (4, 5)]);
        assert!(SavedPlan::read(&dir.path().join("absent")).is_err());
        assert!(saved().write(&dir.path().join("absent/plan")).is_err());
    }

    #[test]
    fn only_a_file_is_replaced_and_a_link_to_one_stays_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("plan"), "old").unwrap();
        std::os::unix::fs::symlink(at("plan"), at("link")).unwrap();
        saved().write(&at("link")).unwrap();
        assert!(at("link").is_symlink());
        assert!(SavedPlan::read(&at("plan")).is_ok(), "it is in the file that the link names");
        let (_reader, pipe) = std::io::pipe().unwrap();
        let pipe = PathBuf::from(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&pipe)));
        for no_file in [dir.path(), Path::new("/dev/null"), &pipe] {
            let Failed::Error { message, .. } = saved().write(no_file).unwrap_err() else {
                panic!("{no_file:?}")
            };
            assert!(message.contains("is no file"), "{message}");
        }
    }

    #[test]
    fn f096_a_file_that_is_no_plan_is_refused_with_what_to_do() {
        let good = serde_json::to_string(&saved()).unwrap();
        let with = |change: &dyn Fn(&mut SavedPlan)| {
            let mut plan = saved();
            change(&mut plan);
            serde_json::to_string(&plan).unwrap()
        };
        for (text, said) in [
            (String::new(), "make it again"),
            ("[]".to_owned(), "make it again"),
            (good[..good.len() / 2].to_owned(), "make it again"),
            (good.replace("\"revision\":9", "\"revision\":-1"), "make it again"),
            (good.replace("\"revision\":9", "\"revision\":9,\"more\":1"), "more"),
            (with(&|plan| plan.format = 0), "no format 0"),
            (with(&|plan| plan.size = 3), "says that it has 3 moves, and has 2"),
            (with(&|plan| plan.cluster_id = "A B".to_owned()), "cluster_id"),
            (with(&|plan| plan.keyspace = "\u{1b}[2J".to_owned()), "keyspace"),
            (with(&|plan| plan.moves[1].epoch = 0), "moves[1]: epoch"),
            (with(&|plan| plan.moves[1].epoch = u64::MAX), "moves[1]: epoch"),
            (with(&|plan| plan.moves[0].to = "w1".to_owned()), "moves[0]: from and to"),
            (with(&|plan| plan.moves[0].from = String::new()), "moves[0]: from"),
            (with(&|plan| plan.lineage = "-1".to_owned()), "lineage"),
            (with(&|plan| plan.lineage = "0".to_owned()), "neither is 0"),
            (with(&|plan| plan.revision = 0), "neither is 0"),
            (with(&|plan| plan.moves.reverse()), "ascending"),
        ] {
            let message = refused(&text);
            assert!(message.contains(said) && message.contains("make it again"), "{said}: {message}");
        }
        let bytes = [0xff, 0xfe, 0x00];
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("plan");
        std::fs::write(&path, bytes).unwrap();
        assert!(SavedPlan::read(&path).is_err());
    }

    #[test]
    fn a_file_of_a_newer_version_is_refused_and_not_guessed_at() {
        let message = refused(r#"{"format":2,"whatever":{"else":[]}}"#);
        assert!(message.contains("format 2") && message.contains("up to 1"), "{message}");
        assert!(message.contains("make the plan again"), "{message}");
    }
}
