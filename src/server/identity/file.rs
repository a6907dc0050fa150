//! `node.json`: JSON, so that a person can read whose a directory is, with a format version and a checksum.

use super::{Belonging, Identity, IdentityError, Incarnation, Member};
use crate::files::{self, Files};
use crate::text::plain;
use ringfence_core::ids::{ClusterId, NodeId};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};

/// The format written. A reader knows this one and all before it.
const FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Sealed {
    format: u32,
    crc32c: u32,
    identity: IdentityV1,
}

/// What every format has, so that a newer one is told from a damaged one.
#[derive(Deserialize)]
struct AnyFormat {
    format: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct IdentityV1 {
    node: u64,
    incarnation: u64,
    has_log: bool,
    cluster: Option<String>,
    founder: bool,
    members: Vec<MemberV1>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MemberV1 {
    node: u64,
    address: String,
    incarnation: Option<u64>,
}

pub(super) fn path(dir: &Path) -> PathBuf {
    dir.join(super::FILE)
}

/// Reads the file; `None` when there is none.
pub(super) fn read(files: &dyn Files, dir: &Path) -> Result<Option<Identity>, IdentityError> {
    let path = path(dir);
    let text = match files.read(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(IdentityError::Io { path, source }),
    };
    let damaged = |why: String| IdentityError::Damaged { path: path.clone(), why: plain(&why) };
    let any: AnyFormat = serde_json::from_slice(&text).map_err(|e| damaged(e.to_string()))?;
    if any.format != FORMAT {
        return Err(IdentityError::Format { path, found: any.format, known: FORMAT });
    }
    let sealed: Sealed = serde_json::from_slice(&text).map_err(|e| damaged(e.to_string()))?;
    let sum = checksum(&sealed.identity).map_err(|e| damaged(e.to_string()))?;
    if sum != sealed.crc32c {
        return Err(damaged(format!("its checksum is {sum}, and {} is written in it", sealed.crc32c)));
    }
    sealed.identity.parse().map(Some).map_err(damaged)
}

/// Replaces the file. It is durable when this returns.
pub(super) fn write(files: &dyn Files, dir: &Path, identity: &Identity) -> Result<(), IdentityError> {
    let path = path(dir);
    let identity = IdentityV1::of(identity);
    let replace = || -> io::Result<()> {
        let sealed = Sealed { format: FORMAT, crc32c: checksum(&identity)?, identity };
        let mut text = serde_json::to_vec_pretty(&sealed)?;
        text.push(b'\n');
        let tmp = dir.join(format!("{}.tmp", super::FILE));
        files::replace(files, &path, &tmp, &[&text])
    };
    replace().map_err(|source| IdentityError::Io { path: path.clone(), source })
}

/// Over the compact form, which has one spelling: fields in their order, members by id.
fn checksum(identity: &IdentityV1) -> serde_json::Result<u32> {
    Ok(crc32c::crc32c(&serde_json::to_vec(identity)?))
}

impl IdentityV1 {
    fn of(identity: &Identity) -> IdentityV1 {
        let members = identity.belongs.iter().flat_map(|belongs| &belongs.members);
        IdentityV1 {
            node: identity.node.get(),
            incarnation: identity.incarnation.get(),
            has_log: identity.has_log,
            cluster: identity.belongs.as_ref().map(|belongs| belongs.cluster.to_string()),
            founder: identity.belongs.as_ref().is_some_and(|belongs| belongs.founder),
            members: members
                .map(|(node, member)| MemberV1 {
                    node: node.get(),
                    address: member.address.clone(),
                    incarnation: member.incarnation.map(Incarnation::get),
                })
                .collect(),
        }
    }

    fn parse(self) -> Result<Identity, String> {
        let node = NodeId::new(self.node).map_err(|e| e.to_string())?;
        let incarnation = Incarnation::new(self.incarnation);
        let has_log = self.has_log;
        let Some(cluster) = self.cluster else {
            return Ok(Identity { node, incarnation, belongs: None, has_log });
        };
        let cluster = ClusterId::new(&cluster).map_err(|e| e.to_string())?;
        let members = self.members.into_iter().map(|member| {
            let node = NodeId::new(member.node).map_err(|e| e.to_string())?;
            let incarnation = member.incarnation.map(Incarnation::new);
            Ok((node, Member { address: member.address, incarnation }))
        });
        let members = members.collect::<Result<_, String>>()?;
        let belongs = Some(Belonging { cluster, members, founder: self.founder });
        Ok(Identity { node, incarnation, belongs, has_log })
    }
}
