//! A table that is objects in a store: a manifest names the objects, and whoever replaces the manifest has changed the table. Here
//! the store is a folder; S3, GCS and Azure are opened by the same crate. A worker uploads what it has worked out and stands
//! still before it commits; its successor raises the fence, reads, and commits; then the first one goes on.
//!
//! With the fence the late commit is refused, and what it has uploaded is cleared away. The same with plain objects, where the last
//! put wins: the late one stands over the new one.
//!
//! ```console
//! $ cargo run -p ringfence-fence --example fenced_manifest --features object-store
//! A commits under 33: commit 2, part-1
//! A uploads part-2 and stands still
//! B reads under 34: part-1
//! B commits under 34: commit 4, part-1, part-2, totals
//! A's commit from before its pause: orders/17 is fenced: own 33, highest 34
//! part-2 in the fenced table: by B
//! left by A, and named by nobody: 1 object; after the sweep: 0
//! part-2 as a plain object: by A
//! ```

use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt as _};
use ringfence_core::ids::ClusterId;
use ringfence_fence::object::{ObjectFence, ObjectWrite, Snapshot};
use ringfence_fence::{FenceError, FencingToken};
use std::error::Error;
use std::slice::from_ref;
use std::sync::Arc;
use std::time::Duration;

fn names(table: &Snapshot) -> String {
    table.keys().map(|(key, _)| key).collect::<Vec<_>>().join(", ")
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    // Synced, so that what was answered survives a power cut.
    let store: Arc<dyn ObjectStore> =
        Arc::new(LocalFileSystem::new_with_prefix(folder.path())?.with_fsync(true));
    let cluster = ClusterId::new("prod")?;
    // A folder knows no versions, but it creates a name once only.
    let fence = ObjectFence::options(&cluster).by_creating().install(Arc::clone(&store), "table").await?;
    let plain = Path::from("plain/part-2");

    // As an ownership stamps: `partition.stamp()`.
    let (a, b): (FencingToken, FencingToken) = ("prod/orders/17@33".parse()?, "prod/orders/17@34".parse()?);
    fence.raise(&a).await?;
    let first = ObjectWrite::new().put("part-1", "by A");
    let table = fence.write(from_ref(&a), first).await?;
    println!("A commits under 33: commit {}, {}", table.number(), names(&table));

    let late = fence.stage(&[a], ObjectWrite::new().put("part-2", "by A")).await?;
    println!("A uploads part-2 and stands still");

    // The next owner raises before it reads, and what the raise answers is what there is.
    let table = fence.raise(&b).await?;
    println!("B reads under 34: {}", names(&table));
    let next = ObjectWrite::new().put("part-2", "by B").put("totals", "2 parts");
    let table = fence.write(from_ref(&b), next.on(&table)).await?;
    store.put(&plain, "by B".into()).await?;
    println!("B commits under 34: commit {}, {}", table.number(), names(&table));

    // A goes on where it stood still.
    match late.commit().await {
        Err(FenceError::Fenced(fenced)) => println!(
            "A's commit from before its pause: {} is fenced: own {}, highest {}",
            fenced.scope(),
            fenced.own().get(),
            fenced.highest().get()
        ),
        Err(other) => return Err(other.into()),
        Ok(_) => println!("A's commit from before its pause: accepted"),
    }
    store.put(&plain, "by A".into()).await?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let part = fence.get(b.scope(), "part-2").await?.ok_or("it is gone")?;
    println!("part-2 in the fenced table: {}", text(&part));

    let left = fence.orphans(b.scope()).await?.len();
    fence.sweep(&b, Duration::ZERO).await?;
    let swept = fence.orphans(b.scope()).await?.len();
    println!("left by A, and named by nobody: {left} object; after the sweep: {swept}");
    let last = store.get(&plain).await?.bytes().await?;
    println!("part-2 as a plain object: {}", text(&last));
    Ok(())
}
