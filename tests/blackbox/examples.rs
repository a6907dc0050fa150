//! Every example prints what its own documentation says it prints.

use std::path::{Path, PathBuf};
use std::process::Command;

fn run(name: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let source = std::fs::read_to_string(root.join("examples").join(format!("{name}.rs"))).unwrap();
    let told: Vec<&str> = source
        .lines()
        .skip_while(|line| !line.starts_with("//! $ cargo run"))
        .skip(1)
        .take_while(|line| *line != "//! ```")
        .map(|line| line.trim_start_matches("//! "))
        .collect();
    assert!(!told.is_empty(), "examples/{name}.rs says nothing of what it prints");

    // Built by the same `cargo test` as this test, beside the binary.
    let built: PathBuf =
        Path::new(env!("CARGO_BIN_EXE_ringfence")).parent().unwrap().join("examples").join(name);
    assert!(built.exists(), "{} is not built: run `cargo test --workspace`", built.display());
    let ran = Command::new(built).output().unwrap();
    let printed = String::from_utf8(ran.stdout).unwrap();
    assert!(ran.status.success(), "{name} failed: {printed}{}", String::from_utf8_lossy(&ran.stderr));
    assert_eq!(printed.lines().collect::<Vec<_>>(), told, "examples/{name}.rs prints something else");
}

#[test]
fn a50_c21_the_sharded_counter_loses_nothing_and_refuses_a_stamp_of_old() {
    run("sharded_counter");
}

#[test]
fn the_embedded_coordinator_says_who_owns_what() {
    run("embedded_coordinator");
}

#[test]
fn f106_the_router_finds_the_owner_also_after_it_changed() {
    run("router");
}

#[test]
fn a20_a21_b04_a_writer_paused_after_its_stamp_is_refused_and_without_the_fence_accepted() {
    run("paused_writer");
}

#[test]
fn a24_t19_a_side_effect_that_checks_no_token_needs_a_key_of_the_business() {
    run("side_effects");
}

#[test]
fn f009_a18_a_service_refuses_a_request_from_before_its_callers_pause() {
    run("fenced_service");
}

#[test]
fn c03_a_late_report_is_refused_by_the_gateway_and_overwrites_the_newer_one_without_it() {
    run("legacy_files");
}

#[test]
fn a44_a45_a_late_commit_of_a_manifest_is_refused_and_a_late_put_is_not() {
    run("fenced_manifest");
}
