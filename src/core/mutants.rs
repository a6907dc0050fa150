//! Deliberate faults, each one rule of the product taken out where it stands.
//!
//! A rule that no test would miss is not held by anything. So the simulator breaks them one by one and looks whether
//! somebody notices; `docs/mutants.md` lists them.
//!
//! In a build of the product [`mutant!`](crate::mutant) is `false`, and not even the name of a fault is in the binary. Only
//! the simulator's runner compiles with `cfg(ringfence_mutants)`, and only it has the crate that says which fault is
//! chosen: with the cfg alone nothing compiles. It is no cargo feature, for features unify into whatever is built with
//! them.

/// True where the fault of this name is chosen. `if mutant!("..")` stands at the rule that it takes out.
#[cfg(not(ringfence_mutants))]
#[doc(hidden)]
#[macro_export]
macro_rules! mutant {
    ($name:literal) => {
        false
    };
}

/// True where the fault of this name is chosen. The prefix is what a binary without faults is searched for.
#[cfg(ringfence_mutants)]
#[doc(hidden)]
#[macro_export]
macro_rules! mutant {
    ($name:literal) => {
        ::ringfence_mutants::is_chosen(concat!("ringfence-mutant:", $name))
    };
}
