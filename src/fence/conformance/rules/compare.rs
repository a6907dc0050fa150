//! Rules about which token is accepted.

use crate::conformance::Subject;
use crate::conformance::stage::{End, Hand, Stage, Verdict, cluster, epoch, parsed, require, scope, token};
use crate::{FenceError, FenceErrorKind, FencingToken, MAX_JUMP};
use ringfence_core::ids::{Epoch, SessionId};

pub(crate) fn equal_accepted(subject: &impl Subject) -> Verdict {
    let mut stage = Stage::of(subject)?;
    let owner = token(1, 5)?;
    stage.hand.raised(&owner)?;
    stage.hand.raised(&owner)?;
    for value in ["first", "second", "third"] {
        stage.hand.wrote(std::slice::from_ref(&owner), &[("k", value)])?;
    }
    // The owner has a pool of connections, and all of them are the owner's.
    let mut another = stage.open()?;
    another.raised(&owner)?;
    another.wrote(std::slice::from_ref(&owner), &[("k", "fourth")])?;
    stage.hand.wrote(std::slice::from_ref(&owner), &[("k", "fifth")])?;
    let data = another.contents()?;
    require(data.get("k").is_some_and(|v| v == "fifth"), || format!("the last write is not there: {data:?}"))
}

pub(crate) fn newer_accepted(subject: &impl Subject) -> Verdict {
    let mut stage = Stage::of(subject)?;
    let (old, new, newest) = (token(1, 5)?, token(1, 6)?, token(1, 9)?);
    stage.hand.raised(&old)?;
    stage.hand.wrote(std::slice::from_ref(&old), &[("k", "old")])?;
    // Epochs may skip, and a write brings a higher one in as a raise does.
    let mut next = stage.open()?;
    next.wrote(std::slice::from_ref(&newest), &[("k", "newest")])?;
    let seen = next.seen(old.scope())?;
    require(seen == Some(9), || format!("after a write under 9 the highest epoch is {seen:?}"))?;
    stage.hand.write_refused(std::slice::from_ref(&new), FenceErrorKind::Fenced)?;
    stage.hand.raise_refused(&new, FenceErrorKind::Fenced)?;
    let data = stage.hand.contents()?;
    require(data.get("k").is_some_and(|v| v == "newest"), || {
        format!("the newer write is not there: {data:?}")
    })
}

pub(crate) fn older_refused(subject: &impl Subject) -> Verdict {
    let mut stage = Stage::of(subject)?;
    stage.hand.raised(&token(1, 33)?)?;
    stage.hand.raised(&token(1, 34)?)?;
    let mut old = stage.open()?;
    for (own, highest) in [(33, 34), (1, 34)] {
        let old_token = token(1, own)?;
        let by_write = old.write_refused(std::slice::from_ref(&old_token), FenceErrorKind::Fenced)?;
        let by_raise = old.raise_refused(&old_token, FenceErrorKind::Fenced)?;
        for error in [by_write, by_raise] {
            let FenceError::Fenced(fenced) = error else { continue };
            let told = (fenced.own().get(), fenced.highest().get(), fenced.scope() == old_token.scope());
            require(told == (own, highest, true), || {
                format!("the refusal of {own} by {highest} says {told:?}")
            })?;
        }
    }
    Ok(())
}

pub(crate) fn forward_only(subject: &impl Subject) -> Verdict {
    let mut stage = Stage::of(subject)?;
    let (old, new) = (token(1, 5)?, token(1, 6)?);
    stage.hand.raised(&old)?;
    stage.hand.raised(&new)?;
    for _ in 0..3 {
        stage.hand.raise_refused(&old, FenceErrorKind::Fenced)?;
        stage.open()?.raise_refused(&old, FenceErrorKind::Fenced)?;
        let seen = stage.hand.seen(old.scope())?;
        require(seen == Some(6), || format!("the highest epoch is {seen:?} and was 6"))?;
    }
    stage.hand.raised(&new)
}

pub(crate) fn never_raised_refused(subject: &impl Subject) -> Verdict {
    let mut stage = Stage::of(subject)?;
    stage.hand.raised(&parsed("prod/invoices/1@5")?)?;
    stage.hand.write_refused(&[token(1, 5)?], FenceErrorKind::NotRaised)?;
    let seen = stage.hand.seen(&scope(1)?)?;
    require(seen.is_none(), || format!("the refused write has raised the fence to {seen:?}"))
}

pub(crate) fn implausible_refused(subject: &impl Subject) -> Verdict {
    let mut stage = Stage::of(subject)?;
    let (owner, far) = (token(1, 5)?, token(1, 6 + MAX_JUMP)?);
    stage.hand.raise_refused(&far, FenceErrorKind::Implausible)?;
    let seen = stage.hand.seen(owner.scope())?;
    require(seen.is_none(), || format!("the refused raise has raised the fence to {seen:?}"))?;
    stage.hand.raised(&owner)?;
    stage.hand.raise_refused(&far, FenceErrorKind::Implausible)?;
    stage.hand.write_refused(&[far], FenceErrorKind::Implausible)?;
    stage.hand.wrote(&[owner], &[("k", "still mine")])?;
    stage.hand.raised(&token(1, 5 + MAX_JUMP)?)
}

pub(crate) fn width(subject: &impl Subject) -> Verdict {
    let mut stage = Stage::of(subject)?;
    let top = Epoch::MAX.get();
    // Just above where 16, 31, 32 and 48 bits and a float's mantissa end, then to the top in the largest strides.
    let narrow = [15, 16, 24, 31, 32, 47].map(|bits| (1u64 << bits) + 1);
    let strides = (1..32).map(|n| n * MAX_JUMP);
    for epoch in narrow.into_iter().chain(strides).chain([top]) {
        let (this, below) = (token(1, epoch)?, token(1, epoch - 1)?);
        stage.hand.raised(&this)?;
        stage.hand.write_refused(&[below], FenceErrorKind::Fenced)?;
        stage.hand.wrote(std::slice::from_ref(&this), &[("k", "v")])?;
        let seen = stage.hand.seen(this.scope())?;
        require(seen == Some(epoch), || format!("{epoch} was kept as {seen:?}"))?;
    }
    Ok(())
}

pub(crate) fn one_session(subject: &impl Subject) -> Verdict {
    if !subject.keeps_sessions() {
        return Err(End::DoesNotApply(
            "this fence keeps no sessions; an epoch is granted to one session only",
        ));
    }
    let mut stage = Stage::of(subject)?;
    let session = |number| SessionId::new(number).ok_or_else(|| End::Broken("a session is not zero".into()));
    let (mine, forged) = (token(1, 5)?.held_by(session(1)?), token(1, 5)?.held_by(session(2)?));
    stage.hand.raised(&mine)?;
    stage.hand.raise_refused(&forged, FenceErrorKind::OtherSession)?;
    stage.hand.write_refused(&[forged], FenceErrorKind::OtherSession)?;
    stage.hand.wrote(&[mine], &[("k", "mine")])?;
    stage.hand.wrote(&[token(1, 5)?], &[("k", "a token without a session is judged by its epoch")])?;
    let next = token(1, 6)?.held_by(session(2)?);
    stage.hand.raised(&next)?;
    stage.hand.wrote(&[next], &[("k", "the next session has the next epoch")])
}

pub(crate) fn other_cluster_refused(subject: &impl Subject) -> Verdict {
    let mut stage = Stage::of(subject)?;
    let owner = token(1, 5)?;
    stage.hand.raised(&owner)?;
    // The same epoch, a newer and an older one: what was counted elsewhere is not compared at all.
    for (name, number) in [("test", 5), ("test", 6), ("test", 4), ("prod2", 6), ("pro", 6)] {
        let foreign = FencingToken::new(cluster(name)?, scope(1)?, epoch(number)?);
        stage.hand.raise_refused(&foreign, FenceErrorKind::WrongCluster)?;
        stage.hand.write_refused(&[foreign], FenceErrorKind::WrongCluster)?;
    }
    // A scope that nobody has raised is not theirs for the taking.
    let foreign = parsed("test/invoices/1@5")?;
    stage.hand.raise_refused(&foreign, FenceErrorKind::WrongCluster)?;
    let seen = stage.hand.seen(foreign.scope())?;
    require(seen.is_none(), || format!("the refused raise has raised the fence to {seen:?}"))?;
    stage.hand.wrote(&[owner], &[("k", "still mine")])
}
