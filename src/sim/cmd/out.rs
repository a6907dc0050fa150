//! What is printed, and what becomes of it when it cannot be.
//!
//! A reader who has gone away has seen enough: that ends the program, quietly and with 0. A full device is an error.

use anyhow::Context as _;
use std::fmt;
use std::io::{self, Write as _};

/// Nobody reads what is printed any more.
#[derive(Debug, thiserror::Error)]
#[error("nobody reads what is printed")]
pub(crate) struct Closed;

/// Prints to standard output.
pub(super) fn print(text: fmt::Arguments<'_>) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_fmt(text).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Closed.into()),
        Err(error) => Err(error).context("standard output cannot be written"),
    }
}

/// Says something beside the output. Where nobody can be told, it stays unsaid.
pub(crate) fn note(text: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Prints a line.
macro_rules! say {
    ($($text:tt)*) => {
        $crate::cmd::out::print(format_args!("{}\n", format_args!($($text)*)))
    };
}

pub(super) use say;
