//! Rules about what is changed, and by whom.

use crate::FenceErrorKind;
use crate::conformance::Subject;
use crate::conformance::stage::{Hand, Stage, Verdict, require, token};

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
    // Neither before anybody has raised, nor after.
    stage.hand.write_refused(&[], FenceErrorKind::Unstamped)?;
    stage.hand.raised(&token(1, 5)?)?;
    stage.hand.write_refused(&[], FenceErrorKind::Unstamped)?;
    let data = stage.hand.contents()?;
    require(data.is_empty(), || format!("it was written all the same: {data:?}"))
}
