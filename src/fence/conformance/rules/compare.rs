//! Rules about which token is accepted.

use crate::conformance::Subject;
use crate::conformance::stage::{End, Hand, Stage, Verdict, cluster, require, scope, token};
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
    let data = stage.hand.contents()?;
    require(data.get("k").is_some_and(|v| v == "third"), || format!("the last write is not there: {data:?}"))
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
    let (old, new, newest) = (token(1, 5)?, token(1, 6)?, token(1, 9)?);
    stage.hand.raised(&old)?;
    stage.hand.raised(&new)?;
    for _ in 0..3 {
        stage.hand.raise_refused(&old, FenceErrorKind::Fenced)?;
        stage.hand.write_refused(std::slice::from_ref(&old), FenceErrorKind::Fenced)?;
    }
    stage.hand.wrote(std::slice::from_ref(&new), &[("k", "new")])?;
    // Epochs may skip, and a write brings a higher one in as a raise does.
    stage.hand.wrote(std::slice::from_ref(&newest), &[("k", "newest")])?;
    stage.hand.write_refused(&[new], FenceErrorKind::Fenced)?;
    let seen = stage.hand.seen(old.scope())?;
    require(seen == Some(9), || format!("the highest epoch is {seen:?} and was 9"))
}

pub(crate) fn never_raised_refused(subject: &impl Subject) -> Verdict {
    let mut stage = Stage::of(subject)?;
    stage.hand.raised(&token(2, 5)?)?;
    stage.hand.write_refused(&[token(1, 5)?], FenceErrorKind::NotRaised)?;
    let seen = stage.hand.seen(&scope(1)?)?;
    require(seen.is_none(), || format!("the refused write has raised the fence to {seen:?}"))
}

pub(crate) fn implausible_refused(subject: &impl Subject) -> Verdict {
    let mut stage = Stage::of(subject)?;
    let (owner, far) = (token(1, 5)?, token(1, 6 + MAX_JUMP)?);
    stage.hand.raise_refused(&far, FenceErrorKind::Implausible)?;
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

pub(crate) fn scopes_apart(subject: &impl Subject) -> Verdict {
    let mut stage = Stage::of(subject)?;
    let parse = |text: &str| text.parse::<FencingToken>().map_err(|error| End::Broken(error.to_string()));
    // Prefixes of each other, other keyspaces, and a lock that is named as a keyspace is.
    let others =
        ["prod/orders/1@5", "prod/orders/17@5", "prod/orders2/1@5", "prod/order/1@5", "prod/@locks/orders@5"];
    let others = others.into_iter().map(parse).collect::<Result<Vec<_>, _>>()?;
    for other in &others {
        stage.hand.raised(other)?;
    }
    // Raised one after the other; those behind it are as they were.
    let mut behind = others.as_slice();
    while let Some((raised, rest)) = behind.split_first() {
        stage.hand.raised(&FencingToken::new(raised.cluster().clone(), raised.scope().clone(), epoch(9)?))?;
        for other in rest {
            stage.hand.wrote(std::slice::from_ref(other), &[("k", "mine")])?;
        }
        behind = rest;
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
    stage.hand.wrote(&[token(1, 6)?.held_by(session(2)?)], &[("k", "the next session has the next epoch")])
}

pub(crate) fn other_cluster_refused(subject: &impl Subject) -> Verdict {
    let mut stage = Stage::of(subject)?;
    let owner = token(1, 5)?;
    stage.hand.raised(&owner)?;
    for epoch in [5, 6] {
        let foreign = FencingToken::new(cluster("test")?, scope(1)?, self::epoch(epoch)?);
        stage.hand.raise_refused(&foreign, FenceErrorKind::WrongCluster)?;
        stage.hand.write_refused(&[foreign], FenceErrorKind::WrongCluster)?;
    }
    stage.hand.wrote(&[owner], &[("k", "still mine")])
}

fn epoch(number: u64) -> Result<Epoch, End> {
    Epoch::new(number).map_err(|error| End::Broken(error.to_string()))
}
