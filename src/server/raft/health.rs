//! Whether this node can go on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// What is known of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    /// The node cannot go on, and why.
    pub(super) stopped: Option<String>,
    /// It goes on, badly, and why.
    pub(super) sick: Option<String>,
}

/// Shared by all parts of a node.
pub(super) struct Health {
    report: watch::Sender<Report>,
    /// The log has lost entries that this node had acknowledged.
    went_back: AtomicBool,
    flushing: Mutex<Option<Instant>>,
}

impl Health {
    pub(super) fn new() -> Health {
        Health {
            report: watch::Sender::new(Report::default()),
            went_back: AtomicBool::new(false),
            flushing: Mutex::new(None),
        }
    }

    /// The node cannot go on. It does not recover by itself, and only the first reason counts: what follows is its
    /// consequence. It is in the status for whoever runs the node, who logs it, or asked for it.
    pub(super) fn stop(&self, why: &str) {
        if self.end(why) {
            tracing::error!(why, "this node stops");
        }
    }

    /// The log has lost entries that this node had acknowledged. It must not take part with what is left: what else it has
    /// forgotten, a vote above all, nobody knows.
    pub(super) fn log_went_back(&self, why: &str) {
        self.went_back.store(true, Ordering::Release);
        self.stop(why);
    }

    /// Whether the log has lost entries that this node had acknowledged.
    pub(super) fn has_log_gone_back(&self) -> bool {
        self.went_back.load(Ordering::Acquire)
    }

    /// The node was told to stop.
    pub(super) fn close(&self) {
        if self.end("it was shut down") {
            tracing::info!("this node shuts down");
        }
    }

    fn end(&self, why: &str) -> bool {
        self.report.send_if_modified(|report| {
            let first = report.stopped.is_none();
            if first {
                report.stopped = Some(why.to_string());
            }
            first
        })
    }

    /// The node is sick of this, or well again.
    pub(super) fn sick(&self, why: Option<String>) {
        self.report.send_if_modified(|report| {
            let changed = report.sick.is_some() != why.is_some();
            if changed {
                match &why {
                    Some(why) => tracing::warn!(why, "this node is sick"),
                    None => tracing::info!("this node is well again"),
                }
                report.sick = why;
            }
            changed
        });
    }

    /// Why the node cannot go on, if so.
    pub(super) fn stopped(&self) -> Option<String> {
        self.report.borrow().stopped.clone()
    }

    /// To be told.
    pub(super) fn watch(&self) -> watch::Receiver<Report> {
        self.report.subscribe()
    }

    /// Around each flush of the log. tokio's time, which on a thread without a runtime is the system's.
    pub(super) fn flush_began(&self) {
        *self.flushing.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// The flush came back.
    pub(super) fn flush_ended(&self) {
        *self.flushing.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// How long the flush under way has taken so far.
    pub(super) fn flush_age(&self) -> Option<Duration> {
        self.flushing.lock().unwrap_or_else(PoisonError::into_inner).map(|began| began.elapsed())
    }
}
