//! Commands that run to their end.

use super::process::binary;
use serde_json::Value;
use std::process::{Output, Stdio};

/// What a command came back with.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    fn of(output: Output) -> Ran {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        // No code: a signal ended it.
        Ran { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
    }

    /// The document on standard output, which is one line.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.out.lines().count(), 1, "not one document: {self:?}");
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("not JSON ({e}): {self:?}"))
    }

    /// The same of a command that has to succeed.
    #[track_caller]
    pub(crate) fn done(&self) -> Value {
        assert_eq!(self.code, 0, "{self:?}");
        self.json()
    }
}

/// `ringfence ARGS`, with `endpoints` in its environment.
pub(crate) fn run(endpoints: &str, args: &[&str]) -> Ran {
    run_with(&[("RINGFENCE_ENDPOINTS", endpoints)], args)
}

/// `ringfence ARGS` with these variables.
pub(crate) fn run_with(variables: &[(&str, &str)], args: &[&str]) -> Ran {
    Ran::of(binary().args(args).envs(variables.iter().copied()).output().unwrap())
}

/// `ringfence ARGS` that writes its answer to where nobody can read it.
pub(crate) fn run_into(endpoints: &str, args: &[&str], out: Stdio) -> Ran {
    let mut command = binary();
    command.args(args).env("RINGFENCE_ENDPOINTS", endpoints).stdout(out).stderr(Stdio::piped());
    Ran::of(command.spawn().unwrap().wait_with_output().unwrap())
}
