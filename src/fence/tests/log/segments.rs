//! Segments: nobody is kept from writing, and readers refuse what comes late.

use crate::subject::{cluster, token};
use ringfence_fence::log::{Reading, SegmentFence, SegmentReader, SegmentWriter};
use ringfence_fence::{DeclaredFence, Enforcement, Fence, FenceError, FenceErrorKind};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use tempfile::TempDir;

fn dir() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let segments = dir.path().join("segments");
    (dir, segments)
}

fn own(epoch: u64) -> ringfence_fence::FencingToken {
    token(&format!("prod/orders/17@{epoch}"))
}

fn raise(segments: &Path, epoch: u64) -> Result<SegmentWriter, FenceError> {
    SegmentWriter::raise(segments, &own(epoch))
}

fn read(segments: &Path) -> Reading {
    SegmentReader::new(segments, &cluster("prod")).read().unwrap()
}

fn texts(segments: &Path) -> Vec<String> {
    read(segments).entries.into_iter().map(|entry| String::from_utf8(entry.payload).unwrap()).collect()
}

fn file(segments: &Path, epoch: u64) -> PathBuf {
    segments.join(format!("{epoch:016}.rfl"))
}

#[test]
fn b04_t01_33_writes_34_is_seen_and_33_is_refused() {
    let (_dir, segments) = dir();
    let mut old = raise(&segments, 33).unwrap();
    old.append(b"A").unwrap();
    let mut new = raise(&segments, 34).unwrap();
    assert_eq!(texts(&segments), ["A"]);
    new.append(b"B").unwrap();
    match old.append(b"A, late") {
        Err(FenceError::Fenced(f)) => assert_eq!((f.own().get(), f.highest().get()), (33, 34)),
        other => panic!("{other:?}"),
    }
    assert!(matches!(raise(&segments, 33), Err(FenceError::Fenced(_))));
    new.append(b"C").unwrap();
    let reading = read(&segments);
    assert_eq!(
        (texts(&segments), reading.settled, reading.refused),
        (vec!["A".into(), "B".into(), "C".into()], true, 0)
    );
}

/// What the types say: on a machine that sees an old directory a replaced owner is answered, and still no reader is shown it.
#[test]
fn b05_t03_an_append_that_comes_after_the_seal_is_on_the_disk_and_does_not_count() {
    let (other, segments) = dir();
    let mut old = raise(&segments, 33).unwrap();
    old.append(b"A").unwrap();
    // The directory as the other machine has cached it.
    let cached = other.path().join("cached");
    std::fs::create_dir(&cached).unwrap();
    std::fs::hard_link(file(&segments, 33), file(&cached, 33)).unwrap();
    drop(old);
    let mut new = raise(&segments, 34).unwrap();
    new.append(b"B").unwrap();
    let bytes = std::fs::read(file(&segments, 33)).unwrap();
    // Its token is accepted there, its bytes are appended to the very file, and it is told so.
    let forged = other.path().join("elsewhere");
    let mut late = raise(&forged, 33).unwrap();
    late.append(b"A").unwrap();
    late.append(b"A, late").unwrap();
    let longer = std::fs::read(file(&forged, 33)).unwrap();
    assert_eq!(longer[..bytes.len()], bytes);
    std::fs::write(file(&cached, 33), longer).unwrap();
    let reading = read(&segments);
    assert_eq!((texts(&segments), reading.refused, reading.settled), (vec!["A".into(), "B".into()], 1, true));
    // The control: without the seal it counts.
    assert_eq!(texts(&cached), ["A", "A, late"]);
}

#[test]
fn an_owner_that_claimed_and_died_is_passed_over_and_what_is_read_meanwhile_is_not_settled() {
    let (other, segments) = dir();
    raise(&segments, 33).unwrap().append(b"A").unwrap();
    // A claim is the first record of a segment.
    let elsewhere = other.path().join("elsewhere");
    raise(&elsewhere, 34).unwrap();
    let whole = std::fs::read(file(&elsewhere, 34)).unwrap();
    let claim = (1..whole.len()).find(|at| whole[*at..].starts_with(b"RFL1")).unwrap();
    std::fs::write(file(&segments, 34), &whole[..claim]).unwrap();
    let reading = read(&segments);
    assert_eq!((reading.entries.len(), reading.settled), (1, false));
    raise(&segments, 35).unwrap().append(b"C").unwrap();
    assert!(read(&segments).settled);
    // It wakes up: its segment is nobody's.
    assert!(matches!(raise(&segments, 34), Err(FenceError::Fenced(_))));
    assert_eq!(texts(&segments), ["A", "C"]);
}

#[test]
fn t11_of_two_writers_of_one_epoch_the_second_overwrites_nothing() {
    let (_dir, segments) = dir();
    let (mut one, mut other) = (raise(&segments, 33).unwrap(), raise(&segments, 33).unwrap());
    one.append(b"A").unwrap();
    match other.append(b"B") {
        Err(FenceError::Unfit { why }) => assert!(why.contains("another writer of epoch 33"), "{why}"),
        answer => panic!("{answer:?}"),
    }
    one.append(b"C").unwrap();
    assert_eq!(texts(&segments), ["A", "C"]);
}

#[test]
fn f057_f042_t15_a_directory_is_of_one_cluster_and_one_scope_and_an_epoch_has_one_writer() {
    let (_dir, segments) = dir();
    let mut owner = raise(&segments, 33).unwrap();
    let refused = |text: &str| SegmentWriter::raise(&segments, &token(text)).unwrap_err().kind();
    assert_eq!(refused("test/orders/17@34"), FenceErrorKind::WrongCluster);
    assert_eq!(refused("prod/orders/18@34"), FenceErrorKind::WrongScope);
    assert_eq!(refused("prod/orders/17@9007199254740991"), FenceErrorKind::Implausible);
    let theirs = SegmentReader::new(&segments, &cluster("test")).read();
    assert!(matches!(theirs, Err(FenceError::WrongCluster { .. })));
    // Raised again before the first entry, as after an answer that was lost.
    raise(&segments, 33).unwrap();
    owner.append(b"A").unwrap();
    assert_eq!(refused("prod/orders/17@33"), FenceErrorKind::Unfit);
}

#[test]
fn t48_damage_and_missing_segments_are_refused_with_the_file_and_a_torn_end_is_not_taken() {
    let (_dir, segments) = dir();
    raise(&segments, 33).unwrap().append(b"A").unwrap();
    let whole = std::fs::read(file(&segments, 33)).unwrap();
    // Torn: the next owner seals what is whole.
    std::fs::write(file(&segments, 33), [&whole[..], b"RFL1 and no more"].concat()).unwrap();
    raise(&segments, 34).unwrap().append(b"B").unwrap();
    assert_eq!(texts(&segments), ["A", "B"]);
    let reader = SegmentReader::new(&segments, &cluster("prod"));
    for damaged in [&whole[..whole.len() - 1], &[], b"something else entirely, longer than a head"] {
        std::fs::write(file(&segments, 33), damaged).unwrap();
        let error = reader.read().unwrap_err();
        assert_eq!(error.kind(), FenceErrorKind::Corrupt, "{error}");
        assert!(error.to_string().contains(".rfl"), "{error}");
    }
    std::fs::remove_file(file(&segments, 33)).unwrap();
    let error = reader.read().unwrap_err();
    assert!(error.to_string().contains("missing"), "{error}");
    assert!(raise(&segments, 35).is_ok(), "34 is whole, and its seal says what is lost");
}

/// An empty place where a file system should be mounted is no log.
#[test]
fn t07_t08_a_directory_that_is_missing_is_no_empty_log() {
    let (other, segments) = dir();
    let reader = SegmentReader::new(&segments, &cluster("prod"));
    assert!(matches!(reader.read(), Err(FenceError::NotInstalled)));
    let unmounted = other.path().join("mnt").join("orders");
    assert_eq!(raise(&unmounted, 33).unwrap_err().kind(), FenceErrorKind::Store);
    assert!(!other.path().join("mnt").exists());
}

#[test]
fn b05_segments_are_advisory_by_type_and_their_fence_claims_and_seals() {
    let (_dir, segments) = dir();
    let declared = DeclaredFence::advisory("segments", SegmentFence::new(&segments, &cluster("prod")));
    assert_eq!(declared.enforcement(), Enforcement::Advisory);
    assert!(declared.for_correctness().is_err());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(declared.raise(&own(33))).unwrap();
    let mut writer = raise(&segments, 33).unwrap();
    writer.append(b"A").unwrap();
    runtime.block_on(declared.raise(&own(34))).unwrap();
    assert!(matches!(runtime.block_on(declared.raise(&own(33))), Err(FenceError::Fenced(_))));
    assert_eq!(runtime.block_on(declared.highest(own(1).scope())).unwrap(), Some(own(34).epoch()));
    assert!(matches!(writer.append(b"late"), Err(FenceError::Fenced(_))));
}

/// On a file system whose directories are not cached: what was answered is read, what was refused is not, whoever came when.
#[test]
fn t03_t04_whatever_was_answered_is_read_and_whatever_was_refused_is_not_while_others_take_over() {
    let (_dir, segments) = dir();
    let next = Arc::new(AtomicU64::new(1));
    let owners: Vec<_> = (0..3)
        .map(|_| {
            let (segments, next) = (segments.clone(), Arc::clone(&next));
            thread::spawn(move || {
                let (mut answered, mut refused) = (Vec::new(), Vec::new());
                for _ in 0..12 {
                    let epoch = next.fetch_add(1, Ordering::Relaxed);
                    let Ok(mut writer) = raise(&segments, epoch) else { continue };
                    for number in 0..6 {
                        let text = format!("{epoch}.{number}");
                        match writer.append(text.as_bytes()) {
                            Ok(_) => answered.push(text),
                            Err(FenceError::Fenced(_)) => refused.push(text),
                            // Being sealed: nobody knows.
                            Err(FenceError::Store { .. }) => {}
                            Err(other) => panic!("{other}"),
                        }
                    }
                }
                (answered, refused)
            })
        })
        .collect();
    let (mut answered, mut refused) = (Vec::new(), Vec::new());
    for owner in owners {
        let (a, r) = owner.join().unwrap();
        answered.extend(a);
        refused.extend(r);
    }
    let read = texts(&segments);
    let there: BTreeSet<_> = read.iter().collect();
    assert!(answered.iter().all(|text| there.contains(text)), "something that was answered is lost");
    assert!(refused.iter().all(|text| !there.contains(text)), "something that was refused is there");
    assert!(!answered.is_empty() && !refused.is_empty(), "nobody was replaced in the middle");
    let epochs: Vec<u64> = read.iter().map(|text| text.split_once('.').unwrap().0.parse().unwrap()).collect();
    assert!(epochs.is_sorted(), "{epochs:?}");
}
