//! One drill, from the order to the finding.

use super::cast::{Ask, Cast};
use super::desk::{Line, Slot};
use crate::context::Context;
use crate::placement::directive::{Given, direct, directed, said};
use crate::refusal;
use ringfence_api::Failure;
use ringfence_api::convert::checked;
use ringfence_api::v1::{self, DrillMode, drill_request, drill_response};
use ringfence_core::ids::{Epoch, SessionId, Term, WorkerId};
use ringfence_core::state::{Command, GrantReason, MAX_FAILURE_BYTES, Subject, Tenure, cut};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

/// How long the worker may take to answer the order. It opens a stream, no more.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// How long the worker may take, beyond the drill's time, to say that its probe had no answer in that time.
const LAST_WORD_WITHIN: Duration = Duration::from_secs(10);

struct Course<'c> {
    context: &'c Context,
    term: Term,
    ask: Ask,
    cast: Cast,
    slot: Slot,
    /// The held write is answered by then.
    deadline: Instant,
    stage: Stage,
}

/// How far a drill has come.
enum Stage {
    /// The worker was ordered. It holds nothing yet.
    Ordered,
    /// It holds a write, and the move is not in the log yet.
    Holding,
    /// It holds a write, and is being replaced.
    Replacing,
    /// It was told to send.
    Sent(Heir),
}

/// The owner that came.
#[derive(Clone)]
struct Heir {
    worker: WorkerId,
    session: SessionId,
    epoch: Epoch,
}

/// What a look at the partition found.
enum Look {
    Wait,
    Heir(Heir),
    /// It will not come to what is waited for.
    Never(Failure),
}

/// Runs a drill, or says what it would be. Dropping the future ends it.
pub(crate) async fn run(
    context: &Context,
    request: v1::RunDrillRequest,
) -> Result<v1::RunDrillResponse, Failure> {
    let ask = Ask::read(request)?;
    let (term, _) = context.confirm().await?;
    let cast = Cast::choose(&context.replica.lock(), &context.drills, context.clock.now(), &ask)?;
    if ask.dry_run {
        return Ok(answer(&ask, &cast));
    }
    let (slot, line) = context.drills.begin(cast.owner, &cast.worker)?;
    let deadline = Instant::now() + ask.timeout;
    let course = Course { context, term, ask, cast, slot, deadline, stage: Stage::Ordered };
    let (name, worker, epoch) = (course.cast.name(), course.cast.worker.clone(), course.cast.epoch);
    let mode = course.ask.mode.as_str_name();
    tracing::warn!(partition = name, %worker, %epoch, mode, "a drill begins: an operator asked for it");
    let ended = course.run(line).await;
    match &ended {
        Ok(_) => tracing::warn!(partition = name, %worker, %epoch, "the drill has ended"),
        Err(failure) => {
            tracing::warn!(partition = name, %worker, %epoch, %failure, "the drill has no result");
        }
    }
    ended
}

impl Course<'_> {
    async fn run(mut self, line: oneshot::Receiver<Line>) -> Result<v1::RunDrillResponse, Failure> {
        if !self.slot.order(&self.cast.keyspace, self.order()) {
            return Err(self.silent());
        }
        let answer_by = self.deadline.min(Instant::now() + ANSWER_WITHIN);
        let Some(Ok(mut line)) = self.while_leading(answer_by, line).await? else {
            return Err(self.silent());
        };
        match self.hear(&mut line, self.deadline).await? {
            drill_request::Message::Holding(_) => {}
            drill_request::Message::Declined(declined) => {
                let (worker, why) = (&self.cast.worker, shortened(&declined.why));
                return Err(Failure::refused(format_args!(
                    "worker {worker} takes no part, and nothing was moved: {why}"
                )));
            }
            _ => return Err(self.nonsense()),
        }
        self.stage = Stage::Holding;
        match self.ask.mode {
            DrillMode::Move => self.drain().await?,
            _ => self.say().await?,
        }
        self.stage = Stage::Replacing;
        let heir = self.heir(&mut line).await?;
        self.stage = Stage::Sent(heir.clone());
        let send = drill_response::Message::Send(drill_response::Send { epoch: heir.epoch.get() });
        // A worker that has gone is found by the next line.
        let _ = line.say.send(v1::DrillResponse { message: Some(send) }).await;
        let drill_request::Message::Finding(mut finding) =
            self.hear(&mut line, self.deadline + LAST_WORD_WITHIN).await?
        else {
            return Err(self.nonsense());
        };
        finding.error = shortened(&finding.error);
        Ok(v1::RunDrillResponse {
            new_worker: heir.worker.to_string(),
            new_session: heir.session.get(),
            new_epoch: heir.epoch.get(),
            finding: Some(finding),
            ..answer(&self.ask, &self.cast)
        })
    }

    fn order(&self) -> v1::DrillOrder {
        v1::DrillOrder {
            drill: self.slot.id.bytes().into(),
            keyspace: self.cast.keyspace.to_string(),
            partition: self.cast.key.partition.get(),
            epoch: self.cast.epoch.get(),
            mode: self.ask.mode.into(),
            limit_ms: checked::millis(self.ask.timeout),
        }
    }

    /// Begins the planned move, as an operator's would.
    async fn drain(&self) -> Result<(), Failure> {
        let Cast { key, epoch, heir, drain_deadline, .. } = &self.cast;
        let drain = Command::Drain {
            partition: *key,
            epoch: *epoch,
            to: heir.clone(),
            deadline: *drain_deadline,
            why: GrantReason::Operator,
        };
        let what = format!(
            "drill partition {}: move it from worker {} to {heir}",
            self.cast.name(),
            self.cast.worker
        );
        let commands = directed(Subject::Partition(*key), self.given().as_ref(), &what, drain);
        let proposed = self.context.propose(None, commands, Some(self.term)).await;
        let committed = proposed.map_err(|failure| self.interrupted(failure.message()))?;
        committed.map_err(|refusal| {
            let why = refusal::to_failure(self.context, &refusal.why);
            Failure::refused(format_args!(
                "partition {} could not be moved from worker {}: {}; nothing was moved, and the held write is dropped. \
                 Run the drill again when that is over",
                self.cast.name(),
                self.cast.worker,
                why.message()
            ))
        })?;
        Ok(())
    }

    /// Who wants it, when that is remembered.
    fn given(&self) -> Option<Given> {
        said(&self.context.replica.lock().state, self.ask.directive.clone())
    }

    /// Remembers who lets the worker's lease run out. What follows from that is a failover like any other.
    async fn say(&self) -> Result<(), Failure> {
        let Some(given) = self.given() else { return Ok(()) };
        let worker = &self.cast.worker;
        let what = format!("drill partition {}: worker {worker} stops renewing", self.cast.name());
        let command = direct(Subject::Worker(worker.clone()), &given, &what);
        let proposed = self.context.propose(None, vec![command], Some(self.term)).await;
        proposed.map_err(|failure| self.interrupted(failure.message()))?.map_err(|refusal| {
            let why = refusal::to_failure(self.context, &refusal.why);
            Failure::refused(format_args!("{}; the held write is dropped", why.message()))
        })?;
        Ok(())
    }

    /// Waits until another worker owns the partition at a higher epoch and is ready: its fences are raised by then.
    async fn heir(&self, line: &mut Line) -> Result<Heir, Failure> {
        let mut applied = self.context.replica.applied();
        let waiting = async {
            loop {
                applied.mark_unchanged();
                match self.look() {
                    Look::Heir(heir) => return Ok(heir),
                    Look::Never(failure) => return Err(failure),
                    Look::Wait => {}
                }
                tokio::select! {
                    changed = applied.changed() => {
                        changed.map_err(|_| self.interrupted("this node stops"))?;
                    }
                    // It has nothing to say before it is told to send.
                    said = line.heard.recv() => {
                        return Err(said.map_or_else(|| self.gone(), |_| self.nonsense()));
                    }
                }
            }
        };
        match self.while_leading(self.deadline, waiting).await? {
            Some(heir) => heir,
            None => Err(self.late()),
        }
    }

    fn look(&self) -> Look {
        let local = self.context.replica.lock();
        let name = self.cast.name();
        let Some(partition) = local.state.partition(self.cast.key) else {
            return Look::Never(Failure::refused(format_args!(
                "keyspace {} was deleted during the drill, and its partitions with it; the held write was not sent. \
                 Drill another keyspace",
                self.cast.keyspace
            )));
        };
        let Some(epoch) = partition.epoch().filter(|epoch| *epoch > self.cast.epoch) else {
            return Look::Wait;
        };
        let Some(owner) = partition.owner().and_then(|owner| local.state.session(owner)) else {
            return Look::Wait;
        };
        if *owner.worker() == self.cast.worker {
            let ours =
                |tenure: &&Tenure| tenure.epoch <= self.cast.epoch || tenure.worker == self.cast.worker;
            let between = partition.history().iter().rev().find(|tenure| !ours(tenure));
            let why = between.map_or_else(
                || "nobody else was there to take it".to_owned(),
                |heir| format!("{} lost it again, under {}, and was not ready", heir.worker, heir.epoch),
            );
            return Look::Never(Failure::refused(format_args!(
                "partition {name} was taken from worker {worker} and came back to it, under {epoch}: {why}; the held write \
                 was not sent. Look at the other workers of the keyspace, and run the drill again",
                worker = self.cast.worker
            )));
        }
        if !partition.ready() {
            return Look::Wait;
        }
        Look::Heir(Heir { worker: owner.worker().clone(), session: owner.id(), epoch })
    }

    /// The next thing that the worker says.
    async fn hear(&self, line: &mut Line, by: Instant) -> Result<drill_request::Message, Failure> {
        match self.while_leading(by, line.heard.recv()).await? {
            Some(Some(v1::DrillRequest { message: Some(message) })) => Ok(message),
            Some(Some(v1::DrillRequest { message: None })) => Err(self.nonsense()),
            Some(None) => Err(self.gone()),
            None => Err(self.late()),
        }
    }

    /// Waits for something, at most until `by`, and only while this node leads in the drill's term.
    async fn while_leading<T>(
        &self,
        by: Instant,
        what: impl Future<Output = T>,
    ) -> Result<Option<T>, Failure> {
        let mut status = self.context.raft.status();
        let term = self.term;
        let what = timeout_at(by, what);
        tokio::select! {
            done = what => Ok(done.ok()),
            _ = status.wait_for(|now| !now.leads() || now.term != term) => {
                Err(self.interrupted("this node does not lead any more"))
            }
        }
    }

    fn silent(&self) -> Failure {
        Failure::refused(format_args!(
            "worker {} did not answer the order, and nothing was moved: it may have lost its connection, or its runtime \
             is stuck; look at it and run the drill again",
            self.cast.worker
        ))
    }

    fn gone(&self) -> Failure {
        Failure::refused(format_args!(
            "worker {} ended the drill before it had a result: it leaves, was stopped, or lost its connection; {}. Look at \
             that worker, and run the drill again",
            self.cast.worker,
            self.so_far()
        ))
    }

    fn nonsense(&self) -> Failure {
        Failure::refused(format_args!(
            "worker {} said what makes no sense at this point of a drill; {}. Its SDK and the coordinator may be of \
             versions apart: bring them together, and run the drill again",
            self.cast.worker,
            self.so_far()
        ))
    }

    fn interrupted(&self, why: &str) -> Failure {
        Failure::interrupted(format_args!(
            "{why}, so the drill has no result; {}, and the worker goes back to work by itself: run it again",
            self.so_far()
        ))
    }

    /// The drill's time is over, and what it waited for has not come.
    fn late(&self) -> Failure {
        let Cast { worker, .. } = &self.cast;
        let (name, waited) = (self.cast.name(), self.ask.timeout);
        let what = match &self.stage {
            Stage::Ordered | Stage::Holding => {
                format!(
                    "the first probe write of worker {worker} had no answer; see that its storage is well"
                )
            }
            Stage::Replacing => self.no_heir(),
            Stage::Sent(_) => format!(
                "worker {worker} did not say what became of the held write; see that its storage is well, or that the \
                 worker does not stand still"
            ),
        };
        Failure::refused(format_args!(
            "the drill took longer than its {waited:?}: {what}; {}. See `ringfence partition show {name}`, and give the \
             drill more time if that is what it needs",
            self.so_far()
        ))
    }

    /// Why nobody else is ready.
    fn no_heir(&self) -> String {
        let Cast { worker, key, epoch, .. } = &self.cast;
        let local = self.context.replica.lock();
        let owner = local.state.partition(*key).and_then(|partition| {
            let session = partition.owner().and_then(|owner| local.state.session(owner))?;
            Some((session, partition.epoch()?))
        });
        match owner {
            Some((_, held)) if held <= *epoch => {
                format!(
                    "worker {worker} was not replaced yet, because it did not release it, or its lease did not run out"
                )
            }
            Some((heir, held)) => {
                let silent = if heir.suspicion().is_some() { ", and does not renew its lease" } else { "" };
                format!(
                    "worker {}, which was granted the partition under {held}, is not ready{silent}: it stands still, cannot \
                     raise its fence, or loads for long; look at that worker",
                    heir.worker()
                )
            }
            None => {
                "nobody was granted the partition; see that another worker of the keyspace is well".to_owned()
            }
        }
    }

    /// What was moved, and what is held: what an operator wants to know of a drill without a result.
    fn so_far(&self) -> String {
        let Cast { worker, moves, .. } = &self.cast;
        let name = self.cast.name();
        let dropped = "the held write is dropped unsent";
        match (&self.stage, self.ask.mode) {
            (Stage::Ordered, _) => "nothing was moved, and no write was held yet".to_owned(),
            (Stage::Holding, _) => format!(
                "a write was held and is dropped unsent; the move of {name} was asked for, and may have begun"
            ),
            (Stage::Replacing, DrillMode::Stall) => format!(
                "{dropped}; worker {worker} had stopped renewing: it renews again, or joins anew when its lease has run \
                 out and its {moves} partitions have gone to others"
            ),
            (Stage::Replacing, _) => {
                format!(
                    "{dropped}; the move of {name} from worker {worker} had begun, and goes to its end as any other"
                )
            }
            (Stage::Sent(heir), _) => format!(
                "worker {} owns {name} under {}; the held write is dropped, unless it was on its way already",
                heir.worker, heir.epoch
            ),
        }
    }
}

/// What a worker says of itself, cut to what is shown.
fn shortened(text: &str) -> String {
    cut(text, MAX_FAILURE_BYTES).to_owned()
}

fn answer(ask: &Ask, cast: &Cast) -> v1::RunDrillResponse {
    // Who takes over a stalled worker's partitions is decided when its lease has run out.
    let heir = (ask.mode == DrillMode::Move).then_some(cast);
    v1::RunDrillResponse {
        keyspace: cast.keyspace.to_string(),
        partition: cast.key.partition.get(),
        mode: ask.mode.into(),
        old_worker: cast.worker.to_string(),
        old_session: cast.owner.get(),
        old_epoch: cast.epoch.get(),
        new_worker: heir.map(|cast| cast.heir.to_string()).unwrap_or_default(),
        new_session: heir.map_or(0, |cast| cast.heir_session.get()),
        new_epoch: 0,
        partitions_moved: u32::try_from(cast.moves).unwrap_or(u32::MAX),
        ttl_ms: checked::millis(cast.ttl),
        finding: None,
    }
}
