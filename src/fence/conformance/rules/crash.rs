//! The rule about crashes.

use crate::FenceErrorKind;
use crate::conformance::stage::{End, Hand, Stage, Verdict, broken, require, token};
use crate::conformance::{Crash, Store, Subject};

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
