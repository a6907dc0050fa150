//! What the fence costs in an object store. `cargo bench -p ringfence-fence --bench fence_object`
//!
//! The same object, in turn: written behind the fence, which puts it and then the manifest, and put without a fence. In a local
//! folder that is synced, and, where there is one, in a server of S3 for tests (`moto_server`) of the bench's own.

#[allow(dead_code, clippy::unwrap_used, reason = "the tests use more of it, and end where a set-up fails")]
#[path = "../src/fence/tests/objects/moto.rs"]
mod moto;
#[allow(dead_code, clippy::unwrap_used, reason = "the tests use more of it, and end where a set-up fails")]
#[path = "../src/fence/tests/objects/wire.rs"]
mod wire;

use moto::{Moto, wait};
use object_store::local::LocalFileSystem;
use object_store::{ObjectStore, ObjectStoreExt};
use ringfence_core::ids::ClusterId;
use ringfence_fence::FencingToken;
use ringfence_fence::object::{ObjectFence, ObjectOptions, ObjectWrite};
use std::error::Error;
use std::slice::from_ref;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::Wire;

const ROUNDS: usize = 400;
const BYTES: usize = 64 << 10;

fn percentile(samples: &mut [Duration], percent: usize) -> f64 {
    samples.sort_unstable();
    samples[samples.len() * percent / 100].as_secs_f64() * 1e6
}

fn run(what: &str, store: Arc<dyn ObjectStore>, options: ObjectOptions) -> Result<(), Box<dyn Error>> {
    let fence = wait(options.install(Arc::clone(&store), "fence"))?;
    let token: FencingToken = "prod/orders/17@42".parse()?;
    let mut state = wait(fence.raise(&token))?;
    let (mut fenced, mut plain) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let write = ObjectWrite::new().put("report", vec![7; BYTES]).on(&state);
        state = wait(fence.write(from_ref(&token), write))?;
        fenced.push(start.elapsed());
        let start = Instant::now();
        wait(store.put(&"report".into(), vec![7; BYTES].into()))?;
        plain.push(start.elapsed());
    }
    for percent in [50, 99] {
        let [fenced, plain] = [&mut fenced, &mut plain].map(|samples| percentile(samples, percent));
        println!("{what}, p{percent}: {fenced:6.0} us, {plain:6.0} us without ({:.2}x)", fenced / plain);
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = ObjectFence::options(&ClusterId::new("prod")?).trusting_the_store();
    println!("an object of {BYTES} bytes behind the fence, and put without it; {ROUNDS} of each, in turn");
    let dir = tempfile::tempdir()?;
    let folder = LocalFileSystem::new_with_prefix(dir.path())?.with_fsync(true);
    run("in a folder", Arc::new(folder), options.clone().by_creating())?;
    if moto::available() {
        let moto = Moto::shared();
        run("in S3", Arc::new(moto.bucket(&Wire::default())), options)?;
    }
    Ok(())
}
