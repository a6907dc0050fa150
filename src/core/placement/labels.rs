//! Which workers may own a keyspace's partitions at all, by their labels.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// One demand on a worker's labels.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Constraint {
    /// The worker has this label.
    Required(Label),
    /// The worker does not have it.
    Forbidden(Label),
}

/// A label, with any value or with one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Label {
    key: String,
    value: Option<String>,
}

impl Label {
    /// The label of this key, whatever its value.
    ///
    /// # Errors
    /// [`LabelError`] when the key is empty or has a `=` in it, or begins with the `!` of [`Constraint`]'s text.
    pub fn any(key: &str) -> Result<Label, LabelError> {
        Label::checked(key, None)
    }

    /// The label of this key and this value.
    ///
    /// # Errors
    /// As [`Label::any`].
    pub fn with_value(key: &str, value: &str) -> Result<Label, LabelError> {
        Label::checked(key, Some(value))
    }

    fn checked(key: &str, value: Option<&str>) -> Result<Label, LabelError> {
        if key.is_empty() || key.starts_with('!') || key.contains('=') {
            return Err(LabelError { text: key.to_owned() });
        }
        Ok(Label { key: key.to_owned(), value: value.map(str::to_owned) })
    }

    /// Its key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Its value; `None` is any.
    pub fn value(&self) -> Option<&str> {
        self.value.as_deref()
    }

    fn is_among(&self, labels: &BTreeMap<String, String>) -> bool {
        labels.get(&self.key).is_some_and(|has| self.value.as_ref().is_none_or(|wanted| wanted == has))
    }
}

impl Constraint {
    /// Whether a worker with these labels meets it.
    pub fn allows(&self, labels: &BTreeMap<String, String>) -> bool {
        match self {
            Constraint::Required(label) => label.is_among(labels),
            Constraint::Forbidden(label) => !label.is_among(labels),
        }
    }
}

/// The first constraint, in the order of the list, that a worker with these labels does not meet.
pub fn unmet<'a>(constraints: &'a [Constraint], labels: &BTreeMap<String, String>) -> Option<&'a Constraint> {
    constraints.iter().find(|constraint| !constraint.allows(labels))
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.key)?;
        self.value.as_ref().map_or(Ok(()), |value| write!(f, "={value}"))
    }
}

/// `k` or `k=v` for what is required, `!k` or `!k=v` for what is forbidden; [`FromStr`] reads the same.
impl fmt::Display for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Constraint::Required(label) => label.fmt(f),
            Constraint::Forbidden(label) => write!(f, "!{label}"),
        }
    }
}

impl FromStr for Constraint {
    type Err = LabelError;

    fn from_str(text: &str) -> Result<Constraint, LabelError> {
        let (forbidden, label) = text.strip_prefix('!').map_or((false, text), |label| (true, label));
        let label = match label.split_once('=') {
            Some((key, value)) => Label::with_value(key, value),
            None => Label::any(label),
        };
        let label = label.map_err(|_| LabelError { text: text.to_owned() })?;
        Ok(if forbidden { Constraint::Forbidden(label) } else { Constraint::Required(label) })
    }
}

/// A text that is no label.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a label: write KEY or KEY=VALUE, with ! before what is forbidden")]
pub struct LabelError {
    /// The text refused.
    pub text: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn the_first_constraint_that_is_not_met_is_named() {
        let constraints: Vec<Constraint> =
            ["disk=ssd", "gpu", "!spot", "!zone=eu-1"].map(|text| text.parse().unwrap()).to_vec();
        let named = |pairs: &[(&str, &str)]| unmet(&constraints, &labels(pairs)).map(ToString::to_string);
        assert_eq!(named(&[("disk", "ssd"), ("gpu", ""), ("zone", "eu-2")]), None);
        assert_eq!(named(&[("disk", "hdd"), ("gpu", "")]), Some("disk=ssd".to_owned()));
        assert_eq!(named(&[("disk", "ssd")]), Some("gpu".to_owned()));
        assert_eq!(named(&[("disk", "ssd"), ("gpu", "1"), ("spot", "no")]), Some("!spot".to_owned()));
        assert_eq!(named(&[("disk", "ssd"), ("gpu", "1"), ("zone", "eu-1")]), Some("!zone=eu-1".to_owned()));
        assert_eq!(unmet(&[], &labels(&[])), None);
    }

    #[test]
    fn a_text_that_is_no_label_is_refused_and_quoted() {
        for text in ["", "!", "=v", "!=v", "!!k"] {
            assert_eq!(text.parse::<Constraint>(), Err(LabelError { text: text.to_owned() }));
        }
        assert_eq!("k=a=b".parse(), Ok(Constraint::Required(Label::with_value("k", "a=b").unwrap())));
        assert_eq!("k=".parse(), Ok(Constraint::Required(Label::with_value("k", "").unwrap())));
        assert!(Label::any("a=b").is_err() && Label::with_value("!a", "b").is_err());
    }
}
