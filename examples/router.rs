//! A router: callers find the owner of a key and call it, also while the owner changes.
//!
//! Two workers serve `greetings` over a socket each. A caller asks the router who owns a key, calls that address, and is
//! told who answered. Then one worker leaves, and the router, which follows the map, sends the same callers to the other.
//!
//! ```console
//! $ cargo run --example router
//! 64 keys, answered by their owners: 64
//! both workers answered: true
//! b has left; 64 keys, answered by a: 64
//! ```

use ringfence::Ownership;
use ringfence::admin::{Admin, PolicyChange};
use ringfence::router::Router;
use ringfence::worker::Worker;
use ringfence_server::Coordinator;
use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

type Failed = Box<dyn Error + Send + Sync>;
/// The partitions that a worker owns now.
type Owned = Arc<Mutex<BTreeMap<u32, Ownership>>>;

/// Owns one partition: it takes calls from the moment it is ready until it is revoked.
async fn own(partition: Ownership, owned: Owned) -> Result<(), Failed> {
    let number = partition.partition().get();
    owned.lock().map_err(|_| "a task panicked")?.insert(number, partition.clone());
    partition.ready().await?;
    partition.revoked().await;
    owned.lock().map_err(|_| "a task panicked")?.remove(&number);
    Ok(())
}

/// Answers calls: a line with the partition's number in, the worker's name out. Only the owner answers, and it asks its
/// lease before it answers and after.
async fn answer(me: &'static str, listener: TcpListener, owned: Owned) {
    while let Ok((stream, _)) = listener.accept().await {
        let owned = Arc::clone(&owned);
        tokio::spawn(async move {
            let mut stream = BufReader::new(stream);
            let mut line = String::new();
            stream.read_line(&mut line).await?;
            let partition = line.trim().parse::<u32>().ok();
            let owner = partition.and_then(|number| owned.lock().ok()?.get(&number).cloned());
            let reply = match owner {
                Some(owner) => owner.read(|| me).unwrap_or("not the owner any more"),
                None => "not the owner",
            };
            stream.get_mut().write_all(format!("{reply}\n").as_bytes()).await
        });
    }
}

/// Calls the owner of a key; asks again while ownership changes hands.
async fn call(router: &Router, key: &str) -> Result<String, Failed> {
    loop {
        let owner = router.ready_owner("greetings", key).await?;
        let stream = TcpStream::connect(owner.address()).await;
        if let Ok(mut stream) = stream {
            stream.write_all(format!("{}\n", owner.partition().get()).as_bytes()).await?;
            let mut reply = String::new();
            BufReader::new(stream).read_line(&mut reply).await?;
            if !reply.is_empty() && !reply.starts_with("not the owner") {
                return Ok(reply.trim().to_string());
            }
        }
        // The map is newer than what we acted on, or will be at once.
        tokio::task::yield_now().await;
    }
}

#[tokio::main]
async fn main() -> Result<(), Failed> {
    let coordinator = Coordinator::in_memory().start().await?;
    let endpoint = coordinator.endpoint();
    let admin = Admin::at(endpoint.as_str())?;
    admin.create_keyspace("greetings", 16, &PolicyChange::default()).await?;

    let start = |me: &'static str| {
        let endpoint = endpoint.clone();
        async move {
            let owned = Owned::default();
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            let address = listener.local_addr()?.to_string();
            tokio::spawn(answer(me, listener, Arc::clone(&owned)));
            let worker = Worker::builder(me)
                .coordinator(endpoint.as_str())
                .address(&address)
                .own("greetings", move |partition| own(partition, Arc::clone(&owned)))
                .join()
                .await?;
            let (leave, left) = oneshot::channel::<()>();
            let serving = tokio::spawn(worker.serve_until(async {
                let _ = left.await;
            }));
            Ok::<_, Failed>((leave, serving))
        }
    };
    let (a_leaves, a) = start("a").await?;
    let (b_leaves, b) = start("b").await?;

    let router = Router::connect(endpoint.as_str(), ["greetings"]).await?;
    // Until both have their share, so that the story is the same every time.
    let balanced = |view: &ringfence::router::View| {
        let owners = view.keyspace("greetings").into_iter().flat_map(|keyspace| {
            keyspace
                .partitions()
                .filter_map(|p| p.owner().filter(|o| o.is_ready()).map(|o| o.worker().to_string()))
                .collect::<Vec<_>>()
        });
        let owners: Vec<String> = owners.collect();
        owners.len() == 16 && owners.iter().filter(|owner| *owner == "a").count() == 8
    };
    router.wait_for(balanced).await;

    let keys: Vec<String> = (0..64).map(|n| format!("key-{n}")).collect();
    let mut by_owner = 0;
    let mut who = BTreeMap::new();
    for key in &keys {
        let owner = router.ready_owner("greetings", key).await?.worker().to_string();
        let answered = call(&router, key).await?;
        by_owner += usize::from(answered == owner);
        *who.entry(answered).or_insert(0) += 1;
    }
    println!("{} keys, answered by their owners: {by_owner}", keys.len());
    println!("both workers answered: {}", who.len() == 2);

    drop(b_leaves);
    b.await??;
    let mut by_a = 0;
    for key in &keys {
        by_a += usize::from(call(&router, key).await? == "a");
    }
    println!("b has left; {} keys, answered by a: {by_a}", keys.len());

    drop(a_leaves);
    a.await??;
    coordinator.shutdown().await?;
    Ok(())
}
