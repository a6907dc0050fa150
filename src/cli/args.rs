//! The command line, and what every verb takes.

use crate::exit::{Exit, Failed, Outcome};
use crate::output::{Format, Output};
use crate::text::{self, short};
use crate::{
    cluster, demo, dev, drill, fence, freeze, gateway, keyspace, lock, logging, partition, rebalance, run,
    serve, settings, status, watch, who_owns, worker,
};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, Parser, Subcommand};
use ringfence::admin::Admin;
use ringfence::net::{Coordinator, Endpoints, without_secrets};
use ringfence::router::Router;
use rustix::process::{Signal, set_parent_process_death_signal};
use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

const AFTER_HELP: &str = "\
Exit codes: 0 done, or there was nothing to do; 1 refused or failed; 2 bad usage.

Examples:
  ringfence status
  ringfence keyspace create orders --partitions 64 --ttl 5s
  ringfence partition move orders/17 --to worker-3 --wait
  ringfence who-owns orders customer-17 -o json";

/// One owner for every partition, an epoch on every write, and a fence at the storage that refuses the owner that was
/// replaced.
#[derive(Debug, Parser)]
#[command(name = "ringfence", version, max_term_width = 100, after_help = AFTER_HELP)]
struct Cli {
    /// How the log on standard error is written; RINGFENCE_LOG says what it has in it, such as `debug` or
    /// `ringfence=debug` [default: text]
    #[arg(long, env = "RINGFENCE_LOG_FORMAT", global = true, value_name = "FORMAT", help_heading = "Log")]
    log_format: Option<logging::LogFormat>,

    /// The kernel ends this process when the one that started it ends
    #[arg(long, hide = true)]
    die_with_parent: bool,

    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run one node of a coordinator
    Serve(Box<serve::ServeArgs>),
    /// Run a coordinator of one node in memory, to try things out
    Dev(dev::DevArgs),
    /// One screen for the person on call; exit code 1 when somebody is needed
    Status(status::StatusArgs),
    /// Create, change, list, split and delete keyspaces
    Keyspace(keyspace::KeyspaceArgs),
    /// List, show, drain, cordon, weigh, evict and forget workers
    Worker(Box<worker::WorkerArgs>),
    /// List, show, move, pin and weigh partitions, and tell why they are where they are
    Partition(Box<partition::PartitionArgs>),
    /// Plan, review, apply and undo a rebalance; see what a policy would do
    Rebalance(Box<rebalance::RebalanceArgs>),
    /// Named locks: run a command under one, list and show them, and take one from whoever holds it
    Lock(Box<lock::LockArgs>),
    /// Writes that storage refused, and raising fences again after a restore
    Fence(Box<fence::FenceArgs>),
    /// Stop planned moves of a partition, a worker, a keyspace or the cluster
    Freeze(Box<freeze::FreezeArgs>),
    /// Let planned moves go on again
    Unfreeze(Box<freeze::FreezeArgs>),
    /// What is frozen, drained, cordoned, pinned and weighed, and by whom
    Settings(settings::SettingsArgs),
    /// What operators decided, newest first
    Directives(settings::DirectivesArgs),
    /// Which worker owns a key
    WhoOwns(who_owns::WhoOwnsArgs),
    /// The coordinator's nodes
    Cluster(cluster::ClusterArgs),
    /// Follow changes of ownership as they happen
    Watch(watch::WatchArgs),
    /// Replace an owner on purpose, to see your own storage refuse its late write
    Drill(Box<drill::DrillArgs>),
    /// The one way to write a store that knows no tokens, with a fence in it
    Gateway(gateway::GatewayArgs),
    /// Run any program as a worker: one child for each partition that is owned, or one for all
    Run(Box<run::RunArgs>),
    /// What stands between `run` and a child
    #[command(hide = true)]
    Minder(run::minder::MinderArgs),
    /// Watch real processes lose and take over partitions while a real database refuses the deposed owner
    Demo(demo::DemoArgs),
    /// A worker of the demo
    #[command(hide = true)]
    DemoWorker(demo::WorkerArgs),
}

/// What every verb that asks the cluster takes.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Connection and output")]
pub(crate) struct Common {
    /// Coordinators to ask, comma-separated; one that is up is enough
    #[arg(
        long,
        env = "RINGFENCE_ENDPOINTS",
        global = true,
        value_name = "URLS",
        default_value = "http://127.0.0.1:7600"
    )]
    endpoints: Endpoints,

    /// Give up after this long [default: 10s; 60s for lists and drills, 5m for adding a node and for --wait]
    #[arg(long, global = true, value_name = "DURATION", value_parser = humantime::parse_duration)]
    timeout: Option<Duration>,

    /// A table for people, or JSON for programs
    #[arg(short, long, global = true, value_name = "FORMAT", default_value = "table")]
    output: Format,
}

impl Common {
    /// The cluster's nodes.
    pub(crate) fn coordinator(&self) -> Coordinator {
        Coordinator::new(self.endpoints.clone())
    }

    /// Who is asked.
    pub(crate) fn admin(&self) -> Admin {
        self.bounded(Admin::new(&self.coordinator()))
    }

    /// The same with the deadline that was asked for.
    pub(crate) fn bounded(&self, admin: Admin) -> Admin {
        match self.timeout {
            Some(timeout) => admin.within(timeout),
            None => admin,
        }
    }

    /// The map of these keyspaces, or of all when none is named.
    pub(crate) async fn follow(
        &self,
        coordinator: &Coordinator,
        keyspaces: impl IntoIterator<Item = &str>,
    ) -> Result<Router, Failed> {
        let router = Router::follow(coordinator, keyspaces);
        let Some(deadline) = self.timeout else { return Ok(router.await?) };
        match tokio::time::timeout(deadline, router).await {
            Ok(router) => Ok(router?),
            Err(_) => {
                let endpoints = &self.endpoints;
                Err(Failed::timeout(format!(
                    "{endpoints} did not show who owns what within {}",
                    short(deadline)
                )))
            }
        }
    }

    /// The deadline that was asked for.
    pub(crate) fn given_timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// How long to wait for something to happen.
    pub(crate) fn wait(&self) -> Duration {
        self.timeout.unwrap_or(Duration::from_secs(300))
    }

    /// Where the answer goes.
    pub(crate) fn output(&self) -> Output {
        Output::new(self.output)
    }
}

impl Verb {
    /// The format asked for, for verbs whose errors are shown in it too.
    fn format(&self) -> Format {
        match self {
            Verb::Status(args) => args.common.output,
            Verb::Keyspace(args) => args.common.output,
            Verb::Worker(args) => args.common.output,
            Verb::Partition(args) => args.common.output,
            Verb::Rebalance(args) => args.common.output,
            Verb::Lock(args) => args.common.output,
            Verb::Fence(args) => args.common.output,
            Verb::Freeze(args) | Verb::Unfreeze(args) => args.common.output,
            Verb::Settings(args) => args.common.output,
            Verb::Directives(args) => args.common.output,
            Verb::WhoOwns(args) => args.common.output,
            Verb::Cluster(args) => args.common.output,
            Verb::Watch(args) => args.common.output,
            Verb::Drill(args) => args.common.output,
            Verb::Demo(args) => args.output,
            Verb::Serve(_)
            | Verb::Dev(_)
            | Verb::Gateway(_)
            | Verb::Run(_)
            | Verb::Minder(_)
            | Verb::DemoWorker(_) => Format::Table,
        }
    }

    /// What is logged unless RINGFENCE_LOG says otherwise; `None` for a verb that starts the log itself, when it has
    /// read its settings.
    fn log_filter(&self) -> Option<&'static str> {
        match self {
            Verb::Serve(_) => None,
            Verb::Dev(_) => Some(ringfence_server::settings::DEFAULT_LOG_FILTER),
            // It runs for long, and nobody else says what became of the children.
            Verb::Run(_) => Some("info"),
            // An operator's verb says what it has to say; a log beside it would be in the way.
            _ => Some("warn"),
        }
    }

    async fn outcome(self, log_format: Option<logging::LogFormat>) -> Outcome {
        match self {
            Verb::Serve(args) => serve::run(*args, log_format).await,
            Verb::Dev(args) => dev::run(args).await,
            Verb::Status(args) => status::run(args).await,
            Verb::Keyspace(args) => keyspace::run(args).await,
            Verb::Worker(args) => worker::run(*args).await,
            Verb::Partition(args) => partition::run(*args).await,
            Verb::Rebalance(args) => rebalance::run(*args).await,
            Verb::Lock(args) => lock::run(*args).await,
            Verb::Fence(args) => fence::run(*args).await,
            Verb::Freeze(args) => freeze::run(*args, true).await,
            Verb::Unfreeze(args) => freeze::run(*args, false).await,
            Verb::Settings(args) => settings::run(args).await,
            Verb::Directives(args) => settings::run_directives(args).await,
            Verb::WhoOwns(args) => who_owns::run(args).await,
            Verb::Cluster(args) => cluster::run(args).await,
            Verb::Watch(args) => watch::run(args).await,
            Verb::Drill(args) => drill::run(*args).await,
            Verb::Gateway(args) => gateway::run(args).await,
            Verb::Run(args) => run::run(*args).await,
            Verb::Demo(args) => demo::run(args).await,
            Verb::DemoWorker(args) => demo::run_worker(args).await,
            // Run before, without all of this.
            Verb::Minder(_) => Ok(Exit::Done),
        }
    }
}

/// Reads the command line and does what it says.
pub(crate) fn run() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    let cli = match Cli::try_parse_from(&words) {
        Ok(cli) => cli,
        Err(error) => return unreadable(error, asks_for_json(&words)),
    };
    if let Verb::Minder(args) = cli.verb {
        return run::minder::run(args);
    }
    let format = cli.verb.format();
    let start = || {
        if cli.die_with_parent {
            set_parent_process_death_signal(Some(Signal::KILL)).map_err(std::io::Error::from)?;
        }
        match cli.verb.log_filter() {
            Some(filter) => logging::start(cli.log_format.unwrap_or_default(), filter),
            None => Ok(()),
        }
    };
    let outcome = start().and_then(|()| {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Failed::from)?;
        let outcome = runtime.block_on(cli.verb.outcome(cli.log_format));
        // A name that is still being resolved must not keep a finished command from ending.
        runtime.shutdown_background();
        outcome
    });
    match outcome {
        Ok(exit) => exit.into(),
        Err(failed) => failed.report(format),
    }
}

/// Help and the version are answers; anything else is bad usage.
///
/// What was given is shown without what may be secret in it, and cannot write to the terminal.
fn unreadable(mut error: clap::Error, json: bool) -> ExitCode {
    for kind in [ContextKind::InvalidValue, ContextKind::InvalidArg, ContextKind::InvalidSubcommand] {
        if let Some(ContextValue::String(given)) = error.get(kind) {
            let given = text::plain(&without_secrets(given));
            error.insert(kind, ContextValue::String(given));
        }
    }
    let is_answer = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    if json && !is_answer {
        return Failed::usage(error.render().to_string().trim_end()).report(Format::Json);
    }
    // It goes to whichever stream fits. A stream that is closed has nobody to tell.
    let printed = error.print().and_then(|()| std::io::stdout().flush());
    match printed {
        Err(why) if is_answer => Failed::from(why).report(Format::Table),
        _ if is_answer => Exit::Done.into(),
        _ => Exit::Usage.into(),
    }
}

/// Whether a command line that cannot be read asks for JSON: its error is shown in JSON then.
fn asks_for_json(words: &[OsString]) -> bool {
    let text: Vec<&str> = words.iter().map(|word| word.to_str().unwrap_or_default()).collect();
    text.iter().any(|word| matches!(*word, "-ojson" | "-o=json" | "--output=json"))
        || text.windows(2).any(|pair| matches!(pair, ["-o" | "--output", "json"]))
}

#[cfg(test)]
#[path = "args_fuzz.rs"]
mod fuzz;

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;
    use std::collections::{BTreeMap, BTreeSet};

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(line.split_whitespace())
    }

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_verb_is_understood() {
        for line in [
            "ringfence status",
            "ringfence status -o json --endpoints http://a:1,http://b:2 --timeout 3s",
            "ringfence keyspace create orders --partitions 64",
            "ringfence keyspace create orders --partitions 64 --ttl 10s --takeover fence --lock-delay 1s \
             --drain-deadline 5s --max-moves-in-flight 8 --balance false --if-absent",
            "ringfence keyspace update orders --balance true",
            "ringfence keyspace list -o json",
            "ringfence keyspace show orders",
            "ringfence keyspace delete orders --if-exists",
            "ringfence worker list",
            "ringfence gateway files --dir /d --cluster prod",
            "ringfence gateway files --dir /d --cluster prod --listen 127.0.0.1:0 --scope @locks/nightly --max-bytes 9",
            "ringfence run --keyspace orders --id w1 -- true",
            "ringfence run --keyspace orders --id w1 --wait-ready --prefix --max-restarts 0 --kill-margin 1s \
             --stop-within 9s --join-within 3s --weight 2 --label zone=a --address a:1 --endpoints http://a:1 -- sh -c :",
            "ringfence run --keyspace orders --id w1 --one-child -- python3 worker.py --flag",
            "ringfence minder --until 17 --wait-ready -- true",
            "ringfence lock run nightly -- true",
            "ringfence lock run nightly --fenced --shared --wait 30s --lock-delay 5s --ttl 3s --alert-after 1h --id a \
             --kill-margin 1s -- sh -c :",
            "ringfence lock run nightly --efficiency --fail-open -- sh -c : -o json",
            "ringfence partition list orders -o json",
            "ringfence partition show orders/17",
            "ringfence partition move orders/17 --to w1 --wait",
            "ringfence partition end-cooling orders/17",
            "ringfence partition move orders/17 --to w1 --by ada --reason because --dry-run",
            "ringfence partition pin orders/17",
            "ringfence partition pin orders/17 --to w1 --dry-run",
            "ringfence partition unpin orders/17",
            "ringfence partition weigh orders/17 9",
            "ringfence partition weigh orders/17 none",
            "ringfence partition explain orders/17 -o json",
            "ringfence partition history orders/17",
            "ringfence worker show w1",
            "ringfence worker history w1",
            "ringfence worker drain w1 --wait 60s --yes --by stop-hook",
            "ringfence worker drain w1 --check",
            "ringfence worker drain w1 --dry-run",
            "ringfence worker drain w1 --until-join --yes",
            "ringfence worker cordon w1",
            "ringfence worker uncordon w1",
            "ringfence worker weight w1 3",
            "ringfence worker weight w1 own",
            "ringfence worker remove w1 --yes",
            "ringfence freeze partition orders/17 --reason because",
            "ringfence freeze worker w1",
            "ringfence freeze keyspace orders",
            "ringfence freeze cluster --yes",
            "ringfence unfreeze cluster",
            "ringfence settings",
            "ringfence directives -o json",
            "ringfence rebalance plan orders --what-if add:w9,weight=2,zone=b --what-if remove:w2 --what-if weight:w1=2",
            "ringfence rebalance plan orders --save orders.plan",
            "ringfence rebalance apply orders.plan --yes --wait",
            "ringfence rebalance apply --keyspace orders --dry-run",
            "ringfence rebalance undo --yes --wait",
            "ringfence rebalance status --moves",
            "ringfence rebalance cancel",
            "ringfence rebalance pause --keyspace orders",
            "ringfence rebalance pause --yes",
            "ringfence rebalance resume",
            "ringfence keyspace update orders --moves-per-minute 60 --rejoin-hold 30s --spread-zones false",
            "ringfence keyspace update orders --label disk=ssd --label !spot",
            "ringfence keyspace update orders --no-labels",
            "ringfence keyspace update orders --partitions 128",
            "ringfence keyspace split orders --yes --wait 10m --reason because",
            "ringfence keyspace split orders --dry-run -o json",
            "ringfence keyspace split orders --cancel",
            "ringfence keyspace split orders --cancel --yes",
            "ringfence keyspace split orders --cancel --dry-run",
            "ringfence keyspace delete orders --yes",
            "ringfence cluster remove-node 3 --yes",
            "ringfence drill orders --yes",
            "ringfence rebalance simulate trace.jsonl",
            "ringfence rebalance simulate - --every 1m --max-moves-in-flight 8 --moves-per-minute 0 --settle 0s \
             --balance false --spread-zones true --ttl 5s --cool-down 1h --release 1ms --load 2s -o json",
            "ringfence fence refusals",
            "ringfence fence refusals orders -o json",
            "ringfence fence reassert orders --wait --yes --reason because",
            "ringfence fence reassert orders/17 --above 1048700 --yes",
            "ringfence fence reassert orders --dry-run",
            "ringfence fence status orders -o json",
            "ringfence who-owns orders customer-17",
            "ringfence who-owns orders 00ff --hex",
            "ringfence cluster status",
            "ringfence cluster add-node 4=10.0.0.4:7600",
            "ringfence cluster remove-node 3",
            "ringfence cluster transfer-leader",
            "ringfence cluster transfer-leader --to 2",
            "ringfence watch",
            "ringfence watch orders --log-format json",
            "ringfence drill orders",
            "ringfence drill orders/17 --worker w1 --timeout 30s -o json",
            "ringfence drill orders --stall --yes",
            "ringfence drill orders --stall --dry-run",
        ] {
            if let Err(error) = parse(line) {
                panic!("{line}: {error}");
            }
        }
    }

    #[test]
    fn f105_bad_usage_is_exit_code_2() {
        for line in [
            "ringfence",
            "ringfence nonsense",
            "ringfence keyspace",
            "ringfence keyspace create orders",
            "ringfence keyspace create Orders --partitions 1",
            "ringfence keyspace create orders --partitions 0",
            "ringfence keyspace create orders --partitions 1000001",
            "ringfence keyspace create orders --partitions 4 --ttl 999ms",
            "ringfence keyspace create orders --partitions 4 --ttl soon",
            "ringfence keyspace create orders --partitions 4 --takeover never",
            "ringfence keyspace create orders --partitions 4 --lock-delay 61s",
            "ringfence keyspace update orders",
            "ringfence fence",
            "ringfence fence reassert",
            "ringfence fence reassert orders/x",
            "ringfence fence reassert orders/1 --above 0",
            "ringfence fence refusals Orders",
            "ringfence lock",
            "ringfence lock list -x",
            "ringfence lock show",
            "ringfence lock show @locks/a",
            "ringfence lock break a --epoch 0",
            "ringfence lock break a --epoch x",
            "ringfence lock break a --yes --dry-run",
            "ringfence partition show orders",
            "ringfence partition show orders/x",
            "ringfence partition show @locks/a",
            "ringfence partition move orders/1",
            "ringfence partition move orders/1 --to W",
            "ringfence who-owns orders",
            "ringfence cluster add-node 4",
            "ringfence cluster add-node 0=a:1",
            "ringfence cluster add-node 4=a",
            "ringfence cluster remove-node 0",
            "ringfence status --endpoints 127.0.0.1:7600",
            "ringfence status --endpoints https://a:1",
            "ringfence status -o yaml",
            "ringfence status --timeout 0.5",
            "ringfence keyspace update orders --moves-per-minute 1000001",
            "ringfence keyspace update orders --rejoin-hold 61m",
            "ringfence keyspace update orders --spread-zones maybe",
            "ringfence keyspace update orders --label =",
            "ringfence keyspace split",
            "ringfence keyspace split orders --cancel --wait 1m",
            "ringfence keyspace split orders --yes --dry-run",
            "ringfence keyspace update orders --label a --no-labels",
            "ringfence partition pin orders",
            "ringfence partition weigh orders/1",
            "ringfence partition weigh orders/1 0",
            "ringfence partition weigh orders/1 1000001",
            "ringfence worker drain",
            "ringfence worker drain w1 --wait",
            "ringfence worker drain w1 --check --wait 1s",
            "ringfence worker drain w1 --check --yes",
            "ringfence worker drain w1 --yes --dry-run",
            "ringfence worker weight w1 0",
            "ringfence worker weight w1 10001",
            "ringfence freeze",
            "ringfence freeze keyspace",
            "ringfence freeze cluster --yes --dry-run",
            "ringfence rebalance plan",
            "ringfence rebalance plan orders --what-if w9",
            "ringfence rebalance plan orders --what-if remove:w2 --save f",
            "ringfence rebalance apply",
            "ringfence rebalance apply f --keyspace orders",
            "ringfence drill",
            "ringfence drill orders/x",
            "ringfence rebalance simulate",
            "ringfence rebalance simulate t --every 0s",
            "ringfence rebalance simulate t --load 0s",
            "ringfence rebalance simulate t --settle 61m",
            "ringfence rebalance simulate t --max-moves-in-flight many",
            "ringfence drill @locks/a",
            "ringfence drill orders --worker W",
            "ringfence drill orders --stall --yes --dry-run",
            "ringfence keyspace delete orders --yes --dry-run",
            "ringfence cluster remove-node 3 --yes --dry-run",
        ] {
            let Err(error) = parse(line) else { panic!("{line} is understood") };
            assert_eq!(error.exit_code(), 2, "{line}: {error}");
        }
    }

    /// What a verb does to the cluster.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Does {
        /// It asks.
        Reads,
        /// It changes something that is changed back as easily: `--dry-run`.
        Changes,
        /// It is large, or takes something away: it is asked about, or `--yes` said. `--dry-run`.
        Destroys,
        /// It asks no cluster, or is one.
        Runs,
    }

    /// Every verb there is. A new one has to be put here, and then has the options of its kind.
    const KINDS: &[(&str, Does)] = &[
        ("serve", Does::Runs),
        ("dev", Does::Runs),
        ("demo", Does::Runs),
        ("demo-worker", Does::Runs),
        ("rebalance simulate", Does::Runs),
        ("status", Does::Reads),
        ("watch", Does::Reads),
        ("who-owns", Does::Reads),
        ("settings", Does::Reads),
        ("directives", Does::Reads),
        ("keyspace list", Does::Reads),
        ("keyspace show", Does::Reads),
        ("worker list", Does::Reads),
        ("gateway files", Does::Runs),
        ("minder", Does::Runs),
        ("run", Does::Runs),
        ("worker show", Does::Reads),
        ("worker history", Does::Reads),
        ("partition list", Does::Reads),
        ("partition show", Does::Reads),
        ("partition explain", Does::Reads),
        ("partition history", Does::Reads),
        ("rebalance plan", Does::Reads),
        ("rebalance status", Does::Reads),
        ("cluster status", Does::Reads),
        ("lock list", Does::Reads),
        ("lock run", Does::Runs),
        ("lock show", Does::Reads),
        ("fence refusals", Does::Reads),
        ("fence status", Does::Reads),
        ("keyspace create", Does::Changes),
        ("keyspace update", Does::Changes),
        ("worker undrain", Does::Changes),
        ("worker cordon", Does::Changes),
        ("worker uncordon", Does::Changes),
        ("worker weight", Does::Changes),
        ("partition move", Does::Changes),
        ("partition pin", Does::Changes),
        ("partition unpin", Does::Changes),
        ("partition weigh", Does::Changes),
        ("partition end-cooling", Does::Changes),
        ("freeze partition", Does::Changes),
        ("freeze worker", Does::Changes),
        ("freeze keyspace", Does::Changes),
        ("unfreeze partition", Does::Changes),
        ("unfreeze worker", Does::Changes),
        ("unfreeze keyspace", Does::Changes),
        ("rebalance cancel", Does::Changes),
        ("rebalance resume", Does::Changes),
        ("cluster add-node", Does::Changes),
        ("cluster transfer-leader", Does::Changes),
        ("keyspace split", Does::Destroys),
        ("keyspace delete", Does::Destroys),
        ("worker drain", Does::Destroys),
        ("worker evict", Does::Destroys),
        ("worker remove", Does::Destroys),
        ("freeze cluster", Does::Destroys),
        // The same words as for the freeze, and it is not asked about.
        ("unfreeze cluster", Does::Destroys),
        ("rebalance apply", Does::Destroys),
        ("rebalance undo", Does::Destroys),
        ("rebalance pause", Does::Destroys),
        ("rebalance release-brake", Does::Destroys),
        ("cluster remove-node", Does::Destroys),
        ("drill", Does::Destroys),
        ("fence reassert", Does::Destroys),
        ("lock break", Does::Destroys),
    ];

    /// The verbs without verbs below them, by their words.
    fn leaves(command: &clap::Command, words: &str, found: &mut Vec<(String, clap::Command)>) {
        for verb in command.get_subcommands().filter(|verb| verb.get_name() != "help") {
            let words = format!("{words} {}", verb.get_name()).trim().to_owned();
            if verb.has_subcommands() {
                leaves(verb, &words, found);
            } else {
                found.push((words, verb.clone()));
            }
        }
    }

    #[test]
    fn f105_every_verb_that_changes_something_can_be_tried_and_what_destroys_is_confirmed() {
        let mut tree = Cli::command();
        tree.build();
        let mut found = Vec::new();
        leaves(&tree, "", &mut found);
        let known: BTreeMap<&str, Does> = KINDS.iter().copied().collect();
        let names: BTreeSet<&str> = found.iter().map(|(words, _)| words.as_str()).collect();
        assert_eq!(names, known.keys().copied().collect());
        for (words, verb) in &found {
            let has = |long: &str| verb.get_arguments().any(|arg| arg.get_long() == Some(long));
            let does = known[words.as_str()];
            assert_eq!(has("dry-run"), matches!(does, Does::Changes | Does::Destroys), "{words} --dry-run");
            assert_eq!(has("yes"), does == Does::Destroys, "{words} --yes");
            assert!(has("output") || does == Does::Runs, "{words} --output");
            for sure in verb.get_arguments().filter(|arg| arg.get_long() == Some("yes")) {
                let against = verb.get_arg_conflicts_with(sure);
                assert!(
                    against.iter().any(|arg| arg.get_long() == Some("dry-run")),
                    "{words} --yes --dry-run"
                );
            }
        }
    }

    /// The words of a line as a shell reads it, as far as the documents go: single and double quotes.
    fn words(line: &str) -> Vec<String> {
        let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
        for c in line.chars() {
            match (quote, c) {
                (None, '\'' | '"') => quote = Some(c),
                (Some(open), c) if c == open => quote = None,
                (None, ' ') => words.push(std::mem::take(&mut word)),
                (_, c) => word.push(c),
            }
        }
        words.push(word);
        words.retain(|word| !word.is_empty());
        words
    }

    #[test]
    fn what_the_documents_and_the_samples_say_is_understood() {
        let mut lines = Vec::new();
        for text in [
            include_str!("../../docs/operations-placement.md"),
            include_str!("../../docs/drill.md"),
            include_str!("../../docs/fences-gateway.md"),
            include_str!("../../deploy/ringfence-worker@.service"),
            include_str!("../../deploy/kubernetes-worker.yaml"),
        ] {
            for line in text.lines().filter(|line| !line.trim_start().starts_with('#')) {
                let console = line.strip_prefix("$ ringfence ");
                // Not the unit's description, which is called like one.
                let hook = || line.split_once("ringfence worker ").map(|(_, rest)| rest);
                let hook = || hook().filter(|rest| rest.contains(" --"));
                let command =
                    console.map(str::to_owned).or_else(|| hook().map(|rest| format!("worker {rest}")));
                let ends =
                    |command: String| command.split([';', '|', '&', ']', '#', '>']).next().map(str::to_owned);
                lines.extend(command.and_then(ends));
            }
        }
        assert!(lines.len() > 20, "{lines:?}");
        for line in lines {
            let line = line.trim().trim_end_matches('\'').replace("$ID", "w1").replace("%i", "w1");
            let words = std::iter::once("ringfence".to_owned()).chain(words(&line));
            if let Err(error) = Cli::try_parse_from(words) {
                panic!("{line}: {error}");
            }
        }
    }

    #[test]
    fn f105_a_command_line_that_asks_for_json_is_told_from_one_that_does_not() {
        let words = |line: &str| line.split_whitespace().map(OsString::from).collect::<Vec<_>>();
        for line in ["ringfence x -o json", "ringfence --output=json x", "ringfence x -ojson"] {
            assert!(asks_for_json(&words(line)), "{line}");
        }
        for line in ["ringfence x", "ringfence x -o table", "ringfence json -o"] {
            assert!(!asks_for_json(&words(line)), "{line}");
        }
    }
}
