//! What is set about a worker.

use super::known;
use crate::args::Common;
use crate::exit::{Exit, Failed, Outcome};
use crate::operator::{Sure, Who, planned, result};
use ringfence::admin::{Weight, WorkerChange, WorkerDetail, WorkerSettings};
use ringfence::ids::{SessionId, WorkerId};
use serde::Serialize;

/// A weight, or `own` for the one that the worker gave when it joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WeightArg(pub(super) Option<Weight>);

pub(super) fn weight(text: &str) -> Result<WeightArg, String> {
    if text == "own" {
        return Ok(WeightArg(None));
    }
    let number: u32 =
        text.parse().map_err(|_| format!("it is a number from 1 to {}, or `own`", Weight::MAX))?;
    Weight::new(number).map(|weight| WeightArg(Some(weight))).map_err(|error| error.to_string())
}

/// What a change about a worker did, and how the worker is now.
#[derive(Debug, Serialize)]
pub(super) struct SetShape {
    /// `changed`, `unchanged`, `planned`; `drained`, with `--wait`; of `--check`: `may_stop`, `not_yet`.
    pub(super) result: &'static str,
    pub(super) worker: String,
    /// `null` when it has none.
    pub(super) session: Option<u64>,
    /// How many partitions it owns.
    pub(super) partitions: u32,
    /// Of how many moves it is the target.
    pub(super) arriving: u32,
    /// How it is set, for people: programs ask `worker show`.
    #[serde(skip)]
    stands: Vec<&'static str>,
}

impl SetShape {
    pub(super) fn new(result: &'static str, worker: &WorkerId, detail: Option<&WorkerDetail>) -> SetShape {
        SetShape {
            result,
            worker: worker.to_string(),
            session: detail.and_then(|detail| detail.session).map(SessionId::get),
            partitions: detail.map_or(0, |detail| detail.partitions),
            arriving: detail.map_or(0, |detail| detail.arriving),
            stands: detail.map_or_else(Vec::new, |detail| stands(&detail.settings)),
        }
    }

    /// For people. A name with a slip of the pen in it is a worker that nobody has seen.
    pub(super) fn sentence(&self) -> String {
        let SetShape { worker, partitions, .. } = self;
        let done = match self.result {
            "planned" => "would be changed; nothing was done",
            "unchanged" => "was so already",
            "drained" => "holds nothing and gets nothing: it may be stopped",
            _ => "changed",
        };
        let stands = match &self.stands[..] {
            [] => String::new(),
            some => format!(", it is {}", some.join(" and ")),
        };
        let now = match self.session {
            None => "it has no session now".to_owned(),
            Some(session) => format!("session s{session}, {partitions} partitions"),
        };
        format!("worker {worker}: {done}{stands} ({now})\n")
    }
}

/// What keeps a worker from getting partitions or from giving them up.
fn stands(settings: &WorkerSettings) -> Vec<&'static str> {
    let words = [
        (&settings.drained, "drained"),
        (&settings.drained_until_join, "drained until it joins"),
        (&settings.cordoned, "cordoned"),
        (&settings.frozen, "frozen"),
    ];
    words.into_iter().filter(|(set, _)| set.is_some()).map(|(_, word)| word).collect()
}

/// Said before an error that came after the change.
pub(super) const SET: &str =
    "the worker's settings are as asked for, and how it stands now could not be read";

/// Changes settings, or says what it would do.
pub(super) async fn set(common: &Common, worker: &WorkerId, change: &WorkerChange, who: &Who) -> Outcome {
    let admin = who.admin(common);
    let (result, detail) = if who.dry_run {
        let detail = known(&admin, worker).await?;
        (planned(would_change(detail.as_ref().map(|detail| &detail.settings), change)), detail)
    } else {
        let result = result(admin.set_worker(worker, change).await?);
        (result, known(&admin, worker).await.map_err(|error| Failed::from(error).after_a_change(SET))?)
    };
    let shape = SetShape::new(result, worker, detail.as_ref());
    common.output().changed(result, &shape, || shape.sentence())?;
    Ok(Exit::Done)
}

/// Ends a worker's session, and drains it.
pub(super) async fn evict(common: &Common, worker: &WorkerId, who: &Who, sure: Sure) -> Outcome {
    sure.or_terminal(who.dry_run)?;
    let admin = who.admin(common);
    let before = admin.worker(worker).await?;
    let (result, now) = if who.dry_run {
        (planned(before.session.is_some() || before.settings.drained.is_none()), before)
    } else {
        let held = match before.session {
            Some(session) => format!("session {session}, {} partitions", before.partitions),
            None => "it has no session now".to_owned(),
        };
        sure.ask(&format!("This ends the session of worker {worker} ({held}) and drains it."))?;
        let result = result(admin.evict_worker(worker).await?);
        let now = admin.worker(worker).await;
        (result, now.map_err(|error| Failed::from(error).after_a_change(SET))?)
    };
    let shape = SetShape::new(result, worker, Some(&now));
    common.output().changed(result, &shape, || match result {
        "changed" => {
            format!(
                "worker {worker} is evicted: its session has ended, and it gets nothing until it is undrained; a process that still \
                 runs joins again\n"
            )
        }
        "planned" => format!("worker {worker} would be evicted; nothing was done\n"),
        _ => format!("worker {worker} was out already\n"),
    })?;
    Ok(Exit::Done)
}

/// Forgets what is set about a worker.
pub(super) async fn remove(common: &Common, worker: &WorkerId, who: &Who, sure: Sure) -> Outcome {
    sure.or_terminal(who.dry_run)?;
    let admin = who.admin(common);
    let detail = known(&admin, worker).await?;
    let set = detail.as_ref().is_some_and(|detail| is_set(&detail.settings));
    let result = if who.dry_run {
        if let Some(session) = detail.as_ref().and_then(|detail| detail.session) {
            return Err(Failed::refused(format!(
                "worker {worker} has a session ({session}): stop it first, or drain it to take its partitions away"
            )));
        }
        planned(set)
    } else {
        sure.ask(&format!("This forgets all that is set about worker {worker}."))?;
        result(admin.forget_worker(worker).await?)
    };
    let shape = SetShape::new(result, worker, None);
    common.output().changed(result, &shape, || match result {
        "changed" => format!("worker {worker} is forgotten\n"),
        "planned" => format!("worker {worker} would be forgotten; nothing was done\n"),
        _ => format!("nothing is set about worker {worker}\n"),
    })?;
    Ok(Exit::Done)
}

fn is_set(settings: &WorkerSettings) -> bool {
    settings.drain().is_some()
        || settings.cordoned.is_some()
        || settings.frozen.is_some()
        || settings.weight.is_some()
}

/// Whether a change would do anything.
pub(super) fn would_change(now: Option<&WorkerSettings>, change: &WorkerChange) -> bool {
    let switch = |to: Option<bool>, is: Option<bool>| to.is_some_and(|to| is.unwrap_or(false) != to);
    switch(change.drained, now.map(|set| set.drained.is_some()))
        || switch(change.drained_until_join, now.map(|set| set.drained_until_join.is_some()))
        || switch(change.cordoned, now.map(|set| set.cordoned.is_some()))
        || switch(change.frozen, now.map(|set| set.frozen.is_some()))
        || change.weight.is_some_and(|to| now.and_then(|set| set.weight) != to.map(Weight::get))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::json;

    #[test]
    fn the_json_shape_of_a_change_is_a_contract() {
        let shape = SetShape::new("changed", &WorkerId::new("w1").unwrap(), None);
        assert_eq!(
            json(&shape).unwrap(),
            r#"{"result":"changed","worker":"w1","session":null,"partitions":0,"arriving":0}"#
        );
        assert_eq!(shape.sentence(), "worker w1: changed (it has no session now)\n");
    }

    #[test]
    fn f062_a_weight_that_cannot_be_one_is_bad_usage_and_says_the_bounds() {
        assert_eq!(weight("own"), Ok(WeightArg(None)));
        assert_eq!(weight("7").unwrap().0.map(Weight::get), Some(7));
        for bad in ["0", "10001", "-1", "", "Own"] {
            assert!(weight(bad).unwrap_err().contains("10000"), "{bad}");
        }
    }

    #[test]
    fn a_change_of_what_was_never_set_is_one_unless_it_turns_something_off() {
        let drain = |drained| WorkerChange { drained: Some(drained), ..WorkerChange::default() };
        assert!(would_change(None, &drain(true)) && !would_change(None, &drain(false)));
        let own = WorkerChange { weight: Some(None), ..WorkerChange::default() };
        let two = WorkerChange { weight: Some(Weight::new(2).ok()), ..WorkerChange::default() };
        assert!(!would_change(None, &own) && would_change(None, &two));
    }
}
