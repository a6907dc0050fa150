//! A coordinator inside a test of your own: three lines start it, and the worker under test is an ordinary worker.
//!
//! ```console
//! $ cargo run --example embedded_coordinator
//! the worker owns orders/0 under epoch 1
//! the coordinator says: w1 owns orders/0 under epoch 1, ready
//! the worker has left: nobody owns orders/0
//! ```

use ringfence::Ownership;
use ringfence::admin::{Admin, Phase, PolicyChange};
use ringfence::ids::PartitionId;
use ringfence::worker::Worker;
use ringfence_server::Coordinator;
use std::error::Error;
use tokio::sync::{mpsc, oneshot};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let coordinator = Coordinator::in_memory().start().await?;
    let admin = Admin::at(coordinator.endpoint().as_str())?;
    admin.create_keyspace("orders", 1, &PolicyChange::default()).await?;

    let (granted, mut grants) = mpsc::channel(1);
    let worker = Worker::builder("w1")
        .coordinator(coordinator.endpoint().as_str())
        .own("orders", move |partition: Ownership| {
            let granted = granted.clone();
            async move {
                partition.ready().await?;
                let _ = granted.send((partition.partition().get(), partition.epoch().get())).await;
                partition.revoked().await;
                Ok::<_, ringfence::NotOwner>(())
            }
        })
        .join()
        .await?;
    let (leave, left) = oneshot::channel::<()>();
    let serving = tokio::spawn(worker.serve_until(async {
        let _ = left.await;
    }));

    let (partition, epoch) = grants.recv().await.ok_or("the worker has gone")?;
    println!("the worker owns orders/{partition} under epoch {epoch}");

    let found = admin.partition("orders", PartitionId::new(0)).await?.partition;
    let owner = found.owner.as_ref().map_or("nobody", |owner| owner.worker.as_str());
    let (epoch, ready) =
        (found.epoch.map_or(0, ringfence::ids::Epoch::get), if found.ready { ", ready" } else { "" });
    println!("the coordinator says: {owner} owns orders/0 under epoch {epoch}{ready}");

    drop(leave);
    serving.await??;
    let found = admin.partition("orders", PartitionId::new(0)).await?.partition;
    let vacant = found.owner.is_none() && found.phase == Phase::Vacant;
    println!("the worker has left: {} owns orders/0", if vacant { "nobody" } else { "somebody" });
    coordinator.shutdown().await?;
    Ok(())
}
