//! What a service says instead of doing what it was asked.

use super::wire;
use crate::header::HeaderError;
use crate::{FenceError, FenceErrorKind, Fenced, FencingToken};
use http::StatusCode;
use ringfence_core::ids::{ClusterId, Epoch};

/// A refusal, on the side that refuses and on the side that reads it.
///
/// It says why, whose token it was, what the fence has seen, and who owns the scope now where the service knows. Nothing in it is
/// secret; see [`super`] for what a token is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub(super) reason: Reason,
    pub(super) token: Option<FencingToken>,
    pub(super) highest: Option<Epoch>,
    pub(super) cluster: Option<ClusterId>,
    pub(super) owner: Option<String>,
    pub(super) detail: String,
}

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident: $text:literal, $http:literal, $grpc:literal, $title:literal;)*) => {
        /// Why a request was refused.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Reason {
            $($(#[$doc])* $name,)*
        }

        impl Reason {
            /// All of them.
            pub const ALL: &'static [Reason] = &[$(Reason::$name,)*];

            /// As it stands in the header.
            pub const fn as_str(self) -> &'static str {
                match self { $(Reason::$name => $text,)* }
            }

            /// The status in HTTP.
            pub const fn http_status(self) -> u16 {
                match self { $(Reason::$name => $http,)* }
            }

            /// The code in gRPC.
            pub const fn grpc_code(self) -> i32 {
                match self { $(Reason::$name => $grpc,)* }
            }

            /// In a few words, the same for every refusal of this reason.
            pub const fn title(self) -> &'static str {
                match self { $(Reason::$name => $title,)* }
            }
        }
    };
}

const INVALID_ARGUMENT: i32 = 3;
const UNKNOWN: i32 = 2;
const FAILED_PRECONDITION: i32 = 9;
const INTERNAL: i32 = 13;
const UNAVAILABLE: i32 = 14;

reasons! {
    /// The caller was replaced: a higher epoch was seen.
    Fenced: "fenced", 412, 9, "the owner was replaced";
    /// The token is of another cluster than the fence.
    WrongCluster: "wrong-cluster", 412, 9, "the token is of another cluster";
    /// The token is of another scope than what is written.
    WrongScope: "wrong-scope", 412, 9, "the token is of another scope";
    /// Nobody has raised the fence of the scope.
    NotRaised: "not-raised", 412, 9, "the fence was never raised";
    /// No coordinator grants such an epoch.
    Implausible: "implausible", 412, 9, "no coordinator grants this epoch";
    /// The epoch was used by another session.
    OtherSession: "other-session", 412, 9, "the epoch is another session's";
    /// The storage was replaced, and may have forgotten a newer owner.
    Replaced: "replaced", 412, 9, "the storage was replaced";
    /// There is no token.
    Unstamped: "unstamped", 428, 9, "there is no fencing token";
    /// What is there is not what the header has.
    Malformed: "malformed", 400, 3, "the header is not a list of fencing tokens";
    /// The header is longer than any that is read.
    TooLong: "too-long", 431, 3, "the header is too long";
    /// The storage did nothing; the same request may succeed later.
    Busy: "busy", 503, 14, "the storage was busy and did nothing";
    /// Whether it was done is not known.
    Unknown: "unknown-outcome", 500, 2, "whether it was done is unknown";
    /// The fence's storage is damaged, not installed, or not fit; nothing was done.
    Broken: "fence-broken", 500, 13, "the fence cannot be relied on, and nothing was done";
    /// The handler has answered without going through the fence; what it did was not fenced.
    Unguarded: "unguarded", 500, 13, "the handler did not write through the fence";
}

const _: () = {
    // The table has numbers, so that it can be read; these are their names.
    assert!(
        Reason::Fenced.grpc_code() == FAILED_PRECONDITION
            && Reason::Malformed.grpc_code() == INVALID_ARGUMENT
    );
    assert!(Reason::Busy.grpc_code() == UNAVAILABLE && Reason::Unknown.grpc_code() == UNKNOWN);
    assert!(Reason::Broken.grpc_code() == INTERNAL && Reason::Unguarded.grpc_code() == INTERNAL);
};

impl Reason {
    pub(super) fn read(text: &str) -> Option<Reason> {
        Reason::ALL.iter().copied().find(|reason| reason.as_str() == text)
    }

    /// Whether the same request, with the same token, may succeed later and is safe to repeat.
    pub fn is_retryable(self) -> bool {
        self == Reason::Busy
    }

    /// Whether it is certain that nothing was done.
    pub fn nothing_was_done(self) -> bool {
        !matches!(self, Reason::Unknown | Reason::Unguarded)
    }
}

impl Refusal {
    pub(crate) fn new(reason: Reason, detail: impl Into<String>) -> Refusal {
        Refusal { reason, token: None, highest: None, cluster: None, owner: None, detail: detail.into() }
    }

    /// Reads a refusal out of the headers of an answer, or of the metadata of a gRPC status. `None` when it is not one,
    /// or makes no sense: a refusal as fenced has two epochs, of which the second is higher.
    ///
    /// In gRPC they are the first headers, or the trailers.
    pub fn from_headers(headers: &http::HeaderMap) -> Option<Refusal> {
        wire::read(headers)
    }

    /// The same in other words.
    #[cfg(feature = "gateway")]
    pub(crate) fn with_detail(mut self, detail: String) -> Refusal {
        self.detail = detail;
        self
    }

    /// Reads it out of the details of a gRPC status (`grpc-status-details-bin`, decoded), where a hop has dropped the rest.
    pub fn from_details(details: &[u8]) -> Option<Refusal> {
        wire::read_details(details)
    }

    /// Why.
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// The token that was refused, when the refusal is about one.
    pub fn token(&self) -> Option<&FencingToken> {
        self.token.as_ref()
    }

    /// The highest epoch that the fence has seen.
    pub fn highest(&self) -> Option<Epoch> {
        self.highest
    }

    /// Who owns the scope now, as the service believes.
    pub fn owner(&self) -> Option<&str> {
        self.owner.as_deref()
    }

    /// For people: what happened and what to do.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// The refusal of a replaced owner, as every fence of this crate has it.
    pub fn fenced(&self) -> Option<Fenced> {
        let token = self.token.clone().filter(|_| self.reason == Reason::Fenced)?;
        Some(Fenced::new(token, self.highest?))
    }

    /// The same as a fence would have said it. What cannot be told apart from outside is [`FenceError::Unfit`] where nothing
    /// was done, and [`FenceError::Store`] where that is not known.
    pub fn to_fence_error(&self) -> FenceError {
        let unfit = || FenceError::Unfit { why: format!("the service refused: {}", self.detail) };
        let said = || std::io::Error::other(self.detail.clone());
        match (self.reason, &self.token) {
            (Reason::Fenced, _) => self.fenced().map_or_else(unfit, FenceError::from),
            (Reason::WrongCluster, Some(token)) => match &self.cluster {
                Some(bound) => {
                    FenceError::WrongCluster { presented: token.cluster().clone(), bound: bound.clone() }
                }
                None => unfit(),
            },
            (Reason::NotRaised, Some(token)) => FenceError::NotRaised { token: token.clone() },
            (Reason::Replaced, Some(token)) => FenceError::Replaced { token: token.clone() },
            (Reason::Implausible, Some(token)) => FenceError::Implausible {
                scope: token.scope().clone(),
                from: self.highest,
                to: token.epoch(),
            },
            (Reason::Unstamped, _) => FenceError::Unstamped,
            (Reason::Busy, _) => FenceError::busy("asking the service", said()),
            (Reason::Unknown | Reason::Unguarded, _) => FenceError::store("asking the service", said()),
            _ => unfit(),
        }
    }

    /// Adds who owns the scope, in at most 255 visible characters; anything else is left out.
    #[must_use]
    pub fn with_owner(mut self, owner: &str) -> Refusal {
        let fits = (1..=255).contains(&owner.len()) && owner.bytes().all(|b| b.is_ascii_graphic());
        self.owner = fits.then(|| owner.to_string());
        self
    }

    /// The answer in HTTP: the status, the headers, and a problem in JSON (RFC 9457) as its body.
    pub fn http_response<B: From<String>>(&self) -> http::Response<B> {
        wire::http_response(self).map(B::from)
    }

    /// The headers that carry it. In gRPC they are metadata.
    pub fn headers(&self) -> http::HeaderMap {
        wire::headers(self)
    }

    /// The details of a gRPC status: a `google.rpc.Status` with a `google.rpc.ErrorInfo` of the domain `ringfence`, which most
    /// clients read without knowing of this crate.
    pub fn grpc_details(&self) -> Vec<u8> {
        super::details::encode(self)
    }

    pub(super) fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.reason.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }
}

impl From<&FenceError> for Refusal {
    fn from(error: &FenceError) -> Refusal {
        let reason = match error.kind() {
            FenceErrorKind::Fenced => Reason::Fenced,
            FenceErrorKind::WrongCluster => Reason::WrongCluster,
            FenceErrorKind::WrongScope => Reason::WrongScope,
            FenceErrorKind::NotRaised => Reason::NotRaised,
            FenceErrorKind::Implausible => Reason::Implausible,
            FenceErrorKind::OtherSession => Reason::OtherSession,
            FenceErrorKind::Replaced => Reason::Replaced,
            FenceErrorKind::Unstamped => Reason::Unstamped,
            FenceErrorKind::Busy => Reason::Busy,
            FenceErrorKind::Store => Reason::Unknown,
            FenceErrorKind::Corrupt
            | FenceErrorKind::NotDurable
            | FenceErrorKind::NotInstalled
            | FenceErrorKind::Unfit => Reason::Broken,
        };
        let mut refusal = Refusal::new(reason, error.to_string());
        match error {
            FenceError::Fenced(fenced) => {
                refusal.token = Some(fenced.token().clone());
                refusal.highest = Some(fenced.highest());
            }
            FenceError::WrongScope { token, .. }
            | FenceError::NotRaised { token }
            | FenceError::OtherSession { token, .. }
            | FenceError::Replaced { token } => refusal.token = Some(token.clone()),
            FenceError::Implausible { from, .. } => refusal.highest = *from,
            FenceError::WrongCluster { bound, .. } => refusal.cluster = Some(bound.clone()),
            _ => {}
        }
        refusal
    }
}

impl From<FenceError> for Refusal {
    fn from(error: FenceError) -> Refusal {
        Refusal::from(&error)
    }
}

impl From<&HeaderError> for Refusal {
    fn from(error: &HeaderError) -> Refusal {
        let reason = match error {
            HeaderError::TooLong(_) => Reason::TooLong,
            _ => Reason::Malformed,
        };
        Refusal::new(reason, error.to_string())
    }
}

impl Refusal {
    /// The refusal of one of these tokens, where the error does not name it itself.
    pub(crate) fn about(error: &FenceError, tokens: &[FencingToken]) -> Refusal {
        let mut refusal = Refusal::from(error);
        if refusal.token.is_none() {
            refusal.token = match error {
                FenceError::Implausible { scope, .. } => {
                    tokens.iter().find(|token| token.scope() == scope).cloned()
                }
                FenceError::WrongCluster { presented, .. } => {
                    tokens.iter().find(|token| token.cluster() == presented).cloned()
                }
                _ => None,
            };
        }
        refusal
    }
}
