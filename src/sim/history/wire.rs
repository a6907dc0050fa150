//! How ids stand in JSON: names and scopes as text, numbers as numbers.

use ringfence_core::ids::{Epoch, NodeId, Scope, SessionId, Term};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// An id that is a number.
pub(super) trait Number: Sized + Copy {
    fn to_number(self) -> u64;
    fn from_number(number: u64) -> Result<Self, String>;
}

impl Number for Epoch {
    fn to_number(self) -> u64 {
        self.get()
    }
    fn from_number(number: u64) -> Result<Self, String> {
        Epoch::new(number).map_err(|error| error.to_string())
    }
}

impl Number for SessionId {
    fn to_number(self) -> u64 {
        self.get()
    }
    fn from_number(number: u64) -> Result<Self, String> {
        SessionId::new(number).ok_or_else(|| "0 is not a session".to_string())
    }
}

impl Number for Term {
    fn to_number(self) -> u64 {
        self.get()
    }
    fn from_number(number: u64) -> Result<Self, String> {
        Ok(Term::new(number))
    }
}

impl Number for NodeId {
    fn to_number(self) -> u64 {
        self.get()
    }
    fn from_number(number: u64) -> Result<Self, String> {
        NodeId::new(number).map_err(|error| error.to_string())
    }
}

pub(super) mod number {
    use super::{Deserialize as _, Deserializer, Number, Serializer, de};

    pub(crate) fn serialize<T: Number, S: Serializer>(id: &T, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(id.to_number())
    }

    pub(crate) fn deserialize<'a, T: Number, D: Deserializer<'a>>(from: D) -> Result<T, D::Error> {
        T::from_number(u64::deserialize(from)?).map_err(de::Error::custom)
    }
}

pub(super) mod text {
    use super::{Deserialize as _, Deserializer, Serializer, de};
    use std::fmt::Display;
    use std::str::FromStr;

    pub(crate) fn serialize<T: Display, S: Serializer>(id: &T, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(id)
    }

    pub(crate) fn deserialize<'a, T, D: Deserializer<'a>>(from: D) -> Result<T, D::Error>
    where
        T: FromStr,
        T::Err: Display,
    {
        String::deserialize(from)?.parse().map_err(de::Error::custom)
    }
}

/// An epoch of a scope: `["orders/17", 34]`.
pub(super) mod token {
    use super::{Deserialize as _, Deserializer, Epoch, Number as _, Scope, Serialize as _, Serializer, de};

    pub(crate) fn serialize<S: Serializer>(token: &Option<(Scope, Epoch)>, to: S) -> Result<S::Ok, S::Error> {
        token.as_ref().map(|(scope, epoch)| (scope.to_string(), epoch.get())).serialize(to)
    }

    pub(crate) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Option<(Scope, Epoch)>, D::Error> {
        let Some((scope, epoch)) = Option::<(String, u64)>::deserialize(from)? else { return Ok(None) };
        let scope = scope.parse().map_err(de::Error::custom)?;
        Ok(Some((scope, Epoch::from_number(epoch).map_err(de::Error::custom)?)))
    }
}
