//! A client of etcd over one connection at a time, so that whoever writes knows which life of which server takes it.

use super::kv::{EtcdError, EtcdKv};
use super::txn::{Txn, TxnReply};
use super::wire::{AUTHENTICATE, AuthenticateRequest, AuthenticateResponse, TXN, TxnRequest, TxnResponse};
use crate::FenceError;
use hyper_util::rt::TokioIo;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::TcpStream;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Request, Status};

/// How long connecting may take, and a call, unless an [`Endpoint`] says otherwise.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// Numbers connections across the process; 0 is left to libraries that cannot tell theirs.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// A connection to one of an etcd cluster's members; to the next one when that fails. Clones share it.
///
/// Nothing is sent twice, and no call is moved to another connection.
#[derive(Clone)]
pub struct EtcdConnection {
    shared: Arc<Shared>,
    line: Option<Line>,
}

struct Shared {
    endpoints: Vec<Endpoint>,
    login: Option<(String, String)>,
    turn: AtomicUsize,
    newest: Mutex<Option<Line>>,
}

/// A channel that never connects again.
#[derive(Clone)]
struct Line {
    number: u64,
    channel: Channel,
    token: Option<MetadataValue<Ascii>>,
}

/// A channel's connection has ended, and it gets no second one.
#[derive(Debug, thiserror::Error)]
#[error("this connection has ended")]
struct Ended;

impl EtcdConnection {
    /// To members at these addresses, such as `http://10.0.0.1:2379`. Nothing is connected yet.
    ///
    /// # Errors
    /// [`FenceError::Unfit`] without any, or for what is no address.
    pub fn to<A: AsRef<str>>(addresses: impl IntoIterator<Item = A>) -> Result<EtcdConnection, FenceError> {
        let endpoint = |address: A| {
            let text = address.as_ref();
            let endpoint = Endpoint::from_shared(text.to_string()).map_err(|error| FenceError::Unfit {
                why: format!("\"{}\" is no address of etcd: {error}", super::kv::shown(text)),
            })?;
            Ok(endpoint.connect_timeout(CONNECT_WITHIN).timeout(ANSWER_WITHIN))
        };
        EtcdConnection::over(addresses.into_iter().map(endpoint).collect::<Result<Vec<_>, FenceError>>()?)
    }

    /// To members with settings of the caller's own: time limits, and TLS, for which the program turns on one of tonic's
    /// features. An endpoint without a time limit may wait for ever.
    ///
    /// # Errors
    /// [`FenceError::Unfit`] without any.
    pub fn over(endpoints: impl IntoIterator<Item = Endpoint>) -> Result<EtcdConnection, FenceError> {
        let endpoints: Vec<Endpoint> = endpoints.into_iter().collect();
        if endpoints.is_empty() {
            return Err(FenceError::Unfit { why: "no address of etcd was given".into() });
        }
        let shared = Shared { endpoints, login: None, turn: AtomicUsize::new(0), newest: Mutex::new(None) };
        Ok(EtcdConnection { shared: Arc::new(shared), line: None })
    }

    /// The same, as a user of etcd's. Each new connection logs in.
    #[must_use]
    pub fn logged_in_as(self, name: &str, password: &str) -> EtcdConnection {
        let shared = Shared {
            endpoints: self.shared.endpoints.clone(),
            login: Some((name.into(), password.into())),
            turn: AtomicUsize::new(0),
            newest: Mutex::new(None),
        };
        EtcdConnection { shared: Arc::new(shared), line: None }
    }

    async fn connect(&self) -> Result<Line, EtcdError> {
        let count = self.shared.endpoints.len();
        let first = self.shared.turn.load(Ordering::Relaxed);
        let mut last = None;
        for turn in first..first + count {
            self.shared.turn.store(turn % count, Ordering::Relaxed);
            let endpoint = &self.shared.endpoints[turn % count];
            match once(endpoint).await {
                Ok(channel) => return self.log_in(channel).await,
                Err(error) => last = Some(error),
            }
        }
        // `over` has seen to it that there is one.
        let why: Arc<dyn std::error::Error + Send + Sync> = match last {
            Some(error) => Arc::new(error),
            None => Arc::new(Ended),
        };
        Err(EtcdError::NothingHappened(why))
    }

    async fn log_in(&self, channel: Channel) -> Result<Line, EtcdError> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let Some((name, password)) = &self.shared.login else {
            return Ok(Line { number, channel, token: None });
        };
        let ask = AuthenticateRequest { name: name.clone(), password: password.clone() };
        let answer: AuthenticateResponse = match call(channel.clone(), AUTHENTICATE, None, ask).await {
            Ok(answer) => answer,
            // Logging in changes nothing, so whatever went wrong, nothing happened.
            Err(status) => {
                return Err(match of(&status) {
                    EtcdError::Unknown(why) => EtcdError::NothingHappened(why),
                    known => known,
                });
            }
        };
        let mut token: MetadataValue<Ascii> = answer
            .token
            .parse()
            .map_err(|_| EtcdError::Never("etcd's token of the login is no header".into()))?;
        token.set_sensitive(true);
        Ok(Line { number, channel, token: Some(token) })
    }

    /// The next call begins a new connection.
    fn hang_up(&mut self) {
        let Some(line) = self.line.take() else { return };
        let mut newest = self.shared.newest();
        if newest.as_ref().is_some_and(|newest| newest.number == line.number) {
            *newest = None;
            self.shared.turn.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Shared {
    fn newest(&self) -> MutexGuard<'_, Option<Line>> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EtcdKv for EtcdConnection {
    async fn connection(&mut self) -> Result<u64, EtcdError> {
        if self.line.is_none() {
            let newest = self.shared.newest().clone();
            let line = match newest {
                Some(line) => line,
                None => {
                    let line = self.connect().await?;
                    *self.shared.newest() = Some(line.clone());
                    line
                }
            };
            self.line = Some(line);
        }
        Ok(self.line.as_ref().map_or(0, |line| line.number))
    }

    async fn txn(&mut self, txn: Txn) -> Result<TxnReply, EtcdError> {
        let Some(line) = self.line.clone() else {
            return Err(EtcdError::NothingHappened(Arc::new(Ended)));
        };
        let answer: Result<TxnResponse, Status> =
            call(line.channel, TXN, line.token.as_ref(), TxnRequest::from(txn)).await;
        match answer {
            Ok(answer) => Ok(answer.into()),
            Err(status) => {
                let error = of(&status);
                // A member that is cut off, stopping, or no longer knows the login: the next call goes to another.
                if !matches!(error, EtcdError::Never(_)) {
                    self.hang_up();
                }
                Err(error)
            }
        }
    }
}

/// Connects once. What the channel would do when the connection ends, connecting again, is refused.
async fn once(endpoint: &Endpoint) -> Result<Channel, tonic::transport::Error> {
    let used = Arc::new(AtomicBool::new(false));
    let connector = tower::service_fn(move |uri: Uri| {
        let first = !used.swap(true, Ordering::Relaxed);
        async move {
            if !first {
                return Err(io::Error::other(Ended));
            }
            let default = if uri.scheme_str() == Some("https") { 443 } else { 80 };
            // An address of IPv6 is in brackets here, and not where it is looked up.
            let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
            let stream = TcpStream::connect((host, uri.port_u16().unwrap_or(default))).await?;
            stream.set_nodelay(true)?;
            Ok(TokioIo::new(stream))
        }
    });
    endpoint.connect_with_connector(connector).await
}

async fn call<M, R>(
    channel: Channel,
    method: &'static str,
    token: Option<&MetadataValue<Ascii>>,
    message: M,
) -> Result<R, Status>
where
    M: prost::Message + Send + Sync + 'static,
    R: prost::Message + Default + Send + Sync + 'static,
{
    let mut grpc = Grpc::new(channel).max_decoding_message_size(usize::MAX);
    grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let mut request = Request::new(message);
    if let Some(token) = token {
        request.metadata_mut().insert("token", token.clone());
    }
    let codec = tonic_prost::ProstCodec::<M, R>::default();
    Ok(grpc.unary(request, PathAndQuery::from_static(method), codec).await?.into_inner())
}

fn of(status: &Status) -> EtcdError {
    // The server's words for a request; a client of tonic has others for an answer.
    if status.message().starts_with("grpc: received message larger than max") {
        return EtcdError::Never(format!("the transaction is too large: {}", status.message()));
    }
    EtcdError::of_status(status.code() as i32, status.message())
}

impl fmt::Debug for EtcdConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let uris: Vec<String> = self.shared.endpoints.iter().map(|e| e.uri().to_string()).collect();
        let user = self.shared.login.as_ref().map(|(name, _)| name);
        f.debug_struct("EtcdConnection").field("to", &uris).field("user", &user).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_not_shown_and_an_address_has_to_be_one() {
        let etcd = EtcdConnection::to(["http://127.0.0.1:2379"]).unwrap().logged_in_as("app", "a secret");
        let text = format!("{etcd:?}");
        assert!(text.contains("2379") && text.contains("app") && !text.contains("secret"), "{text}");
        assert!(EtcdConnection::to(["not an address"]).is_err());
        assert!(EtcdConnection::to(Vec::<String>::new()).is_err());
        let ask = AuthenticateRequest { name: "app".into(), password: "a secret".into() };
        assert!(!format!("{ask:?}").contains("secret"));
    }
}
