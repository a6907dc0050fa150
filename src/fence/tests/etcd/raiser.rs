//! The fence as an async owner raises it.

use crate::server::available;
use crate::subject::{Fenced, token};
use ringfence_fence::{DeclaredFence, Enforcement, Fence, FenceError};

#[test]
fn b05_a_raiser_is_an_enforcing_fence_and_many_raise_at_once() {
    if !available() {
        return;
    }
    let mut db = Fenced::new();
    let declared = DeclaredFence::enforced("carts", db.fence.raiser(db.client.etcd.clone()));
    assert_eq!(declared.enforcement(), Enforcement::Enforced);
    let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
    db.client.wait(declared.raise(&new)).unwrap();
    assert!(matches!(db.client.wait(declared.raise(&old)), Err(FenceError::Fenced(_))));
    assert_eq!(db.client.wait(declared.highest(old.scope())).unwrap(), Some(new.epoch()));

    let raiser = db.fence.raiser(db.client.etcd.clone());
    let refused = db.client.wait(async move {
        let tasks: Vec<_> = (0..200)
            .map(|partition| {
                let raiser = raiser.clone();
                tokio::spawn(async move { raiser.raise(&token(&format!("prod/orders/{partition}@5"))).await })
            })
            .collect();
        let mut refused = Vec::new();
        for task in tasks {
            refused.extend(task.await.unwrap().err());
        }
        refused
    });
    let [FenceError::Fenced(f)] = refused.as_slice() else { panic!("{refused:?}") };
    assert_eq!(f.scope(), old.scope());
    assert_eq!(db.highest(token("prod/orders/199@1").scope()).unwrap().unwrap().get(), 5);
}
