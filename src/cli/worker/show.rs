//! One worker, and what became of it.

use crate::args::Common;
use crate::exit::{Exit, Outcome};
use crate::output::{Table, properties};
use crate::settings::{WorkerSettingsShape, by};
use crate::shape::{WorkerShape, some};
use crate::text::ago;
use ringfence::admin::{Directive, Worker, WorkerDetail, WorkerEvent};
use ringfence::ids::{SessionId, WorkerId};
use serde::Serialize;

/// One worker.
#[derive(Debug, Serialize)]
struct WorkerDetailShape {
    worker: String,
    /// `null` when it has none.
    session: Option<u64>,
    partitions: u32,
    /// Of how many moves it is the target.
    arriving: u32,
    /// Its process may be stopped and nobody notices.
    may_stop: bool,
    settings: WorkerSettingsShape,
    /// As `worker list` shows it; `null` when it has no session.
    live: Option<WorkerShape>,
}

/// Something that became of a worker.
#[derive(Debug, Serialize)]
struct EventShape {
    index: u64,
    /// `null` when it is not known.
    at_unix_ms: Option<u64>,
    what: String,
    /// `null` when nobody decided it.
    by: Option<String>,
    reason: Option<String>,
}

impl From<&WorkerEvent> for EventShape {
    fn from(from: &WorkerEvent) -> EventShape {
        EventShape {
            index: from.at.get(),
            at_unix_ms: from.unix_ms,
            what: from.what.clone(),
            by: some(&from.by),
            reason: some(&from.reason),
        }
    }
}

/// Runs `ringfence worker show`.
pub(super) async fn show(common: &Common, worker: &WorkerId) -> Outcome {
    let admin = common.admin();
    let detail = admin.worker(worker).await?;
    let live = admin.workers().await?.into_iter().find(|live| live.worker == *worker);
    let shape = WorkerDetailShape {
        worker: worker.to_string(),
        session: detail.session.map(SessionId::get),
        partitions: detail.partitions,
        arriving: detail.arriving,
        may_stop: detail.may_stop(),
        settings: (&detail.settings).into(),
        live: live.as_ref().map(Into::into),
    };
    common.output().show(&shape, || text(&detail, live.as_ref()))?;
    Ok(Exit::Done)
}

/// Runs `ringfence worker history`.
pub(super) async fn history(common: &Common, worker: &WorkerId) -> Outcome {
    let detail = common.admin().worker(worker).await?;
    let shapes: Vec<EventShape> = detail.events.iter().map(Into::into).collect();
    common.output().show(&shapes, || events(&detail.events).text())?;
    Ok(Exit::Done)
}

fn events(events: &[WorkerEvent]) -> Table {
    let mut table = Table::new(["WHEN", "WHAT", "BY", "WHY"]);
    for event in events {
        table.row([
            event.unix_ms.map(ago).unwrap_or_default(),
            event.what.clone(),
            event.by.clone(),
            event.reason.clone(),
        ]);
    }
    table
}

fn text(detail: &WorkerDetail, live: Option<&Worker>) -> String {
    let set = |directive: &Option<Directive>| {
        directive.as_ref().map_or("no".to_owned(), |d| format!("yes, by {}", by(d)))
    };
    let labels = live.map(|live| {
        let pairs: Vec<String> = live.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        pairs.join(", ")
    });
    let settings = &detail.settings;
    let weight = match (settings.weight, live) {
        (Some(weight), _) => format!("{weight}, set by an operator"),
        (None, Some(live)) => format!("{}, its own", live.weight),
        (None, None) => String::new(),
    };
    properties([
        ("worker", settings.worker.to_string()),
        ("session", detail.session.map(|session| session.to_string()).unwrap_or_default()),
        ("address", live.map(|live| live.address.clone()).unwrap_or_default()),
        ("labels", labels.unwrap_or_default()),
        ("weight", weight),
        ("partitions", detail.partitions.to_string()),
        ("arriving", detail.arriving.to_string()),
        ("drained", set(&settings.drained)),
        ("drained until it joins", set(&settings.drained_until_join)),
        ("cordoned", set(&settings.cordoned)),
        ("frozen", set(&settings.frozen)),
        ("may be stopped", if detail.may_stop() { "yes" } else { "no" }.to_owned()),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::json;

    #[test]
    fn the_json_shape_of_an_event_is_a_contract() {
        let event = EventShape {
            index: 40,
            at_unix_ms: None,
            what: "session s3 ended: it left".to_owned(),
            by: None,
            reason: None,
        };
        assert_eq!(
            json(&event).unwrap(),
            r#"{"index":40,"at_unix_ms":null,"what":"session s3 ended: it left","by":null,"reason":null}"#
        );
    }
}
