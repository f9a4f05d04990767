//! The name under which a program finds one store among many: a tenant, a region, a shard.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use uuid::Uuid;

use crate::problem::{Invalid, Problem};

/// What a store is asked for by: a text, or a UUID, which is a text in its usual form.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RoutingKey(Arc<str>);

impl RoutingKey {
    /// The longest key, in characters. Stores are named after their keys, and an inbox adds a little.
    pub const CHARS_MAX: usize = 200;

    /// Takes a text that is neither blank nor too long.
    ///
    /// One that is a UUID with hyphens is kept in small letters: databases write it one way, programs another.
    pub fn new(key: impl AsRef<str>) -> Result<Self, Invalid> {
        let key = key.as_ref();
        if key.trim().is_empty() {
            return Err(Problem::empty("routing_key").into());
        }
        let length = key.chars().count();
        if length > Self::CHARS_MAX {
            return Err(Problem::too_long("routing_key", Self::CHARS_MAX, length).into());
        }
        match Uuid::try_parse(key) {
            Ok(uuid) if length == uuid::fmt::Hyphenated::LENGTH => Self::try_from(uuid),
            _ => Ok(Self(key.into())),
        }
    }

    /// The text itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<Uuid> for RoutingKey {
    type Error = Invalid;

    /// The nil UUID names nothing and is refused like an empty text.
    fn try_from(uuid: Uuid) -> Result<Self, Invalid> {
        if uuid.is_nil() {
            return Err(Problem::empty("routing_key").into());
        }
        Ok(Self(uuid.hyphenated().to_string().into()))
    }
}

macro_rules! from_text {
    ($($text:ty)*) => {$(
        impl TryFrom<$text> for RoutingKey {
            type Error = Invalid;

            fn try_from(key: $text) -> Result<Self, Invalid> {
                Self::new(key)
            }
        }
    )*};
}

from_text!(&str String &String);

impl TryFrom<&Self> for RoutingKey {
    type Error = Invalid;

    fn try_from(key: &Self) -> Result<Self, Invalid> {
        Ok(key.clone())
    }
}

impl Borrow<str> for RoutingKey {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RoutingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for RoutingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RoutingKey({})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// OBX-073, IBX-092.
    #[test]
    fn an_empty_or_endless_key_is_refused() {
        for key in ["", " ", "\t\n", "00000000-0000-0000-0000-000000000000"] {
            let refused = RoutingKey::new(key).unwrap_err();
            assert_eq!(refused.to_string(), "routing_key must not be empty", "{key:?}");
        }
        assert!(RoutingKey::try_from(Uuid::nil()).is_err());
        assert!(RoutingKey::new("ä".repeat(200)).is_ok());
        let refused = RoutingKey::new("ä".repeat(201)).unwrap_err();
        assert_eq!(refused.problems()[0].limit(), Some(200));
    }

    /// OBX-074.
    #[test]
    fn a_uuid_is_the_same_key_however_it_is_written() {
        let uuid = Uuid::now_v7();
        let small = uuid.hyphenated().to_string();
        let key = RoutingKey::try_from(uuid).unwrap();
        assert_eq!(key.as_str(), small);
        for text in [small.clone(), small.to_uppercase()] {
            assert_eq!(RoutingKey::new(text).unwrap(), key);
        }
        assert_ne!(RoutingKey::new(uuid.simple().to_string()).unwrap(), key, "any other text stays as it is");
    }
}
