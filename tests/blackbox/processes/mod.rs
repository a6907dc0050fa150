//! What real processes do when they are stopped, killed and started again.

mod clocks;
mod demo;
mod drills;
mod gateway;
mod lock_run;
mod members;
mod nodes;
mod run;
mod run_examples;
mod splits;
mod workers;
