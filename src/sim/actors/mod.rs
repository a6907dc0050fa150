//! Who lives in a simulated world: shipped coordinators, workers and routers, an operator, and a store of the user's own.
//!
//! | module | what it is |
//! |---|---|
//! | `dial` | the product's connections, over the simulated network |
//! | `node` | a coordinator node on its disk |
//! | `worker` | a worker process, its owners, and its slow hands |
//! | `router` | a caller that asks who owns what |
//! | `operator` | keyspaces, moves, members |
//! | `store` | what owners write to, behind a fence or without one |

pub mod dial;
pub mod node;
pub mod operator;
pub mod router;
pub mod store;
pub mod worker;
