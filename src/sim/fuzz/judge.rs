//! One input, judged.
//!
//! Whatever the input is, a reader must not panic, must not take more memory or steps than the input pays for, and must
//! say in words what is wrong when it refuses. What else must hold of one target it asserts itself.

use super::meter::metered;
use super::targets::Target;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

/// Stands in the seeds wherever a secret stands. No error may repeat it.
pub(crate) const SECRET: &str = "hush-hush";

/// The longest error. It ends up in a status or on a terminal.
const MAX_ERROR_BYTES: usize = 4_096;

/// What a target made of an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was read.
    Read,
    /// It was refused, with this error.
    Refused(String),
    /// Something that must hold does not.
    Failed(String),
}

thread_local! {
    /// Set while a run is judged: a panic of this thread leaves its message here instead of on standard error.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
    static JUDGING: RefCell<bool> = const { RefCell::new(false) };
}

/// Runs the target on the input.
pub fn judge(target: &Target, input: &[u8]) -> Verdict {
    quiet_panics();
    JUDGING.set(true);
    let (ran, taken) = metered(|| catch_unwind(AssertUnwindSafe(|| (target.read)(input))));
    JUDGING.set(false);
    let panic = PANIC.take();
    let Ok(read) = ran else {
        return Verdict::Failed(format!("a panic: {}", panic.as_deref().unwrap_or("without a message")));
    };
    let (bytes, steps) = target.allowance(input.len());
    if taken.bytes > bytes {
        return Verdict::Failed(format!(
            "{} bytes of memory for an input of {}: {bytes} are allowed",
            taken.bytes,
            input.len()
        ));
    }
    if taken.steps > steps {
        return Verdict::Failed(format!(
            "{} allocations for an input of {}: {steps} are allowed",
            taken.steps,
            input.len()
        ));
    }
    match read {
        Ok(()) => Verdict::Read,
        Err(error) => {
            error_is_fit(&error).map_or(Verdict::Refused(error), |why| Verdict::Failed(why.to_owned()))
        }
    }
}

/// The message of a panic in this run that somebody caught. The product catches those of its store on damaged files, and
/// a runtime those of its tasks: a target that runs tasks asks for it, since the task's end is no panic of its own.
pub(super) fn caught() -> Option<String> {
    PANIC.take()
}

/// What is wrong with an error; `None` when nothing is.
pub(super) fn error_is_fit(error: &str) -> Option<String> {
    // A parser of files points at the place with more than one line.
    let hides = |c: &char| {
        c.is_control() && *c != '\n'
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
    };
    if error.trim().is_empty() {
        return Some("an error without a word".to_owned());
    }
    if error.len() > MAX_ERROR_BYTES {
        return Some(format!("an error of {} bytes, and {MAX_ERROR_BYTES} are enough", error.len()));
    }
    if let Some(c) = error.chars().find(hides) {
        return Some(format!(
            "an error that writes {} to a terminal: {}",
            c.escape_unicode(),
            error.escape_debug()
        ));
    }
    error.contains(SECRET).then(|| format!("an error that tells a secret: {error}"))
}

/// Lets panics of judged runs leave their message with the judge, and all others where they always went.
fn quiet_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !JUDGING.with_borrow(|judging| *judging) {
                return before(info);
            }
            let at = info.location().map(|at| format!(" at {}:{}", at.file(), at.line())).unwrap_or_default();
            let text = info.payload().downcast_ref::<&str>().copied();
            let text = text.or_else(|| info.payload().downcast_ref::<String>().map(String::as_str));
            let message = text.unwrap_or("of some other type");
            PANIC.set(Some(format!("{message}{at}")));
        }));
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::targets::Form;

    fn target(read: fn(&[u8]) -> Result<(), String>) -> Target {
        Target { name: "test", form: Form::Text, read, base: 1_000, per_byte: 10 }
    }

    #[track_caller]
    fn fails(read: fn(&[u8]) -> Result<(), String>, part: &str) {
        let Verdict::Failed(why) = judge(&target(read), b"abc") else { panic!("not found: {part}") };
        assert!(why.contains(part), "{why}");
    }

    #[test]
    fn each_kind_of_failure_is_found() {
        fails(|input| panic!("{} is too much", input.len()), "3 is too much at src/sim/fuzz/judge.rs");
        fails(
            |_| Vec::<u8>::with_capacity(1 << 20).is_empty().then_some(()).ok_or_else(String::new),
            "1048576 bytes of memory for an input of 3",
        );
        let many = |_: &[u8]| {
            (0..2_000).for_each(|n| drop(Box::new(n)));
            Ok(())
        };
        fails(many, "2000 allocations");
        fails(|_| Err(" ".to_owned()), "without a word");
        let talks = |_: &[u8]| Err("x".repeat(4_500));
        let generous = Target { base: 1 << 20, ..target(talks) };
        let Verdict::Failed(why) = judge(&generous, b"abc") else { panic!("an error of any length is fine") };
        assert!(why.contains("4500 bytes"), "{why}");
        fails(|_| Err("\u{1b}[2J".to_owned()), "terminal");
        fails(|_| Err("\u{202e}".to_owned()), "terminal");
        fails(|_| Err(format!("the secret {SECRET} is wrong")), "secret");
    }

    #[test]
    fn a_panic_of_a_task_is_there_to_be_asked_for_although_its_runtime_caught_it() {
        let spawns = |_: &[u8]| {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let task = async { panic!("in a task") };
            assert!(runtime.block_on(async { tokio::spawn(task).await }).is_err());
            caught().map_or(Ok(()), Err)
        };
        let generous = Target { base: 1 << 20, ..target(spawns) };
        let Verdict::Refused(why) = judge(&generous, b"") else { panic!("not found") };
        assert!(why.contains("in a task at src/sim/fuzz/judge.rs"), "{why}");
    }

    #[test]
    fn a_panic_that_the_product_catches_is_its_own_affair_and_that_runs_alone() {
        let catches = |_: &[u8]| catch_unwind(|| panic!("of a library")).map_err(|_| "damaged".to_owned());
        let generous = Target { base: 1 << 20, ..target(catches) };
        assert_eq!(judge(&generous, b""), Verdict::Refused("damaged".to_owned()));
        assert_eq!(judge(&target(|_| caught().map_or(Ok(()), Err)), b""), Verdict::Read);
    }

    #[test]
    fn what_is_read_or_refused_in_words_is_no_failure() {
        assert_eq!(judge(&target(|_| Ok(())), b"abc"), Verdict::Read);
        let refused = judge(&target(|_| Err("line 1\nis wrong".to_owned())), b"abc");
        assert_eq!(refused, Verdict::Refused("line 1\nis wrong".to_owned()));
    }
}
