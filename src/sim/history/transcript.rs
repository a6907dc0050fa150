//! A history for people: a line an event, times in milliseconds.

use super::{Call, Event, History, Outcome, What};
use std::fmt;

/// The widest actor column. A longer name pushes its own line only.
const COLUMN: usize = 16;

impl fmt::Display for History {
    /// One line an event, in the order of their times.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.events.iter().map(|event| event.by.len()).max().unwrap_or(0).min(COLUMN);
        let mut order: Vec<(usize, &Event)> = self.events.iter().enumerate().collect();
        order.sort_by_key(|(_, event)| event.at);
        for (index, event) in order {
            writeln!(f, "{index:>7}  {}  {:<width$}  {}", Ms(event.at), event.by, event.what)?;
        }
        Ok(())
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", Ms(self.at), self.by, self.what)
    }
}

/// Microseconds, shown as milliseconds.
struct Ms(u64);

impl fmt::Display for Ms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>8}.{:03}ms", self.0 / 1000, self.0 % 1000)
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            What::Granted { scope, epoch, session, worker, .. } => {
                write!(f, "granted {scope} {epoch} to {worker} ({session})")
            }
            What::Holds { fact, holds, .. } => write!(f, "{fact}: {holds}"),
            What::MoveBegan { scope, epoch, from, to, why, .. } => {
                write!(f, "a move of {scope} {epoch} from {from} to {to} has begun ({why})")
            }
            What::Held { scope, epoch, worker, for_ms } => {
                write!(f, "{scope} {epoch} waits for {worker}, at most {for_ms} ms")
            }
            What::Split { parent, child, epoch } => write!(f, "{child} is split from {parent}, {epoch}"),
            What::Vacated { scope, epoch, why } => write!(f, "vacated {scope} {epoch}: {why}"),
            What::KeyspaceCreated { keyspace, partitions } => {
                write!(f, "keyspace {keyspace} created, {partitions} partitions")
            }
            What::KeyspaceDeleted { keyspace } => write!(f, "keyspace {keyspace} deleted"),
            What::Elected { term, node } => write!(f, "{node} leads in {term}"),
            What::Began { scope, epoch, worker } => write!(f, "{worker} began {scope} {epoch}"),
            What::Ready { scope, epoch } => write!(f, "ready {scope} {epoch}"),
            What::Revoked { scope, epoch } => write!(f, "revoked {scope} {epoch}"),
            What::Ended { scope, epoch, why } => write!(f, "ended {scope} {epoch}: {why:?}"),
            What::Claims { scope, epoch, from, to } => {
                write!(f, "owned {scope} {epoch} from {} to {}", Ms(*from), Ms(*to))
            }
            What::Believed { scope, epoch, asked } => {
                write!(f, "says it owns {scope} {epoch}, asked at {}", Ms(*asked))
            }
            What::Raised { scope, epoch } => write!(f, "fence of {scope} raised to {epoch}"),
            What::Applied { op, key, scope, epoch, value } => {
                write!(f, "applied #{op}: {key} = {value} under {scope} {epoch}")
            }
            What::RefusedStale { op, scope, epoch, highest } => {
                write!(f, "refused #{op} as stale: {scope} {epoch}, the fence has {highest}")
            }
            What::RefusedSession { scope, epoch, holder } => {
                write!(f, "refused a second session under {scope} {epoch}, which {holder} had used")
            }
            What::Invoked { op, key, call, token } => {
                match call {
                    Call::Write(value) => write!(f, "#{op} write {key} = {value}")?,
                    Call::Append(value) => write!(f, "#{op} append {value} to {key}")?,
                    Call::Read => write!(f, "#{op} read {key}")?,
                }
                token.as_ref().map_or(Ok(()), |(scope, epoch)| write!(f, " under {scope} {epoch}"))
            }
            What::Returned { op, outcome } => match outcome {
                Outcome::Ok(found) if found.is_empty() => write!(f, "#{op} done"),
                Outcome::Ok(found) => write!(f, "#{op} done, found {}", Values(found)),
                Outcome::Refused => write!(f, "#{op} refused"),
                Outcome::Unknown => write!(f, "#{op} unknown"),
            },
            What::Routed { scope, epoch, worker } => write!(f, "routes {scope} to {worker} ({epoch})"),
            What::Moved { scope, to } => write!(f, "a move of {scope} to {to} is asked for"),
            What::Died { actor } => write!(f, "{actor} is dead"),
            What::Fault { text } => write!(f, "FAULT {text}"),
            What::Healed => write!(f, "the last fault is over"),
            What::Steady => write!(f, "steady from here on"),
            What::NeverCalm { late_us } => {
                write!(f, "it never grew calm; the observer was late by {} at the most", Ms(*late_us))
            }
            What::Note { text } => write!(f, "{text}"),
            What::End => write!(f, "the end"),
        }
    }
}

/// The end of a list of values: what matters is what came last.
pub(crate) struct Values<'a>(pub(crate) &'a [u64]);

impl fmt::Display for Values<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 4;
        let tail = &self.0[self.0.len().saturating_sub(SHOWN)..];
        let dots = if tail.len() < self.0.len() { "..., " } else { "" };
        let values: Vec<String> = tail.iter().map(u64::to_string).collect();
        write!(f, "[{dots}{}]", values.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_transcript_is_in_order_of_time_and_keeps_the_index() {
        let mut history = History::default();
        let epoch = ringfence_core::ids::Epoch::new(2).unwrap();
        history.push(2_500, "store", What::Raised { scope: "orders/1".parse().unwrap(), epoch });
        history.push(1, "w1.1", What::Returned { op: 7, outcome: Outcome::Ok((1..9).collect()) });
        assert_eq!(
            history.to_string(),
            "      1         0.001ms  w1.1   #7 done, found [..., 5, 6, 7, 8]\n      \
             0         2.500ms  store  fence of orders/1 raised to e2\n"
        );
    }
}
