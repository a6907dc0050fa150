//! The recipe for programs that do not use this crate: every block of the page is run with `etcdctl txn`.

use crate::server::{Server, etcdctl};
use crate::subject::{cluster, token};
use ringfence_fence::FenceErrorKind;
use ringfence_fence::etcd::{EtcdFence, Txn};
use std::io::Write;
use std::process::{Command, Stdio};
use std::slice::from_ref;

const PAGE: &str = include_str!("../../../../docs/fences-etcd.md");

/// The blocks ` ```etcdctl ANSWER `, with what is expected of them.
fn blocks() -> Vec<(&'static str, &'static str)> {
    PAGE.split("```etcdctl ")
        .skip(1)
        .map(|rest| {
            let (expected, rest) = rest.split_once('\n').unwrap();
            (expected, rest.split_once("\n```").unwrap().0)
        })
        .collect()
}

#[test]
fn a22_b06_every_block_of_the_page_is_answered_as_it_says_and_the_fence_agrees() {
    let Some(etcdctl) = etcdctl() else { return };
    let server = Server::new();
    let mut client = server.client();
    let id = client.txn(Txn::new().get("k")).header.cluster_id;
    let blocks = blocks();
    assert!(blocks.len() >= 6, "the page has lost its blocks");
    for (expected, block) in blocks {
        let mut child = Command::new(&etcdctl)
            .args(["--endpoints", &server.address(), "txn"])
            .env("ETCDCTL_API", "3")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let text = format!("{}\n\n", block.replace("ETCD_CLUSTER_ID", &format!("{id:016x}")));
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let out = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&out.stdout).into_owned();
        assert_eq!(said.lines().next(), Some(expected), "{block}\n{}", String::from_utf8_lossy(&out.stderr));
    }
    // What the recipe has raised, the crate believes, and the other way round.
    let fence = client.with(async |etcd| EtcdFence::install(etcd, &cluster("prod")).await).unwrap();
    let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
    let write = Txn::new().put("orders/17/cart", "by 34, from Rust");
    client.with(async |etcd| fence.write(etcd, from_ref(&new), &write).await).unwrap();
    let late = client.with(async |etcd| fence.write(etcd, from_ref(&old), &write).await).unwrap_err();
    assert_eq!(late.kind(), FenceErrorKind::Fenced);
}
