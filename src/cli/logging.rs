//! The log, on standard error. What it has in it is RINGFENCE_LOG's to say.

use crate::exit::Failed;
use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

/// The variable that says what is logged.
const VARIABLE: &str = "RINGFENCE_LOG";

/// How the log is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for people
    #[default]
    Text,
    /// One JSON object a line
    Json,
}

/// Starts the log; `default` is the filter when RINGFENCE_LOG is not set.
///
/// # Errors
/// RINGFENCE_LOG is not a filter.
pub(crate) fn start(format: LogFormat, default: &str) -> Result<(), Failed> {
    let wanted = std::env::var(VARIABLE).ok().filter(|filter| !filter.is_empty());
    start_with(format, wanted.as_deref().unwrap_or(default))
}

/// Starts the log with this filter and no other: a node has read its settings, the variable among them.
///
/// # Errors
/// It is not a filter.
pub(crate) fn start_with(format: LogFormat, filter: &str) -> Result<(), Failed> {
    let filter = EnvFilter::try_new(filter).map_err(|error| {
        Failed::usage(format!(
            "{VARIABLE} is not a log filter ({error}); write such as info or ringfence=debug"
        ))
    })?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // A log that was started already, as in a test, stays.
    let _ = match format {
        LogFormat::Text => log.with_ansi(rustix::termios::isatty(std::io::stderr())).try_init(),
        LogFormat::Json => log.json().try_init(),
    };
    Ok(())
}
