//! What a refusal of the state means to whoever asked: the one mapping from the core's [`Refused`] to a [`Failure`].
//!
//! The state knows keyspaces and partitions by number, people know them by name; the names are looked up here. A number
//! whose name has gone meanwhile is shown as it is.
//!
//! The match is exhaustive on purpose: whoever adds a refusal decides here what a client is to do about it.

use crate::context::Context;
use crate::placement::whose;
use ringfence_api::Failure;
use ringfence_api::convert::Owner;
use ringfence_core::ids::{KeyspaceId, PartitionKey, SessionId};
use ringfence_core::state::{Partition, Refused, State};

/// The failure to answer with when the state, as it is applied here now, has refused a command.
pub fn to_failure(context: &Context, why: &Refused) -> Failure {
    failure(why, &context.replica.lock().state)
}

/// The failure to answer with when this state has refused a command.
///
/// A duplicate identity is answered here without the address of the process that asked, which the state does not know;
/// a service that does knows better and takes that case first.
pub fn failure(why: &Refused, state: &State) -> Failure {
    match why {
        Refused::TooOld => Failure::too_old(),
        Refused::AlreadyFormed(_) | Refused::KeyspaceExists(_) => Failure::already_exists(why),
        Refused::NodeIdUsed(_) => Failure::refused(why),
        Refused::NoSuchKeyspace(id) => {
            Failure::not_found(format_args!("there is no keyspace {}", keyspace(*id, state)))
        }
        Refused::NoSuchPartition(key) => {
            Failure::not_found(format_args!("there is no partition {}", partition(*key, state)))
        }
        Refused::SessionEnded { session, how } => Failure::session_ended(*session, *how),
        Refused::DuplicateIdentity { worker, holder } => {
            let held_at = state.session(*holder).map_or("", |session| session.address());
            Failure::duplicate_identity(worker.as_str(), held_at, "")
        }
        Refused::StaleEpoch { partition, current, .. } => {
            let owner = state.partition(*partition).and_then(Partition::owner);
            Failure::stale_epoch(*current, owner.and_then(|session| Owner::read(state, session)))
        }
        // Only a leader proposes an expiry, and it looks again by itself; a client never sees this.
        Refused::SuspicionMovedOn { .. } | Refused::Thirds(_) => Failure::refused(why),
        Refused::NotOwner { partition: key, session } => {
            Failure::refused(format_args!("session {session} does not own {}", partition(*key, state)))
        }
        Refused::OtherMove(key) => {
            let name = partition(*key, state);
            Failure::refused(format_args!(
                "partition {name} is in another move, or in none; look at it again"
            ))
        }
        Refused::NotVacant(key) => Failure::refused(format_args!(
            "partition {} is not vacant any more; look at it again",
            partition(*key, state)
        )),
        Refused::NotOwned(key) => Failure::refused(format_args!(
            "nobody owns partition {}, so there is nothing to move it from; it is granted by itself when it has cooled",
            partition(*key, state)
        )),
        Refused::NotCooling(key) => {
            Failure::refused(format_args!("partition {} does not cool", partition(*key, state)))
        }
        Refused::TakesOverByLease(id) => Failure::refused(format_args!(
            "keyspace {} takes over by lease: a partition is not taken from a live session",
            keyspace(*id, state)
        )),
        Refused::NotServing { session, keyspace: id } => Failure::refused(format_args!(
            "{} does not serve keyspace {}; name it when the worker joins",
            worker(*session, state),
            keyspace(*id, state)
        )),
        Refused::Implausible { partition: key, from, to } => Failure::refused(format_args!(
            "partition {} stands at {from}, and {} is more than 2^48 above it: no fence takes such a jump. Read from the storage \
             what it has seen",
            partition(*key, state),
            to.get()
        )),
        Refused::LockHeld { .. } | Refused::OtherLockMode(_) | Refused::NoSuchLockEpoch { .. } => {
            Failure::refused(why)
        }
        Refused::Limit { .. } => Failure::limit(why),
        Refused::NoKeyspaces | Refused::Policy(_) | Refused::PartitionWeight(_) => Failure::invalid(why),
        Refused::PlanRunning(plan) => Failure::refused(whose::running(*plan, state)),
        Refused::WorkerLives { .. } | Refused::PlanOutOfOrder(_) => Failure::refused(why),
        Refused::NoSuchMove(key) => Failure::refused(format_args!(
            "the plan moves partition {} away from a worker that does not own it, or to the one that does; plan again",
            partition(*key, state)
        )),
        Refused::PlanNotRunning(_) => Failure::refused(why),
        Refused::Frozen(what) => Failure::refused(whose::frozen(what, state)),
        Refused::Pinned { partition: key, to } => Failure::refused(whose::pinned(*key, to, state)),
        Refused::PlanNotOpen { .. } => Failure::refused(why),
        Refused::NoSuchPlan(_) | Refused::NoSuchDirective(_) => Failure::not_found(why),
        Refused::SplitUnderWay(id) => Failure::refused(format_args!(
            "the partitions of keyspace {0} are being split already; see how far it is with: ringfence keyspace list",
            keyspace(*id, state)
        )),
        Refused::NotSplitting(id) => Failure::refused(format_args!(
            "the partitions of keyspace {} are not being split",
            keyspace(*id, state)
        )),
        Refused::SplitBegun { keyspace: id, born } => Failure::refused(format_args!(
            "{born} partitions of keyspace {} are split already: what was split is not put together again, for the keys of \
             both halves have new owners; let it be finished, and freeze the keyspace to hold it up",
            keyspace(*id, state)
        )),
        Refused::OtherCount { keyspace: id, named, count } => Failure::refused(format_args!(
            "keyspace {} has {count} partitions, not {named}; look again",
            keyspace(*id, state)
        )),
        Refused::NotNextToSplit { partition: key, next } => Failure::refused(format_args!(
            "partition {} is not the next one to be split; that is {}",
            partition(*key, state),
            partition(*next, state)
        )),
        Refused::CannotSplit { worker, keyspace: id } => Failure::refused(format_args!(
            "worker {worker} did not say when it joined that it can own split partitions, and the partitions of keyspace {} are \
             split, being split, or would be; every worker that serves it has to ask of each key whether its partition has it \
             and to say so (in the Rust SDK: Ownership::covers, and Builder::splittable)",
            keyspace(*id, state)
        )),
    }
}

/// `orders/17`, as people know a partition.
pub fn partition(key: PartitionKey, state: &State) -> String {
    format!("{}/{}", keyspace(key.keyspace, state), key.partition.get())
}

fn keyspace(id: KeyspaceId, state: &State) -> String {
    state.keyspace(id).map_or_else(|| id.to_string(), |keyspace| keyspace.name().to_string())
}

fn worker(id: SessionId, state: &State) -> String {
    let of = state.session(id).map(|session| format!("worker {} ({id})", session.worker()));
    of.unwrap_or_else(|| format!("session {id}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_api::error::ErrorKind;
    use ringfence_core::ids::{Epoch, KeyspaceName, LogIndex, PartitionId, WorkerId};
    use ringfence_core::placement::PartitionCount;
    use ringfence_core::state::{Command, EndReason, Entry, Policy, Subject};

    fn with_orders() -> State {
        let mut state = State::new();
        let create = Command::CreateKeyspace {
            keyspace: KeyspaceName::new("orders").unwrap(),
            partitions: PartitionCount::new(8).unwrap(),
            policy: Policy::default(),
        };
        let entry = Entry { request: None, proposed_unix_ms: 0, commands: vec![create] };
        state.apply(LogIndex::new(1), &entry).outcome.unwrap();
        state
    }

    #[test]
    fn a_refusal_is_told_in_the_names_that_people_know_and_with_the_kind_that_programs_act_on() {
        let state = with_orders();
        let id = state.keyspaces().next().unwrap().id();
        let key = PartitionKey { keyspace: id, partition: PartitionId::new(3) };
        let session = SessionId::new(9).unwrap();
        let epoch = Epoch::new(4).ok();
        let told = |why: Refused| {
            let failure = failure(&why, &state);
            (failure.kind(), failure.message().to_owned())
        };
        for (why, kind, part) in [
            (Refused::NotVacant(key), ErrorKind::Refused, "orders/3"),
            (Refused::NotOwned(key), ErrorKind::Refused, "orders/3"),
            (Refused::NoSuchPartition(key), ErrorKind::NotFound, "orders/3"),
            (Refused::NoSuchKeyspace(KeyspaceId::new(77)), ErrorKind::NotFound, "k77"),
            (Refused::NotServing { session, keyspace: id }, ErrorKind::Refused, "orders"),
            (
                Refused::KeyspaceExists(KeyspaceName::new("orders").unwrap()),
                ErrorKind::AlreadyExists,
                "orders",
            ),
            (Refused::SessionEnded { session, how: Some(EndReason::Expired) }, ErrorKind::SessionEnded, "s9"),
            (
                Refused::StaleEpoch { partition: key, named: None, current: epoch },
                ErrorKind::StaleEpoch,
                "e4",
            ),
            (Refused::Limit { what: "the number of keyspaces", bound: 7 }, ErrorKind::Limit, "7"),
            (Refused::TooOld, ErrorKind::TooOld, "request id"),
            (Refused::Frozen(Subject::Partition(key)), ErrorKind::Refused, "orders/3 is frozen"),
            (
                Refused::Pinned { partition: key, to: WorkerId::new("w7").unwrap() },
                ErrorKind::Refused,
                "unpin it (`ringfence partition unpin orders/3`)",
            ),
        ] {
            let (found, message) = told(why);
            assert!(found == kind && message.contains(part), "{found:?} {message}");
        }
    }
}
