//! How long to wait before the next try.

use std::time::Duration;

/// Waits that double, each drawn between half and all of its bound.
///
/// The draw spreads clients that all lost the same coordinator in the same instant; the lower half keeps a retry from
/// being no wait at all. See "Exponential Backoff And Jitter" (AWS Architecture Blog, 2015), which calls it equal
/// jitter.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    first: Duration,
    most: Duration,
    next: Duration,
}

impl Backoff {
    /// Waits from `first` to `most`.
    pub(crate) fn new(first: Duration, most: Duration) -> Backoff {
        Backoff { first, most, next: first }
    }

    /// The next wait.
    pub(crate) fn wait(&mut self) -> Duration {
        let bound = self.next;
        self.next = bound.saturating_mul(2).min(self.most);
        bound.mul_f64(0.5 + fastrand::f64() / 2.0)
    }

    /// It worked: the next wait is a first one again.
    pub(crate) fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f070_waits_double_up_to_a_bound_and_differ() {
        let ms = Duration::from_millis;
        let mut backoff = Backoff::new(ms(50), ms(1_000));
        for bound in [50, 100, 200, 400, 800, 1_000, 1_000] {
            let wait = backoff.wait();
            assert!(wait >= ms(bound) / 2 && wait <= ms(bound), "{wait:?} of {bound}");
        }
        backoff.reset();
        let firsts: std::collections::BTreeSet<_> =
            (0..100).map(|_| Backoff::new(ms(50), ms(1_000)).wait()).collect();
        assert!(firsts.len() > 90, "{} of 100 differ", firsts.len());
    }
}
