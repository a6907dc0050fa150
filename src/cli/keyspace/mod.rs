//! `ringfence keyspace`: create, change, split, list, show and delete keyspaces.

mod split;

use crate::args::Common;
use crate::exit::{Exit, Failed, Outcome};
use crate::operator::{Sure, Who};
use crate::output::{Table, properties};
use crate::shape::{KeyspaceShape, balance_by, takeover};
use crate::text::short;
use clap::{ArgAction, ArgGroup, Args, Subcommand, ValueEnum};
use ringfence::ErrorKind;
use ringfence::admin::{
    Admin, BalanceBy, Constraint, Keyspace, PartitionCount, Policy, PolicyChange, Takeover,
};
use ringfence::ids::KeyspaceName;
use serde::Serialize;
use std::time::Duration;

/// Arguments of `ringfence keyspace`.
#[derive(Debug, Args)]
pub(crate) struct KeyspaceArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Create a keyspace
    #[command(after_help = "\
What is left out is: --ttl 10s --takeover lease --drain-deadline 0s --lock-delay 0s --max-moves-in-flight 64
--balance true --balance-by count --moves-per-minute 0 --rejoin-hold 0s --spread-zones true --no-labels.

Examples:
  ringfence keyspace create orders --partitions 64
  ringfence keyspace create counters --partitions 256 --ttl 3s --takeover fence")]
    Create {
        /// Its name: [a-z0-9][a-z0-9._-]{0,62}
        name: KeyspaceName,
        /// How many partitions it has, 1 to 1000000; `ringfence keyspace split` doubles them
        #[arg(long, value_parser = partition_count)]
        partitions: PartitionCount,
        /// Do nothing when it exists with so many partitions and the settings given here; one that is left out may differ
        #[arg(long)]
        if_absent: bool,
        #[command(flatten)]
        who: Who,
        #[command(flatten)]
        policy: PolicyArgs,
    },
    /// Change a keyspace's policy; what is left out stays
    #[command(group = ArgGroup::new("change").required(true).multiple(true).args(SETTINGS), after_help = "\
A new TTL counts for workers that join from now on.

Example:
  ringfence keyspace update orders --balance false")]
    Update {
        /// Its name
        name: KeyspaceName,
        #[command(flatten)]
        who: Who,
        /// No setting, and always refused with the reason: see `ringfence keyspace split`
        #[arg(long, value_parser = partition_count, hide = true)]
        partitions: Option<PartitionCount>,
        #[command(flatten)]
        policy: PolicyArgs,
    },
    /// Split every partition in two, while workers own them
    #[command(after_help = split::AFTER_HELP)]
    Split(split::SplitArgs),
    /// List all keyspaces
    List,
    /// Show one keyspace
    Show {
        /// Its name
        name: KeyspaceName,
    },
    /// Delete a keyspace: its owners lose their partitions at once
    #[command(after_help = "\
Workers that serve it go on serving their other keyspaces. One that is created again under the name never repeats an epoch; workers
that served the earlier one have to be restarted to serve it.

It is asked about on a terminal; elsewhere it needs --yes.

Example:
  ringfence keyspace delete orders --dry-run")]
    Delete {
        /// Its name
        name: KeyspaceName,
        /// Do nothing when it does not exist
        #[arg(long)]
        if_exists: bool,
        #[command(flatten)]
        who: Who,
        #[command(flatten)]
        sure: Sure,
    },
}

/// The settings of a policy, as clap calls them.
const SETTINGS: [&str; 13] = [
    "partitions",
    "ttl",
    "takeover",
    "drain_deadline",
    "lock_delay",
    "max_moves_in_flight",
    "balance",
    "balance_by",
    "moves_per_minute",
    "rejoin_hold",
    "spread_zones",
    "label",
    "no_labels",
];

#[derive(Clone, Copy, Debug, ValueEnum)]
enum TakeoverArg {
    /// Wait until a silent owner's lease has run out: no two workers ever both believe that they own a partition
    Lease,
    /// Do not wait; two workers may both believe for a while, and the fence at the storage keeps the data right
    Fence,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum BalanceByArg {
    /// How many partitions each worker has, or the sum of the weights that were given to partitions
    Count,
    /// The loads that owners measure: what they stamp and read in a second, or what they say themselves
    Load,
}

impl From<BalanceByArg> for BalanceBy {
    fn from(by: BalanceByArg) -> BalanceBy {
        match by {
            BalanceByArg::Count => BalanceBy::Count,
            BalanceByArg::Load => BalanceBy::Load,
        }
    }
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Policy")]
struct PolicyArgs {
    /// The lease of a worker that joins, 1s to 10m
    #[arg(long, value_name = "DURATION", value_parser = ttl)]
    ttl: Option<Duration>,
    /// When the next owner is granted a partition whose owner is silent
    #[arg(long)]
    takeover: Option<TakeoverArg>,
    /// How long a planned move waits for its old owner, up to 1h; 0s: as long as the TTL
    #[arg(long, value_name = "DURATION", value_parser = drain_deadline)]
    drain_deadline: Option<Duration>,
    /// How long a partition cools before a grant that does not follow its owner's own release, 0s to 60s; for resources
    /// that check no token
    #[arg(long, value_name = "DURATION", value_parser = lock_delay)]
    lock_delay: Option<Duration>,
    /// How many planned moves run at once, 1 to 10000
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    max_moves_in_flight: Option<u32>,
    /// Whether partitions are balanced by themselves
    #[arg(long, value_name = "BOOL", action = ArgAction::Set)]
    balance: Option<bool>,
    /// What balancing evens out
    #[arg(long)]
    balance_by: Option<BalanceByArg>,
    /// How many planned moves begin in a minute at the most, up to 1000000; 0: as many as --max-moves-in-flight allows
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    moves_per_minute: Option<u32>,
    /// How long the partitions of a worker that announced its restart wait for it, up to 1h; 0s: they do not
    #[arg(long, value_name = "DURATION", value_parser = rejoin_hold)]
    rejoin_hold: Option<Duration>,
    /// Whether partitions are spread over the zones that workers name in their label `zone`
    #[arg(long, value_name = "BOOL", action = ArgAction::Set)]
    spread_zones: Option<bool>,
    /// What a worker's labels have to be for it to own partitions here, may be repeated: KEY or KEY=VALUE, and !KEY or
    /// !KEY=VALUE for what is forbidden. All that were set before are replaced
    #[arg(long, value_name = "LABEL")]
    label: Vec<Constraint>,
    /// Any worker that serves the keyspace may own partitions
    #[arg(long, conflicts_with = "label")]
    no_labels: bool,
}

impl PolicyArgs {
    fn change(&self) -> PolicyChange {
        PolicyChange {
            ttl: self.ttl,
            takeover: self.takeover.map(|takeover| match takeover {
                TakeoverArg::Lease => Takeover::Lease,
                TakeoverArg::Fence => Takeover::Fence,
            }),
            drain_deadline: self.drain_deadline,
            lock_delay: self.lock_delay,
            max_moves_in_flight: self.max_moves_in_flight,
            balance: self.balance,
            balance_by: self.balance_by.map(BalanceBy::from),
            moves_per_minute: self.moves_per_minute,
            rejoin_hold: self.rejoin_hold,
            spread_zones: self.spread_zones,
            constraints: (self.no_labels || !self.label.is_empty()).then(|| self.label.clone()),
        }
    }
}

/// A setting is checked by the rule that the coordinator will check it by, so that what cannot work is bad usage.
fn checked(text: &str, set: impl FnOnce(&mut PolicyChange, Duration)) -> Result<Duration, String> {
    let duration = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    let mut change = PolicyChange::default();
    set(&mut change, duration);
    Policy::default().with(&change).map(|_| duration).map_err(|error| error.to_string())
}

fn ttl(text: &str) -> Result<Duration, String> {
    checked(text, |change, ttl| change.ttl = Some(ttl))
}

fn drain_deadline(text: &str) -> Result<Duration, String> {
    checked(text, |change, deadline| change.drain_deadline = Some(deadline))
}

fn lock_delay(text: &str) -> Result<Duration, String> {
    checked(text, |change, delay| change.lock_delay = Some(delay))
}

fn rejoin_hold(text: &str) -> Result<Duration, String> {
    checked(text, |change, hold| change.rejoin_hold = Some(hold))
}

fn partition_count(text: &str) -> Result<PartitionCount, String> {
    let number = text.parse().map_err(|_| "it is not a number from 1 to 1000000".to_owned())?;
    PartitionCount::new(number).map_err(|error| error.to_string())
}

/// What `create`, `update` and `delete` did.
#[derive(Debug, Serialize)]
struct DoneShape {
    /// `created`, `updated`, `deleted`, `unchanged` or `planned`; of a split also `splitting`, `split` or `cancelled`.
    result: &'static str,
    /// As it is now, or would be; `null` when it is gone.
    keyspace: Option<KeyspaceShape>,
}

/// Runs `ringfence keyspace`.
pub(crate) async fn run(args: KeyspaceArgs) -> Outcome {
    let (admin, output) = (args.common.admin(), args.common.output());
    let (result, keyspace, text) = match args.verb {
        Verb::List => {
            let all = admin.keyspaces().await?;
            let shapes: Vec<_> = all.iter().map(KeyspaceShape::from).collect();
            output.show(&shapes, || table(&all))?;
            return Ok(Exit::Done);
        }
        Verb::Show { name } => {
            let keyspace = admin.keyspace(name.as_str()).await?;
            output.show(&KeyspaceShape::from(&keyspace), || details(&keyspace))?;
            return Ok(Exit::Done);
        }
        Verb::Create { name, partitions, if_absent, who, policy } => {
            let (change, admin) = (policy.change(), who.asking(admin));
            let (result, keyspace) =
                create(&admin, &name, partitions, &change, if_absent, who.dry_run).await?;
            (result, Some(keyspace), format!("keyspace {name} of {} partitions: {result}", partitions.get()))
        }
        Verb::Split(split) => return split::run(&args.common, split).await,
        Verb::Update { name, partitions: Some(asked), .. } => {
            return Err(split::no_such_change(&admin.keyspace(name.as_str()).await?, asked));
        }
        Verb::Update { name, who, policy, partitions: None } => {
            let (change, admin) = (policy.change(), who.asking(admin));
            let (update, result) = if who.dry_run {
                (admin.plan_update_keyspace(name.as_str(), &change).await?, "planned")
            } else {
                (admin.update_keyspace(name.as_str(), &change).await?, "updated")
            };
            let result = if update.changed { result } else { "unchanged" };
            (result, Some(update.keyspace), format!("keyspace {name}: {result}"))
        }
        Verb::Delete { name, if_exists, who, sure } => {
            sure.or_terminal(who.dry_run)?;
            let result = delete(&who.asking(admin), &name, if_exists, who.dry_run, sure).await?;
            (result, None, format!("keyspace {name}: {result}"))
        }
    };
    let shape = DoneShape { result, keyspace: keyspace.as_ref().map(KeyspaceShape::from) };
    output.changed(result, &shape, || text + "\n")?;
    Ok(Exit::Done)
}

/// Deletes a keyspace, when that is meant.
async fn delete(
    admin: &Admin,
    name: &KeyspaceName,
    if_exists: bool,
    dry_run: bool,
    sure: Sure,
) -> Result<&'static str, Failed> {
    let missing = |error: &ringfence::Error| if_exists && error.kind() == ErrorKind::NotFound;
    let found = match admin.keyspace(name.as_str()).await {
        Err(error) if missing(&error) => return Ok("unchanged"),
        found => found?,
    };
    if dry_run {
        return Ok("planned");
    }
    sure.ask(&format!(
        "This deletes keyspace {name} with its {} partitions: whoever owns one loses it at once.",
        found.partitions
    ))?;
    match admin.delete_keyspace(name.as_str()).await {
        Err(error) if missing(&error) => Ok("unchanged"),
        deleted => Ok(deleted.map(|()| "deleted")?),
    }
}

/// Creates a keyspace, or says what would become of that by the same judgement.
async fn create(
    admin: &Admin,
    name: &KeyspaceName,
    partitions: PartitionCount,
    change: &PolicyChange,
    if_absent: bool,
    dry_run: bool,
) -> Result<(&'static str, Keyspace), Failed> {
    let created = if dry_run {
        admin.plan_create_keyspace(name.as_str(), partitions.get(), change).await
    } else {
        admin.create_keyspace(name.as_str(), partitions.get(), change).await
    };
    let error = match created {
        Ok(keyspace) => return Ok((if dry_run { "planned" } else { "created" }, keyspace)),
        Err(error) => error,
    };
    if !if_absent || error.kind() != ErrorKind::AlreadyExists {
        return Err(error.into());
    }
    Ok(("unchanged", as_asked(admin.keyspace(name.as_str()).await?, partitions, change)?))
}

/// The keyspace, when it is as it was asked for.
fn as_asked(found: Keyspace, partitions: PartitionCount, change: &PolicyChange) -> Result<Keyspace, Failed> {
    let name = &found.name;
    // Settings that were not named are as the one who created it wanted them.
    let as_asked = found.policy.with(change).is_ok_and(|policy| policy == found.policy);
    if found.partitions == partitions && as_asked {
        return Ok(found);
    }
    Err(Failed::refused(format!(
        "keyspace {name} exists with other settings; see `ringfence keyspace show {name}`"
    )))
}

/// How many there are, and how far they are split.
fn partitions(keyspace: &Keyspace) -> String {
    match keyspace.split_progress() {
        None => keyspace.partitions.to_string(),
        Some((split, of)) => format!("{} ({split} of {of} split)", keyspace.partitions),
    }
}

fn table(all: &[Keyspace]) -> String {
    let mut table = Table::new([
        "KEYSPACE",
        "PARTITIONS",
        "TTL",
        "TAKEOVER",
        "DRAIN DEADLINE",
        "LOCK DELAY",
        "MOVES",
        "BALANCE",
    ]);
    for keyspace in all {
        let policy = &keyspace.policy;
        table.row([
            keyspace.name.to_string(),
            partitions(keyspace),
            short(policy.ttl()),
            takeover(policy.takeover()).to_owned(),
            short(policy.drain_deadline()),
            short(policy.lock_delay()),
            policy.max_moves_in_flight().to_string(),
            policy.balance().to_string(),
        ]);
    }
    table.text()
}

fn details(keyspace: &Keyspace) -> String {
    let policy = &keyspace.policy;
    let labels: Vec<String> = policy.constraints().iter().map(ToString::to_string).collect();
    let bound = |number: u32| if number == 0 { "no bound".to_owned() } else { number.to_string() };
    properties([
        ("keyspace", keyspace.name.to_string()),
        ("partitions", partitions(keyspace)),
        ("ttl", short(policy.ttl())),
        ("takeover", takeover(policy.takeover()).to_owned()),
        ("drain deadline", short(policy.drain_deadline())),
        ("lock delay", short(policy.lock_delay())),
        ("max moves in flight", policy.max_moves_in_flight().to_string()),
        ("balance", policy.balance().to_string()),
        ("balance by", balance_by(policy.balance_by()).to_owned()),
        ("moves per minute", bound(policy.moves_per_minute())),
        ("rejoin hold", short(policy.rejoin_hold())),
        ("spread zones", policy.spread_zones().to_string()),
        ("labels", labels.join(", ")),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::json;

    fn orders() -> Keyspace {
        let change = PolicyChange {
            ttl: Some(Duration::from_secs(5)),
            takeover: Some(Takeover::Fence),
            lock_delay: Some(Duration::from_millis(250)),
            ..PolicyChange::default()
        };
        Keyspace {
            name: KeyspaceName::new("orders").unwrap(),
            partitions: PartitionCount::new(64).unwrap(),
            split_from: None,
            policy: Policy::default().with(&change).unwrap(),
        }
    }

    #[test]
    fn the_json_shape_of_a_keyspace_is_a_contract() {
        assert_eq!(
            json(&KeyspaceShape::from(&orders())).unwrap(),
            r#"{"name":"orders","partitions":64,"split_from":null,"ttl_ms":5000,"takeover":"fence","drain_deadline_ms":5000,"#
                .to_owned()
                + r#""lock_delay_ms":250,"max_moves_in_flight":64,"balance":true,"moves_per_minute":0,"#
                + r#""rejoin_hold_ms":0,"spread_zones":true,"labels":[],"balance_by":"count"}"#
        );
        let deleted = DoneShape { result: "deleted", keyspace: None };
        assert_eq!(json(&deleted).unwrap(), r#"{"result":"deleted","keyspace":null}"#);
    }

    #[test]
    fn the_table_of_keyspaces() {
        assert_eq!(
            table(&[orders()]),
            "KEYSPACE  PARTITIONS  TTL  TAKEOVER  DRAIN DEADLINE  LOCK DELAY  MOVES  BALANCE\n\
             orders    64          5s   fence     5s              250ms       64     true\n"
        );
        assert!(details(&orders()).contains("takeover:             fence\n"));
    }

    #[test]
    fn f062_a_setting_that_cannot_work_is_bad_usage_and_says_the_bounds() {
        assert!(ttl("999ms").unwrap_err().contains("1s to 10m"));
        assert!(rejoin_hold("61m").unwrap_err().contains("0 (none) to 1h"));
        assert!(lock_delay("61s").unwrap_err().contains("0 to 60s"));
        assert!(partition_count("0").unwrap_err().contains("between 1 and 1000000"));
        assert_eq!(ttl("1m 30s"), Ok(Duration::from_secs(90)));
    }
}
