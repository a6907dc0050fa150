//! The rule of a fence, bent where a flaw bends it.

use super::Flaw;
use crate::{FenceError, Fenced, FencingToken, HighWater};
use ringfence_core::ids::Epoch;

/// Decides on a raise.
pub(super) fn raise(
    flaw: Option<Flaw>,
    row: Option<HighWater>,
    token: &FencingToken,
) -> Result<HighWater, FenceError> {
    let taken = HighWater::new(token.epoch(), token.session());
    match (flaw, row) {
        (Some(Flaw::NoFence | Flaw::LastOpenerWins), _) => Ok(taken),
        (Some(Flaw::RaiseDoesNothing), Some(seen)) => HighWater::raise(row, token).map(|_| seen),
        _ => either(flaw, row, token, HighWater::raise(row, token)),
    }
}

/// Decides on a write.
pub(super) fn check(
    flaw: Option<Flaw>,
    row: Option<HighWater>,
    token: &FencingToken,
) -> Result<HighWater, FenceError> {
    let taken = HighWater::new(token.epoch(), token.session());
    let sound = HighWater::check(row, token);
    match (flaw, row) {
        (Some(Flaw::NoFence), _) => Ok(taken),
        (Some(Flaw::PerRow), seen) => Ok(seen.unwrap_or(taken)),
        (Some(Flaw::AcceptsWithoutRow), None) => Ok(taken),
        (Some(Flaw::Equality), Some(seen)) if token.epoch() != seen.epoch() => {
            Err(Fenced::new(token.clone(), seen.epoch()).into())
        }
        (Some(Flaw::StrictlyGreater), Some(seen)) if token.epoch() == seen.epoch() => {
            Err(Fenced::new(token.clone(), seen.epoch()).into())
        }
        _ => either(flaw, row, token, sound),
    }
}

/// What is bent for both.
fn either(
    flaw: Option<Flaw>,
    row: Option<HighWater>,
    token: &FencingToken,
    sound: Result<HighWater, FenceError>,
) -> Result<HighWater, FenceError> {
    let (Some(flaw), Some(seen)) = (flaw, row) else { return sound };
    let single = |epoch: Epoch| epoch.get() as f32;
    match flaw {
        Flaw::AnyJump => HighWater::force_raise(row, token),
        Flaw::SinglePrecision
            if token.epoch() != seen.epoch() && single(token.epoch()) == single(seen.epoch()) =>
        {
            Ok(HighWater::new(token.epoch(), token.session()))
        }
        Flaw::IgnoresSession if token.epoch() == seen.epoch() => Ok(seen),
        Flaw::TellsOneNumber => sound.map_err(|error| match error {
            FenceError::Fenced(fenced) => Fenced::new(token.clone(), fenced.own()).into(),
            other => other,
        }),
        _ => sound,
    }
}
