//! Whether the operations on one key fit in some order: each takes effect at one instant between its begin and its end.
//!
//! A search after Wing and Gong, with Lowe's memory of what was tried. Operations that never returned may take effect at any
//! time after they began, or never. Some observations keep the search small: a read that fits now may as well come now; an
//! operation that never returned and whose value nobody read may as well never have happened; one that overwrites and never
//! returned matters only right before a read that finds it; and where all append, the longest list read says the order.

use crate::history::{Call, Values};
use std::collections::HashSet;
use std::fmt;

/// One operation on the key.
#[derive(Clone, Debug)]
pub(super) struct Op {
    pub(super) call: Call,
    pub(super) invoked: u64,
    /// `None`: nobody knows whether it took effect.
    pub(super) returned: Option<u64>,
    /// What a read found.
    pub(super) found: Vec<u64>,
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.call {
            Call::Write(value) => write!(f, "write {value}")?,
            Call::Append(value) => write!(f, "append {value}")?,
            Call::Read => write!(f, "read {}", Values(&self.found))?,
        }
        match self.returned {
            Some(returned) => write!(f, ", {} to {returned} us", self.invoked),
            None => write!(f, ", {} us to unknown", self.invoked),
        }
    }
}

/// How far the search came.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stuck {
    /// How many operations were put in order at the most.
    pub(super) done: usize,
    /// The last of these.
    pub(super) last: Option<usize>,
    /// What could come next by its time, and does not fit; the first few.
    pub(super) open: Vec<usize>,
}

/// A list by its length and a hash of its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Content {
    len: u64,
    hash: u128,
}

impl Content {
    const EMPTY: Content = Content { len: 0, hash: 0 };

    fn append(self, value: u64) -> Content {
        const ODD: u128 = 0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645;
        let mixed = (self.hash ^ u128::from(value)).wrapping_add(1).wrapping_mul(ODD);
        Content { len: self.len + 1, hash: mixed ^ (mixed >> 71) }
    }

    fn of(values: &[u64]) -> Content {
        values.iter().fold(Content::EMPTY, |content, value| content.append(*value))
    }
}

/// What was put in order: all that returned up to `prefix`, and besides those in `beyond`, which are sorted; and those of the
/// operations that never returned that were given an effect.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Tried {
    prefix: usize,
    beyond: Vec<usize>,
    unknown: Vec<usize>,
    content: Content,
}

/// Takes the operations sorted by their begin.
pub(super) fn check(ops: &[Op]) -> Result<(), Stuck> {
    let read: HashSet<u64> = ops.iter().flat_map(|op| op.found.iter().copied()).collect();
    let seen = |op: &Op| matches!(op.call, Call::Write(value) | Call::Append(value) if read.contains(&value));
    let all = |is: fn(&Call) -> bool| ops.iter().all(|op| op.call == Call::Read || is(&op.call));
    let appends = all(|call| matches!(call, Call::Append(_)));
    let longest = ops.iter().map(|op| op.found.as_slice()).max_by_key(|found| found.len());
    let search = Search {
        ops,
        overwrites: all(|call| matches!(call, Call::Write(_))),
        order: longest.filter(|_| appends).unwrap_or_default(),
        known: (0..ops.len()).filter(|at| ops[*at].returned.is_some()).collect(),
        unknown: (0..ops.len()).filter(|at| ops[*at].returned.is_none() && seen(&ops[*at])).collect(),
        found: ops.iter().map(|op| Content::of(&op.found)).collect(),
    };
    search.run()
}

struct Search<'ops> {
    ops: &'ops [Op],
    /// Those that returned, by their begin; [`Tried`] counts in positions of this list.
    known: Vec<usize>,
    /// Those that did not, and whose values were read.
    unknown: Vec<usize>,
    found: Vec<Content>,
    /// No operation appends.
    overwrites: bool,
    /// Where all append: the longest list that was read.
    order: &'ops [u64],
}

impl Search<'_> {
    fn run(&self) -> Result<(), Stuck> {
        let start = Tried { prefix: 0, beyond: Vec::new(), unknown: Vec::new(), content: Content::EMPTY };
        let mut tried: HashSet<Tried> = HashSet::new();
        let mut stack = vec![(start, None)];
        let mut best = Stuck { done: 0, last: None, open: Vec::new() };
        while let Some((mut now, last)) = stack.pop() {
            let last = self.reads(&mut now, last);
            if now.prefix == self.known.len() {
                return Ok(());
            }
            if !tried.insert(now.clone()) {
                continue;
            }
            let (candidates, until) = self.candidates(&now);
            let done = now.prefix + now.beyond.len() + now.unknown.len();
            if done >= best.done {
                let open = candidates.iter().take(6).map(|position| self.known[*position]).collect();
                best = Stuck { done, last, open };
            }
            // The last pushed is tried first: those that returned, the earliest end first; then what nobody knows.
            for at in self.unknown.iter().rev().filter(|at| self.ops[**at].invoked <= until) {
                let content = self.after(*at, now.content);
                if let Err(place) = now.unknown.binary_search(at)
                    && self.matters(*at, now.content, content, &candidates)
                {
                    let mut next = now.clone();
                    next.unknown.insert(place, *at);
                    next.content = content;
                    stack.push((next, Some(*at)));
                }
            }
            for position in candidates.iter().rev() {
                let at = self.known[*position];
                if self.ops[at].call != Call::Read && self.in_order(at, now.content) {
                    let mut next = now.clone();
                    next.take(*position);
                    next.content = self.after(at, now.content);
                    stack.push((next, Some(at)));
                }
            }
        }
        Err(best)
    }

    /// Where all append, what comes next is what the longest list has there.
    fn in_order(&self, at: usize, before: Content) -> bool {
        let place = usize::try_from(before.len).ok().and_then(|len| self.order.get(len));
        place.is_none_or(|value| self.ops[at].call == Call::Append(*value))
    }

    /// Whether an operation that never returned should take effect here.
    fn matters(&self, at: usize, before: Content, after: Content, candidates: &[usize]) -> bool {
        let found = |position: &usize| {
            let next = self.known[*position];
            self.ops[next].call == Call::Read && self.found[next] == after
        };
        self.in_order(at, before) && (!self.overwrites || candidates.iter().any(found))
    }

    fn after(&self, at: usize, content: Content) -> Content {
        match self.ops[at].call {
            Call::Write(value) => Content::EMPTY.append(value),
            Call::Append(value) => content.append(value),
            Call::Read => content,
        }
    }

    /// Takes every read that may come next and fits.
    fn reads(&self, now: &mut Tried, mut last: Option<usize>) -> Option<usize> {
        loop {
            let (candidates, _) = self.candidates(now);
            let fits = |position: &usize| {
                let at = self.known[*position];
                self.ops[at].call == Call::Read && self.found[at] == now.content
            };
            let Some(position) = candidates.into_iter().find(fits) else { return last };
            now.take(position);
            last = Some(self.known[position]);
        }
    }

    /// Those that may come next, the earliest end first: nothing that is still to come ended before they began. And the
    /// time until which something may begin to be among them.
    fn candidates(&self, now: &Tried) -> (Vec<usize>, u64) {
        let mut until = u64::MAX;
        let mut candidates = Vec::new();
        let mut beyond = now.beyond.iter().peekable();
        for position in now.prefix..self.known.len() {
            if beyond.peek() == Some(&&position) {
                beyond.next();
                continue;
            }
            let op = &self.ops[self.known[position]];
            if op.invoked > until {
                break;
            }
            until = until.min(op.returned.unwrap_or(u64::MAX));
            candidates.push(position);
        }
        candidates.sort_by_key(|position| self.ops[self.known[*position]].returned);
        (candidates, until)
    }
}

impl Tried {
    /// Puts a position in order.
    fn take(&mut self, position: usize) {
        if let Err(place) = self.beyond.binary_search(&position) {
            self.beyond.insert(place, position);
        }
        let run = self.beyond.iter().enumerate().take_while(|(i, at)| **at == self.prefix + i).count();
        self.beyond.drain(..run);
        self.prefix += run;
    }
}
