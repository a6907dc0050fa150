//! Commands about sessions: join, leave, suspect, clear, expire.

use super::State;
use super::answers::SessionAnswers;
use super::apply::Change;
use super::command::Join;
use super::handoff::Freed;
use super::keyspace::{MAX_TTL, MIN_TTL, PolicyError};
use super::outcome::{Event, Outcome, Refused};
use super::session::{ENDED_LEN, EndReason, Ended, Life, MAX_SESSIONS, Session, Suspicion};
use super::undo::Undo;
use crate::ids::{LogIndex, SessionId};
use crate::mutant;
use std::collections::BTreeSet;

impl State {
    pub(super) fn session_ended(&self, session: SessionId) -> Refused {
        Refused::SessionEnded { session, how: self.ended(session).map(|ended| ended.why) }
    }
}

impl Change<'_> {
    /// A join repeated by the same process finds its session, also when a keyspace it named has been deleted since.
    /// Otherwise an earlier session of the worker id stands in the way unless the leader named it: it found that
    /// session old enough, or was shown its secret. A delayed duplicate of an old join names an older session and so
    /// never ends a younger one.
    pub(super) fn join(&mut self, join: &Join) -> Result<Outcome, Refused> {
        let secret = |s: &Session| s.secret_hash == join.secret_hash || mutant!("nonce-alone-joins");
        let same = |s: &Session| s.nonce == join.nonce && secret(s);
        let earlier = self.state.session_of(&join.worker).map(|session| (session.id, same(session)));
        if let Some((id, true)) = earlier {
            return Ok(Outcome::Joined(id));
        }

        if let Some(out) = join.ttl.filter(|ttl| !(MIN_TTL..=MAX_TTL).contains(ttl)) {
            return Err(Refused::Policy(PolicyError::Ttl(out)));
        }
        let mut ttl = join.ttl;
        for id in &join.keyspaces {
            let keyspace = self.state.keyspaces.get(id).ok_or(Refused::NoSuchKeyspace(*id))?;
            if keyspace.needs_splits() && !join.splits && !mutant!("old-client-joins-a-split") {
                return Err(Refused::CannotSplit { worker: join.worker.clone(), keyspace: *id });
            }
            ttl = ttl.min(Some(keyspace.policy.ttl())).or(Some(keyspace.policy.ttl()));
        }
        let ttl = ttl.ok_or(Refused::NoKeyspaces)?;

        match earlier {
            Some((holder, _)) if join.replaces != Some(holder) && !mutant!("any-join-replaces") => {
                return Err(Refused::DuplicateIdentity { worker: join.worker.clone(), holder });
            }
            Some((id, _)) => self.end(id, EndReason::Replaced),
            None if self.state.sessions.len() >= MAX_SESSIONS => {
                return Err(Refused::Limit { what: "the number of sessions", bound: MAX_SESSIONS as u64 });
            }
            None => {}
        }

        let id = self.state.counters.take_session()?;
        self.state.workers.insert(join.worker.clone(), id);
        self.state.sessions.insert(
            id,
            Session {
                id,
                worker: join.worker.clone(),
                ttl,
                nonce: join.nonce,
                secret_hash: join.secret_hash,
                address: join.address.clone(),
                weight: join.weight,
                labels: join.labels.clone(),
                keyspaces: join.keyspaces.clone(),
                withdrawn: false,
                suspicion: None,
                assignment: self.index,
                holds: BTreeSet::new(),
                joined: self.index,
                joined_unix_ms: self.unix_ms,
                answers: SessionAnswers::default(),
                splits: join.splits,
                locks: BTreeSet::new(),
                waits: BTreeSet::new(),
            },
        );
        self.journal.push(Undo::Joined(id));
        self.events.push(Event::Joined(id));
        // Whoever stopped it to start it anew has done so. A process that lost its lease is still to be stopped, and so is
        // one that was drained after its join was decided.
        let stands = self.state.drain_until_join(&join.worker);
        if stands
            .is_some_and(|stands| join.ends_drain == Some(stands) || mutant!("drain-ends-with-a-lost-lease"))
        {
            self.end_drain_until_join(&join.worker);
        }
        Ok(Outcome::Joined(id))
    }

    pub(super) fn withdraw(&mut self, id: SessionId) -> Result<Outcome, Refused> {
        let Some(session) = self.state.sessions.get_mut(&id) else {
            return Err(self.state.session_ended(id));
        };
        if session.withdrawn {
            return Ok(Outcome::Unchanged);
        }
        session.withdrawn = true;
        self.journal.push(Undo::Withdrawn(id));
        self.events.push(Event::Withdrawn(id));
        Ok(Outcome::Done)
    }

    /// Leaving a session that has ended is a success: a retried leave meets no error.
    pub(super) fn leave(&mut self, session: SessionId) -> Result<Outcome, Refused> {
        if !self.state.sessions.contains_key(&session) {
            return Ok(Outcome::Unchanged);
        }
        self.end(session, EndReason::Left);
        Ok(Outcome::Done)
    }

    /// Its worker may go on believing for as long as its lease: what it held cools like that of one that was replaced.
    pub(super) fn evict(&mut self, session: SessionId) -> Outcome {
        if !self.state.sessions.contains_key(&session) {
            return Outcome::Unchanged;
        }
        self.end(session, EndReason::Evicted);
        Outcome::Done
    }

    /// Thirds only add up: a suspicion at or below the one committed changes nothing, or a slow leader could shorten
    /// what its successor has measured.
    pub(super) fn suspect(&mut self, sessions: &[(SessionId, u8)]) -> Result<Outcome, Refused> {
        if let Some((_, thirds)) = sessions.iter().find(|(_, thirds)| !(1..=2).contains(thirds)) {
            return Err(Refused::Thirds(*thirds));
        }
        let at = self.index;
        for (id, thirds) in sessions {
            let Some(session) = self.state.sessions.get_mut(id) else { continue };
            if session.suspicion.is_none_or(|now| now.thirds < *thirds) || mutant!("thirds-do-not-add-up") {
                self.journal.push(Undo::Suspicion(*id, session.suspicion));
                session.suspicion = Some(Suspicion { thirds: *thirds, at });
            }
            self.events.push(Event::Suspected(*id));
        }
        Ok(Outcome::Done)
    }

    pub(super) fn clear(&mut self, sessions: &[SessionId]) -> Outcome {
        for id in sessions {
            let Some(session) = self.state.sessions.get_mut(id) else { continue };
            if session.suspicion.is_some() {
                self.journal.push(Undo::Suspicion(*id, session.suspicion.take()));
            }
            self.events.push(Event::Cleared(*id));
        }
        Outcome::Done
    }

    /// Renewals are not in the log, so an expiry cannot see one. It rests on a committed suspicion instead: a session
    /// that was heard from has had it cleared, and the expiry that was decided before finds another or none.
    pub(super) fn expire(&mut self, id: SessionId, named: LogIndex) -> Result<Outcome, Refused> {
        let Some(session) = self.state.sessions.get(&id) else {
            return Err(self.state.session_ended(id));
        };
        let latest = session.suspicion;
        if mutant!("wall-clock-in-apply") && self.unix_ms < session.joined_unix_ms {
            return Ok(Outcome::Unchanged);
        }
        let moved_on = latest.is_none_or(|suspicion| suspicion.at != named);
        if moved_on && !mutant!("expiry-names-no-suspicion") {
            return Err(Refused::SuspicionMovedOn { session: id, named, latest });
        }
        self.end(id, EndReason::Expired);
        Ok(Outcome::Done)
    }

    /// Ends a session and vacates all its partitions, in this one command.
    fn end(&mut self, id: SessionId, why: EndReason) {
        let Some(mut session) = self.state.sessions.remove(&id) else { return };
        self.state.workers.remove(&session.worker);
        let full = self.state.ended.len() == ENDED_LEN;
        let forgotten = if full { self.state.ended.pop_front() } else { None };
        let life = (!self.state.directives.is_empty()).then(|| Life {
            joined: session.joined,
            joined_unix_ms: session.joined_unix_ms,
            address: session.address.clone(),
            ended_unix_ms: self.unix_ms,
        });
        let ended = Ended { session: id, worker: session.worker.clone(), why, at: self.index, life };
        self.state.ended.push_back(ended);

        let holds = std::mem::take(&mut session.holds);
        let lease_of = match why {
            EndReason::Expired => None,
            EndReason::Replaced if mutant!("replaced-at-once") => None,
            EndReason::Left | EndReason::Replaced | EndReason::Evicted => Some((id, session.ttl)),
        };
        session.holds.clone_from(&holds);
        self.events.push(Event::Ended { session: id, why });
        let gone = Box::new(session);
        self.end_locks(&gone, why);
        self.journal.push(Undo::Ended(gone, forgotten));
        for key in holds {
            self.vacate(key, Freed::SessionEnded { lease_of });
        }
    }
}
