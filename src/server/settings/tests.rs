use super::*;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

fn three() -> Given {
    Given {
        node: Some(1),
        listen: Some("127.0.0.1:7601".to_owned()),
        data_dir: Some("/var/lib/ringfence".into()),
        cluster: Some(list("1=127.0.0.1:7601,2=127.0.0.1:7602,3=127.0.0.1:7603")),
        ..Given::default()
    }
}

fn list(text: &str) -> Vec<String> {
    text.split(',').map(str::to_owned).collect()
}

fn refused(given: Given) -> String {
    given.check().expect_err("refused").to_string()
}

#[test]
fn what_the_documentation_shows_is_accepted() {
    let settings = three().check().unwrap();
    assert_eq!(settings.advertise.as_deref(), Some("127.0.0.1:7601"));
    assert!(matches!(&settings.membership, Membership::Found(founders) if founders.nodes().len() == 3));
    let joins = Given { node: Some(4), cluster: None, join: Some(true), ..three() }.check().unwrap();
    assert_eq!((joins.membership, joins.advertise.as_deref()), (Membership::Join, Some("127.0.0.1:7601")));
}

#[test]
fn each_setting_that_cannot_work_is_refused_and_both_that_disagree_are_named() {
    let with = |change: fn(&mut Given)| {
        let mut given = three();
        change(&mut given);
        refused(given)
    };
    for (message, parts) in [
        (with(|g| g.node = None), ["node is missing", "1"]),
        (with(|g| g.node = Some(0)), ["node is 0", "between 1"]),
        (with(|g| g.node = Some(u64::MAX)), ["node is 18446744073709551615", "2^53"]),
        (with(|g| g.node = Some(7)), ["node is 7", "cluster lists 1=127.0.0.1:7601"]),
        (with(|g| g.data_dir = None), ["data-dir is missing", "ringfence dev"]),
        (with(|g| g.cluster = None), ["cluster is missing", "join"]),
        (with(|g| g.cluster = Some(vec![])), ["cluster is missing", "join"]),
        (with(|g| g.join = Some(true)), ["join and cluster", "both"]),
        (with(|g| g.listen = Some("node1:7600".into())), ["listen is \"node1:7600\"", "advertise"]),
        (with(|g| g.listen = Some("127.0.0.1".into())), ["listen is \"127.0.0.1\"", "port"]),
        (with(|g| g.listen = Some("localhost:99999".into())), ["listen is", "65535"]),
        (with(|g| g.listen = Some("\u{1b}[2J".into())), ["listen is \"\\u{1b}[2J\"", "port"]),
        (with(|g| g.listen = Some("0.0.0.0:7601".into())), ["listen is 0.0.0.0:7601", "insecure"]),
        (
            with(|g| g.advertise = Some("other:7601".into())),
            ["advertise is other:7601", "cluster lists 127.0.0.1:7601"],
        ),
        (with(|g| g.advertise = Some("other".into())), ["advertise is \"other\"", "port is missing"]),
        (with(|g| g.log_format = Some("xml".into())), ["log-format is \"xml\"", "json"]),
        (with(|g| g.heartbeat_ms = Some(0)), ["heartbeat", "zero"]),
        (with(|g| g.heartbeat_ms = Some(200)), ["election", "heartbeat"]),
        (with(|g| g.election_min_ms = Some(400)), ["election_max", "election_min"]),
        (with(|g| g.election_max_ms = Some(u64::MAX)), ["election-max-ms is", "60000"]),
        (with(|g| g.snapshot_entries = Some(0)), ["snapshot-entries", "is 0"]),
        (with(|g| g.brake_percent = Some(101)), ["brake-percent is 101", "1 to 100"]),
        (with(|g| g.measure_every_ms = Some(99)), ["measure-every-ms is 99", "100 to 3600000"]),
    ] {
        assert!(parts.iter().all(|part| message.contains(part)), "{message} lacks one of {parts:?}");
    }
}

#[test]
fn a_list_of_nodes_that_is_none_is_refused_with_the_entry() {
    for (text, part) in [
        ("1=a:1,2=b:1", "lists 2 nodes"),
        ("1=a:1,2=b:1,3=c:1,4=d:1", "lists 4 nodes"),
        ("1=a:1,1=b:1,3=c:1", "node 1 is there twice, at a:1 and at b:1"),
        ("1=a:1,2=a:1,3=c:1", "address a:1 is that of node 1 and of node 2"),
        ("1:a:1", "\"1:a:1\" is not ID=HOST:PORT: there is no '='"),
        ("one=a:1", "the id is not a number"),
        ("0=a:1", "0 is not a node id"),
        ("1=a", "the port is missing"),
        ("1=a:0", "1 to 65535"),
        ("1=a:70000", "1 to 65535"),
        ("1=:1", "the host is missing"),
        ("1=::1:7600", "in brackets"),
        ("1=a b:1", "no host has"),
        ("", "there is no '='"),
    ] {
        let message = Founders::parse(text.split(',')).expect_err(text).to_string();
        assert!(message.contains(part), "{text}: {message}");
    }
    assert!(Founders::parse(["1=[::1]:7600"]).is_ok());
}

#[test]
fn two_lists_that_differ_are_told_apart_in_words() {
    let ours = Founders::parse(["1=a:1", "2=b:1", "3=c:1"]).unwrap();
    let theirs = Founders::parse(["1=a:1", "2=x:1", "4=d:1"]).unwrap();
    assert_eq!(ours.difference(&ours), None);
    let told = ours.difference(&theirs).unwrap();
    assert_eq!(told, "it has 2=\"x:1\" where this node has b:1, it lacks 3=c:1, it has 4=\"d:1\" too");
}

fn secret_file(dir: &Path, content: &str, mode: u32) -> PathBuf {
    let path = dir.join("secret");
    std::fs::write(&path, content).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    path
}

#[test]
fn f037_where_others_can_reach_it_a_node_needs_a_secret_and_never_shows_it() {
    let dir = tempfile::tempdir().unwrap();
    let open = || Given { listen: Some("0.0.0.0:7601".into()), insecure: Some(true), ..three() };
    assert!(refused(open()).contains("cluster-secret-file is not set"));

    let short = secret_file(dir.path(), "hunter2\n", 0o600);
    let message = refused(Given { cluster_secret_file: Some(short), ..open() });
    assert!(message.contains("16 to 1024 bytes") && !message.contains("hunter2"), "{message}");
    let absent = refused(Given { cluster_secret_file: Some(dir.path().join("absent")), ..open() });
    assert!(absent.contains("absent") && absent.contains("No such file"), "{absent}");

    let path = secret_file(dir.path(), "correct horse battery staple\n", 0o644);
    let settings = Given { cluster_secret_file: Some(path), ..open() }.check().unwrap();
    let shown = format!("{settings:?}");
    assert!(!shown.contains("horse"), "{shown}");
    assert!(settings.warnings().iter().any(|w| w.contains("chmod 600")), "{:?}", settings.warnings());
}

#[test]
fn a_node_that_joins_must_be_told_how_it_is_reached() {
    let dir = tempfile::tempdir().unwrap();
    let secret = secret_file(dir.path(), "correct horse battery staple", 0o600);
    let given = Given {
        listen: Some("0.0.0.0:7604".into()),
        insecure: Some(true),
        cluster_secret_file: Some(secret),
        cluster: None,
        join: Some(true),
        ..three()
    };
    assert!(refused(given.clone()).contains("set advertise"));
    let settings = Given { advertise: Some("node4:7604".into()), ..given }.check().unwrap();
    assert_eq!(settings.advertise.as_deref(), Some("node4:7604"));
}

#[test]
fn what_was_given_first_wins_and_the_file_knows_no_other_keys() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("node.toml");
    std::fs::write(&path, "node = 3\nheartbeat_ms = 50\ncluster = [\"3=127.0.0.1:7603\"]\n").unwrap();
    let file = Given::read(&path).unwrap();
    let both = Given { node: Some(1), ..Given::default() }.or(file);
    assert_eq!((both.node, both.heartbeat_ms), (Some(1), Some(50)));

    std::fs::write(&path, "nodes = 3\n").unwrap();
    let message = Given::read(&path).expect_err("refused").to_string();
    assert!(message.contains("node.toml") && message.contains("nodes"), "{message}");
    let absent = Given::read(&dir.path().join("absent.toml")).expect_err("refused").to_string();
    assert!(absent.contains("absent.toml"), "{absent}");
}

#[test]
fn f021_what_a_file_has_in_it_is_not_painted_on_the_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("node.toml");
    let refuse = |text: &str| {
        std::fs::write(&file, text).unwrap();
        Given::read(&file).unwrap_err().to_string()
    };
    let message = refuse("node = 1\nlisten \u{1b}[2J\u{202e}\n");
    assert!(message.contains("line 2") && message.contains("\\u{1b}[2J\\u{202e}"), "{message}");
    assert!(message.chars().all(|c| c == '\n' || !c.is_control()), "{message:?}");
    let message = refuse(&format!("node {}\n", "x".repeat(1 << 20)));
    assert!(message.contains("line 1") && message.len() < 2_000, "{} bytes", message.len());
}

#[test]
fn the_short_ways_stay_on_the_loopback_interface() {
    assert!(Settings::in_memory().listening("127.0.0.1:7600").is_ok());
    let refused = Settings::in_memory().listening("0.0.0.0:7600").expect_err("refused").to_string();
    assert!(refused.contains("insecure"), "{refused}");
}
