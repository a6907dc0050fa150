//! The messages of etcd's API v3 that the fence needs, by their published numbers, and the only conversion from and to
//! them. They are written by hand, so that neither protoc nor a build script is needed.
//!
//! Every message that is read is taken for hostile; what is missing is read as empty, as protobuf has it.

use super::txn;

/// The method that does everything here.
pub(super) const TXN: &str = "/etcdserverpb.KV/Txn";

/// The method that turns a name and a password into a token.
pub(super) const AUTHENTICATE: &str = "/etcdserverpb.Auth/Authenticate";

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(super) struct ResponseHeader {
    #[prost(uint64, tag = "1")]
    cluster_id: u64,
    #[prost(int64, tag = "3")]
    revision: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    success: Vec<RequestOp>,
    #[prost(message, repeated, tag = "3")]
    failure: Vec<RequestOp>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Compare {
    #[prost(int32, tag = "1")]
    result: i32,
    #[prost(int32, tag = "2")]
    target: i32,
    #[prost(bytes = "vec", tag = "3")]
    key: Vec<u8>,
    #[prost(oneof = "Union", tags = "4, 5, 6, 7, 8")]
    union: Option<Union>,
    #[prost(bytes = "vec", tag = "64")]
    range_end: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Union {
    #[prost(int64, tag = "4")]
    Version(i64),
    #[prost(int64, tag = "5")]
    CreateRevision(i64),
    #[prost(int64, tag = "6")]
    ModRevision(i64),
    #[prost(bytes, tag = "7")]
    Value(Vec<u8>),
    #[prost(int64, tag = "8")]
    Lease(i64),
}

#[derive(Clone, PartialEq, prost::Message)]
struct RequestOp {
    #[prost(oneof = "Request", tags = "1, 2, 3, 4")]
    request: Option<Request>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Request {
    #[prost(message, tag = "1")]
    Range(RangeRequest),
    #[prost(message, tag = "2")]
    Put(PutRequest),
    #[prost(message, tag = "3")]
    DeleteRange(DeleteRangeRequest),
    #[prost(message, tag = "4")]
    Txn(TxnRequest),
}

#[derive(Clone, PartialEq, prost::Message)]
struct RangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    range_end: Vec<u8>,
    #[prost(int64, tag = "3")]
    limit: i64,
    #[prost(int64, tag = "4")]
    revision: i64,
    #[prost(bool, tag = "8")]
    keys_only: bool,
    #[prost(bool, tag = "9")]
    count_only: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
struct PutRequest {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
    #[prost(int64, tag = "3")]
    lease: i64,
    #[prost(bool, tag = "4")]
    prev_kv: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
struct DeleteRangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    range_end: Vec<u8>,
    #[prost(bool, tag = "3")]
    prev_kv: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct TxnResponse {
    #[prost(message, optional, tag = "1")]
    header: Option<ResponseHeader>,
    #[prost(bool, tag = "2")]
    succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    responses: Vec<ResponseOp>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ResponseOp {
    #[prost(oneof = "Response", tags = "1, 2, 3, 4")]
    response: Option<Response>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Response {
    #[prost(message, tag = "1")]
    Range(RangeResponse),
    #[prost(message, tag = "2")]
    Put(PutResponse),
    #[prost(message, tag = "3")]
    DeleteRange(DeleteRangeResponse),
    #[prost(message, tag = "4")]
    Txn(TxnResponse),
}

#[derive(Clone, PartialEq, prost::Message)]
struct RangeResponse {
    #[prost(message, repeated, tag = "2")]
    kvs: Vec<KeyValue>,
    #[prost(bool, tag = "3")]
    more: bool,
    #[prost(int64, tag = "4")]
    count: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct PutResponse {
    #[prost(message, optional, tag = "2")]
    prev_kv: Option<KeyValue>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct DeleteRangeResponse {
    #[prost(int64, tag = "2")]
    deleted: i64,
    #[prost(message, repeated, tag = "3")]
    prev_kvs: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct KeyValue {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(int64, tag = "2")]
    create_revision: i64,
    #[prost(int64, tag = "3")]
    mod_revision: i64,
    #[prost(int64, tag = "4")]
    version: i64,
    #[prost(bytes = "vec", tag = "5")]
    value: Vec<u8>,
    #[prost(int64, tag = "6")]
    lease: i64,
}

/// Prints nothing of itself: it holds a password.
#[derive(Clone, PartialEq, prost::Message)]
#[prost(skip_debug)]
pub(super) struct AuthenticateRequest {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) password: String,
}

impl std::fmt::Debug for AuthenticateRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AuthenticateRequest")
    }
}

/// Prints nothing of itself: it holds a secret.
#[derive(Clone, PartialEq, prost::Message)]
#[prost(skip_debug)]
pub(super) struct AuthenticateResponse {
    #[prost(string, tag = "2")]
    pub(super) token: String,
}

impl std::fmt::Debug for AuthenticateResponse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AuthenticateResponse")
    }
}

impl From<txn::Txn> for TxnRequest {
    fn from(txn: txn::Txn) -> TxnRequest {
        let ops = |ops: Vec<txn::Op>| ops.into_iter().map(RequestOp::from).collect();
        TxnRequest {
            compare: txn.compares.into_iter().map(Compare::from).collect(),
            success: ops(txn.then),
            failure: ops(txn.otherwise),
        }
    }
}

impl From<txn::Compare> for Compare {
    fn from(compare: txn::Compare) -> Compare {
        let (target, union) = match compare.target {
            txn::Target::Version(number) => (0, Union::Version(number)),
            txn::Target::Created(number) => (1, Union::CreateRevision(number)),
            txn::Target::Modified(number) => (2, Union::ModRevision(number)),
            txn::Target::Value(value) => (3, Union::Value(value)),
            txn::Target::Lease(number) => (4, Union::Lease(number)),
        };
        let result = match compare.is {
            txn::Is::Equal => 0,
            txn::Is::Greater => 1,
            txn::Is::Less => 2,
            txn::Is::NotEqual => 3,
        };
        Compare { result, target, key: compare.key, union: Some(union), range_end: compare.end }
    }
}

impl From<txn::Op> for RequestOp {
    fn from(op: txn::Op) -> RequestOp {
        let request = match op {
            txn::Op::Get(get) => Request::Range(RangeRequest {
                key: get.key,
                range_end: get.end,
                limit: get.limit,
                revision: get.revision,
                keys_only: get.keys_only,
                count_only: get.count_only,
            }),
            txn::Op::Put(put) => Request::Put(PutRequest {
                key: put.key,
                value: put.value,
                lease: put.lease,
                prev_kv: put.prev,
            }),
            txn::Op::Delete(delete) => Request::DeleteRange(DeleteRangeRequest {
                key: delete.key,
                range_end: delete.end,
                prev_kv: delete.prev,
            }),
            txn::Op::Txn(txn) => Request::Txn(txn.into()),
        };
        RequestOp { request: Some(request) }
    }
}

impl From<TxnResponse> for txn::TxnReply {
    fn from(response: TxnResponse) -> txn::TxnReply {
        let header = response.header.unwrap_or_default();
        txn::TxnReply {
            header: txn::Header { cluster_id: header.cluster_id, revision: header.revision },
            succeeded: response.succeeded,
            // One without a response is left out, so that its place shows that the answer is strange.
            replies: response.responses.into_iter().filter_map(|op| op.response.map(Into::into)).collect(),
        }
    }
}

impl From<Response> for txn::OpReply {
    fn from(response: Response) -> txn::OpReply {
        let pairs = |kvs: Vec<KeyValue>| kvs.into_iter().map(txn::Pair::from).collect();
        match response {
            Response::Range(range) => {
                txn::OpReply::Get { pairs: pairs(range.kvs), more: range.more, count: range.count }
            }
            Response::Put(put) => txn::OpReply::Put(put.prev_kv.map(txn::Pair::from)),
            Response::DeleteRange(delete) => {
                txn::OpReply::Delete { deleted: delete.deleted, before: pairs(delete.prev_kvs) }
            }
            Response::Txn(txn) => txn::OpReply::Txn(txn.into()),
        }
    }
}

impl From<KeyValue> for txn::Pair {
    fn from(kv: KeyValue) -> txn::Pair {
        txn::Pair {
            key: kv.key,
            value: kv.value,
            created: kv.create_revision,
            modified: kv.mod_revision,
            version: kv.version,
            lease: kv.lease,
        }
    }
}
