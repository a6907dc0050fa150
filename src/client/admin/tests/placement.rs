//! Decisions about where partitions are, put to a scripted node.

use super::status;
use crate::admin::{
    Admin, BeforeAfter, Directive, MoveStep, PartitionChange, PlanStage, Proposal, ProposedMove, Weight,
    WhatIf, WorkerChange,
};
use crate::error::ErrorKind;
use crate::net::fake::{Answered, Asked, Fake};
use ringfence_api::{Failure, v1};
use ringfence_core::ids::{Epoch, KeyspaceName, LogIndex, PartitionId, Revision, WorkerId};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

const HOSTILE: &str = "a\u{1b}[2Jb";

fn worker(name: &str) -> WorkerId {
    WorkerId::new(name).unwrap()
}

fn given(index: u64) -> v1::GivenDirective {
    v1::GivenDirective {
        index,
        unix_ms: 9,
        by: HOSTILE.to_owned(),
        what: "drain worker w1".to_owned(),
        reason: HOSTILE.to_owned(),
    }
}

fn is_escaped(directive: &Directive) -> bool {
    directive.by == "a\\u{1b}[2Jb" && directive.reason == directive.by
}

fn summary(moves: u32) -> v1::PlanSummary {
    v1::PlanSummary {
        keyspace: "orders".to_owned(),
        lineage: 3,
        revision: 40,
        moves,
        spread_before: 7,
        spread_after: 1,
        workers: 1,
        reasons: vec![v1::PlanReason { reason: HOSTILE.to_owned(), moves }],
        obstacles: vec![HOSTILE.to_owned()],
        more_obstacles: 4,
        ..Default::default()
    }
}

fn plan_worker() -> v1::PlanWorker {
    v1::PlanWorker {
        worker: "w1".to_owned(),
        zone: HOSTILE.to_owned(),
        weight: 2,
        standing: HOSTILE.to_owned(),
        before: 8,
        after: 5,
        share: 5,
    }
}

fn planned(partition: u32) -> v1::PlannedMove {
    v1::PlannedMove {
        partition,
        epoch: u64::from(partition) + 100,
        from: "w1".to_owned(),
        to: "w2".to_owned(),
        reason: "balance".to_owned(),
        load: 0,
        arrives: false,
    }
}

fn piece(piece: v1::plan_response::Piece) -> v1::PlanResponse {
    v1::PlanResponse { piece: Some(piece) }
}

fn pieces(summary: v1::PlanSummary, moves: &[&[v1::PlannedMove]]) -> Vec<v1::PlanResponse> {
    use v1::plan_response::Piece;
    let moves = moves.iter().map(|moves| piece(Piece::Moves(v1::PlanMoves { moves: moves.to_vec() })));
    let workers = piece(Piece::Workers(v1::PlanWorkers { workers: vec![plan_worker()] }));
    [piece(Piece::Summary(summary)), workers].into_iter().chain(moves).collect()
}

#[tokio::test]
async fn t49_a_change_of_settings_says_only_what_is_to_change_by_whom_and_why() {
    let fake = Fake::start(|asked| match asked {
        Asked::Status => Ok(status()),
        Asked::Freeze(_) => Ok(Answered::Changed(false)),
        _ => Ok(Answered::Changed(true)),
    })
    .await;
    let admin = Admin::at(fake.endpoint.clone()).unwrap().by("ada").because("w1's disk is slow");
    let drain = WorkerChange { drained: Some(true), ..WorkerChange::default() };
    assert!(admin.set_worker(&worker("w1"), &drain).await.unwrap());
    let own_weight = WorkerChange { weight: Some(None), ..WorkerChange::default() };
    assert!(admin.set_worker(&worker("w1"), &own_weight).await.unwrap());
    let unpin = PartitionChange { pin: Some(None), weight: Some(Some(7)), ..PartitionChange::default() };
    assert!(admin.set_partition("orders", PartitionId::new(3), &unpin).await.unwrap());
    assert!(!admin.freeze(None, true).await.unwrap());
    assert!(admin.forget_worker(&worker("w1")).await.unwrap());
    assert!(admin.evict_worker(&worker("w1")).await.unwrap());
    assert!(admin.release_brake().await.unwrap());

    let by = Some(v1::Directive {
        by: "ada".to_owned(),
        reason: "w1's disk is slow".to_owned(),
        ..Default::default()
    });
    let mut ids = Vec::new();
    let mut kinds = Vec::new();
    for asked in fake.asked() {
        let (request, directive) = match asked {
            Asked::Status => continue,
            Asked::SetWorker(r) => {
                kinds.push("worker");
                match kinds.len() {
                    1 => assert_eq!(
                        (r.drained, r.cordoned, r.frozen, r.weight),
                        (Some(true), None, None, None)
                    ),
                    _ => assert_eq!((r.drained, r.weight), (None, Some(0))),
                }
                (r.request, r.directive)
            }
            Asked::SetPartition(r) => {
                kinds.push("partition");
                assert_eq!((r.pin.as_deref(), r.frozen, r.weight), (Some(""), None, Some(7)));
                (r.request, r.directive)
            }
            Asked::Freeze(r) => {
                kinds.push("freeze");
                assert_eq!((r.keyspace.as_str(), r.frozen), ("", true));
                (r.request, r.directive)
            }
            Asked::ForgetWorker(r) => {
                kinds.push("forget");
                (r.request, r.directive)
            }
            Asked::EvictWorker(r) => {
                kinds.push("evict");
                assert_eq!(r.worker, "w1");
                (r.request, r.directive)
            }
            Asked::ReleaseBrake(r) => {
                kinds.push("brake");
                (r.request, r.directive)
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(directive, by);
        ids.push(request.unwrap().id);
    }
    assert_eq!(kinds, ["worker", "worker", "partition", "freeze", "forget", "evict", "brake"]);
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 7, "each is a request of its own");
}

#[tokio::test]
async fn a_move_names_who_asked_for_it_and_nobody_when_nobody_said() {
    let fake = Fake::start(|asked| match asked {
        Asked::Status => Ok(status()),
        _ => Ok(Answered::Move(v1::MovePartitionResponse::default())),
    })
    .await;
    let admin = Admin::at(fake.endpoint.clone()).unwrap();
    let sent = || {
        let Some(Asked::Move(request)) = fake.asked().pop() else { panic!() };
        request.directive
    };
    admin.move_partition("orders", PartitionId::new(3), &worker("w2")).await.unwrap();
    assert_eq!(sent(), None);
    admin.by("ada").move_partition("orders", PartitionId::new(3), &worker("w2")).await.unwrap();
    assert_eq!(
        sent(),
        Some(v1::Directive { by: "ada".to_owned(), reason: String::new(), ..Default::default() })
    );
}

#[tokio::test]
async fn a_weight_that_no_partition_can_have_is_not_sent() {
    let fake = Fake::start(|_| Ok(status())).await;
    let admin = Admin::at(fake.endpoint.clone()).unwrap();
    for weight in [0, 1_000_001] {
        let change = PartitionChange { weight: Some(Some(weight)), ..PartitionChange::default() };
        let error = admin.set_partition("orders", PartitionId::new(0), &change).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("between 1 and 1000000"), "{error}");
    }
    assert!(!fake.asked().iter().any(|asked| matches!(asked, Asked::SetPartition(_))));
}

#[tokio::test]
async fn f021_a_plan_comes_in_pieces_whole_and_escaped() {
    let fake = Fake::start(|asked| match asked {
        Asked::Plan(_) => {
            let fresh = v1::PlannedMove { epoch: 0, from: String::new(), ..planned(5) };
            Ok(Answered::Plan(pieces(summary(3), &[&[planned(1), planned(2)], &[fresh]])))
        }
        _ => Ok(status()),
    })
    .await;
    let admin = Admin::at(fake.endpoint.clone()).unwrap();
    let labels = BTreeMap::from([("zone".to_owned(), "b".to_owned())]);
    let what_if = [
        WhatIf::Add { worker: worker("w9"), weight: Weight::new(2).unwrap(), labels },
        WhatIf::Remove(worker("w2")),
        WhatIf::Weigh { worker: worker("w1"), weight: Weight::new(3).unwrap() },
    ];
    let plan = admin.plan("orders", &what_if).await.unwrap();
    assert_eq!((plan.lineage, plan.revision.get(), plan.moves.len()), (3, 40, 3));
    assert_eq!(plan.spread, BeforeAfter { before: 7, after: 1 });
    let shown = "a\\u{1b}[2Jb";
    let of_worker = &plan.workers[0];
    assert_eq!((of_worker.zone.as_str(), of_worker.standing.as_str()), (shown, shown));
    assert_eq!((plan.reasons[0].0.as_str(), plan.obstacles[0].as_str()), (shown, shown));
    // A partition that nobody owns is granted without anybody's approval.
    assert_eq!((plan.moves[2].from.clone(), plan.moves[2].epoch), (None, None));
    let proposal = plan.proposal().unwrap();
    let numbers: Vec<u32> = proposal.moves.iter().map(|planned| planned.partition.get()).collect();
    assert_eq!(numbers, [1, 2]);

    let Some(Asked::Plan(asked)) = fake.asked().pop() else { panic!() };
    assert_eq!(asked.what_if.len(), 3);
    let Some(v1::what_if::Change::Add(add)) = &asked.what_if[0].change else { panic!() };
    assert_eq!((add.weight, add.labels["zone"].as_str()), (2, "b"));
}

#[tokio::test]
async fn f096_a_plan_that_lacks_a_piece_makes_no_sense() {
    use v1::plan_response::Piece;
    for (wrong, named) in [
        (vec![], "summary"),
        (vec![piece(Piece::Moves(v1::PlanMoves::default()))], "summary"),
        (pieces(summary(2), &[&[planned(1)]]), "2 were promised, and 1 came"),
        (vec![piece(Piece::Summary(summary(0)))], "workers: 1 were promised, and 0 came"),
        (pieces(summary(2), &[&[planned(2), planned(1)]]), "ascending"),
        (pieces(summary(1), &[&[v1::PlannedMove { to: "W".to_owned(), ..planned(1) }]]), "moves[0].to"),
        (pieces(summary(1), &[&[v1::PlannedMove { epoch: u64::MAX, ..planned(1) }]]), "moves[0].epoch"),
        (pieces(v1::PlanSummary { keyspace: String::new(), ..summary(0) }, &[]), "summary.keyspace"),
    ] {
        let fake = Fake::start(move |_| Ok(Answered::Plan(wrong.clone()))).await;
        let error = Admin::at(fake.endpoint.clone()).unwrap().plan("orders", &[]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Malformed);
        assert!(error.to_string().contains(named), "{named}: {error}");
    }
}

#[tokio::test]
async fn a_plan_that_supposes_something_cannot_be_approved_and_says_why() {
    let supposed = pieces(v1::PlanSummary { supposed: true, ..summary(1) }, &[&[planned(1)]]);
    let fake = Fake::start(move |_| Ok(Answered::Plan(supposed.clone()))).await;
    let plan = Admin::at(fake.endpoint.clone()).unwrap().plan("orders", &[]).await.unwrap();
    let error = plan.proposal().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(error.to_string().contains("plan again"), "{error}");
}

fn proposal(moves: u32) -> Proposal {
    let one = |partition| ProposedMove {
        partition: PartitionId::new(partition),
        epoch: Epoch::new(u64::from(partition) + 100).unwrap(),
        from: worker("w1"),
        to: worker("w2"),
        arrives: false,
    };
    Proposal {
        keyspace: KeyspaceName::new("orders").unwrap(),
        moves: (0..moves).map(one).collect(),
        undoes: LogIndex::new(12).into(),
        revision: Some(Revision::new(40)),
        lineage: Some(7),
    }
}

#[tokio::test]
async fn f014_a_plan_is_approved_in_pieces_each_under_its_own_request_id() {
    static TRIES: AtomicUsize = AtomicUsize::new(0);
    let fake = Fake::start(|asked| match asked {
        Asked::Status => Ok(status()),
        Asked::OpenPlan(_) => Ok(Answered::Opened(77)),
        // The first answer to the second piece is lost.
        Asked::ExtendPlan(_) if TRIES.fetch_add(1, Ordering::SeqCst) == 1 => {
            Err(Failure::unknown_outcome().into())
        }
        _ => Ok(Answered::Extended(v1::ExtendPlanResponse { changed: true, ..Default::default() })),
    })
    .await;
    let admin = Admin::at(fake.endpoint.clone()).unwrap().by("ada");
    assert_eq!(admin.approve(&proposal(2_500)).await.unwrap(), LogIndex::new(77));

    let extended: Vec<v1::ExtendPlanRequest> = fake
        .asked()
        .into_iter()
        .filter_map(|asked| if let Asked::ExtendPlan(request) = asked { Some(request) } else { None })
        .collect();
    assert_eq!(extended.iter().map(|r| r.moves.len()).collect::<Vec<_>>(), [1_000, 1_000, 1_000, 500]);
    assert_eq!(extended[1], extended[2], "a piece that is sent again is the same request");
    let id = |place: usize| extended[place].request.clone().unwrap().id;
    assert!(id(0) != id(1) && id(1) != id(3) && id(0) != id(3));
    assert!(extended.iter().all(|r| r.plan == 77 && r.keyspace == "orders"));
    assert_eq!(extended[3].moves[499].partition, 2_499);
    let opened = fake.asked().into_iter().find_map(|asked| match asked {
        Asked::OpenPlan(request) => Some(request),
        _ => None,
    });
    let opened = opened.unwrap();
    assert_eq!((opened.size, opened.undoes, opened.revision), (2_500, 12, 40));
    assert_eq!(opened.directive.unwrap().by, "ada");
}

#[tokio::test]
async fn a_plan_that_has_become_stale_is_given_up_and_says_to_plan_again() {
    static TRIES: AtomicUsize = AtomicUsize::new(0);
    let fake = Fake::start(|asked| match asked {
        Asked::Status => Ok(status()),
        Asked::OpenPlan(_) => Ok(Answered::Opened(77)),
        Asked::ExtendPlan(_) if TRIES.fetch_add(1, Ordering::SeqCst) == 1 => {
            Err(Failure::stale_epoch(Epoch::new(9).ok(), None).into())
        }
        _ => Ok(Answered::Extended(v1::ExtendPlanResponse { changed: true, ..Default::default() })),
    })
    .await;
    let admin = Admin::at(fake.endpoint.clone()).unwrap();
    let error = admin.approve(&proposal(2_500)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StaleEpoch);
    assert!(error.to_string().contains("plan again") && error.to_string().contains("e9"), "{error}");
    // Whoever refuses a piece drops the plan.
    let extended = fake.asked().into_iter().filter(|asked| matches!(asked, Asked::ExtendPlan(_))).count();
    assert!(extended == 2 && !fake.asked().iter().any(|asked| matches!(asked, Asked::CancelPlan(_))));
}

#[tokio::test]
async fn what_cannot_be_a_plan_is_not_opened() {
    let fake = Fake::start(|_| Ok(status())).await;
    let admin = Admin::at(fake.endpoint.clone()).unwrap();
    let mut reversed = proposal(2);
    reversed.moves.reverse();
    for (wrong, kind) in [(proposal(0), ErrorKind::Refused), (reversed, ErrorKind::Invalid)] {
        assert_eq!(admin.approve(&wrong).await.unwrap_err().kind(), kind);
    }
    assert!(fake.asked().is_empty());
}

fn approved(plan: u64, stage: v1::PlanStage) -> v1::ListPlansResponse {
    let plan = v1::ApprovedPlan {
        plan,
        keyspace: "orders".to_owned(),
        stage: stage.into(),
        size: 4,
        begun: 4,
        directive: Some(given(plan)),
        ..Default::default()
    };
    v1::ListPlansResponse { piece: Some(v1::list_plans_response::Piece::Plan(plan)) }
}

/// One that was stopped before anything began.
fn idle(plan: u64, stage: v1::PlanStage) -> v1::ListPlansResponse {
    let mut idle = approved(plan, stage);
    if let Some(v1::list_plans_response::Piece::Plan(plan)) = &mut idle.piece {
        plan.begun = 0;
    }
    idle
}

fn steps(steps: &[(u32, &str)]) -> v1::ListPlansResponse {
    let moves = steps.iter().map(|(partition, step)| v1::ApprovedMove {
        partition: *partition,
        epoch: 5,
        from: "w1".to_owned(),
        to: "w2".to_owned(),
        step: (*step).to_owned(),
        now: String::new(),
        waits_for: String::new(),
    });
    let moves = v1::ApprovedMoves { moves: moves.collect() };
    v1::ListPlansResponse { piece: Some(v1::list_plans_response::Piece::Moves(moves)) }
}

fn owned(partition: u32, epoch: u64, phase: v1::Phase, by: &str) -> v1::Partition {
    v1::Partition {
        keyspace: "orders".to_owned(),
        partition,
        phase: phase.into(),
        epoch,
        owner: (phase != v1::Phase::Vacant).then(|| v1::Owner {
            worker: by.to_owned(),
            session: 3,
            address: String::new(),
        }),
        ..Default::default()
    }
}

#[tokio::test]
async fn an_undo_has_what_the_plan_moved_and_is_still_where_it_brought_it() {
    let fake = Fake::start(|asked| match asked {
        Asked::Plans(asked) => {
            assert!(asked.with_moves);
            let moves = [(0, "begun"), (1, "begun"), (2, "begun"), (3, "begun"), (4, "waiting")];
            let more = [(5, "passed over: its owner had changed"), (6, "begun")];
            Ok(Answered::Plans(vec![
                approved(7, v1::PlanStage::Done),
                steps(&[(9, "begun")]),
                approved(20, v1::PlanStage::Cancelled),
                steps(&moves),
                steps(&more),
                idle(30, v1::PlanStage::Cancelled),
            ]))
        }
        Asked::Partitions(_) => Ok(Answered::Partitions(vec![v1::ListPartitionsResponse {
            partitions: vec![
                owned(0, 6, v1::Phase::Owned, "w2"),
                owned(1, 7, v1::Phase::Owned, "w3"),
                owned(2, 6, v1::Phase::Draining, "w2"),
                owned(3, 5, v1::Phase::Owned, "w2"),
                owned(4, 6, v1::Phase::Owned, "w2"),
                owned(5, 6, v1::Phase::Owned, "w2"),
                owned(6, 9, v1::Phase::Owned, "w2"),
                owned(9, 9, v1::Phase::Owned, "w2"),
            ],
        }])),
        _ => Ok(status()),
    })
    .await;
    let undo = Admin::at(fake.endpoint.clone()).unwrap().undo_plan(None).await.unwrap();
    let back = |partition, epoch| ProposedMove {
        partition: PartitionId::new(partition),
        epoch: Epoch::new(epoch).unwrap(),
        from: worker("w2"),
        to: worker("w1"),
        arrives: false,
    };
    assert_eq!(undo.proposal.moves, [back(0, 6), back(6, 9)]);
    assert_eq!((undo.plan, undo.left), (LogIndex::new(20), 3));
    assert_eq!(undo.proposal.undoes, Some(LogIndex::new(20)));
}

fn moving(partition: u32, epoch: u64, by: &str, to: &str) -> v1::Partition {
    let moving_to = to.to_owned();
    v1::Partition { moving_to, r#move: 4, ..owned(partition, epoch, v1::Phase::Draining, by) }
}

#[tokio::test]
async fn an_undo_takes_back_what_is_on_its_way_and_counts_what_came_back_as_done() {
    let fake = Fake::start(|asked| match asked {
        Asked::Plans(_) => {
            let moves = [0, 1, 2, 3, 4, 5].map(|partition| (partition, "begun"));
            Ok(Answered::Plans(vec![approved(20, v1::PlanStage::Ending), steps(&moves)]))
        }
        Asked::Partitions(_) => Ok(Answered::Partitions(vec![v1::ListPartitionsResponse {
            partitions: vec![
                moving(0, 5, "w1", "w2"),
                owned(1, 5, v1::Phase::Vacant, ""),
                owned(2, 7, v1::Phase::Owned, "w1"),
                moving(3, 6, "w2", "w1"),
                moving(4, 6, "w2", "w3"),
                owned(5, 6, v1::Phase::Owned, "w2"),
            ],
        }])),
        _ => Ok(status()),
    })
    .await;
    let undo = Admin::at(fake.endpoint.clone()).unwrap().undo_plan(None).await.unwrap();
    let back: Vec<_> =
        undo.proposal.moves.iter().map(|m| (m.partition.get(), m.epoch.get(), m.arrives)).collect();
    assert_eq!(back, [(0, 5, true), (1, 5, true), (5, 6, false)]);
    assert_eq!(undo.left, 1, "the fourth has moved on; the second and third are back, or on their way");
}

/// So that what an undo would do can be seen before the plan is stopped.
#[tokio::test]
async fn the_way_back_from_a_plan_that_is_carried_out_is_told_when_it_is_named() {
    let fake = Fake::start(|asked| match asked {
        Asked::Plans(_) => {
            let running = [approved(20, v1::PlanStage::Running), steps(&[(0, "begun"), (1, "waiting")])];
            let over = [approved(7, v1::PlanStage::Done), steps(&[(9, "begun")])];
            Ok(Answered::Plans(over.into_iter().chain(running).collect()))
        }
        Asked::Partitions(_) => Ok(Answered::Partitions(vec![v1::ListPartitionsResponse {
            partitions: vec![moving(0, 5, "w1", "w2"), owned(1, 5, v1::Phase::Owned, "w1")],
        }])),
        _ => Ok(status()),
    })
    .await;
    let admin = Admin::at(fake.endpoint.clone()).unwrap();
    let undo = admin.undo_plan(Some(LogIndex::new(20))).await.unwrap();
    let back: Vec<_> = undo.proposal.moves.iter().map(|m| (m.partition.get(), m.arrives)).collect();
    assert_eq!((back, undo.left), (vec![(0, true)], 0));
    for another in [None, Some(LogIndex::new(7))] {
        let error = admin.undo_plan(another).await.unwrap_err();
        assert!(error.kind() == ErrorKind::Refused && error.to_string().contains("plan 20"), "{error}");
    }
}

/// Said twice, it would make the moves again that it has just taken back.
#[tokio::test]
async fn an_undo_is_undone_by_its_number_only() {
    let undo_of = |plan: u64| {
        let mut piece = approved(30, v1::PlanStage::Done);
        if let Some(v1::list_plans_response::Piece::Plan(shown)) = &mut piece.piece {
            shown.undoes = plan;
        }
        piece
    };
    let fake = Fake::start(move |asked| match asked {
        Asked::Plans(_) => {
            let first = [approved(20, v1::PlanStage::Done), steps(&[(0, "begun")])];
            let second = [undo_of(20), steps(&[(0, "begun")])];
            Ok(Answered::Plans(first.into_iter().chain(second).collect()))
        }
        Asked::Partitions(_) => Ok(Answered::Partitions(vec![v1::ListPartitionsResponse {
            partitions: vec![owned(0, 7, v1::Phase::Owned, "w1")],
        }])),
        _ => Ok(status()),
    })
    .await;
    let admin = Admin::at(fake.endpoint.clone()).unwrap();
    let again = admin.undo_plan(None).await.unwrap();
    assert_eq!((again.plan, again.proposal.moves.len(), again.left), (LogIndex::new(20), 0, 0));
    assert_eq!(admin.undo_plan(Some(LogIndex::new(30))).await.unwrap().plan, LogIndex::new(30));
    let error = admin.undo_plan(Some(LogIndex::new(10))).await.unwrap_err();
    assert!(error.kind() == ErrorKind::NotFound && error.to_string().contains("20 and 30"), "{error}");

    let only_undos = Fake::start(move |_| Ok(Answered::Plans(vec![undo_of(20)]))).await;
    let error = Admin::at(only_undos.endpoint.clone()).unwrap().undo_plan(None).await.unwrap_err();
    assert!(error.kind() == ErrorKind::NotFound && error.to_string().contains("30"), "{error}");
}

fn hindered(hindrances: Vec<(bool, &str, u32)>) -> Answered {
    let one = |(passed_over, why, moves): (bool, &str, u32)| v1::PlanHindrance {
        passed_over,
        why: why.to_owned(),
        moves,
    };
    let hindrances = hindrances.into_iter().map(one).collect();
    Answered::Extended(v1::ExtendPlanResponse { changed: false, hindrances })
}

#[tokio::test]
async fn whether_a_plan_would_be_taken_is_asked_without_an_id() {
    let fake = Fake::start(|asked| match asked {
        Asked::OpenPlan(request) => {
            assert!(request.dry_run && request.request.is_none() && request.lineage == 7, "{request:?}");
            Ok(Answered::Opened(0))
        }
        Asked::ExtendPlan(request) => {
            assert!(request.dry_run && request.request.is_none(), "{request:?}");
            match request.moves.len() {
                1_000 => Ok(hindered(vec![(true, HOSTILE, 2), (false, "it is frozen", 1)])),
                _ => Err(Failure::stale_epoch(Epoch::new(9).ok(), None).into()),
            }
        }
        _ => Ok(status()),
    })
    .await;
    let admin = Admin::at(fake.endpoint.clone()).unwrap();
    // Each reason once, of all pieces together.
    let found = admin.check_proposal(&proposal(2_000)).await.unwrap();
    let found: Vec<_> = found.iter().map(|one| (one.passed_over, one.why.as_str(), one.moves)).collect();
    assert_eq!(found, [(false, "it is frozen", 2), (true, "a\\u{1b}[2Jb", 4)]);
    let error = admin.check_proposal(&proposal(1_500)).await.unwrap_err();
    assert!(error.kind() == ErrorKind::StaleEpoch && error.to_string().contains("plan again"), "{error}");
}

#[tokio::test]
async fn there_is_nothing_to_undo_while_a_plan_runs_or_when_there_was_none() {
    for (plans, kind) in [
        (vec![approved(7, v1::PlanStage::Done), approved(8, v1::PlanStage::Running)], ErrorKind::Refused),
        (vec![], ErrorKind::NotFound),
        (vec![approved(8, v1::PlanStage::Open)], ErrorKind::NotFound),
        (vec![idle(8, v1::PlanStage::Cancelled)], ErrorKind::NotFound),
    ] {
        let fake = Fake::start(move |_| Ok(Answered::Plans(plans.clone()))).await;
        let error = Admin::at(fake.endpoint.clone()).unwrap().undo_plan(None).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
    }
}

#[tokio::test]
async fn f021_plans_are_read_with_their_steps_and_by_whom() {
    let fake = Fake::start(|_| {
        let moves = steps(&[(0, "waiting"), (1, "begun"), (2, HOSTILE)]);
        Ok(Answered::Plans(vec![approved(7, v1::PlanStage::Running), moves]))
    })
    .await;
    let plans = Admin::at(fake.endpoint.clone()).unwrap().plans(true).await.unwrap();
    assert_eq!((plans.len(), plans[0].stage), (1, PlanStage::Running));
    let steps: Vec<_> = plans[0].moves.iter().map(|planned| planned.step.clone()).collect();
    let passed_over = MoveStep::Skipped("a\\u{1b}[2Jb".to_owned());
    assert_eq!(steps, [MoveStep::Waiting, MoveStep::Begun, passed_over]);
    assert!(is_escaped(plans[0].directive.as_ref().unwrap()));
}

#[tokio::test]
async fn f021_what_is_set_and_what_was_decided_is_told_with_by_whom() {
    let fake = Fake::start(|asked| match asked {
        Asked::Settings => Ok(Answered::Settings(v1::ListSettingsResponse {
            cluster_frozen: Some(given(1)),
            keyspaces_frozen: vec![v1::list_settings_response::FrozenKeyspace {
                keyspace: "orders".to_owned(),
                directive: Some(given(2)),
            }],
            workers: vec![v1::WorkerSettings {
                worker: "w1".to_owned(),
                drained: Some(given(3)),
                weight: 4,
                ..Default::default()
            }],
            partitions: vec![v1::PartitionSettings {
                keyspace: "orders".to_owned(),
                partition: 5,
                pin: "w1".to_owned(),
                pinned: Some(given(6)),
                ..Default::default()
            }],
            more_workers: 7,
            more_partitions: 8,
        })),
        Asked::Worker(_) => Ok(Answered::Worker(Box::new(v1::GetWorkerResponse {
            settings: Some(v1::WorkerSettings {
                worker: "w1".to_owned(),
                drained: Some(given(3)),
                ..Default::default()
            }),
            session: 0,
            partitions: 0,
            arriving: 0,
            events: vec![v1::WorkerEvent { index: 4, what: HOSTILE.to_owned(), ..Default::default() }],
        }))),
        _ => Ok(Answered::Directives(v1::ListDirectivesResponse { directives: vec![given(9), given(8)] })),
    })
    .await;
    let admin = Admin::at(fake.endpoint.clone()).unwrap();
    let settings = admin.settings().await.unwrap();
    assert!(is_escaped(settings.cluster_frozen.as_ref().unwrap()));
    assert_eq!(settings.keyspaces_frozen[0].0.as_str(), "orders");
    assert_eq!(
        (settings.workers[0].weight, settings.more_workers, settings.more_partitions),
        (Some(4), 7, 8)
    );
    assert!(settings.workers[0].drained.is_some() && settings.workers[0].cordoned.is_none());
    assert_eq!(settings.partitions[0].pin.as_ref().unwrap().0, worker("w1"));
    assert_eq!(settings.partitions[0].weight, None);

    let detail = admin.worker(&worker("w1")).await.unwrap();
    assert!(detail.may_stop() && detail.session.is_none());
    assert_eq!((detail.events[0].what.as_str(), detail.events[0].unix_ms), ("a\\u{1b}[2Jb", None));
    let directives = admin.directives().await.unwrap();
    assert_eq!(directives.iter().map(|d| d.at.get()).collect::<Vec<_>>(), [9, 8]);
    assert!(directives.iter().all(is_escaped));
}

#[tokio::test]
async fn f096_settings_that_make_no_sense_name_the_field() {
    for (wrong, field) in [
        (
            v1::ListSettingsResponse { workers: vec![v1::WorkerSettings::default()], ..Default::default() },
            "workers[0].worker",
        ),
        (
            v1::ListSettingsResponse {
                partitions: vec![v1::PartitionSettings {
                    keyspace: "orders".to_owned(),
                    pin: "w1".to_owned(),
                    ..Default::default()
                }],
                ..Default::default()
            },
            "partitions[0].pinned",
        ),
        (
            v1::ListSettingsResponse {
                keyspaces_frozen: vec![v1::list_settings_response::FrozenKeyspace::default()],
                ..Default::default()
            },
            "keyspaces_frozen[0].keyspace",
        ),
    ] {
        let fake = Fake::start(move |_| Ok(Answered::Settings(wrong.clone()))).await;
        let error = Admin::at(fake.endpoint.clone()).unwrap().settings().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Malformed);
        assert!(error.to_string().contains(field), "{field}: {error}");
    }
}

#[tokio::test]
async fn f021_an_explanation_is_read_whole_and_escaped() {
    let answer = v1::ExplainResponse {
        partition: Some(owned(3, 6, v1::Phase::Owned, "w1")),
        home: "w2".to_owned(),
        because: HOSTILE.to_owned(),
        holds: vec![HOSTILE.to_owned()],
        planned: Some(planned(3)),
        others: vec![v1::explain_response::WhyNot { worker: "w2".to_owned(), why: HOSTILE.to_owned() }],
        directives: vec![given(4)],
        load: 40,
        load_source: HOSTILE.to_owned(),
        pin: "w3".to_owned(),
    };
    let whole = answer.clone();
    let fake = Fake::start(move |_| Ok(Answered::Explain(Box::new(whole.clone())))).await;
    let told =
        Admin::at(fake.endpoint.clone()).unwrap().explain("orders", PartitionId::new(3)).await.unwrap();
    let shown = "a\\u{1b}[2Jb";
    assert_eq!((told.because.as_str(), told.holds[0].as_str()), (shown, shown));
    assert_eq!((told.others[0].why.as_str(), &told.others[0].worker), (shown, &worker("w2")));
    assert_eq!((told.home, told.planned.unwrap().to), (Some(worker("w2")), worker("w2")));
    assert!(is_escaped(&told.directives[0]));
    assert_eq!((told.load, told.pin), (Some((40, shown.to_owned())), Some(worker("w3"))));

    let lacking = v1::ExplainResponse { partition: None, ..answer };
    let fake = Fake::start(move |_| Ok(Answered::Explain(Box::new(lacking.clone())))).await;
    let error = Admin::at(fake.endpoint.clone()).unwrap().explain("orders", PartitionId::new(3)).await;
    assert!(error.unwrap_err().to_string().contains("field partition"));
}

#[test]
fn a_worker_may_stop_when_it_has_nothing_and_is_given_nothing() {
    let detail = |session, partitions, arriving, drained: bool| {
        let settings = v1::WorkerSettings {
            worker: "w1".to_owned(),
            drained: drained.then(|| given(1)),
            ..Default::default()
        };
        let wire = v1::GetWorkerResponse {
            settings: Some(settings),
            session,
            partitions,
            arriving,
            ..Default::default()
        };
        crate::admin::WorkerDetail::try_from(wire).unwrap().may_stop()
    };
    assert!(detail(1, 0, 0, true) && detail(0, 0, 0, false));
    assert!(!detail(1, 1, 0, true) && !detail(1, 0, 1, true) && !detail(1, 0, 0, false));
}
