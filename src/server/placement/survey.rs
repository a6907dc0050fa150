//! Plans as they would be, and why a partition is where it is.

use super::history::bearing_on;
use super::{whose, words};
use crate::admin::Pieces;
use crate::admin::moves::{all_unfit, find};
use crate::context::Context;
use crate::map::no_such_keyspace;
use crate::replica::Local;
use futures_util::stream;
use ringfence_api::Failure;
use ringfence_api::convert::{InvalidField, Partition, balance_by_to_wire, checked};
use ringfence_api::v1;
use ringfence_api::v1::plan_response::Piece;
use ringfence_api::v1::what_if::{Add, Change, Weigh};
use ringfence_core::ids::{Epoch, KeyspaceId, PartitionId, PartitionKey, Term, WorkerId};
use ringfence_core::lead::{MAX_COMMANDS, Ownerless, PinTrouble, Stays, Survey, Unfit, WhatIf};
use ringfence_core::placement::{Because, Plan, PlannedMove, Weight};
use ringfence_core::state::{MAX_LABELS, Partition as Owned, State, Subject};
use std::collections::BTreeMap;

/// How many sentences about what could not be done are sent.
const OBSTACLES: usize = 100;
/// How many suppositions one plan may rest on.
const MAX_WHAT_IFS: usize = 1_000;

/// The plan for a keyspace.
pub(super) async fn plan(
    context: &Context,
    request: v1::PlanRequest,
) -> Result<Pieces<v1::PlanResponse>, Failure> {
    let name = checked::keyspace_name("keyspace", &request.keyspace)?;
    if request.what_if.len() > MAX_WHAT_IFS {
        return Err(InvalidField::new("what_if", format!("there are at most {MAX_WHAT_IFS}")).into());
    }
    let supposed = !request.what_if.is_empty();
    let what_ifs = request.what_if.into_iter().enumerate();
    let what_ifs = what_ifs.map(|(place, wire)| what_if(wire).map_err(|e| e.at("what_if", place)));
    let what_ifs: Vec<WhatIf> = what_ifs.collect::<Result<_, _>>()?;

    let (term, _) = context.confirm().await?;
    let (survey, frozen, of) = {
        let local = context.replica.lock();
        let id = local.state.keyspace_named(&name).ok_or_else(|| no_such_keyspace(&name))?.id();
        let mut survey = survey(context, &local, term, id)?;
        for what in what_ifs {
            let adds = matches!(what, WhatIf::Add { .. });
            survey.suppose(what, &local.state).map_err(|worker| match adds {
                true => Failure::refused(format_args!(
                    "worker {worker} serves keyspace {name} already, so it cannot be added: suppose another weight \
                     (`weight:{worker}=N`), or that it is removed first (`remove:{worker}`)"
                )),
                false => Failure::not_found(format_args!(
                    "worker {worker} does not serve keyspace {name} now, so it can neither be removed nor weighed"
                )),
            })?;
        }
        let lineage = local.state.cluster().map_or(0, |cluster| cluster.lineage);
        let frozen = whose::in_short(&whose::frozen_whole(id, &local.state), &local.state);
        (
            survey,
            frozen,
            v1::PlanSummary {
                lineage,
                revision: local.state.revision().get(),
                supposed,
                ..Default::default()
            },
        )
    };
    // A large plan takes a while, and nobody waits for the state meanwhile.
    let plan = survey.plan().map_err(cannot)?;
    let workers: Vec<v1::PlanWorker> =
        (0..survey.workers().len()).map(|at| worker(&survey, &plan, at)).collect();
    // The plan has repairs first; whoever approves it writes it down by partition.
    let mut moves: Vec<v1::PlannedMove> = plan.moves.iter().map(|planned| shown(&survey, planned)).collect();
    moves.sort_unstable_by_key(|planned| planned.partition);
    let mut pieces = vec![Piece::Summary(summary(of, &survey, &plan, &frozen))];
    let workers = workers.chunks(MAX_COMMANDS).map(|w| v1::PlanWorkers { workers: w.to_vec() });
    pieces.extend(workers.map(Piece::Workers));
    let moves = moves.chunks(MAX_COMMANDS).map(|m| v1::PlanMoves { moves: m.to_vec() });
    pieces.extend(moves.map(Piece::Moves));
    let pieces = pieces.into_iter().map(|piece| Ok(v1::PlanResponse { piece: Some(piece) }));
    Ok(Box::pin(stream::iter(pieces)))
}

/// Why a partition is where it is.
pub(super) async fn explain(
    context: &Context,
    request: v1::ExplainRequest,
) -> Result<v1::ExplainResponse, Failure> {
    let name = checked::keyspace_name("keyspace", &request.keyspace)?;
    let number = PartitionId::new(request.partition);
    let (term, _) = context.confirm().await?;
    let (survey, partition, directives, waits, seen, unfit) = {
        let local = context.replica.lock();
        let (now, state) = (context.clock.now(), &local.state);
        let key = find(state, &name, number)?;
        let survey = survey(context, &local, term, key.keyspace)?;
        let partition = Partition::read(state, key);
        let load = local.leadership.as_ref().and_then(|led| led.loads.measured(key));
        let partition = partition.map(|read| Partition { load, ..read });
        let waits = state.keyspace(key.keyspace).and_then(words::balancing_waits);
        let split_waits = split_waits(state, key);
        // Checked by the survey.
        let led = local.leadership.as_ref();
        let whole = whose::frozen_whole(key.keyspace, state);
        let seen = led.map(|led| Seen {
            stays: led.stays(now, state, key),
            ownerless: led.ownerless_why(now, state, key),
            pin: led.pin(now, state, key),
            frozen: whole.iter().map(|what| whose::frozen(what, state)).collect(),
        });
        let absent = led.map(|led| led.presence.absent(now)).unwrap_or_default();
        let unfit = survey.workers().iter().map(|candidate| {
            let worker = candidate.worker.clone();
            let all = all_unfit(state, &absent, key, &worker);
            (worker, all)
        });
        let unfit: BTreeMap<WorkerId, Vec<Unfit>> = unfit.filter(|(_, all)| !all.is_empty()).collect();
        (survey, partition, bearing_on(state, key), (waits, split_waits), seen.unwrap_or_default(), unfit)
    };
    let (waits, split_waits) = waits;
    let explained = survey.explain(number).map_err(cannot)?;
    let cooling = partition.as_ref().map(|partition| partition.cooling.clone());
    let target = partition.as_ref().and_then(|partition| partition.moving.clone()).map(|(to, _)| to);
    let of = |worker: &WorkerId| unfit.get(worker).map_or(&[][..], Vec::as_slice);
    let owner = partition.as_ref().and_then(|partition| partition.owner.as_ref()).map(|owner| &owner.worker);
    let about = words::About {
        target: target.as_ref(),
        waits: cooling.filter(|cooling| !cooling.is_empty()).or(seen.ownerless.map(|why| why.to_string())),
        stays: &seen.stays,
        frozen: &seen.frozen,
        pin: seen.pin.as_ref().map(|(worker, _)| worker),
        owner_cordoned: owner.is_some_and(|owner| of(owner).contains(&Unfit::Cordoned)),
    };
    let others = explained.others.iter().map(|(worker, why)| v1::explain_response::WhyNot {
        worker: survey.name(*worker).to_string(),
        why: words::why_not(why, of(survey.name(*worker))),
    });
    let mut holds: Vec<String> = explained.holds.iter().flat_map(|hold| words::holds(hold, &about)).collect();
    match &seen.pin {
        Some((worker, Some(trouble))) => holds.push(words::pin_trouble(worker, trouble, of(worker))),
        Some((worker, None)) if explained.because == Because::PinWaits => {
            holds.push(words::pin_waits(worker));
        }
        Some((_, None)) | None => {}
    }
    // It is planned, and is not granted yet.
    let slow = |why: &Ownerless| matches!(why, Ownerless::Braked | Ownerless::Rests | Ownerless::NotPlanned);
    holds.extend(seen.ownerless.filter(slow).map(|why| why.to_string()));
    if explained.planned.is_some_and(|planned| planned.reason.is_balance()) {
        holds.extend(waits.map(str::to_owned));
    }
    holds.extend(split_waits);
    Ok(v1::ExplainResponse {
        partition: partition.map(v1::Partition::from),
        home: explained.home.map_or(String::new(), |home| survey.name(home).to_string()),
        because: words::because(&explained.because, &about),
        holds,
        planned: explained.planned.map(|planned| shown(&survey, &planned)),
        others: others.collect(),
        directives,
        load: survey.load(number).map_or(0, |(load, _)| load),
        load_source: survey
            .load(number)
            .map_or(String::new(), |(_, source)| words::source(source).to_owned()),
        pin: seen.pin.as_ref().map_or(String::new(), |(worker, _)| worker.to_string()),
    })
}

/// What keeps a partition from being split whose turn it is, a sentence: what is frozen of it, its owner, its keyspace and the
/// cluster.
fn split_waits(state: &State, key: PartitionKey) -> Option<String> {
    let keyspace = state.keyspace(key.keyspace)?;
    keyspace.next_to_split().filter(|next| *next == key.partition)?;
    let own = keyspace.settings().get(&key.partition).and_then(|set| set.frozen);
    let owner = state.partition(key).and_then(Owned::owner).and_then(|owner| state.session(owner));
    let owner = owner.map(|owner| owner.worker().clone());
    let owner =
        owner.filter(|owner| state.worker_settings().get(owner).is_some_and(|set| set.frozen.is_some()));
    let frozen = whose::frozen_whole(key.keyspace, state)
        .into_iter()
        .chain(own.map(|_| Subject::Partition(key)))
        .chain(owner.map(Subject::Worker));
    let frozen: Vec<String> = frozen.map(|what| whose::frozen(&what, state)).collect();
    (!frozen.is_empty()).then(|| format!("it is split next, and the split waits: {}", frozen.join("; ")))
}

/// What the leader knows of a partition beside what a plan sees.
#[derive(Default)]
struct Seen {
    stays: Vec<Stays>,
    ownerless: Option<Ownerless>,
    pin: Option<(WorkerId, Option<PinTrouble>)>,
    /// That the cluster or the keyspace is frozen.
    frozen: Vec<String>,
}

/// What the leader of this term sees of a keyspace.
fn survey(context: &Context, local: &Local, term: Term, id: KeyspaceId) -> Result<Survey, Failure> {
    let leadership = local.leadership.as_ref().filter(|led| led.term() == term);
    let survey = leadership.ok_or_else(Failure::no_leader)?.survey(context.clock.now(), &local.state, id);
    survey.ok_or_else(|| Failure::not_found("the keyspace is gone"))
}

fn cannot(why: ringfence_core::placement::PlanError) -> Failure {
    Failure::refused(format_args!("no plan can be made: {why}"))
}

fn what_if(wire: v1::WhatIf) -> Result<WhatIf, InvalidField> {
    let weight = |number| Weight::new(number).map_err(|why| InvalidField::new("weight", why));
    Ok(match wire.change.ok_or_else(|| InvalidField::missing("change"))? {
        Change::Remove(worker) => WhatIf::Remove(checked::worker_id("remove", &worker)?),
        Change::Weigh(Weigh { worker, weight: number }) => {
            WhatIf::Weigh(checked::worker_id("weigh.worker", &worker)?, weight(number)?)
        }
        Change::Add(Add { worker, weight: number, labels }) => {
            if labels.len() > MAX_LABELS {
                return Err(InvalidField::new("add.labels", format!("there are at most {MAX_LABELS}")));
            }
            WhatIf::Add {
                worker: checked::worker_id("add.worker", &worker)?,
                weight: weight(number.max(1))?,
                labels: labels.into_iter().collect(),
            }
        }
    })
}

/// What is said of the whole, beside what is known already.
fn summary(of: v1::PlanSummary, survey: &Survey, plan: &Plan, frozen: &str) -> v1::PlanSummary {
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let obstacles = obstacles(survey, plan, frozen);
    let reasons = plan.counts().into_iter();
    v1::PlanSummary {
        keyspace: survey.keyspace().to_string(),
        moves: count(plan.moves.len()),
        balanced_by: balance_by_to_wire(survey.balanced_by()).into(),
        spread_before: plan.before.spread,
        spread_after: plan.after.spread,
        zone_spread_before: plan.before.zone_spread,
        zone_spread_after: plan.after.zone_spread,
        workers: count(survey.workers().len()),
        reasons: reasons
            .map(|(reason, moves)| v1::PlanReason { reason: reason.to_string(), moves: count(moves) })
            .collect(),
        more_obstacles: count(obstacles.len().saturating_sub(OBSTACLES)),
        obstacles: obstacles.into_iter().take(OBSTACLES).collect(),
        ..of
    }
}

fn worker(survey: &Survey, plan: &Plan, at: usize) -> v1::PlanWorker {
    let candidate = &survey.workers()[at];
    v1::PlanWorker {
        worker: candidate.worker.to_string(),
        zone: candidate.zone.map_or(String::new(), |zone| survey.zone(zone).to_owned()),
        weight: candidate.weight.get(),
        standing: words::standing(&candidate.standing),
        before: plan.before.loads[at],
        after: plan.after.loads[at],
        share: plan.shares[at],
    }
}

/// What could not be done, a sentence each. `frozen` says what is, of the cluster and the keyspace.
fn obstacles(survey: &Survey, plan: &Plan, frozen: &str) -> Vec<String> {
    let unplaced = plan.unplaced.iter().map(|(partition, why)| {
        format!("partition {} has no owner: {why} ({})", partition.get(), plan.takers)
    });
    let pins = plan.unmet_pins.iter().map(|pin| {
        let worker = pin.worker.map_or("its worker".to_owned(), |ix| format!("worker {}", survey.name(ix)));
        format!("partition {} is pinned, and {worker} {}", pin.partition.get(), words::unmet(pin.why, frozen))
    });
    let overfull = plan.overfull.iter().map(|over| {
        let (name, holds, share) = (survey.name(over.worker), over.holds, over.share);
        format!("worker {name} holds {holds} and its share is {share}: {}", words::kept(&over.kept, frozen))
    });
    let unmeasured = survey.waits_for_loads().map(|measured| {
        format!(
            "nothing is balanced before the loads are known: {measured} of {} partitions have been measured",
            survey.count()
        )
    });
    unmeasured.into_iter().chain(unplaced).chain(pins).chain(overfull).collect()
}

fn shown(survey: &Survey, planned: &PlannedMove) -> v1::PlannedMove {
    v1::PlannedMove {
        partition: planned.partition.get(),
        epoch: survey.epoch(planned.partition).map_or(0, Epoch::get),
        from: planned.from.map_or(String::new(), |from| survey.name(from).to_string()),
        to: survey.name(planned.to).to_string(),
        reason: planned.reason.to_string(),
        load: survey.load(planned.partition).map_or(0, |(load, _)| load),
        arrives: false,
    }
}
