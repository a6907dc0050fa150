//! `docs/cases.md` and the tree say the same: every incident and every trap is there, what is said to hold one exists, and
//! what bears the id of one is said to hold it.

use crate::house::{root, sources};
use std::collections::{BTreeMap, BTreeSet};

const INCIDENTS: u32 = 106;
const TRAPS: u32 = 57;

/// Every function of the tree that could be a test, as `path::name`.
fn functions() -> BTreeSet<String> {
    let root = root();
    let mut found = BTreeSet::new();
    for under in ["src", "tests", "examples", "bench"] {
        for file in sources(&root.join(under)) {
            let path = file.strip_prefix(&root).unwrap().to_str().unwrap();
            let text = std::fs::read_to_string(&file).unwrap();
            let names = text.lines().filter_map(|line| {
                let line = line.trim_start();
                let line = line.strip_prefix("pub(super) ").unwrap_or(line);
                let line = line.strip_prefix("async ").unwrap_or(line);
                line.strip_prefix("fn ")?.split('(').next()
            });
            found.extend(names.map(|name| format!("{path}::{name}")));
        }
    }
    found
}

/// The ids in a name, like `F007` in `f007_t42_a_retried_release`.
fn ids(name: &str) -> impl Iterator<Item = String> {
    let is_id = |word: &&str| {
        let digits = word.get(1..).unwrap_or_default();
        let long_enough =
            (word.starts_with('f') && digits.len() == 3) || (word.starts_with('t') && digits.len() == 2);
        long_enough && digits.bytes().all(|byte| byte.is_ascii_digit())
    };
    name.split('_').filter(is_id).map(str::to_uppercase)
}

/// What the page says of each id, line by line.
fn page() -> BTreeMap<String, Vec<String>> {
    let text = std::fs::read_to_string(root().join("docs/cases.md")).unwrap();
    let mut page: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut current = None;
    for line in text.lines() {
        if let Some((id, told)) = line.strip_prefix("- **").and_then(|rest| rest.split_once("** ")) {
            assert!(told.len() > 20, "{id} is not told: {line}");
            assert!(page.insert(id.to_owned(), Vec::new()).is_none(), "{id} stands there twice");
            current = Some(id.to_owned());
        } else if let Some(said) = line.strip_prefix("  - ") {
            let id = current.as_ref().unwrap_or_else(|| panic!("this belongs to nothing: {line}"));
            page.get_mut(id).unwrap().push(said.to_owned());
        }
    }
    page
}

#[test]
fn every_incident_and_every_trap_is_held_or_said_why_not() {
    let page = page();
    let numbered = (1..=INCIDENTS).map(|n| format!("F{n:03}")).chain((1..=TRAPS).map(|n| format!("T{n:02}")));
    let expected: BTreeSet<String> = numbered.collect();
    let there: BTreeSet<String> = page.keys().cloned().collect();
    assert_eq!(there, expected);
    let functions = functions();
    let parts = ["placement", "storage fences", "locks", "operations", "the simulator"];
    for (id, said) in &page {
        assert!(!said.is_empty(), "{id}: nothing is said to hold it");
        for said in said {
            if let Some(test) = said.strip_prefix('`').and_then(|rest| rest.strip_suffix('`')) {
                assert!(functions.contains(test), "{id}: there is no {test}");
            } else if let Some((part, what)) =
                said.strip_prefix("later, with ").and_then(|rest| rest.split_once(": "))
            {
                assert!(parts.contains(&part) && what.len() > 10, "{id}: {said}");
            } else {
                let why = said.strip_prefix("cannot arise: ");
                assert!(why.is_some_and(|why| why.len() > 10), "{id}: neither a test nor a reason: {said}");
            }
        }
    }
}

#[test]
fn a_test_named_for_an_incident_or_a_trap_is_on_the_page() {
    let page = page();
    for function in functions() {
        let (_, name) = function.rsplit_once("::").unwrap();
        for id in ids(name) {
            let said = page.get(&id).unwrap_or_else(|| panic!("{function}: docs/cases.md has no {id}"));
            assert!(
                said.contains(&format!("`{function}`")),
                "docs/cases.md: {id} does not name `{function}`"
            );
        }
    }
}
