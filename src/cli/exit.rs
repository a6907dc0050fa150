//! How a command ends: three exit codes, more where another program is run, and one form for everything that goes wrong.
//!
//! An error is a sentence on standard error. With `-o json`, standard output has an object with its code as well, so
//! that whoever reads it finds JSON whatever happens. A reader that went away (a closed pipe) is no error: the command
//! says nothing of it, and its exit code is what it would have been.

use crate::output::{DONE_ALL_THE_SAME, Format};
use crate::text::plain;
use ringfence::ErrorKind;
use serde::Serialize;
use std::io::{self, Write as _};
use std::process::ExitCode;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It is done, or there was nothing to do.
    Done,
    /// It was refused, or it failed; for `status`: somebody is needed.
    Failed,
    /// The command line makes no sense.
    Usage,
    /// What was to be run cannot be executed. As shells say it.
    NotExecutable,
    /// There is no such program to run. As shells say it.
    NoProgram,
    /// A lock is not free. As `EX_TEMPFAIL`: try again later.
    Busy,
    /// A lock was lost while a command ran under it.
    Lost,
    /// As a command that was run: its exit code, or 128 and the number of the signal.
    Of(u8),
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        match exit {
            Exit::Done => ExitCode::SUCCESS,
            Exit::Failed => ExitCode::from(1),
            Exit::Usage => ExitCode::from(2),
            Exit::NotExecutable => ExitCode::from(126),
            Exit::NoProgram => ExitCode::from(127),
            Exit::Busy => ExitCode::from(75),
            Exit::Lost => ExitCode::from(76),
            Exit::Of(code) => ExitCode::from(code),
        }
    }
}

/// What a command comes back with.
pub(crate) type Outcome = Result<Exit, Failed>;

/// A command that did not do what it was asked.
#[derive(Debug)]
pub(crate) enum Failed {
    /// It was refused, or it failed.
    Error {
        /// For programs: the kind in snake case.
        code: &'static str,
        /// For people.
        message: String,
        /// The exit code that says so.
        exit: Exit,
    },
    /// Nobody reads what it writes without end, or writes instead of an answer.
    PipeClosed,
}

impl Failed {
    /// Refused by this program itself.
    pub(crate) fn refused(message: impl Into<String>) -> Failed {
        Failed::Error { code: ErrorKind::Refused.as_str(), message: message.into(), exit: Exit::Failed }
    }

    /// Found by this program itself, under the code that the cluster would give it.
    pub(crate) fn of(kind: ErrorKind, message: impl Into<String>) -> Failed {
        Failed::Error { code: kind.as_str(), message: message.into(), exit: Exit::Failed }
    }

    /// Something did not happen in time.
    pub(crate) fn timeout(message: impl Into<String>) -> Failed {
        Failed::Error { code: "timeout", message: message.into(), exit: Exit::Failed }
    }

    /// It came after a change that was made, which is not to be taken for one that failed: `what` says so first. Where that
    /// is said of the whole already, it stays the first word.
    pub(crate) fn after_a_change(self, what: &str) -> Failed {
        match self {
            Failed::Error { code: "io", message, exit } if message.starts_with(DONE_ALL_THE_SAME) => {
                Failed::Error { code: "io", message, exit }
            }
            Failed::Error { code, message, exit } => {
                Failed::Error { code, message: format!("{what}: {message}"), exit }
            }
            Failed::PipeClosed => Failed::PipeClosed,
        }
    }

    /// A file could not be read or written.
    pub(crate) fn io(message: impl Into<String>) -> Failed {
        Failed::Error { code: "io", message: message.into(), exit: Exit::Failed }
    }

    /// The command line makes no sense.
    pub(crate) fn usage(message: impl Into<String>) -> Failed {
        Failed::Error { code: "usage", message: message.into(), exit: Exit::Usage }
    }

    /// Tells whoever called, and gives the exit code.
    pub(crate) fn report(self, format: Format) -> ExitCode {
        let Failed::Error { code, message, exit } = self else { return ExitCode::SUCCESS };
        // Nothing can be said about a stream that is closed, so what fails here stays unsaid.
        let message = message.strip_prefix("error: ").unwrap_or(&message);
        let _ = writeln!(io::stderr(), "error: {}", lines(message));
        if format.is_json() {
            let _ = crate::output::write_json(&ErrorShape { error: ErrorBody { code, message } });
        }
        exit.into()
    }
}

/// A message of several lines keeps them; everything else that controls a terminal is escaped.
fn lines(message: &str) -> String {
    message.lines().map(plain).collect::<Vec<_>>().join("\n")
}

/// `{"error":{"code":"not_found","message":"there is no keyspace orders"}}`
#[derive(Serialize)]
struct ErrorShape<'a> {
    error: ErrorBody<'a>,
}

#[derive(Serialize)]
struct ErrorBody<'a> {
    code: &'static str,
    message: &'a str,
}

impl From<ringfence::Error> for Failed {
    fn from(error: ringfence::Error) -> Failed {
        Failed::Error { code: error.kind().as_str(), message: error.to_string(), exit: Exit::Failed }
    }
}

/// What `serve`, `dev` and `demo` fail with: the whole chain of causes is the message.
impl From<anyhow::Error> for Failed {
    fn from(error: anyhow::Error) -> Failed {
        Failed::Error { code: "failed", message: format!("{error:#}"), exit: Exit::Failed }
    }
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Failed {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failed::PipeClosed,
            _ => Failed::Error { code: "io", message: error.to_string(), exit: Exit::Failed },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f105_an_error_of_the_cluster_is_exit_code_1_and_keeps_its_code() {
        let error = ringfence::admin::Admin::at("nowhere").unwrap_err();
        let Failed::Error { code, exit, .. } = Failed::from(error) else { panic!() };
        assert_eq!((code, exit), ("invalid", Exit::Failed));
    }

    #[test]
    fn a_closed_pipe_is_not_an_error() {
        let closed = io::Error::from(io::ErrorKind::BrokenPipe);
        assert!(matches!(Failed::from(closed), Failed::PipeClosed));
        assert!(matches!(Failed::from(io::Error::other("disk")), Failed::Error { code: "io", .. }));
    }

    #[test]
    fn that_all_is_done_but_the_answer_stays_the_first_word() {
        let message = |failed| match failed {
            Failed::Error { message, .. } => message,
            Failed::PipeClosed => panic!("it is an error"),
        };
        let unsaid = Failed::io("disk full").after_a_change(DONE_ALL_THE_SAME);
        let told = message(unsaid.after_a_change("plan 5 is cancelled"));
        assert!(told.starts_with("what was asked for is done") && told.ends_with("disk full"), "{told}");
        let told = message(Failed::refused("no").after_a_change("plan 5 is cancelled"));
        assert_eq!(told, "plan 5 is cancelled: no");
    }

    #[test]
    fn f021_a_message_cannot_write_to_the_terminal() {
        assert_eq!(lines("a\n  b\u{1b}[2J"), "a\n  b\\u{1b}[2J");
    }
}
