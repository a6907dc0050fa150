//! The only conversion between the library's types and the messages of `raft.proto`, which go over the wire and to disk.
//!
//! Whatever comes in is checked as far as a message can be checked by itself: a field that is missing or out of range is
//! named and refused, because the library takes its input at its word and panics on some that no honest peer sends.

use super::limits;
use super::types::{
    Committed, Data, Entry, LeaderId, LogId, Membership, Payload, Peer, StoredMembership, Types, Vote,
};
use openraft::raft::{
    AppendEntriesRequest, StreamAppendError, StreamAppendResult, TransferLeaderRequest, VoteRequest,
    VoteResponse,
};
use ringfence_api::v1;
use std::collections::BTreeSet;

/// A message that makes no sense, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum WireError {
    #[error("field {0} is missing")]
    Missing(&'static str),
    #[error("field {0} is not acceptable: {1}")]
    Bad(&'static str, String),
}

/// The largest number that a node, a term or an index can have; one more than it never overflows.
const MAX_NUMBER: u64 = (1 << 63) - 1;

fn number(field: &'static str, number: u64) -> Result<u64, WireError> {
    if number > MAX_NUMBER {
        Err(WireError::Bad(field, format!("{number} is out of range")))
    } else {
        Ok(number)
    }
}

pub(super) fn vote_out(vote: &Vote) -> v1::RaftVote {
    v1::RaftVote { term: vote.leader_id.term, node: vote.leader_id.voted_for, committed: vote.committed }
}

pub(super) fn vote_in(vote: Option<v1::RaftVote>) -> Result<Vote, WireError> {
    let vote = vote.ok_or(WireError::Missing("vote"))?;
    let leader_id =
        LeaderId { term: number("vote.term", vote.term)?, voted_for: number("vote.node", vote.node)? };
    Ok(Vote { leader_id, committed: vote.committed })
}

pub(super) fn log_id_out(id: &LogId) -> v1::RaftLogId {
    v1::RaftLogId { term: id.committed_leader_id().term, index: id.index() }
}

pub(super) fn log_id_in(id: &v1::RaftLogId) -> Result<LogId, WireError> {
    Ok(LogId::new(Committed::new(number("log id.term", id.term)?), number("log id.index", id.index)?))
}

fn optional(id: Option<&v1::RaftLogId>) -> Result<Option<LogId>, WireError> {
    id.map(log_id_in).transpose()
}

pub(super) fn entry_out(entry: &Entry) -> v1::RaftEntry {
    use v1::raft_entry::Payload as Out;
    let payload = match &entry.payload {
        Payload::Blank => Out::Blank(v1::RaftBlank {}),
        Payload::Normal(data) => Out::Normal(data.0.clone()),
        Payload::Membership(membership) => Out::Membership(membership_out(membership)),
    };
    v1::RaftEntry { id: Some(log_id_out(&entry.log_id)), payload: Some(payload) }
}

pub(super) fn entry_in(entry: v1::RaftEntry) -> Result<Entry, WireError> {
    use v1::raft_entry::Payload as In;
    let log_id = log_id_in(&entry.id.ok_or(WireError::Missing("entry.id"))?)?;
    let payload = match entry.payload.ok_or(WireError::Missing("entry.payload"))? {
        In::Blank(_) => Payload::Blank,
        In::Normal(bytes) if bytes.len() > limits::ENTRY_BYTES => {
            return Err(WireError::Bad("entry.normal", format!("{} bytes are above the limit", bytes.len())));
        }
        In::Normal(bytes) => Payload::Normal(Data(bytes)),
        In::Membership(membership) => Payload::Membership(membership_in(membership)?),
    };
    Ok(Entry { log_id, payload })
}

fn membership_out(membership: &Membership) -> v1::RaftMembership {
    let peer = |p: &Peer| v1::RaftPeer { address: p.address.clone(), store: p.store.unwrap_or(0) };
    v1::RaftMembership {
        configs: (membership.get_joint_config().iter())
            .map(|voters| v1::RaftVoters { nodes: voters.iter().copied().collect() })
            .collect(),
        nodes: membership.nodes().map(|(id, p)| (*id, peer(p))).collect(),
    }
}

fn membership_in(membership: v1::RaftMembership) -> Result<Membership, WireError> {
    if membership.nodes.len() > limits::MEMBERS || membership.configs.len() > 2 {
        return Err(WireError::Bad("membership", "it has too many members or configurations".to_string()));
    }
    let configs: Vec<BTreeSet<u64>> =
        membership.configs.into_iter().map(|voters| voters.nodes.into_iter().collect()).collect();
    let nodes: std::collections::BTreeMap<u64, Peer> = (membership.nodes.into_iter())
        .map(|(id, p)| (id, Peer { address: p.address, store: (p.store != 0).then_some(p.store) }))
        .collect();
    // A node without any membership has this one.
    if configs.is_empty() && nodes.is_empty() {
        return Ok(Membership::default());
    }
    Membership::new(configs, nodes).map_err(|e| WireError::Bad("membership", e.to_string()))
}

pub(super) fn stored_membership_out(stored: &StoredMembership) -> v1::RaftStoredMembership {
    v1::RaftStoredMembership {
        id: stored.log_id().as_ref().map(log_id_out),
        membership: Some(membership_out(stored.membership())),
    }
}

pub(super) fn stored_membership_in(stored: v1::RaftStoredMembership) -> Result<StoredMembership, WireError> {
    let membership = membership_in(stored.membership.ok_or(WireError::Missing("membership"))?)?;
    Ok(StoredMembership::new(optional(stored.id.as_ref())?, membership))
}

pub(super) fn append_out(
    request: &AppendEntriesRequest<Types>,
    envelope: v1::RaftEnvelope,
) -> v1::RaftAppendRequest {
    v1::RaftAppendRequest {
        envelope: Some(envelope),
        vote: Some(vote_out(&request.vote)),
        prev: request.prev_log_id.as_ref().map(log_id_out),
        entries: request.entries.iter().map(entry_out).collect(),
        commit: request.leader_commit.as_ref().map(log_id_out),
    }
}

pub(super) fn append_in(request: v1::RaftAppendRequest) -> Result<AppendEntriesRequest<Types>, WireError> {
    let vote = vote_in(request.vote)?;
    if !vote.committed {
        return Err(WireError::Bad("vote", "an append comes from an elected leader".to_string()));
    }
    let prev_log_id = optional(request.prev.as_ref())?;
    let entries = request.entries.into_iter().map(entry_in).collect::<Result<Vec<_>, _>>()?;
    let mut last = prev_log_id;
    for entry in &entries {
        let follows = entry.log_id.index() == last.map_or(0, |l| l.index() + 1);
        if !follows || last.is_some_and(|l| entry.log_id < l) {
            return Err(WireError::Bad(
                "entries",
                format!("{} does not follow the entry before it", entry.log_id),
            ));
        }
        last = Some(entry.log_id);
    }
    if last.is_some_and(|l| l.committed_leader_id().term > vote.leader_id.term) {
        return Err(WireError::Bad("entries", "an entry is of a later term than its sender's".to_string()));
    }
    Ok(AppendEntriesRequest { vote, prev_log_id, entries, leader_commit: optional(request.commit.as_ref())? })
}

pub(super) fn appended_out(result: &StreamAppendResult<Types>, store: u64) -> v1::RaftAppendResponse {
    use v1::raft_append_response::Result as Out;
    let result = match result {
        Ok(upto) => Out::Matched(v1::RaftMatched { upto: upto.as_ref().map(log_id_out) }),
        Err(StreamAppendError::Conflict(at)) => Out::Conflict(log_id_out(at)),
        Err(StreamAppendError::HigherVote(vote)) => Out::HigherVote(vote_out(vote)),
    };
    v1::RaftAppendResponse { result: Some(result), store }
}

pub(super) fn appended_in(response: v1::RaftAppendResponse) -> Result<StreamAppendResult<Types>, WireError> {
    use v1::raft_append_response::Result as In;
    Ok(match response.result.ok_or(WireError::Missing("result"))? {
        In::Matched(matched) => Ok(optional(matched.upto.as_ref())?),
        In::Conflict(at) => Err(StreamAppendError::Conflict(log_id_in(&at)?)),
        In::HigherVote(vote) => Err(StreamAppendError::HigherVote(vote_in(Some(vote))?)),
    })
}

pub(super) fn ask_out(request: &VoteRequest<Types>, envelope: v1::RaftEnvelope) -> v1::RaftVoteRequest {
    v1::RaftVoteRequest {
        envelope: Some(envelope),
        vote: Some(vote_out(&request.vote)),
        last_log: request.last_log_id.as_ref().map(log_id_out),
        leadership_transfer: request.leadership_transfer,
    }
}

pub(super) fn ask_in(request: v1::RaftVoteRequest) -> Result<VoteRequest<Types>, WireError> {
    let mut ask = VoteRequest::new(vote_in(request.vote)?, optional(request.last_log.as_ref())?);
    ask.leadership_transfer = request.leadership_transfer;
    Ok(ask)
}

pub(super) fn voted_out(response: &VoteResponse<Types>) -> v1::RaftVoteResponse {
    v1::RaftVoteResponse {
        vote: Some(vote_out(&response.vote)),
        granted: response.vote_granted,
        last_log: response.last_log_id.as_ref().map(log_id_out),
    }
}

pub(super) fn voted_in(response: v1::RaftVoteResponse) -> Result<VoteResponse<Types>, WireError> {
    Ok(VoteResponse::new(vote_in(response.vote)?, optional(response.last_log.as_ref())?, response.granted))
}

pub(super) fn transfer_out(
    request: &TransferLeaderRequest<Types>,
    envelope: v1::RaftEnvelope,
) -> v1::RaftTransferRequest {
    v1::RaftTransferRequest {
        envelope: Some(envelope),
        from_leader: Some(vote_out(request.from_leader())),
        to: *request.to_node_id(),
        last_log: request.last_log_id().map(log_id_out),
    }
}

pub(super) fn transfer_in(
    request: v1::RaftTransferRequest,
) -> Result<TransferLeaderRequest<Types>, WireError> {
    let from = vote_in(request.from_leader)?;
    Ok(TransferLeaderRequest::new(from, number("to", request.to)?, optional(request.last_log.as_ref())?))
}
