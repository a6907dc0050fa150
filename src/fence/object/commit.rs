//! The one loop that commits: decide on the manifest there is, replace it, and find out what became of it.
//!
//! Nobody is believed who says "refused": a client library that lost the answer to its first attempt sends again, and hears
//! that the object has changed, by its own hand. So after every answer but a yes the manifest is read, and only the chain in
//! it tells. What is never done is deciding anew while an earlier attempt could still take effect. In a local folder not even
//! the chain tells all: an object whose folder could not be synced is seen, and a power cut takes it away. That is unknown.

use super::failure::{Contended, Fate, Moved, UnknownCommit, cause, nothing_sent};
use super::head::{Head, Sent};
use super::ids::CommitId;
use super::manifest::Manifest;
use super::place::Place;
use super::snapshot::Snapshot;
use super::staged::Staged;
use super::{ObjectFence, head};
use crate::high_water::Decide;
use crate::{FenceError, FencingToken, HighWater};
use object_store::{Error, PutMode, PutPayload};
use std::sync::Arc;

/// How often others may be faster. There is no clock here to back off by, and each loss means that somebody got on.
const ATTEMPTS: usize = 64;

/// How often one attempt is sent again, when the manifest stands as it did before it. It names the same version and is
/// the same commit, so at most one of them takes effect.
const RESENDS: usize = 2;

/// What to make of the manifest.
pub(super) enum Plan<'a> {
    Raise(&'a [FencingToken], Decide),
    Write(&'a mut Staged),
    Sweep(&'a [FencingToken]),
}

impl Plan<'_> {
    pub(super) fn doing(&self) -> &'static str {
        match self {
            Plan::Raise(..) => "raising the fence",
            Plan::Write(_) => "committing the write",
            Plan::Sweep(_) => "marking what may be removed",
        }
    }

    fn tokens(&self) -> &[FencingToken] {
        match self {
            Plan::Raise(tokens, _) | Plan::Sweep(tokens) => tokens,
            Plan::Write(staged) => &staged.tokens,
        }
    }

    /// The manifest that follows, or why none may.
    async fn next(
        &mut self,
        fence: &ObjectFence,
        before: Option<&Manifest>,
        id: CommitId,
    ) -> Result<Manifest, FenceError> {
        let rule: Decide = match self {
            Plan::Raise(_, rule) => *rule,
            Plan::Write(_) | Plan::Sweep(_) => HighWater::check,
        };
        let rows = Manifest::judge(before, &fence.cluster, self.tokens(), rule)?;
        if let Plan::Write(staged) = self {
            if let Some((read, commit)) = staged.write.rests_on()
                && before.map(Manifest::commit) != Some(commit)
            {
                let found = before.map_or(0, |manifest| manifest.number);
                return Err(FenceError::busy("committing the write", Moved { read, found }));
            }
            staged.upload_for(fence, before).await?;
        }
        let mut next = Manifest::after(before, &fence.cluster, id);
        next.remember(rows);
        match self {
            Plan::Raise(..) => {}
            Plan::Write(staged) => staged.apply(&mut next),
            Plan::Sweep(_) => next.floor = next.number,
        }
        Ok(next)
    }

    /// The text of what follows, when it has room. A write leaves some for the raises to come.
    fn encode(&self, before: Option<&Manifest>, next: &Manifest) -> Result<PutPayload, FenceError> {
        match self {
            Plan::Write(_) => next.encode_for_write(before),
            Plan::Raise(..) | Plan::Sweep(_) => next.encode(),
        }
        .map(PutPayload::from)
    }
}

impl ObjectFence {
    /// Commits a plan on the manifest that is `known`, or on what has taken its place.
    ///
    /// It answers what it has committed, as it was at that moment.
    pub(super) async fn commit(
        &self,
        place: &Place,
        known: Option<Head>,
        mut plan: Plan<'_>,
        id: CommitId,
    ) -> Result<Snapshot, FenceError> {
        let doing = plan.doing();
        let tokens = plan.tokens().to_vec();
        let unknown = |next: &Manifest, cause: Arc<dyn std::error::Error + Send + Sync>| {
            let (place, tokens) = (place.clone(), tokens.clone());
            let unknown = UnknownCommit { place, number: next.number, commit: next.commit(), tokens, cause };
            FenceError::store(doing, unknown)
        };
        let mut head = match known {
            // A store need not tell the version of what was put.
            Some(head) if !self.heads.can_replace(&head) => self.heads.read(place).await?,
            known => known,
        };
        for _ in 0..ATTEMPTS {
            let before = head.as_ref().map(|head| &head.manifest);
            let next = plan.next(self, before, id).await?;
            let text = plan.encode(before, &next)?;
            let mut sent = self.heads.send(doing, place, head.as_ref(), (&next, text.clone())).await;
            let mut resends = 0;
            head = loop {
                let cause = match sent {
                    Sent::Replaced(head) => return Ok(Snapshot::new(place, head)),
                    Sent::Never(error) if resends == 0 => return Err(error),
                    Sent::Never(error) => return Err(unknown(&next, Arc::new(error))),
                    Sent::Undurable(error) => return Err(unknown(&next, cause(error))),
                    Sent::Lost(error) | Sent::Unknown(error) => cause(error),
                };
                let now = match self.heads.read(place).await {
                    Ok(now) => now,
                    Err(_) => return Err(unknown(&next, cause)),
                };
                match fate(now.as_ref(), &next, &tokens) {
                    Fate::Committed => return Ok(Snapshot::new(place, settled(now, next))),
                    Fate::Refused => break now,
                    Fate::Open if now.is_none() && head.is_some() => return Err(vanished(place)),
                    Fate::Open if resends < RESENDS => {
                        resends += 1;
                        sent = self.heads.send(doing, place, head.as_ref(), (&next, text.clone())).await;
                    }
                    Fate::Open | Fate::Forgotten => return Err(unknown(&next, cause)),
                }
            };
        }
        Err(FenceError::busy(doing, Contended(ATTEMPTS)))
    }

    /// Says what became of a commit whose answer was lost: now, later, or from another process.
    ///
    /// While it answers [`Fate::Open`], the commit can still be on its way. The next commit decides it: an owner whose
    /// grant the coordinator confirms raises, and asks again.
    ///
    /// # Errors
    /// [`FenceError::Busy`], [`FenceError::Corrupt`], [`FenceError::Unfit`] when it cannot be read.
    pub async fn resolve(&self, unknown: &UnknownCommit) -> Result<Fate, FenceError> {
        let head = self.heads.read(&unknown.place).await?;
        let fate = |head: Head| head.manifest.fate(unknown.number, unknown.commit, &unknown.tokens);
        Ok(head.map_or(Fate::Open, fate))
    }
}

fn fate(now: Option<&Head>, next: &Manifest, tokens: &[FencingToken]) -> Fate {
    now.map_or(Fate::Open, |now| now.manifest.fate(next.number, next.commit(), tokens))
}

/// What we committed: as it is now, or as it was when others have gone on since.
fn settled(now: Option<Head>, next: Manifest) -> Head {
    match now {
        Some(now) if now.manifest.number == next.number => now,
        _ => Head { manifest: next, version: None },
    }
}

fn vanished(place: &Place) -> FenceError {
    FenceError::Corrupt {
        place: place.shown().to_owned(),
        found: "no manifest, and there was one a moment ago: somebody deletes what must never be deleted"
            .into(),
    }
}

/// Puts an object that holds data under a name that nobody else has, so sending it twice does no harm.
pub(super) async fn upload(
    fence: &ObjectFence,
    path: &object_store::path::Path,
    payload: object_store::PutPayload,
) -> Result<(), FenceError> {
    let put: Result<_, Error> = head::put(&*fence.heads.store, path, payload, PutMode::Overwrite).await;
    put.map(drop).map_err(nothing_sent("uploading the data"))
}
