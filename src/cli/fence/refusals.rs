//! `ringfence fence refusals`: writes of replaced owners that storage refused.

use crate::args::Common;
use crate::exit::{Exit, Outcome};
use crate::output::Table;
use crate::text::{ago, plain, short};
use ringfence::admin::{Health, Holder, RefusedList, RefusedWrites};
use ringfence::ids::KeyspaceName;
use serde::Serialize;
use std::io::{self, Write as _};
use std::time::Duration;

pub(super) const AFTER_HELP: &str = "\
A refused write means that a worker wrote after its successor had begun: it was paused, or cut off, and did not know. The fence
stopped it. MODE `observe` says that the fence only observes, and that the write went through.

It is told by the programs that write, with the SDK's `Refusals` (docs/refusals.md); what nobody tells is not here. The last 256
that differ are kept, by the coordinators, and outlive their leader. A time is that of the leader that was told.

Examples:
  ringfence fence refusals
  ringfence fence refusals orders -o json
  ringfence fence refusals --watch -o json | jq 'select(.mode == \"enforce\")'

With --watch it begins with what is known, the oldest first, and has a line whenever more is told; `more` says how many since the line
before. It ends when it is interrupted, or with the first line that nobody reads any more. While no coordinator answers it says so
on standard error, and goes on.";

/// Between two looks. A leader notes what it was told once a second.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Of how many the story is told; the others have a line in the table.
const STORIES: usize = 5;

/// What was told, for programs.
#[derive(Debug, Serialize)]
struct ListShape {
    now_unix_ms: u64,
    /// Those that were told last come first.
    refusals: Vec<RefusedShape>,
}

/// Writes that the same storage refused for the same reason.
#[derive(Debug, Serialize)]
pub(crate) struct RefusedShape {
    scope: String,
    own_epoch: u64,
    highest_epoch: u64,
    store: String,
    /// `enforce`: they were refused. `observe`: they were written.
    mode: &'static str,
    count: u64,
    first_unix_ms: u64,
    last_unix_ms: u64,
    writer: Option<HolderShape>,
    successor: Option<HolderShape>,
    reporter: Option<String>,
    /// For how long at least the writer had been replaced.
    late_ms: Option<u64>,
    means: String,
}

/// A line of the watch, for programs.
#[derive(Debug, Serialize)]
struct ToldShape {
    #[serde(flatten)]
    refused: RefusedShape,
    /// How many of `count` are new since the line before.
    more: u64,
}

#[derive(Debug, Serialize)]
struct HolderShape {
    worker: String,
    session: u64,
    epoch: u64,
    granted_unix_ms: u64,
    lives: bool,
}

/// What `status` says of them.
#[derive(Debug, Serialize)]
pub(crate) struct RefusalsShape {
    /// In the last day.
    refused: u64,
    observed: u64,
    last: Option<RefusedShape>,
}

impl From<&Health> for RefusalsShape {
    fn from(from: &Health) -> RefusalsShape {
        let last = from.last_refusal.as_ref().map(RefusedShape::from);
        RefusalsShape { refused: from.refusals, observed: from.refusals_observed, last }
    }
}

impl From<&Holder> for HolderShape {
    fn from(from: &Holder) -> HolderShape {
        HolderShape {
            worker: from.worker.to_string(),
            session: from.session.get(),
            epoch: from.epoch.get(),
            granted_unix_ms: from.granted_unix_ms,
            lives: from.lives,
        }
    }
}

impl From<&RefusedWrites> for RefusedShape {
    fn from(from: &RefusedWrites) -> RefusedShape {
        RefusedShape {
            scope: from.scope.to_string(),
            own_epoch: from.own.get(),
            highest_epoch: from.highest.get(),
            store: from.store.to_string(),
            mode: mode(from),
            count: from.count,
            first_unix_ms: from.first_unix_ms,
            last_unix_ms: from.last_unix_ms,
            writer: from.writer.as_ref().map(HolderShape::from),
            successor: from.successor.as_ref().map(HolderShape::from),
            reporter: from.reporter.as_ref().map(ToString::to_string),
            late_ms: from.late_ms,
            means: from.means.clone(),
        }
    }
}

fn mode(writes: &RefusedWrites) -> &'static str {
    if writes.observed { "observe" } else { "enforce" }
}

pub(super) async fn run(common: &Common, keyspace: Option<&KeyspaceName>) -> Outcome {
    let list = common.admin().refused_writes(keyspace.map(KeyspaceName::as_str)).await?;
    let shape = ListShape {
        now_unix_ms: list.now_unix_ms,
        refusals: list.refusals.iter().map(RefusedShape::from).collect(),
    };
    common.output().show(&shape, || text(&list))?;
    Ok(Exit::Done)
}

/// The same, as it grows. It returns only when nobody reads any more, or with an error that stays.
pub(super) async fn watch(common: &Common, keyspace: Option<&KeyspaceName>) -> Outcome {
    let (admin, output) = (common.admin(), common.output());
    let name = keyspace.map(KeyspaceName::as_str);
    let mut known = Vec::new();
    let mut list = admin.refused_writes(name).await?;
    let mut answers = true;
    loop {
        for writes in list.refusals.iter().rev() {
            let more = more(&known, writes);
            if more > 0 {
                let shape = ToldShape { refused: writes.into(), more };
                output.one_of_many(&shape, || told(writes, more))?;
            }
        }
        known = list.refusals;
        list = loop {
            tokio::time::sleep(LOOK_EVERY).await;
            match admin.refused_writes(name).await {
                Ok(list) => break list,
                Err(error) if !error.is_retryable() => return Err(error.into()),
                Err(error) if answers => {
                    answers = false;
                    let _ = writeln!(
                        io::stderr(),
                        "note: {}; it goes on when it is answered",
                        plain(&error.to_string())
                    );
                }
                Err(_) => {}
            }
        };
        answers = true;
    }
}

/// How many were told of since. What was forgotten and is told of again begins anew.
fn more(known: &[RefusedWrites], now: &RefusedWrites) -> u64 {
    let what = |of: &RefusedWrites| (of.scope.clone(), of.own, of.highest, of.store.clone(), of.observed);
    let before = known.iter().find(|before| what(before) == what(now)).map_or(0, |before| before.count);
    now.count.checked_sub(before).unwrap_or(now.count)
}

/// A line of the watch.
fn told(writes: &RefusedWrites, more: u64) -> String {
    let of = |holder: &Option<Holder>| holder.as_ref().map(|h| format!(" {}", h.worker)).unwrap_or_default();
    let late = writes.late_ms.map(|ms| format!(", at least {} late", short(Duration::from_millis(ms))));
    let became = if writes.observed { "observed, and written" } else { "refused" };
    plain(&format!(
        "{} e{}{}: {more} {became} by {}, which has seen e{}{}{}",
        writes.scope,
        writes.own.get(),
        of(&writes.writer),
        writes.store,
        writes.highest.get(),
        of(&writes.successor),
        late.unwrap_or_default(),
    )) + "\n"
}

fn text(list: &RefusedList) -> String {
    if list.refusals.is_empty() {
        return "No refused write was told of. Programs tell with the SDK's `Refusals`; see docs/refusals.md.\n".to_owned();
    }
    let mut table = Table::new([
        "LAST",
        "COUNT",
        "SCOPE",
        "STORAGE",
        "MODE",
        "WRITER",
        "EPOCH",
        "SEEN",
        "SUCCESSOR",
        "LATE BY",
    ]);
    let worker = |holder: &Option<Holder>| holder.as_ref().map(|h| h.worker.to_string()).unwrap_or_default();
    for writes in &list.refusals {
        table.row([
            ago(writes.last_unix_ms),
            writes.count.to_string(),
            writes.scope.to_string(),
            writes.store.to_string(),
            mode(writes).to_owned(),
            worker(&writes.writer),
            writes.own.get().to_string(),
            writes.highest.get().to_string(),
            worker(&writes.successor),
            writes.late_ms.map(|ms| short(Duration::from_millis(ms))).unwrap_or_default(),
        ]);
    }
    let mut text = table.text();
    for writes in list.refusals.iter().take(STORIES) {
        text.push_str(&format!("\n{}\n", plain(&writes.means)));
    }
    text
}

/// The line of `status`; nothing when nothing was refused lately.
pub(crate) fn line(health: &Health) -> Option<String> {
    let last = health.last_refusal.as_ref()?;
    let times = |count: u64| if count == 1 { "1 write".to_owned() } else { format!("{count} writes") };
    let mut parts = Vec::new();
    if health.refusals > 0 {
        parts.push(format!("{} refused", times(health.refusals)));
    }
    if health.refusals_observed > 0 {
        parts.push(format!("{} only observed, and written", times(health.refusals_observed)));
    }
    Some(plain(&format!(
        "Writes of replaced owners in the last day: {}; the last {}, of {} by storage {}. Somebody was paused: ringfence fence \
         refusals",
        parts.join(", "),
        ago(last.last_unix_ms),
        last.scope,
        last.store,
    )))
}
