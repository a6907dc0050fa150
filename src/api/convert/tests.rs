//! What a message shows of a state is the same behind the wire, and a wrong field is named.

use super::{
    DrainLeft, Gone, Held, InvalidField, MapEntry, NodeAddress, Owner, Partition, Phase, RequestId,
    SessionEnd, Tenure,
};
use crate::state::tests::sample;
use crate::v1;
use ringfence_core::ids::{LogIndex, NodeId, PartitionKey, SessionId};
use ringfence_core::state::{EndReason, Request, State};
use std::fmt::Debug;
use std::time::Duration;

fn keys(state: &State) -> Vec<PartitionKey> {
    let keys = state.keyspaces().flat_map(|keyspace| {
        let id = keyspace.id();
        keyspace.count().partitions().map(move |partition| PartitionKey { keyspace: id, partition })
    });
    keys.collect()
}

/// To the wire and back.
fn same<T, W>(value: T)
where
    T: Clone + Debug + PartialEq + TryFrom<W, Error = InvalidField>,
    W: From<T>,
{
    assert_eq!(T::try_from(W::from(value.clone())), Ok(value));
}

/// The field that a message fails by once it is broken.
fn wrong<T, W>(value: &T, break_it: impl FnOnce(&mut W)) -> String
where
    T: Clone + Debug + TryFrom<W, Error = InvalidField>,
    W: From<T>,
{
    let mut wire = W::from(value.clone());
    break_it(&mut wire);
    T::try_from(wire).expect_err("refused").field().to_owned()
}

#[test]
fn what_is_read_of_a_state_is_the_same_behind_the_wire() {
    let (mut phases, mut owned, mut born) = (Vec::new(), 0, 0);
    for state in [sample::state(), sample::state_of_format_2()] {
        read_all(&state, &mut phases, &mut owned, &mut born);
    }
    for phase in [Phase::Vacant, Phase::Cooling, Phase::Owned, Phase::Draining] {
        assert!(phases.contains(&phase), "{phase}");
        assert_eq!(Phase::try_from(i32::from(v1::Phase::from(phase))), Ok(phase));
    }
    assert!(owned >= 4 && born == 1, "{owned} {born}");
}

fn read_all(state: &State, phases: &mut Vec<Phase>, owned: &mut u32, born: &mut usize) {
    for key in keys(state) {
        let entry = MapEntry::read(state, key).unwrap();
        phases.push(entry.phase);
        same::<_, v1::MapEntry>(entry);
        same::<_, v1::Partition>(Partition::read(state, key).unwrap());
        for tenure in state.partition(key).unwrap().history() {
            same::<_, v1::Tenure>(Tenure::read(state, tenure));
        }
        for session in state.sessions() {
            if let Some(held) = Held::read(state, session.id(), key) {
                *born += held.lineage.ancestors.len();
                assert!(session.holds().contains(&key));
                *owned += 1;
                let (keyspace, partition, epoch) = (held.keyspace.clone(), held.partition, held.epoch);
                same::<_, v1::Gone>(Gone { keyspace: keyspace.clone(), partition, epoch });
                let left = Duration::from_millis(7);
                same::<_, v1::DrainLeft>(DrainLeft { keyspace, partition, epoch, left });
                same::<_, v1::Held>(held);
            }
        }
    }
}

#[test]
fn an_operator_reads_why_a_partition_cools_and_where_it_goes() {
    let state = sample::state();
    let rows: Vec<_> = keys(&state).into_iter().map(|key| Partition::read(&state, key).unwrap()).collect();
    let cooling: Vec<_> = rows.iter().map(|row| row.cooling.as_str()).filter(|why| !why.is_empty()).collect();
    assert_eq!(
        cooling,
        ["a back-off of 1000ms after a failed task", "the lease of s3 runs out, at most 10000ms"]
    );
    let moving: Vec<_> =
        rows.iter().filter_map(|row| row.moving.as_ref()).map(|(to, _)| to.as_str()).collect();
    assert_eq!(moving, ["w2"]);
    let failed: Vec<_> =
        rows.iter().map(|row| (row.failures, row.last_error.as_str())).filter(|f| f.0 > 0).collect();
    assert_eq!(failed, [(1, "it broke: ä"), (1, "")]);
}

#[test]
fn what_is_not_there_is_not_read() {
    let state = sample::state();
    let mut key = keys(&state)[0];
    assert!(Held::read(&state, SessionId::new(99).unwrap(), key).is_none());
    key.partition = ringfence_core::ids::PartitionId::new(1_000);
    assert!(MapEntry::read(&state, key).is_none() && Partition::read(&state, key).is_none());
}

#[test]
fn a_wrong_field_is_named_with_its_path() {
    let state = sample::state();
    let key = keys(&state)[0];
    let entry = MapEntry::read(&state, key).unwrap();
    assert_eq!(wrong(&entry, |w: &mut v1::MapEntry| w.keyspace.clear()), "keyspace");
    assert_eq!(wrong(&entry, |w: &mut v1::MapEntry| w.epoch = 1 << 53), "epoch");
    assert_eq!(wrong(&entry, |w: &mut v1::MapEntry| w.phase = 0), "phase");
    assert_eq!(wrong(&entry, |w: &mut v1::MapEntry| w.phase = 77), "phase");
    assert_eq!(wrong(&entry, |w: &mut v1::MapEntry| w.owner.as_mut().unwrap().session = 0), "owner.session");
    assert_eq!(
        wrong(&entry, |w: &mut v1::MapEntry| w.owner.as_mut().unwrap().worker.clear()),
        "owner.worker"
    );
    let row = Partition::read(&state, key).unwrap();
    assert_eq!(wrong(&row, |w: &mut v1::Partition| "Not A Name".clone_into(&mut w.moving_to)), "moving_to");
    let held = Held::read(&state, SessionId::new(1).unwrap(), key).unwrap();
    assert_eq!(wrong(&held, |w: &mut v1::Held| w.epoch = 0), "epoch");
    let tenure = Tenure::read(&state, &state.partition(key).unwrap().history()[0]);
    assert_eq!(wrong(&tenure, |w: &mut v1::Tenure| w.session = 0), "session");
}

#[test]
fn a_request_has_an_id_that_somebody_drew() {
    let request = RequestId { id: 1 << 127, seen: LogIndex::new(9) };
    same::<_, v1::RequestId>(request);
    assert_eq!(Request::from(request), Request::Operator { id: 1 << 127, seen: LogIndex::new(9) });
    assert_eq!(wrong(&request, |w: &mut v1::RequestId| w.id = vec![0; 16].into()), "id");
    assert_eq!(wrong(&request, |w: &mut v1::RequestId| w.id = vec![1; 15].into()), "id");
    assert_eq!(RequestId::try_from(None).unwrap_err().field(), "request");
    let short = v1::RequestId::default();
    assert_eq!(RequestId::try_from(Some(short)).unwrap_err().field(), "request.id");
}

#[test]
fn addresses_and_ends_are_the_same_behind_the_wire() {
    same::<_, v1::NodeAddress>(NodeAddress { node: NodeId::new(3).unwrap(), address: "n3:7400".to_owned() });
    same::<_, v1::Owner>(Owner::read(&sample::state(), SessionId::new(1).unwrap()).unwrap());
    for why in [None, Some(EndReason::Left), Some(EndReason::Expired), Some(EndReason::Replaced)] {
        let end = SessionEnd::from(why);
        assert_eq!(SessionEnd::from(v1::SessionEnd::from(end)), end);
    }
}

#[test]
fn f021_what_an_operator_is_shown_of_a_node_s_words_is_escaped() {
    let row = Partition::read(&sample::state(), keys(&sample::state())[0]).unwrap();
    let mut wire = v1::Partition::from(row);
    wire.last_error = "\u{1b}[2J".to_owned();
    wire.cooling = "\n".to_owned();
    let row = Partition::try_from(wire).unwrap();
    assert_eq!((row.last_error.as_str(), row.cooling.as_str()), ("\\u{1b}[2J", "\\n"));
}
