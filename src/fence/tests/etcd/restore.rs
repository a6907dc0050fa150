//! A store that was restored from a copy: what is noticed, and what is not.

use crate::server::{Client, Server, available, etcdctl};
use crate::subject::{Fenced, cluster, token};
use ringfence_fence::etcd::{EtcdConnection, EtcdError, EtcdFence, EtcdKv, Txn, TxnReply};
use ringfence_fence::{FenceError, FenceErrorKind, FencingToken};
use std::path::Path;
use std::process::Command;
use std::slice::from_ref;

/// The old owner's process, and a store in which its successor has raised and which is then as it was before that.
struct Story {
    db: Fenced,
    copy: tempfile::TempDir,
    old: FencingToken,
    new: FencingToken,
}

impl Story {
    fn new() -> Story {
        let mut db = Fenced::new();
        let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
        db.raise(&old).unwrap();
        db.set(&old, "33").unwrap();
        let copy = tempfile::tempdir().unwrap();
        Story { db, copy, old, new }
    }

    fn back_up(&mut self) {
        self.db.server.kill();
        copy_all(&self.db.server.data(), self.copy.path());
        self.db.server.start_again();
    }

    /// The next owner, elsewhere.
    fn successor(&mut self) {
        let mut next = self.db.server.client();
        let fence = next.with(async |etcd| EtcdFence::install(etcd, &cluster("prod")).await).unwrap();
        next.with(async |etcd| fence.raise(etcd, &self.new).await).unwrap();
    }

    fn restore(&mut self) {
        self.db.server.kill();
        std::fs::remove_dir_all(self.db.server.data()).unwrap();
        copy_all(self.copy.path(), &self.db.server.data());
        self.db.server.start_again();
    }

    /// What the old owner is answered, once its broken connection is behind it.
    fn late(&mut self) -> Result<(), FenceError> {
        loop {
            match self.db.set(&self.old.clone(), "33, late") {
                Err(error) if matches!(error.kind(), FenceErrorKind::Busy | FenceErrorKind::Store) => {}
                answer => return answer,
            }
        }
    }
}

fn copy_all(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_all(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[test]
fn t15_a_restored_store_that_lacks_what_an_owner_has_seen_accepts_nobody_until_they_have_raised_again() {
    if !available() {
        return;
    }
    let mut story = Story::new();
    story.back_up();
    // The old owner goes on for a while, and is paused then.
    story.late().unwrap();
    story.db.set(&story.old.clone(), "33 goes on").unwrap();
    story.successor();
    story.restore();
    assert_eq!(story.late().unwrap_err().kind(), FenceErrorKind::Replaced);
    assert_eq!(story.db.client.get("k").as_deref(), Some("33"));
    // Everybody else is told too, also a process that has just come.
    let mut fresh = story.db.server.client();
    let fence = fresh.with(async |etcd| EtcdFence::install(etcd, &cluster("prod")).await).unwrap();
    let write = Txn::new().put("k", "33, by another process");
    let answer = fresh.with(async |etcd| fence.write(etcd, from_ref(&story.old), &write).await);
    assert_eq!(answer.unwrap_err().kind(), FenceErrorKind::Replaced);
    // The owner whom the coordinator confirms raises, and goes on; the old one is fenced again.
    fresh.with(async |etcd| fence.raise(etcd, &story.new).await).unwrap();
    fresh.with(async |etcd| fence.write(etcd, from_ref(&story.new), &write).await).unwrap();
    assert_eq!(story.late().unwrap_err().kind(), FenceErrorKind::Fenced);
}

/// The control, and the limit: who has seen nothing newer than the copy cannot tell; the operator can.
#[test]
fn t57_t15_a_copy_newer_than_all_that_an_owner_has_seen_accepts_it_unless_the_operator_says_so() {
    if !available() {
        return;
    }
    let mut story = Story::new();
    story.back_up();
    story.successor();
    story.restore();
    story.late().unwrap();
    assert_eq!(story.db.client.get("k").as_deref(), Some("33, late"));

    story.successor();
    story.restore();
    let mut operator = story.db.server.client();
    let fence = operator.with(async |etcd| EtcdFence::install(etcd, &cluster("prod")).await).unwrap();
    operator.with(async |etcd| fence.declare_restored(etcd).await).unwrap();
    assert_eq!(story.late().unwrap_err().kind(), FenceErrorKind::Replaced);
    assert_eq!(story.db.client.get("k").as_deref(), Some("33"));
    story.db.raise(&story.new.clone()).unwrap();
    story.db.set(&story.new.clone(), "34").unwrap();
}

#[test]
fn t15_a_snapshot_that_was_restored_under_a_new_token_is_another_cluster_and_is_noticed_by_everybody() {
    let Some(etcdctl) = etcdctl() else { return };
    let mut story = Story::new();
    let run = |server: &Server, words: &[&str]| {
        let out = Command::new(&etcdctl)
            .args(["--endpoints", &server.address()])
            .args(words)
            .env("ETCDCTL_API", "3")
            .output()
            .unwrap();
        assert!(out.status.success(), "{words:?}: {}", String::from_utf8_lossy(&out.stderr));
    };
    let file = story.copy.path().join("snapshot").display().to_string();
    run(&story.db.server, &["snapshot", "save", &file]);
    story.successor();
    story.db.server.kill();
    std::fs::remove_dir_all(story.db.server.data()).unwrap();
    let peer = story.db.server.argument("initial-advertise-peer-urls");
    let data = story.db.server.argument("data-dir");
    let words = [
        "snapshot",
        "restore",
        &file,
        "--name=m0",
        &format!("--data-dir={data}"),
        &format!("--initial-cluster=m0={peer}"),
        &format!("--initial-advertise-peer-urls={peer}"),
        "--initial-cluster-token=another",
    ];
    run(&story.db.server, &words);
    story.db.server.start_again();
    // It has seen no revision that the copy lacks.
    assert_eq!(story.late().unwrap_err().kind(), FenceErrorKind::Replaced);
    story.db.raise(&story.new.clone()).unwrap();
    assert_eq!(story.late().unwrap_err().kind(), FenceErrorKind::Fenced);
}

/// A library that connects again by itself, and does not tell.
struct Hidden(EtcdConnection);

impl EtcdKv for Hidden {
    async fn connection(&mut self) -> Result<u64, EtcdError> {
        Ok(0)
    }

    async fn txn(&mut self, txn: Txn) -> Result<TxnReply, EtcdError> {
        self.0.connection().await?;
        self.0.txn(txn).await
    }
}

#[test]
fn t15_behind_a_library_that_hides_its_connections_it_is_noticed_with_the_first_answer() {
    if !available() {
        return;
    }
    let mut story = Story::new();
    story.back_up();
    let client = Client::to(&[story.db.server.address()]);
    let (mut hidden, old) = (Hidden(client.etcd.clone()), story.old.clone());
    let fence = client.wait(EtcdFence::install(&mut hidden, &cluster("prod"))).unwrap();
    let mut write = |value: &str| {
        let txn = Txn::new().put("k", value);
        client.wait(fence.write(&mut hidden, from_ref(&old), &txn))
    };
    write("33 goes on").unwrap();
    story.successor();
    story.restore();
    let mut errors = Vec::new();
    let last = loop {
        match write("33, late").unwrap_err() {
            error if error.kind() == FenceErrorKind::Replaced => break error,
            error => errors.push(format!("{error:?}")),
        }
    };
    assert!(errors.iter().any(|error| error.contains("WentBack")), "{errors:?}");
    assert!(matches!(last, FenceError::Replaced { .. }));
    // What it promises to say, it says: that one write is there.
    assert_eq!(story.db.server.client().get("k").as_deref(), Some("33, late"));
}
