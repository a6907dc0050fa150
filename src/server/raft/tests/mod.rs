//! Nodes in one process, over real gRPC on loopback. A test waits for a state, never for a time.

mod disks;
mod elections;
mod membership;
mod restarts;
mod snapshots;
mod world;
