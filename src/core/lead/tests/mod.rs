//! Stories of a leader and its workers, in virtual time; and a world of several leaders, drawn by lot.

mod approved;
mod entries;
mod handoff;
mod idle;
mod incidents;
mod leases;
mod loads;
mod locks;
mod operators;
mod placing;
mod presence;
mod random;
mod reasserts;
mod receive;
mod repairs;
mod splitting;
mod world;
