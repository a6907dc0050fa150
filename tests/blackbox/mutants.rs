//! The binary under test has no deliberate faults in it, and no way to get any.

use std::path::{Path, PathBuf};
use std::process::Command;

/// How each fault is called in a binary that has it; see `src/core/mutants.rs`.
const MARKS: [&str; 2] = ["ringfence-mutant:", "RINGFENCE_MUTANT"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_path_buf()
}

/// How many of them a binary has. A debug build of a search takes a minute for what grep does at once.
fn marks_in(binary: &Path) -> usize {
    let has = |mark: &&str| {
        let found = Command::new("grep").args(["-qaF", mark]).arg(binary).status().unwrap();
        assert!(matches!(found.code(), Some(0 | 1)), "{}: {found}", binary.display());
        found.success()
    };
    MARKS.iter().filter(|mark| has(mark)).count()
}

/// A program with one hook, compiled from the product's own macro: as the product is built, or as the simulator builds it.
fn program_with_a_hook(dir: &Path, faults: bool) -> PathBuf {
    let rustc = |name: &str, args: &[&str]| {
        let made = dir.join(name);
        let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
        let out =
            Command::new(rustc).args(["--edition", "2024", "-o"]).arg(&made).args(args).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        made
    };
    let hook = root().join("src/core/mutants.rs");
    let source = dir.join("main.rs");
    let main = "fn main() { if crate::mutant!(\"control\") { println!(\"chosen\") } }";
    std::fs::write(&source, format!("#[path = {hook:?}] mod mutants;\n{main}\n")).unwrap();
    let source = source.to_str().unwrap();
    if !faults {
        return rustc("plain", &[source]);
    }
    let switch = root().join("src/sim/mutants/switch.rs");
    let (kind, name) = (["--crate-type", "rlib"], ["--crate-name", "ringfence_mutants"]);
    let switch =
        rustc("libringfence_mutants.rlib", &[kind[0], kind[1], name[0], name[1], switch.to_str().unwrap()]);
    let switch = format!("ringfence_mutants={}", switch.display());
    rustc("faulty", &["--cfg", "ringfence_mutants", "--extern", &switch, source])
}

#[test]
fn the_binary_has_no_faults_in_it_and_one_with_faults_would_be_found() {
    assert_eq!(
        marks_in(Path::new(env!("CARGO_BIN_EXE_ringfence"))),
        0,
        "the binary under test has faults in it"
    );

    let dir = tempfile::tempdir().unwrap();
    let says = |program: &Path| {
        let out = Command::new(program).env("RINGFENCE_MUTANT", "control").output().unwrap();
        String::from_utf8(out.stdout).unwrap()
    };
    let plain = program_with_a_hook(dir.path(), false);
    assert_eq!((marks_in(&plain), says(&plain).as_str()), (0, ""));
    let faulty = program_with_a_hook(dir.path(), true);
    assert_eq!((marks_in(&faulty), says(&faulty).as_str()), (2, "chosen\n"));
}

/// A feature is unified into whatever is built together: the binary under test would have it.
#[test]
fn no_manifest_has_a_feature_or_a_dependency_for_faults() {
    for entry in std::fs::read_dir(root().join("src")).unwrap() {
        let path = entry.unwrap().path().join("Cargo.toml");
        let manifest: toml::Table = std::fs::read_to_string(&path).unwrap().parse().unwrap();
        for part in ["features", "dependencies", "dev-dependencies", "build-dependencies"] {
            let names =
                manifest.get(part).and_then(toml::Value::as_table).into_iter().flat_map(toml::Table::keys);
            for name in names {
                assert!(
                    !name.contains("mutant") && !name.contains("fault"),
                    "{}: {part}.{name}",
                    path.display()
                );
            }
        }
    }
}
