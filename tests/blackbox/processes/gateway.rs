//! `ringfence gateway files` as an operator runs it: paused writers, a killed gateway, and what it refuses at the start.

use crate::harness::{Process, run};
use nix::sys::signal::Signal;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;

/// A gateway that serves, and its address.
fn gateway(dir: &Path, name: &str, args: &[&str]) -> (Process, String) {
    let files = dir.join("files");
    std::fs::create_dir_all(&files).unwrap();
    let files = files.to_str().unwrap();
    let all = [&["gateway", "files", "--dir", files, "--cluster", "prod", "--listen", "127.0.0.1:0"], args]
        .concat();
    let mut process = Process::start(name, dir, &all);
    let (_, out) = process.pipes();
    let mut line = String::new();
    BufReader::new(out).read_line(&mut line).unwrap();
    let address = line.trim().rsplit_once("http://").expect(&line).1.to_owned();
    (process, address)
}

/// A request of which the head and this part of the body are sent, and the rest is not.
fn begun(address: &str, method: &str, path: &str, token: &str, body: &str, sent: usize) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    let length = body.len();
    let stamp = if token.is_empty() { String::new() } else { format!("ringfence-token: {token}\r\n") };
    let head = format!("{method} {path} HTTP/1.1\r\nhost: {address}\r\n{stamp}content-length: {length}\r\n");
    write!(stream, "{head}connection: close\r\n\r\n{}", &body[..sent]).unwrap();
    stream
}

/// The status, and all of the answer.
fn answer(mut stream: TcpStream) -> (u16, String) {
    let mut all = String::new();
    stream.read_to_string(&mut all).unwrap();
    (all.split(' ').nth(1).unwrap().parse().unwrap(), all)
}

fn ask(address: &str, method: &str, path: &str, token: &str, body: &str) -> (u16, String) {
    answer(begun(address, method, path, token, body, body.len()))
}

const OLD: &str = "prod/orders/17@33";
const NEW: &str = "prod/orders/17@34";
const FILE: &str = "/orders/17/state.json";

#[test]
fn c03_c08_a09_f009_a_writer_that_stands_still_in_the_middle_of_its_request_overwrites_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (mut gateway, address) = gateway(dir.path(), "gateway", &[]);
    assert_eq!(ask(&address, "POST", "/.ringfence/raise", OLD, "").0, 204);
    assert_eq!(ask(&address, "PUT", FILE, OLD, "by 33").0, 204);
    // The old owner has begun to send. Its process is paused; its successor raises, reads and writes.
    let mut late = begun(&address, "PUT", FILE, OLD, "late", 2);
    assert_eq!(ask(&address, "POST", "/.ringfence/raise", NEW, "").0, 204);
    assert!(ask(&address, "GET", FILE, NEW, "").1.ends_with("by 33"));
    assert_eq!(ask(&address, "PUT", FILE, NEW, "by 34").0, 204);
    write!(late, "te").unwrap();
    let (status, said) = answer(late);
    assert_eq!(status, 412, "{said}");
    for part in
        ["ringfence-refusal: fenced", "ringfence-highest: 34", "\"own\":\"33\"", "application/problem+json"]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
    let on_disk = dir.path().join("files/orders/17/state.json");
    assert_eq!(std::fs::read_to_string(&on_disk).unwrap(), "by 34");
    assert_eq!(ask(&address, "PUT", FILE, "", "unstamped").0, 428);

    // The control: the program that writes the folder by itself, which nobody fences.
    std::fs::write(&on_disk, "late").unwrap();
    assert!(ask(&address, "GET", FILE, "", "").1.ends_with("late"), "the gateway is not the only way in");

    gateway.signal(Signal::SIGTERM);
    assert_eq!(gateway.ended().code(), Some(0), "{}", gateway.log());
}

#[test]
fn f011_t09_a_gateway_that_was_killed_refuses_who_was_refused_before_and_keeps_what_it_answered() {
    let dir = tempfile::tempdir().unwrap();
    let (mut first, address) = gateway(dir.path(), "first", &[]);
    assert_eq!(ask(&address, "POST", "/.ringfence/raise", OLD, "").0, 204);
    assert_eq!(ask(&address, "PUT", FILE, OLD, "by 33").0, 204);
    // Raised, answered, nothing written: then it is killed, in the middle of another's request.
    assert_eq!(ask(&address, "POST", "/.ringfence/raise", NEW, "").0, 204);
    let _broken_off = begun(&address, "PUT", FILE, NEW, "by 34", 2);
    first.kill();

    let (_second, address) = gateway(dir.path(), "second", &[]);
    let (status, said) = ask(&address, "PUT", FILE, OLD, "late");
    assert_eq!(status, 412, "{said}");
    assert!(ask(&address, "GET", FILE, "", "").1.ends_with("by 33"));
    assert!(ask(&address, "GET", "/.ringfence/highest/orders/17", "", "").1.ends_with("34\n"));
    assert_eq!(ask(&address, "PUT", FILE, NEW, "by 34").0, 204);
}

#[test]
fn what_a_gateway_cannot_serve_is_refused_at_the_start_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let (running, _) = gateway(dir.path(), "gateway", &[]);
    let files = dir.path().join("files");
    let files = files.to_str().unwrap();
    for (args, code, said) in [
        (&["--dir", files, "--cluster", "prod"] as &[&str], 1, "another gateway serves this folder"),
        (&["--dir", "/nowhere/at/all", "--cluster", "prod"], 1, "No such file"),
        (&["--dir", files, "--cluster", "No Name"], 2, "is not a name"),
        (&["--dir", files, "--cluster", "prod", "--scope", "nonsense"], 2, "a scope is written"),
        (&["--dir", files, "--cluster", "prod", "--listen", "0.0.0.0:0"], 2, "a token is no password"),
    ] {
        let all = [&["gateway", "files", "--listen", "127.0.0.1:0"], args].concat();

        let all: Vec<&str> =
            if args.contains(&"--listen") { [&["gateway", "files"], args].concat() } else { all };
        let ran = run("http://127.0.0.1:1", &all);
        assert_eq!(ran.code, code, "{args:?}: {ran:?}");
        assert!(ran.err.contains(said), "{args:?}: {ran:?}");
    }
    drop(running);
    let other = ["gateway", "files", "--listen", "127.0.0.1:0", "--dir", files, "--cluster", "test"];
    let ran = run("http://127.0.0.1:1", &other);
    assert_eq!(ran.code, 1, "{ran:?}");
    for said in ["guarded for cluster prod", "start it with --cluster prod"] {
        assert!(ran.err.contains(said), "{ran:?}");
    }
}
