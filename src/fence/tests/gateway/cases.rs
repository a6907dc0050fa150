//! Case by case: whose files, names, links, sizes, duplicates, restarts, clean-up.

use crate::subject::{cluster, opened, path, token};
use ringfence_fence::gateway::{FileGateway, GatewayError, GatewayOptions, Layout};
use ringfence_fence::{FenceError, FenceErrorKind};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::slice::from_ref;

fn kind<T: std::fmt::Debug>(answer: Result<T, GatewayError>) -> FenceErrorKind {
    match answer {
        Err(GatewayError::Fence(error)) => error.kind(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn f099_whatever_a_replaced_owner_does_it_gets_both_epochs_and_nothing_is_changed() {
    let dir = tempfile::tempdir().unwrap();
    let files = opened(&dir);
    let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
    let (there, other) = (path("orders/17/a"), path("orders/17/new/b"));
    files.raise(&old).unwrap();
    files.put(from_ref(&old), &there, b"by 33").unwrap();
    files.raise(&new).unwrap();
    let late = from_ref(&old);
    let answers = [
        files.put(late, &there, b"late"),
        files.put(late, &other, b"late"),
        files.append(late, &there, b"late", None).map(drop),
        files.update(late, &there, |_| Ok::<_, GatewayError>(b"late".to_vec())),
        files.delete(late, &there).map(drop),
        files.read(late, &there).map(drop),
        files.raise(&old).map_err(GatewayError::from),
    ];
    for answer in answers {
        match answer {
            Err(GatewayError::Fence(FenceError::Fenced(fenced))) => {
                assert_eq!((fenced.own().get(), fenced.highest().get()), (33, 34));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(files.read(&[], &there).unwrap(), b"by 33");
    assert!(!dir.path().join("orders/17/new").exists(), "not even a folder was made");
    assert_eq!(std::fs::read_dir(dir.path().join(".ringfence/staged")).unwrap().count(), 0);
}

#[test]
fn t21_a_missing_file_a_replaced_owner_and_a_scope_that_nobody_raised_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let files = opened(&dir);
    let (own, other) = (token("prod/orders/17@33"), token("prod/orders/18@1"));
    let file = path("orders/17/a");
    assert_eq!(kind(files.put(from_ref(&own), &file, b"")), FenceErrorKind::NotRaised);
    files.raise(&own).unwrap();
    files.raise(&other).unwrap();
    assert!(!files.delete(from_ref(&own), &file).unwrap());
    assert!(matches!(files.read(from_ref(&own), &file), Err(GatewayError::NotFound)));
    assert_eq!(kind(files.put(&[], &file, b"")), FenceErrorKind::Unstamped);
    // A token that is good, and of another partition than the file.
    assert_eq!(kind(files.put(from_ref(&other), &file, b"")), FenceErrorKind::WrongScope);
    assert_eq!(kind(files.put(&[token("test/orders/17@40")], &file, b"")), FenceErrorKind::WrongCluster);
    files.put(&[other, own], &file, b"both").unwrap();
}

/// A read-modify-write that comes twice: the second is refused by the length that it names.
#[test]
fn t01_an_append_that_is_made_twice_is_there_once_when_it_says_where() {
    let dir = tempfile::tempdir().unwrap();
    let files = opened(&dir);
    let own = token("prod/orders/17@33");
    let file = path("orders/17/log");
    files.raise(&own).unwrap();
    assert_eq!(files.append(from_ref(&own), &file, b"one\n", Some(0)).unwrap(), 4);
    assert_eq!(files.append(from_ref(&own), &file, b"two\n", Some(4)).unwrap(), 8);
    let again = files.append(from_ref(&own), &file, b"two\n", Some(4));
    assert!(matches!(again, Err(GatewayError::OtherLength { length: 8 })), "{again:?}");
    assert_eq!(files.append(from_ref(&own), &file, b"three\n", None).unwrap(), 14);
    assert_eq!(files.read(&[], &file).unwrap(), b"one\ntwo\nthree\n");
}

#[test]
fn f096_links_folders_and_pipes_are_not_followed_and_not_touched() {
    let (dir, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let files = opened(&dir);
    let own = token("prod/orders/17@33");
    files.raise(&own).unwrap();
    let own = from_ref(&own);
    let place = dir.path().join("orders/17");
    std::fs::create_dir_all(place.join("folder")).unwrap();
    std::fs::write(outside.path().join("secret"), "secret").unwrap();
    symlink(outside.path(), place.join("out")).unwrap();
    symlink(outside.path().join("secret"), place.join("link")).unwrap();
    symlink(outside.path(), dir.path().join("linked")).unwrap();
    let pipe = std::process::Command::new("mkfifo").arg(place.join("pipe")).status().unwrap();
    assert!(pipe.success());
    for bad in
        ["orders/17/out/secret", "orders/17/link", "orders/17/folder", "orders/17/pipe", "orders/17/pipe/x"]
    {
        let bad = path(bad);
        for answer in [
            files.put(own, &bad, b"x"),
            files.append(own, &bad, b"x", None).map(drop),
            files.delete(own, &bad).map(drop),
            files.read(&[], &bad).map(drop),
        ] {
            assert!(matches!(answer, Err(GatewayError::NotAFile)), "{bad}: {answer:?}");
        }
    }
    assert_eq!(std::fs::read(outside.path().join("secret")).unwrap(), b"secret");
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1);
    assert!(place.join("link").is_symlink() && place.join("folder").is_dir());
}

#[test]
fn a_file_above_the_bound_is_refused_and_the_one_before_stays() {
    let dir = tempfile::tempdir().unwrap();
    let options = GatewayOptions { max_bytes: 8, ..GatewayOptions::default() };
    let files = FileGateway::open_with(dir.path(), &cluster("prod"), options).unwrap();
    let own = token("prod/orders/17@33");
    let file = path("orders/17/a");
    files.raise(&own).unwrap();
    let own = from_ref(&own);
    files.put(own, &file, b"12345678").unwrap();
    for answer in [
        files.put(own, &file, b"123456789"),
        files.append(own, &file, b"9", None).map(drop),
        files.update(own, &file, |_| Ok::<_, GatewayError>(vec![0; 9])),
    ] {
        assert!(matches!(answer, Err(GatewayError::TooLarge { limit: 8 })), "{answer:?}");
    }
    assert_eq!(files.read(&[], &file).unwrap(), b"12345678");
    std::fs::write(dir.path().join("orders/17/a"), b"123456789").unwrap();
    assert!(matches!(files.read(&[], &file), Err(GatewayError::TooLarge { .. })));
}

#[test]
fn one_gateway_serves_a_folder_and_it_stays_with_its_cluster() {
    let dir = tempfile::tempdir().unwrap();
    let files = opened(&dir);
    let second = FileGateway::open(dir.path(), &cluster("prod"));
    assert!(matches!(second, Err(GatewayError::InUse)), "{second:?}");
    drop(files);
    let other = FileGateway::open(dir.path(), &cluster("test"));
    assert_eq!(kind(other), FenceErrorKind::WrongCluster);
    drop(opened(&dir));
    let missing = FileGateway::open(&dir.path().join("missing"), &cluster("prod"));
    assert!(matches!(missing, Err(GatewayError::Failed { .. })), "{missing:?}");
}

#[test]
fn f011_t09_a_gateway_that_was_started_again_refuses_who_was_refused_before() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
    let file = path("orders/17/a");
    let files = opened(&dir);
    files.raise(&old).unwrap();
    // The epoch came with a write, and nobody raised it.
    files.put(from_ref(&new), &file, b"by 34").unwrap();
    drop(files);
    let files = opened(&dir);
    assert_eq!(kind(files.put(from_ref(&old), &file, b"late")), FenceErrorKind::Fenced);
}

/// What people and retention jobs do to folders: old files, empty folders, everything that the data is.
#[test]
fn f001_t08_clearing_the_files_away_leaves_the_fence() {
    let dir = tempfile::tempdir().unwrap();
    let files = opened(&dir);
    let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
    let file = path("orders/17/a");
    files.raise(&old).unwrap();
    files.put(from_ref(&old), &file, b"by 33").unwrap();
    files.raise(&new).unwrap();
    files.put(from_ref(&new), &file, b"by 34").unwrap();
    // `rm -r DIR/*` takes no name that begins with a dot.
    std::fs::remove_dir_all(dir.path().join("orders")).unwrap();
    let refuses = |files: FileGateway| {
        assert_eq!(kind(files.put(from_ref(&old), &file, b"late")), FenceErrorKind::Fenced);
        files.put(from_ref(&new), &file, b"again").unwrap();
        assert_eq!(files.read(&[], &file).unwrap(), b"again");
    };
    refuses(files);
    let elsewhere = tempfile::tempdir().unwrap();
    copied(&dir, &elsewhere);
    refuses(opened(&elsewhere));
}

/// The folder as a backup has it.
fn copied(from: &tempfile::TempDir, to: &tempfile::TempDir) {
    let own = |dir: &tempfile::TempDir| dir.path().join(".ringfence");
    std::fs::create_dir(own(to)).unwrap();
    std::fs::copy(own(from).join("fence.db"), own(to).join("fence.db")).unwrap();
}

#[test]
fn a_folder_of_any_layout_belongs_to_one_scope_and_its_files_keep_their_permissions() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("2026")).unwrap();
    let file = dir.path().join("2026/Report.pdf");
    std::fs::write(&file, "of before").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let options =
        GatewayOptions { layout: Layout::Whole("@locks/reports".parse().unwrap()), ..Default::default() };
    let files = FileGateway::open_with(dir.path(), &cluster("prod"), options).unwrap();
    let own = token("prod/@locks/reports@9");
    files.raise(&own).unwrap();
    files.put(from_ref(&own), &path("2026/Report.pdf"), b"new").unwrap();
    assert_eq!(std::fs::read(&file).unwrap(), b"new");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(
        kind(files.put(&[token("prod/orders/17@1")], &path("orders/17/a"), b"")),
        FenceErrorKind::WrongScope
    );
}
