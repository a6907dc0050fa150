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

/// The old owner has been let through by the fence and pauses. The new one raises and reads. Whatever it has read must
/// still be true when the old one has gone on.
pub(crate) fn one_step(subject: &impl Subject) -> Verdict {
    let mut stage = Stage::of(subject)?;
    let (old, new) = (token(1, 33)?, token(1, 34)?);
    stage.hand.raised(&old)?;
    let next = stage.open()?;
    let (pausing, old_pauses) = channel();
    let (raising, new_has_raised) = channel();
    let (reading, new_has_read) = channel();
    thread::spawn(move || {
        let read = raise_and_read(next, &new, &old_pauses, &raising);
        // Nobody listens any more when the rule has ended early.
        let _ = reading.send(read);
    });

    let mut pausing = Some(pausing);
    let late = stage.hand.write(&[old], &[("k", "late")], &mut || {
        if let Some(pausing) = pausing.take() {
            let _ = pausing.send(());
            let _ = new_has_raised.recv_timeout(PAUSE);
        }
    });
    if pausing.is_some() {
        return broken("`paused` was never called, so nothing was tested");
    }
    let read = match new_has_read.recv_timeout(PATIENCE) {
        Ok(read) => read?,
        Err(_) => return broken("the new owner's raise did not end after the old owner's write had"),
    };
    let now = stage.hand.contents()?;
    require(read == now, || {
        format!(
            "after its raise the new owner read {read:?}; the older write was answered {late:?}, and there is {now:?}"
        )
    })
}

fn raise_and_read(
    mut next: impl Handle,
    new: &FencingToken,
    old_pauses: &Receiver<()>,
    raising: &Sender<()>,
) -> Result<BTreeMap<String, String>, End> {
    if old_pauses.recv().is_ok() {
        next.raised(new)?;
    }
    let read = next.contents()?;
    let _ = raising.send(());
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
