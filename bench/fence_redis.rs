//! What the fence costs in Redis. `cargo bench -p ringfence-fence --bench fence_redis`
//!
//! The same two commands, in turn: behind the fence, in a script without it, and in MULTI. A server of its own is started for
//! each way of keeping the log, with client and server on the same machine, one call at a time.

#[allow(dead_code, clippy::unwrap_used, reason = "the tests use more of it, and end where a set-up fails")]
#[path = "../src/fence/tests/redis/server.rs"]
mod server;

use redis::Pipeline;
use ringfence_core::ids::ClusterId;
use ringfence_fence::FencingToken;
use ringfence_fence::redis::RedisFence;
use server::{Client, DURABLE, FORGETFUL, Server};
use std::error::Error;
use std::slice::from_ref;
use std::time::{Duration, Instant};

const ROUNDS: usize = 10_000;

/// The commands that are given, in a script that asks no fence.
const BARE: &str = "#!lua
local replies, at = {}, 2
for number = 1, tonumber(ARGV[1]) do
  local last = at + tonumber(ARGV[at])
  local reply = redis.pcall(unpack(ARGV, at + 1, last))
  if type(reply) == 'table' and reply.err then return { 'failed', number, reply.err } end
  replies[number] = reply
  at = last + 1
end
return { 'done', 0, replies }";

fn commands() -> Pipeline {
    let mut write = redis::pipe();
    write.cmd("HSET").arg("{orders/17}cart:5").arg("item").arg(3);
    write.cmd("SET").arg("{orders/17}last").arg("cart 5");
    write
}

fn timed(samples: &mut Vec<Duration>, call: impl FnOnce()) {
    let start = Instant::now();
    call();
    samples.push(start.elapsed());
}

fn percentile(samples: &mut [Duration], percent: usize) -> f64 {
    samples.sort_unstable();
    samples[samples.len() * percent / 100].as_secs_f64() * 1e6
}

fn main() -> Result<(), Box<dyn Error>> {
    if !server::available() {
        return Ok(());
    }
    let every_second = ["--appendonly", "yes", "--appendfsync", "everysec", "--save", ""];
    println!(
        "two commands behind the fence, in a script without it, in MULTI; {ROUNDS} calls of each, in turn"
    );
    for (name, settings) in
        [("appendfsync always", DURABLE), ("appendfsync everysec", &every_second), ("no log", FORGETFUL)]
    {
        measure(name, &Server::new(settings))?;
    }
    Ok(())
}

fn measure(name: &str, server: &Server) -> Result<(), Box<dyn Error>> {
    let mut client: Client = server.client();
    let options = RedisFence::options(&ClusterId::new("prod")?).accepting_loss_at_restart();
    let fence = client.with(async |conn| options.install(conn).await)?;
    let token: FencingToken = "prod/orders/17@42".parse()?;
    client.with(async |conn| fence.raise(conn, &token).await)?;
    let bare = redis::Script::new(BARE);
    let (mut fenced, mut script, mut multi) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        timed(&mut fenced, || {
            let write = commands();
            client
                .with(async |conn| fence.write(conn, from_ref(&token), &write).await)
                .expect("the owner writes");
        });
        timed(&mut script, || {
            let write = commands();
            let mut call = bare.arg(write.len());
            for command in write.cmd_iter() {
                call.arg(command.args_iter().count());
                for word in command.args_iter() {
                    if let redis::Arg::Simple(word) = word {
                        call.arg(word);
                    }
                }
            }
            client.with(async |conn| call.invoke_async::<redis::Value>(conn).await).expect("a script runs");
        });
        timed(&mut multi, || {
            let mut write = commands();
            write.atomic();
            client
                .with(async |conn| write.query_async::<redis::Value>(conn).await)
                .expect("a transaction runs");
        });
    }
    let mut line = format!("{name:20}");
    for percent in [50, 99] {
        let [fenced, script, multi] = [&mut fenced, &mut script, &mut multi].map(|s| percentile(s, percent));
        line += &format!(
            "  p{percent}: {fenced:4.0} us, {script:4.0} us, {multi:4.0} us ({:.2}x, {:.2}x)",
            fenced / script,
            fenced / multi
        );
    }
    println!("{line}");
    Ok(())
}
