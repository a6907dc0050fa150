//! Rules in which several do everything at once.
//!
//! A rule waits for what the others have done, and for a fixed while only inside of a write, where a sound store makes
//! the others wait. A slow machine can make a broken store look sound, and a sound one broken only when it is silent for
//! longer than anybody's patience.

use crate::conformance::stage::{Hand, PATIENCE, Stage, Verdict, broken, patiently, require, scope, token};
use crate::conformance::{Handle, Subject};
use crate::{FenceErrorKind, FencingToken};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

const RAISERS: u64 = 4;
const RAISES: u64 = 10;

/// Several new owners raise at once, round by round, each time in another order. After each round the highest stands.
pub(crate) fn racing_raises(subject: &impl Subject) -> Verdict {
    let mut stage = Stage::of(subject)?;
    let (answering, answers) = channel();
    let mut raisers = Vec::new();
    for _ in 0..RAISERS {
        let (mut hand, answering) = (stage.open()?, answering.clone());
        let (go, epochs) = channel::<FencingToken>();
        raisers.push(go);
        thread::spawn(move || {
            for new in epochs {
                // Nobody listens any more when the rule has ended early.
                let _ = answering.send((new.clone(), patiently(|| hand.raise(&new))));
            }
        });
    }
    for round in 0..RAISES {
        let highest = (round + 1) * RAISERS;
        for (raiser, go) in (0..).zip(&raisers) {
            let _ = go.send(token(1, highest - (raiser + round) % RAISERS)?);
        }
        for _ in 0..RAISERS {
            match answers.recv_timeout(PATIENCE) {
                Ok((_, Ok(()))) => {}
                Ok((new, Err(e))) if e.kind() == FenceErrorKind::Fenced && new.epoch().get() < highest => {}
                Ok((new, Err(error))) => {
                    return broken(format!(
                        "a raise to {} among others was answered with: {error}",
                        new.short()
                    ));
                }
                Err(_) => return broken("raises at one time wait for each other"),
            }
        }
        let seen = stage.hand.seen(&scope(1)?)?;
        require(seen == Some(highest), || {
            format!("of raises up to {highest} at one time, {seen:?} was left")
        })?;
    }
    Ok(())
}

const WRITERS: usize = 3;
const ROUNDS: u64 = 8;

/// The longest pause between a check and its write.
const PAUSE: Duration = Duration::from_millis(10);

/// How long a writer leaves the store alone, so that a raise has its turn.
const REST: Duration = Duration::from_millis(3);

/// What the threads tell each other.
#[derive(Default)]
struct Storm {
    /// The epoch that the writers believe in.
    told: AtomicU64,
    /// The epoch in which a writer believes that has been let through, and pauses.
    pausing: AtomicU64,
    /// The epoch whose owner has raised and read.
    read: AtomicU64,
    /// How many writes of each writer have ended.
    ended: [AtomicU64; WRITERS],
    over: AtomicBool,
}

impl Storm {
    fn counts(&self) -> [u64; WRITERS] {
        self.ended.each_ref().map(|count| count.load(Ordering::SeqCst))
    }
}

/// New owners come one after the other: each raises, reads, and lets everybody try under the epochs before it; what it
/// has read must stay as it is. The writers are the owner that is being replaced, over two connections, and the one before.
pub(crate) fn many_writers(subject: &impl Subject) -> Verdict {
    let mut stage = Stage::of(subject)?;
    stage.hand.raised(&token(1, 1)?)?;
    stage.hand.raised(&token(2, 1)?)?;
    let storm = Arc::new(Storm::default());
    storm.told.store(1, Ordering::SeqCst);
    let (ending, ended) = channel();
    for writer in 0..WRITERS {
        let (hand, storm, ending) = (stage.open()?, Arc::clone(&storm), ending.clone());
        thread::spawn(move || {
            let _ = ending.send(write_on(hand, writer, &storm));
        });
    }
    drop(ending);
    let owners = owners(&mut stage.hand, &storm, &ended);
    storm.over.store(true, Ordering::SeqCst);
    for _ in 0..WRITERS {
        match ended.recv_timeout(PATIENCE) {
            Ok(writer) => writer?,
            Err(_) if owners.is_err() => break,
            Err(_) => return broken("a writer among others was never answered"),
        }
    }
    owners
}

fn owners(hand: &mut impl Handle, storm: &Storm, ended: &Receiver<Verdict>) -> Verdict {
    let mut told = 1;
    for epoch in 2..=ROUNDS {
        // In the middle of a write, or else when the owner has tried several times in vain.
        wait_for(storm, ended, |before, now| {
            storm.pausing.load(Ordering::SeqCst) == told
                || now.iter().zip(before).all(|(now, b)| *now >= b + 4)
        })?;
        hand.raised(&token(1, epoch)?)?;
        let first = hand.contents()?;
        storm.read.store(epoch, Ordering::SeqCst);
        // Nobody has heard of this epoch. One write of each may have been under way, and two begin after that.
        wait_for(storm, ended, |before, now| now.iter().zip(before).all(|(now, b)| *now >= b + 3))?;
        let second = hand.contents()?;
        unchanged(epoch, &first, &second)?;
        told = epoch;
        storm.told.store(told, Ordering::SeqCst);
    }
    Ok(())
}

/// Waits for what is compared with the number of writes that had ended when it began.
fn wait_for(
    storm: &Storm,
    ended: &Receiver<Verdict>,
    come: impl Fn(&[u64; WRITERS], &[u64; WRITERS]) -> bool,
) -> Verdict {
    let (start, before) = (Instant::now(), storm.counts());
    while !come(&before, &storm.counts()) {
        if let Ok(writer) = ended.try_recv() {
            writer?;
        }
        if start.elapsed() > PATIENCE {
            return broken("a writer among others was never answered");
        }
        thread::sleep(Duration::from_micros(100));
    }
    Ok(())
}

fn unchanged(epoch: u64, first: &BTreeMap<String, String>, second: &BTreeMap<String, String>) -> Verdict {
    require(first == second, || {
        format!(
            "after its raise to {epoch} the new owner read {first:?}, and then {second:?}, written under older ones"
        )
    })
}

fn write_on(mut hand: impl Handle, writer: usize, storm: &Storm) -> Verdict {
    let key = format!("k{writer}");
    let mut count: u64 = 0;
    while !storm.over.load(Ordering::SeqCst) {
        let told = storm.told.load(Ordering::SeqCst);
        let own = if writer == 1 { told.saturating_sub(1).max(1) } else { told };
        let mut tokens = vec![token(1, own)?];
        if writer + 1 == WRITERS {
            tokens.push(token(2, 1)?);
        }
        count += 1;
        let value = format!("{count} under {own}");
        let answer = patiently(|| hand.write(&tokens, &[(&key, &value)], &mut || pause(storm, told)));
        match answer {
            Ok(()) => require(own >= told, || {
                format!("a write under {own} was accepted that began after the raise to {told}")
            })?,
            Err(error) if error.kind() == FenceErrorKind::Fenced => {}
            Err(error) => {
                return broken(format!("a write under {own} among others was answered with: {error}"));
            }
        }
        if let Some(ended) = storm.ended.get(writer) {
            ended.fetch_add(1, Ordering::SeqCst);
        }
        thread::sleep(REST);
    }
    Ok(())
}

/// Until the next owner has raised and read, which it can only do where nothing keeps it out.
fn pause(storm: &Storm, told: u64) {
    storm.pausing.store(told, Ordering::SeqCst);
    let start = Instant::now();
    while storm.read.load(Ordering::SeqCst) <= told && start.elapsed() < PAUSE {
        thread::sleep(Duration::from_micros(100));
    }
}
