//! `ringfence serve`: one durable node of a coordinator.
//!
//! Each setting is a flag, a variable and a key of the file, under one name; a flag wins over a variable, a variable over
//! the file. What a setting means and which disagree is the library's to say; here they are only read.

use crate::exit::{Exit, Failed, Outcome};
use crate::logging::{self, LogFormat};
use clap::Args;
use ringfence_server::{Coordinator, Given, Launch, NodeError, Settings};
use std::io::Write as _;
use std::path::PathBuf;
use tokio::signal::unix::{Signal, SignalKind, signal};

const AFTER_HELP: &str = "\
Each flag is also a variable (--data-dir is RINGFENCE_DATA_DIR) and a key of the file (data_dir). It prints one line when
it serves. On SIGTERM or SIGINT it hands leadership over, ends its streams and closes its files.

Example, one of three:
  ringfence serve --node 1 --listen 127.0.0.1:7601 --data-dir /var/lib/ringfence/1 \\
    --cluster 1=127.0.0.1:7601,2=127.0.0.1:7602,3=127.0.0.1:7603";

/// Arguments of `ringfence serve`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct ServeArgs {
    /// Read settings from this TOML file; it has the names of these flags, with _ for -
    #[arg(long, env = "RINGFENCE_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// The id of this node: a number that no node of the cluster has had
    #[arg(long, env = "RINGFENCE_NODE", value_name = "ID")]
    node: Option<u64>,
    /// The address to listen on [default: 127.0.0.1:7600]
    #[arg(long, env = "RINGFENCE_LISTEN", value_name = "IP:PORT")]
    listen: Option<String>,
    /// Where other nodes and clients reach this node [default: as listed in --cluster]
    #[arg(long, env = "RINGFENCE_ADVERTISE", value_name = "HOST:PORT")]
    advertise: Option<String>,
    /// Where the node keeps its log, its snapshots and its identity
    #[arg(long, env = "RINGFENCE_DATA_DIR", value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// The nodes that form the cluster, 1, 3 or 5 of them, this one among them; the same on each
    #[arg(long, env = "RINGFENCE_CLUSTER", value_name = "ID=HOST:PORT,...", value_delimiter = ',')]
    cluster: Option<Vec<String>>,
    /// Wait to be added to a cluster that exists, instead of forming one
    #[arg(long, env = "RINGFENCE_JOIN", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    join: Option<bool>,
    /// Listen where others can reach it although nothing is encrypted
    #[arg(long, env = "RINGFENCE_INSECURE", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    insecure: Option<bool>,
    /// A file with the secret that the nodes prove to each other
    #[arg(long, env = "RINGFENCE_CLUSTER_SECRET_FILE", value_name = "FILE")]
    cluster_secret_file: Option<PathBuf>,
    #[command(flatten)]
    tuning: Tuning,
}

/// What the defaults are right for, mostly.
#[derive(Debug, Args)]
#[command(next_help_heading = "Tuning")]
struct Tuning {
    /// What is logged: a level, or a filter by module [default: info,openraft=off]
    #[arg(long, env = "RINGFENCE_LOG", value_name = "FILTER")]
    log: Option<String>,
    /// How often a leader says that it lives [default: 60]
    #[arg(long, env = "RINGFENCE_HEARTBEAT_MS", value_name = "MS")]
    heartbeat_ms: Option<u64>,
    /// The least that a node waits before it stands for election when the leader's lease is out; a vote, one round trip
    /// and one flush, must fit into it [default: 100]
    #[arg(long, env = "RINGFENCE_ELECTION_MIN_MS", value_name = "MS")]
    election_min_ms: Option<u64>,
    /// The leader's lease, and the most that a node waits when it is out [default: 300]
    #[arg(long, env = "RINGFENCE_ELECTION_MAX_MS", value_name = "MS")]
    election_max_ms: Option<u64>,
    /// Take a snapshot after so many log entries [default: 10000]
    #[arg(long, env = "RINGFENCE_SNAPSHOT_ENTRIES", value_name = "N")]
    snapshot_entries: Option<u64>,
    /// Take a snapshot after so many bytes of log [default: 67108864]
    #[arg(long, env = "RINGFENCE_SNAPSHOT_BYTES", value_name = "BYTES")]
    snapshot_bytes: Option<u64>,
    /// Take a snapshot after so long, if anything changed [default: 3600000]
    #[arg(long, env = "RINGFENCE_SNAPSHOT_EVERY_MS", value_name = "MS")]
    snapshot_every_ms: Option<u64>,
    /// Keep so many entries in the log although a snapshot has them [default: 2000]
    #[arg(long, env = "RINGFENCE_SNAPSHOT_KEEP_ENTRIES", value_name = "N")]
    snapshot_keep_entries: Option<u64>,
    /// Balance so long after the last worker came or went [default: 500]
    #[arg(long, env = "RINGFENCE_SETTLE_MS", value_name = "MS")]
    settle_ms: Option<u64>,
    /// Leave a partition that an operator moved where it is for so long [default: 30000]
    #[arg(long, env = "RINGFENCE_COOL_DOWN_MS", value_name = "MS")]
    cool_down_ms: Option<u64>,
    /// Have workers tell the loads of their partitions so often, in keyspaces that balance by load [default: 5000]
    #[arg(long, env = "RINGFENCE_MEASURE_EVERY_MS", value_name = "MS")]
    measure_every_ms: Option<u64>,
    /// Slow repairs down when more than so many sessions in a hundred are lost together; 100: never [default: a third]
    #[arg(long, env = "RINGFENCE_BRAKE_PERCENT", value_name = "PERCENT")]
    brake_percent: Option<u16>,
}

impl ServeArgs {
    /// What the flags, the variables and the file say together.
    pub(crate) fn settings(
        self,
        log_format: Option<LogFormat>,
    ) -> Result<Settings, ringfence_server::SettingsError> {
        let file = self.config.as_deref().map(Given::read).transpose()?.unwrap_or_default();
        let tuning = self.tuning;
        let given = Given {
            node: self.node,
            listen: self.listen,
            advertise: self.advertise,
            data_dir: self.data_dir,
            cluster: self.cluster,
            join: self.join,
            insecure: self.insecure,
            cluster_secret_file: self.cluster_secret_file,
            heartbeat_ms: tuning.heartbeat_ms,
            election_min_ms: tuning.election_min_ms,
            election_max_ms: tuning.election_max_ms,
            snapshot_entries: tuning.snapshot_entries,
            snapshot_bytes: tuning.snapshot_bytes,
            snapshot_every_ms: tuning.snapshot_every_ms,
            snapshot_keep_entries: tuning.snapshot_keep_entries,
            settle_ms: tuning.settle_ms,
            cool_down_ms: tuning.cool_down_ms,
            measure_every_ms: tuning.measure_every_ms,
            brake_percent: tuning.brake_percent,
            log: tuning.log,
            log_format: log_format.map(|format| match format {
                LogFormat::Text => "text".to_owned(),
                LogFormat::Json => "json".to_owned(),
            }),
        };
        given.or(file).check()
    }
}

/// Runs the node until it is told to stop.
pub(crate) async fn run(args: ServeArgs, log_format: Option<LogFormat>) -> Outcome {
    let settings = args.settings(log_format).map_err(|error| Failed::usage(error.to_string()))?;
    let format = match settings.log.format {
        ringfence_server::LogFormat::Text => LogFormat::Text,
        ringfence_server::LogFormat::Json => LogFormat::Json,
    };
    logging::start_with(format, &settings.log.filter)?;
    host(Coordinator::with(settings), "").await
}

/// Runs a node until SIGTERM or SIGINT, and says one line when it serves. A second signal ends the process at once.
pub(crate) async fn host(launch: Launch, remark: &str) -> Outcome {
    // Before the node starts, so that no signal is missed.
    let mut signals = Signals::new()?;
    let node = launch.start().await.map_err(failed)?;
    tokio::select! {
        ready = node.ready() => {
            ready.map_err(failed)?;
            // Nobody may be reading, and the node serves all the same.
            let _ = writeln!(std::io::stdout(), "node {} serves at {}{remark}", node.node().get(), node.endpoint());
            tokio::select! {
                ended = node.ended() => return ended.map(|()| Exit::Done).map_err(failed),
                () = signals.next() => {}
            }
        }
        () = signals.next() => {}
    }
    tracing::info!("told to stop");
    tokio::select! {
        ended = node.shutdown() => ended.map(|()| Exit::Done).map_err(failed),
        () = signals.next() => Err(Failed::refused("told to stop twice: ended without closing down")),
    }
}

// Taken by value to be passed to `map_err`.
#[allow(clippy::needless_pass_by_value)]
fn failed(error: NodeError) -> Failed {
    Failed::refused(error.to_string())
}

/// The two signals that say to stop.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(crate) fn new() -> std::io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Only {
        #[command(flatten)]
        serve: ServeArgs,
    }

    fn settings(line: &str) -> Result<Settings, String> {
        let words = std::iter::once("serve").chain(line.split_whitespace());
        let only = Only::try_parse_from(words).map_err(|e| e.to_string())?;
        only.serve.settings(None).map_err(|e| e.to_string())
    }

    #[test]
    fn the_command_line_of_the_documentation_makes_a_node() {
        let line = "--node 2 --listen 127.0.0.1:7602 --data-dir /d \
                    --cluster 1=127.0.0.1:7601,2=127.0.0.1:7602,3=127.0.0.1:7603";
        let settings = settings(line).unwrap();
        assert_eq!((settings.node().get(), settings.listen().port()), (2, 7602));
        assert!(self::settings("--node 4 --listen 127.0.0.1:7604 --data-dir /d --join").is_ok());
        assert!(self::settings("--node 4 --listen 127.0.0.1:7604 --data-dir /d --join=false").is_err());
    }

    #[test]
    fn a_flag_wins_over_the_file_and_what_is_wrong_in_either_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("node.toml");
        let text = "node = 1\ndata_dir = \"/d\"\nlisten = \"127.0.0.1:7601\"\ncluster = [\"1=127.0.0.1:7601\"]\nlog = \"debug\"\n";
        std::fs::write(&file, text).unwrap();
        let config = format!("--config {}", file.display());
        assert_eq!(settings(&config).unwrap().log.filter, "debug");
        assert_eq!(settings(&format!("{config} --log warn")).unwrap().log.filter, "warn");
        let message = settings(&format!("{config} --node 2")).unwrap_err();
        assert!(message.contains("node is 2") && message.contains("cluster lists 1="), "{message}");
    }
}
