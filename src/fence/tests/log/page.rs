//! The reader in another language that the page has, on a log that this crate wrote.

use crate::subject::{Place, token};
use std::process::Command;
use std::slice::from_ref;

const PAGE: &str = include_str!("../../../../docs/fences-log.md");

#[test]
fn a22_the_reader_of_the_page_reads_what_the_crate_has_written() {
    let found = Command::new("python3").arg("--version").output().is_ok();
    if !found {
        let missing = "there is no python3 (Debian: python3)";
        assert!(std::env::var_os("CI").is_none(), "{missing}, and CI has to have it");
        eprintln!("SKIPPED: {missing}, so the page's reader was not run");
        return;
    }
    let place = Place::new();
    let mut log = place.open();
    let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
    let lock = token("prod/@locks/nightly@9");
    log.raise_all(&[old.clone(), lock.clone()]).unwrap();
    log.append(from_ref(&old), b"one").unwrap();
    log.raise(&new).unwrap();
    log.append(&[new, lock], "zwei, \u{e4}".as_bytes()).unwrap();
    place.tear();
    let script = PAGE.split_once("```python\n").unwrap().1.split_once("```").unwrap().0;
    let run = || {
        let out = Command::new("python3").args(["-c", script]).arg(place.path()).output().unwrap();
        (out.status.success(), String::from_utf8(out.stdout).unwrap())
    };
    let expected = "orders/17@33 one\norders/17@34 @locks/nightly@9 zwei, \u{e4}\n";
    assert_eq!(run(), (true, expected.to_string()));
    let mut damaged = place.bytes();
    damaged[50] ^= 1;
    std::fs::write(place.path(), damaged).unwrap();
    assert!(!run().0, "damage is not read past");
}
