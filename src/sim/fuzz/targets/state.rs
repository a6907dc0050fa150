//! Log entries and snapshots, and what applying them does.

use prost::Message;
use ringfence_api::state::{DecodeError, decode_entry, decode_state, encode_entry, encode_state};
use ringfence_core::ids::LogIndex;
use ringfence_core::state::{Command, Entry, State};

/// The most partitions of a keyspace that is created here. A million of them are allowed, and take seconds to compare.
const MAX_PARTITIONS: u32 = 1_000;

/// A log entry.
pub(super) fn entry(input: &[u8]) -> Result<(), String> {
    let read = decode_entry(input).map_err(text)?;
    assert_eq!(decode_entry(&encode_entry(&read)), Ok(read), "what is written is not what was read");
    Ok(())
}

/// A snapshot of the state.
pub(super) fn snapshot(input: &[u8]) -> Result<(), String> {
    let read = decode_state(input).map_err(text)?;
    same_again(&read);
    Ok(())
}

/// A state, and entries to apply to it.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct History {
    /// Empty: the state before the first entry.
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) snapshot: Vec<u8>,
    #[prost(bytes = "vec", repeated, tag = "2")]
    pub(crate) entries: Vec<Vec<u8>>,
}

/// `State::apply` is total: whatever entry meets whatever state is taken or refused, and what is refused changes
/// nothing but the index applied.
pub(super) fn apply(input: &[u8]) -> Result<(), String> {
    let wire = History::decode(input).map_err(text)?;
    let mut state =
        if wire.snapshot.is_empty() { State::new() } else { decode_state(&wire.snapshot).map_err(text)? };
    let mut wrong = None;
    for bytes in &wire.entries {
        let entry = match decode_entry(bytes) {
            Ok(entry) if !is_large(&entry) => entry,
            Ok(_) => continue,
            Err(why) => {
                wrong = wrong.or(Some(why));
                continue;
            }
        };
        let before = state.clone();
        let index = LogIndex::new(state.applied().get().saturating_add(1));
        let applied = state.apply(index, &entry);
        assert_eq!(state.applied(), index);
        if let Err(refusal) = &applied.outcome {
            assert!(!refusal.why.to_string().is_empty());
            assert!(applied.events.is_empty(), "a refused entry tells of changes");
            let mut untouched = before.clone();
            untouched.skip(index);
            assert!(untouched == state, "a refused entry changed the state: {entry:?}");
        }
        let mut replica = before;
        assert!(replica.apply(index, &entry) == applied && replica == state, "two replicas differ");
    }
    same_again(&state);
    wrong.map_or(Ok(()), |why: DecodeError| Err(why.to_string()))
}

fn is_large(entry: &Entry) -> bool {
    entry.commands.iter().any(|command| match command {
        Command::CreateKeyspace { partitions, .. } => partitions.get() > MAX_PARTITIONS,
        _ => false,
    })
}

/// A state can be written and read again, and is the same; its bytes are too.
fn same_again(state: &State) {
    let bytes = encode_state(state);
    let again = decode_state(&bytes);
    assert!(again.as_ref() == Ok(state), "what is written is not what was read: {:?}", again.err());
    assert!(again.is_ok_and(|again| encode_state(&again) == bytes), "one state has two snapshots");
}

fn text(error: impl ToString) -> String {
    error.to_string()
}
