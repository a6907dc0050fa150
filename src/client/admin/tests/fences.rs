//! What is asked about fences, and what is made of the answers.

use super::status;
use crate::ErrorKind;
use crate::admin::{Admin, ReassertStep};
use crate::ids::{Epoch, LogIndex};
use crate::net::fake::{Answered, Asked, Fake};
use ringfence_api::v1;
use ringfence_api::v1::reassert::{OfWorker, Step, Waiting};

fn writes() -> v1::RefusedWrites {
    let holder = |worker: &str, epoch| v1::refused_writes::Holder {
        worker: worker.into(),
        session: epoch,
        epoch,
        granted_unix_ms: 5,
        lives: true,
    };
    v1::RefusedWrites {
        scope: "orders/3".into(),
        own_epoch: 7,
        highest_epoch: 8,
        store: "ledger".into(),
        observed: false,
        count: 3,
        first_unix_ms: 10,
        last_unix_ms: 20,
        writer: Some(holder("w1", 7)),
        successor: Some(holder("w2", 8)),
        reporter: String::new(),
        late_ms: Some(5),
        means: "it was paused\u{1b}[31m".into(),
    }
}

#[tokio::test]
async fn refused_writes_are_read_and_foreign_text_is_escaped() {
    let answer = |refusals| v1::ListRefusalsResponse { refusals, now_unix_ms: 99 };
    let fake = Fake::start(move |asked| match asked {
        Asked::Refused(request) if request.keyspace.is_empty() => {
            Ok(Answered::Refused(answer(vec![writes()])))
        }
        Asked::Refused(_) => {
            let odd = v1::RefusedWrites { own_epoch: 0, ..writes() };
            Ok(Answered::Refused(answer(vec![writes(), odd])))
        }
        _ => Ok(status()),
    })
    .await;
    let admin = Admin::at(fake.endpoint.to_string()).unwrap();
    let list = admin.refused_writes(None).await.unwrap();
    let one = &list.refusals[0];
    assert_eq!((list.now_unix_ms, one.count, one.late_ms, one.own.get()), (99, 3, Some(5), 7));
    assert_eq!(one.writer.as_ref().map(|holder| holder.worker.as_str()), Some("w1"));
    assert!(one.reporter.is_none() && !one.means.contains('\u{1b}'));
    let error = admin.refused_writes(Some("orders")).await.unwrap_err();
    assert!(
        error.kind() == ErrorKind::Malformed && error.to_string().contains("refusals[1].own_epoch"),
        "{error}"
    );
    assert_eq!(admin.refused_writes(Some("No Name")).await.unwrap_err().kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn an_order_carries_a_request_id_and_a_dry_run_none() {
    let fake = Fake::start(|asked| match asked {
        Asked::Reassert(request) => {
            let order = if request.dry_run { 0 } else { 42 };
            Ok(Answered::Reassert(v1::ReassertResponse { order, partitions: 4, owned: 3 }))
        }
        Asked::Reasserts(_) => {
            let waiting = Waiting {
                partition: 2,
                epoch: 7,
                worker: "w1".into(),
                step: Step::Ending.into(),
                ..Default::default()
            };
            let far = v1::Reassert {
                order: 42,
                keyspace: "orders".into(),
                partitions: 4,
                done: 3,
                waiting: vec![waiting],
                waiting_total: 1,
                workers: vec![OfWorker { worker: "w1".into(), partitions: 1 }],
                ..Default::default()
            };
            Ok(Answered::Reasserts(v1::ListReassertsResponse { reasserts: vec![far] }))
        }
        _ => Ok(status()),
    })
    .await;
    let admin = Admin::at(fake.endpoint.to_string()).unwrap().by("anna");
    let would = admin.would_reassert("orders", None, None).await.unwrap();
    assert_eq!((would.order, would.partitions, would.owned), (None, 4, 3));
    let order = admin.reassert("orders", Some(2), Epoch::new(150).ok()).await.unwrap();
    assert_eq!(order.order.map(LogIndex::get), Some(42));
    let asked: Vec<v1::ReassertRequest> = fake
        .asked()
        .into_iter()
        .filter_map(|asked| if let Asked::Reassert(request) = asked { Some(request) } else { None })
        .collect();
    assert!(asked[0].dry_run && asked[0].request.is_none() && asked[0].directive.is_none());
    assert_eq!((asked[1].partition, asked[1].above), (Some(2), 150));
    assert_eq!(asked[1].directive.as_ref().map(|given| given.by.as_str()), Some("anna"));
    assert!(asked[1].request.is_some());
    let above_all = admin.reassert("orders", None, Epoch::new(150).ok()).await.unwrap_err();
    assert_eq!(above_all.kind(), ErrorKind::Invalid);

    let far = admin.reasserts(Some("orders")).await.unwrap().remove(0);
    assert!(!far.is_done());
    assert_eq!((far.waiting[0].step, far.waiting[0].worker.as_str()), (ReassertStep::Ending, "w1"));
    assert_eq!(far.workers, [("w1".to_owned(), 1)]);
}
