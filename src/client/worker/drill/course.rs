//! One drill, from the order to the finding.
//!
//! The order of its steps is what makes it a proof. A first probe must be accepted, or a storage that refuses everything
//! would pass. Then the last local check is made, a second write is stamped, and only after that does it wait: so
//! nothing on this side, neither lease nor revocation, stands between the held write and the storage. And it is sent
//! when the coordinator says that a newer owner is ready, which is after that owner raised its fences.

use super::desk::Stall;
use super::probe::{self, Probe, Probed};
use crate::clock::Clock;
use crate::error::Error;
use crate::net::{Call, Coordinator, Effect, Route, worker};
use crate::ownership::{NotOwner, Ownership};
use crate::worker::outbox::cut;
use crate::worker::session::Secret;
use ringfence_api::convert::checked;
use ringfence_api::v1::{
    DrillMode, DrillOrder, DrillRequest, DrillResponse, WriteOutcome, drill_request, drill_response,
};
use ringfence_core::ids::SessionId;
use ringfence_core::time::Instant as LeaseInstant;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

/// No drill lasts longer, whatever the coordinator says.
const LONGEST: Duration = Duration::from_secs(31 * 60);
/// How long the coordinator may take to take the stream, and to end it after the finding.
const STREAM_WITHIN: Duration = Duration::from_secs(5);
/// How long this side may take, beyond the drill's time, to say that a probe had no answer in it.
const LAST_WORD_WITHIN: Duration = Duration::from_secs(5);
/// Messages that wait to be written: this side says three in all.
const LINE_LENGTH: usize = 4;

/// What a drill needs of its worker.
pub(in crate::worker) struct Course {
    pub(in crate::worker) order: DrillOrder,
    pub(in crate::worker) session: SessionId,
    pub(in crate::worker) secret: Secret,
    pub(in crate::worker) coordinator: Coordinator,
    /// The application's.
    pub(in crate::worker) runtime: Handle,
    pub(in crate::worker) clock: Clock,
    pub(in crate::worker) stall: Arc<Stall>,
}

/// The stream of a drill.
struct Line {
    incoming: Streaming<DrillResponse>,
    outgoing: mpsc::Sender<DrillRequest>,
}

/// Renewals go on when this is dropped, however that comes.
struct Lift(Arc<Stall>);

impl Drop for Lift {
    fn drop(&mut self) {
        self.0.lift();
    }
}

impl Course {
    /// Takes part, or declines with the reason.
    pub(in crate::worker) async fn run(self, part: Result<(Ownership, Probe), String>) {
        let _lift = Lift(Arc::clone(&self.stall));
        let limit = Duration::from_millis(self.order.limit_ms).min(LONGEST);
        let (deadline, bound) = (Instant::now() + limit, limit + LAST_WORD_WITHIN);
        // The stall ends with this task. Should the task not end, it ends here, on the clock of the lease.
        let stalled_until = self.clock.now() + limit;
        let name = format!("{}/{}", self.order.keyspace, self.order.partition);
        tracing::warn!(partition = name, epoch = self.order.epoch, "a drill: an operator asked for it");
        match timeout(bound, self.play(part, deadline, stalled_until)).await {
            Ok(Ok(())) => tracing::warn!(partition = name, "the drill has ended"),
            Ok(Err(why)) => {
                tracing::warn!(partition = name, why, "the drill was cut short");
            }
            Err(_) => tracing::warn!(partition = name, ?limit, "the drill was ended at its limit"),
        }
    }

    /// `deadline` ends the probes, and `stalled_until` the stall whatever becomes of this.
    async fn play(
        &self,
        part: Result<(Ownership, Probe), String>,
        deadline: Instant,
        stalled_until: LeaseInstant,
    ) -> Result<(), String> {
        let mut line = self.open().await.map_err(|error| error.to_string())?;
        let (ownership, probe) = match part {
            Ok(part) => part,
            Err(why) => return self.decline(line, why).await,
        };
        let first = self.first_write(&ownership, &probe, deadline);
        if let Err(why) = line.while_wanted(first).await? {
            return self.decline(line, why).await;
        }
        // The last look at the lease, for the read and for the write. Both are under way from here on.
        let (read, stamp) = match (ownership.guard(), ownership.stamp()) {
            (Ok(read), Ok(stamp)) => (read, stamp),
            (Err(over), _) | (_, Err(over)) => return self.decline(line, lost(&over)).await,
        };
        if self.order.mode() == DrillMode::Stall {
            self.stall.until(stalled_until);
        }
        line.say(drill_request::Message::Holding(drill_request::Holding {})).await?;

        let mut ended = None;
        loop {
            tokio::select! {
                biased;
                _ = ownership.lost(), if ended.is_none() => ended = Some(self.clock.now()),
                () = sleep_until(deadline) => return Err("the drill's time is over".into()),
                told = line.told() => match told? {
                    drill_response::Message::Send(send) if send.epoch > ownership.epoch().get() => break,
                    // Before it was replaced its write is no stale one, and would be reported as one.
                    drill_response::Message::Send(_) => {
                        return Err("told to send before anybody else was granted the partition".into());
                    }
                },
            }
        }
        let gap = ended.map_or(Duration::ZERO, |ended| self.clock.now().since(ended));

        let reads = [read.confirm(()).is_ok(), ownership.read(|| ()).is_ok()];
        let accepted = reads.into_iter().filter(|accepted| *accepted).count();
        // Whoever loses the stream drops the write, also while the probe is at it.
        let held = probe::write(&self.runtime, &probe, stamp, deadline);
        let (write, error) = match line.while_wanted(held).await? {
            Ok(Probed::Accepted) => (WriteOutcome::Accepted, String::new()),
            Ok(Probed::Refused) => (WriteOutcome::Refused, String::new()),
            Err(error) => (WriteOutcome::Unknown, cut(&error)),
        };
        tracing::warn!(token = %ownership.token().short(), outcome = write.as_str_name(), "the held write was sent");
        let finding = drill_request::Finding {
            write: write.into(),
            error,
            stale_reads_refused: count(reads.len() - accepted),
            stale_reads_accepted: count(accepted),
            gap_ms: checked::millis(gap),
        };
        line.say(drill_request::Message::Finding(finding)).await?;
        line.ended().await;
        Ok(())
    }

    /// A write under the current epoch, which the storage has to accept: else the refusal of the held one says nothing.
    async fn first_write(
        &self,
        ownership: &Ownership,
        probe: &Probe,
        deadline: Instant,
    ) -> Result<(), String> {
        let stamp = ownership.stamp().map_err(|over| lost(&over))?;
        match probe::write(&self.runtime, probe, stamp, deadline).await {
            Ok(Probed::Accepted) => Ok(()),
            Ok(Probed::Refused) => {
                Err("the storage refused a probe write under the current epoch, so its refusals prove \
                                        nothing: see that the probe writes where the owner writes"
                    .to_owned())
            }
            Err(error) => Err(format!("the probe write under the current epoch failed: {error}")),
        }
    }

    async fn decline(&self, mut line: Line, why: String) -> Result<(), String> {
        let declined = drill_request::Declined { why: cut(&why) };
        line.say(drill_request::Message::Declined(declined)).await?;
        line.ended().await;
        Err(why)
    }

    async fn open(&self) -> Result<Line, Error> {
        let call = Call::new(Route::Leader, Effect::Once).within(STREAM_WITHIN).patience(STREAM_WITHIN);
        let begin = drill_request::Begin {
            drill: self.order.drill.clone(),
            session: self.session.get(),
            secret: self.secret.bytes().into(),
        };
        let (incoming, outgoing) = self
            .coordinator
            .call(call, |channel| {
                let (outgoing, requests) = mpsc::channel(LINE_LENGTH);
                // The channel is new and has room.
                let message = Some(drill_request::Message::Begin(begin.clone()));
                let begun = outgoing.try_send(DrillRequest { message });
                async move {
                    begun.map_err(|error| tonic::Status::internal(error.to_string()))?;
                    let answer = worker(channel).drill(ReceiverStream::new(requests)).await?;
                    Ok(answer.map(|incoming| (incoming, outgoing)))
                }
            })
            .await?;
        Ok(Line { incoming, outgoing })
    }
}

impl Line {
    async fn say(&mut self, message: drill_request::Message) -> Result<(), String> {
        let gone = |_| "the coordinator ended it".to_owned();
        self.outgoing.send(DrillRequest { message: Some(message) }).await.map_err(gone)
    }

    /// The next thing that the coordinator says. Its end, whatever the reason, is the drill's. Cancel safe.
    async fn told(&mut self) -> Result<drill_response::Message, String> {
        loop {
            match self.incoming.message().await {
                Ok(Some(DrillResponse { message: Some(message) })) => return Ok(message),
                // A message from the future says nothing that is needed now.
                Ok(Some(DrillResponse { message: None })) => {}
                Ok(None) => return Err("the coordinator ended it".to_owned()),
                Err(status) => {
                    return Err(format!("the stream to the coordinator broke: {}", status.message()));
                }
            }
        }
    }

    /// Does something for as long as the coordinator is there, which has nothing to say meanwhile. When it is not, what
    /// is done is dropped.
    async fn while_wanted<T>(&mut self, what: impl Future<Output = T>) -> Result<T, String> {
        tokio::select! {
            biased;
            done = what => Ok(done),
            told = self.told() => Err(match told {
                Ok(_) => "the coordinator said what makes no sense at this point of a drill".to_owned(),
                Err(why) => why,
            }),
        }
    }

    /// Waits until the coordinator has taken what was said last: it hangs up then.
    async fn ended(mut self) {
        let _ = timeout(STREAM_WITHIN, async { while self.told().await.is_ok() {} }).await;
    }
}

fn lost(over: &NotOwner) -> String {
    format!("the partition was lost before the drill began: {}", over.why())
}

fn count(reads: usize) -> u32 {
    u32::try_from(reads).unwrap_or(u32::MAX)
}
