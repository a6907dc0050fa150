//! A trace, line by line: the head first, then what happens, in the order of time. What cannot be meant is refused with
//! its line and column, and with what was expected.

use super::event::{Event, MAX_COOL_DOWN, MAX_STEP, MIN_STEP, Setup};
use super::fields::{Fields, expected, number, text, wrong};
use super::json::{Fault, Node, Value, parse, quoted};
use crate::ids::{PartitionId, WorkerId};
use crate::lead::{Settings, ZONE_LABEL};
use crate::placement::{Constraint, PartitionCount, Weight};
use crate::state::{
    BalanceBy, MAX_LABELS, MAX_PARTITION_SETTINGS, MAX_SESSIONS, PartitionChange, Policy, PolicyChange,
    Takeover, WorkerChange,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::time::Duration;

/// The longest line of a trace, in bytes: loads of all partitions that may have one fit into it.
pub const MAX_LINE_BYTES: usize = 4 << 20;
/// The longest trace.
pub const MAX_TRACE: Duration = Duration::from_secs(366 * 86_400);
/// How many partitions a trace may name: what is set about a partition takes room in a coordinator, too.
pub const MAX_NAMED_PARTITIONS: usize = MAX_PARTITION_SETTINGS;
/// How many workers a trace may name.
const MAX_NAMED_WORKERS: usize = MAX_SESSIONS;
/// The longest label, key or value, in bytes.
const MAX_LABEL_BYTES: usize = 63;

const HEAD: &str = "the head of a trace";
const EVENTS: &str = "join, leave, fail, weight, drain, undrain, cordon, uncordon, pin, unpin, freeze, unfreeze, \
                      move, load, end";

/// A line of a trace that cannot be meant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {what}")]
pub struct TraceError {
    /// The line, from 1.
    pub line: u64,
    /// The character in it, from 1.
    pub column: usize,
    /// What is wrong there, and what is expected.
    pub what: String,
}

/// A line that says something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// The head.
    Setup(Box<Setup>),
    /// What happens, and when: milliseconds from the beginning.
    Event(u64, Event),
}

/// Reads a trace. It knows who is there, so that an event about a worker that is not is refused.
#[derive(Clone, Debug, Default)]
pub struct TraceReader {
    line: u64,
    partitions: Option<PartitionCount>,
    at_ms: u64,
    ended: bool,
    /// Every worker that has joined so far, and whether it is up.
    workers: BTreeMap<WorkerId, bool>,
    named: BTreeSet<PartitionId>,
}

impl TraceReader {
    /// Before the first line.
    pub fn new() -> TraceReader {
        TraceReader::default()
    }

    /// The line that was read last, from 1.
    pub fn line(&self) -> u64 {
        self.line
    }

    /// Reads the next line, with or without its end. `None` when it is blank. After an error the trace is no good.
    ///
    /// # Errors
    /// [`TraceError`] when it cannot be meant.
    pub fn read(&mut self, bytes: &[u8]) -> Result<Option<Line>, TraceError> {
        self.line += 1;
        let text = match std::str::from_utf8(bytes) {
            _ if bytes.len() > MAX_LINE_BYTES => {
                let what = format!("the line is longer than {MAX_LINE_BYTES} bytes");
                return Err(TraceError { line: self.line, column: 1, what });
            }
            Ok(text) => text,
            Err(error) => {
                let before = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
                let column = before.chars().count() + 1;
                return Err(TraceError { line: self.line, column, what: "this is not UTF-8".to_owned() });
            }
        };
        if text.trim_matches([' ', '\t', '\r', '\n']).is_empty() {
            return Ok(None);
        }
        self.interpret(text).map(Some).map_err(|fault| {
            let column = text.get(..fault.at).unwrap_or(text).chars().count() + 1;
            TraceError { line: self.line, column, what: fault.what }
        })
    }

    /// There are no more lines.
    ///
    /// # Errors
    /// [`TraceError`] when there was not even a head.
    pub fn finish(&self) -> Result<(), TraceError> {
        if self.partitions.is_none() {
            let what = "the trace is empty: its first line has at least {\"keyspace\": NAME, \"partitions\": NUMBER}";
            return Err(TraceError { line: self.line + 1, column: 1, what: what.to_owned() });
        }
        Ok(())
    }

    fn interpret(&mut self, text: &str) -> Result<Line, Fault> {
        let mut fields = Fields::of(parse(text)?)?;
        if let Some(partitions) = self.partitions {
            let (at_ms, event) = self.event(&mut fields, partitions)?;
            fields.finish("this event")?;
            return Ok(Line::Event(at_ms, event));
        }
        let setup = setup(&mut fields)?;
        fields.finish(HEAD)?;
        self.partitions = Some(setup.partitions);
        Ok(Line::Setup(Box::new(setup)))
    }

    fn event(&mut self, fields: &mut Fields, partitions: PartitionCount) -> Result<(u64, Event), Fault> {
        let at_ms = fields.number("at_ms")?;
        let (at, at_ms) = fields.need("at_ms", at_ms)?;
        if at_ms < self.at_ms {
            let why = format!("{at_ms} is before {}, and events stand in the order of time", self.at_ms);
            return Err(wrong(at, "at_ms", why));
        }
        if u128::from(at_ms) > MAX_TRACE.as_millis() {
            let why = format!("a trace lasts at most 366 days, which is {}", MAX_TRACE.as_millis());
            return Err(wrong(at, "at_ms", why));
        }
        let name = fields.text("event")?;
        let (at, name) = fields.need("event", name)?;
        if self.ended {
            return Err(Fault::new(fields.at, "nothing may stand after the event `end`"));
        }
        let event = self.named(&name, at, fields, partitions)?;
        self.at_ms = at_ms;
        Ok((at_ms, event))
    }

    fn named(
        &mut self,
        name: &str,
        at: usize,
        fields: &mut Fields,
        partitions: PartitionCount,
    ) -> Result<Event, Fault> {
        let none = WorkerChange::default();
        Ok(match name {
            "join" => self.join(fields)?,
            "leave" => Event::Leave(self.departing(fields)?),
            "fail" => Event::Fail(self.departing(fields)?),
            "weight" => {
                let (_, name) = self.worker(fields)?;
                let weight = weight(fields)?;
                let weight = fields.need("weight", weight)?;
                Event::Worker(name, WorkerChange { weight: Some(Some(weight)), ..none })
            }
            "drain" | "undrain" => {
                let drained = Some(name == "drain");
                Event::Worker(self.worker(fields)?.1, WorkerChange { drained, ..none })
            }
            "cordon" | "uncordon" => {
                let cordoned = Some(name == "cordon");
                Event::Worker(self.worker(fields)?.1, WorkerChange { cordoned, ..none })
            }
            "pin" => {
                let partition = self.partition(fields, partitions)?;
                let pin = Some(Some(self.worker(fields)?.1));
                Event::Partition(partition, PartitionChange { pin, ..Default::default() })
            }
            "unpin" => {
                let partition = self.partition(fields, partitions)?;
                Event::Partition(partition, PartitionChange { pin: Some(None), ..Default::default() })
            }
            "freeze" | "unfreeze" => self.freeze(name == "freeze", fields, partitions)?,
            "move" => {
                let partition = self.partition(fields, partitions)?;
                Event::Move(partition, self.worker(fields)?.1)
            }
            "load" => self.load(fields, partitions)?,
            "end" => {
                self.ended = true;
                Event::End
            }
            other => {
                let why = format!("unknown event {}: expected one of {EVENTS}", quoted(other));
                return Err(Fault::new(at, why));
            }
        })
    }

    fn join(&mut self, fields: &mut Fields) -> Result<Event, Fault> {
        let worker = fields.parsed::<WorkerId>("worker")?;
        let (at, worker) = fields.need("worker", worker)?;
        if self.workers.get(&worker) == Some(&true) {
            return Err(wrong(
                at,
                "worker",
                format!("{worker} is there already: it has to leave or fail first"),
            ));
        }
        if !self.workers.contains_key(&worker) && self.workers.len() >= MAX_NAMED_WORKERS {
            return Err(wrong(at, "worker", format!("a trace has at most {MAX_NAMED_WORKERS} workers")));
        }
        let weight = weight(fields)?.unwrap_or(Weight::ONE);
        let labels = labels(fields)?;
        self.workers.insert(worker.clone(), true);
        Ok(Event::Join { worker, weight, labels })
    }

    /// A worker that is up, and will not be.
    fn departing(&mut self, fields: &mut Fields) -> Result<WorkerId, Fault> {
        let (at, worker) = self.worker(fields)?;
        match self.workers.get_mut(&worker) {
            Some(up) if *up => *up = false,
            _ => return Err(wrong(at, "worker", format!("{worker} has left or failed already"))),
        }
        Ok(worker)
    }

    /// A worker that has joined before; what operators set about it stays when it goes.
    fn worker(&self, fields: &mut Fields) -> Result<(usize, WorkerId), Fault> {
        let worker = fields.parsed::<WorkerId>("worker")?;
        let (at, worker) = fields.need("worker", worker)?;
        self.known(at, "worker", worker)
    }

    fn known(&self, at: usize, name: &str, worker: WorkerId) -> Result<(usize, WorkerId), Fault> {
        if !self.workers.contains_key(&worker) {
            return Err(wrong(at, name, format!("there is no worker {worker}: it has to join first")));
        }
        Ok((at, worker))
    }

    fn partition(&mut self, fields: &mut Fields, partitions: PartitionCount) -> Result<PartitionId, Fault> {
        let number = fields.number("partition")?;
        let (at, number) = fields.need("partition", number)?;
        self.in_range(at, "partition", number, partitions)
    }

    fn in_range(
        &mut self,
        at: usize,
        name: &str,
        number: u64,
        partitions: PartitionCount,
    ) -> Result<PartitionId, Fault> {
        let there = u32::try_from(number).ok().filter(|number| *number < partitions.get());
        let Some(there) = there else {
            let last = partitions.get() - 1;
            return Err(wrong(at, name, format!("there is no partition {number}: they are 0 to {last}")));
        };
        let partition = PartitionId::new(there);
        if self.named.len() >= MAX_NAMED_PARTITIONS && !self.named.contains(&partition) {
            let why = format!("a trace names at most {MAX_NAMED_PARTITIONS} partitions");
            return Err(wrong(at, name, why));
        }
        self.named.insert(partition);
        Ok(partition)
    }

    fn freeze(
        &mut self,
        freeze: bool,
        fields: &mut Fields,
        partitions: PartitionCount,
    ) -> Result<Event, Fault> {
        let frozen = Some(freeze);
        let worker = fields.parsed::<WorkerId>("worker")?;
        match (worker, fields.number("partition")?) {
            (Some(_), Some((at, _))) => {
                Err(wrong(at, "partition", "a freeze is of a worker or of a partition, or names neither"))
            }
            (Some((at, worker)), None) => {
                let (_, worker) = self.known(at, "worker", worker)?;
                Ok(Event::Worker(worker, WorkerChange { frozen, ..Default::default() }))
            }
            (None, Some((at, number))) => {
                let partition = self.in_range(at, "partition", number, partitions)?;
                Ok(Event::Partition(partition, PartitionChange { frozen, ..Default::default() }))
            }
            (None, None) => Ok(Event::Freeze(freeze)),
        }
    }

    fn load(&mut self, fields: &mut Fields, partitions: PartitionCount) -> Result<Event, Fault> {
        let loads = fields.take("loads");
        let loads = fields.need("loads", loads)?;
        let Value::Object(loads) = loads.value else {
            return Err(expected("loads", "an object {\"PARTITION\": LOAD, ...}", &loads));
        };
        let mut measured = Vec::with_capacity(loads.len().min(MAX_NAMED_PARTITIONS));
        for (at, name, load) in loads {
            // One text for each number, or a partition could stand there twice.
            let number = name.parse().ok().filter(|number: &u64| number.to_string() == name);
            let number =
                number.ok_or_else(|| wrong(at, "loads", format!("{} is no partition", quoted(&name))))?;
            let partition = self.in_range(at, "loads", number, partitions)?;
            measured.push((partition, self::number("loads", &load)?));
        }
        Ok(Event::Load(measured))
    }
}

fn weight(fields: &mut Fields) -> Result<Option<Weight>, Fault> {
    let Some((at, number)) = fields.small("weight")? else { return Ok(None) };
    Weight::new(number).map(Some).map_err(|error| wrong(at, "weight", error))
}

/// The labels, and the zone among them.
fn labels(fields: &mut Fields) -> Result<BTreeMap<String, String>, Fault> {
    let (zone, listed) = (fields.text("zone")?, fields.take("labels"));
    let mut labels = BTreeMap::new();
    let mut add = |at: usize, field: &str, key: String, value: String| {
        let fits = |text: &str| text.len() <= MAX_LABEL_BYTES && !text.chars().any(char::is_control);
        if key.is_empty() || !fits(&key) || !fits(&value) {
            let why = format!("a key or value has at most {MAX_LABEL_BYTES} bytes and no control character");
            return Err(wrong(at, field, why));
        }
        if labels.insert(key, value).is_some() {
            return Err(wrong(at, field, "the zone is given twice: as `zone` and as a label"));
        }
        if labels.len() > MAX_LABELS {
            return Err(wrong(at, field, format!("there are at most {MAX_LABELS} labels")));
        }
        Ok(())
    };
    if let Some((at, zone)) = zone {
        add(at, "zone", ZONE_LABEL.to_owned(), zone)?;
    }
    match listed {
        None => {}
        Some(Node { value: Value::Object(listed), .. }) => {
            for (at, key, value) in listed {
                add(at, "labels", key, text("labels", value)?.1)?;
            }
        }
        Some(node) => return Err(expected("labels", "an object {\"KEY\": \"VALUE\", ...}", &node)),
    }
    Ok(labels)
}

fn setup(fields: &mut Fields) -> Result<Setup, Fault> {
    let keyspace = fields.parsed("keyspace")?;
    let (_, keyspace) = fields.need("keyspace", keyspace)?;
    let partitions = fields.small("partitions")?;
    let (at, partitions) = fields.need("partitions", partitions)?;
    let partitions = PartitionCount::new(partitions).map_err(|error| wrong(at, "partitions", error))?;
    let policy = policy(fields)?;
    let usual = Settings::default();
    let pacing = Settings {
        settle: fields.bounded("settle_ms", Duration::ZERO, MAX_STEP)?.unwrap_or(usual.settle),
        cool_down: fields.bounded("cool_down_ms", Duration::ZERO, MAX_COOL_DOWN)?.unwrap_or(usual.cool_down),
        ..usual
    };
    let usual = Duration::from_millis(10);
    let release = fields.bounded("release_ms", MIN_STEP, MAX_STEP)?.unwrap_or(usual);
    let load = fields.bounded("load_ms", MIN_STEP, MAX_STEP)?.unwrap_or(usual);
    Ok(Setup { keyspace, partitions, policy, pacing, release, load })
}

fn policy(fields: &mut Fields) -> Result<Policy, Fault> {
    let begins = fields.at;
    let takeover = match fields.text("takeover")? {
        None => None,
        Some((at, word)) => match word.as_str() {
            "lease" => Some(Takeover::Lease),
            "fence" => Some(Takeover::Fence),
            other => return Err(wrong(at, "takeover", format!("{} is not lease or fence", quoted(other)))),
        },
    };
    let balance_by = match fields.text("balance_by")? {
        None => None,
        Some((at, word)) => match word.as_str() {
            "count" => Some(BalanceBy::Count),
            "load" => Some(BalanceBy::Load),
            other => return Err(wrong(at, "balance_by", format!("{} is not count or load", quoted(other)))),
        },
    };
    let change = PolicyChange {
        ttl: fields.millis("ttl_ms")?,
        takeover,
        drain_deadline: fields.millis("drain_deadline_ms")?,
        lock_delay: fields.millis("lock_delay_ms")?,
        max_moves_in_flight: fields.small("max_moves_in_flight")?.map(|(_, moves)| moves),
        balance: fields.truth("balance")?,
        balance_by,
        moves_per_minute: fields.small("moves_per_minute")?.map(|(_, moves)| moves),
        rejoin_hold: None,
        spread_zones: fields.truth("spread_zones")?,
        constraints: constraints(fields)?,
    };
    let refused = |error: &dyn Display| Fault::new(begins, format!("{HEAD}: {error}"));
    Policy::default().with(&change).map_err(|error| refused(&error))
}

fn constraints(fields: &mut Fields) -> Result<Option<Vec<Constraint>>, Fault> {
    let list = match fields.take("labels") {
        None => return Ok(None),
        Some(Node { value: Value::List(list), .. }) => list,
        Some(node) => return Err(expected("labels", "a list [\"KEY=VALUE\", ...]", &node)),
    };
    let read = |node| {
        let (at, label) = text("labels", node)?;
        label.parse::<Constraint>().map_err(|_| {
            let why = format!("{} is not a label: write KEY or KEY=VALUE", quoted(&label));
            wrong(at, "labels", format!("{why}, with ! before what is forbidden"))
        })
    };
    list.into_iter().map(read).collect::<Result<_, _>>().map(Some)
}
