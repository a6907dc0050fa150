//! Rules that need two clients at once.
//!
//! A store that does it right makes one of the two wait, and waiting cannot be seen from outside: so a pause lasts for
//! a fixed while. A slow machine can only make a broken store look sound, never a sound one broken.

use crate::conformance::stage::{End, Hand, PATIENCE, Stage, Verdict, broken, patiently, require, token};
use crate::conformance::{Handle, Subject};
use crate::{FenceError, FencingToken};
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

/// How long a client stands between its check and its write.
const PAUSE: Duration = Duration::from_millis(400);

/// How long each of two writers waits for the other to have locked its first scope.
const MEETING: Duration = Duration::from_millis(100);

/// What the new owner does while the old one pauses.
#[derive(Clone, Copy)]
enum Newer {
    Raises,
    Writes,
}

pub(crate) fn one_step(subject: &impl Subject) -> Verdict {
    paused_in_between(subject, &[1], 1, Newer::Raises)
}

pub(crate) fn one_step_for_writes(subject: &impl Subject) -> Verdict {
    paused_in_between(subject, &[1], 1, Newer::Writes)
}

pub(crate) fn one_step_for_every_scope(subject: &impl Subject) -> Verdict {
    // The one that is locked first where all take them in one order, and the one that is named first.
    paused_in_between(subject, &[2, 1], 1, Newer::Raises)?;
    paused_in_between(subject, &[2, 1], 2, Newer::Raises)
}

/// The old owner has been let through by the fences and pauses. The new one of one of the scopes raises, or writes, and
/// reads. Whatever it has read must still be true when the old one has gone on.
fn paused_in_between(subject: &impl Subject, scopes: &[u32], moved: u32, newer: Newer) -> Verdict {
    let mut stage = Stage::of(subject)?;
    let old = scopes.iter().map(|partition| token(*partition, 33)).collect::<Result<Vec<_>, _>>()?;
    let new = token(moved, 34)?;
    for token in &old {
        stage.hand.raised(token)?;
    }
    let next = stage.open()?;
    let (pausing, old_pauses) = channel();
    let (coming, new_has_come) = channel();
    let (reading, new_has_read) = channel();
    thread::spawn(move || {
        let read = come_and_read(next, &new, newer, &old_pauses, &coming);
        // Nobody listens any more when the rule has ended early.
        let _ = reading.send(read);
    });

    let mut pausing = Some(pausing);
    let late = stage.hand.write(&old, &[("k", "late")], &mut || {
        if let Some(pausing) = pausing.take() {
            let _ = pausing.send(());
            let _ = new_has_come.recv_timeout(PAUSE);
        }
    });
    if pausing.is_some() {
        return broken("`paused` was never called, so nothing was tested");
    }
    let read = match new_has_read.recv_timeout(PATIENCE) {
        Ok(read) => read?,
        Err(_) => return broken("the new owner was not answered after the old owner's write had ended"),
    };
    let now = stage.hand.contents()?;
    require(read == now, || {
        format!(
            "the new owner came and read {read:?}; the older write was answered {late:?}, and there is {now:?}"
        )
    })
}

fn come_and_read(
    mut next: impl Handle,
    new: &FencingToken,
    newer: Newer,
    old_pauses: &Receiver<()>,
    coming: &Sender<()>,
) -> Result<BTreeMap<String, String>, End> {
    if old_pauses.recv().is_ok() {
        match newer {
            Newer::Raises => next.raised(new)?,
            // A store that refuses it is found by another rule.
            Newer::Writes => drop(next.wrote(std::slice::from_ref(new), &[("n", "34")])),
        }
    }
    let read = next.contents()?;
    let _ = coming.send(());
    Ok(read)
}

/// Two writers over the same two scopes, named in opposite order, each waiting inside for the other.
pub(crate) fn no_deadlock(subject: &impl Subject) -> Verdict {
    let mut stage = Stage::of(subject)?;
    let (one, two) = (token(1, 5)?, token(2, 5)?);
    stage.hand.raised(&one)?;
    stage.hand.raised(&two)?;
    let (a_is_in, b_hears) = channel();
    let (b_is_in, a_hears) = channel();
    let (ending, ended) = channel();
    write_and_meet(stage.open()?, "a", [one.clone(), two.clone()], (a_is_in, a_hears), ending.clone());
    write_and_meet(stage.open()?, "b", [two, one], (b_is_in, b_hears), ending);
    for _ in 0..2 {
        match ended.recv_timeout(PATIENCE) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return broken(format!("one of two crossing writes failed: {error}")),
            Err(_) => return broken("two writes over the same scopes wait for each other"),
        }
    }
    let data = stage.hand.contents()?;
    require(data.len() == 2, || format!("one of two crossing writes is not there: {data:?}"))
}

fn write_and_meet(
    mut hand: impl Handle,
    key: &'static str,
    tokens: [FencingToken; 2],
    (i_am_in, other): (Sender<()>, Receiver<()>),
    ending: Sender<Result<(), FenceError>>,
) {
    thread::spawn(move || {
        let answer = patiently(|| {
            hand.write(&tokens, &[(key, "v")], &mut || {
                let _ = i_am_in.send(());
                let _ = other.recv_timeout(MEETING);
            })
        });
        let _ = ending.send(answer);
    });
}
