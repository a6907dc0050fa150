//! `ringfence gateway files`: the one way to write a folder of files, with a fence in it. What it does is the library's; here is
//! the door.

use crate::exit::{Exit, Failed, Outcome};
use crate::serve::Signals;
use clap::{Args, Subcommand};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use ringfence::fence::FenceError;
use ringfence::fence::gateway::{FileGateway, GatewayError, GatewayOptions, Layout, front};
use ringfence::ids::{ClusterId, Scope};
use std::error::Error as _;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

/// How long the head of a request may take, and how long requests under way are waited for at the end.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long no connection is asked for after one could not be taken.
const PAUSE: Duration = Duration::from_millis(100);

/// The most connections at once; the next ones wait in the system's queue.
const MAX_CONNECTIONS: usize = 1024;

const AFTER_HELP: &str = "\
It has to be the only way in: a program that writes the folder by itself is not fenced. Give the folder to a user of its
own, and run the gateway as that user. It prints one line when it serves; SIGTERM and SIGINT end it when the requests under
way are done.

Example:
  ringfence gateway files --dir /srv/reports --cluster prod --listen 127.0.0.1:7700
  curl -X POST -H 'ringfence-token: prod/reports/17@33' http://127.0.0.1:7700/.ringfence/raise
  curl -T daily.csv -H 'ringfence-token: prod/reports/17@33' http://127.0.0.1:7700/reports/17/daily.csv";

/// Arguments of `ringfence gateway`.
#[derive(Debug, Args)]
pub(crate) struct GatewayArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// In front of a folder of files
    Files(FilesArgs),
}

/// Arguments of `ringfence gateway files`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
struct FilesArgs {
    /// The folder; it has to be there
    #[arg(long, env = "RINGFENCE_GATEWAY_DIR", value_name = "DIR")]
    dir: PathBuf,
    /// The id of the cluster whose tokens are taken, as `ringfence cluster status` prints it; the folder stays with it
    #[arg(long, env = "RINGFENCE_GATEWAY_CLUSTER", value_name = "NAME", value_parser = ClusterId::new)]
    cluster: ClusterId,
    /// The address to listen on; port 0 takes a free one
    #[arg(long, env = "RINGFENCE_GATEWAY_LISTEN", value_name = "IP:PORT", default_value = "127.0.0.1:7700")]
    listen: SocketAddr,
    /// All files are of this one scope, such as orders/17 or @locks/nightly [default: each of the one whose folder it stands
    /// in, orders/17/NAME]
    #[arg(long, value_name = "SCOPE")]
    scope: Option<Scope>,
    /// The largest file, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = GatewayOptions::default().max_bytes)]
    max_bytes: u64,
    /// Listen where others can reach it although nothing is encrypted, and whoever can reach it can send any token
    #[arg(long)]
    insecure: bool,
}

/// Runs the gateway until it is told to stop.
pub(crate) async fn run(args: GatewayArgs) -> Outcome {
    let What::Files(args) = args.what;
    if !args.listen.ip().is_loopback() && !args.insecure {
        return Err(Failed::usage(format!(
            "at {} others reach the gateway, and a token is no password: listen on the loopback interface, with something in \
             front that knows its callers, or say --insecure where the network keeps strangers out",
            args.listen
        )));
    }
    // Before it serves, so that no signal is missed.
    let mut signals = Signals::new()?;
    let layout = args.scope.map_or(Layout::ByFolder, Layout::Whole);
    let options = GatewayOptions { layout, max_bytes: args.max_bytes };
    let files = FileGateway::open_with(&args.dir, &args.cluster, options).map_err(|error| {
        if let GatewayError::Fence(FenceError::WrongCluster { presented, bound }) = &error {
            return Failed::refused(format!(
                "{}: this folder is guarded for cluster {bound}, for good, and --cluster (RINGFENCE_GATEWAY_CLUSTER) says {presented}: start \
                 it with --cluster {bound}, or give cluster {presented} a folder of its own",
                args.dir.display()
            ));
        }
        let cause = error.source().map_or(String::new(), |cause| format!(": {cause}"));
        Failed::refused(format!("{}: {error}{cause}", args.dir.display()))
    })?;
    let listener = TcpListener::bind(args.listen)
        .await
        .map_err(|error| Failed::io(format!("listening on {}: {error}", args.listen)))?;
    let address = listener.local_addr()?;
    // Nobody may be reading, and it serves all the same.
    let _ = writeln!(std::io::stdout(), "the gateway of {} serves at http://{address}", args.dir.display());
    serve(listener, files, &mut signals).await
}

async fn serve(listener: TcpListener, files: FileGateway, signals: &mut Signals) -> Outcome {
    let service = TowerToHyperService::new(front(files));
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(PATIENCE);
    let under_way = GracefulShutdown::new();
    loop {
        tokio::select! {
            stream = next(&listener), if under_way.count() < MAX_CONNECTIONS => {
                let connection = under_way.watch(http.serve_connection(TokioIo::new(stream), service.clone()));
                // A connection that breaks has nobody to tell.
                tokio::spawn(async move { connection.await.ok() });
            }
            () = tokio::time::sleep(PAUSE), if under_way.count() >= MAX_CONNECTIONS => {}
            () = signals.next() => break,
        }
    }
    drop(listener);
    tokio::select! {
        () = under_way.shutdown() => Ok(Exit::Done),
        () = tokio::time::sleep(PATIENCE) => Err(Failed::refused("requests were under way and are broken off")),
        () = signals.next() => Err(Failed::refused("told to stop twice: ended without closing down")),
    }
}

/// The next connection. One that cannot be taken, for want of descriptors, is asked for again after a pause.
async fn next(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be taken");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}
