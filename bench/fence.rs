//! What a check costs in process. `cargo bench -p ringfence-fence --bench fence`

use ringfence_core::ids::ClusterId;
use ringfence_fence::{FencingToken, MemoryFence};
use std::hint::black_box;
use std::time::Instant;

const ROUNDS: u32 = 20_000_000;

/// The best of five runs: what disturbs a run only ever adds to it.
fn measure(name: &str, mut step: impl FnMut()) {
    let best = (0..5)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..ROUNDS {
                step();
            }
            start.elapsed().as_secs_f64() * 1e9 / f64::from(ROUNDS)
        })
        .fold(f64::INFINITY, f64::min);
    println!("{name:48} {best:6.2} ns");
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let fence = MemoryFence::new(ClusterId::new("prod")?);
    let token: FencingToken = "prod/orders/17@42".parse()?;
    let parsed: FencingToken = token.to_string().parse()?;
    fence.raise(&token)?;
    let scope = fence.scope_of(&token)?;
    measure("ScopeFence::check, the owner's token", || {
        black_box(black_box(&scope).check(black_box(&token))).unwrap_or(());
    });
    measure("ScopeFence::check, a token read from its text", || {
        black_box(black_box(&scope).check(black_box(&parsed))).unwrap_or(());
    });
    let mut sum = 0u64;
    measure("ScopeFence::guarded, an addition", || {
        black_box(black_box(&scope).guarded(black_box(&token), || sum += 1)).unwrap_or(());
    });
    measure("MemoryFence::check, with the look-up", || {
        black_box(black_box(&fence).check(black_box(&token))).unwrap_or(());
    });
    black_box(sum);
    Ok(())
}
