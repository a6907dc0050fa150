//! The fields of one object: each is asked for by name, and what nobody asked for is refused.

use super::json::{Fault, Node, Value, quoted};
use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

/// An object whose fields are taken out one by one.
pub(super) struct Fields {
    /// Where it begins.
    pub(super) at: usize,
    rest: Vec<(usize, String, Node)>,
    asked: Vec<&'static str>,
}

impl Fields {
    pub(super) fn of(node: Node) -> Result<Fields, Fault> {
        match node.value {
            Value::Object(rest) => Ok(Fields { at: node.at, rest, asked: Vec::new() }),
            other => {
                Err(Fault::new(node.at, format!("expected an object {{...}}, and found {}", other.kind())))
            }
        }
    }

    /// The field, when it is there. `null` is as good as none.
    pub(super) fn take(&mut self, name: &'static str) -> Option<Node> {
        self.asked.push(name);
        let place = self.rest.iter().position(|(_, field, _)| field == name)?;
        Some(self.rest.remove(place).2).filter(|node| node.value != Value::Null)
    }

    /// The field, which has to be there.
    pub(super) fn need<T>(&self, name: &'static str, found: Option<T>) -> Result<T, Fault> {
        found.ok_or_else(|| Fault::new(self.at, format!("field `{name}` is missing")))
    }

    pub(super) fn text(&mut self, name: &'static str) -> Result<Option<(usize, String)>, Fault> {
        self.take(name).map(|node| text(name, node)).transpose()
    }

    pub(super) fn parsed<T>(&mut self, name: &'static str) -> Result<Option<(usize, T)>, Fault>
    where
        T: FromStr<Err: Display>,
    {
        let Some((at, text)) = self.text(name)? else { return Ok(None) };
        text.parse().map(|value| Some((at, value))).map_err(|error| wrong(at, name, error))
    }

    pub(super) fn number(&mut self, name: &'static str) -> Result<Option<(usize, u64)>, Fault> {
        let Some(node) = self.take(name) else { return Ok(None) };
        number(name, &node).map(|number| Some((node.at, number)))
    }

    /// A number that fits 32 bits.
    pub(super) fn small(&mut self, name: &'static str) -> Result<Option<(usize, u32)>, Fault> {
        let Some((at, number)) = self.number(name)? else { return Ok(None) };
        let small = u32::try_from(number).map_err(|_| wrong(at, name, format!("{number} is too large")))?;
        Ok(Some((at, small)))
    }

    pub(super) fn truth(&mut self, name: &'static str) -> Result<Option<bool>, Fault> {
        match self.take(name) {
            None => Ok(None),
            Some(Node { value: Value::Bool(truth), .. }) => Ok(Some(truth)),
            Some(node) => Err(expected(name, "true or false", &node)),
        }
    }

    /// Milliseconds, which the caller checks.
    pub(super) fn millis(&mut self, name: &'static str) -> Result<Option<Duration>, Fault> {
        Ok(self.number(name)?.map(|(_, ms)| Duration::from_millis(ms)))
    }

    /// Milliseconds within bounds.
    pub(super) fn bounded(
        &mut self,
        name: &'static str,
        least: Duration,
        most: Duration,
    ) -> Result<Option<Duration>, Fault> {
        let Some((at, ms)) = self.number(name)? else { return Ok(None) };
        let duration = Duration::from_millis(ms);
        if !(least..=most).contains(&duration) {
            let (least, most) = (least.as_millis(), most.as_millis());
            return Err(wrong(at, name, format!("{ms} is out of bounds: it is {least} to {most}")));
        }
        Ok(Some(duration))
    }

    /// Nothing is left that nobody asked for.
    pub(super) fn finish(self, of: &str) -> Result<(), Fault> {
        match self.rest.first() {
            None => Ok(()),
            Some((at, name, _)) => {
                let known = self.asked.join(", ");
                Err(Fault::new(*at, format!("unknown field {}: {of} has {known}", quoted(name))))
            }
        }
    }
}

pub(super) fn text(name: &str, node: Node) -> Result<(usize, String), Fault> {
    match node.value {
        Value::Text(text) => Ok((node.at, text)),
        _ => Err(expected(name, "a text in quotes", &node)),
    }
}

pub(super) fn number(name: &str, node: &Node) -> Result<u64, Fault> {
    match node.value {
        Value::Number(number) => Ok(number),
        _ => Err(expected(name, "a whole number from 0", node)),
    }
}

pub(super) fn expected(name: &str, what: &str, node: &Node) -> Fault {
    wrong(node.at, name, format!("expected {what}, and found {}", node.value.kind()))
}

pub(super) fn wrong(at: usize, name: &str, why: impl Display) -> Fault {
    Fault::new(at, format!("field `{name}`: {why}"))
}
