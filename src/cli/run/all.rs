//! One child for all partitions, which is told by lines what it owns.

use super::course::{Claim, End, Policy};
use super::hub::{Hub, MAX_LINES};
use super::life::{Event, Life, Recipe, say, spawn};
use super::steward::{Charge, StopBy, drive};
use super::talk::{Answer, Tell, read_line};
use ringfence::Ownership;
use std::io::{self, BufReader, Write as _};
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{oneshot, watch};

/// One child, and what it holds.
pub(super) struct All {
    hub: Hub,
    events: Sender<Event>,
    /// What the steward is started with.
    news: Receiver<Event>,
}

impl All {
    pub(super) fn new() -> All {
        let (events, news) = channel();
        All { hub: Hub::default(), events, news }
    }

    /// What owns partitions by way of the child.
    pub(super) fn owner(&self) -> Owner {
        Owner { hub: self.hub.clone(), events: self.events.clone() }
    }

    /// Starts the child; what is sent says how it came to be over, and nothing of it lives then.
    pub(super) fn start(
        self,
        recipe: Recipe,
        policy: Policy,
        stop_by: watch::Receiver<StopBy>,
    ) -> io::Result<oneshot::Receiver<End>> {
        let All { hub, events, news } = self;
        let (over, end) = oneshot::channel();
        spawn("child", move || {
            let mut charge = Whole { hub: hub.clone(), stop_by, hearing: None };
            let ended = drive(&recipe, policy, &mut charge, &events, &news);
            hub.close(match &ended {
                End::Asked => "the child was asked to end",
                End::Failed(how) => how,
            });
            let _ = over.send(ended);
        })?;
        Ok(end)
    }
}

/// Owns partitions by way of the child.
#[derive(Clone)]
pub(super) struct Owner {
    hub: Hub,
    events: Sender<Event>,
}

impl Owner {
    /// The owner of a partition: the child has it until it has said that it is released, or is gone.
    ///
    /// # Errors
    /// There is no child any more.
    pub(super) async fn own(self, ownership: Ownership) -> Result<(), String> {
        let (partition, epoch) = (ownership.partition().get(), ownership.epoch().get());
        let (seat, mut back) = self.hub.grant(&ownership);
        let given_back = match ownership.until_revoked(&mut back).await {
            Some(given_back) => given_back,
            None => {
                self.hub.revoke(partition, epoch);
                if self.hub.is_deaf() {
                    let _ = self.events.send(Event::Deaf);
                }
                back.await
            }
        };
        drop(seat);
        // The sender is kept by the hub for as long as the child has it.
        given_back.unwrap_or_else(|_| Err("the child was given up".to_owned()))
    }
}

/// All partitions, as the steward of the one child sees them.
struct Whole {
    hub: Hub,
    stop_by: watch::Receiver<StopBy>,
    /// Hears what the life says.
    hearing: Option<JoinHandle<()>>,
}

impl Charge for Whole {
    /// It lives until all is to stop. A partition that is lost is told to it and does not end it: others would go with it.
    fn claim(&self) -> Claim {
        let stop = self.stop_by.borrow().left();
        Claim { wanted: stop.is_none(), left: stop.unwrap_or(Duration::MAX) }
    }

    fn started(&mut self, life: &Life, events: &Sender<Event>) {
        let (line, told) = sync_channel(MAX_LINES);
        let begun = life.voice().and_then(|to| Ok((to, life.voice()?))).and_then(|(to, from)| {
            spawn("told", move || write(to, &told))?;
            let hub = self.hub.clone();
            spawn("said", move || read(from, &hub))
        });
        match begun {
            Ok(hearing) => {
                self.hearing = Some(hearing);
                self.hub.attach(line);
            }
            Err(error) => {
                tracing::error!(%error, "no thread for what the child is told");
                let _ = events.send(Event::Deaf);
            }
        }
    }

    fn ready(&mut self) {}

    fn gone(&mut self) {
        // Nothing that this life has said is taken for a word of the next. It ends by itself: the socket is closed.
        if let Some(Err(_)) = self.hearing.take().map(JoinHandle::join) {
            tracing::error!("the thread that hears the child ended unexpectedly");
        }
        self.hub.detach();
    }

    fn name(&self) -> &str {
        "the child"
    }
}

/// Tells the child, until nobody has anything to tell it any more.
fn write(mut to: std::os::unix::net::UnixStream, told: &Receiver<Tell>) {
    for tell in told {
        if to.write_all(tell.line().as_bytes()).is_err() {
            return;
        }
    }
}

/// Hears what the child says. What is no answer is passed on.
fn read(from: std::os::unix::net::UnixStream, hub: &Hub) {
    let (mut from, mut line) = (BufReader::new(from), Vec::new());
    while read_line(&mut from, &mut line).unwrap_or(false) {
        match Answer::read(&line) {
            Some(answer) => hub.answer(&answer),
            // Nobody may be reading, and the child goes on.
            None => drop(say(&line)),
        }
    }
}
