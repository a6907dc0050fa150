//! Deliberate faults of the product ("mutants"), and who catches each.
//!
//! A mutant is one rule taken out where it stands; `src/core/mutants.rs` says how, and [`all`] which there are. A rule
//! whose mutant nobody catches is held by nothing. So each names its catchers, in the order in which they are tried, and a
//! catcher counts only when it fails with the mutant and passes without it, in the same build.

mod hunt;
mod list;
mod workshop;
mod wrapper;

pub use hunt::{Caught, Verdict, hunt};
pub use list::all;
pub use wrapper::as_compiler;

/// One deliberate fault.
#[derive(Clone, Copy, Debug)]
pub struct Mutant {
    /// The name at its hooks: `mutant!("name")`.
    pub name: &'static str,
    /// What the product does then, where it should not.
    pub fault: &'static str,
    /// What the rule is for: a guarantee, or an invariant of ARCHITECTURE.md.
    pub breaks: &'static str,
    /// Who should notice, in the order in which they are asked.
    pub catchers: &'static [Catcher],
}

/// Something that fails when a rule is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Catcher {
    /// One test of one test binary.
    Test {
        /// Where it is.
        of: Binary,
        /// Its path, without the ids in front of its name: those change when it is found to hold something else, too.
        test: &'static str,
    },
    /// A world drawn by lot, in a test that takes `RINGFENCE_SEEDS`: the first so many worlds.
    Random {
        /// The test's name, without ids.
        test: &'static str,
        /// How many worlds.
        worlds: u32,
    },
    /// A whole world of the simulator, and its checker.
    World {
        /// The seed that came to harm when this was written.
        seed: u64,
        /// By when, in simulated milliseconds: it ends there.
        until: u64,
    },
}

/// So many worlds of its kind are tried after the one that a [`Catcher::World`] names: what happens in a world moves with
/// the product.
pub const FURTHER_SEEDS: u64 = 4;

/// A test binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Binary {
    /// The core's unit tests.
    Core,
    /// The fence's unit tests.
    Fence,
    /// The fence in SQLite.
    Sqlite,
    /// The SDK's unit tests.
    Sdk,
    /// The coordinator's unit tests.
    Server,
    /// The simulator's runner itself: it is no test binary, and its worlds are no tests.
    Sim,
}

impl Binary {
    pub(crate) const ALL: [Binary; 6] =
        [Binary::Core, Binary::Fence, Binary::Sqlite, Binary::Sdk, Binary::Server, Binary::Sim];

    /// The package and the target that cargo makes it from.
    pub(crate) fn target(self) -> (&'static str, &'static str) {
        match self {
            Binary::Core => ("ringfence-core", "ringfence_core"),
            Binary::Fence => ("ringfence-fence", "ringfence_fence"),
            Binary::Sqlite => ("ringfence-fence", "sqlite"),
            Binary::Sdk => ("ringfence", "ringfence"),
            Binary::Server => ("ringfence-server", "ringfence_server"),
            Binary::Sim => ("ringfence-sim", "ringfence-sim"),
        }
    }
}

impl Catcher {
    /// The binary that it is in.
    pub(crate) fn binary(self) -> Binary {
        match self {
            Catcher::Test { of, .. } => of,
            Catcher::Random { .. } => Binary::Core,
            Catcher::World { .. } => Binary::Sim,
        }
    }

    /// The path of the test, without ids; none where a whole world is the test.
    pub(crate) fn test(self) -> Option<String> {
        match self {
            Catcher::Test { test, .. } => Some(test.to_owned()),
            Catcher::Random { test, .. } => Some(format!("lead::tests::random::{test}")),
            Catcher::World { .. } => None,
        }
    }
}

/// The package, the test binary when it is not the library's, and the test.
impl std::fmt::Display for Catcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (package, target) = self.binary().target();
        match self.test() {
            None => write!(f, "{package} world"),
            Some(test) if target != package.replace('-', "_") => write!(f, "{package} {target} {test}"),
            Some(test) => write!(f, "{package} {test}"),
        }
    }
}

/// The path of a test without the ids in front of its name: `a::p01_t06_mint_happens` is `a::mint_happens`.
pub(crate) fn without_ids(path: &str) -> String {
    let (module, name) = path.rsplit_once("::").map_or((None, path), |(module, name)| (Some(module), name));
    let mut name = name;
    while let Some((id, rest)) = name.split_once('_') {
        let number = id.strip_prefix(|c: char| "abcfgipt".contains(c)).unwrap_or_default();
        if number.is_empty() || !number.bytes().all(|b| b.is_ascii_digit()) {
            break;
        }
        name = rest;
    }
    module.map_or(name.to_owned(), |module| format!("{module}::{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::KINDS;
    use std::collections::BTreeSet;
    use std::path::Path;

    fn hooks(under: &Path, found: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(under).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                hooks(&path, found);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                let parts = text.split("mutant!(\"").skip(1).filter_map(|rest| rest.split('"').next());
                found.extend(parts.map(str::to_owned));
            }
        }
    }

    #[test]
    fn every_hook_is_in_the_list_and_every_mutant_has_a_hook_and_a_catcher() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut found = BTreeSet::new();
        for part in [
            "core/lead",
            "core/lease",
            "core/state",
            "core/placement",
            "fence",
            "api",
            "client",
            "server",
            "cli",
        ] {
            hooks(&root.join(part), &mut found);
        }
        let listed: BTreeSet<String> = all().map(|mutant| mutant.name.to_owned()).collect();
        assert_eq!(all().count(), listed.len(), "a name is used twice");
        assert_eq!(found, listed);
        for mutant in all() {
            assert!(!mutant.catchers.is_empty(), "{} has no catcher", mutant.name);
        }
    }

    #[test]
    fn the_ids_of_a_test_are_no_part_of_its_name() {
        assert_eq!(without_ids("a::b::p01_f074_t06_mint_happens"), "a::b::mint_happens");
        assert_eq!(without_ids("a_check_p01"), "a_check_p01");
        assert_eq!(without_ids("a::f_is_no_id"), "a::f_is_no_id");
        for test in all().flat_map(|mutant| mutant.catchers).filter_map(|catcher| catcher.test()) {
            assert_eq!(without_ids(&test), test, "it is looked for without its ids");
        }
    }

    /// The cells of each line of the table in a page.
    fn table(page: &str) -> Vec<[&str; 5]> {
        let lines = page.lines().skip_while(|line| !line.starts_with("|---")).skip(1);
        lines
            .map(|line| {
                let line = line.strip_prefix("| ").and_then(|line| line.strip_suffix(" |"));
                let cells: Vec<&str> = line.unwrap_or_default().split(" | ").map(str::trim).collect();
                cells.try_into().unwrap_or_else(|cells| panic!("not a line of the table: {cells:?}"))
            })
            .collect()
    }

    /// Whether a seed may be what a catcher has found its mutant with.
    fn may_be_its_seed(catcher: Catcher, seed: &str) -> bool {
        match catcher {
            Catcher::Test { .. } => seed.is_empty(),
            Catcher::Random { worlds, .. } => seed.parse::<u32>().is_ok_and(|seed| seed < worlds),
            Catcher::World { seed: first, .. } => {
                let found = seed.split_once(": ").filter(|(_, violated)| !violated.is_empty());
                let found =
                    found.and_then(|(seed, _)| seed.parse::<u64>().ok()).and_then(|n| n.checked_sub(first));
                found.is_some_and(|later| later % KINDS == 0 && later / KINDS <= FURTHER_SEEDS)
            }
        }
    }

    #[test]
    fn the_table_in_the_docs_is_the_list() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/mutants.md");
        let docs = std::fs::read_to_string(docs).unwrap();
        let table = table(&docs);
        let told: Vec<[String; 3]> = table
            .iter()
            .map(|[name, fault, breaks, ..]| [*name, *fault, *breaks].map(str::to_owned))
            .collect();
        let listed: Vec<[String; 3]> =
            all().map(|m| [format!("`{}`", m.name), m.fault.to_owned(), m.breaks.to_owned()]).collect();
        for (told, listed) in told.iter().zip(&listed) {
            assert_eq!(told, listed, "docs/mutants.md, and the list");
        }
        assert_eq!(told.len(), listed.len(), "lines of the table, and mutants of the list");
        for (mutant, [.., by, seed]) in all().zip(table) {
            let is = |catcher: &&Catcher| format!("`{catcher}`") == by && may_be_its_seed(**catcher, seed);
            assert!(mutant.catchers.iter().any(|catcher| is(&catcher)), "{}: {by} {seed}", mutant.name);
        }
    }
}
