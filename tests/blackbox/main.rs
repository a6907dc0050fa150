//! Black-box tests: the house itself, the examples, and real processes that are stopped, killed and fed what is wrong.
//! One binary, because each links everything.

#![allow(missing_docs, clippy::unwrap_used)]

mod answers;
mod bad_input;
mod cases;
mod cli;
mod clients;
mod cluster;
mod examples;
mod harness;
mod history;
mod house;
mod locks;
mod mutants;
mod operators;
mod pages;
mod plans;
mod processes;
mod traces;
