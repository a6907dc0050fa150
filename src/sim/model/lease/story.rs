//! A counterexample as a list of steps that can be read.

use super::action::Action;
use super::scene::Scene;
use super::world::World;
use crate::model::check::Story;
use crate::model::setting::name;
use ringfence_core::state::{Command, Entry};
use std::time::Instant;

impl Story for World {
    fn until(self, at: Instant) -> World {
        World { until: Some(at), ..self }
    }

    fn tell(&self, before: &Scene, action: &Action, after: &Scene) -> String {
        let who = |worker: usize| name(worker);
        let leader = |term: u64| format!("the leader of term {term}");
        let what = match *action {
            Action::Tick => format!("a tick passes; it is tick {}", after.tick),
            Action::Elect => format!("a node is voted {}", leader(after.term)),
            Action::Commit(_) => committed(before, after),
            Action::Apply(term) => {
                let applied = before.leader(term).map_or(0, |leader| leader.applied) + 1;
                format!("{} applies entry {applied}", leader(term))
            }
            Action::Look(term) => {
                let new = after.pending.iter().filter(|proposal| {
                    !before.pending.iter().any(|old| std::sync::Arc::ptr_eq(old, proposal))
                });
                let new: Vec<String> = new.map(|proposal| entry(proposal.entry.as_ref())).collect();
                format!(
                    "{} looks, and proposes {}",
                    leader(term),
                    if new.is_empty() { "nothing".into() } else { new.join(" and ") }
                )
            }
            Action::Renew(worker) => format!("{} sends a renewal", who(worker)),
            Action::Connect(worker, term) => format!("{} connects to {}", who(worker), leader(term)),
            Action::Arrive(worker) => {
                format!("{}'s renewal arrives at {}", who(worker), leader(before.workers[worker].stream))
            }
            Action::Confirm(term) => format!("a quorum confirms {}", leader(term)),
            Action::Answer(term, worker) => {
                let held = after.leader(term).is_some_and(|leader| leader.inbox[worker].is_some());
                let verb = if held { "holds" } else { "answers" };
                format!("{} {verb} {}'s renewal", leader(term), who(worker))
            }
            Action::TakeAnswer(worker) => format!("{} gets the acknowledgement", who(worker)),
            Action::TakePicture(worker, applied) => {
                format!("{} gets its assignment as of entry {applied}", who(worker))
            }
            Action::GiveBack(worker) => format!("{}'s task returns, and it releases", who(worker)),
            Action::SaySeen(worker) => format!("{} says that it knows of the drain", who(worker)),
            Action::Drain => "an operator asks for a drain".to_owned(),
            Action::Join => "another process joins as a".to_owned(),
        };
        format!("{what}{}", beliefs(before, after))
    }
}

fn committed(before: &Scene, after: &Scene) -> String {
    let new = after.log.after(before.log.len()).iter().enumerate();
    let new = new.map(|(at, committed)| {
        let proposal = &committed.proposal;
        let refused = committed
            .applied
            .outcome
            .as_ref()
            .err()
            .map_or(String::new(), |refusal| format!(", refused: {}", refusal.why));
        format!(
            "entry {} of term {} is committed: {}{refused}",
            before.log.len() + at + 1,
            proposal.term,
            entry(proposal.entry.as_ref())
        )
    });
    new.collect::<Vec<_>>().join("; ")
}

/// Says when a worker begins or ceases to believe.
fn beliefs(before: &Scene, after: &Scene) -> String {
    let mut said = String::new();
    for (at, (was, is)) in before.workers.iter().zip(&after.workers).enumerate() {
        let was: Vec<_> = was.believes(before.clocks.worker(before.tick)).collect();
        let is: Vec<_> = is.believes(after.clocks.worker(after.tick)).collect();
        if was != is {
            let now = is.first().map_or("nothing".to_owned(), |(key, epoch)| format!("{key} under {epoch}"));
            said += &format!(" [{} believes in {now}]", name(at));
        }
    }
    said
}

fn entry(entry: Option<&Entry>) -> String {
    let Some(entry) = entry else { return "its first entry".to_owned() };
    let commands: Vec<String> = entry.commands.iter().map(command).collect();
    format!("{{{}}}", commands.join(", "))
}

fn command(command: &Command) -> String {
    match command {
        Command::Join(join) => format!("Join {}", join.worker),
        Command::Suspect { sessions } => {
            let each: Vec<String> =
                sessions.iter().map(|(session, thirds)| format!("{session} for {thirds}/3")).collect();
            format!("Suspect {}", each.join(", "))
        }
        Command::Clear { sessions } => {
            let each: Vec<String> = sessions.iter().map(ToString::to_string).collect();
            format!("Clear {}", each.join(", "))
        }
        Command::Expire { session, suspicion } => format!("Expire {session} by the suspicion at {suspicion}"),
        Command::Grant { partition, to, .. } => format!("Grant {partition} to {to}"),
        Command::Drain { partition, epoch, to, .. } => format!("Drain {partition} at {epoch}, to {to}"),
        Command::DrainOver { partition, epoch, .. } => format!("DrainOver {partition} at {epoch}"),
        Command::Release { partition, epoch, .. } => format!("Release {partition} at {epoch}"),
        Command::RevokeSeen { partition, epoch, .. } => format!("RevokeSeen {partition} at {epoch}"),
        Command::EndCooling { partition, epoch } => format!("EndCooling {partition} at {epoch}"),
        other => format!("{other:?}"),
    }
}
