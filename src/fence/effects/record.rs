//! What is remembered of one effect, and the rule by which it moves.
//!
//! It is pure, as [`HighWater`](crate::HighWater) is: storage reads the record in the transaction in which the fence was
//! checked, asks, and writes the answer in the same transaction.

use super::key::root;
use super::{EffectError, EffectKey};
use crate::FencingToken;
use ringfence_core::ids::{Epoch, Scope};
use ringfence_core::mutant;

/// How large a payload may be, in bytes.
pub const MAX_PAYLOAD: usize = 64 * 1024;

/// How much of an outcome is kept, in bytes.
pub const MAX_OUTCOME: usize = 4 * 1024;

/// How many effects of one scope may be neither done, refused nor given up at one time.
pub const MAX_OPEN: u64 = 10_000;

/// What the other side does with a key that it has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// It keeps keys, and answers a second call with what it did at the first. A call whose outcome is unknown is sent again
    /// under the same key, at most so often in all; then it is held for a person.
    ///
    /// It keeps them for a time, which its documentation says. Whoever recovers later than that has to hold
    /// ([`Outcome::Hold`]) what was sent before, or it happens twice.
    Keyed {
        /// How often it is claimed at most before one whose outcome is unknown is held, the first time included. At least 1.
        /// What is known not to have been sent is sent however often it was claimed.
        attempts: u32,
    },
    /// It keeps none. A call whose outcome is unknown *may have happened once*: it is held for a person, and never sent a
    /// second time by itself.
    Unkeyed,
}

/// Where an effect stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// It is to be done, and was never sent.
    Intended,
    /// Somebody has said that it sends it. It may have happened.
    Sending,
    /// It has happened.
    Done,
    /// The other side has said no, or a person has given it up: it has not happened and will not.
    Refused,
    /// It may have happened, and a person has to find out.
    Held,
}

impl State {
    const ALL: [State; 5] = [State::Intended, State::Sending, State::Done, State::Refused, State::Held];

    /// The state of that name, as a storage has it.
    pub fn named(name: &str) -> Option<State> {
        State::ALL.into_iter().find(|state| state.name() == name)
    }

    /// The word for it in the table.
    pub const fn name(self) -> &'static str {
        match self {
            State::Intended => "intended",
            State::Sending => "sending",
            State::Done => "done",
            State::Refused => "refused",
            State::Held => "held",
        }
    }
}

/// What is remembered of one effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    key: EffectKey,
    scope: Scope,
    state: State,
    attempts: u32,
    epoch: Option<Epoch>,
    payload: String,
    outcome: String,
    /// Of a claim only, and not stored: whether it came after a call that may have happened.
    after_a_call: bool,
}

impl Record {
    /// A record as a storage has kept it.
    pub fn stored(
        key: EffectKey,
        scope: Scope,
        state: State,
        attempts: u32,
        epoch: Option<Epoch>,
        payload: String,
        outcome: String,
    ) -> Record {
        Record { key, scope, state, attempts, epoch, payload, outcome, after_a_call: false }
    }

    /// The key that the other side gets.
    pub fn key(&self) -> &EffectKey {
        &self.key
    }

    /// The partition or lock whose owner sends it.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Where it stands.
    pub fn state(&self) -> State {
        self.state
    }

    /// How often it was claimed. It never goes down: with the epoch it is what a call is known by.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// The owner who sent it last, or was about to.
    pub fn epoch(&self) -> Option<Epoch> {
        self.epoch
    }

    /// What is needed for the call.
    pub fn payload(&self) -> &str {
        &self.payload
    }

    /// What the other side answered, or why it is held. Empty when nothing is known.
    pub fn outcome(&self) -> &str {
        &self.outcome
    }
}

/// What became of a claim.
#[derive(Clone, Debug)]
#[must_use = "an effect that was claimed is to be sent, or it is held for nothing"]
pub enum Claim {
    /// Send it now.
    Send(Sending),
    /// It needs no sending: it is done, refused, or held for a person.
    Settled(Record),
}

/// The permission to make one call. It exists only after what it says is on disk: whoever comes next knows of the call.
#[derive(Clone, Debug)]
pub struct Sending {
    record: Record,
}

impl Sending {
    /// The key to send with the call.
    pub fn key(&self) -> &EffectKey {
        &self.record.key
    }

    /// What the effect was recorded with.
    pub fn payload(&self) -> &str {
        &self.record.payload
    }

    /// The how many-th claim this is, from 1.
    pub fn attempt(&self) -> u32 {
        self.record.attempts
    }

    /// Whether an earlier call may have had its effect.
    pub fn may_have_happened(&self) -> bool {
        self.record.after_a_call
    }
}

/// What a call came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// It has happened, and this is what the other side answered: an id of a payment, say.
    Done(&'a str),
    /// The other side has said no, for good: nothing has happened, and a repetition would be refused as well.
    Refused(&'a str),
    /// Nothing was sent: no connection was made, or the lease was gone before. **Not** for a call without an answer.
    NotSent,
    /// No answer, or none that says: it may have happened. This is the outcome of a time limit.
    Unknown(&'a str),
    /// A person has to look, for this reason.
    Hold(&'a str),
}

/// What a person has found out about an effect that was held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution<'a> {
    /// It has happened.
    Happened(&'a str),
    /// It has not happened, and whoever sent it cannot send it any more: send it.
    SendAgain,
    /// It has not happened and is not wanted any more.
    GiveUp(&'a str),
}

/// Decides on an intention. `there` is what is recorded under the key; `open` how many effects of the scope are neither done
/// nor refused. The answer is to be recorded; `None` when it is recorded already, as the same effect.
///
/// # Errors
/// [`EffectError::Unfit`], [`EffectError::PayloadDiffers`], [`EffectError::TooMany`].
pub fn intend(
    there: Option<&Record>,
    token: &FencingToken,
    key: &EffectKey,
    payload: &str,
    open: u64,
) -> Result<Option<Record>, EffectError> {
    if payload.len() > MAX_PAYLOAD || payload.contains('\0') {
        return Err(EffectError::Unfit {
            why: format!("a payload is a text of at most {MAX_PAYLOAD} bytes, without NUL"),
        });
    }
    match there {
        Some(record) if record.payload != payload => Err(EffectError::PayloadDiffers { key: key.clone() }),
        Some(_) => Ok(None),
        None if open >= MAX_OPEN => Err(EffectError::TooMany { scope: token.scope().clone() }),
        None => Ok(Some(Record {
            key: key.clone(),
            scope: token.scope().clone(),
            state: State::Intended,
            attempts: 0,
            epoch: None,
            payload: payload.to_owned(),
            outcome: String::new(),
            after_a_call: false,
        })),
    }
}

/// Decides on a claim: the record as it must be before anything is sent, and whether it is to be sent at all.
///
/// # Errors
/// [`EffectError::OtherScope`].
pub fn claim(
    record: Record,
    token: &FencingToken,
    delivery: Delivery,
) -> Result<(Record, bool), EffectError> {
    of_its_owner(&record, token)?;
    // Whether a call that may have happened is sent again. One that was never sent is sent however high the count is.
    let again = match delivery {
        Delivery::Keyed { attempts } => record.attempts < attempts,
        Delivery::Unkeyed => mutant!("unkeyed-effect-sent-again") && record.attempts < 3,
    };
    match record.state {
        State::Done | State::Refused | State::Held => Ok((record, false)),
        State::Intended if record.attempts < u32::MAX => Ok((sent_by(record, token), true)),
        State::Intended => Ok((held(record, "it was claimed as often as can be counted"), false)),
        State::Sending if again => Ok((sent_by(record, token), true)),
        State::Sending => {
            let why = match delivery {
                Delivery::Unkeyed => "it may have happened once; the other side keeps no keys",
                Delivery::Keyed { .. } => "it may have happened; it was sent as often as it may be",
            };
            Ok((held(record, why), false))
        }
    }
}

/// What [`claim`] has led to. Call it when the record is on disk, and not before: here the permission to send is made.
pub fn claimed(record: Record, send: bool) -> Claim {
    if send { Claim::Send(Sending { record }) } else { Claim::Settled(record) }
}

/// Decides on what a call came to.
///
/// # Errors
/// [`EffectError::NotClaimed`], [`EffectError::OtherScope`].
pub fn settle(
    record: Record,
    token: &FencingToken,
    sending: &Sending,
    delivery: Delivery,
    outcome: Outcome<'_>,
) -> Result<Record, EffectError> {
    of_its_owner(&record, token)?;
    let claimed = record.state == State::Sending
        && record.epoch == Some(token.epoch())
        && record.attempts == sending.record.attempts;
    if !claimed && !mutant!("effect-settled-by-any-call") {
        return Err(EffectError::NotClaimed { key: record.key, state: record.state });
    }
    Ok(match outcome {
        Outcome::Done(text) => ended(record, State::Done, text),
        Outcome::Refused(text) => ended(record, State::Refused, text),
        Outcome::Hold(why) => held(record, why),
        Outcome::Unknown(why) if delivery == Delivery::Unkeyed => held(record, why),
        Outcome::Unknown(why) => Record { outcome: cut(why), ..record },
        // A call is known by its epoch and its number, so no number comes twice. Where it is not the first, one before it may
        // have happened.
        Outcome::NotSent if sending.record.after_a_call => record,
        Outcome::NotSent => Record { state: State::Intended, ..record },
    })
}

/// Decides on what a person has found out.
///
/// # Errors
/// [`EffectError::NotHeld`], [`EffectError::OtherScope`].
pub fn resolve(
    record: Record,
    token: &FencingToken,
    resolution: Resolution<'_>,
) -> Result<Record, EffectError> {
    of_its_owner(&record, token)?;
    if record.state != State::Held {
        return Err(EffectError::NotHeld { key: record.key, state: record.state });
    }
    Ok(match resolution {
        Resolution::Happened(text) => ended(record, State::Done, text),
        Resolution::GiveUp(text) => ended(record, State::Refused, text),
        Resolution::SendAgain => Record { state: State::Intended, ..record },
    })
}

/// Decides on taking an effect over from another partition of the keyspace, after a split.
///
/// # Errors
/// [`EffectError::OtherScope`] for another keyspace.
pub fn adopt(record: Record, token: &FencingToken) -> Result<Record, EffectError> {
    if root(&record.scope) != root(token.scope()) {
        return Err(EffectError::OtherScope { key: record.key, scope: record.scope });
    }
    Ok(Record { scope: token.scope().clone(), ..record })
}

fn of_its_owner(record: &Record, token: &FencingToken) -> Result<(), EffectError> {
    if record.scope == *token.scope() {
        Ok(())
    } else {
        Err(EffectError::OtherScope { key: record.key.clone(), scope: record.scope.clone() })
    }
}

fn sent_by(record: Record, token: &FencingToken) -> Record {
    let (attempts, after_a_call) = (record.attempts + 1, record.state == State::Sending);
    Record { state: State::Sending, attempts, epoch: Some(token.epoch()), after_a_call, ..record }
}

fn held(record: Record, why: &str) -> Record {
    ended(record, State::Held, why)
}

fn ended(record: Record, state: State, outcome: &str) -> Record {
    Record { state, outcome: cut(outcome), ..record }
}

/// What is kept of a text of the other side: what it did must be recorded however much it has to say.
fn cut(text: &str) -> String {
    let mut kept = text.replace('\0', "\u{fffd}");
    if kept.len() > MAX_OUTCOME {
        let whole = (0..=MAX_OUTCOME).rev().find(|end| kept.is_char_boundary(*end));
        kept.truncate(whole.unwrap_or(0));
    }
    kept
}
