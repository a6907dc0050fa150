//! Model checking: every interleaving of small worlds, around the shipped core types.
//!
//! What decides is the product's own: [`State::apply`](ringfence_core::state::State::apply), the leader's
//! [`Leadership`](ringfence_core::lead::Leadership) with its lessor and timers, the worker's
//! [`Lessee`](ringfence_core::lease::lessee::Lessee), and the fence's [`HighWater`](ringfence_fence::HighWater). The
//! worlds around them are here: a log with what Raft promises of it, clocks, messages, processes, storage.
//!
//! A world is explored to its end, so what holds in it holds in every order in which things can happen there. Each rule
//! that can be taken out of a world is, once, and must then give a counterexample: see [`controls`].

pub mod check;
pub mod controls;
pub mod lease;
mod setting;
pub mod split;
pub mod store;
pub mod worlds;

#[cfg(test)]
mod tests;
