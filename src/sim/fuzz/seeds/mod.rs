//! The inputs that a corpus begins with: what the product itself writes, so that mutations of them get far.
//!
//! `cargo test -p ringfence-sim -- --ignored write_corpus` writes those that are missing.

mod calls;
mod contract;
mod files;
mod streams;

use prost::Message as _;
use ringfence_api::v1;

/// What a target begins with: each under the name of its file.
pub(super) fn of(target: &str) -> Vec<(String, Vec<u8>)> {
    match target {
        "message" => named(&contract::MESSAGES),
        "peer" => named(&contract::PEERS),
        "failure" => failures(),
        "watch" => streams::watched(),
        "attach" => streams::attached(),
        "snapshot-stream" => streams::sent(),
        "entry" => files::entries(),
        "snapshot" => files::snapshots(),
        "apply" => files::histories(),
        "log" => files::logs(),
        "snapshot-file" => files::snapshot_files(),
        "identity-file" => files::identities(),
        "data-dir" => numbered([
            vec![],
            vec![4, 0, 0, 0, 1],
            vec![0, 0, 8, 0, 0],
            vec![9, 3, 0, 0, 2],
            vec![2, 0, 64, 0, 9],
        ]),
        "calls" => calls::stories(),
        "settings-file" => texts(&SETTINGS),
        "founders" => {
            texts(&["1=10.0.0.1:7600", "1=a:1,2=b:2,3=c:3", "1=[::1]:7600, 2=n2.local:7600, 3=127.0.0.1:1"])
        }
        "trace" => texts(&TRACES),
        "token" => texts(&["prod/orders/17@42", "prod/@locks/nightly@9", "a.b-c_d/o/0@9007199254740991"]),
        "name" => texts(&["orders", "worker-1.eu_west", "orders/17", "@locks/nightly"]),
        "endpoints" => texts(&[
            "http://127.0.0.1:7600",
            "http://a:1,http://b:2",
            "http://[::1]:7600/ , http://n1.local:80",
        ]),
        other => panic!("{other} has no seeds"),
    }
}

const SETTINGS: [&str; 4] = [
    include_str!("../../../../deploy/ringfence.toml"),
    "node = 1\nlisten = \"127.0.0.1:7601\"\ndata_dir = \"/d\"\ncluster = [\"1=127.0.0.1:7601\", \"2=b:2\", \"3=c:3\"]\n",
    "node = 4\nlisten = \"127.0.0.1:7604\"\nadvertise = \"n4:7604\"\ndata_dir = \"/d\"\njoin = true\nlog = \"debug\"\n",
    "node = 1\ndata_dir = \"/d\"\ncluster = [\"1=127.0.0.1:7600\"]\nheartbeat_ms = 50\nelection_min_ms = 200\n\
     election_max_ms = 400\nsnapshot_entries = 9\nsnapshot_bytes = 9\nsnapshot_every_ms = 9\nsnapshot_keep_entries = 0\n\
     settle_ms = 0\ncool_down_ms = 0\nlog_format = \"json\"\n",
];

const TRACES: [&str; 2] = [
    include_str!("../../../../examples/rollout.jsonl"),
    r#"{"keyspace": "o", "partitions": 4, "takeover": "fence", "ttl_ms": 5000, "drain_deadline_ms": 100, "lock_delay_ms": 9, "balance": true, "spread_zones": false, "labels": ["!spot", "k=v"], "settle_ms": 0, "cool_down_ms": 0, "load_ms": 1}
{"at_ms": 0, "event": "join", "worker": "w1", "weight": 2, "labels": {"k": "v\u00e4"}}
{"at_ms": 0, "event": "load", "loads": {"0": 12, "3": 900}}
{"at_ms": 1, "event": "weight", "worker": "w1", "weight": 3}
{"at_ms": 1, "event": "pin", "partition": 2, "worker": "w1"}
{"at_ms": 1, "event": "unpin", "partition": 2}
{"at_ms": 2, "event": "freeze", "worker": "w1"}
{"at_ms": 2, "event": "unfreeze", "partition": 1}
{"at_ms": 3, "event": "cordon", "worker": "w1"}
{"at_ms": 3, "event": "move", "partition": 0, "worker": "w1"}
{"at_ms": 9, "event": "fail", "worker": "w1"}
{"at_ms": 90, "event": "end"}
"#,
];

fn numbered<const N: usize>(inputs: [Vec<u8>; N]) -> Vec<(String, Vec<u8>)> {
    (1..).zip(inputs).map(|(number, input): (u32, _)| (format!("seed-{number}"), input)).collect()
}

fn texts(texts: &[&str]) -> Vec<(String, Vec<u8>)> {
    (1..)
        .zip(texts)
        .map(|(number, text): (u32, _)| (format!("seed-{number}"), text.as_bytes().to_vec()))
        .collect()
}

/// Each message with everything in it, once for each kind that it can be of.
fn named(names: &[&str]) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for name in names {
        let mut last = None;
        for kind in 0.. {
            let bytes = in_order(name, contract::sample(name, kind));
            if last.as_ref() == Some(&bytes) || kind > 0 && in_order(name, contract::sample(name, 0)) == bytes
            {
                break;
            }
            all.push((format!("{name}-{kind}"), [name.as_bytes(), b"\n", &bytes].concat()));
            last = Some(bytes);
        }
    }
    all
}

/// The entries of an append follow each other, which the contract cannot say.
fn in_order(name: &str, bytes: Vec<u8>) -> Vec<u8> {
    if name != "RaftAppendRequest" {
        return bytes;
    }
    let mut wire = v1::RaftAppendRequest::decode(&*bytes).unwrap();
    for (index, entry) in (1..).zip(&mut wire.entries) {
        entry.id = Some(v1::RaftLogId { term: 1, index });
    }
    wire.encode_to_vec()
}

/// One for each kind of error.
fn failures() -> Vec<(String, Vec<u8>)> {
    let detail = contract::sample("ErrorDetail", 0);
    let of = |kind: u8| [&b"9 the words of it\n"[..], &[0x08, kind], &detail[2..]].concat();
    (1..=16).map(|kind| (format!("kind-{kind}"), of(kind))).collect()
}
