//! The rule about housekeeping.

use crate::FenceErrorKind;
use crate::conformance::stage::{End, Hand, Stage, Verdict, broken, require, token};
use crate::conformance::{CleanUp, Store, Subject};

/// The old owner sleeps. The new one raises, writes once and goes quiet; then everything is tidied up.
pub(crate) fn survives_clean_up(subject: &impl Subject) -> Verdict {
    let mut stage = Stage::of(subject)?;
    let (old, new) = (token(1, 33)?, token(1, 34)?);
    stage.hand.raised(&old)?;
    stage.hand.wrote(std::slice::from_ref(&old), &[("k", "33")])?;
    let mut next = stage.open()?;
    next.raised(&new)?;
    next.wrote(std::slice::from_ref(&new), &[("k", "34")])?;
    match stage.store.clean_up() {
        Ok(CleanUp::Done) => {}
        Ok(CleanUp::NotTried) => {
            return Err(End::DoesNotApply("the subject does not say how its store is cleaned up"));
        }
        Err(error) => return broken(format!("the clean-up failed: {error}")),
    }
    for hand in [&mut stage.hand, &mut next] {
        let data = hand.contents()?;
        require(data.is_empty(), || format!("the clean-up has left {data:?}, so nothing was tested"))?;
    }
    let mut late = stage.open()?;
    for hand in [&mut stage.hand, &mut late] {
        hand.write_refused(std::slice::from_ref(&old), FenceErrorKind::Fenced)?;
        hand.raise_refused(&old, FenceErrorKind::Fenced)?;
    }
    next.wrote(&[new], &[("k", "34 goes on")])
}
