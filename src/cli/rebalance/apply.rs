//! Approving a plan, and the way back.

use super::hindrances::{self, HindranceShape};
use super::plan;
use super::saved::SavedPlan;
use crate::args::Common;
use crate::exit::{Exit, Failed, Outcome};
use crate::freeze;
use crate::operator::{Progress, Sure, Who};
use crate::text::{self, short};
use ringfence::admin::{Admin, ApprovedMove, ApprovedPlan, MoveStep, Plan, PlanStage, Proposal};
use ringfence::ids::{KeyspaceName, LogIndex, PartitionId, WorkerId};
use ringfence::{Error, ErrorKind};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::time::Duration;

/// Between two looks at a plan that is carried out.
const LOOK_EVERY: Duration = Duration::from_millis(300);

/// Where the plan comes from: a file, or else a keyspace to be planned now.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) file: Option<PathBuf>,
    pub(super) keyspace: Option<KeyspaceName>,
}

/// What became of a plan.
#[derive(Debug, Serialize)]
struct AppliedShape {
    /// `approved`, `done` (with `--wait`), `cancelled`, `unchanged` or `planned`.
    result: &'static str,
    /// What names it; `null` when none was opened.
    plan: Option<u64>,
    /// The plan that it undoes.
    undoes: Option<u64>,
    keyspace: Option<String>,
    /// How many moves it has.
    moves: usize,
    /// With `--wait`: how many were made, and how many passed over.
    begun: Option<u32>,
    skipped: Option<u32>,
    /// With `--wait`: how many of those made are elsewhere by now, because their target was gone, or they moved on.
    elsewhere: Option<usize>,
    /// Of an undo: how many moves are not undone, because their partitions have moved on.
    left: Option<usize>,
    /// Of an undo: how many of its partitions are still on their way, and are taken back when they have arrived.
    arriving: Option<usize>,
    /// What may take it back.
    warning: Option<String>,
    /// What stood in the way of some of the moves when they were put, or would be; `null` when none were.
    obstacles: Option<Vec<HindranceShape>>,
    /// Of an undo that would stop its plan first: how many moves of that would not begin. Told in words only.
    #[serde(skip)]
    stops: Option<u32>,
}

/// What an undo is besides its moves.
#[derive(Clone, Copy, Debug)]
struct Back {
    /// How many moves are not undone.
    left: usize,
    /// How many moves of the plan that is undone would not begin, when that is being carried out.
    stops: Option<u32>,
}

impl AppliedShape {
    fn of(result: &'static str, proposal: &Proposal) -> AppliedShape {
        AppliedShape {
            undoes: proposal.undoes.map(LogIndex::get),
            moves: proposal.moves.len(),
            ..AppliedShape::bare(result, Some(proposal.keyspace.to_string()))
        }
    }

    fn bare(result: &'static str, keyspace: Option<String>) -> AppliedShape {
        AppliedShape {
            result,
            plan: None,
            undoes: None,
            keyspace,
            moves: 0,
            begun: None,
            skipped: None,
            elsewhere: None,
            left: None,
            arriving: None,
            warning: None,
            obstacles: None,
            stops: None,
        }
    }

    fn left_sentence(&self) -> String {
        match self.left {
            Some(left) if left > 0 => format!(
                "; {left} more have moved on since and stay where they are: `ringfence partition history` says who moved them"
            ),
            _ => String::new(),
        }
    }

    fn sentence(&self) -> String {
        let AppliedShape { moves, .. } = self;
        let keyspace = self.keyspace.as_deref().unwrap_or("-");
        let plan = self.plan.unwrap_or(0);
        let left = self.left_sentence();
        let arriving = match self.arriving.unwrap_or(0) {
            0 => String::new(),
            count => {
                format!(", {count} of them still on their way there and taken back when they have arrived")
            }
        };
        match self.result {
            "unchanged" => format!("there is nothing to move{left}\n"),
            "planned" => {
                let stops = match (self.stops, self.undoes) {
                    (Some(stops), Some(plan)) => format!(
                        "plan {plan} is being carried out, and {stops} moves of it would not begin any more; "
                    ),
                    _ => String::new(),
                };
                let all = self.obstacles.as_deref().unwrap_or_default();
                let of = match hindrances::passed_over(all) {
                    0 => moves.to_string(),
                    passed_over => format!("{} of {moves}", moves.saturating_sub(passed_over)),
                };
                format!(
                    "{stops}{of} partitions of keyspace {keyspace} would move{arriving}{left}; nothing was done\n{}",
                    hindrances::text(all)
                )
            }
            "done" => {
                let elsewhere = match self.elsewhere.unwrap_or(0) {
                    0 => String::new(),
                    count => format!(", {count} of them to another worker than planned"),
                };
                format!(
                    "plan {plan} is done: {} partitions of keyspace {keyspace} moved{elsewhere}, {} were passed over{left}\n",
                    self.begun.unwrap_or(0),
                    self.skipped.unwrap_or(0)
                )
            }
            _ => format!(
                "plan {plan} of {moves} moves in keyspace {keyspace} is being carried out{arriving}{left}; \
                 `ringfence rebalance status` shows how far it is\n"
            ),
        }
    }
}

/// Runs `ringfence rebalance apply`.
pub(super) async fn apply(common: &Common, source: &Source, wait: bool, who: &Who, sure: Sure) -> Outcome {
    sure.or_terminal(who.dry_run)?;
    let admin = who.admin(common);
    let proposal = match (&source.file, &source.keyspace) {
        (Some(file), _) => from_file(&admin, file).await?,
        (None, Some(keyspace)) => {
            let plan = admin.plan(keyspace.as_str(), &[]).await?;
            if !common.output().is_json() && io::stderr().is_terminal() {
                eprintln!("{}", plan::text(&plan, None));
            }
            if plan.moves.is_empty() {
                because_of_a_freeze(&admin, &plan).await?;
            }
            plan.proposal()?
        }
        (None, None) => return Err(Failed::usage("say which plan: a file, or --keyspace")),
    };
    put(common, &admin, &proposal, None, wait, who, sure).await
}

/// Where something would have to move and nothing is planned because all is frozen, that there is nothing to do is not so.
async fn because_of_a_freeze(admin: &Admin, plan: &Plan) -> Result<(), Failed> {
    if plan.obstacles.is_empty() {
        return Ok(());
    }
    match freeze::of_all(&admin.settings().await?, &plan.keyspace) {
        frozen if frozen.is_empty() => Ok(()),
        frozen => Err(Failed::refused(format!(
            "no move can be planned for keyspace {}: {}; what waits for that: {}",
            plan.keyspace,
            frozen.join("; "),
            plan.obstacles.join("; ")
        ))),
    }
}

async fn from_file(admin: &Admin, file: &std::path::Path) -> Result<Proposal, Failed> {
    let (cluster, proposal) = SavedPlan::read(file)?;
    let here = admin.cluster_status().await?.cluster;
    if here.as_ref() != Some(&cluster) {
        let here = here.map_or("one that still forms".to_owned(), |here| here.to_string());
        return Err(Failed::refused(format!(
            "{} was made for cluster {cluster}, and this is {here}: name the right endpoints, or plan again here",
            file.display()
        )));
    }
    Ok(proposal)
}

/// Runs `ringfence rebalance undo`.
pub(super) async fn undo(common: &Common, plan: Option<u64>, wait: bool, who: &Who, sure: Sure) -> Outcome {
    sure.or_terminal(who.dry_run)?;
    let admin = who.admin(common);
    let named = plan.map(LogIndex::new);
    let plans = admin.plans(false).await?;
    let meant = |plan: &&ApprovedPlan| match named {
        Some(id) => plan.id == id,
        None => plan.undoes.is_none(),
    };
    let running = plans.iter().filter(meant).find(|plan| plan.stage == PlanStage::Running);
    if let Some(running) = running {
        return stop_and_undo(common, &admin, running, named.is_some(), wait, who, sure).await;
    }
    let undo = admin.undo_plan(named).await?;
    if named.is_none() {
        mine(who, undo.plan, undo.by.as_deref(), undo.proposal.keyspace.as_str())?;
    }
    let back = Back { left: undo.left, stops: None };
    put(common, &admin, &undo.proposal, Some(back), wait, who, sure).await
}

/// Somebody else's plan is undone by its number only.
fn mine(who: &Who, plan: LogIndex, by: Option<&str>, keyspace: &str) -> Result<(), Failed> {
    let by = by.unwrap_or("somebody who is not remembered");
    if by == text::plain(&who.name()) {
        return Ok(());
    }
    let id = plan.get();
    Err(Failed::refused(format!(
        "the last plan, {id} in keyspace {keyspace}, was approved by {by}: say `ringfence rebalance undo {id}` if that is meant"
    )))
}

/// What a plan has not begun does not begin any more, and what it has moved is moved back.
async fn stop_and_undo(
    common: &Common,
    admin: &Admin,
    plan: &ApprovedPlan,
    named: bool,
    wait: bool,
    who: &Who,
    sure: Sure,
) -> Outcome {
    let (id, dry_run) = (plan.id.get(), who.dry_run);
    let (mut waiting, mut begun) = (plan.waiting, plan.begun);
    let keyspace = plan.keyspace.as_ref().map(ToString::to_string);
    if !named {
        let by = plan.directive.as_ref().map(|directive| directive.by.as_str());
        mine(who, plan.id, by, keyspace.as_deref().unwrap_or("-"))?;
    }
    let stopped = |failed: Failed| match dry_run {
        true => failed,
        false => failed.after_a_change(&format!("plan {id} is cancelled")),
    };
    if !dry_run {
        sure.ask(&format!(
            "Plan {id} is being carried out. This stops it, with {waiting} moves that have not begun, and moves back what it has moved."
        ))?;
        admin.cancel_plan(Some(plan.id)).await?;
        let plans = admin.plans(false).await.map_err(|error| stopped(error.into()))?;
        if let Some(now) = plans.iter().find(|now| now.id == plan.id) {
            (waiting, begun) = (now.waiting, now.begun);
        }
    }
    let undo = match begun {
        0 => None,
        _ => Some(admin.undo_plan(Some(plan.id)).await.map_err(|error| stopped(error.into()))?),
    };
    if let Some(undo) = undo.as_ref().filter(|undo| !undo.proposal.moves.is_empty()) {
        let back = Back { left: undo.left, stops: dry_run.then_some(waiting) };
        return put(common, admin, &undo.proposal, Some(back), wait, who, sure.asked())
            .await
            .map_err(stopped);
    }
    let left = undo.map(|undo| undo.left);
    let (result, is) = if dry_run { ("planned", "would be") } else { ("cancelled", "is") };
    let shape = AppliedShape { undoes: Some(id), left, ..AppliedShape::bare(result, keyspace) };
    common.output().changed(result, &shape, || {
        let nothing =
            if left.is_some() { "what it moved has moved on or is back" } else { "nothing of it had begun" };
        let done = if dry_run { "; nothing was done" } else { "" };
        format!(
            "plan {id} {is} cancelled: {nothing}, and there is nothing to move back{}{done}\n",
            shape.left_sentence()
        )
    })?;
    Ok(exit_of(left))
}

/// An undo that leaves something has not done what it says.
fn exit_of(left: Option<usize>) -> Exit {
    if left.is_some_and(|left| left > 0) { Exit::Failed } else { Exit::Done }
}

/// Puts moves to the coordinator, when they are meant.
async fn put(
    common: &Common,
    admin: &Admin,
    proposal: &Proposal,
    back: Option<Back>,
    wait: bool,
    who: &Who,
    sure: Sure,
) -> Outcome {
    let (left, stops) = (back.map(|back| back.left), back.and_then(|back| back.stops));
    let output = common.output();
    let arriving = proposal.moves.iter().filter(|planned| planned.arrives).count();
    let arriving = proposal.undoes.map(|_| arriving);
    let mut exit = exit_of(left);
    if proposal.moves.is_empty() {
        let shape = AppliedShape { left, arriving, ..AppliedShape::of("unchanged", proposal) };
        output.changed(shape.result, &shape, || shape.sentence())?;
        return Ok(exit);
    }
    // By the judgement of the approval itself: what that refuses is not worth a question, and refused here.
    let obstacles: Vec<HindranceShape> =
        admin.check_proposal(proposal).await?.iter().map(Into::into).collect();
    // It would move nothing, and push out a plan that did: few are remembered, and only those can be undone.
    if hindrances::passed_over(&obstacles) >= proposal.moves.len() {
        return Err(hindrances::none_is_made(&obstacles, proposal.moves.len()));
    }
    let warning = not_for_long(admin, proposal).await?;
    if let Some(warning) = &warning {
        // Whoever closed it does not want to hear it.
        let _ = writeln!(io::stderr(), "warning: {}", text::plain(warning));
    }
    if who.dry_run {
        let obstacles = Some(obstacles);
        let of = AppliedShape::of("planned", proposal);
        let shape = AppliedShape { left, arriving, warning, obstacles, stops, ..of };
        output.changed(shape.result, &shape, || shape.sentence())?;
        return Ok(exit);
    }
    hindrances::warn(&obstacles);
    sure.ask(&question(proposal))?;
    let plan = admin.approve(proposal).await?;
    let plan_number = Some(plan.get());
    let obstacles = Some(obstacles);
    let of = AppliedShape::of("approved", proposal);
    let mut shape = AppliedShape { plan: plan_number, left, arriving, warning, obstacles, ..of };
    if wait {
        let (over, elsewhere) =
            until_over(async |with_moves| admin.plans(with_moves).await, plan, common.wait()).await?;
        (shape.begun, shape.skipped) = (Some(over.begun), Some(over.skipped));
        shape.elsewhere = Some(elsewhere);
        shape.result = if over.stage == PlanStage::Cancelled { "cancelled" } else { "done" };
        if over.stage == PlanStage::Cancelled || over.skipped > 0 || elsewhere > 0 {
            exit = Exit::Failed;
        }
    }
    output.changed(shape.result, &shape, || match shape.result {
        "cancelled" => format!(
            "somebody cancelled plan {}: {} of {} moves had begun\n",
            plan.get(),
            shape.begun.unwrap_or(0),
            shape.moves
        ),
        _ => shape.sentence(),
    })?;
    Ok(exit)
}

/// `This moves 12 partitions of keyspace orders: 8 from w1 to w3, 4 from w2 to w3.`
fn question(proposal: &Proposal) -> String {
    const PAIRS: usize = 8;
    let mut pairs: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for planned in &proposal.moves {
        *pairs.entry((planned.from.as_str(), planned.to.as_str())).or_default() += 1;
    }
    let shown = pairs.iter().take(PAIRS).map(|((from, to), count)| format!("{count} from {from} to {to}"));
    let mut shown: Vec<String> = shown.collect();
    if pairs.len() > PAIRS {
        shown.push("and so on".to_owned());
    }
    let what = match proposal.undoes {
        Some(plan) => format!("This undoes plan {} and moves", plan.get()),
        None => "This moves".to_owned(),
    };
    format!(
        "{what} {} partitions of keyspace {}: {}.",
        proposal.moves.len(),
        proposal.keyspace,
        shown.join(", ")
    )
}

/// What may take the moves back: a keyspace that balances by itself, unless they are what it would do.
async fn not_for_long(admin: &Admin, proposal: &Proposal) -> Result<Option<String>, Failed> {
    let name = &proposal.keyspace;
    if !admin.keyspace(name.as_str()).await?.policy.balance() {
        return Ok(None);
    }
    let plan = match admin.plan(name.as_str(), &[]).await {
        Ok(plan) => plan,
        // Nothing is balanced where no plan can be made.
        Err(error) if error.kind() == ErrorKind::Refused => return Ok(None),
        Err(error) => return Err(Failed::from(error)),
    };
    let wanted: BTreeSet<(PartitionId, &WorkerId)> =
        plan.moves.iter().map(|planned| (planned.partition, &planned.to)).collect();
    let against = proposal.moves.iter().filter(|planned| !wanted.contains(&(planned.partition, &planned.to)));
    Ok(match against.count() {
        0 => None,
        against => Some(format!(
            "keyspace {name} balances by itself, and {against} of these {} moves are not what it would do: it may take them \
             back. To keep them, switch that off first (`ringfence keyspace update {name} --balance false`), or pin",
            proposal.moves.len()
        )),
    })
}

/// Waits until all moves of the plan have ended, and says how many of them ended elsewhere. There may be a million moves, and
/// the leader stands still while it copies them: they are asked for when none of them changes any more.
async fn until_over(
    plans: impl AsyncFn(bool) -> Result<Vec<ApprovedPlan>, Error>,
    plan: LogIndex,
    limit: Duration,
) -> Result<(ApprovedPlan, usize), Failed> {
    let mut progress = Progress::new();
    let (mut last, mut ended) = (None, false);
    let look = async {
        loop {
            match plans(ended).await {
                Ok(plans) => match plans.into_iter().find(|found| found.id == plan) {
                    None => {
                        let why = "is not remembered any more: two others have started since";
                        return Err(Failed::refused(format!("plan {} {why}", plan.get())));
                    }
                    Some(now) if now.stage.is_over() && now.moving == 0 => {
                        if ended {
                            let elsewhere = now.moves.iter().filter(|planned| is_elsewhere(planned)).count();
                            return Ok((now, elsewhere));
                        }
                        ended = true;
                        continue;
                    }
                    Some(now) => {
                        ended = false;
                        far(&now, &mut progress);
                        last = Some(now);
                    }
                },
                // The next leader goes on with it.
                Err(error) if error.is_retryable() => {}
                Err(error) => return Err(Failed::from(error)),
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    match tokio::time::timeout(limit, look).await {
        Ok(over) => over,
        Err(_) => Err(Failed::timeout(unfinished(plan, last.as_ref(), limit))),
    }
}

/// Shows how far a plan is.
fn far(plan: &ApprovedPlan, progress: &mut Progress) {
    let ApprovedPlan { begun, size, moving, stage, held, .. } = plan;
    match stage {
        PlanStage::Running if !held.is_empty() => {
            progress.hold(format!("{begun}/{size} moves begun, and the others wait: {}", held.join("; ")));
        }
        PlanStage::Open | PlanStage::Running => {
            progress.show((*begun).into(), (*size).into(), "moves begun");
        }
        stage => progress.say(not_done(*stage, *moving)),
    }
}

/// What is still on its way of a plan of which nothing more begins.
fn not_done(stage: PlanStage, moving: u32) -> String {
    match stage {
        PlanStage::Cancelled => {
            format!("the plan was cancelled, and {moving} moves that had begun are not done yet")
        }
        _ => format!("every move has begun, {moving} not done yet"),
    }
}

/// What is left after so long, and where to look.
fn unfinished(plan: LogIndex, last: Option<&ApprovedPlan>, limit: Duration) -> String {
    let after = short(limit);
    let left = last.map_or(String::new(), |last| {
        format!(": {} moves have not begun, and {} are still on their way", last.waiting, last.moving)
    });
    let held = last.map_or(&[][..], |last| &last.held);
    let held = if held.is_empty() { String::new() } else { format!("; they wait: {}", held.join("; ")) };
    format!(
        "plan {} is not done after {after}{left}{held}; it goes on, and `ringfence rebalance status --moves` says how far it is",
        plan.get()
    )
}

/// A move that was made, and not to where it was planned, or its partition has moved on since.
fn is_elsewhere(planned: &ApprovedMove) -> bool {
    planned.step == MoveStep::Begun && planned.now.as_deref().is_some_and(|now| now != "there")
}

/// Runs `ringfence rebalance cancel`.
pub(super) async fn cancel(common: &Common, who: &Who) -> Outcome {
    let admin = who.admin(common);
    let plans = admin.plans(false).await?;
    let under_way = plans.iter().find(|plan| !plan.stage.is_over());
    let result = match under_way {
        None => "unchanged",
        Some(_) if who.dry_run => "planned",
        // By name: the next plan must not be stopped in its place.
        Some(plan) if admin.cancel_plan(Some(plan.id)).await? => "cancelled",
        Some(_) => "unchanged",
    };
    let keyspace = under_way.and_then(|plan| plan.keyspace.as_ref()).map(ToString::to_string);
    let shape = AppliedShape {
        plan: under_way.map(|plan| plan.id.get()),
        moves: under_way.map_or(0, |plan| plan.size as usize),
        begun: under_way.map(|plan| plan.begun),
        skipped: under_way.map(|plan| plan.skipped),
        ..AppliedShape::bare(result, keyspace)
    };
    common.output().changed(result, &shape, || match (result, shape.plan) {
        ("cancelled", Some(plan)) => format!("plan {plan} is cancelled; what had begun of it goes on\n"),
        ("planned", Some(plan)) => format!("plan {plan} would be cancelled; nothing was done\n"),
        _ => "no plan is being carried out\n".to_owned(),
    })?;
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::json;
    use ringfence::admin::ProposedMove;
    use ringfence::ids::{Epoch, WorkerId};

    fn proposal(moves: &[(u32, &str, &str)]) -> Proposal {
        let one = |(partition, from, to): &(u32, &str, &str)| ProposedMove {
            partition: PartitionId::new(*partition),
            epoch: Epoch::new(5).unwrap(),
            from: WorkerId::new(from).unwrap(),
            to: WorkerId::new(to).unwrap(),
            arrives: false,
        };
        let keyspace = KeyspaceName::new("orders").unwrap();
        let moves = moves.iter().map(one).collect();
        Proposal { keyspace, moves, undoes: None, revision: None, lineage: None }
    }

    #[test]
    fn the_json_shape_of_what_became_of_a_plan_is_a_contract() {
        let shape = AppliedShape {
            plan: Some(77),
            left: Some(1),
            ..AppliedShape::of("approved", &proposal(&[(1, "w1", "w2")]))
        };
        assert_eq!(
            json(&shape).unwrap(),
            r#"{"result":"approved","plan":77,"undoes":null,"keyspace":"orders","moves":1,"begun":null,"#
                .to_owned()
                + r#""skipped":null,"elsewhere":null,"left":1,"arriving":null,"warning":null,"obstacles":null}"#
        );
        assert!(shape.sentence().contains("1 more have moved on"));
    }

    #[test]
    fn whoever_waited_in_vain_is_told_what_the_plan_waits_for() {
        use ringfence_api::v1;
        let mut plan = ApprovedPlan::try_from(v1::ApprovedPlan {
            plan: 7,
            stage: v1::PlanStage::Running.into(),
            size: 2,
            waiting: 2,
            held: vec!["keyspace orders is frozen, by ada".to_owned()],
            ..Default::default()
        })
        .unwrap();
        let limit = Duration::from_secs(10);
        let told = unfinished(plan.id, Some(&plan), limit);
        assert!(told.contains("2 moves have not begun") && told.contains("frozen, by ada"), "{told}");
        plan.held.clear();
        assert!(!unfinished(plan.id, Some(&plan), limit).contains("they wait"));
    }

    #[test]
    fn what_is_to_be_confirmed_is_said_in_numbers() {
        let asked = question(&proposal(&[(1, "w1", "w3"), (2, "w1", "w3"), (3, "w2", "w3")]));
        assert_eq!(asked, "This moves 3 partitions of keyspace orders: 2 from w1 to w3, 1 from w2 to w3.");
        let back = Proposal { undoes: Some(LogIndex::new(7)), ..proposal(&[(1, "w1", "w2")]) };
        assert!(question(&back).starts_with("This undoes plan 7 and moves 1 "));
    }

    #[test]
    fn what_is_left_of_a_cancelled_plan_is_told_as_that() {
        let told = not_done(PlanStage::Cancelled, 3);
        assert!(told.contains("cancelled") && told.contains("3 moves") && !told.contains("every"), "{told}");
        assert!(not_done(PlanStage::Ending, 3).starts_with("every move has begun, 3 "));
    }

    #[test]
    fn an_undo_that_would_stop_its_plan_says_so_first() {
        let of = AppliedShape::of("planned", &proposal(&[(1, "w1", "w2")]));
        let shape = AppliedShape { undoes: Some(7), stops: Some(2), ..of };
        let told = shape.sentence();
        assert!(told.starts_with("plan 7 is being carried out, and 2 moves of it would not begin"), "{told}");
        assert!(!json(&shape).unwrap().contains("stops"), "the shape is a contract");
    }

    /// Three looks while it goes on and when it has ended, and one at its moves.
    #[tokio::test]
    async fn whoever_waits_for_a_plan_asks_for_its_moves_once() {
        use ringfence_api::v1;
        let asked = std::sync::Mutex::new(Vec::new());
        let plans = async |with_moves: bool| {
            let mut asked = asked.lock().unwrap();
            let (stage, moving) = match asked.len() {
                0 => (v1::PlanStage::Running, 1),
                1 => (v1::PlanStage::Ending, 1),
                _ => (v1::PlanStage::Done, 0),
            };
            asked.push(with_moves);
            let plan = v1::ApprovedPlan {
                plan: 7,
                stage: stage.into(),
                size: 2,
                begun: 2,
                moving,
                ..Default::default()
            };
            Ok(vec![ApprovedPlan::try_from(plan).unwrap()])
        };
        let (over, elsewhere) = until_over(plans, LogIndex::new(7), Duration::from_secs(60))
            .await
            .unwrap_or_else(|e| panic!("{e:?}"));
        assert_eq!((over.stage, elsewhere), (PlanStage::Done, 0));
        assert_eq!(*asked.lock().unwrap(), [false, false, false, true]);
    }

    #[test]
    fn what_is_still_on_its_way_is_told_from_what_has_moved_on() {
        let of = AppliedShape::of("planned", &proposal(&[(1, "w1", "w2"), (2, "w1", "w2")]));
        let shape = AppliedShape { left: Some(3), arriving: Some(1), ..of };
        let told = shape.sentence();
        assert!(
            told.contains("1 of them still on their way") && told.contains("3 more have moved on"),
            "{told}"
        );
        let nothing = AppliedShape { left: Some(0), arriving: Some(0), ..shape }.sentence();
        assert!(!nothing.contains("on their way") && !nothing.contains("moved on"), "{nothing}");
    }
}
