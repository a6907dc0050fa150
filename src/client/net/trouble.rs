//! What a try of a call met instead of its answer.

use ringfence_api::{ErrorKind, Failure};
use std::error::Error as StdError;
use tonic::Status;

/// Why a try did not succeed. The difference that matters: may the call have arrived?
#[derive(Clone, Debug)]
pub(crate) enum Trouble {
    /// There was no connection, so the call never left. Why.
    NotSent(String),
    /// The call left and no answer came. Why.
    Silent(String),
    /// Something answered that is no coordinator, or none of this version.
    Foreign(Failure),
    /// A coordinator answered.
    Answer(Failure),
}

impl Trouble {
    /// What this status means.
    pub(crate) fn of(status: &Status) -> Trouble {
        let failure = Failure::decode(status);
        // Details that name a kind from the future still come from a coordinator.
        if !status.details().is_empty() {
            return Trouble::Answer(failure);
        }
        // What a server says has no source here. What broke in between has one, and a code that says little: a GOAWAY of
        // a proxy that counts pings is "resource exhausted", like a message above the limit.
        let broke = failure.kind() == ErrorKind::Transport || status.source().is_some();
        match failure.kind() {
            _ if broke && never_left(status) => Trouble::NotSent(root_cause(status)),
            _ if broke => Trouble::Silent(root_cause(status)),
            // tonic's own: a message is above the limit. Another node would send the same.
            ErrorKind::Limit => Trouble::Answer(failure),
            _ => Trouble::Foreign(failure),
        }
    }

    /// Whether a connection was ended because it asked for too much; with clients as busy as ours that means their pings.
    pub(crate) fn is_about_pings(status: &Status) -> bool {
        let calm = |cause: &(dyn StdError + 'static)| {
            let error = cause.downcast_ref::<h2::Error>();
            error.is_some_and(|error| {
                error.is_remote() && error.reason() == Some(h2::Reason::ENHANCE_YOUR_CALM)
            })
        };
        causes(status).any(calm)
    }

    /// In a few words, for the list of what was tried.
    pub(crate) fn reason(&self) -> &str {
        match self {
            Trouble::NotSent(why) | Trouble::Silent(why) => why,
            Trouble::Foreign(failure) | Trouble::Answer(failure) => failure.message(),
        }
    }
}

/// tonic marks a failed connect by this type, wherever it stands in the chain.
fn never_left(status: &Status) -> bool {
    causes(status).any(<dyn StdError>::is::<tonic::ConnectError>)
}

/// The end of the chain is what the operating system said: "Connection refused" rather than "transport error".
fn root_cause(status: &Status) -> String {
    let cause = causes(status).last().map_or_else(|| status.message().to_owned(), ToString::to_string);
    let cut: String = cause.chars().filter(|c| !c.is_control()).take(160).collect();
    if cut.is_empty() { "the connection broke".to_owned() } else { cut }
}

fn causes(status: &Status) -> impl Iterator<Item = &(dyn StdError + 'static)> {
    std::iter::successors(status.source(), |&cause| cause.source())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t43_a_call_that_may_have_arrived_is_told_from_one_that_never_left() {
        let refused = std::io::Error::from_raw_os_error(111);
        let status = Status::from_error(Box::new(tonic::ConnectError(Box::new(refused))));
        assert!(matches!(Trouble::of(&status), Trouble::NotSent(why) if why.contains("refused")));
        assert!(matches!(Trouble::of(&Status::unavailable("broken pipe")), Trouble::Silent(_)));
        assert!(matches!(Trouble::of(&Status::unimplemented("")), Trouble::Foreign(_)));
        assert!(matches!(Trouble::of(&Status::out_of_range("too large")), Trouble::Answer(_)));
        assert!(matches!(Trouble::of(&Failure::no_leader().into()), Trouble::Answer(_)));
    }
}
