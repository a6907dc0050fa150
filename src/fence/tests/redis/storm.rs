//! The storm of stale writes, in Redis.

use crate::server::{Client, available};
use crate::shared_storm::{Process, nothing_gets_through, some_get_through};
use crate::subject::Fenced;
use ringfence_fence::redis::RedisFence;
use ringfence_fence::{FenceError, FencingToken};
use std::slice::from_ref;
use std::sync::Arc;

struct Connected {
    client: Client,
    fence: RedisFence,
    guarded: bool,
    _db: Arc<Fenced>,
}

impl Process for Connected {
    fn raise(&mut self, token: &FencingToken) -> Result<(), FenceError> {
        self.client.with(async |conn| self.fence.raise(conn, token).await)
    }

    fn append(&mut self, token: &FencingToken, paused: impl FnOnce()) -> Result<(), FenceError> {
        let mut write = redis::pipe();
        write.cmd("RPUSH").arg("log").arg(token.epoch().get());
        if self.guarded {
            paused();
            let fenced = async |conn: &mut _| self.fence.write(conn, from_ref(token), &write).await;
            return self.client.with(fenced).map(drop);
        }
        // The same check, as a command of its own.
        self.client.with(async |conn| self.fence.check(conn, from_ref(token)).await)?;
        paused();
        self.client.with(async |conn| write.query_async::<()>(conn).await).unwrap();
        Ok(())
    }

    fn written(&mut self) -> Vec<u64> {
        self.client.ask("LRANGE log 0 -1")
    }
}

fn processes(guarded: bool) -> Vec<Connected> {
    let db = Arc::new(Fenced::forgetful());
    let connect =
        |_| Connected { client: db.server.client(), fence: db.fence.clone(), guarded, _db: Arc::clone(&db) };
    (0..5).map(connect).collect()
}

#[test]
fn t03_no_stale_write_gets_through_while_others_raise() {
    if available() {
        nothing_gets_through(processes(true), 3_000);
    }
}

#[test]
fn t57_t03_some_stale_writes_get_through_when_check_and_write_are_two_steps() {
    if available() {
        some_get_through(processes(false), 0);
    }
}

/// `cargo test -p ringfence-fence --test redis -- --ignored --nocapture`
#[test]
#[ignore = "a hundred thousand attempts; run by name"]
fn no_stale_write_of_100_000_gets_through() {
    if available() {
        nothing_gets_through(processes(true), 100_000);
        some_get_through(processes(false), 100_000);
    }
}
