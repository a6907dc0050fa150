//! The walls of the house: who may import whom, where a library may be named, how much an SDK user compiles.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_path_buf()
}

fn manifest(krate: &str) -> toml::Table {
    std::fs::read_to_string(root().join("src").join(krate).join("Cargo.toml")).unwrap().parse().unwrap()
}

fn dependencies(manifest: &toml::Table) -> BTreeSet<String> {
    manifest
        .get("dependencies")
        .and_then(|d| d.as_table())
        .map(|d| d.keys().cloned().collect())
        .unwrap_or_default()
}

pub(crate) fn sources(under: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(under).unwrap() {
        let path = entry.unwrap().path();
        if path.is_symlink() || path.ends_with("target") {
            continue;
        }
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
    found
}

#[test]
fn a_crate_imports_only_what_the_house_allows() {
    let ours = |krate: &str| -> BTreeSet<String> {
        dependencies(&manifest(krate)).into_iter().filter(|name| name.starts_with("ringfence")).collect()
    };
    let allowed: BTreeMap<&str, &[&str]> = BTreeMap::from([
        ("core", &[] as &[&str]),
        ("fence", &["ringfence-core"]),
        ("api", &["ringfence-core"]),
        ("client", &["ringfence-core", "ringfence-fence", "ringfence-api"]),
        ("server", &["ringfence-core", "ringfence-api"]),
        ("cli", &["ringfence", "ringfence-server"]),
    ]);
    for entry in std::fs::read_dir(root().join("src")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let Some(allowed) = allowed.get(name.as_str()) else {
            assert_eq!(name, "sim", "src/{name} has no place in the house: give it one in this test");
            continue;
        };
        let allowed: BTreeSet<String> = allowed.iter().map(|s| (*s).to_string()).collect();
        let imported = ours(&name);
        assert!(imported.is_subset(&allowed), "{name} imports {imported:?}, and may import {allowed:?}");
    }
}

#[test]
fn a_library_is_named_only_behind_its_wall() {
    let walls = [
        ("openraft", "src/server/raft/"),
        ("hashring", "src/core/placement/ring.rs"),
        ("redb", "src/server/raft/"),
    ];
    let root = root();
    for file in sources(&root.join("src")) {
        let shown = file.strip_prefix(&root).unwrap().to_str().unwrap().to_string();
        let text = std::fs::read_to_string(&file).unwrap();
        for (library, wall) in walls {
            let uses = [format!("{library}::"), format!("use {library}"), format!("extern crate {library}")];
            let named = text
                .lines()
                .filter(|l| !l.trim_start().starts_with("//"))
                .any(|l| uses.iter().any(|u| l.contains(u.as_str())));
            assert!(!named || shown.starts_with(wall), "{shown} names {library}, which only {wall} may");
        }
    }
}

#[test]
fn the_core_is_pure() {
    let root = root();
    let forbidden = [
        "std::time::Instant",
        "SystemTime",
        "HashMap",
        "HashSet",
        "tokio",
        "async fn",
        "std::fs",
        "std::net",
        "std::env",
        "rand::",
    ];
    for file in sources(&root.join("src/core")) {
        let shown = file.strip_prefix(&root).unwrap().display().to_string();
        if shown.contains("tests") {
            continue;
        }
        let text = std::fs::read_to_string(&file).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap();
        for (number, line) in code.lines().enumerate().filter(|(_, l)| !l.trim_start().starts_with("//")) {
            for word in forbidden {
                assert!(!line.contains(word), "{shown}:{} has {word}: {line}", number + 1);
            }
        }
    }
}

#[test]
fn an_sdk_user_compiles_no_server_no_database_and_at_most_110_packages() {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_string());
    let tree = Command::new(cargo)
        .args(["tree", "-p", "ringfence", "-e", "normal", "--prefix", "none", "--locked", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    let text = String::from_utf8(tree.stdout).unwrap();
    let packages: BTreeSet<&str> =
        text.lines().map(|l| l.trim_end_matches(" (*)")).filter(|l| !l.is_empty()).collect();
    for unwanted in ["openraft", "redb", "ringfence-server", "libsqlite3-sys", "rusqlite", "axum"] {
        assert!(
            !packages.iter().any(|p| p.split(' ').next() == Some(unwanted)),
            "the SDK pulls in {unwanted}"
        );
    }
    assert!(packages.len() <= 110, "the SDK pulls in {} packages: {packages:#?}", packages.len());
}

/// How long something took depends on what else the machine does: a test says what has to have happened, or what must not
/// have. (A lower bound is fine, and so is a wait that gives up.)
#[test]
fn t55_no_test_asserts_that_something_was_quick() {
    let root = root();
    for file in [sources(&root.join("src")), sources(&root.join("tests"))].concat() {
        let text = std::fs::read_to_string(&file).unwrap();
        for (number, line) in text.lines().enumerate().filter(|(_, line)| line.contains("assert")) {
            let quick = ["elapsed() < ", "elapsed() <= "].iter().any(|bound| line.contains(bound));
            assert!(!quick, "{}:{}: {line}", file.strip_prefix(&root).unwrap().display(), number + 1);
        }
    }
}
