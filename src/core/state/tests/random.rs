//! Random commands that mostly fit the state they meet.
//!
//! A command drawn blindly would be refused nearly always. Here a few random numbers pick from what the state holds: a
//! live session, the current epoch, and now and then one that is gone, stale or never was.

use super::core::ids::{
    ClusterId, Epoch, KeyspaceId, KeyspaceName, LockName, LogIndex, MoveId, NodeId, PartitionId,
    PartitionKey, Revision, Scope, SessionId, StoreName, WorkerId,
};
use super::core::placement::{PartitionCount, Weight};
use super::core::state::{
    BalanceBy, Command, Entry, GrantReason, Join, Keyspace, LockMode, LockWish, Partition, PartitionChange,
    Phase, PlanMove, PlanStep, Policy, PolicyChange, RefusalNote, RefusedWrite, Released, Request, Session,
    SkipReason, State, Subject, Takeover, WorkerChange,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The random numbers of one command.
pub(super) type Dice = [u8; 6];

/// The random numbers of one entry: who asks, and each command.
pub(super) type Throw = (Dice, Vec<Dice>);

/// The random numbers of a whole history.
pub(super) fn throws(entries: usize) -> impl Strategy<Value = Vec<Throw>> {
    let commands =
        prop_oneof![3 => 1..2usize, 1 => 2..5usize].prop_flat_map(|n| prop::collection::vec(dice(), n));
    prop::collection::vec((dice(), commands), 1..entries)
}

fn dice() -> impl Strategy<Value = Dice> {
    any::<Dice>()
}

/// The state after a random history. Refused entries are part of it.
pub(super) fn state_after(throws: &[Throw]) -> State {
    let mut state = State::new();
    for (index, throw) in (1..).zip(throws) {
        let entry = entry(&state, throw);
        state.apply(LogIndex::new(index), &entry);
    }
    state
}

/// An entry for this state.
pub(super) fn entry(state: &State, (who, commands): &Throw) -> Entry {
    Entry {
        request: request(state, *who),
        proposed_unix_ms: 1_700_000_000_000 + u64::from(who[5]),
        commands: commands.iter().map(|dice| command(state, *dice)).collect(),
    }
}

fn request(state: &State, [kind, a, b, c, ..]: Dice) -> Option<Request> {
    let seen = LogIndex::new(state.applied().get().saturating_sub(u64::from(c % 4)));
    match kind % 8 {
        0 => Some(Request::Operator { id: u128::from(a % 6) + 1, seen }),
        1 => Some(Request::Session {
            session: session(state, a),
            number: u64::from(b % 6) + 1,
            settled_below: u64::from(c % 5),
        }),
        _ => None,
    }
}

/// A command for this state.
pub(super) fn command(state: &State, dice: Dice) -> Command {
    let [kind, a, b, c, d, e] = dice;
    let partition = partition(state, a, b);
    let epoch = epoch(state, partition, c);
    let owner = owner(state, partition, d);
    // Where there is nothing to work on, something is made first, most of the time.
    let kind = match (state.keyspaces().next(), state.sessions().nth(1)) {
        (None, _) if kind % 4 != 0 => 2,
        (Some(_), None) if kind % 4 != 0 => 7,
        _ => kind,
    };
    match kind % 78 {
        0 => Command::FormCluster {
            cluster: ClusterId::new(["c1", "c2"][usize::from(a % 8 == 0)]).expect("a name"),
            lineage: u64::from(b),
        },
        1 => Command::NoteNode { node: NodeId::new(u64::from(a % 5) + 1).expect("not zero") },
        2..=4 => Command::CreateKeyspace {
            keyspace: KeyspaceName::new(&format!("k{}", a % 3)).expect("a name"),
            partitions: PartitionCount::new(u32::from(b % 3) + 1).expect("within bounds"),
            policy: Policy::default().with(&policy_change(c, d)).expect("within bounds"),
        },
        5 => Command::UpdateKeyspace { keyspace: partition.keyspace, change: policy_change(c, d) },
        6 if a % 3 == 0 => Command::DeleteKeyspace { keyspace: partition.keyspace },
        6..=10 => Command::Join(Box::new(join(state, dice))),
        11 => Command::Withdraw { session: session(state, a) },
        12 => Command::Leave { session: session(state, a) },
        13..=15 => Command::Suspect {
            sessions: vec![(session(state, a), c % 2 + 1), (session(state, b), d % 2 + 1)],
        },
        16 => Command::Clear { sessions: vec![session(state, a)] },
        17 | 18 => expire(state, a, c),
        19..=25 => Command::Grant {
            partition,
            replaces: if c % 16 == 15 { None } else { state.partition(partition).and_then(Partition::epoch) },
            to: session(state, d),
            why: reason(e),
        },
        26..=28 => Command::Drain {
            partition,
            epoch,
            to: worker(d),
            deadline: Duration::from_millis(u64::from(e) * 100),
            why: reason(e),
        },
        29 => Command::RevokeSeen { partition, epoch, session: owner },
        30 | 31 => Command::DrainOver { partition, epoch, move_id: current_move(state, partition, d) },
        32 => Command::Seize { partition, epoch, session: owner },
        33..=35 => Command::Release { partition, epoch, session: owner, how: released(e) },
        36 | 37 => Command::Ready { partition, epoch, session: owner },
        38 | 39 => Command::EndCooling { partition, epoch },
        40 => direct(partition, a),
        41 => Command::Under { directive: plan(state, a) },
        42 | 43 => Command::SetWorker {
            worker: worker(a),
            change: WorkerChange {
                drained: some_bool(b),
                drained_until_join: some_bool(e),
                cordoned: some_bool(c),
                frozen: some_bool(d),
                weight: (e % 4 == 0).then(|| Weight::new(u32::from(e % 3)).ok()),
            },
        },
        44 => Command::ForgetWorker { worker: worker(a) },
        45 | 46 => Command::SetPartition {
            partition,
            change: PartitionChange {
                pin: (c % 2 == 0).then(|| (c % 4 == 0).then(|| worker(d))),
                frozen: some_bool(d),
                weight: (e % 2 == 0).then(|| (e % 4 == 0).then_some(u32::from(e) * 5_000 + 1)),
            },
        },
        47 => Command::Freeze { keyspace: (c % 2 == 0).then_some(partition.keyspace), frozen: d % 4 == 0 },
        48 | 49 => Command::OpenPlan {
            size: u32::from(a % 4),
            map: (b % 2 == 0).then(|| Revision::new(u64::from(c) + 1)),
            undoes: (d % 3 == 0).then(|| plan(state, d)),
        },
        50..=52 => Command::ExtendPlan { plan: plan(state, a), moves: plan_moves(state, b, c) },
        53 => {
            let reasons =
                [SkipReason::MovedOn, SkipReason::TargetGone, SkipReason::Frozen, SkipReason::Pinned];
            let why = reasons[usize::from(e % 4)];
            Command::SkipPlanned { plan: plan(state, a), partition, why }
        }
        54 => Command::CancelPlan { plan: plan(state, a), only_open: b % 4 == 0 },
        55 => Command::StartSplit {
            keyspace: partition.keyspace,
            from: state
                .keyspace(partition.keyspace)
                .map_or(PartitionCount::new(1).expect("one"), Keyspace::count),
        },
        56 if a % 4 == 0 => Command::CancelSplit { keyspace: partition.keyspace },
        56..=59 => split(state, a, b, c),
        60 => Command::NoteRefusals {
            notes: vec![refusal(state, partition, dice), refusal(state, partition, dice)],
        },
        61 | 62 => Command::Reassert {
            keyspace: partition.keyspace,
            partition: (c % 2 == 0).then_some(partition.partition),
        },
        63 => match state.reasserts().last() {
            Some(order) => {
                Command::EndReassert { order: order.at, keyspace: order.keyspace, partition: order.partition }
            }
            None => Command::Ready { partition, epoch, session: owner },
        },
        64 => Command::RaiseAbove { partition, above: jump(epoch, c, d) },
        65 => Command::Release { partition, epoch, session: owner, how: Released::Behind(jump(epoch, c, d)) },
        66..=76 => lock_command(state, dice),
        // A plan's move begins.
        _ => match state.running_plan().and_then(|plan| plan.moves.first()) {
            Some(planned) => Command::Drain {
                partition: planned.partition,
                epoch: planned.epoch,
                to: planned.to.clone(),
                deadline: Duration::from_secs(1),
                why: GrantReason::Plan,
            },
            None => Command::EndCooling { partition, epoch },
        },
    }
}

/// About one of three locks, of somebody who holds it or of anybody.
fn lock_command(state: &State, [_, a, b, c, d, e]: Dice) -> Command {
    let lock = LockName::new(["a", "b", "c"][usize::from(a % 3)]).expect("a name");
    let grant = pick(state.lock(&lock).into_iter().flat_map(|lock| lock.grants.iter()), b);
    let epoch = grant.map_or(1, |grant| grant.epoch.get());
    let epoch = Epoch::new(if c % 16 == 15 { epoch + 1 } else { epoch }).expect("far below the cap");
    let anybody = session(state, d);
    let holder = grant.map(|grant| grant.session).filter(|_| d % 8 != 7).unwrap_or(anybody);
    let mode = if e % 3 == 0 { LockMode::Shared } else { LockMode::Exclusive };
    let takeover = if e % 5 == 0 { Takeover::Fence } else { Takeover::Lease };
    let delay = Duration::from_millis(u64::from(e % 4) * 500);
    let alert = (e % 7 == 0).then(|| Duration::from_secs(1));
    let wish = LockWish::new(mode).with(takeover, delay, alert).expect("within bounds");
    let request = u64::from(c % 8) + 1;
    match b % 16 {
        0..=7 => Command::AcquireLock { lock, session: anybody, request, wish, waits: c % 8 != 7 },
        8..=10 => Command::ReleaseLock { lock, epoch, session: holder },
        11 => Command::AbandonLock { lock, session: holder, request },
        12 => Command::SeizeLock { lock, epoch, session: holder },
        13 => Command::BreakLock { lock, epoch: (c % 2 == 0).then_some(epoch), at_once: d % 4 == 0 },
        _ => Command::EndLockCooling { lock, epoch, session: holder },
    }
}

/// The split whose turn it is, where one is under way.
fn split(state: &State, a: u8, b: u8, c: u8) -> Command {
    let next = |keyspace: &Keyspace| {
        Some(PartitionKey { keyspace: keyspace.id(), partition: keyspace.next_to_split()? })
    };
    let next = pick(state.keyspaces().filter_map(next), a);
    let partition = next.filter(|_| b % 16 != 15).unwrap_or_else(|| partition(state, a, b));
    let epoch = state.partition(partition).and_then(Partition::epoch);
    Command::Split { partition, epoch: if c % 16 == 15 { None } else { epoch } }
}

fn refusal(state: &State, partition: PartitionKey, [_, a, b, c, d, e]: Dice) -> RefusalNote {
    let unknown = || KeyspaceName::new("gone").expect("a name");
    let keyspace = state.keyspace(partition.keyspace).map_or_else(unknown, |k| k.name().clone());
    let what = RefusedWrite {
        scope: Scope::Partition(keyspace, partition.partition),
        own: epoch(state, partition, c),
        highest: epoch(state, partition, 15),
        store: StoreName::new(&format!("s{}", a % 3)).expect("a name"),
        observed: b % 2 == 0,
    };
    let reporter = (d % 2 == 0).then(|| worker(d));
    RefusalNote {
        what,
        count: u64::from(e),
        first_unix_ms: u64::from(c),
        last_unix_ms: u64::from(b),
        reporter,
    }
}

/// An epoch above this one: mostly near it, and now and then at the bounds and beyond them.
fn jump(from: Epoch, c: u8, d: u8) -> Epoch {
    let by = match c % 8 {
        7 => 1 << 20,
        6 => (1 << 20) + u64::from(d),
        _ => u64::from(d),
    };
    Epoch::new(from.get() + by).expect("far below the cap")
}

fn pick<T>(from: impl Iterator<Item = T>, n: u8) -> Option<T> {
    let mut all: Vec<T> = from.collect();
    if all.is_empty() { None } else { Some(all.swap_remove(usize::from(n) % all.len())) }
}

fn partition(state: &State, a: u8, b: u8) -> PartitionKey {
    let ids = state.keyspaces().map(Keyspace::id);
    let bogus = KeyspaceId::new(u32::from(b % 7));
    let keyspace = if a % 16 == 15 { bogus } else { pick(ids, a).unwrap_or(bogus) };
    let count = state.keyspace(keyspace).map_or(1, |keyspace| keyspace.count().get());
    let beyond = u32::from(b % 32 == 31);
    PartitionKey { keyspace, partition: PartitionId::new(u32::from(b) % count + beyond * count) }
}

fn epoch(state: &State, key: PartitionKey, c: u8) -> Epoch {
    let current = state.partition(key).and_then(Partition::epoch).map_or(1, Epoch::get);
    let number = match c % 16 {
        14 => current.saturating_sub(1).max(1),
        15 => current + 1,
        _ => current,
    };
    Epoch::new(number).expect("far below the cap")
}

fn owner(state: &State, key: PartitionKey, d: u8) -> SessionId {
    let owner = state.partition(key).and_then(Partition::owner);
    owner.filter(|_| d % 16 != 15).unwrap_or_else(|| session(state, d))
}

fn session(state: &State, n: u8) -> SessionId {
    let live = pick(state.sessions().map(Session::id), n);
    let bogus = SessionId::new(u64::from(n % 11) + 1).expect("not zero");
    live.filter(|_| n % 16 != 15).unwrap_or(bogus)
}

fn worker(n: u8) -> WorkerId {
    WorkerId::new(&format!("w{}", n % 4)).expect("a name")
}

fn join(state: &State, [_, a, b, c, d, e]: Dice) -> Join {
    let worker = worker(a);
    let holder = state.session_of(&worker).map(Session::id);
    let keyspaces: BTreeSet<KeyspaceId> =
        state.keyspaces().map(Keyspace::id).filter(|id| c % 4 != 0 || id.get() % 2 == 0).collect();
    let ends_drain = state.drain_until_join(&worker).filter(|_| e % 8 != 7);
    Join {
        worker,
        nonce: u128::from(b % 8),
        secret_hash: [b % 8; 32],
        address: format!("10.0.0.{d}:80"),
        weight: Weight::new(u32::from(e % 3) + 1).expect("within bounds"),
        labels: BTreeMap::from([("zone".to_owned(), format!("z{}", e % 2))]),
        keyspaces,
        replaces: if d % 2 == 0 { holder } else { None },
        splits: e % 16 != 15,
        ends_drain,
        ttl: (e % 4 == 3).then(|| Duration::from_secs(u64::from(e % 5) * 200 + 1)),
    }
}

fn expire(state: &State, a: u8, c: u8) -> Command {
    let session = session(state, a);
    let latest = state.session(session).and_then(Session::suspicion).map(|suspicion| suspicion.at);
    let other = LogIndex::new(u64::from(c));
    Command::Expire { session, suspicion: latest.filter(|_| c % 8 != 7).unwrap_or(other) }
}

fn current_move(state: &State, key: PartitionKey, d: u8) -> MoveId {
    match state.partition(key).map(Partition::phase) {
        Some(Phase::Draining(drain)) if d % 8 != 7 => drain.move_id,
        _ => MoveId::new(u64::from(d)),
    }
}

fn policy_change(c: u8, d: u8) -> PolicyChange {
    PolicyChange {
        ttl: Some(Duration::from_secs(u64::from(c % 5) + 1)),
        takeover: Some(if d.is_multiple_of(2) { Takeover::Lease } else { Takeover::Fence }),
        lock_delay: Some(Duration::from_millis(u64::from(d % 3) * 500)),
        rejoin_hold: Some(Duration::from_secs(u64::from(d % 2) * 30)),
        moves_per_minute: c.is_multiple_of(3).then_some(u32::from(d)),
        spread_zones: some_bool(c),
        balance_by: c.is_multiple_of(7).then_some(BalanceBy::Load),
        constraints: d.is_multiple_of(5).then(|| vec!["!zone=z0".parse().expect("a constraint")]),
        ..PolicyChange::default()
    }
}

fn reason(n: u8) -> GrantReason {
    let all = [
        GrantReason::Reassert,
        GrantReason::Behind,
        GrantReason::First,
        GrantReason::Failover,
        GrantReason::Vacated,
        GrantReason::Balance,
        GrantReason::Operator,
    ];
    all[usize::from(n) % all.len()]
}

fn some_bool(n: u8) -> Option<bool> {
    [Some(true), Some(false), None][usize::from(n) % 3]
}

fn direct(partition: PartitionKey, a: u8) -> Command {
    let subject = match a % 4 {
        0 => Subject::Cluster,
        1 => Subject::Keyspace(partition.keyspace),
        2 => Subject::Partition(partition),
        _ => Subject::Worker(worker(a)),
    };
    let text = |n: u8| "x".repeat(usize::from(n) * 2);
    Command::Direct { subject, by: text(a), what: text(a / 2), reason: String::new() }
}

fn plan(state: &State, n: u8) -> LogIndex {
    let last = state.plans().last().map(|plan| plan.id);
    // The first entry opens none, and no message can name one before it.
    last.filter(|_| n % 16 != 15).unwrap_or(LogIndex::new(u64::from(n) + 1))
}

/// The next moves of the plan that is open, mostly in order.
fn plan_moves(state: &State, b: u8, c: u8) -> Vec<PlanMove> {
    let last = state.plans().last();
    let after = last.and_then(|plan| plan.moves.last()).map(|planned| planned.partition);
    let left = last.map_or(1, |plan| plan.size as usize - plan.moves.len());
    let owned = state.sessions().flat_map(|session| session.holds().iter().copied());
    let mut owned: Vec<PartitionKey> =
        owned.filter(|key| c % 8 == 7 || after.is_none_or(|after| *key > after)).collect();
    owned.sort_unstable();
    owned.truncate(left.min(usize::from(b % 3) + 1) + usize::from(c % 16 == 14));
    owned
        .into_iter()
        .filter_map(|partition| {
            let epoch = state.partition(partition)?.epoch()?;
            let (from, to, arrives) = (worker(b), worker(c), c % 4 == 3);
            Some(PlanMove { partition, epoch, from, to, arrives, step: PlanStep::Waiting })
        })
        .collect()
}

fn released(n: u8) -> Released {
    match n % 4 {
        0 => Released::Revoked,
        3 => Released::Restarting,
        1 => Released::Returned,
        _ => Released::Failed(format!("it broke ({n})")),
    }
}
