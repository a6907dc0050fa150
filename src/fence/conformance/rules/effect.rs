//! Rules about what is changed, and by whom.

use crate::conformance::Subject;
use crate::conformance::stage::{Hand, Stage, Verdict, require, scope, token};
use crate::{FenceError, FenceErrorKind};

pub(crate) fn refusal_changes_nothing(subject: &impl Subject) -> Verdict {
    let mut stage = Stage::of(subject)?;
    let (old, new) = (token(1, 5)?, token(1, 6)?);
    stage.hand.raised(&new)?;
    stage.hand.wrote(&[new], &[("refused", "the owner's value"), ("other", "value")])?;
    let before = (stage.hand.contents()?, stage.hand.seen(old.scope())?);
    stage.hand.write_refused(std::slice::from_ref(&old), FenceErrorKind::Fenced)?;
    stage.hand.raise_refused(&old, FenceErrorKind::Fenced)?;
    let after = (stage.hand.contents()?, stage.hand.seen(old.scope())?);
    require(before == after, || format!("it was {before:?} and is {after:?}"))
}

pub(crate) fn untouched_rows_fenced(subject: &impl Subject) -> Verdict {
    let mut stage = Stage::of(subject)?;
    let (old, new) = (token(1, 33)?, token(1, 34)?);
    stage.hand.raised(&old)?;
    stage.hand.wrote(std::slice::from_ref(&old), &[("touched", "33"), ("refused", "33")])?;
    stage.hand.raised(&new)?;
    stage.hand.wrote(&[new], &[("touched", "34")])?;
    let before = stage.hand.contents()?;
    // The row "refused" was last written under 33, and "inserted" was never.
    stage.hand.write_refused(std::slice::from_ref(&old), FenceErrorKind::Fenced)?;
    let insert = stage.open()?.wrote(&[old], &[("inserted", "33")]);
    require(insert.is_err(), || "a new row was written under the older epoch".into())?;
    let after = stage.hand.contents()?;
    require(before == after, || format!("it was {before:?} and is {after:?}"))
}

pub(crate) fn raise_fences(subject: &impl Subject) -> Verdict {
    let mut stage = Stage::of(subject)?;
    let (old, new) = (token(1, 33)?, token(1, 34)?);
    stage.hand.raised(&old)?;
    stage.hand.wrote(std::slice::from_ref(&old), &[("refused", "33")])?;
    let mut next = stage.open()?;
    next.raised(&new)?;
    let read = next.contents()?;
    stage.hand.write_refused(&[old], FenceErrorKind::Fenced)?;
    let now = next.contents()?;
    require(read == now, || format!("the new owner has read {read:?}, and there is {now:?}"))
}

pub(crate) fn unstamped_refused(subject: &impl Subject) -> Verdict {
    let mut stage = Stage::of(subject)?;
    stage.hand.raised(&token(1, 5)?)?;
    stage.hand.write_refused(&[], FenceErrorKind::Unstamped)?;
    let data = stage.hand.contents()?;
    require(data.is_empty(), || format!("it was written all the same: {data:?}"))
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
