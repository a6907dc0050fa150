//! The calls to other nodes.

use super::wire::{Adopt, Hello};
use crate::raft::{ClusterSecret, Dialer};
use ringfence_api::v1;
use ringfence_api::v1::formation_client::FormationClient;
use ringfence_core::ids::NodeId;
use std::sync::Arc;
use std::time::Duration;
use tonic::{Code, Request, Status};

/// How long a node may take to answer. It flushes a small file at most.
const PATIENCE: Duration = Duration::from_secs(2);

/// The largest message between nodes that form a cluster: a few dozen addresses.
pub(super) const MESSAGE_BYTES: usize = 64 << 10;

/// Calls other nodes.
pub(super) struct Peers {
    node: NodeId,
    secret: Option<ClusterSecret>,
    dialer: Arc<dyn Dialer>,
}

/// What a node answered to Hello.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) hello: Hello,
    pub(super) refusal: v1::FormationRefusal,
    pub(super) why: String,
}

impl Peers {
    pub(super) fn new(node: NodeId, secret: Option<ClusterSecret>, dialer: Arc<dyn Dialer>) -> Peers {
        Peers { node, secret, dialer }
    }

    pub(super) fn secret(&self) -> Option<&ClusterSecret> {
        self.secret.as_ref()
    }

    /// Says who calls and asks who answers.
    ///
    /// # Errors
    /// In words: it cannot be reached, or is not the node that is meant.
    pub(super) async fn hello(&self, from: &Hello, to: NodeId, address: &str) -> Result<Answer, String> {
        let request = v1::FormationHelloRequest { from: Some(from.into()), to: to.get() };
        let mut client = self.client(to, address)?;
        let call = client.hello(self.request(request));
        let answer = answered(call, to, address).await?;
        let wrong =
            |why: String| format!("{to} at {address} answers what this version does not understand ({why})");
        let answered_by = answer.answered_by.ok_or_else(|| wrong("answered_by is missing".to_owned()))?;
        let hello = Hello::try_from(answered_by).map_err(|e| wrong(e.to_string()))?;
        let refusal = v1::FormationRefusal::try_from(answer.refusal).map_err(|e| wrong(e.to_string()))?;
        Ok(Answer { hello, refusal, why: shown(&answer.why) })
    }

    /// Asks a node to belong to a cluster; it does, durably, when this returns.
    ///
    /// # Errors
    /// In words: it cannot be reached, or refuses.
    pub(super) async fn adopt(&self, adopt: &Adopt, address: &str) -> Result<(), String> {
        let mut client = self.client(adopt.to, address)?;
        let call = client.adopt(self.request(adopt.to_wire()));
        answered(call, adopt.to, address).await.map(|_| ())
    }

    /// A new connection each time: the name is resolved anew, and these calls are few.
    fn client(
        &self,
        to: NodeId,
        address: &str,
    ) -> Result<FormationClient<tonic::transport::Channel>, String> {
        let channel = self.dialer.dial(to, address).map_err(|e| e.to_string())?;
        let client = FormationClient::new(channel);
        Ok(client.max_decoding_message_size(MESSAGE_BYTES).max_encoding_message_size(MESSAGE_BYTES))
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        ClusterSecret::show(self.secret.as_ref(), request.metadata_mut());
        request.set_timeout(PATIENCE);
        request
    }

    /// This node's id.
    pub(super) fn node(&self) -> NodeId {
        self.node
    }
}

async fn answered<T>(
    call: impl Future<Output = Result<tonic::Response<T>, Status>>,
    to: NodeId,
    address: &str,
) -> Result<T, String> {
    let status = match tokio::time::timeout(PATIENCE, call).await {
        Ok(Ok(response)) => return Ok(response.into_inner()),
        Ok(Err(status)) => status,
        Err(_) => return Err(format!("{to} at {address} does not answer")),
    };
    Err(match status.code() {
        Code::Unimplemented => format!("what answers for {to} at {address} is no coordinator node"),
        Code::Unavailable | Code::Unknown | Code::Cancelled | Code::DeadlineExceeded => {
            format!("{to} at {address} cannot be reached ({})", reason(&status))
        }
        _ => format!("{to} at {address} refuses: {}", shown(status.message())),
    })
}

/// The innermost reason: "connection refused" says more than "transport error".
fn reason(status: &Status) -> String {
    let mut reason = status.message().to_owned();
    let mut source = std::error::Error::source(status);
    while let Some(error) = source {
        reason = error.to_string();
        source = error.source();
    }
    shown(&reason)
}

/// Foreign text, escaped and cut.
fn shown(text: &str) -> String {
    text.chars().take(500).flat_map(|c| c.escape_debug().collect::<Vec<_>>()).collect()
}
