//! What a refused write means, and what to do: in sentences, for somebody who was woken up by it.

use ringfence_core::ids::Scope;
use ringfence_core::state::{RefusedWrite, RefusedWrites, State};
use std::fmt::Write as _;

/// The story of a refused write.
pub(super) fn means(state: &State, writes: &RefusedWrites) -> String {
    let RefusedWrite { scope, own, highest, store, observed } = &writes.what;
    let (verb, times) = (if writes.count == 1 { "wrote" } else { "kept writing" }, writes.count);
    let who = match &writes.writer {
        Some(writer) => format!("worker {}", writer.worker),
        None => "somebody".to_owned(),
    };
    let mut text = format!("{who} {verb} to {scope} under {own}");
    if let Some(next) = &writes.successor {
        let again = writes.writer.as_ref().is_some_and(|writer| writer.session == next.session);
        let to = if again { "itself".to_owned() } else { format!("worker {}", next.worker) };
        let late = writes.late_ms().map_or_else(String::new, |ms| format!("{} ", lasted(ms)));
        let _ = write!(text, ", {late}after {} was granted to {to}", next.epoch);
    } else {
        let _ = write!(text, ", and storage had seen {highest}");
    }
    text.push_str(": ");
    text.push_str(&paused(writes));
    let _ = match observed {
        false => write!(text, " Storage {store} refused it, so it did no harm."),
        true => write!(
            text,
            " STORAGE {store} ONLY OBSERVES, so it was written ({times} times) over what came after it: compare what was \
             written to {scope} since then, and enforce this fence."
        ),
    };
    text.push(' ');
    text.push_str(&next(state, writes));
    text
}

fn paused(writes: &RefusedWrites) -> String {
    match (&writes.writer, writes.late_ms()) {
        (Some(_), Some(ms)) if ms > 0 => format!(
            "it was paused, cut off, or slow to write for at least {}, and did not know that it had been replaced.",
            lasted(ms)
        ),
        (Some(_), _) => "its write was under way when it was replaced.".to_owned(),
        (None, _) => "who had that epoch is not remembered any more.".to_owned(),
    }
}

fn next(state: &State, writes: &RefusedWrites) -> String {
    if let Scope::Partition(name, number) = &writes.what.scope {
        let partition = state.keyspace_named(name).and_then(|k| k.partitions().get(number.get() as usize));
        let granted = partition.and_then(ringfence_core::state::Partition::epoch);
        if granted.is_some_and(|granted| granted < writes.what.highest) {
            return format!(
                "Storage has seen {}, and no more than {} was granted: the coordinator was restored from an older copy, or \
                 another cluster writes there. Find out which; then: ringfence fence reassert {name}/{} --above {}",
                writes.what.highest,
                granted.map_or_else(String::new, |epoch| epoch.to_string()),
                number.get(),
                writes.what.highest.get(),
            );
        }
    }
    let Some(writer) = &writes.writer else {
        return "Look in the logs of the programs that write there.".to_owned();
    };
    let worker = &writer.worker;
    format!(
        "Look at what stopped {worker} then: a stopped container or virtual machine, swapping, a long garbage collection, a \
         lost network; ringfence worker show {worker} tells its sessions. Once is what the fence is for; again and again \
         means that {worker} is not well, or that its lease is too short for it."
    )
}

/// A span as people say it.
fn lasted(ms: u64) -> String {
    match ms {
        0..=9_999 => format!("{}.{:01}s", ms / 1_000, ms % 1_000 / 100),
        10_000..=119_999 => format!("{}s", ms / 1_000),
        120_000..=7_199_999 => format!("{}m {}s", ms / 60_000, ms % 60_000 / 1_000),
        _ => format!("{}h {}m", ms / 3_600_000, ms % 3_600_000 / 60_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_core::ids::{Epoch, LogIndex, SessionId, StoreName, WorkerId};
    use ringfence_core::state::Holder;

    fn holder(worker: &str, number: u64, granted_unix_ms: u64) -> Option<Holder> {
        let (worker, session) = (WorkerId::new(worker).unwrap(), SessionId::new(number).unwrap());
        Some(Holder { worker, session, epoch: Epoch::new(number).unwrap(), granted_unix_ms })
    }

    fn writes() -> RefusedWrites {
        RefusedWrites {
            what: RefusedWrite {
                scope: "orders/17".parse().unwrap(),
                own: Epoch::new(33).unwrap(),
                highest: Epoch::new(34).unwrap(),
                store: StoreName::new("ledger").unwrap(),
                observed: false,
            },
            count: 3,
            first_unix_ms: 100_000,
            last_unix_ms: 100_500,
            at: LogIndex::new(9),
            writer: holder("a", 33, 1),
            successor: holder("b", 34, 30_000),
            reporter: None,
        }
    }

    fn told(writes: &RefusedWrites) -> String {
        means(&State::new(), writes)
    }

    #[test]
    fn f099_it_says_who_was_replaced_by_whom_for_how_long_and_what_to_do() {
        let text = told(&writes());
        for part in [
            "worker a",
            "orders/17",
            "e33",
            "e34",
            "worker b",
            "at least 70s",
            "ledger refused it",
            "worker show a",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let mut observed = writes();
        observed.what.observed = true;
        let text = told(&observed);
        assert!(
            text.contains("ONLY OBSERVES") && text.contains("enforce") && !text.contains("no harm"),
            "{text}"
        );
    }

    #[test]
    fn what_nobody_remembers_is_not_made_up() {
        let unknown = RefusedWrites { writer: None, successor: None, ..writes() };
        let text = told(&unknown);
        assert!(
            text.contains("somebody") && text.contains("not remembered") && text.contains("e34"),
            "{text}"
        );
        assert!(!text.contains("at least"), "{text}");
        let at_once = RefusedWrites { first_unix_ms: 1, ..writes() };
        assert!(told(&at_once).contains("under way"), "{}", told(&at_once));
        let again = RefusedWrites { successor: holder("a", 33, 30_000), ..writes() };
        assert!(told(&again).contains("granted to itself"), "{}", told(&again));
    }

    #[test]
    fn spans_are_told_as_people_say_them() {
        let told = [0, 1_250, 70_000, 200_000, 7_200_000, u64::MAX].map(lasted);
        assert_eq!(&told[..5], ["0.0s", "1.2s", "70s", "3m 20s", "2h 0m"]);
    }
}
