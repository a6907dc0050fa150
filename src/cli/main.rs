//! The one binary `ringfence`: every operator verb, and the coordinator itself.
//!
//! Each noun is a module (`keyspace`, `partition`, `worker`, `lock`, `cluster`, `rebalance`, `fence`), and so is each verb that stands alone
//! (`status`, `who-owns`, `watch`, `drill`, `freeze`, `settings`). They ask through the SDK's `Admin` and know nothing of the wire.
//! `serve` and `dev` run a node, `gateway` stands in front of a store,
//! `run` makes a worker of any program.
//!
//! | file | idea |
//! |---|---|
//! | `serve`, `dev` | a node of a coordinator, durable or in memory |
//! | `gateway` | the one way to write a folder of files, with a fence in it |
//! | `run` | any program as a worker: a child for each partition |
//! | `simulate` | a trace that is replayed without a cluster, `rebalance simulate` |
//! | `demo` | the demonstration, with real processes and a real database |
//! | `args` | the command line, and what every verb takes |
//! | `operator` | who decides something, why, and whether it is meant |
//! | `exit` | how a command ends: the exit codes and the one form of an error |
//! | `output` | standard output: tables for people, JSON for programs |
//! | `shape` | the JSON shapes |
//! | `text` | foreign text, made fit for a terminal |
//! | `logging` | the log, on standard error |

mod args;
mod cluster;
mod demo;
mod dev;
mod drill;
mod exit;
mod fence;
mod freeze;
mod gateway;
mod keyspace;
mod lock;
mod logging;
mod operator;
mod output;
mod partition;
mod rebalance;
mod run;
mod serve;
mod settings;
mod shape;
mod simulate;
mod status;
mod text;
mod watch;
mod who_owns;
mod worker;

use std::process::ExitCode;

fn main() -> ExitCode {
    args::run()
}
