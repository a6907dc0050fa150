//! etcd's own users and roles, beside the fence.

use crate::server::{Client, Server, etcdctl};
use crate::subject::{cluster, token};
use ringfence_fence::FenceErrorKind;
use ringfence_fence::etcd::{EtcdConnection, EtcdFence, Txn};
use std::process::Command;
use std::slice::from_ref;

fn as_user(server: &Server, name: &str, password: &str) -> Client {
    Client::of(EtcdConnection::to([server.address()]).unwrap().logged_in_as(name, password))
}

#[test]
fn who_may_not_write_the_fence_s_keys_can_neither_raise_nor_write_and_a_login_lasts() {
    let Some(etcdctl) = etcdctl() else { return };
    let server = Server::new();
    let run = |words: &str| {
        let out = Command::new(&etcdctl)
            .args(["--endpoints", &server.address()])
            .args(words.split(' '))
            .env("ETCDCTL_API", "3")
            .output()
            .unwrap();
        assert!(out.status.success(), "{words}: {}", String::from_utf8_lossy(&out.stderr));
    };
    let mut root = server.client();
    root.with(async |etcd| EtcdFence::install(etcd, &cluster("prod")).await).unwrap();
    for words in [
        "user add root:r",
        "user grant-role root root",
        "role add worker",
        "role grant-permission worker readwrite orders/ --prefix=true",
        "role grant-permission worker read ringfence/store",
        "role grant-permission worker readwrite ringfence/fence/ --prefix=true",
        "role add guest",
        "role grant-permission guest readwrite orders/ --prefix=true",
        "role grant-permission guest read ringfence/ --prefix=true",
        "user add worker:w",
        "user grant-role worker worker",
        "user add guest:g",
        "user grant-role guest guest",
        "auth enable",
    ] {
        run(words);
    }
    let owner = token("prod/orders/17@5");
    let write = Txn::new().put("orders/17/k", "v");
    let mut worker = as_user(&server, "worker", "w");
    let fence = worker.with(async |etcd| EtcdFence::install(etcd, &cluster("prod")).await).unwrap();
    worker.with(async |etcd| fence.raise(etcd, &owner).await).unwrap();
    worker.with(async |etcd| fence.write(etcd, from_ref(&owner), &write).await).unwrap();

    let mut guest = as_user(&server, "guest", "g");
    let theirs = guest.with(async |etcd| EtcdFence::install(etcd, &cluster("prod")).await).unwrap();
    let next = token("prod/orders/17@6");
    let raised = guest.with(async |etcd| theirs.raise(etcd, &next).await).unwrap_err();
    assert_eq!(raised.kind(), FenceErrorKind::Unfit, "{raised}");
    assert!(raised.to_string().contains("permission denied"), "{raised}");
    assert_eq!(fence.cluster(), theirs.cluster());
    assert_eq!(
        worker.with(async |etcd| fence.highest(etcd, owner.scope()).await).unwrap(),
        Some(owner.epoch())
    );

    for mut nobody in [server.client(), as_user(&server, "worker", "wrong")] {
        let error = nobody.with(async |etcd| fence.raise(etcd, &owner).await).unwrap_err();
        assert!(matches!(error.kind(), FenceErrorKind::Unfit), "{error}");
    }
    // The server forgets its logins when it starts again; the next connection logs in.
    let mut server = server;
    server.kill();
    server.start_again_behind_a_login();
    let again = loop {
        match worker.with(async |etcd| fence.write(etcd, from_ref(&owner), &write).await) {
            Err(error) if matches!(error.kind(), FenceErrorKind::Store | FenceErrorKind::Busy) => {}
            answer => break answer,
        }
    };
    assert!(again.unwrap().succeeded);
}
