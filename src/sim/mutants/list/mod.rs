//! Every mutant, by the crate that it is in.

mod fence;
mod lease;
mod locks;
mod placement;
mod refusals;
mod sdk;
mod server;
mod splits;
mod state;

use super::{Binary, Catcher, Mutant};

/// Every mutant.
pub fn all() -> impl Iterator<Item = &'static Mutant> {
    let of_core = [lease::LIST, placement::LIST, state::LIST, splits::LIST, locks::LIST, refusals::LIST];
    of_core.into_iter().chain([fence::LIST, sdk::LIST, server::LIST]).flatten()
}

const fn mutant(
    name: &'static str,
    fault: &'static str,
    breaks: &'static str,
    catchers: &'static [Catcher],
) -> Mutant {
    Mutant { name, fault, breaks, catchers }
}

const fn core(test: &'static str) -> Catcher {
    Catcher::Test { of: Binary::Core, test }
}

const fn fence(test: &'static str) -> Catcher {
    Catcher::Test { of: Binary::Fence, test }
}

const fn sqlite(test: &'static str) -> Catcher {
    Catcher::Test { of: Binary::Sqlite, test }
}

const fn sdk(test: &'static str) -> Catcher {
    Catcher::Test { of: Binary::Sdk, test }
}

const fn server(test: &'static str) -> Catcher {
    Catcher::Test { of: Binary::Server, test }
}

/// The whole protocol in a world drawn by lot, with holders that do what the protocol asks and no more: behind the shipped
/// one's strictness a leader could break its own rules unnoticed.
const fn naive_world(worlds: u32) -> Catcher {
    Catcher::Random { test: "hold_with_holders_that_do_what_they_must_and_no_more", worlds }
}

/// A whole world of the simulator, as far as it has to go: by then it has come to harm. The rest would cost time only, and
/// more than all tests together.
const fn world(seed: u64, until: u64) -> Catcher {
    Catcher::World { seed, until }
}

/// The same in each kind of trouble by itself.
const fn troubled_world(worlds: u32) -> Catcher {
    Catcher::Random { test: "hold_in_each_kind_of_trouble", worlds }
}
