//! The names of files, and whose they are.

use ringfence_core::ids::{Scope, ScopeError};
use std::fmt;
use std::str::FromStr;

/// The longest path, in bytes.
pub const MAX_PATH_BYTES: usize = 1024;
/// The most segments of a path.
pub const MAX_SEGMENTS: usize = 32;
/// The longest segment, in bytes: what every file system takes.
pub const MAX_SEGMENT_BYTES: usize = 255;

/// The path of a file below the gateway's folder: `orders/17/a.csv`. It can lead nowhere else.
///
/// Segments are letters, digits, `.`, `_`, `-` and, as the first of all, `@locks`; none begins with a dot. There is no escape in
/// it, so it has one reading only.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FilePath {
    text: String,
}

/// Why a text is no path of a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    /// It has a segment that is none.
    #[error(
        "not a file of this gateway: {0}; a path is segments of letters, digits and . _ - with / between them, and none begins \
         with a dot"
    )]
    Segment(&'static str),
    /// It is too long.
    #[error(
        "the path is too long: at most {MAX_PATH_BYTES} bytes, {MAX_SEGMENTS} segments, {MAX_SEGMENT_BYTES} bytes a segment"
    )]
    TooLong,
    /// It stands in no scope's folder.
    #[error("the file stands in no scope's folder, such as orders/17/NAME or @locks/nightly/NAME: {0}")]
    NoScope(ScopeError),
}

/// Whose files are where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Layout {
    /// `KEYSPACE/PARTITION/...` and `@locks/NAME/...`: the first two segments are the scope.
    #[default]
    ByFolder,
    /// All files are of this one scope, wherever they stand.
    Whole(Scope),
}

impl FilePath {
    /// The path as text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The folders on the way, and the name.
    pub(super) fn parts(&self) -> (impl Iterator<Item = &str>, &str) {
        let (folders, name) = self.text.rsplit_once('/').unwrap_or(("", &self.text));
        (folders.split('/').filter(|segment| !segment.is_empty()), name)
    }
}

impl Layout {
    /// The scope that a file belongs to.
    ///
    /// # Errors
    /// [`PathError::NoScope`] when it stands in no scope's folder.
    pub fn scope_of(&self, path: &FilePath) -> Result<Scope, PathError> {
        match self {
            Layout::Whole(scope) => Ok(scope.clone()),
            Layout::ByFolder => {
                let ends = path.text.match_indices('/').map(|(at, _)| at).nth(1);
                let folder = &path.text[..ends.ok_or(PathError::NoScope(ScopeError::Shape))?];
                folder.parse().map_err(PathError::NoScope)
            }
        }
    }
}

impl FromStr for FilePath {
    type Err = PathError;

    fn from_str(text: &str) -> Result<FilePath, PathError> {
        if text.len() > MAX_PATH_BYTES || text.split('/').count() > MAX_SEGMENTS {
            return Err(PathError::TooLong);
        }
        for (index, segment) in text.split('/').enumerate() {
            let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
            match segment {
                "" => return Err(PathError::Segment("a segment is empty")),
                "@locks" if index == 0 => {}
                s if s.starts_with('.') => return Err(PathError::Segment("a segment begins with a dot")),
                s if s.len() > MAX_SEGMENT_BYTES => return Err(PathError::TooLong),
                s if !s.bytes().all(plain) => {
                    return Err(PathError::Segment("it has a character that is not allowed"));
                }
                _ => {}
            }
        }
        Ok(FilePath { text: text.to_owned() })
    }
}

impl fmt::Display for FilePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::path::{Component, Path};

    #[test]
    fn f096_a_path_that_leads_elsewhere_is_none() {
        for good in ["orders/17/a.csv", "@locks/nightly/report", "a", "a/b-c_d/E.F", "orders/17/a..b"] {
            assert_eq!(good.parse::<FilePath>().unwrap().as_str(), good);
        }
        for bad in [
            "",
            "/",
            "/orders/17/a",
            "orders/17/",
            "orders//17/a",
            "orders/17/../18/a",
            "..",
            ".",
            "./a",
            "orders/17/.ringfence",
            ".ringfence/fence.db",
            "orders/17/%2e%2e/a",
            "orders/17/a b",
            "orders/17/a\0",
            "orders/17/a\n",
            "orders\\17\\a",
            "orders/17/\u{e4}",
            "orders/17/a:b",
            "orders/@locks/a",
            "~root/a",
        ] {
            assert!(bad.parse::<FilePath>().is_err(), "{bad:?}");
        }
        assert_eq!("a/".repeat(MAX_SEGMENTS).parse::<FilePath>(), Err(PathError::TooLong));
        assert_eq!("a".repeat(MAX_SEGMENT_BYTES + 1).parse::<FilePath>(), Err(PathError::TooLong));
        assert!("a".repeat(MAX_SEGMENT_BYTES).parse::<FilePath>().is_ok());
    }

    #[test]
    fn a_file_belongs_to_the_scope_of_its_folder_or_all_belong_to_one() {
        let scope =
            |layout: &Layout, path: &str| layout.scope_of(&path.parse().unwrap()).map(|s| s.to_string());
        let by_folder = Layout::ByFolder;
        assert_eq!(scope(&by_folder, "orders/17/a/b.csv").unwrap(), "orders/17");
        assert_eq!(scope(&by_folder, "@locks/nightly/a").unwrap(), "@locks/nightly");
        for none in
            ["orders/17", "orders", "orders/017/a", "Orders/17/a", "orders/x/a", "orders/4294967296/a"]
        {
            assert!(scope(&by_folder, none).is_err(), "{none}");
        }
        let whole = Layout::Whole("@locks/nightly".parse().unwrap());
        assert_eq!(scope(&whole, "2026/Report.pdf").unwrap(), "@locks/nightly");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn f096_whatever_is_taken_for_a_path_stays_below_the_folder(
            text in prop_oneof!["[a-zA-Z0-9./@%_-]{0,24}", any::<String>()],
        ) {
            if let Ok(path) = text.parse::<FilePath>() {
                let normal = |c: Component<'_>| matches!(c, Component::Normal(_));
                prop_assert!(Path::new(path.as_str()).components().all(normal));
                prop_assert!(!path.as_str().contains("/."));
                let (folders, name) = path.parts();
                let again = folders.chain([name]).collect::<Vec<_>>().join("/");
                prop_assert_eq!(again, text);
            }
        }
    }
}
