//! One entry of each command, and a state with something in every corner. The golden files are made of these, so a
//! change here is a change of them.

use ringfence_core::ids::{
    ClusterId, Epoch, KeyspaceId, KeyspaceName, LockName, LogIndex, MoveId, NodeId, PartitionId,
    PartitionKey, Revision, SessionId, StoreName, WorkerId,
};
use ringfence_core::placement::{PartitionCount, Weight};
use ringfence_core::state::{
    BalanceBy, Command, Entry, GrantReason, Join, LockMode, LockWish, PartitionChange, PlanMove, PlanStep,
    Policy, PolicyChange, RefusalNote, RefusedWrite, Released, Request, SkipReason, State, Subject, Takeover,
    WorkerChange,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

fn key(partition: u32) -> PartitionKey {
    PartitionKey { keyspace: KeyspaceId::new(1), partition: PartitionId::new(partition) }
}

fn session(number: u64) -> SessionId {
    SessionId::new(number).unwrap()
}

fn epoch(number: u64) -> Epoch {
    Epoch::new(number).unwrap()
}

fn worker(name: &str) -> WorkerId {
    WorkerId::new(name).unwrap()
}

fn change() -> PolicyChange {
    PolicyChange {
        ttl: Some(Duration::from_millis(2_500)),
        takeover: Some(Takeover::Fence),
        drain_deadline: Some(Duration::from_secs(7)),
        lock_delay: Some(Duration::from_millis(125)),
        max_moves_in_flight: Some(9),
        balance: Some(false),
        ..PolicyChange::default()
    }
}

fn change_of_format_2() -> PolicyChange {
    PolicyChange {
        moves_per_minute: Some(300),
        rejoin_hold: Some(Duration::from_secs(90)),
        spread_zones: Some(false),
        balance_by: Some(BalanceBy::Load),
        constraints: Some(vec!["disk=ssd".parse().unwrap(), "!spot".parse().unwrap()]),
        ..change()
    }
}

fn create(name: &str, partitions: u32, policy: Policy) -> Command {
    Command::CreateKeyspace {
        keyspace: KeyspaceName::new(name).unwrap(),
        partitions: PartitionCount::new(partitions).unwrap(),
        policy,
    }
}

fn join(name: &str, nonce: u128, replaces: Option<SessionId>) -> Command {
    Command::Join(Box::new(Join {
        worker: worker(name),
        nonce,
        secret_hash: [0xab; 32],
        address: format!("{name}.example:7500"),
        weight: Weight::new(3).unwrap(),
        labels: BTreeMap::from([
            ("rack".to_owned(), "r1".to_owned()),
            ("zone".to_owned(), "eu-1a".to_owned()),
        ]),
        keyspaces: BTreeSet::from([KeyspaceId::new(1)]),
        replaces,
        splits: false,
        ends_drain: None,
        ttl: None,
    }))
}

fn join_splits(name: &str, nonce: u128, keyspace: KeyspaceId) -> Command {
    let Command::Join(mut join) = join(name, nonce, None) else { panic!("a join") };
    join.splits = true;
    join.keyspaces = BTreeSet::from([keyspace]);
    Command::Join(join)
}

fn join_anew(name: &str, nonce: u128) -> Command {
    let Command::Join(mut join) = join(name, nonce, None) else { panic!("a join") };
    join.ends_drain = Some(LogIndex::new(301));
    Command::Join(join)
}

fn grant(partition: u32, replaces: Option<u64>, to: u64, why: GrantReason) -> Command {
    let replaces = replaces.map(epoch);
    Command::Grant { partition: key(partition), replaces, to: session(to), why }
}

fn release(partition: u32, number: u64, how: Released) -> Command {
    Command::Release { partition: key(partition), epoch: epoch(number), session: session(1), how }
}

fn drain(partition: u32, number: u64, to: &str, why: GrantReason) -> Command {
    let deadline = Duration::from_millis(4_321);
    Command::Drain { partition: key(partition), epoch: epoch(number), to: worker(to), deadline, why }
}

/// Every command, with each of its shapes, under the name of its line in the golden file.
pub(super) fn commands() -> Vec<(&'static str, Command)> {
    vec![
        ("form_cluster", Command::FormCluster { cluster: ClusterId::new("c-1").unwrap(), lineage: u64::MAX }),
        ("note_node", Command::NoteNode { node: NodeId::new(3).unwrap() }),
        ("create_keyspace", create("orders", 64, Policy::default().with(&change()).unwrap())),
        ("create_keyspace_default", create("orders", 1, Policy::default())),
        ("update_keyspace", Command::UpdateKeyspace { keyspace: KeyspaceId::new(1), change: change() }),
        (
            "update_keyspace_nothing",
            Command::UpdateKeyspace { keyspace: KeyspaceId::new(1), change: PolicyChange::default() },
        ),
        ("delete_keyspace", Command::DeleteKeyspace { keyspace: KeyspaceId::new(300) }),
        ("join", join("w1", 1 << 100, None)),
        ("join_replaces", join("w1", 0, Some(session(2)))),
        ("withdraw", Command::Withdraw { session: session(1) }),
        ("leave", Command::Leave { session: session(1) }),
        ("suspect", Command::Suspect { sessions: vec![(session(2), 2), (session(1), 1)] }),
        ("clear", Command::Clear { sessions: vec![session(1), session(300)] }),
        ("expire", Command::Expire { session: session(1), suspicion: LogIndex::new(77) }),
        ("grant", grant(5, Some(41), 1, GrantReason::Failover)),
        ("grant_first", grant(0, None, 1, GrantReason::First)),
        ("drain", drain(5, 42, "w2", GrantReason::Balance)),
        ("revoke_seen", Command::RevokeSeen { partition: key(5), epoch: epoch(42), session: session(1) }),
        ("drain_over", Command::DrainOver { partition: key(5), epoch: epoch(42), move_id: MoveId::new(6) }),
        ("seize", Command::Seize { partition: key(5), epoch: Epoch::MAX, session: session(1) }),
        ("release_revoked", release(5, 42, Released::Revoked)),
        ("release_returned", release(5, 42, Released::Returned)),
        ("release_failed", release(5, 42, Released::Failed("it broke: ä".to_owned()))),
        ("ready", Command::Ready { partition: key(5), epoch: epoch(42), session: session(1) }),
        ("end_cooling", Command::EndCooling { partition: key(5), epoch: epoch(42) }),
    ]
}

/// What format 2 brought.
fn commands_of_format_2() -> Vec<(&'static str, Command)> {
    let direct = |subject| Command::Direct {
        subject,
        by: "anna".to_owned(),
        what: "drain worker w1".to_owned(),
        reason: "disk: ä".to_owned(),
    };
    let set_worker = |change| Command::SetWorker { worker: worker("w1"), change };
    let set_partition = |change| Command::SetPartition { partition: key(5), change };
    let (plan, id) = (LogIndex::new(90), KeyspaceId::new(1));
    vec![
        ("create_keyspace_2", create("orders", 64, Policy::default().with(&change_of_format_2()).unwrap())),
        ("update_keyspace_2", Command::UpdateKeyspace { keyspace: id, change: change_of_format_2() }),
        ("grant_returned", grant(5, Some(41), 1, GrantReason::Returned)),
        ("drain_pin", drain(5, 42, "w2", GrantReason::Pin)),
        ("release_restarting", release(5, 42, Released::Restarting)),
        ("direct_cluster", direct(Subject::Cluster)),
        ("direct_keyspace", direct(Subject::Keyspace(id))),
        ("direct_partition", direct(Subject::Partition(key(5)))),
        ("direct_worker", direct(Subject::Worker(worker("w1")))),
        ("under", Command::Under { directive: plan }),
        (
            "set_worker",
            set_worker(WorkerChange {
                drained: Some(true),
                drained_until_join: Some(true),
                cordoned: Some(false),
                frozen: Some(true),
                weight: Some(Some(Weight::new(7).unwrap())),
            }),
        ),
        ("set_worker_own_weight", set_worker(WorkerChange { weight: Some(None), ..Default::default() })),
        ("forget_worker", Command::ForgetWorker { worker: worker("w1") }),
        (
            "set_partition",
            set_partition(PartitionChange {
                pin: Some(Some(worker("w2"))),
                frozen: Some(true),
                weight: Some(Some(12)),
            }),
        ),
        (
            "set_partition_back",
            set_partition(PartitionChange { pin: Some(None), frozen: None, weight: Some(None) }),
        ),
        ("freeze_all", Command::Freeze { keyspace: None, frozen: true }),
        ("unfreeze_keyspace", Command::Freeze { keyspace: Some(id), frozen: false }),
        ("open_plan", Command::OpenPlan { size: 100_000, map: Some(Revision::new(300)), undoes: None }),
        ("open_plan_undoes", Command::OpenPlan { size: 1, map: None, undoes: Some(LogIndex::new(250)) }),
        ("extend_plan", Command::ExtendPlan { plan, moves: vec![planned(4, 41), arriving(5, 42)] }),
        ("skip_planned", Command::SkipPlanned { plan, partition: key(5), why: SkipReason::TargetGone }),
        ("cancel_plan", Command::CancelPlan { plan, only_open: false }),
        ("drop_plan", Command::CancelPlan { plan, only_open: true }),
        ("evict", Command::Evict { session: session(1) }),
        ("join_splits", join_splits("w1", 1 << 100, id)),
        ("join_anew", join_anew("w1", 1 << 100)),
        ("forgive", Command::Forgive { partition: key(5), epoch: epoch(42) }),
        ("grant_split", grant(5, Some(41), 1, GrantReason::Split)),
        ("start_split", Command::StartSplit { keyspace: id, from: PartitionCount::new(500_000).unwrap() }),
        ("cancel_split", Command::CancelSplit { keyspace: id }),
        ("split", Command::Split { partition: key(5), epoch: Some(epoch(42)) }),
        ("split_first", Command::Split { partition: key(0), epoch: None }),
        ("release_behind", release(5, 42, Released::Behind(epoch(150)))),
        ("grant_behind", grant(5, Some(42), 1, GrantReason::Behind)),
        ("drain_reassert", drain(5, 42, "w1", GrantReason::Reassert)),
        (
            "note_refusals",
            Command::NoteRefusals {
                notes: vec![refusal("orders/5", true), refusal("@locks/nightly", false)],
            },
        ),
        ("reassert", Command::Reassert { keyspace: id, partition: None }),
        ("reassert_one", Command::Reassert { keyspace: id, partition: Some(PartitionId::new(0)) }),
        ("end_reassert", Command::EndReassert { order: plan, keyspace: id, partition: None }),
        (
            "end_reassert_one",
            Command::EndReassert { order: plan, keyspace: id, partition: Some(PartitionId::new(0)) },
        ),
        ("raise_above", Command::RaiseAbove { partition: key(5), above: epoch(1 << 40) }),
        ("direct_lock", direct(Subject::Lock(lock("nightly")))),
        ("join_for_locks", join_for_locks("locker", 1 << 100)),
        ("acquire_lock", acquire("nightly", 1, 7, wish())),
        ("try_lock", try_lock("nightly", 1, 300, LockWish::new(LockMode::Shared))),
        (
            "release_lock",
            Command::ReleaseLock { lock: lock("nightly"), epoch: epoch(42), session: session(1) },
        ),
        ("abandon_lock", Command::AbandonLock { lock: lock("nightly"), session: session(1), request: 7 }),
        ("seize_lock", Command::SeizeLock { lock: lock("nightly"), epoch: epoch(42), session: session(1) }),
        ("break_lock", Command::BreakLock { lock: lock("nightly"), epoch: Some(epoch(42)), at_once: false }),
        ("break_lock_at_once", Command::BreakLock { lock: lock("nightly"), epoch: None, at_once: true }),
        (
            "end_lock_cooling",
            Command::EndLockCooling { lock: lock("nightly"), epoch: epoch(42), session: session(1) },
        ),
    ]
}

fn lock(name: &str) -> LockName {
    LockName::new(name).unwrap()
}

fn wish() -> LockWish {
    let (delay, alert) = (Duration::from_millis(2_500), Some(Duration::from_secs(30)));
    LockWish::new(LockMode::Exclusive).with(Takeover::Fence, delay, alert).unwrap()
}

fn acquire(name: &str, of: u64, request: u64, wish: LockWish) -> Command {
    Command::AcquireLock { lock: lock(name), session: session(of), request, wish, waits: true }
}

fn try_lock(name: &str, of: u64, request: u64, wish: LockWish) -> Command {
    Command::AcquireLock { lock: lock(name), session: session(of), request, wish, waits: false }
}

/// It serves no keyspace.
fn join_for_locks(name: &str, nonce: u128) -> Command {
    let Command::Join(mut join) = join(name, nonce, None) else { panic!("a join") };
    join.keyspaces = BTreeSet::new();
    join.ttl = Some(Duration::from_millis(4_500));
    Command::Join(join)
}

fn refusal(scope: &str, observed: bool) -> RefusalNote {
    let store = StoreName::new("ledger").unwrap();
    let what =
        RefusedWrite { scope: scope.parse().unwrap(), own: epoch(1), highest: epoch(2), store, observed };
    let reporter = observed.then(|| worker("w1"));
    RefusalNote {
        what,
        count: 3,
        first_unix_ms: 1_700_000_000_100,
        last_unix_ms: 1_700_000_000_200,
        reporter,
    }
}

fn planned(partition: u32, number: u64) -> PlanMove {
    let (from, to) = (worker("w1"), worker("w2"));
    let arrives = false;
    PlanMove { partition: key(partition), epoch: epoch(number), from, to, arrives, step: PlanStep::Waiting }
}

/// The way back of what is on its way.
fn arriving(partition: u32, number: u64) -> PlanMove {
    PlanMove { from: worker("w2"), to: worker("w1"), arrives: true, ..planned(partition, number) }
}

/// One entry for each command, and one for each kind of request.
pub(super) fn entries() -> Vec<(String, Entry)> {
    let entry = |request, commands| Entry { request, proposed_unix_ms: 1_700_000_000_000, commands };
    let mut entries: Vec<_> = commands()
        .into_iter()
        .chain(commands_of_format_2())
        .map(|(name, command)| (name.to_owned(), entry(None, vec![command])))
        .collect();
    let several = vec![release(5, 42, Released::Revoked), grant(5, Some(42), 2, GrantReason::Operator)];
    let of_session = Request::Session { session: session(1), number: 8, settled_below: 7 };
    entries.push(("request_of_a_session".to_owned(), entry(Some(of_session), several)));
    let of_operator = Request::Operator { id: 0xfeed << 64, seen: LogIndex::new(12) };
    entries.push((
        "request_of_an_operator".to_owned(),
        entry(Some(of_operator), vec![grant(1, None, 1, GrantReason::Vacated)]),
    ));
    entries
}

/// A state with each phase, a setback, a suspicion, ended sessions, and answers, as format 1 can say it.
pub(crate) fn state() -> State {
    let mut state = State::new();
    let mut index = 0;
    let mut apply = |request: Option<Request>, commands: Vec<Command>| {
        index += 1;
        let entry = Entry { request, proposed_unix_ms: 1_700_000_000_000 + index, commands };
        let applied = state.apply(LogIndex::new(index), &entry);
        applied.outcome.unwrap_or_else(|refusal| panic!("{:?}: {}", entry.commands, refusal.why));
    };
    let operator = |id| Some(Request::Operator { id, seen: LogIndex::new(0) });
    let of = |number| Some(Request::Session { session: session(1), number, settled_below: number - 1 });
    let note = |node| Command::NoteNode { node: NodeId::new(node).unwrap() };
    apply(
        None,
        vec![Command::FormCluster { cluster: ClusterId::new("c-1").unwrap(), lineage: 99 }, note(1), note(2)],
    );
    apply(operator(1), vec![create("orders", 6, Policy::default())]);
    apply(operator(2), vec![create("gone", 1, Policy::default())]);
    apply(operator(3), vec![create("events", 2, Policy::default().with(&change()).unwrap())]);
    apply(None, vec![join("w1", 1 << 100, None)]);
    apply(None, vec![join("w2", 2, None)]);
    for partition in 0..5 {
        apply(None, vec![grant(partition, None, 1, GrantReason::First)]);
    }
    apply(None, vec![Command::DeleteKeyspace { keyspace: KeyspaceId::new(2) }]);
    apply(of(1), vec![Command::Ready { partition: key(0), epoch: epoch(1), session: session(1) }]);
    apply(of(2), vec![release(1, 1, Released::Failed("it broke: ä".to_owned()))]);
    apply(None, vec![drain(2, 1, "w2", GrantReason::Balance)]);
    let revoke_seen = Command::RevokeSeen { partition: key(2), epoch: epoch(1), session: session(1) };
    apply(
        of(3),
        vec![revoke_seen, Command::Ready { partition: key(2), epoch: epoch(1), session: session(1) }],
    );
    apply(None, vec![release(3, 1, Released::Returned), grant(3, Some(1), 2, GrantReason::Vacated)]);
    apply(None, vec![join("w3", 3, None)]);
    apply(None, vec![grant(5, None, 9, GrantReason::First), grant(5, None, 3, GrantReason::First)]);
    apply(None, vec![join("w3", 4, Some(session(3)))]);
    apply(None, vec![join("w4", 5, None)]);
    apply(None, vec![Command::Leave { session: session(5) }]);
    apply(None, vec![Command::Suspect { sessions: vec![(session(2), 1), (session(4), 2)] }]);
    apply(None, vec![Command::Withdraw { session: session(2) }]);

    // A keyspace that leaves its epochs behind as a floor.
    apply(None, vec![create("floor", 1, Policy::default())]);
    let Command::Join(mut w5) = join("w5", 6, None) else { panic!("a join") };
    let keyspace = KeyspaceId::new(4);
    w5.keyspaces = BTreeSet::from([keyspace]);
    apply(None, vec![Command::Join(w5)]);
    let partition = PartitionKey { keyspace, partition: PartitionId::new(0) };
    apply(
        None,
        vec![Command::Grant { partition, replaces: None, to: session(6), why: GrantReason::Operator }],
    );
    apply(None, vec![Command::DeleteKeyspace { keyspace }]);

    // An answer that was forgotten takes a thousand requests; here it is only said.
    let mut parts = state.to_parts();
    parts.answers_dropped = Some(LogIndex::new(1));
    State::from_parts(parts).unwrap()
}

/// The same state after operators have decided something of every kind.
pub(crate) fn state_of_format_2() -> State {
    let mut state = state();
    let mut index = state.applied().get();
    let mut apply = |commands: Vec<Command>| {
        index += 1;
        let request = Some(Request::Operator { id: u128::from(index), seen: LogIndex::new(1) });
        let entry = Entry { request, proposed_unix_ms: 1_700_000_000_000 + index, commands };
        let applied = state.apply(LogIndex::new(index), &entry);
        applied.outcome.unwrap_or_else(|refusal| panic!("{:?}: {}", entry.commands, refusal.why));
        LogIndex::new(index)
    };
    let direct = |subject, what: &str| Command::Direct {
        subject,
        by: "anna".to_owned(),
        what: what.to_owned(),
        reason: "because: ä".to_owned(),
    };
    let id = KeyspaceId::new(1);
    let on = || WorkerChange { drained: Some(true), ..WorkerChange::default() };
    let set_worker = |name, change| Command::SetWorker { worker: worker(name), change };
    let drained = apply(vec![direct(Subject::Worker(worker("w1")), "drain"), set_worker("w1", on())]);
    let all = WorkerChange {
        drained_until_join: Some(true),
        cordoned: Some(true),
        frozen: Some(true),
        weight: Some(Some(Weight::new(5).unwrap())),
        ..on()
    };
    apply(vec![set_worker("nobody", all)]);
    let pin = PartitionChange { pin: Some(Some(worker("w4"))), frozen: Some(true), weight: Some(Some(12)) };
    apply(vec![
        direct(Subject::Partition(key(3)), "pin"),
        Command::SetPartition { partition: key(3), change: pin },
    ]);
    let heavy = PartitionChange { weight: Some(Some(2)), ..PartitionChange::default() };
    apply(vec![Command::SetPartition { partition: key(5), change: heavy }]);
    apply(vec![Command::UpdateKeyspace { keyspace: id, change: change_of_format_2() }]);
    let plan = apply(vec![
        direct(Subject::Keyspace(id), "apply a plan"),
        Command::OpenPlan { size: 2, map: None, undoes: None },
    ]);
    apply(vec![Command::ExtendPlan { plan, moves: vec![planned(0, 1)] }]);
    apply(vec![Command::ExtendPlan { plan, moves: vec![planned(4, 1)] }]);
    apply(vec![Command::Under { directive: plan }, drain(0, 1, "w2", GrantReason::Plan)]);
    apply(vec![Command::SkipPlanned { plan, partition: key(4), why: SkipReason::TargetGone }]);
    apply(vec![release(4, 1, Released::Restarting)]);
    let undo = Command::OpenPlan { size: 2, map: None, undoes: Some(plan) };
    let plan = apply(vec![direct(Subject::Keyspace(id), "undo a plan"), undo]);
    apply(vec![Command::ExtendPlan { plan, moves: vec![arriving(0, 1)] }]);
    apply(vec![
        Command::Under { directive: drained },
        Command::DrainOver { partition: key(0), epoch: epoch(1), move_id: MoveId::new(2) },
        Command::Evict { session: session(2) },
    ]);
    apply(vec![direct(Subject::Cluster, "freeze"), Command::Freeze { keyspace: None, frozen: true }]);
    apply(vec![
        direct(Subject::Keyspace(id), "freeze"),
        Command::Freeze { keyspace: Some(id), frozen: true },
    ]);

    // Midway: partition 1 is not split yet, and partition 0 was granted before and not since.
    apply(vec![create("halves", 2, Policy::default())]);
    let halves = KeyspaceId::new(5);
    let half = |partition| PartitionKey { keyspace: halves, partition: PartitionId::new(partition) };
    apply(vec![join_splits("w6", 7, halves)]);
    let to_it = |partition, replaces| Command::Grant {
        partition: half(partition),
        replaces,
        to: session(7),
        why: GrantReason::First,
    };
    // Above what the deleted keyspace has left behind.
    apply(vec![to_it(0, None)]);
    let first = epoch(2);
    let how = Released::Revoked;
    apply(vec![Command::Release { partition: half(0), epoch: first, session: session(7), how }]);
    let from = PartitionCount::new(2).unwrap();
    apply(vec![direct(Subject::Keyspace(halves), "split"), Command::StartSplit { keyspace: halves, from }]);
    apply(vec![Command::Split { partition: half(0), epoch: Some(first) }, to_it(2, Some(epoch(3)))]);
    apply(vec![create("begun", 1, Policy::default())]);
    let from = PartitionCount::new(1).unwrap();
    apply(vec![Command::StartSplit { keyspace: KeyspaceId::new(6), from }]);

    apply(vec![Command::NoteRefusals {
        notes: vec![refusal("orders/3", true), refusal("@locks/nightly", false)],
    }]);
    apply(vec![direct(Subject::Cluster, "unfreeze"), Command::Freeze { keyspace: None, frozen: false }]);
    apply(vec![
        direct(Subject::Keyspace(halves), "raise"),
        Command::Reassert { keyspace: halves, partition: None },
    ]);
    let began = KeyspaceId::new(6);
    let zero = Some(PartitionId::new(0));
    let one = apply(vec![Command::Reassert { keyspace: began, partition: zero }]);
    apply(vec![Command::EndReassert { order: one, keyspace: began, partition: zero }]);
    apply(vec![Command::RaiseAbove { partition: half(1), above: epoch(1 << 40) }]);
    apply(vec![direct(Subject::Cluster, "freeze"), Command::Freeze { keyspace: None, frozen: true }]);
    // Held together, lost by one of them, and waited for; and one whose holder's session has ended.
    apply(vec![join_for_locks("l8", 8)]);
    apply(vec![join_for_locks("l9", 9)]);
    apply(vec![join_for_locks("l10", 10)]);
    let delayed = LockWish::new(LockMode::Shared);
    let delayed = delayed.with(Takeover::Lease, Duration::from_secs(1), None).unwrap();
    apply(vec![acquire("nightly", 8, 1, delayed), acquire("nightly", 9, 1, delayed)]);
    apply(vec![acquire("nightly", 10, 1, wish())]);
    apply(vec![acquire("hourly", 9, 2, wish()), acquire("hourly", 10, 2, wish())]);
    apply(vec![Command::Evict { session: session(9) }]);

    state
}
