//! Where a manifest and its data are.

use super::failure::unfit;
use super::ids::{DataName, number};
use crate::FenceError;
use object_store::path::Path;
use ringfence_core::ids::Scope;
use std::sync::Arc;

/// How many manifests of a chain share a folder: as many as S3 lists in one answer.
pub(super) const PER_FOLDER: u64 = 1000;

/// Which scopes share a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// Each has its own.
    EachScope,
    /// All are in one, of this name.
    Together(Arc<str>),
}

impl Layout {
    pub(super) fn must_be_sound(&self) -> Result<(), FenceError> {
        let Layout::Together(name) = self else { return Ok(()) };
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_');
        if name.is_empty() || name.len() > 63 || !name.bytes().all(plain) {
            return Err(unfit("the name of a shared manifest is 1 to 63 of a-z, 0-9, - and _"));
        }
        Ok(())
    }

    /// Where the manifest of a scope is, below the root of the fence.
    pub(super) fn place(&self, root: &Path, scope: &Scope) -> Place {
        Place(match self {
            Layout::EachScope => below(root, &format!("scopes/{scope}")),
            Layout::Together(name) => below(root, &format!("together/{name}")),
        })
    }
}

/// A name below a root. Scopes and our own names have no character that a path would not have.
pub(super) fn below(root: &Path, name: &str) -> Path {
    if root.as_ref().is_empty() { Path::from(name) } else { Path::from(format!("{root}/{name}")) }
}

/// The folder of one manifest and its data.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Place(Path);

impl Place {
    /// The manifest that is replaced.
    pub(super) fn manifest(&self) -> Path {
        below(&self.0, "manifest.json")
    }

    /// All manifests of a chain.
    pub(super) fn chain(&self) -> Path {
        below(&self.0, "chain")
    }

    /// The manifest of this number in a chain.
    pub(super) fn link(&self, number: u64) -> Path {
        below(&self.0, &format!("chain/{:020}/{number:020}.json", folder_of(number)))
    }

    /// The links of a chain that share this folder.
    pub(super) fn links(&self, folder: u64) -> Path {
        below(&self.0, &format!("chain/{folder:020}"))
    }

    /// How far the chain was swept.
    pub(super) fn mark(&self) -> Path {
        below(&self.0, "swept.json")
    }

    /// The objects that hold the data.
    pub(super) fn data(&self) -> Path {
        below(&self.0, "data")
    }

    pub(super) fn object(&self, name: &DataName) -> Path {
        below(&self.0, &format!("data/{name}"))
    }

    pub(super) fn shown(&self) -> &str {
        self.0.as_ref()
    }
}

/// The number of the manifest at this path, when it is one.
pub(super) fn link_number(path: &Path) -> Option<u64> {
    number(path.filename()?.strip_suffix(".json")?)
}

/// The folder of a link.
pub(super) fn folder_of(number: u64) -> u64 {
    number / PER_FOLDER
}

/// Whether no link of its folder comes behind this one.
pub(super) fn ends_folder(number: u64) -> bool {
    number % PER_FOLDER == PER_FOLDER - 1
}

/// The number of a folder of the chain, when it is one.
pub(super) fn folder_number(path: &Path) -> Option<u64> {
    number(path.filename()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_scopes_share_a_place_and_names_sort_as_numbers_do() {
        let root = Path::from("a/b");
        let scopes =
            ["orders/1", "orders/17", "order/17", "@locks/orders"].map(|s| s.parse::<Scope>().unwrap());
        let places = scopes.each_ref().map(|scope| Layout::EachScope.place(&root, scope).manifest());
        assert_eq!(places[1].as_ref(), "a/b/scopes/orders/17/manifest.json");
        assert_eq!(places[3].as_ref(), "a/b/scopes/@locks/orders/manifest.json");
        for place in &places {
            assert_eq!(places.iter().filter(|other| *other == place).count(), 1);
        }
        let place = Layout::EachScope.place(&Path::default(), &scopes[0]);
        let links: Vec<Path> = [1, 9, 10, 999, 1000, 1_000_000, u64::MAX].map(|n| place.link(n)).into();
        assert!(links.is_sorted() && links[0].as_ref().starts_with("scopes/orders/1/chain/"), "{links:?}");
        assert_eq!(links.iter().filter_map(link_number).max(), Some(u64::MAX));
        for (good, name) in [(true, "shop"), (false, ""), (false, "a/b"), (false, ".."), (false, "Shop")] {
            assert_eq!(Layout::Together(name.into()).must_be_sound().is_ok(), good, "{name}");
        }
    }
}
