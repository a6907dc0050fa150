//! Command lines that nobody means: words of every verb in any order, with values at and beyond their ends.
//!
//! Nothing is carried out. A variable is read by the same parser as its flag.

use super::{Cli, Verb, asks_for_json};
use clap::Parser as _;
use clap::error::ErrorKind;
use proptest::prelude::*;
use proptest::sample::select;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;

const VERBS: &[&[&str]] = &[
    &["status"],
    &["keyspace", "create"],
    &["keyspace", "update"],
    &["keyspace", "split"],
    &["keyspace", "list"],
    &["keyspace", "show"],
    &["keyspace", "delete"],
    &["worker", "list"],
    &["worker", "show"],
    &["worker", "history"],
    &["worker", "drain"],
    &["worker", "undrain"],
    &["worker", "cordon"],
    &["worker", "uncordon"],
    &["worker", "weight"],
    &["worker", "evict"],
    &["worker", "remove"],
    &["rebalance", "plan"],
    &["rebalance", "apply"],
    &["rebalance", "undo"],
    &["rebalance", "status"],
    &["rebalance", "cancel"],
    &["rebalance", "pause"],
    &["rebalance", "resume"],
    &["freeze", "partition"],
    &["freeze", "worker"],
    &["freeze", "keyspace"],
    &["freeze", "cluster"],
    &["unfreeze", "keyspace"],
    &["unfreeze", "cluster"],
    &["settings"],
    &["directives"],
    &["partition", "list"],
    &["partition", "show"],
    &["partition", "move"],
    &["partition", "end-cooling"],
    &["partition", "pin"],
    &["partition", "unpin"],
    &["partition", "weigh"],
    &["partition", "explain"],
    &["partition", "history"],
    &["rebalance", "simulate"],
    &["rebalance", "release-brake"],
    &["lock", "list"],
    &["lock", "show"],
    &["lock", "break"],
    &["fence", "refusals"],
    &["fence", "reassert"],
    &["fence", "status"],
    &["drill"],
    &["who-owns"],
    &["cluster", "status"],
    &["cluster", "add-node"],
    &["cluster", "remove-node"],
    &["cluster", "transfer-leader"],
    &["watch"],
    &["dev"],
    &["demo"],
    &["demo-worker"],
    &["serve", "--data-dir", "/d"],
];

const FLAGS: &[&str] = &[
    "--endpoints",
    "--timeout",
    "--output",
    "-o",
    "--log-format",
    "--partitions",
    "--ttl",
    "--takeover",
    "--drain-deadline",
    "--lock-delay",
    "--max-moves-in-flight",
    "--balance",
    "--every",
    "--moves-per-minute",
    "--settle",
    "--release",
    "--load",
    "--if-absent",
    "--if-exists",
    "--to",
    "--wait",
    "--check",
    "--yes",
    "--dry-run",
    "--by",
    "--until-join",
    "--reason",
    "--what-if",
    "--save",
    "--moves",
    "--moves-per-minute",
    "--rejoin-hold",
    "--spread-zones",
    "--label",
    "--no-labels",
    "--hex",
    "--above",
    "--epoch",
    "--at-once",
    "--node",
    "--listen",
    "--advertise",
    "--cluster",
    "--join",
    "--insecure",
    "--log",
    "--heartbeat-ms",
    "--election-min-ms",
    "--election-max-ms",
    "--snapshot-entries",
    "--snapshot-bytes",
    "--snapshot-every-ms",
    "--snapshot-keep-entries",
    "--settle-ms",
    "--cool-down-ms",
    "--no-fence",
    "--id",
    "--keyspace",
    "--database",
    "--address",
    "--die-with-parent",
    "--help",
    "--version",
    "--",
    "-",
    "--nonsense",
];

const VALUES: &[&str] = &[
    "",
    "0",
    "1",
    "-1",
    "64",
    "1000000",
    "1000001",
    "4294967295",
    "4294967296",
    "18446744073709551615",
    "18446744073709551616",
    "1e9",
    "0x10",
    "007",
    "orders",
    "Orders",
    "orders/17",
    "orders/",
    "orders/017",
    "orders/4294967295",
    "orders/4294967296",
    "orders/-1",
    "@locks/a",
    "/",
    "a/b/c",
    "w1",
    "own",
    "none",
    "add:w9",
    "add:w9,weight=2,zone=b",
    "add:w9,weight=10001",
    "add:,,=",
    "remove:w2",
    "remove:",
    "weight:w1=2",
    "weight:w1=0",
    "disk=ssd",
    "!spot",
    "!",
    "/nowhere/a.plan",
    "1=a:1",
    "1=a:1,2=b:2,3=c:3",
    "0=a:1",
    "4=10.0.0.4:7600",
    "4=[::1]:7600",
    "4=a",
    "=",
    "http://a:1",
    "http://a:1,http://b:2",
    "https://a:1",
    "a:1",
    "http://a:0",
    "127.0.0.1:0",
    "0.0.0.0:7600",
    "[::]:7600",
    "localhost:7600",
    "10s",
    "0s",
    "999ms",
    "10m",
    "1h",
    "0.5",
    "-1s",
    "1s1s1s",
    "18446744073709551615s",
    "99999999999999999999y",
    "9999999999y 9999999999y",
    "1ns",
    "soon",
    "true",
    "false",
    "lease",
    "fence",
    "json",
    "table",
    "yaml",
    "text",
    "00ff",
    "0g",
    "info,openraft=off",
    "a=b=c",
    "\u{1b}[2J",
    "\u{202e}",
    "ä",
    "\u{1f980}",
    "\n",
];

fn word() -> impl Strategy<Value = OsString> {
    prop_oneof![
        6 => select(FLAGS).prop_map(OsString::from),
        8 => select(VALUES).prop_map(OsString::from),
        2 => (select(FLAGS), select(VALUES)).prop_map(|(flag, value)| OsString::from(format!("{flag}={value}"))),
        1 => select(VALUES).prop_map(|value| OsString::from(value.repeat(1_000))),
        1 => prop::collection::vec(1_u8.., 0..9).prop_map(OsString::from_vec),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn f096_f105_no_command_line_is_a_panic_and_each_that_is_none_says_so(
        verb in select(VERBS),
        words in prop::collection::vec(word(), 0..8),
    ) {
        let line = ["ringfence"].iter().chain(verb).map(OsString::from).chain(words).collect::<Vec<_>>();
        let _ = asks_for_json(&line);
        match Cli::try_parse_from(&line) {
            Ok(Cli { verb: Verb::Serve(args), log_format, .. }) => {
                if let Err(error) = args.settings(log_format) {
                    let shown = error.to_string();
                    prop_assert!(!shown.is_empty() && shown.len() < 2_000, "{} bytes: {}", shown.len(), shown);
                    prop_assert!(!shown.chars().any(char::is_control), "{:?}", shown);
                }
            }
            Ok(cli) => drop(format!("{cli:?}")),
            Err(error) => {
                let answer = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
                prop_assert_eq!(error.exit_code(), if answer { 0 } else { 2 });
                prop_assert!(!error.to_string().trim().is_empty());
            }
        }
    }
}

/// Words that are refused all the time prove nothing.
#[test]
fn the_random_command_lines_reach_every_verb() {
    use proptest::strategy::ValueTree as _;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    for verb in VERBS {
        let strategy = prop::collection::vec(word(), 0..5);
        let understood = (0..20_000).any(|_| {
            let words = strategy.new_tree(&mut runner).unwrap().current();
            let line = ["ringfence"].iter().chain(*verb).map(OsString::from).chain(words);
            // What nearly every verb needs first.
            let given: &[&str] = match verb.last() {
                Some(&"create") => &["orders", "--partitions", "4"],
                Some(&"update") => &["orders", "--balance", "true"],
                Some(&"move") => &["orders/1", "--to", "w1"],
                Some(&"apply") => &["a.plan"],
                Some(&"weight" | &"weigh") => &["3"],
                Some(&"who-owns") => &["orders", "key"],
                Some(&"demo-worker") => {
                    &["--endpoints", "http://a:1", "--id", "w", "--keyspace", "k", "--database", "d"]
                }
                _ => &[],
            };
            Cli::try_parse_from(line.chain(given.iter().map(OsString::from))).is_ok()
        });
        assert!(understood, "{verb:?}");
    }
}
