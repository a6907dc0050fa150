//! F011: the fence survives what the server does not.

use crate::server::available;
use crate::subject::{Fenced, token};
use ringfence_fence::FenceErrorKind;
use std::sync::mpsc::channel;
use std::thread;

#[test]
fn f011_t09_whatever_was_answered_before_a_kill_in_the_middle_of_work_is_there_after_it() {
    if !available() {
        return;
    }
    let mut db = Fenced::new();
    let mut epoch = 0_u64;
    for _ in 0..2 {
        let mut raiser = db.server.client();
        let (fence, from) = (db.fence.clone(), epoch);
        let (answered, answers) = channel();
        let raising = thread::spawn(move || {
            let mut last = from;
            loop {
                let next = token(&format!("prod/orders/17@{}", last + 1));
                if raiser.with(async |etcd| fence.raise(etcd, &next).await).is_err() {
                    return last;
                }
                last += 1;
                let _ = answered.send(last);
            }
        });
        answers.iter().find(|last| *last >= from + 30);
        db.server.kill();
        let last = raising.join().unwrap();
        db.server.start_again();
        db.client = db.server.client();
        let kept = db.highest(token("prod/orders/17@1").scope()).unwrap().unwrap().get();
        // The last one may have been written and not answered.
        assert!(kept == last || kept == last + 1, "{last} was answered, and {kept} is there");
        epoch = kept;
        // No raise is asked for again: a restart of etcd loses nothing.
        db.set(&token(&format!("prod/orders/17@{kept}")), "goes on").unwrap();
        let older = token(&format!("prod/orders/17@{}", kept - 1));
        assert_eq!(db.set(&older, "late").unwrap_err().kind(), FenceErrorKind::Fenced);
    }
}
