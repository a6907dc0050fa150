//! Many worlds: a process for each seed, since a world is the same twice only in a process of its own.
//!
//! | module | what it is |
//! |---|---|
//! | `child` | one world in another process, and what it reports |
//! | `progress` | which seeds are done, kept between runs |
//! | `shrink` | as little going wrong as still breaks something |

mod child;
mod progress;
mod shrink;

pub use child::{Report, Trial};
pub use progress::Progress;
pub use shrink::{Shrunk, shrink};

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Instant;

/// Which seeds to run, and for how long.
#[derive(Clone, Debug)]
pub struct Seeds {
    /// The seeds.
    pub range: Range<u64>,
    /// How many processes at once.
    pub jobs: usize,
    /// No seed is begun after this, once so many have begun.
    pub until: Option<(Instant, u64)>,
}

/// Runs the seeds that are not done yet, and tells of each as it ends. Stops at the first that breaks something.
///
/// # Errors
/// When a process cannot be started.
pub fn run(
    seeds: &Seeds,
    progress: &mut Progress,
    mut told: impl FnMut(&Progress, &Report),
) -> io::Result<Option<Report>> {
    let waiting: VecDeque<u64> = seeds.range.clone().filter(|seed| !progress.is_done(*seed)).collect();
    let waiting = Mutex::new(waiting);
    let begun = Mutex::new(0_u64);
    let next = || {
        let begun = {
            let mut begun = begun.lock().unwrap_or_else(PoisonError::into_inner);
            *begun += 1;
            *begun
        };
        let over = seeds.until.is_some_and(|(until, least)| begun > least && Instant::now() >= until);
        if over { None } else { waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front() }
    };
    let stop = || waiting.lock().unwrap_or_else(PoisonError::into_inner).clear();
    let (reports, reported) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..seeds.jobs.max(1) {
            let (reports, next) = (reports.clone(), &next);
            scope.spawn(move || {
                while let Some(seed) = next() {
                    let ran = Trial::of(seed).run();
                    if reports.send(ran).is_err() {
                        return;
                    }
                }
            });
        }
        drop(reports);
        let mut broken = None;
        for report in reported {
            let report = report.inspect_err(|_| stop())?;
            if report.held {
                progress.done(report.seed);
            } else {
                stop();
            }
            told(progress, &report);
            if !report.held && broken.is_none() {
                broken = Some(report);
            }
        }
        Ok(broken)
    })
}
