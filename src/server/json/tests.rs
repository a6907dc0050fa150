//! Calls over HTTP/1.1 with JSON, as a program writes them that knows nothing of gRPC.

use crate::Coordinator;
use crate::testing::{self, create};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const WORKERS: &str = "/ringfence.v1.WorkerService";
const MAP: &str = "/ringfence.v1.MapService";

/// What came back: status, headers, body.
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.body))
    }
}

async fn send(node: &Coordinator, request: &[u8]) -> Answer {
    let address = node.endpoint().trim_start_matches("http://").to_owned();
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request).await.unwrap();
    let mut all = Vec::new();
    stream.read_to_end(&mut all).await.unwrap();
    let text = String::from_utf8(all).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{text}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    let body = if chunked { unchunked(body) } else { body.to_owned() };
    Answer { status, head: head.to_ascii_lowercase(), body }
}

fn unchunked(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((length, rest)) = body.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).unwrap();
        whole += &rest[..length];
        body = rest[length..].trim_start_matches("\r\n");
    }
    whole
}

fn request(method: &str, path: &str, kind: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    let head =
        format!("{method} {path} HTTP/1.1\r\nHost: node\r\nConnection: close\r\nContent-Type: {kind}\r\n");
    format!("{head}Content-Length: {length}\r\n\r\n{body}").into_bytes()
}

async fn call(node: &Coordinator, path: &str, body: &Value) -> Answer {
    send(node, &request("POST", path, "application/json; charset=utf-8", &body.to_string())).await
}

#[tokio::test]
async fn a_key_is_looked_up_and_numbers_that_do_not_fit_elsewhere_are_strings() {
    let node = testing::alone().await;
    testing::admin(&node).await.create_keyspace(create("orders", 4)).await.unwrap();
    testing::join(&node, "w1", "orders").await;
    let owned = testing::until("the partition is owned", async || {
        let answer =
            call(&node, &format!("{MAP}/Lookup"), &json!({ "keyspace": "orders", "text": "customer-7" }))
                .await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        assert!(answer.head.contains("content-type: application/json"), "{}", answer.head);
        Some(answer.json()).filter(|answer| answer["entry"]["owner"].is_object())
    })
    .await;
    assert_eq!((&owned["entry"]["epoch"], &owned["entry"]["owner"]["worker"]), (&json!("1"), &json!("w1")));
    assert_eq!(owned["entry"]["ready"], json!(false), "a field that is zero is there");
    let by_bytes = json!({ "keyspace": "orders", "key": "Y3VzdG9tZXItNw==" });
    let by_bytes = call(&node, &format!("{MAP}/Lookup"), &by_bytes).await.json();
    assert_eq!(by_bytes["entry"]["partition"], owned["entry"]["partition"]);
}

#[tokio::test]
async fn an_error_is_one_of_connect_and_says_what_a_program_needs() {
    let node = testing::alone().await;
    let missing =
        call(&node, &format!("{MAP}/Lookup"), &json!({ "keyspace": "orders", "partition": 0 })).await;
    assert_eq!(missing.status, 404);
    let error = missing.json();
    assert_eq!(error["code"], "not_found");
    assert!(error["message"].as_str().unwrap().contains("ringfence keyspace create orders"), "{error}");
    assert_eq!(error["details"][0]["debug"]["kind"], "ERROR_KIND_NOT_FOUND");
    assert_eq!(error["details"][0]["value"], "CAc", "base64 without padding");

    let spelt_wrong = call(&node, &format!("{MAP}/Lookup"), &json!({ "keyspce": "orders" })).await;
    assert_eq!(spelt_wrong.status, 400);
    assert!(spelt_wrong.json()["message"].as_str().unwrap().contains("keyspce"), "{}", spelt_wrong.body);
    for bad in ["{", "[]", "{\"keyspace\":7}", "{} {}", "\u{1b}[2J"] {
        let answer = send(&node, &request("POST", &format!("{MAP}/Lookup"), "application/json", bad)).await;
        assert_eq!((answer.status, answer.json()["code"].as_str()), (400, Some("invalid_argument")), "{bad}");
        assert!(!answer.body.contains('\u{1b}'));
    }
}

#[tokio::test]
async fn what_is_no_call_is_told_what_one_is() {
    let node = testing::alone().await;
    let post = |path: &str, kind: &str| request("POST", path, kind, "{}");
    let attach = format!("{WORKERS}/Attach");
    for (request, status, words) in [
        (request("GET", "/", "text/html", ""), 404, "POST /ringfence.v1.SERVICE/METHOD"),
        (request("GET", "/ringfence.v1.MapService/Lookup", "application/json", ""), 405, "POST"),
        (post("/ringfence.v1.MapService/Lookup", "text/plain"), 415, "application/json"),
        (post("/ringfence.v1.Raft/Append", "application/json"), 404, "no such call"),
        (post("/ringfence.v1.FormationService/Probe", "application/json"), 404, "no such call"),
        (post(&attach, "application/json"), 501, "WorkerService/Renew"),
    ] {
        let answer = send(&node, &request).await;
        assert_eq!(answer.status, status, "{}", answer.body);
        assert!(answer.body.contains(words), "{}", answer.body);
        assert!(!answer.head.contains("access-control-"), "no page of another origin reads this");
    }
}

/// A page whose name was made to lead here is of this node's own origin to the browser, and says where it is from all the same.
#[tokio::test]
async fn a_request_of_a_page_is_not_answered_whatever_it_carries() {
    let node = testing::alone().await;
    for kind in ["application/json", "application/grpc", "text/plain"] {
        let plain = String::from_utf8(request("POST", &format!("{MAP}/Lookup"), kind, "{}")).unwrap();
        let of_a_page = plain.replacen("Host: node", "Host: node\r\nOrigin: http://node:7600", 1);
        let answer = send(&node, of_a_page.as_bytes()).await;
        assert_eq!(answer.status, 403, "{kind}: {}", answer.body);
    }
}

#[tokio::test]
async fn answers_that_stream_come_a_line_each() {
    let node = testing::alone().await;
    testing::admin(&node).await.create_keyspace(create("orders", 3)).await.unwrap();
    let answer =
        call(&node, "/ringfence.v1.AdminService/ListPartitions", &json!({ "keyspace": "orders" })).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert!(answer.head.contains("content-type: application/x-ndjson"), "{}", answer.head);
    let lines: Vec<Value> = answer.body.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let partitions: usize = lines.iter().map(|line| line["partitions"].as_array().unwrap().len()).sum();
    assert_eq!(partitions, 3);
    let missing =
        call(&node, "/ringfence.v1.AdminService/ListPartitions", &json!({ "keyspace": "gone" })).await;
    let last: Value = serde_json::from_str(missing.body.lines().last().unwrap()).unwrap();
    let code = if missing.status == 200 { &last["error"]["code"] } else { &last["code"] };
    assert_eq!(code, "not_found", "{}", missing.body);
}

#[tokio::test]
async fn a_session_without_a_stream_renews_and_is_told_what_it_holds() {
    let node = testing::alone().await;
    let (secret, wrong) = ("c2VjcmV0", "d3Jvbmc=");
    let hash = base64_of(&Sha256::digest(b"secret"));
    let join = json!({
        "protocol": 1, "worker": "script-1", "nonce": "AAECAwQFBgcICQoLDA0ODw==", "secretSha256": hash, "ttlMs": "3000",
    });
    let joined = call(&node, &format!("{WORKERS}/Join"), &join).await;
    assert_eq!(joined.status, 200, "{}", joined.body);
    let session = joined.json()["session"].clone();
    let renew = |secret: &str| json!({ "session": session, "secret": secret });
    let renewed = call(&node, &format!("{WORKERS}/Renew"), &renew(secret)).await;
    assert_eq!(renewed.status, 200, "{}", renewed.body);
    let renewed = renewed.json();
    assert_eq!((&renewed["ttlMs"], &renewed["assignment"]["complete"]), (&json!("3000"), &json!(true)));
    assert_eq!(renewed["assignment"]["locks"], json!([]));
    let refused = call(&node, &format!("{WORKERS}/Renew"), &renew(wrong)).await;
    assert_eq!(refused.json()["details"][0]["debug"]["kind"], "ERROR_KIND_WRONG_SECRET");
    assert!(!refused.body.contains(secret) && !refused.body.contains(wrong));

    let left = call(&node, &format!("{WORKERS}/Leave"), &renew(secret)).await;
    assert_eq!(left.status, 200, "{}", left.body);
    let over = call(&node, &format!("{WORKERS}/Renew"), &renew(secret)).await;
    let detail = over.json()["details"][0]["debug"].clone();
    assert_eq!(
        (&detail["kind"], &detail["ended"]),
        (&json!("ERROR_KIND_SESSION_ENDED"), &json!("SESSION_END_LEFT"))
    );
}

/// It lives for as long as it is renewed and no longer: the call counts as a renewal over a stream does.
#[tokio::test]
async fn a_session_that_renews_by_calls_outlives_its_ttl_and_ends_when_it_stops() {
    let node = testing::alone().await;
    let hash = base64_of(&Sha256::digest(b"secret"));
    let join = json!({
        "protocol": 1, "worker": "script-1", "nonce": "AAECAwQFBgcICQoLDA0ODw==", "secretSha256": hash, "ttlMs": "2000",
    });
    let session = call(&node, &format!("{WORKERS}/Join"), &join).await.json()["session"].clone();
    let renew = json!({ "session": session, "secret": "c2VjcmV0" });
    for _ in 0..16 {
        let renewed = call(&node, &format!("{WORKERS}/Renew"), &renew).await;
        assert_eq!(renewed.status, 200, "{}", renewed.body);
        tokio::time::sleep(std::time::Duration::from_millis(160)).await;
    }
    let id = ringfence_core::ids::SessionId::new(session.as_str().unwrap().parse().unwrap()).unwrap();
    testing::until("it has run out", async || {
        let context = node.context().unwrap();
        let gone = context.replica.lock().state.session(id).is_none();
        gone.then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_request_that_is_too_large_or_never_ends_is_refused() {
    let node = testing::alone().await;
    let long = "x".repeat(9 << 20);
    let body = json!({ "keyspace": long }).to_string();
    let address = node.endpoint().trim_start_matches("http://").to_owned();
    let mut stream = TcpStream::connect(address).await.unwrap();
    let whole = request("POST", &format!("{MAP}/Lookup"), "application/json", &body);
    // It is answered before all of it was read, and the rest may find nobody there.
    drop(stream.write_all(&whole).await);
    let mut first = [0; 12];
    if stream.read_exact(&mut first).await.is_ok() {
        assert_eq!(&first, b"HTTP/1.1 400");
    }
    let next = call(&node, &format!("{MAP}/Lookup"), &json!({ "keyspace": "orders", "partition": 0 })).await;
    assert_eq!(next.status, 404, "the node goes on");
}

fn base64_of(bytes: &[u8]) -> String {
    super::answer::base64(bytes)
}
