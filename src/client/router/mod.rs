//! Maps key -> partition -> owner, for those who call the workers.
//!
//! A [`Router`] keeps a copy of the map in this process and follows its changes, so that a lookup is a few loads from
//! memory: no lock, no call. When the coordinator is away the copy stays in use, and [`Router::stale_for`] says how old
//! it may be.
//!
//! It is a hint, never a permission: the owner may have changed a moment ago. The worker that is called checks that it
//! owns the partition, and the fence at the storage has the last word.
//!
//! ```no_run
//! # async fn call(_: &str) {}
//! # async fn example() -> Result<(), ringfence::Error> {
//! use ringfence::router::Router;
//!
//! let router = Router::connect("http://127.0.0.1:7600", ["orders"]).await?;
//! let owner = router.ready_owner("orders", b"customer-17").await?;
//! call(owner.address()).await;
//! # Ok(())
//! # }
//! ```
//!
//! | file | idea |
//! |---|---|
//! | `handle` | [`Router`]: lookups and waiting |
//! | `view` | [`View`]: one picture of the map, never changed |
//! | `owner` | [`Owner`] |
//! | `picture` | how a picture is put together from pieces and changes |
//! | `follow` | the task that keeps the stream |

mod follow;
pub(crate) mod fuzzing;
mod handle;
mod owner;
mod picture;
#[cfg(test)]
mod tests;
mod view;

pub use handle::Router;
pub use owner::Owner;
pub use ringfence_api::convert::Phase;
pub use view::{KeyspaceView, PartitionView, View};
