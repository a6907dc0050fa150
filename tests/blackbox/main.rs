//! Black-box tests: the house itself, several nodes in one process, and real processes that are stopped, killed and
//! cut off. One binary, because each links everything.

#![allow(missing_docs, clippy::unwrap_used)]

mod examples;
mod house;
