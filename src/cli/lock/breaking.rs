//! A lock that is taken from whoever holds it.

use super::shape::{BrokenShape, HolderShape};
use crate::args::Common;
use crate::exit::{Exit, Outcome};
use crate::operator::{Sure, Who};
use crate::text::short;
use ringfence::admin::{LockDetail, LockHolder, held_for};
use ringfence::ids::{Epoch, LockName};

pub(super) async fn run(
    common: &Common,
    lock: &LockName,
    epoch: Option<Epoch>,
    at_once: bool,
    who: &Who,
    sure: Sure,
) -> Outcome {
    sure.or_terminal(who.dry_run)?;
    let admin = who.admin(common);
    let now = admin.lock(lock.as_str()).await?;
    if now.lock.held == 0 {
        let shape = BrokenShape { result: "unchanged", lock: lock.to_string(), at_once, holders: Vec::new() };
        common.output().changed("unchanged", &shape, || format!("nobody holds lock {lock}\n"))?;
        return Ok(Exit::Done);
    }
    // By the judgement of the break itself: what it refuses is refused here.
    let would = admin.plan_break_lock(lock.as_str(), epoch, at_once).await?.holders;
    let (result, holders) = if who.dry_run {
        ("planned", would)
    } else {
        sure.ask(&question(&now, &would, at_once))?;
        // From those who were asked about: what was granted since is another's.
        let one = would.first().map(|holder| holder.epoch);
        let one = one.filter(|epoch| would.iter().all(|holder| holder.epoch == *epoch));
        let broken = admin.break_lock(lock.as_str(), epoch.or(one), at_once).await?;
        ("broken", if broken.before { would } else { broken.holders })
    };
    let shape = BrokenShape {
        result,
        lock: lock.to_string(),
        at_once,
        holders: holders.iter().map(|holder| HolderShape::new(holder, now.now_unix_ms)).collect(),
    };
    common.output().changed(result, &shape, || {
        let whom = names(&holders);
        match result {
            "broken" if at_once => format!("lock {lock} is taken from {whom}, and free for the next one now\n"),
            "broken" => format!(
                "lock {lock} is taken from {whom}; the next one gets it when they know, or when their leases have run out: \
                 see `ringfence lock show {lock}`\n"
            ),
            _ => format!("lock {lock} would be taken from {whom}; nothing was done\n"),
        }
    })?;
    Ok(Exit::Done)
}

fn question(now: &LockDetail, would: &[LockHolder], at_once: bool) -> String {
    let held = would.first().and_then(|holder| held_for(holder, now.now_unix_ms));
    let held = held.map_or(String::new(), |held| format!(", held for {}", short(held)));
    let waiting = match now.lock.waiting {
        0 => "nobody waits for it".to_owned(),
        1 => "one waits for it".to_owned(),
        more => format!("{more} wait for it"),
    };
    let risk = if at_once {
        " The next one gets it at once: two may believe to hold it, and only a fence tells them apart."
    } else {
        ""
    };
    format!("This takes lock {} from {}{held}; {waiting}.{risk}", now.lock.name, names(would))
}

/// `worker w1 (s5, e9)`, and how many more.
fn names(holders: &[LockHolder]) -> String {
    let Some(first) = holders.first() else { return "nobody".to_owned() };
    let one = format!("worker {} ({}, {})", first.worker, first.session, first.epoch);
    match holders.len() - 1 {
        0 => one,
        more => format!("{one} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::show::tests::nightly;

    #[test]
    fn what_is_asked_names_the_holder_and_the_risk() {
        let now = nightly();
        let asked = question(&now, &now.lock.holders, false);
        assert_eq!(
            asked,
            "This takes lock nightly from worker w1 (s5, e9), held for 3m 20s; one waits for it."
        );
        assert!(question(&now, &now.lock.holders, true).contains("two may believe"));
    }
}
