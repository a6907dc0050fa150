//! Plans that an operator approved: all of them in the log before the first move, and each move by itself.

use super::world::{World, drain, epoch, release, worker};
use crate::ids::{LogIndex, PartitionId, PartitionKey};
use crate::state::{
    ApprovedPlan, Command, DIRECTIVES_LEN, MAX_PLAN_MOVES, Outcome, PlanMove, PlanStage, PlanStep,
    PolicyChange, Refused, SkipReason, Subject,
};

fn key(partition: u32) -> PartitionKey {
    PartitionKey { keyspace: crate::ids::KeyspaceId::new(1), partition: PartitionId::new(partition) }
}

/// Four partitions of `a`.
fn world() -> (World, crate::ids::SessionId) {
    let mut world = World::new();
    let keyspace = world.create("orders", 4, PolicyChange::default());
    let a = world.join("a", keyspace);
    world.join("b", keyspace);
    for n in 0..4 {
        world.grant(key(n), a);
    }
    (world, a)
}

fn to_b(partition: u32) -> PlanMove {
    let (from, to) = (worker("a"), worker("b"));
    PlanMove { partition: key(partition), epoch: epoch(1), from, to, arrives: false, step: PlanStep::Waiting }
}

fn open(world: &mut World, size: u32) -> LogIndex {
    match world.ok(Command::OpenPlan { size, map: None, undoes: None }) {
        Outcome::Planned(id) => id,
        other => panic!("{other:?}"),
    }
}

fn extend(plan: LogIndex, moves: &[PlanMove]) -> Command {
    Command::ExtendPlan { plan, moves: moves.to_vec() }
}

fn plan(world: &World, id: LogIndex) -> &ApprovedPlan {
    world.state.plans().find(|plan| plan.id == id).expect("it is remembered")
}

fn begin(world: &mut World, plan: LogIndex, partition: u32) {
    let commands = vec![Command::Under { directive: plan }, drain(key(partition), epoch(1), "b")];
    world.apply(None, commands).outcome.unwrap();
}

#[test]
fn a_plan_starts_with_its_last_move_and_ends_with_the_last_one_begun() {
    let (mut world, _) = world();
    let id = open(&mut world, 3);
    world.ok(extend(id, &[to_b(0), to_b(1)]));
    assert_eq!(plan(&world, id).stage, PlanStage::Open);
    assert!(world.state.running_plan().is_none(), "no move begins while some are missing");
    world.ok(extend(id, &[to_b(3)]));
    assert_eq!(plan(&world, id).stage, PlanStage::Running);

    begin(&mut world, id, 1);
    assert_eq!(plan(&world, id).waiting, 2);
    world.ok(Command::SkipPlanned { plan: id, partition: key(0), why: SkipReason::TargetGone });
    world.unchanged(Command::SkipPlanned { plan: id, partition: key(0), why: SkipReason::Frozen });
    world.unchanged(Command::SkipPlanned { plan: id, partition: key(2), why: SkipReason::Frozen });
    begin(&mut world, id, 3);
    let done = plan(&world, id);
    assert_eq!((done.stage, done.waiting), (PlanStage::Done, 0));
    let steps: Vec<PlanStep> = done.moves.iter().map(|planned| planned.step).collect();
    assert_eq!(steps, [PlanStep::Skipped(SkipReason::TargetGone), PlanStep::Begun, PlanStep::Begun]);
}

#[test]
fn a_plan_made_from_another_map_is_refused_and_adds_nothing() {
    let (mut world, a) = world();
    let id = open(&mut world, 2);
    world.ok(release(key(1), epoch(1), a));
    assert_eq!(world.refused(extend(id, &[to_b(0), to_b(1)])), Refused::NotOwned(key(1)));
    world.grant(key(1), a);
    let stale = world.refused(extend(id, &[to_b(0), to_b(1)]));
    assert!(matches!(stale, Refused::StaleEpoch { partition, .. } if partition == key(1)));
    assert!(plan(&world, id).moves.is_empty());
}

/// It was given back and granted again, to the same worker, before the plan was opened: nothing but the epoch says so.
#[test]
fn a_move_made_for_another_epoch_is_refused_though_the_owner_is_the_same() {
    let (mut world, a) = world();
    world.ok(release(key(1), epoch(1), a));
    world.grant(key(1), a);
    let id = open(&mut world, 1);
    let stale = Refused::StaleEpoch { partition: key(1), named: Some(epoch(1)), current: Some(epoch(2)) };
    assert_eq!(world.refused(extend(id, &[to_b(1)])), stale);
    assert!(plan(&world, id).moves.is_empty());
    world.ok(extend(id, &[PlanMove { epoch: epoch(2), ..to_b(1) }]));
    assert_eq!(plan(&world, id).stage, PlanStage::Running);
}

/// The pieces of a plan come one by one, and the map goes on changing.
#[test]
fn a_plan_starts_only_on_the_map_that_it_was_made_from() {
    // An owner of the first piece changes before the last one comes.
    let (mut world, a) = world();
    let id = open(&mut world, 2);
    world.ok(extend(id, &[to_b(0)]));
    world.ok(release(key(0), epoch(1), a));
    world.grant(key(0), a);
    let stale = world.refused(extend(id, &[to_b(1)]));
    assert!(matches!(stale, Refused::StaleEpoch { partition, .. } if partition == key(0)), "{stale:?}");
    assert_eq!(plan(&world, id).stage, PlanStage::Open);

    // A partition that the plan does not move was granted after it was made, and before it was opened.
    let (mut world, a) = self::world();
    let made = world.state.revision();
    world.ok(release(key(3), epoch(1), a));
    world.grant(key(3), a);
    let open_with = |world: &mut World, map| match world.ok(Command::OpenPlan { size: 1, map, undoes: None })
    {
        Outcome::Planned(id) => id,
        other => panic!("{other:?}"),
    };
    let id = open_with(&mut world, Some(made));
    let stale = world.refused(extend(id, &[to_b(1)]));
    assert!(matches!(stale, Refused::StaleEpoch { partition, .. } if partition == key(3)), "{stale:?}");
    let now = world.state.revision();
    let id = open_with(&mut world, Some(now));
    world.ok(extend(id, &[to_b(1)]));
    assert_eq!(plan(&world, id).stage, PlanStage::Running);
}

#[test]
fn a_plan_s_move_begins_at_the_owner_and_ends_at_another() {
    let (mut world, _) = world();
    let id = open(&mut world, 1);
    for (from, to) in [("b", "a"), ("a", "a")] {
        let planned = PlanMove { from: worker(from), to: worker(to), ..to_b(0) };
        assert_eq!(world.refused(extend(id, &[planned])), Refused::NoSuchMove(key(0)), "{from} to {to}");
    }
    world.ok(extend(id, &[to_b(0)]));
}

/// Where a cancelled plan can be undone, a move that began behind its end would be missed.
#[test]
fn a_move_of_a_plan_decided_before_its_end_does_not_begin_after_it() {
    let (mut world, _) = world();
    let id = open(&mut world, 2);
    let decided = || vec![Command::Under { directive: id }, drain(key(1), epoch(1), "b")];
    let why = |world: &mut World| world.apply(None, decided()).outcome.unwrap_err().why;
    assert_eq!(why(&mut world), Refused::PlanNotRunning(id), "it has not started");
    world.ok(extend(id, &[to_b(0), to_b(1)]));
    begin(&mut world, id, 0);
    world.ok(Command::CancelPlan { plan: id, only_open: false });
    let before = world.state.clone();
    assert_eq!(why(&mut world), Refused::PlanNotRunning(id));
    world.assert_same_but_for_the_index(before);

    // One of which nothing is remembered is a directive like any other.
    for n in [2, 3] {
        let next = open(&mut world, 1);
        world.ok(extend(next, &[to_b(n)]));
        begin(&mut world, next, n);
    }
    assert_eq!(world.state.plans().find(|plan| plan.id == id), None);
    world.apply(None, decided()).outcome.unwrap();
}

#[test]
fn one_plan_at_a_time_and_in_order() {
    let (mut world, _) = world();
    let first = open(&mut world, 2);
    assert_eq!(world.refused(extend(first, &[to_b(1), to_b(0)])), Refused::PlanOutOfOrder(first));
    assert_eq!(world.refused(extend(first, &[to_b(0), to_b(0)])), Refused::PlanOutOfOrder(first));
    let too_many = [to_b(0), to_b(1), to_b(2)];
    assert_eq!(world.refused(extend(first, &too_many)), Refused::PlanOutOfOrder(first));
    world.ok(extend(first, &[to_b(1)]));
    assert_eq!(world.refused(extend(first, &[to_b(0)])), Refused::PlanOutOfOrder(first));

    // Whoever wrote the first one has given up.
    let second = open(&mut world, 1);
    assert_eq!(world.refused(extend(first, &[to_b(2)])), Refused::NoSuchPlan(first));
    world.ok(extend(second, &[to_b(2)]));
    let stage = PlanStage::Running;
    assert_eq!(world.refused(extend(second, &[to_b(3)])), Refused::PlanNotOpen { plan: second, stage });
    assert_eq!(
        world.refused(Command::OpenPlan { size: 1, map: None, undoes: None }),
        Refused::PlanRunning(second)
    );
    world.ok(Command::CancelPlan { plan: second, only_open: false });
    world.unchanged(Command::CancelPlan { plan: second, only_open: false });
    assert_eq!(plan(&world, second).stage, PlanStage::Cancelled);
    for size in [0, MAX_PLAN_MOVES + 1] {
        assert!(matches!(
            world.refused(Command::OpenPlan { size, map: None, undoes: None }),
            Refused::Limit { .. }
        ));
    }
    // The last two that have started are remembered, and one that is being written beside them.
    let third = open(&mut world, 1);
    world.ok(extend(third, &[to_b(0)]));
    begin(&mut world, third, 0);
    let fourth = open(&mut world, 1);
    let remembered = |world: &World| world.state.plans().map(|plan| plan.id).collect::<Vec<_>>();
    assert_eq!(remembered(&world), [second, third, fourth]);
    world.ok(extend(fourth, &[to_b(3)]));
    assert_eq!(remembered(&world), [third, fourth]);
}

fn approved(world: &mut World, size: u32) -> LogIndex {
    let subject = Subject::Keyspace(key(0).keyspace);
    let [by, what, reason] = ["ada", "a plan", "why not"].map(str::to_owned);
    let direct = Command::Direct { subject, by, what, reason };
    let open = Command::OpenPlan { size, map: None, undoes: None };
    match world.apply(None, vec![direct, open]).outcome.unwrap()[..] {
        [Outcome::Done, Outcome::Planned(id)] => id,
        ref other => panic!("{other:?}"),
    }
}

/// Whoever drops a plan of which a piece was refused has seen it open, and its last piece may have come meanwhile.
#[test]
fn a_plan_that_has_started_meanwhile_is_not_dropped_with_one_that_is_being_written() {
    let (mut world, _) = world();
    let drop = |plan| Command::CancelPlan { plan, only_open: true };
    let started = approved(&mut world, 1);
    world.ok(extend(started, &[to_b(0)]));
    world.unchanged(drop(started));
    assert_eq!(plan(&world, started).stage, PlanStage::Running);
    begin(&mut world, started, 0);
    world.unchanged(drop(started));

    let open = approved(&mut world, 2);
    world.ok(extend(open, &[to_b(1)]));
    world.ok(drop(open));
    assert_eq!(world.refused(drop(open)), Refused::NoSuchPlan(open));
}

/// Who approves something is told from the start of it on. What is refused before that takes nothing and leaves nothing.
#[test]
fn a_plan_that_does_not_start_leaves_nothing() {
    let (mut world, a) = world();
    let first = approved(&mut world, 1);
    assert_eq!(world.state.directive(first).unwrap().by, "ada", "the plan names it all the same");
    assert_eq!(world.state.directives().count(), 0);
    world.ok(extend(first, &[to_b(0)]));
    assert_eq!(world.state.directives().map(|told| told.at).collect::<Vec<_>>(), [first]);
    begin(&mut world, first, 0);
    let second = approved(&mut world, 1);
    world.ok(extend(second, &[to_b(1)]));
    begin(&mut world, second, 1);

    let before = world.state.clone();
    let refused = approved(&mut world, 1);
    world.ok(release(key(2), epoch(1), a));
    assert_eq!(world.refused(extend(refused, &[to_b(2)])), Refused::NotOwned(key(2)));
    world.ok(Command::CancelPlan { plan: refused, only_open: false });
    assert_eq!(
        world.refused(Command::CancelPlan { plan: refused, only_open: false }),
        Refused::NoSuchPlan(refused)
    );
    let plans = |state: &crate::state::State| state.plans().cloned().collect::<Vec<_>>();
    assert_eq!(plans(&world.state), plans(&before));
    assert!(world.state.directives().eq(before.directives()));

    // Given up without a word: the next one takes its place.
    let given_up = approved(&mut world, 1);
    let next = approved(&mut world, 1);
    assert_eq!(world.state.directive(given_up), None);
    world.ok(extend(next, &[to_b(3)]));
    assert_eq!(world.state.directives().map(|told| told.at).collect::<Vec<_>>(), [first, second, next]);
}

/// What was decided while a plan was written stands behind it in the list, as it was decided later.
#[test]
fn the_directive_of_a_plan_stands_where_it_was_given() {
    let (mut world, _) = world();
    let plan = approved(&mut world, 1);
    let later = world.next_index();
    let [by, what, reason] = ["bob", "look", ""].map(str::to_owned);
    world.ok(Command::Direct { subject: Subject::Cluster, by, what, reason });
    world.ok(extend(plan, &[to_b(0)]));
    assert_eq!(world.state.directives().map(|told| told.at).collect::<Vec<_>>(), [plan, later]);

    // Whoever wants to undo it has to know whose it is.
    for _ in 0..DIRECTIVES_LEN {
        let [by, what, reason] = ["eve", "look", ""].map(str::to_owned);
        world.ok(Command::Direct { subject: Subject::Cluster, by, what, reason });
    }
    assert!(world.state.directives().all(|told| told.by == "eve"));
    assert_eq!(world.state.directive(plan).unwrap().by, "ada");
}

#[test]
fn what_is_to_be_taken_back_may_be_on_its_way_or_there_and_nowhere_else() {
    let (mut world, a) = world();
    let back = || PlanMove { from: worker("b"), to: worker("a"), arrives: true, ..to_b(0) };
    let fits = |world: &World| world.state.check_moves(&[back()]);
    let stale = Refused::StaleEpoch { partition: key(0), named: Some(epoch(1)), current: Some(epoch(1)) };
    assert_eq!(fits(&world), Err(stale), "it has not left");
    world.ok(drain(key(0), epoch(1), "b"));
    assert_eq!(fits(&world), Ok(()));
    let b = world.state.session_of(&worker("b")).unwrap().id();
    world.ok(release(key(0), epoch(1), a));
    assert_eq!(fits(&world), Ok(()), "nobody owns it yet");
    world.grant(key(0), b);
    assert_eq!(fits(&world), Ok(()), "it has arrived");
    world.ok(release(key(0), epoch(2), b));
    world.grant(key(0), a);
    assert!(matches!(fits(&world), Err(Refused::StaleEpoch { .. })), "it has moved on");
}
