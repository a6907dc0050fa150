//! Who lives in a simulated world: shipped coordinators, workers and routers, an operator, and a store of the user's own.
//!
//! | module | what it is |
//! |---|---|
//! | `decision` | what an operator decides about where partitions are |
//! | `dial` | the product's connections, over the simulated network |
//! | `golden` | the data directory of the oldest format |
//! | `node` | a coordinator node on its disk |
//! | `worker` | a worker process, its owners, and its slow hands |
//! | `router` | a caller that asks who owns what |
//! | `operator` | keyspaces, moves, members, decisions |
//! | `store` | what owners write to, behind a fence or without one |

pub(crate) mod decision;
pub(crate) mod dial;
pub(crate) mod golden;
pub(crate) mod node;
pub(crate) mod operator;
pub(crate) mod router;
pub(crate) mod store;
pub(crate) mod worker;
