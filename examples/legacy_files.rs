//! A folder of files that another program reads, and that knows no tokens: whoever writes a file last has written it. Two owners
//! of one partition overwrite the same report. A stands still in the middle of its work; its successor B takes over and writes;
//! then A's request is sent.
//!
//! Behind a gateway that is the one way to write the folder, A's request is refused, and the file stays a file like any other. The
//! same in a folder that each of them writes by itself: the late report stands over the new one, and nothing tells.
//!
//! The requests are those of `ringfence gateway files`, which serves this gateway on a port.
//!
//! ```console
//! $ cargo run -p ringfence-fence --example legacy_files --features gateway
//! without a token: 428 Precondition Required
//! A's report under 33: 204 No Content
//! B's report under 34: 204 No Content
//! A's report from before its pause: 412 Precondition Failed, reports/17 is fenced: own 33, highest 34
//! in the folder behind the gateway: sold 12, by B
//! in the folder that each writes by itself: sold 9, by A
//! ```

use axum::body::Body;
use http::{Request, Response, StatusCode};
use ringfence_core::ids::ClusterId;
use ringfence_fence::FencingToken;
use ringfence_fence::gateway::{FileGateway, front};
use ringfence_fence::service::{Refusal, StampLayer, Stamps};
use std::error::Error;
use tower::{Layer as _, Service, ServiceExt as _};

type Failure = Box<dyn Error + Send + Sync>;

const REPORT: &str = "reports/17/daily.csv";

fn put(report: &'static str) -> Result<Request<Body>, Failure> {
    Ok(Request::put(format!("/{REPORT}")).body(Body::from(report))?)
}

/// A request that was stamped when the work on it began.
fn stamped(stamp: FencingToken, report: &'static str) -> Result<Request<Body>, Failure> {
    let mut request = put(report)?;
    request.extensions_mut().insert(Stamps::from(stamp));
    Ok(request)
}

async fn sent<S, B>(to: &S, request: Request<Body>) -> Result<Response<B>, Failure>
where
    S: Service<Request<Body>, Response = Response<B>, Error: Into<Failure>> + Clone,
{
    to.clone().oneshot(request).await.map_err(Into::into)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let (behind, by_itself) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let plain = by_itself.path().join("daily.csv");
    let files = FileGateway::open(behind.path(), &ClusterId::new("prod")?)?;
    // As an ownership stamps: `partition.stamp()`.
    let (a, b): (FencingToken, FencingToken) = ("prod/reports/17@33".parse()?, "prod/reports/17@34".parse()?);
    let gateway = front(files.clone());
    let owners = StampLayer::per_request().layer(gateway.clone());

    println!("without a token: {}", sent(&gateway, put("sold 0, by somebody")?).await?.status());

    files.raise(&a)?; // before A reads anything; over the network it is a request, too
    let first = sent(&owners, stamped(a.clone(), "sold 7, by A")?).await?;
    std::fs::write(&plain, "sold 7, by A")?;
    println!("A's report under 33: {}", first.status());

    // A adds up the next report, and its process stands still for longer than its lease.
    let late = stamped(a, "sold 9, by A")?;

    // B is granted the partition, raises, reads what is there and writes.
    files.raise(&b)?;
    let second = sent(&owners, stamped(b, "sold 12, by B")?).await?;
    std::fs::write(&plain, "sold 12, by B")?;
    println!("B's report under 34: {}", second.status());

    // A goes on where it stood still.
    let answer = sent(&owners, late).await?;
    std::fs::write(&plain, "sold 9, by A")?;
    let refusal = Refusal::from_headers(answer.headers()).ok_or("it was not refused")?;
    let fenced = refusal.fenced().ok_or("it was refused for another reason")?;
    println!(
        "A's report from before its pause: {}, {} is fenced: own {}, highest {}",
        answer.status(),
        fenced.scope(),
        fenced.own().get(),
        fenced.highest().get()
    );
    assert_eq!(answer.status(), StatusCode::PRECONDITION_FAILED);
    let text = std::fs::read_to_string(behind.path().join(REPORT))?;
    println!("in the folder behind the gateway: {text}");
    println!("in the folder that each writes by itself: {}", std::fs::read_to_string(plain)?);
    Ok(())
}
