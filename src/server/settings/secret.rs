//! The file with the cluster's secret. Its content is never shown, not even when it is wrong.

use super::error::SettingsError;
use crate::raft::ClusterSecret;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Reads the secret: the bytes of the file without the line end that editors leave behind. The second value warns of a
/// file that others on the machine may read.
pub(super) fn read(path: &Path) -> Result<(ClusterSecret, Option<String>), SettingsError> {
    let wrong = |why: String| SettingsError::SecretFile { path: path.to_owned(), why };
    let file = std::fs::File::open(path).map_err(|e| wrong(e.to_string()))?;
    let mode = file.metadata().map_err(|e| wrong(e.to_string()))?.permissions().mode();
    let mut bytes = Vec::new();
    // One byte more than fits, and a line end: enough to tell that it is too long, whatever the file is.
    let bound = ClusterSecret::MAX_BYTES as u64 + 3;
    file.take(bound).read_to_end(&mut bytes).map_err(|e| wrong(e.to_string()))?;
    while bytes.last().is_some_and(|b| matches!(b, b'\n' | b'\r')) {
        bytes.pop();
    }
    let secret = ClusterSecret::new(&bytes).ok_or_else(|| {
        wrong(format!(
            "a secret has {} to {} bytes: write a longer random one, for example from: openssl rand -hex 32",
            ClusterSecret::MIN_BYTES,
            ClusterSecret::MAX_BYTES
        ))
    })?;
    let warning = (mode & 0o007 != 0).then(|| {
        format!(
            "everybody on this machine may read {}: chmod 600 it, for who knows the secret can pass for a node",
            path.display()
        )
    });
    Ok((secret, warning))
}
