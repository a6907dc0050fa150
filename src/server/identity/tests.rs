use super::*;
use crate::files::SystemFiles;

fn node(number: u64) -> NodeId {
    NodeId::new(number).unwrap()
}

fn open(dir: &Path, number: u64) -> Result<IdentityStore, IdentityError> {
    IdentityStore::open(Arc::new(SystemFiles), dir, node(number))
}

fn belonging(cluster: &str) -> Belonging {
    let member = |port: u16, incarnation| Member { address: format!("127.0.0.1:{port}"), incarnation };
    Belonging {
        cluster: ClusterId::new(cluster).unwrap(),
        members: BTreeMap::from([
            (node(1), member(7601, Some(Incarnation::new(u64::MAX)))),
            (node(2), member(7602, None)),
        ]),
        founder: true,
    }
}

#[test]
fn an_identity_survives_restarts_and_belonging_is_for_life() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path(), 1).unwrap();
    let first = store.identity().clone();
    assert_eq!(first.belongs, None);
    store.belong(belonging("c1")).unwrap();
    store.belong(belonging("c1")).unwrap();
    let error = store.belong(belonging("c2")).unwrap_err().to_string();
    assert!(error.contains("n1 belongs to cluster c1") && error.contains("cluster c2"), "{error}");
    drop(store);

    let again = open(dir.path(), 1).unwrap();
    let expected = Identity { belongs: Some(belonging("c1")), ..first };
    assert_eq!(again.identity(), &expected);
}

#[test]
fn f012_an_emptied_directory_has_another_incarnation() {
    let dir = tempfile::tempdir().unwrap();
    let first = open(dir.path(), 1).unwrap().identity().incarnation;
    std::fs::remove_file(dir.path().join("node.json")).unwrap();
    assert_ne!(open(dir.path(), 1).unwrap().identity().incarnation, first);
}

#[test]
fn the_directory_of_another_node_is_refused_with_both_named() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path(), 1).unwrap();
    store.belong(belonging("c1")).unwrap();
    drop(store);
    let error = open(dir.path(), 2).err().unwrap().to_string();
    assert!(error.contains("n1 (cluster c1)") && error.contains("this is n2"), "{error}");
}

#[test]
fn one_process_at_a_time_has_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let held = open(dir.path(), 1).unwrap();
    let error = open(dir.path(), 1).err().unwrap();
    assert!(matches!(error, IdentityError::Locked(_)), "{error}");
    drop(held);
    assert!(open(dir.path(), 1).is_ok());
}

#[test]
fn what_is_damaged_or_unknown_is_refused_with_the_file_named_and_never_guessed() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path(), 1).unwrap());
    let path = dir.path().join("node.json");
    let good = std::fs::read_to_string(&path).unwrap();
    let refuse = |text: &str| {
        std::fs::write(&path, text).unwrap();
        open(dir.path(), 1).err().unwrap().to_string()
    };
    for (text, part) in [
        (String::new(), "damaged"),
        (good[..good.len() / 2].to_owned(), "damaged"),
        (good.replace("\"node\": 1", "\"node\": 2"), "checksum"),
        (good.replace("\"node\": 1", "\"node\": 0"), "damaged"),
        (good.replace("\"format\": 1", "\"format\": 9"), "has format 9"),
    ] {
        let message = refuse(&text);
        assert!(message.contains("node.json") && message.contains(part), "{message}");
    }
    std::fs::write(&path, &good).unwrap();
    assert!(open(dir.path(), 1).is_ok());
}

#[test]
fn f021_what_a_damaged_file_has_in_it_is_not_painted_on_the_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let text = "{\"format\": 1, \"crc32c\": 1, \"identity\": {\"\u{9b}2J\u{202e}\": 1}}";
    std::fs::write(dir.path().join("node.json"), text).unwrap();
    let message = open(dir.path(), 1).err().unwrap().to_string();
    assert!(message.contains("\\u{9b}2J\\u{202e}"), "{message}");
}

#[test]
fn a_log_without_an_identity_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("log.redb"), b"").unwrap();
    let error = open(dir.path(), 1).err().unwrap();
    assert!(matches!(error, IdentityError::Orphaned(_)), "{error}");
}

#[test]
fn f012_an_identity_whose_log_is_gone_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path(), 1).unwrap();
    store.log_made().unwrap();
    drop(store);
    let error = open(dir.path(), 1).err().unwrap();
    assert!(matches!(error, IdentityError::LogLost(_)), "{error}");
    std::fs::write(dir.path().join("log.redb"), b"").unwrap();
    assert!(open(dir.path(), 1).is_ok());
}

#[test]
fn f012_a_directory_that_went_back_is_refused_for_ever() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path(), 1).unwrap();
    store.refuse_from_now_on("entry 7 is \u{9b}gone").unwrap();
    drop(store);
    for _ in 0..2 {
        let error = open(dir.path(), 1).err().unwrap();
        assert!(matches!(error, IdentityError::WentBack { .. }) && error.is_damage(), "{error}");
        let message = error.to_string();
        assert!(message.contains("REFUSED") && message.contains("entry 7 is \\u{9b}gone"), "{message}");
    }
}
