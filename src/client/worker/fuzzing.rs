//! What the fuzzer reads of a worker's stream.

use super::wire;
use ringfence_api::v1::{self, attach_response::Message};
use ringfence_core::lease::lessee::{Lessee, Timing};
use ringfence_core::time::Instant;
use std::time::Duration;

/// Reads the answer to a join and then what the stream of that session brings, as a worker does; it renews before each
/// message, and a second passes after it. How many messages made sense.
///
/// # Errors
/// Why the session is none, or the first message that makes no sense.
pub fn attach(joined: v1::JoinResponse, stream: Vec<v1::AttachResponse>) -> Result<usize, String> {
    let timing = Timing::new(Duration::from_millis(joined.ttl_ms)).map_err(|e| e.to_string())?;
    let keyspaces = wire::keyspaces(joined.keyspaces).map_err(|e| e.to_string())?;
    let mut now = Instant::from_nanos(0);
    let mut lessee = Lessee::new(timing, now);
    lessee.connected(now);
    let (mut read, mut wrong) = (0, None);
    for message in stream.into_iter().filter_map(|message| message.message) {
        let _ = lessee.renew(now, u32::MAX / 2);
        let taken = match message {
            Message::Assignment(picture) => {
                wire::assignment(picture, &keyspaces).map(|picture| lessee.assign(now, picture))
            }
            Message::Acknowledgement(answer) => {
                wire::acknowledgement(answer, &keyspaces).map(|answer| lessee.acknowledge(now, answer))
            }
            // It says nothing about leases, and is read where it is played.
            Message::Drill(_) => Ok(()),
        };
        match taken {
            Ok(()) => read += 1,
            Err(why) => wrong = wrong.or(Some(why)),
        }
        now = now + Duration::from_secs(1);
        lessee.handle_timeout(now);
        while lessee.poll_event().is_some() {}
        if let Some(until) = lessee.lease_until() {
            assert!(until > now, "a lease that is over is believed");
            assert!(until.since(now) <= timing.ttl(), "a lease is longer than its ttl");
        }
        let held: Vec<_> = lessee.holds().map(|(place, epoch)| (place.clone(), epoch)).collect();
        for (place, epoch) in held {
            let bound = lessee.valid_until(&place, epoch);
            assert!(bound <= lessee.lease_until(), "{place} is believed for longer than the lease");
        }
    }
    wrong.map_or(Ok(read), |why| Err(why.to_string()))
}
