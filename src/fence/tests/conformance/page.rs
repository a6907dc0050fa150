//! docs/conformance.md says what runs: every rule, every broken storage with what finds it, and the report.

use ringfence_fence::conformance::broken::{Broken, Flaw};
use ringfence_fence::conformance::{Rule, run};

fn page() -> String {
    std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/conformance.md")).unwrap()
}

/// The rows of the table with this head.
fn table(head: &str) -> Vec<String> {
    let page = page();
    let rows = page.lines().skip_while(|line| *line != head).skip(2);
    rows.take_while(|line| line.starts_with('|')).map(ToOwned::to_owned).collect()
}

fn quoted(rules: &[Rule]) -> String {
    rules.iter().map(|rule| format!("`{}`", rule.name())).collect::<Vec<_>>().join(", ")
}

#[test]
fn the_page_has_every_rule() {
    let rows = Rule::ALL.iter().map(|rule| format!("| `{}` | {rule} | {} |", rule.name(), rule.failure()));
    assert_eq!(table("| rule | what it does | without it |"), rows.collect::<Vec<_>>());
}

/// What runs is held to the same list in `flaws.rs`.
#[test]
fn t57_the_page_has_every_broken_storage_and_the_rules_that_find_it() {
    let rows = Flaw::ALL.iter().map(|flaw| {
        let also = if flaw.also_breaks().is_empty() { "nothing".into() } else { quoted(flaw.also_breaks()) };
        format!("| `{}` | {flaw} | {} | {also} |", flaw.name(), quoted(&[flaw.found_by()]))
    });
    let head = "| storage | what is wrong with it | found by | also breaks |";
    assert_eq!(table(head), rows.collect::<Vec<_>>());
}

#[test]
fn the_report_on_the_page_is_what_is_reported() {
    let page = page();
    let shown = page.split("```text\n").nth(1).unwrap().split("```").next().unwrap();
    assert_eq!(shown, run(&Broken::with(Flaw::ForgetsAtCrash)).to_string());
}

#[test]
fn names_are_unique_and_found_again() {
    for rule in Rule::ALL {
        assert_eq!(Rule::named(rule.name()), Some(*rule));
    }
    assert_eq!(Rule::named("no-such-rule"), None);
}
