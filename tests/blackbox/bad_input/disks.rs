//! Disks that are torn, damaged or full. What was acknowledged is there, or the node says which file it is not in.

use crate::harness::{Cluster, wait_for};
use nix::sys::signal::Signal;
use std::fs::{File, OpenOptions};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A single node that has acknowledged these keyspaces, and was then killed.
fn killed_node() -> (Cluster, Vec<String>) {
    let mut cluster = Cluster::durable(1);
    let names: Vec<String> = (0..10).map(|n| format!("keyspace-{n}")).collect();
    for name in &names {
        cluster.create_keyspace(name, 7, "5s");
    }
    cluster.node(1).kill();
    (cluster, names)
}

fn keyspaces(cluster: &Cluster) -> Vec<String> {
    let list = cluster.acknowledged(&["keyspace", "list"]);
    let mut names: Vec<String> =
        list.as_array().unwrap().iter().map(|found| found["name"].as_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

/// Starts the node on what its disk holds: everything that was acknowledged, or a refusal that names the file.
#[track_caller]
fn everything_or_nothing(cluster: &mut Cluster, names: &[String], file: &str) -> bool {
    cluster.start(1);
    let serves = wait_for("the node serves, or ends", || {
        if cluster.node(1).has_ended().is_some() {
            return Some(false);
        }
        let ran = cluster.run(&["keyspace", "list", "--timeout", "1s"]);
        (ran.code == 0).then_some(true)
    });
    if serves {
        let there = keyspaces(cluster);
        assert!(there == names, "it serves, and not everything that was acknowledged is there: {there:?}");
        return true;
    }
    let (code, said) = cluster.refusal(1);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains(cluster.data_dir(1).join(file).to_str().unwrap()), "{file} is not named: {said}");
    false
}

fn length(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().len()
}

fn overwrite(path: &Path, at: u64, bytes: &[u8]) {
    let mut file = OpenOptions::new().write(true).open(path).unwrap();
    file.seek(SeekFrom::Start(at)).unwrap();
    file.write_all(bytes).unwrap();
}

#[test]
fn g5_garbage_behind_the_end_of_a_log_loses_nothing_that_was_acknowledged() {
    let (mut cluster, names) = killed_node();
    let log = cluster.data_dir(1).join("log.redb");
    overwrite(&log, length(&log), &[0xa5; 5_000]);
    everything_or_nothing(&mut cluster, &names, "log.redb");
}

#[test]
fn g5_a_log_cut_short_is_recovered_or_refused_and_never_served_in_part() {
    let (mut cluster, names) = killed_node();
    let log = cluster.data_dir(1).join("log.redb");
    let whole = std::fs::read(&log).unwrap();
    let mut refused = 0;
    for kept in [whole.len() - 1, whole.len() - 4_096, whole.len() / 2, 4_096, 100, 0] {
        cluster.nodes.clear();
        std::fs::write(&log, &whole[..kept]).unwrap();
        refused += u32::from(!everything_or_nothing(&mut cluster, &names, "log.redb"));
    }
    assert!(refused >= 3, "a file of which half is gone cannot have been whole: {refused} were refused");
    // The file as it was is still good: nobody has repaired the refused ones into something else.
    cluster.nodes.clear();
    std::fs::write(&log, &whole).unwrap();
    assert!(everything_or_nothing(&mut cluster, &names, "log.redb"));
}

#[test]
fn g5_a_damaged_middle_of_a_file_is_refused_with_the_file_named() {
    let (mut cluster, names) = killed_node();
    let dir = cluster.data_dir(1);
    let log = dir.join("log.redb");
    let whole = std::fs::read(&log).unwrap();
    // Where the data is: on the pages that hold a keyspace's name, those that are in use and those that were.
    let name = names[3].as_bytes();
    let places: Vec<usize> =
        (0..whole.len() - name.len()).filter(|at| whole[*at..].starts_with(name)).collect();
    assert!(!places.is_empty(), "the name is nowhere in the log");
    let mut damaged = whole.clone();
    for at in &places {
        damaged[*at] ^= 0x20;
    }
    cluster.nodes.clear();
    std::fs::write(&log, &damaged).unwrap();
    assert!(!everything_or_nothing(&mut cluster, &names, "log.redb"), "a changed record was served");
    // A single bit, wherever it is, in the last commit too: on a page that is not in use any more it changes nothing.
    for at in places.into_iter().take(6) {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        cluster.nodes.clear();
        std::fs::write(&log, &damaged).unwrap();
        everything_or_nothing(&mut cluster, &names, "log.redb");
    }

    cluster.nodes.clear();
    std::fs::write(&log, &whole).unwrap();
    let identity = dir.join("node.json");
    let text = std::fs::read_to_string(&identity).unwrap();
    for damaged in
        [text.replace("\"node\": 1", "\"node\": 2"), text[..text.len() / 2].to_owned(), String::new()]
    {
        assert_ne!(damaged, text);
        cluster.nodes.clear();
        std::fs::write(&identity, damaged).unwrap();
        assert!(!everything_or_nothing(&mut cluster, &names, "node.json"));
    }
    std::fs::write(&identity, text).unwrap();
    cluster.nodes.clear();
    assert!(everything_or_nothing(&mut cluster, &names, "log.redb"));

    cluster.node(1).kill();
    std::fs::remove_file(&log).unwrap();
    cluster.start(1);
    let (code, said) = cluster.refusal(1);
    assert_eq!(code, Some(1), "a node without its votes came up");
    assert!(said.contains(dir.to_str().unwrap()) && said.contains("lost its log.redb"), "{said}");
}

/// A small disk of its own, for as long as this lives.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// `None` where only root may mount. Under CI that fails, or nobody would notice that the test never runs.
    fn mount(at: PathBuf, bytes: &str) -> Option<SmallDisk> {
        std::fs::create_dir_all(&at).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "ringfence-test", at.to_str().unwrap()])
            .output();
        if mounted.is_ok_and(|ran| ran.status.success()) {
            return Some(SmallDisk(at));
        }
        assert!(std::env::var_os("CI").is_none(), "this test mounts a file system, and CI has to let it");
        eprintln!("SKIPPED: a full disk cannot be tested without the right to mount one");
        None
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: the node that has it open may be on its way out.
        let _ = Command::new("umount").args(["-l", self.0.to_str().unwrap()]).output();
    }
}

#[test]
fn f039_f041_a_leader_whose_disk_is_full_stops_acknowledging_and_the_cluster_goes_on() {
    let mut cluster = Cluster::durable(3);
    let (leader, term) = cluster.leader();
    // The leader's data moves to the small disk; it is a follower afterwards, until it is asked to lead.
    cluster.node(leader).signal(Signal::SIGTERM);
    cluster.node(leader).ended();
    let data = cluster.data_dir(leader);
    let aside = cluster.dir().join("aside");
    std::fs::rename(&data, &aside).unwrap();
    let Some(disk) = SmallDisk::mount(data.clone(), "24m") else { return };
    let copied = Command::new("cp").arg("-a").arg(aside.join(".")).arg(&data).output().unwrap();
    assert!(copied.status.success(), "{copied:?}");
    cluster.start(leader);
    wait_for("the node on the small disk leads", || {
        let asked =
            cluster.run(&["cluster", "transfer-leader", "--to", &leader.to_string(), "--timeout", "2s"]);
        (asked.code == 0 && cluster.leader().0 == leader).then_some(())
    });
    cluster.run(&["keyspace", "create", "before", "--partitions", "10"]).done();

    let ballast = disk.0.join("ballast");
    let mut file = File::create(&ballast).unwrap();
    while file.write_all(&[0; 4_096]).is_ok() {}
    drop(file);

    // Changes until the disk is full: each is acknowledged or not, and what was acknowledged is kept.
    let mut acknowledged = vec!["before".to_owned()];
    let file = data.join("log.redb");
    let failure = format!("{} could not be written (No space left", file.display());
    for n in 0.. {
        if cluster.node(leader).log().contains(&failure) {
            break;
        }
        assert!(n < 400, "the node goes on although its disk is full, or does not name the file");
        let name = format!("during-{n}");
        let ran = cluster.run(&["keyspace", "create", &name, "--partitions", "1000", "--timeout", "3s"]);
        if ran.code == 0 {
            acknowledged.push(name);
        }
    }
    let (next, next_term) = cluster.leader();
    assert!(next != leader && next_term > term, "node {next} in term {next_term} after {leader} in {term}");
    cluster.acknowledged(&["keyspace", "create", "after", "--partitions", "1", "--if-absent"]);
    acknowledged.push("after".to_owned());
    let status = cluster.run(&["status"]);
    assert_eq!((status.code, &status.json()["needs_somebody"]), (1, &true.into()), "{status:?}");

    // With space again it comes back, and nothing acknowledged is lost, on its disk neither.
    cluster.node(leader).kill();
    std::fs::remove_file(ballast).unwrap();
    cluster.start(leader);
    let kept = |cluster: &Cluster| {
        let there = keyspaces(cluster);
        assert!(acknowledged.iter().all(|name| there.contains(name)), "{acknowledged:?} of {there:?}");
    };
    kept(&cluster);
    wait_for("it leads again", || {
        let asked =
            cluster.run(&["cluster", "transfer-leader", "--to", &leader.to_string(), "--timeout", "2s"]);
        (asked.code == 0 && cluster.leader().0 == leader).then_some(())
    });
    kept(&cluster);
    drop(cluster);
}
