//! A data directory that version 0.1 wrote, and that every later version must read: `node.json`, `log.redb` and a snapshot.
//!
//! The log is mostly holes, so it is kept as its pages that are not empty: offset and bytes, line by line.

use crate::settings::Settings;
use crate::testing::{admin, create, join};
use crate::{Coordinator, raft::Compaction};
use ringfence_api::v1;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

const PAGE: usize = 512;

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/data-dir-1")
}

fn settings(dir: &Path) -> Settings {
    let mut settings = Settings::durable(dir);
    settings.compaction = Compaction { entries: 8, keep: 2, ..Compaction::default() };
    settings
}

/// The epochs of the partitions of `orders`; 0 where none was granted.
async fn epochs(node: &Coordinator) -> Vec<u64> {
    let list = v1::ListPartitionsRequest { keyspace: "orders".to_owned() };
    let mut list = admin(node).await.list_partitions(list).await.unwrap().into_inner();
    let mut epochs = Vec::new();
    while let Some(part) = list.message().await.unwrap() {
        epochs.extend(part.partitions.iter().map(|partition| partition.epoch));
    }
    epochs
}

/// Run once, when the format was new: `cargo test -p ringfence-server write_golden -- --ignored`.
#[tokio::test]
#[ignore = "writes a golden directory; a format that landed never changes"]
async fn write_golden() {
    let dir = tempfile::tempdir().unwrap();
    let node = Coordinator::with(settings(dir.path())).start().await.unwrap();
    let mut client = admin(&node).await;
    for name in ["orders", "bills", "gone"] {
        client.create_keyspace(create(name, 3)).await.unwrap();
    }
    let delete = v1::DeleteKeyspaceRequest {
        request: crate::testing::request_id(),
        name: "gone".to_owned(),
        ..Default::default()
    };
    client.delete_keyspace(delete).await.unwrap();
    join(&node, "w1", "orders").await;
    join(&node, "w2", "bills").await;
    crate::testing::until("w1 owns its partitions", async || {
        (epochs(&node).await == [1, 1, 1]).then_some(())
    })
    .await;
    let snapshot = || {
        let found = std::fs::read_dir(dir.path().join("snapshots")).ok()?.next()?.ok()?;
        (found.path().extension()? == "snap").then_some(())
    };
    for number in 0.. {
        if snapshot().is_some() {
            break;
        }
        client.create_keyspace(create(&format!("more-{number}"), 1)).await.unwrap();
    }
    client.create_keyspace(create("last", 1)).await.unwrap();
    node.shutdown().await.unwrap();

    let to = golden();
    std::fs::create_dir_all(to.join("snapshots")).unwrap();
    std::fs::copy(dir.path().join("node.json"), to.join("node.json")).unwrap();
    for file in std::fs::read_dir(dir.path().join("snapshots")).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), to.join("snapshots").join(file.file_name())).unwrap();
    }
    let log = std::fs::read(dir.path().join("log.redb")).unwrap();
    let mut text = format!("{}\n", log.len());
    for (number, page) in log.chunks(PAGE).enumerate().filter(|(_, page)| page.iter().any(|byte| *byte != 0))
    {
        write!(text, "{:x} ", number * PAGE).unwrap();
        let used = page.len() - page.iter().rev().take_while(|byte| **byte == 0).count();
        page[..used].iter().for_each(|byte| write!(text, "{byte:02x}").unwrap());
        text.push('\n');
    }
    std::fs::write(to.join("log.redb.pages"), text).unwrap();
}

/// A copy, as the directory was.
fn restored() -> tempfile::TempDir {
    let (from, dir) = (golden(), tempfile::tempdir().unwrap());
    std::fs::create_dir(dir.path().join("snapshots")).unwrap();
    std::fs::copy(from.join("node.json"), dir.path().join("node.json")).unwrap();
    for file in std::fs::read_dir(from.join("snapshots")).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), dir.path().join("snapshots").join(file.file_name())).unwrap();
    }
    let text = std::fs::read_to_string(from.join("log.redb.pages")).unwrap();
    let (length, pages) = text.split_once('\n').unwrap();
    let mut log = vec![0; length.parse().unwrap()];
    for line in pages.lines() {
        let (at, bytes) = line.split_once(' ').unwrap();
        let at = usize::from_str_radix(at, 16).unwrap();
        for (number, pair) in bytes.as_bytes().chunks(2).enumerate() {
            log[at + number] = u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        }
    }
    std::fs::write(dir.path().join("log.redb"), log).unwrap();
    dir
}

#[tokio::test]
async fn t48_a_data_directory_of_format_1_is_read_for_ever() {
    let dir = restored();
    let node = Coordinator::with(settings(dir.path())).start().await.unwrap();
    let mut client = admin(&node).await;
    let list = client.list_keyspaces(v1::ListKeyspacesRequest {}).await.unwrap().into_inner();
    let names: Vec<&str> = list.keyspaces.iter().map(|keyspace| keyspace.name.as_str()).collect();
    assert!(["orders", "bills", "last"].iter().all(|name| names.contains(name)), "{names:?}");
    assert!(!names.contains(&"gone"));
    assert_eq!(epochs(&node).await, [1, 1, 1]);
    // It is not only read: it goes on from there.
    client.create_keyspace(create("new", 1)).await.unwrap();
    node.shutdown().await.unwrap();
    let node = Coordinator::with(settings(dir.path())).start().await.unwrap();
    let list = admin(&node).await.list_keyspaces(v1::ListKeyspacesRequest {}).await.unwrap().into_inner();
    assert_eq!(list.keyspaces.len(), names.len() + 1);
}
