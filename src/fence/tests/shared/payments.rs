//! Somebody else's payment API. It knows nothing of epochs.

use std::cell::RefCell;
use std::collections::BTreeMap;

/// What it does with a key that it has seen.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keys {
    /// It answers as it did the first time.
    Kept,
    /// It charges again: it keeps no keys, or has forgotten them.
    Forgotten,
}

pub(crate) struct Payments {
    keys: Keys,
    seen: RefCell<BTreeMap<String, String>>,
    charged: RefCell<Vec<String>>,
}

impl Payments {
    pub(crate) fn that_have_keys(keys: Keys) -> Payments {
        Payments { keys, seen: RefCell::default(), charged: RefCell::default() }
    }

    /// Charges, and answers with the number of the payment.
    pub(crate) fn charge(&self, key: &str, payload: &str) -> String {
        if let Some(first) = self.seen.borrow().get(key).filter(|_| self.keys == Keys::Kept) {
            return first.clone();
        }
        self.charged.borrow_mut().push(payload.to_owned());
        let answer = format!("payment {}", self.charged.borrow().len());
        self.seen.borrow_mut().insert(key.to_owned(), answer.clone());
        answer
    }

    /// What was charged, each time it was.
    pub(crate) fn charged(&self) -> Vec<String> {
        self.charged.borrow().clone()
    }
}
