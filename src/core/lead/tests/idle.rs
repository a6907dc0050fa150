//! What a look costs when there is nothing to do, and when there is much. Not a test of CI:
//! `cargo test -p ringfence-core --release -- --ignored --nocapture measures`.

use super::world::{at, ms};
use crate::ids::{KeyspaceId, KeyspaceName, LogIndex, SessionId, Term, WorkerId};
use crate::lead::{Leadership, MAX_COMMANDS, Settings};
use crate::lease::Verdict;
use crate::placement::{PartitionCount, Weight};
use crate::state::{Command, Entry, Join, Phase, Policy, PolicyChange, State};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const SESSIONS: u32 = 10_000;
const PARTITIONS: u32 = 100_000;

struct Large {
    state: State,
    leader: Leadership,
    index: u64,
    now: u64,
}

impl Large {
    fn apply(&mut self, commands: Vec<Command>) {
        self.index += 1;
        let entry = Entry { request: None, proposed_unix_ms: 0, commands };
        let applied = self.state.apply(LogIndex::new(self.index), &entry);
        assert!(applied.outcome.is_ok(), "{applied:?}");
        self.leader.observe(&applied.events, at(self.now), &self.state);
    }

    fn join(&mut self, number: u32, keyspace: KeyspaceId) {
        self.apply(vec![Command::Join(Box::new(Join {
            worker: WorkerId::new(&format!("w{number:05}")).unwrap(),
            nonce: u128::from(number),
            secret_hash: [0; 32],
            address: String::new(),
            weight: Weight::ONE,
            labels: BTreeMap::new(),
            keyspaces: [keyspace].into(),
            replaces: None,
            splits: true,
            ends_drain: None,
            ttl: None,
        }))]);
    }

    fn look(&mut self) -> (Vec<Vec<Command>>, Duration) {
        let began = Instant::now();
        let entries = self.leader.due(at(self.now), &self.state);
        (entries, began.elapsed())
    }

    fn everybody_renews(&mut self) {
        let sessions: Vec<SessionId> = self.state.sessions().map(crate::state::Session::id).collect();
        for session in sessions {
            self.leader.lessor.answer(session, at(self.now));
        }
    }

    fn all_get_ready(&mut self) {
        let mut ready = Vec::new();
        for keyspace in self.state.keyspaces() {
            for (partition, slot) in keyspace.keys().zip(keyspace.partitions()) {
                if let (Phase::Owned { session, ready: false }, Some(epoch)) = (slot.phase(), slot.epoch()) {
                    ready.push(Command::Ready { partition, epoch, session: *session });
                }
            }
        }
        for commands in ready.chunks(MAX_COMMANDS) {
            self.apply(commands.to_vec());
        }
    }
}

fn large(sessions: u32, partitions: u32) -> (Large, KeyspaceId) {
    let state = State::new();
    let leader = Leadership::new(Term::new(1), at(0), &state, Settings::default());
    let mut large = Large { state, leader, index: 0, now: 0 };
    let name = KeyspaceName::new("orders").unwrap();
    let partitions = PartitionCount::new(partitions).unwrap();
    let change = PolicyChange { ttl: Some(ms(60_000)), ..Default::default() };
    let policy = Policy::default().with(&change).unwrap();
    large.apply(vec![Command::CreateKeyspace { keyspace: name.clone(), partitions, policy }]);
    let keyspace = large.state.keyspace_named(&name).unwrap().id();
    for number in 0..sessions {
        large.join(number, keyspace);
    }
    (large, keyspace)
}

/// Beginning to lead asks for no log entry, and the first renewal is answered in the same moment.
#[test]
fn f086_a_new_leader_of_many_leases_has_nothing_to_do_first() {
    for (sessions, partitions) in [(100, 1_000), (1_000, 10_000)] {
        let (mut large, _) = large(sessions, partitions);
        let (entries, _) = large.look();
        entries.into_iter().for_each(|commands| large.apply(commands));
        large.all_get_ready();
        large.now = 1_000;
        large.leader = Leadership::new(Term::new(2), at(large.now), &large.state, Settings::default());
        let first = large.state.sessions().next().unwrap().id();
        large.leader.lessor.arrived(first);
        assert_eq!(large.leader.lessor.answer(first, at(large.now)), Verdict::Acknowledge);
        assert_eq!(large.look().0, Vec::<Vec<Command>>::new(), "{sessions} sessions");
    }
}

#[test]
#[ignore = "a measurement; run it in release"]
fn f086_measures_a_look_over_ten_thousand_sessions_and_a_hundred_thousand_partitions() {
    let (mut large, keyspace) = large(SESSIONS, PARTITIONS);
    let (entries, took) = large.look();
    println!("grant {} partitions: {took:?}", entries.iter().map(Vec::len).sum::<usize>());
    entries.into_iter().for_each(|commands| large.apply(commands));
    large.all_get_ready();
    large.now = 1_000;
    println!("the look after it: {:?}", large.look().1);

    let idle = |large: &mut Large, what: &str| {
        let mut slowest = Duration::ZERO;
        let began = Instant::now();
        for _ in 0..1_000 {
            large.now += 20;
            if large.now.is_multiple_of(10_000) {
                large.everybody_renews();
            }
            let (entries, took) = large.look();
            assert_eq!(entries, Vec::<Vec<Command>>::new());
            slowest = slowest.max(took);
        }
        println!("{what}: {:?} a look, {slowest:?} the slowest", began.elapsed() / 1_000);
    };
    idle(&mut large, "idle");
    let began = Instant::now();
    for _ in 0..1_000 {
        large.leader.lessor.due(at(large.now), &large.state);
    }
    println!("of it the lessor: {:?}", began.elapsed() / 1_000);

    large.join(SESSIONS, keyspace);
    println!("a look after a join: {:?}", large.look().1);
    large.now += 600;
    large.everybody_renews();
    let (entries, took) = large.look();
    println!("{} moves to the one that joined: {took:?}", entries.iter().map(Vec::len).sum::<usize>());
    entries.into_iter().for_each(|commands| large.apply(commands));
    let (entries, took) = large.look();
    println!("a look with these in flight: {took:?} ({} entries)", entries.len());

    let state = large.state.clone();
    let began = Instant::now();
    let leader = Leadership::new(Term::new(2), at(large.now), &state, Settings::default());
    println!("a new leader begins: {:?}", began.elapsed());
    large.leader = leader;
    println!("its first look: {:?}", large.look().1);
}
