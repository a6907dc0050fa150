//! As little going wrong as still breaks something: first the shortest prefix of the faults, then without each that is not
//! needed.

use super::child::{Report, Trial};
use std::io;

/// What is left of a world that breaks something.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// The smallest that was found.
    pub trial: Trial,
    /// What it reported.
    pub report: Report,
    /// How many worlds were tried.
    pub tried: usize,
}

/// Shrinks a world that broke something. `run` runs one; it is called at most `tries` times.
///
/// # Errors
/// Whatever `run` says.
pub fn shrink(
    broken: &Report,
    tries: usize,
    mut run: impl FnMut(&Trial) -> io::Result<Report>,
) -> io::Result<Shrunk> {
    let mut best = Shrunk { trial: Trial::of(broken.seed), report: broken.clone(), tried: 0 };
    let all = usize::try_from(broken.faults).unwrap_or(usize::MAX);
    best.trial.faults = Some(all);
    // It may need nothing to go wrong.
    let nothing = Trial { faults: Some(0), ..best.trial.clone() };
    if best.try_one(&nothing, &mut run)? {
        return Ok(best);
    }
    // The shortest prefix, if fewer faults never break what more do not: close enough, and cheap.
    let (mut holds, mut breaks) = (0, all);
    while breaks - holds > 1 && best.tried < tries {
        let middle = holds + (breaks - holds) / 2;
        let trial = Trial { faults: Some(middle), ..best.trial.clone() };
        if best.try_one(&trial, &mut run)? { breaks = middle } else { holds = middle }
    }
    // The last one is the one that broke it; those before it may not be needed, in large parts or one by one.
    let mut part = breaks / 2;
    while part >= 1 {
        let mut first = 0;
        while first + part <= breaks.saturating_sub(1) && best.tried < tries {
            let mut without = best.trial.without.clone();
            without.extend((first..first + part).filter(|fault| !best.trial.without.contains(fault)));
            without.sort_unstable();
            if without.len() > best.trial.without.len() {
                let trial = Trial { without, ..best.trial.clone() };
                best.try_one(&trial, &mut run)?;
            }
            first += part;
        }
        part /= 2;
    }
    Ok(best)
}

impl Shrunk {
    fn try_one(
        &mut self,
        trial: &Trial,
        run: &mut impl FnMut(&Trial) -> io::Result<Report>,
    ) -> io::Result<bool> {
        self.tried += 1;
        let report = run(trial)?;
        // Another defect met on the way is not a smaller form of this one.
        let breaks = !report.held && report.breach() == self.report.breach();
        if breaks {
            self.trial = trial.clone();
            self.report = report;
        }
        Ok(breaks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A world of 40 faults that breaks when faults 7 and 23 are both in it.
    fn world(trial: &Trial) -> Report {
        let has = |fault: usize| trial.faults.is_none_or(|n| fault < n) && !trial.without.contains(&fault);
        let violations = match (has(7) && has(23), has(23)) {
            (true, _) => vec!["TwoOwners: of orders/1 (events [3, 9])".to_owned()],
            // Another defect, which takes less.
            (false, true) => vec!["NoOwner: of orders/1 (events [4])".to_owned()],
            (false, false) => Vec::new(),
        };
        Report { seed: trial.seed, held: violations.is_empty(), violations, faults: 40, ..Report::default() }
    }

    #[test]
    fn what_is_left_is_what_breaks_it() {
        let broken = world(&Trial::of(5));
        let shrunk = shrink(&broken, 200, |trial| Ok(world(trial))).unwrap();
        let left: Vec<usize> =
            (0..shrunk.trial.faults.unwrap()).filter(|n| !shrunk.trial.without.contains(n)).collect();
        assert_eq!(left, [7, 23]);
        assert!(!shrunk.report.held && shrunk.tried <= 200);
    }

    #[test]
    fn it_gives_up_in_time_and_what_it_has_still_breaks() {
        let broken = world(&Trial::of(5));
        let shrunk = shrink(&broken, 3, |trial| Ok(world(trial))).unwrap();
        assert!(shrunk.tried <= 3 && !world(&shrunk.trial).held);
    }

    #[test]
    fn a_breach_is_the_same_whatever_its_numbers_are() {
        let of = |text: &str| Report { violations: vec![text.to_owned()], ..Report::default() }.breach();
        assert_eq!(of("TwoOwners: of orders/1"), of("TwoOwners: of orders/2"));
        assert_ne!(of("TwoOwners: of orders/1"), of("NoOwner: of orders/1"));
        assert_eq!(of("node 2 ended by itself"), of("node 3 ended by itself"));
        assert_ne!(of("node 2 ended by itself"), of("the process ended with signal 9"));
        assert_eq!(Report::default().breach(), None);
    }
}
