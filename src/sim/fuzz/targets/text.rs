//! What people and programs write.

use crate::fuzz::scratch;
use ringfence::FencingToken;
use ringfence::fence::{MAX_JUMP, MemoryFence};
use ringfence::ids::{ClusterId, KeyspaceName, LockName, Scope, WorkerId};
use ringfence::net::{Endpoint, Endpoints};
use ringfence_core::ids::Epoch;
use ringfence_core::simulation::{Line, TraceReader};
use ringfence_server::Given;
use ringfence_server::settings::Founders;
use std::cmp::Ordering;
use std::fmt::{Debug, Display};
use std::str::FromStr;

/// A fencing token. Exactly one text means a token.
pub(super) fn token(input: &[u8]) -> Result<(), String> {
    let token: FencingToken = only_text(&String::from_utf8_lossy(input))?;
    assert_eq!(token.order(&token.clone()), Some(Ordering::Equal));
    let at = |number| {
        Epoch::new(number).map(|e| FencingToken::new(token.cluster().clone(), token.scope().clone(), e))
    };
    let number = token.epoch().get();
    for older in [1, number / 2, number - 1].into_iter().filter(|n| (1..number).contains(n)) {
        let older = at(older).expect("it is below an epoch");
        assert_eq!(
            (older.order(&token), token.order(&older)),
            (Some(Ordering::Less), Some(Ordering::Greater))
        );
        // And a fence sees it the same way.
        let fence = MemoryFence::new(token.cluster().clone());
        let first = fence.raise(&older);
        assert_eq!(first.is_ok(), older.epoch().get() <= MAX_JUMP, "{first:?}");
        let raised = fence.raise(&token);
        let from = if first.is_ok() { older.epoch().get() } else { 0 };
        assert_eq!(raised.is_ok(), number - from <= MAX_JUMP, "{raised:?}");
        let (newer, older) = (fence.check(&token).is_ok(), fence.check(&older).is_ok());
        assert_eq!((newer, older), (raised.is_ok(), first.is_ok() && raised.is_err()));
    }
    assert!(token.to_string().ends_with(&token.short().to_string()));
    Ok(())
}

/// Names and scopes. What is one kind of name is a name of each kind.
pub(super) fn name(input: &[u8]) -> Result<(), String> {
    let text = String::from_utf8_lossy(input);
    let keyspace = only_text::<KeyspaceName>(&text);
    let kinds = [
        only_text::<WorkerId>(&text).map(drop),
        only_text::<LockName>(&text).map(drop),
        only_text::<ClusterId>(&text).map(drop),
    ];
    for kind in kinds {
        assert_eq!(kind.is_ok(), keyspace.is_ok(), "{kind:?} {keyspace:?}");
    }
    let scope = only_text::<Scope>(&text);
    assert!(keyspace.is_err() || scope.is_err(), "a text is a name and a scope");
    keyspace
        .map(drop)
        .or_else(|why| scope.map(drop).map_err(|other| if text.contains('/') { other } else { why }))
}

/// A list of endpoints.
pub(super) fn endpoints(input: &[u8]) -> Result<(), String> {
    let text = String::from_utf8_lossy(input);
    let read: Endpoints = text.parse().map_err(|e: ringfence::net::EndpointsError| e.to_string())?;
    assert_eq!(read.to_string().parse().as_ref(), Ok(&read), "what is written is not what was read");
    for endpoint in read.iter() {
        assert_eq!(Endpoint::from_address(endpoint.address()).as_ref(), Ok(endpoint));
    }
    Ok(())
}

/// A trace of a simulation. It begins with its head, and time does not go back.
pub(super) fn trace(input: &[u8]) -> Result<(), String> {
    let (mut reader, mut at, mut head) = (TraceReader::new(), 0, false);
    for text in input.split(|byte| *byte == b'\n') {
        match reader.read(text) {
            Ok(None) => {}
            Ok(Some(Line::Setup(_))) => assert!(!std::mem::replace(&mut head, true), "a second head"),
            Ok(Some(Line::Event(at_ms, _))) => {
                assert!(head && at_ms >= at);
                at = at_ms;
            }
            Err(error) => {
                assert_eq!(error.line, reader.line());
                assert!((1..=text.len() + 1).contains(&error.column), "{error}");
                return Err(error.to_string());
            }
        }
    }
    reader.finish().map_err(|error| error.to_string())
}

/// The list of nodes that form a cluster.
pub(super) fn founders(input: &[u8]) -> Result<(), String> {
    let text = String::from_utf8_lossy(input);
    let read = Founders::parse(text.split(',')).map_err(|e| e.to_string())?;
    assert_eq!(Founders::parse(read.to_string().split(',')).as_ref(), Ok(&read));
    assert_eq!(read.difference(&read), None);
    Ok(())
}

/// A node's file of settings, and the settings as a whole. The file with the secret is left out: it is read from wherever
/// the settings say.
pub(super) fn settings_file(input: &[u8]) -> Result<(), String> {
    let file = scratch::dir().join("node.toml");
    std::fs::write(&file, input).expect("the scratch directory takes a file");
    let mut given = Given::read(&file).map_err(|e| e.to_string())?;
    given.cluster_secret_file = None;
    assert_eq!(given.clone().or(given.clone()), given);
    assert_eq!(given.clone().or(Given::default()), given);
    assert_eq!(Given::default().or(given.clone()), given);
    let settings = given.check().map_err(|e| e.to_string())?;
    assert!(settings.timings.election_min < settings.timings.election_max);
    Ok(())
}

/// Reads a text that, when it is read, is the only one with its meaning.
fn only_text<T>(text: &str) -> Result<T, String>
where
    T: FromStr<Err: Display> + Display + Debug,
{
    let read: T = text.parse().map_err(|e: T::Err| e.to_string())?;
    assert_eq!(read.to_string(), text);
    Ok(read)
}
