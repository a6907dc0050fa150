//! Who holds what, since when, and who waits.

use super::shape::{DetailShape, LockShape, mode};
use crate::args::Common;
use crate::exit::{Exit, Outcome};
use crate::output::{Table, properties};
use crate::shape::takeover;
use crate::text::short;
use ringfence::admin::{Lock, LockDetail, LockHolder, LockList, LockWish, held_for, is_over_alert};
use ringfence::ids::LockName;
use std::time::Duration;

pub(super) async fn list(common: &Common, prefix: &str) -> Outcome {
    let list = common.admin().locks(prefix).await?;
    let shapes: Vec<_> = list.locks.iter().map(|lock| LockShape::new(lock, list.now_unix_ms)).collect();
    common.output().show(&shapes, || table(&list).text())?;
    Ok(Exit::Done)
}

pub(super) async fn show(common: &Common, lock: &LockName) -> Outcome {
    let detail = common.admin().lock(lock.as_str()).await?;
    common.output().show(&DetailShape::from(&detail), || details(&detail))?;
    Ok(Exit::Done)
}

fn table(list: &LockList) -> Table {
    let mut table = Table::new(["LOCK", "HOLDER", "SESSION", "EPOCH", "MODE", "HELD", "WAITING", "NOTE"]);
    for lock in &list.locks {
        // Those who have lost it are shown where nobody holds it.
        let first = lock.holders.iter().find(|holder| holder.cooling.is_none()).or(lock.holders.first());
        let of = |text: fn(&LockHolder) -> String| first.map(text).unwrap_or_default();
        table.row([
            lock.name.to_string(),
            holders(lock, first),
            of(|holder| holder.session.to_string()),
            of(|holder| holder.epoch.to_string()),
            of(|holder| mode(holder.wish.mode()).to_owned()),
            first.and_then(|holder| held_for(holder, list.now_unix_ms)).map(short).unwrap_or_default(),
            lock.waiting.to_string(),
            first.map(|holder| note(holder, list.now_unix_ms)).unwrap_or_default(),
        ]);
    }
    table
}

/// The first of them, and how many more there are.
fn holders(lock: &Lock, first: Option<&LockHolder>) -> String {
    let Some(first) = first else { return String::new() };
    match lock.held.saturating_sub(1) {
        0 => first.worker.to_string(),
        more => format!("{} and {more} more", first.worker),
    }
}

/// What is odd about a holder: it has lost the lock, or holds it for too long.
pub(super) fn note(holder: &LockHolder, now_unix_ms: u64) -> String {
    match holder.cooling {
        Some(cooling) => {
            let lease = cooling.lease.map(|lease| format!("its lease (at most {})", short(lease)));
            let delay =
                (!cooling.then.is_zero()).then(|| format!("its lock delay ({})", short(cooling.then)));
            let both: Vec<String> = lease.into_iter().chain(delay).collect();
            format!("lost; cools for {}", both.join(", then "))
        }
        None if is_over_alert(holder, now_unix_ms) => {
            let after = holder.wish.alert_after().map(short).unwrap_or_default();
            format!("held for longer than {after}")
        }
        None => String::new(),
    }
}

fn details(detail: &LockDetail) -> String {
    let (lock, now) = (&detail.lock, detail.now_unix_ms);
    let state = match (lock.holders.iter().any(|holder| holder.cooling.is_none()), lock.held) {
        (true, _) => "held",
        (false, 0) if lock.waiting == 0 => "idle",
        (false, 0) => "waited for",
        (false, _) => "cooling",
    };
    let mut text = properties([
        ("lock", lock.name.to_string()),
        ("state", state.to_owned()),
        ("waiting", lock.waiting.to_string()),
    ]);
    if !lock.holders.is_empty() {
        let mut table = Table::new([
            "HOLDER", "SESSION", "ADDRESS", "EPOCH", "MODE", "TAKEOVER", "DELAY", "HELD", "NOTE",
        ]);
        for holder in &lock.holders {
            table.row([
                holder.worker.to_string(),
                holder.session.to_string(),
                holder.address.clone(),
                holder.epoch.to_string(),
                mode(holder.wish.mode()).to_owned(),
                takeover(holder.wish.takeover()).to_owned(),
                delay(&holder.wish),
                held_for(holder, now).map(short).unwrap_or_default(),
                note(holder, now),
            ]);
        }
        text.push('\n');
        text.push_str(&table.text());
        text.push_str(&more(lock.held, lock.holders.len()));
    }
    if !detail.queue.is_empty() {
        let mut table = Table::new(["PLACE", "WAITS", "SESSION", "MODE", "TAKEOVER", "DELAY", "SINCE"]);
        for (waiter, place) in detail.queue.iter().zip(1..) {
            let waited = Duration::from_millis(now.saturating_sub(waiter.since_unix_ms));
            table.row([
                i32::to_string(&place),
                waiter.worker.to_string(),
                waiter.session.to_string(),
                mode(waiter.wish.mode()).to_owned(),
                takeover(waiter.wish.takeover()).to_owned(),
                delay(&waiter.wish),
                format!("{} ago", short(waited)),
            ]);
        }
        text.push('\n');
        text.push_str(&table.text());
        text.push_str(&more(lock.waiting, detail.queue.len()));
    }
    text
}

fn delay(wish: &LockWish) -> String {
    if wish.lock_delay().is_zero() { String::new() } else { short(wish.lock_delay()) }
}

/// How many are not shown.
fn more(all: u32, shown: usize) -> String {
    match (all as usize).saturating_sub(shown) {
        0 => String::new(),
        more => format!("and {more} more\n"),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use ringfence::admin::{LockCooling, LockMode, LockWaiter, Takeover};
    use ringfence::ids::{Epoch, LogIndex, SessionId, WorkerId};

    fn wish() -> LockWish {
        let (delay, alert) = (Duration::from_secs(15), Some(Duration::from_secs(60)));
        LockWish::new(LockMode::Exclusive).with(Takeover::Lease, delay, alert).unwrap()
    }

    fn held() -> LockHolder {
        LockHolder {
            worker: WorkerId::new("w1").unwrap(),
            session: SessionId::new(5).unwrap(),
            address: "10.0.0.1:80".to_owned(),
            epoch: Epoch::new(9).unwrap(),
            wish: wish(),
            at: LogIndex::new(40),
            unix_ms: 1_000,
            cooling: None,
        }
    }

    pub(crate) fn cooled() -> LockHolder {
        let cooling = LockCooling { lease: Some(Duration::from_secs(10)), then: Duration::from_secs(15) };
        LockHolder { address: String::new(), cooling: Some(cooling), ..held() }
    }

    /// One that is held for too long, and waited for.
    pub(crate) fn nightly() -> LockDetail {
        let waiter = LockWaiter {
            worker: WorkerId::new("w2").unwrap(),
            session: SessionId::new(6).unwrap(),
            wish: wish(),
            since_unix_ms: 2_000,
        };
        let lock =
            Lock { name: LockName::new("nightly").unwrap(), holders: vec![held()], held: 1, waiting: 1 };
        LockDetail::new(lock, vec![waiter], 201_000)
    }

    #[test]
    fn a_lock_for_people() {
        assert_eq!(
            details(&nightly()),
            "lock:     nightly\nstate:    held\nwaiting:  1\n\n\
             HOLDER  SESSION  ADDRESS      EPOCH  MODE       TAKEOVER  DELAY  HELD    NOTE\n\
             w1      s5       10.0.0.1:80  e9     exclusive  lease     15s    3m 20s  held for longer than 1m\n\n\
             PLACE  WAITS  SESSION  MODE       TAKEOVER  DELAY  SINCE\n\
             1      w2     s6       exclusive  lease     15s    3m 19s ago\n"
        );
    }

    #[test]
    fn what_cools_says_for_what() {
        assert_eq!(note(&cooled(), 0), "lost; cools for its lease (at most 10s), then its lock delay (15s)");
        let idle = Lock { holders: vec![], held: 0, waiting: 0, ..nightly().lock };
        assert!(details(&LockDetail::new(idle, vec![], 0)).contains("idle"));
    }

    #[test]
    fn the_table_of_locks() {
        let lock = nightly().lock;
        let many = Lock { holders: vec![held(), held()], held: 3, ..lock.clone() };
        let lost = Lock { holders: vec![cooled()], ..lock.clone() };
        let list = LockList::new(vec![lock, many, lost], 31_000);
        assert_eq!(
            table(&list).text(),
            "LOCK     HOLDER         SESSION  EPOCH  MODE       HELD  WAITING  NOTE\n\
             nightly  w1             s5       e9     exclusive  30s   1        -\n\
             nightly  w1 and 2 more  s5       e9     exclusive  30s   1        -\n\
             nightly  w1             s5       e9     exclusive  -     1        lost; cools for its lease (at most 10s), then its lock delay (15s)\n"
        );
    }
}
