//! `ringfence keyspace split`: every partition in two, while workers own them.

use super::DoneShape;
use crate::args::Common;
use crate::exit::{Exit, Failed, Outcome};
use crate::freeze;
use crate::operator::{Progress, Sure, Who};
use crate::output::Output;
use crate::shape::KeyspaceShape;
use crate::text::{plain, short};
use clap::Args;
use ringfence::ErrorKind;
use ringfence::admin::{Admin, Keyspace, PartitionCount};
use ringfence::ids::KeyspaceName;
use std::io::{self, Write as _};
use std::time::Duration;

pub(super) const AFTER_HELP: &str = "\
Partitions are split one after the other, by their numbers: partition 3 of 64 into 3 and 67. Each is given back by its owner for
the time of one handoff, and goes to the same worker; the new one goes there too, and balancing waits until all are split. It
goes on by itself, whoever leads, within the budget of moves; a freeze holds it up. `ringfence keyspace show` says how far it
is. Pins, weights and freezes of a partition stay with it, and the new one has none.

Every worker that serves the keyspace has to be built for it, or it is refused: it asks of each key whether its partition has it, and
says so when it joins. Until a partition is split it can be cancelled; then it is finished, and never undone. A number of
partitions changes in no other way. Said again while a split goes on, nothing is begun: the result is `unchanged`, or with --wait what
becomes of the split that goes on.

A split is asked about on a terminal; elsewhere it needs --yes. To cancel one takes nothing away, and is not asked about.

Examples:
  ringfence keyspace split orders --dry-run
  ringfence keyspace split orders --reason 'twice the load' --wait 10m
  ringfence keyspace split orders --cancel";

/// Between two looks at a keyspace that is split.
const LOOK_EVERY: Duration = Duration::from_millis(200);

#[derive(Debug, Args)]
pub(super) struct SplitArgs {
    /// The keyspace
    name: KeyspaceName,
    /// Wait so long until all partitions are split and have owners that are ready
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    wait: Option<Duration>,
    /// Take the beginning of a split back, before the first partition is split
    #[arg(long, conflicts_with = "wait")]
    cancel: bool,
    #[command(flatten)]
    who: Who,
    #[command(flatten)]
    sure: Sure,
}

pub(super) async fn run(common: &Common, args: SplitArgs) -> Outcome {
    let SplitArgs { name, wait, cancel, who, sure } = args;
    let (admin, output) = (who.admin(common), common.output());
    if cancel {
        return self::cancel(&admin, output, &name, who.dry_run).await;
    }
    sure.or_terminal(who.dry_run)?;
    let before = admin.keyspace(name.as_str()).await?;
    let from = before.partitions.get();
    let (was, will) = (format!("keyspace {name}"), from.saturating_mul(2));
    if let Some(base) = before.split_from {
        // Somebody has begun it; to wait for it is what is left to do.
        return match wait.filter(|_| !who.dry_run) {
            Some(_) => finish(&admin, output, &before, base, wait).await,
            None => {
                let split = from - base.get();
                let text = format!("{was}: is being split already, {split} of {base} partitions are");
                show(output, "unchanged", &before, text)
            }
        };
    }
    if who.dry_run {
        let keyspace = admin.can_split_keyspace(name.as_str(), from).await?;
        for frozen in freeze::of_a_split(&admin.settings().await?, &name) {
            // Whoever closed it does not want to hear it.
            let _ = writeln!(io::stderr(), "note: the split would wait: {}", plain(&frozen));
        }
        return show(
            output,
            "planned",
            &keyspace,
            format!("{was}: would be split, {from} partitions into {will}"),
        );
    }
    sure.ask(&format!(
        "This splits every partition of {was} in two: {from} become {will}. Each changes hands once, and it is never undone."
    ))?;
    let keyspace = admin.split_keyspace(name.as_str(), from).await?;
    finish(&admin, output, &keyspace, before.partitions, wait).await
}

/// Takes the beginning of a split back, when there is one.
async fn cancel(admin: &Admin, output: Output, name: &KeyspaceName, dry_run: bool) -> Outcome {
    let before = admin.keyspace(name.as_str()).await?;
    match before.split_progress() {
        None => show(output, "unchanged", &before, format!("keyspace {name}: is not being split")),
        Some(_) if dry_run => {
            // By the judgement of the cancel itself: what it refuses is refused here.
            let before = admin.can_cancel_split(name.as_str()).await?;
            let text = format!("the split of keyspace {name}: would be cancelled; nothing was done");
            show(output, "planned", &before, text)
        }
        Some(_) => {
            let keyspace = admin.cancel_split(name.as_str()).await?;
            show(output, "cancelled", &keyspace, format!("the split of keyspace {name}: cancelled"))
        }
    }
}

async fn finish(
    admin: &Admin,
    output: Output,
    keyspace: &Keyspace,
    base: PartitionCount,
    wait: Option<Duration>,
) -> Outcome {
    let name = &keyspace.name;
    let Some(limit) = wait else {
        let text = format!("keyspace {name}: being split, {base} partitions into {}", base.get() * 2);
        return show(output, "splitting", keyspace, text);
    };
    let keyspace = until_it_is_whole(admin, name, base, limit).await?;
    let text = format!("keyspace {name}: split, {base} partitions into {}", keyspace.partitions);
    show(output, "split", &keyspace, text)
}

fn show(output: Output, result: &'static str, keyspace: &Keyspace, text: String) -> Outcome {
    let shape = DoneShape { result, keyspace: Some(KeyspaceShape::from(keyspace)) };
    output.changed(result, &shape, || text + "\n")?;
    Ok(Exit::Done)
}

async fn until_it_is_whole(
    admin: &Admin,
    name: &KeyspaceName,
    base: PartitionCount,
    limit: Duration,
) -> Result<Keyspace, Failed> {
    let (mut done, mut frozen) = (0, Vec::new());
    let mut progress = Progress::new();
    let looked = tokio::time::timeout(limit, async {
        loop {
            match look(admin, name, base).await {
                Ok((keyspace, true)) if is_split(&keyspace, base) => return Ok(keyspace),
                Ok((keyspace, true)) => return Err(taken_back(&keyspace)),
                Ok((keyspace, false)) => {
                    done = keyspace.partitions.get().saturating_sub(base.get());
                    // The next look tells it, when this one cannot.
                    if let Ok(settings) = admin.settings().await {
                        frozen = freeze::of_a_split(&settings, name);
                    }
                    match &frozen[..] {
                        [] => progress.show(done.into(), base.get().into(), "partitions split"),
                        frozen => progress.hold(held(done, base, frozen)),
                    }
                }
                // The next leader goes on with it.
                Err(error) if error.is_retryable() => {}
                Err(error) => return Err(Failed::from(error)),
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    });
    match looked.await {
        Ok(looked) => looked,
        Err(_) => Err(Failed::timeout(unfinished(name, done, base, &frozen, limit))),
    }
}

fn held(done: u32, base: PartitionCount, frozen: &[String]) -> String {
    format!("{done}/{base} partitions split, and what is frozen holds it up: {}", frozen.join("; "))
}

/// How far it is after so long, and where to look.
fn unfinished(
    name: &KeyspaceName,
    done: u32,
    base: PartitionCount,
    frozen: &[String],
    limit: Duration,
) -> String {
    let frozen = match frozen {
        [] => String::new(),
        frozen => format!("; what is frozen holds it up: {}", frozen.join("; ")),
    };
    let next = done.min(base.get().saturating_sub(1));
    format!(
        "{done} of {base} partitions of keyspace {name} are split after {}{frozen}; it goes on; `ringfence keyspace show {name}` says \
         how far it is, and `ringfence partition explain {name}/{next}` what the next one waits for",
        short(limit)
    )
}

/// The keyspace, and whether no split of it goes on and all of it has owners that are ready, or the split was cancelled.
async fn look(
    admin: &Admin,
    name: &KeyspaceName,
    base: PartitionCount,
) -> Result<(Keyspace, bool), ringfence::Error> {
    let keyspace = admin.keyspace(name.as_str()).await?;
    if keyspace.split_from.is_some() {
        return Ok((keyspace, false));
    }
    if !is_split(&keyspace, base) {
        return Ok((keyspace, true));
    }
    let ready = admin.partitions(name.as_str()).await?.iter().all(|partition| partition.ready);
    Ok((keyspace, ready))
}

/// Every partition of so many is in two, or that was done and they were split once more.
fn is_split(keyspace: &Keyspace, base: PartitionCount) -> bool {
    keyspace.partitions.get() > base.get()
}

/// Why nothing is waited for any more although nothing is split.
fn taken_back(keyspace: &Keyspace) -> Failed {
    let Keyspace { name, partitions, .. } = keyspace;
    Failed::refused(format!(
        "keyspace {name} has {partitions} partitions and is not being split: somebody cancelled the split, or deleted the keyspace \
         and created it again; `ringfence directives` says who"
    ))
}

/// Why a number of partitions cannot be set, and what to do.
pub(super) fn no_such_change(keyspace: &Keyspace, asked: PartitionCount) -> Failed {
    let (name, has) = (&keyspace.name, keyspace.partitions);
    if asked == has {
        return Failed::refused(format!("keyspace {name} has {has} partitions already"));
    }
    let doubled = Some(asked.get()) == has.get().checked_mul(2);
    let how = if doubled {
        format!("to double them say: ringfence keyspace split {name}")
    } else {
        "for another number create another keyspace and move the data".to_owned()
    };
    Failed::of(
        ErrorKind::Refused,
        format!(
            "keyspace {name} has {has} partitions, and their number changes only by splitting each in two: then a new partition has \
             keys of one old one only, and its owner fences whoever owned that one before; {how}"
        ),
    )
}
