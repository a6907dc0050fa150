//! What the fuzzer reads of a router's stream.

use super::picture::Picture;
use ringfence_api::v1::WatchResponse;
use std::collections::BTreeSet;

/// Reads a stream of the map as a router does. How many pictures were complete.
///
/// # Errors
/// The message that the stream ends with, because it makes no sense.
pub fn watch(stream: Vec<WatchResponse>) -> Result<usize, String> {
    let mut picture = Picture::new(BTreeSet::new());
    let mut complete = 0;
    let mut before = picture.resume_from();
    for message in stream {
        if picture.take(message).map_err(|e| e.to_string())?.is_some() {
            complete += 1;
            let now = picture.resume_from();
            assert!(now.0 != before.0 || now.1 >= before.1, "{now:?} follows {before:?}");
            before = now;
        }
    }
    Ok(complete)
}
