//! A disk that is really full: a small file system of the test's own, in a namespace of its own.

use crate::subject::{cluster, path, token};
use ringfence_fence::gateway::{FileGateway, GatewayError};
use std::path::PathBuf;
use std::process::Command;
use std::slice::from_ref;

const FULL: &str = "RINGFENCE_TEST_FULL_DISK";

/// Not a test of its own: runs where a file system of 256 KiB is mounted.
#[test]
fn fill_it_up() {
    let Some(dir) = std::env::var_os(FULL).map(PathBuf::from) else { return };
    let files = FileGateway::open(&dir, &cluster("prod")).unwrap();
    let (own, next) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
    let own = from_ref(&own);
    files.raise(&own[0]).unwrap();
    files.put(own, &path("orders/17/kept"), b"kept").unwrap();
    let block = vec![7; 64 << 10];
    let full = (0..8).map(|n| files.put(own, &path(&format!("orders/17/{n}")), &block)).find_map(Result::err);
    assert!(matches!(full, Some(GatewayError::Full)), "{full:?}");
    // Whatever is tried now is said to be full or done, and takes nothing away.
    let more = files.append(own, &path("orders/17/kept"), &block, None);
    assert!(matches!(more, Err(GatewayError::Full)), "{more:?}");
    let replaced = files.put(own, &path("orders/17/0"), &[8; 128 << 10]);
    assert!(matches!(replaced, Err(GatewayError::Full)), "{replaced:?}");
    assert_eq!(files.read(&[], &path("orders/17/kept")).unwrap(), b"kept");
    assert_eq!(files.read(&[], &path("orders/17/0")).unwrap(), block);
    assert_eq!(std::fs::read_dir(dir.join(".ringfence/staged")).unwrap().count(), 0);
    // Room is made, and all goes on: the fence moves, and refuses who was replaced.
    files.delete(own, &path("orders/17/0")).unwrap();
    files.put(own, &path("orders/17/kept"), b"kept on").unwrap();
    files.raise(&next).unwrap();
    assert!(matches!(files.put(own, &path("orders/17/kept"), b"late"), Err(GatewayError::Fence(_))));
    println!("filled and emptied");
}

#[test]
fn on_a_full_disk_a_write_is_refused_as_that_and_nothing_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=256k,mode=700 tmpfs \"$RINGFENCE_TEST_FULL_DISK\" || exit 77
        exec \"$0\" --exact full::fill_it_up --nocapture";
    let ran = Command::new("unshare")
        .args(["--mount", "--map-root-user", "sh", "-c", script])
        .arg(std::env::current_exe().unwrap())
        .env(FULL, dir.path())
        .output();
    let said = match ran {
        Ok(out) if out.status.success() => String::from_utf8_lossy(&out.stdout).into_owned(),
        Ok(out) if out.status.code() == Some(101) => panic!("{}", String::from_utf8_lossy(&out.stdout)),
        other => {
            let missing = "a file system of the test's own cannot be mounted (unshare, mount)";
            assert!(std::env::var_os("CI").is_none(), "{missing}, and CI has to be able to: {other:?}");
            eprintln!("SKIPPED: {missing}, so no disk was filled up");
            return;
        }
    };
    assert!(said.contains("filled and emptied"), "{said}");
}
