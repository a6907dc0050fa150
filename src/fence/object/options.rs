//! How a store is asked to hold a fence, and its binding to a cluster.

use super::ObjectFence;
use super::failure::{in_a_folder, nothing_sent, shown, unfit};
use super::head::{Heads, Swap, put};
use super::place::{Layout, below};
use super::selftest;
use crate::FenceError;
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode};
use ringfence_core::ids::ClusterId;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// How a fence is kept in a store. Made by [`ObjectFence::options`].
///
/// All processes must use the same; a root remembers what it was installed with and refuses another.
#[derive(Clone, Debug)]
pub struct ObjectOptions {
    cluster: ClusterId,
    layout: Layout,
    swap: Swap,
    tested: bool,
}

impl ObjectOptions {
    pub(super) fn new(cluster: ClusterId) -> ObjectOptions {
        ObjectOptions { cluster, layout: Layout::EachScope, swap: Swap::Updating, tested: true }
    }

    /// All scopes share one manifest of this name (1 to 63 of `a-z`, `0-9`, `-`, `_`), for writes over several of them. Their
    /// commits then follow one after the other.
    #[must_use]
    pub fn together(mut self, name: &str) -> ObjectOptions {
        self.layout = Layout::Together(name.into());
        self
    }

    /// Each manifest is an object of its own that is *created* (`If-None-Match: *`), instead of one object that is replaced
    /// (`If-Match`): for a local folder, and for servers that know only the one condition. It costs two lists more to read
    /// the manifest, and an object for each commit, which is never deleted.
    #[must_use]
    pub fn by_creating(mut self) -> ObjectOptions {
        self.swap = Swap::Creating;
        self
    }

    /// Does not test the store. Whoever says this knows from elsewhere that this very server, with everything that stands
    /// between, refuses a conditional put whose condition does not hold.
    #[must_use]
    pub fn trusting_the_store(mut self) -> ObjectOptions {
        self.tested = false;
        self
    }

    /// Tests the store, and binds this root in it to the cluster at first use. Installing again changes nothing, so a
    /// program does it at every start.
    ///
    /// # Errors
    /// [`FenceError::Unfit`] when the store does not keep its conditions, with what was seen, or lacks a permission, or when
    /// the root was installed otherwise; [`FenceError::WrongCluster`] when it is bound to another cluster;
    /// [`FenceError::Corrupt`] and [`FenceError::Busy`]; [`FenceError::Store`] when a local folder failed, after which installing
    /// again is safe.
    pub async fn install(self, store: Arc<dyn ObjectStore>, root: &str) -> Result<ObjectFence, FenceError> {
        self.layout.must_be_sound()?;
        let root = Path::parse(root)
            .map_err(|error| unfit(&format!("the root is no path: {}", shown(&error.to_string()))))?;
        let found = self.bound(&*store, &root).await?;
        if self.tested {
            selftest::run(&*store, &root, self.swap).await?;
        }
        if !found {
            self.bind(&*store, &root).await?;
        }
        let heads = Heads::new(store, self.swap);
        Ok(ObjectFence { heads, root, cluster: self.cluster, layout: self.layout })
    }

    /// Whether the root is bound already, and as it is asked for.
    async fn bound(&self, store: &dyn ObjectStore, root: &Path) -> Result<bool, FenceError> {
        let doing = "reading the binding";
        let path = binding(root);
        let got = match store.get(&path).await {
            Err(Error::NotFound { .. }) => return Ok(false),
            got => got.map_err(nothing_sent(doing))?,
        };
        let corrupt = |found: String| FenceError::Corrupt { place: path.to_string(), found };
        if got.meta.size > MAX_BINDING_BYTES {
            return Err(corrupt(format!("{} bytes", got.meta.size)));
        }
        let text = got.bytes().await.map_err(nothing_sent(doing))?;
        let found: Binding =
            serde_json::from_slice(&text).map_err(|_| corrupt(shown(&String::from_utf8_lossy(&text))))?;
        let bound = ClusterId::new(&found.cluster)
            .map_err(|_| corrupt(format!("the cluster \"{}\"", shown(&found.cluster))))?;
        if bound != self.cluster {
            return Err(FenceError::WrongCluster { presented: self.cluster.clone(), bound });
        }
        let asked = self.binding();
        if found != asked {
            return Err(unfit(&format!(
                "this root was installed {}, and is now asked for {}: that would be another fence",
                found.shown(),
                asked.shown()
            )));
        }
        Ok(true)
    }

    async fn bind(&self, store: &dyn ObjectStore, root: &Path) -> Result<(), FenceError> {
        let doing = "binding the store to the cluster";
        let text = serde_json::to_vec(&self.binding())
            .map_err(|error| unfit(&format!("the binding cannot be written: {error}")))?;
        let put = put(store, &binding(root), text.into(), PutMode::Create).await;
        // Somebody else was faster, or it was us and the answer was lost.
        match put {
            Ok(_) => Ok(()),
            // It may be there and not last.
            Err(error) if in_a_folder(&error) => Err(FenceError::store(doing, error)),
            Err(error) => match self.bound(store, root).await? {
                true => Ok(()),
                false => Err(nothing_sent(doing)(error)),
            },
        }
    }

    fn binding(&self) -> Binding {
        Binding {
            format: FORMAT,
            cluster: self.cluster.to_string(),
            replaced_by: match self.swap {
                Swap::Updating => "updating".into(),
                Swap::Creating => "creating".into(),
            },
            together: match &self.layout {
                Layout::EachScope => None,
                Layout::Together(name) => Some(name.to_string()),
            },
        }
    }
}

const FORMAT: u32 = 1;
const MAX_BINDING_BYTES: u64 = 64 << 10;

fn binding(root: &Path) -> Path {
    below(root, "ringfence.json")
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Binding {
    format: u32,
    cluster: String,
    replaced_by: String,
    together: Option<String>,
}

impl Binding {
    fn shown(&self) -> String {
        let together = match &self.together {
            None => "a manifest for each scope".into(),
            Some(name) => format!("the manifest \"{}\" for all scopes", shown(name)),
        };
        format!("in format {}, by {}, with {together}", self.format, shown(&self.replaced_by))
    }
}
