//! Panics. A task that panics takes only itself down, so nobody else might notice.

use std::panic;
use std::sync::{Mutex, PoisonError};

static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Keeps the panics of this process from now on.
pub(super) fn watch() {
    take();
    panic::set_hook(Box::new(|info| {
        let payload = info.payload();
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no text");
        let at = info.location().map(ToString::to_string).unwrap_or_default();
        SEEN.lock().unwrap_or_else(PoisonError::into_inner).push(format!("panicked at {at}: {text}"));
    }));
}

/// What has panicked since it was asked last.
pub(super) fn take() -> Vec<String> {
    std::mem::take(&mut *SEEN.lock().unwrap_or_else(PoisonError::into_inner))
}
