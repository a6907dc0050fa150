//! The crate `ringfence_mutants`: which fault is chosen. The runner compiles it by itself and hands it to the crates of
//! its own build; no manifest names it, so no build of the product can reach it.

use std::sync::OnceLock;

/// The fault that this process runs with, if any.
const VARIABLE: &str = "RINGFENCE_MUTANT";

/// Whether the fault of this hook is the chosen one. The environment is read once.
pub fn is_chosen(hook: &'static str) -> bool {
    static CHOSEN: OnceLock<Option<String>> = OnceLock::new();
    let chosen = CHOSEN.get_or_init(|| std::env::var(VARIABLE).ok());
    chosen.as_deref().is_some_and(|name| hook.strip_prefix("ringfence-mutant:") == Some(name))
}
