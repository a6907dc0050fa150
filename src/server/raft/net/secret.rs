//! What the nodes of a cluster prove to each other that they know.

use sha2::{Digest, Sha256};
use std::fmt;
use std::sync::Arc;
use tonic::Status;
use tonic::metadata::{BinaryMetadataValue, MetadataMap};

const SECRET_KEY: &str = "ringfence-cluster-secret-bin";

/// A secret shared by all nodes of a cluster. It is never shown.
#[derive(Clone)]
pub struct ClusterSecret(Arc<[u8]>);

impl ClusterSecret {
    /// The shortest secret, in bytes.
    pub const MIN_BYTES: usize = 16;
    /// The longest secret, in bytes: it travels in the metadata of every request.
    pub const MAX_BYTES: usize = 1024;

    /// Takes these bytes as the secret; `None` when they are too few or too many.
    pub fn new(bytes: &[u8]) -> Option<ClusterSecret> {
        (Self::MIN_BYTES..=Self::MAX_BYTES).contains(&bytes.len()).then(|| ClusterSecret(bytes.into()))
    }

    /// Shows the secret, if there is one, in the metadata of a request to a peer.
    pub(crate) fn show(secret: Option<&ClusterSecret>, metadata: &mut MetadataMap) {
        if let Some(secret) = secret {
            let mut value = BinaryMetadataValue::from_bytes(&secret.0);
            value.set_sensitive(true);
            metadata.insert_bin(SECRET_KEY, value);
        }
    }

    /// Refuses a sender that does not know the secret, if there is one.
    pub(crate) fn demand(secret: Option<&ClusterSecret>, metadata: &MetadataMap) -> Result<(), Box<Status>> {
        let Some(secret) = secret else { return Ok(()) };
        let given = metadata.get_bin(SECRET_KEY).and_then(|value| value.to_bytes().ok()).unwrap_or_default();
        if secret.matches(&given) {
            return Ok(());
        }
        let why = "the cluster secret is missing or wrong: give every node the same one";
        Err(Box::new(Status::unauthenticated(why)))
    }

    /// True when `given` is this secret, in a time that does not depend on where they differ.
    fn matches(&self, given: &[u8]) -> bool {
        // Hashed first, so that neither length nor content decides how long the comparison takes.
        let (ours, theirs) = (Sha256::digest(&self.0), Sha256::digest(given));
        let differing = ours.iter().zip(theirs.iter()).fold(0u8, |acc, (a, b)| acc | (a ^ b));
        std::hint::black_box(differing) == 0
    }
}

impl fmt::Debug for ClusterSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterSecret(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_matches_itself_only_and_is_never_shown() {
        let secret = ClusterSecret::new(b"0123456789abcdef").expect("long enough");
        assert!(secret.matches(b"0123456789abcdef"));
        assert!(
            !secret.matches(b"0123456789abcdeX")
                && !secret.matches(b"")
                && !secret.matches(b"0123456789abcdef0")
        );
        assert_eq!(format!("{secret:?}"), "ClusterSecret(..)");
        assert!(ClusterSecret::new(b"short").is_none());
    }
}
