//! Rules about crashes.

use crate::conformance::stage::{
    End, Hand, Stage, Verdict, broken, cluster, epoch, patiently, require, scope, token,
};
use crate::conformance::{Crash, Handle, Store, Subject};
use crate::{FenceError, FenceErrorKind, FencingToken};
use ringfence_core::ids::SessionId;

pub(crate) fn survives_crash(subject: &impl Subject) -> Verdict {
    let (e1, e2, e3) = (token(1, 1)?, token(1, 2)?, token(1, 3)?);
    let mut stage = Stage::of(subject)?;
    stage.hand.raised(&e1)?;
    stage.hand.wrote(std::slice::from_ref(&e1), &[("k", "1")])?;
    // Raised, answered, nothing written: then the crash.
    stage.hand.raised(&e2)?;
    let mut stage = crash(stage)?;
    stage.hand.write_refused(&[e1], FenceErrorKind::Fenced)?;
    stage.hand.wrote(std::slice::from_ref(&e2), &[("k", "2")])?;
    // And an epoch that a write has brought in.
    stage.hand.wrote(&[e3], &[("k", "3")])?;
    let mut stage = crash(stage)?;
    stage.hand.write_refused(&[e2], FenceErrorKind::Fenced)?;
    let data = stage.hand.contents()?;
    require(data.get("k").is_some_and(|v| v == "3"), || format!("the last write is gone: {data:?}"))
}

/// Everything that a crash must not change is asked before it and after it. Whether the answers are right is for the other
/// rules.
pub(crate) fn crash_keeps_binding(subject: &impl Subject) -> Verdict {
    let mut stage = Stage::of(subject)?;
    stage.hand.raised(&session(1, 5, 1)?)?;
    stage.hand.raised(&token(2, 7)?)?;
    let before = asked(&mut stage.hand, subject.keeps_sessions())?;
    let mut stage = crash(stage)?;
    let after = asked(&mut stage.hand, subject.keeps_sessions())?;
    for ((what, before), (_, after)) in before.iter().zip(&after) {
        require(before == after, || format!("{what}: {before} before the crash, and {after} after it"))?;
    }
    Ok(())
}

/// The token of a partition, of a session.
fn session(partition: u32, epoch: u64, number: u64) -> Result<FencingToken, End> {
    let session = SessionId::new(number).ok_or_else(|| End::Broken("a session is not zero".into()))?;
    Ok(token(partition, epoch)?.held_by(session))
}

/// What a store is asked, and what it answers.
fn asked(hand: &mut impl Handle, sessions: bool) -> Result<Vec<(&'static str, String)>, End> {
    let foreign = FencingToken::new(cluster("test")?, scope(1)?, epoch(5)?);
    let forged = session(1, 5, 2)?;
    let never_raised = token(3, 5)?;
    let told = |answer: Result<(), FenceError>| match answer {
        Ok(()) => "accepted".to_string(),
        Err(error) => format!("{:?}", error.kind()),
    };
    let pairs = [("k", "v")];
    let mut answers = Vec::new();
    // The scopes first, because a store that accepts what it should not has moved them afterwards.
    for (what, partition) in [("the epoch of partition 1", 1), ("the epoch of partition 2", 2)] {
        answers.push((what, format!("{:?}", hand.seen(&scope(partition)?)?)));
    }
    answers.push(("a raise by another cluster", told(patiently(|| hand.raise(&foreign)))));
    let mut write = |tokens: &[FencingToken]| told(patiently(|| hand.write(tokens, &pairs, &mut || ())));
    answers.push(("a write by another cluster", write(&[foreign])));
    answers.push(("a write without a token", write(&[])));
    if sessions {
        answers.push(("a write of another session under one epoch", write(&[forged])));
    }
    answers.push(("a write to a scope that nobody has raised", write(&[never_raised])));
    Ok(answers)
}

fn crash<S: Store>(stage: Stage<S>) -> Result<Stage<S>, End> {
    let Stage { mut store, hand } = stage;
    drop(hand);
    match store.crash() {
        Ok(Crash::Restarted) => {}
        Ok(Crash::LosesEverything) => {
            return Err(End::DoesNotApply("data and fence are lost together, so nothing is left to protect"));
        }
        Err(error) => return broken(format!("it did not start again: {error}")),
    }
    match store.open() {
        Ok(hand) => Ok(Stage { store, hand }),
        Err(error) => broken(format!("it did not open again: {error}")),
    }
}
