//! What the errors of an object store mean to a fence.

use super::ids::CommitId;
use super::place::Place;
use crate::{FenceError, FencingToken};
use object_store::Error;
use std::sync::Arc;

pub(super) fn unfit(why: &str) -> FenceError {
    FenceError::Unfit { why: why.into() }
}

/// An error while nothing was under way that could still take effect: either it never will work, or it may later.
pub(super) fn nothing_sent(doing: &'static str) -> impl FnOnce(Error) -> FenceError {
    move |error| match NotAllowed::of(&error) {
        Some(no) => no.unfit(doing),
        None if never(&error) => unfit(&format!("{doing}: {}", shown(&error.to_string()))),
        None => FenceError::busy(doing, error),
    }
}

/// Whether the store will say the same however often it is asked.
pub(super) fn never(error: &Error) -> bool {
    matches!(
        error,
        Error::NotImplemented { .. }
            | Error::NotSupported { .. }
            | Error::InvalidPath { .. }
            | Error::PermissionDenied { .. }
            | Error::Unauthenticated { .. }
            | Error::UnknownConfigurationKey { .. }
    )
}

/// The store did not accept the credentials, or not for this. It is told without the store's own words: the body of such an
/// answer can repeat the key's id, the session's token and the signature.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the store refused the credentials ({0})")]
pub(super) struct NotAllowed(String);

impl NotAllowed {
    /// The refusal that an error is, when it is one.
    pub(super) fn of(error: &Error) -> Option<NotAllowed> {
        const FORBIDDEN: &str = "403 Forbidden";
        const UNAUTHORIZED: &str = "401 Unauthorized";
        let text = error.to_string();
        let status = match error {
            Error::PermissionDenied { .. } => FORBIDDEN,
            Error::Unauthenticated { .. } => UNAUTHORIZED,
            // Of a list the library tells it in words only.
            Error::Generic { .. } if text.contains("status code: 403") => FORBIDDEN,
            Error::Generic { .. } if text.contains("status code: 401") => UNAUTHORIZED,
            _ => return None,
        };
        Some(NotAllowed(match code(&text) {
            Some(code) => format!("{status}, {code}"),
            None => status.into(),
        }))
    }

    pub(super) fn unfit(&self, doing: &'static str) -> FenceError {
        unfit(&format!(
            "{doing}: {self}: look whether they have expired, whether they may get, put and list below this root, and whether \
             this machine's clock is right"
        ))
    }
}

/// The code in an answer of S3's kind, such as `AccessDenied`.
fn code(answer: &str) -> Option<&str> {
    let (code, _) = answer.split_once("<Code>")?.1.split_once("</Code>")?;
    (code.len() <= 60 && code.bytes().all(|b| b.is_ascii_alphanumeric())).then_some(code)
}

/// Whether the answer is to the only attempt. Behind it there may be an earlier one, which the library sent again, and
/// whose outcome nobody knows. It tells in its text only: an unknown text counts as several.
pub(super) fn first_attempt(error: &Error) -> bool {
    let (Error::PermissionDenied { source, .. } | Error::Unauthenticated { source, .. }) = error else {
        return false;
    };
    let text = source.to_string();
    let head = text.strip_prefix("Error performing ").and_then(|rest| Some(rest.split_once(" - ")?.0));
    head.is_some_and(|head| head.contains(" in ") && !head.contains("retries"))
}

/// Whether it comes from a local folder, where no answer is lost on the way: what it failed at may be the sync *after* the
/// object was put. The object is seen then, and a power cut may take it away.
pub(super) fn in_a_folder(error: &Error) -> bool {
    matches!(error, Error::Generic { store: "LocalFileSystem", .. })
}

/// What an error says as the cause of another, without anything secret.
pub(super) fn cause(error: Error) -> Arc<dyn std::error::Error + Send + Sync> {
    match NotAllowed::of(&error) {
        Some(no) => Arc::new(no),
        None => Arc::new(error),
    }
}

/// A text from outside for a message: escaped, and cut where it is long.
pub(super) fn shown(text: &str) -> String {
    text.chars().take(300).flat_map(char::escape_default).collect::<String>().replace("\\\"", "\"")
}

/// Whether a commit took effect is not known, and it may do so yet. It is the source of a [`FenceError::Store`].
///
/// It is what [`ObjectFence::resolve`](super::ObjectFence::resolve) needs to find out, now or after a restart of the store.
#[derive(Clone, Debug, thiserror::Error)]
#[error("commit {commit} of {} as number {number} was sent, and the store did not say what became of it", .place.shown())]
pub struct UnknownCommit {
    pub(super) place: Place,
    pub(super) number: u64,
    pub(super) commit: CommitId,
    pub(super) tokens: Vec<FencingToken>,
    #[source]
    pub(super) cause: Arc<dyn std::error::Error + Send + Sync>,
}

impl UnknownCommit {
    /// The unknown commit that an error is about, when it is about one.
    pub fn of(error: &FenceError) -> Option<&UnknownCommit> {
        match error {
            FenceError::Store { source, .. } => source.downcast_ref(),
            _ => None,
        }
    }

    /// Its id.
    pub fn commit(&self) -> CommitId {
        self.commit
    }

    /// The number it has when it took effect.
    pub fn number(&self) -> u64 {
        self.number
    }
}

/// What became of a commit. Made by [`ObjectFence::resolve`](super::ObjectFence::resolve).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// It took effect: it is in the chain. In a local folder that could not be synced, a power cut may still take it away.
    Committed,
    /// It did not, and cannot any more: another commit has its number.
    Refused,
    /// It did not yet, and may still: it can be on its way. Whatever is committed next, a raise say, decides it.
    Open,
    /// The manifest no longer tells: it remembers its last 256 commits ([`RECENT_COMMITS`](super::RECENT_COMMITS)).
    Forgotten,
}

/// The write named the state it rests on, and that is no longer there. It is the source of a [`FenceError::Busy`]: read,
/// decide and write again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the write rests on what commit {read} left, and by now there is commit {found}")]
pub struct Moved {
    pub(super) read: u64,
    pub(super) found: u64,
}

impl Moved {
    /// The move that an error is about, when it is about one.
    pub fn of(error: &FenceError) -> Option<&Moved> {
        match error {
            FenceError::Busy { source, .. } => source.downcast_ref(),
            _ => None,
        }
    }
}

/// Others were faster, again and again.
#[derive(Debug, thiserror::Error)]
#[error("{0} times another commit came first")]
pub(super) struct Contended(pub(super) usize);

/// The list of the store is behind its objects.
#[derive(Debug, thiserror::Error)]
#[error("the store lists manifests as the newest that were replaced long ago")]
pub(super) struct StaleList;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FenceErrorKind;

    #[test]
    fn t21_before_anything_was_sent_nothing_is_unknown() {
        let source = || -> Box<dyn std::error::Error + Send + Sync> { "x\u{1b}y".into() };
        let kind = |error: Error| nothing_sent("reading")(error).kind();
        assert_eq!(kind(Error::Generic { store: "S3", source: source() }), FenceErrorKind::Busy);
        assert_eq!(kind(Error::NotFound { path: "p".into(), source: source() }), FenceErrorKind::Busy);
        for error in [
            Error::PermissionDenied { path: "p".into(), source: source() },
            Error::Unauthenticated { path: "p".into(), source: source() },
            Error::NotImplemented { operation: "put".into(), implementer: "x".into() },
        ] {
            let error = nothing_sent("reading")(error);
            assert_eq!(error.kind(), FenceErrorKind::Unfit);
            assert!(!error.to_string().contains('\u{1b}'), "{error}");
        }
    }
}
