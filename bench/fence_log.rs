//! What the fence of a log costs. `cargo bench -p ringfence-fence --bench fence_log`
//!
//! The same entry, in turn: appended to a fenced log, and written to a file that is flushed as a log is (`fdatasync`).

use ringfence_core::ids::ClusterId;
use ringfence_fence::FencingToken;
use ringfence_fence::log::FencedLog;
use std::error::Error;
use std::fs::File;
use std::io::Write;
use std::slice::from_ref;
use std::time::{Duration, Instant};

const ROUNDS: usize = 2_000;

fn timed(samples: &mut Vec<Duration>, call: impl FnOnce()) {
    let start = Instant::now();
    call();
    samples.push(start.elapsed());
}

fn percentile(samples: &mut [Duration], percent: usize) -> f64 {
    samples.sort_unstable();
    samples[samples.len() * percent / 100].as_secs_f64() * 1e6
}

fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let mut log = FencedLog::install(dir.path().join("log"), &ClusterId::new("prod")?)?;
    let (old, token): (FencingToken, FencingToken) =
        ("prod/orders/17@41".parse()?, "prod/orders/17@42".parse()?);
    log.raise(&token)?;
    let mut file = File::create(dir.path().join("plain"))?;
    let entry = [7; 200];
    let (mut fenced, mut plain, mut refused) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        timed(&mut fenced, || {
            log.append(from_ref(&token), &entry).expect("the owner appends");
        });
        timed(&mut plain, || {
            file.write_all(&entry).and_then(|()| file.sync_data()).expect("a file is written");
        });
        timed(&mut refused, || drop(log.append(from_ref(&old), &entry).expect_err("it is refused")));
    }
    println!(
        "an entry of {} bytes in a fenced log, in a plain file, and refused; {ROUNDS} of each",
        entry.len()
    );
    for percent in [50, 99] {
        let [fenced, plain, refused] =
            [&mut fenced, &mut plain, &mut refused].map(|samples| percentile(samples, percent));
        println!("p{percent}: {fenced:5.0} us, {plain:5.0} us ({:.2}x); {refused:4.1} us", fenced / plain);
    }
    Ok(())
}
