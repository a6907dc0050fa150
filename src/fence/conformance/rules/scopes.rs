//! Rules about several scopes: kept apart, and written together.

use crate::conformance::Subject;
use crate::conformance::stage::{
    Hand, PATIENCE, Stage, Verdict, broken, epoch, parsed, require, scope, token,
};
use crate::{FenceError, FenceErrorKind, FencingToken};
use std::sync::mpsc::channel;
use std::thread;

pub(crate) fn scopes_apart(subject: &impl Subject) -> Verdict {
    let mut stage = Stage::of(subject)?;
    // Prefixes of each other, other keyspaces, and a lock that is named as a keyspace is.
    let others =
        ["prod/orders/1@5", "prod/orders/17@5", "prod/orders2/1@5", "prod/order/1@5", "prod/@locks/orders@5"];
    let others = others.into_iter().map(parsed).collect::<Result<Vec<_>, _>>()?;
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

pub(crate) fn several_scopes_all_or_nothing(subject: &impl Subject) -> Verdict {
    let mut stage = Stage::of(subject)?;
    let (one, two, two_again) = (token(1, 5)?, token(2, 5)?, token(2, 6)?);
    for token in [&one, &two, &two_again] {
        stage.hand.raised(token)?;
    }
    // The first token would be accepted, and would even move its fence.
    let one_newer = token(1, 9)?;
    for tokens in [[one_newer.clone(), two.clone()], [two.clone(), one_newer]] {
        let error = stage.hand.write_refused(&tokens, FenceErrorKind::Fenced)?;
        if let FenceError::Fenced(fenced) = error {
            require(fenced.scope() == two.scope(), || format!("the refusal blames {}", fenced.scope()))?;
        }
        let (data, seen) = (stage.hand.contents()?, stage.hand.seen(&scope(1)?)?);
        require(data.is_empty(), || format!("the refused batch was applied in part: {data:?}"))?;
        require(seen == Some(5), || format!("the refused batch has moved the other fence to {seen:?}"))?;
    }
    // Nobody has raised one of the two.
    let never_raised = token(3, 5)?;
    if stage.hand.wrote(&[one.clone(), never_raised], &[("a", "1"), ("b", "2")]).is_err() {
        let data = stage.hand.contents()?;
        require(data.is_empty(), || format!("the refused batch was applied in part: {data:?}"))?;
    }
    stage.hand.wrote(&[two_again.clone(), one.clone()], &[("a", "1"), ("b", "2")])?;
    let data = stage.hand.contents()?;
    require(data.len() == 2, || format!("the accepted batch is not there: {data:?}"))?;
    // A batch that brings higher epochs in moves the fence of every scope, not only of the first.
    stage.hand.wrote(&[token(1, 8)?, token(2, 8)?], &[("a", "3")])?;
    for older in [one, two_again] {
        stage.hand.write_refused(&[older], FenceErrorKind::Fenced)?;
    }
    Ok(())
}

pub(crate) fn scope_named_twice(subject: &impl Subject) -> Verdict {
    let mut stage = Stage::of(subject)?;
    let (owner, next) = (token(1, 5)?, token(1, 9)?);
    stage.hand.raised(&owner)?;
    for tokens in [[next.clone(), owner.clone()], [owner.clone(), next]] {
        stage.hand.write_refused(&tokens, FenceErrorKind::Fenced)?;
        let (data, seen) = (stage.hand.contents()?, stage.hand.seen(owner.scope())?);
        require(data.is_empty() && seen == Some(5), || {
            format!("the refused write has left {data:?}, and the fence at {seen:?} instead of 5")
        })?;
    }
    // Two operations of one owner in one write. It must not wait for itself.
    let mut hand = stage.open()?;
    let (ending, ended) = channel();
    thread::spawn(move || {
        let answer = hand.wrote(&[owner.clone(), owner], &[("k", "once")]);
        // Nobody listens any more when it took too long.
        let _ = ending.send(answer);
    });
    match ended.recv_timeout(PATIENCE) {
        Ok(answer) => answer,
        Err(_) => broken("a write that names one scope twice waits for itself"),
    }
}
