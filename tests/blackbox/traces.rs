//! `rebalance simulate`: what the page shows is what is printed, two policies can be compared, and nothing is shown of a
//! trace that cannot be read to its end.

use crate::harness::{Ran, run_with};
use crate::house::root;
use std::path::Path;

/// As it is written on a page, from the root of the repository.
fn simulate(trace: &Path, args: &[&str]) -> Ran {
    run_with(&[], &[&["rebalance", "simulate", trace.to_str().unwrap()], args].concat())
}

#[test]
fn what_the_page_shows_of_the_example_is_what_is_printed() {
    let page = std::fs::read_to_string(root().join("docs/placement.md")).unwrap();
    let mut shown = 0;
    for block in
        page.split("```").filter_map(|block| block.strip_prefix("console\n$ ringfence rebalance simulate "))
    {
        let (command, told) = block.split_once('\n').unwrap();
        let mut words = command.split(' ');
        let ran = simulate(&root().join(words.next().unwrap()), &words.collect::<Vec<_>>());
        assert_eq!((ran.code, ran.out.as_str()), (0, told), "{command}: {}", ran.err);
        shown += 1;
    }
    assert_eq!(shown, 1);
    let example = std::fs::read_to_string(root().join("examples/rollout.jsonl")).unwrap();
    assert!(page.contains(&format!("```json\n{example}```")), "the page shows another trace");
}

#[test]
fn one_trace_is_compared_under_two_policies() {
    let example = root().join("examples/rollout.jsonl");
    let args = ["--every", "1m", "-o", "json"];
    let slow = simulate(&example, &args).done();
    let quick = [&args as &[&str], &["--max-moves-in-flight", "64", "--moves-per-minute", "0"]].concat();
    let quick = simulate(&example, &quick).done();
    assert_eq!((&slow["max_moves_in_flight"], &quick["max_moves_in_flight"]), (&4.into(), &64.into()));
    assert_eq!(slow["totals"]["moves"], quick["totals"]["moves"], "the same moves, at another pace");
    let uneven = |ran: &serde_json::Value| ran["totals"]["out_of_balance_ms"].as_u64().unwrap();
    assert!(uneven(&quick) < uneven(&slow), "{quick} {slow}");
    let kept = simulate(&example, &["--balance", "false", "-o", "json"]).done();
    assert_eq!(kept["totals"]["moves"]["join"], serde_json::Value::Null);
}

#[test]
fn nothing_is_shown_of_a_broken_trace() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("trace.jsonl");
    let head = "{\"keyspace\": \"orders\", \"partitions\": 8}\n";
    let join = "{\"at_ms\": 0, \"event\": \"join\", \"worker\": \"w1\"}\n";
    for (text, what) in [
        (String::new(), "line 1, column 1: the trace is empty"),
        (format!("{head}{join}{{\"at_ms\": 9"), "line 3, column 12: expected a `,`"),
        (
            format!("{head}{join}{{\"at_ms\": 9, \"event\": \"reboot\"}}\n"),
            "column 23: unknown event \"reboot\"",
        ),
        (format!("{head}{}", " ".repeat(5 << 20)), "line 2, column 1: the line is longer than"),
        (
            format!("{head}{join}{{\"at_ms\": 9000000000, \"event\": \"end\"}}\n"),
            "would have more than 100000 samples",
        ),
    ] {
        std::fs::write(&trace, text).unwrap();
        let ran = simulate(&trace, &[]);
        assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{what}");
        assert!(ran.err.starts_with("error: ") && ran.err.contains(what), "{what}: {}", ran.err);
        let ran = simulate(&trace, &["-o", "json"]);
        assert_eq!((ran.code, &ran.json()["error"]["code"]), (1, &"invalid".into()), "{ran:?}");
    }
    std::fs::write(&trace, head).unwrap();
    assert_eq!(
        simulate(&trace, &["--max-moves-in-flight", "0", "-o", "json"]).json()["error"]["code"],
        "usage"
    );
    let gone = simulate(&dir.path().join("gone"), &["-o", "json"]);
    assert_eq!((gone.code, &gone.json()["error"]["code"]), (1, &"io".into()));
}
