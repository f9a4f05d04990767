//! Names of things, each a type of its own, so that one cannot be passed for another.

use std::fmt;

use uuid::Uuid;

use crate::problem::{Invalid, Problem};

/// The name of a message, chosen by the client and constant through all attempts, replays and brokers.
///
/// New ones are UUIDv7: time-ordered, and increasing within one process. Any other UUID but the nil one
/// is accepted through [`MessageId::from_uuid`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(Uuid);

impl MessageId {
    /// Draws a new, time-ordered id.
    #[expect(clippy::new_without_default, reason = "two calls differ; a default would hide that")]
    pub fn new() -> Self {
        Self(Uuid::now_v7())
    }

    /// Takes an id that exists already; the nil UUID names nothing and is refused.
    pub fn from_uuid(uuid: Uuid) -> Result<Self, Invalid> {
        not_nil("message_id", uuid).map(Self)
    }

    /// The UUID itself.
    pub fn as_uuid(&self) -> Uuid {
        self.0
    }
}

/// The place of a message in its store: a number from the database's own sequence.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkId(i64);

impl WorkId {
    /// Wraps a number read from the database.
    pub const fn from_i64(id: i64) -> Self {
        Self(id)
    }

    /// The number itself.
    pub const fn as_i64(self) -> i64 {
        self.0
    }
}

/// The name under which one runtime claims messages. The empty (nil) token cannot be made.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerToken(Uuid);

impl OwnerToken {
    /// Draws a new random token; a process keeps it for its lifetime.
    #[expect(clippy::new_without_default, reason = "two calls differ; a default would hide that")]
    pub fn new() -> Self {
        Self(Uuid::new_v4())
    }

    /// Takes a token that exists already; the nil UUID owns nothing and is refused.
    pub fn from_uuid(uuid: Uuid) -> Result<Self, Invalid> {
        not_nil("owner_token", uuid).map(Self)
    }

    /// The UUID itself.
    pub fn as_uuid(&self) -> Uuid {
        self.0
    }
}

/// The name of one run of a program that serves a queue: drawn when it starts, and gone when it ends.
///
/// New ones are UUIDv7, so that a list of instances stands in the order in which they were started.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceId(Uuid);

impl InstanceId {
    /// Draws a new, time-ordered id.
    #[expect(clippy::new_without_default, reason = "two calls differ; a default would hide that")]
    pub fn new() -> Self {
        Self(Uuid::now_v7())
    }

    /// Takes an id that exists already; the nil UUID names nobody and is refused.
    pub fn from_uuid(uuid: Uuid) -> Result<Self, Invalid> {
        not_nil("instance_id", uuid).map(Self)
    }

    /// The UUID itself.
    pub fn as_uuid(&self) -> Uuid {
        self.0
    }
}

/// A number that every claim draws anew; a settlement must bring it back.
///
/// It is random, not a counter, so that a worker from before a restored backup cannot hold the number of
/// a later claim.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fence(i64);

impl Fence {
    /// Draws a new fence. It is above zero: zero stands for "never claimed" in the tables, -1 for "came back, and may stand
    /// before one of its key that is held".
    #[expect(clippy::new_without_default, reason = "two calls differ; a default would hide that")]
    pub fn new() -> Self {
        let (high, low) = Uuid::new_v4().as_u64_pair();
        // The version and variant bits are constant; the shifts drop them.
        let drawn = (high << 32) ^ low.rotate_left(7) ^ (high >> 32);
        Self(i64::try_from((drawn >> 1) | 1).unwrap_or(i64::MAX))
    }

    /// Wraps a number read from the database.
    pub const fn from_i64(fence: i64) -> Self {
        Self(fence)
    }

    /// The number itself.
    pub const fn as_i64(self) -> i64 {
        self.0
    }
}

/// The name of a store (one database with our tables): stable, for logs and metrics.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoreId(std::sync::Arc<str>);

impl StoreId {
    /// The longest name, in characters.
    pub const CHARS_MAX: usize = 255;

    /// Takes a name of 1 to 255 characters.
    pub fn new(name: impl AsRef<str>) -> Result<Self, Invalid> {
        let name = name.as_ref();
        let length = name.chars().count();
        if name.is_empty() {
            return Err(Problem::empty("store_id").into());
        }
        if length > Self::CHARS_MAX {
            return Err(Problem::too_long("store_id", Self::CHARS_MAX, length).into());
        }
        Ok(Self(name.into()))
    }

    /// The name itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn not_nil(field: &'static str, uuid: Uuid) -> Result<Uuid, Invalid> {
    if uuid.is_nil() { Err(Problem::empty(field).into()) } else { Ok(uuid) }
}

macro_rules! shows_as {
    ($($name:ident)*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }
    )*};
}

shows_as!(MessageId WorkId OwnerToken InstanceId Fence StoreId);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_empty_owner_token_is_refused() {
        let refused = OwnerToken::from_uuid(Uuid::nil()).unwrap_err();
        assert_eq!(refused.problems()[0].field(), "owner_token");
        assert!(!OwnerToken::new().as_uuid().is_nil());
    }

    #[test]
    fn the_nil_message_id_is_refused() {
        assert_eq!(MessageId::from_uuid(Uuid::nil()).unwrap_err().problems()[0].field(), "message_id");
    }

    #[test]
    fn message_ids_are_time_ordered_and_increase() {
        let ids: Vec<_> = (0..10_000).map(|_| MessageId::new()).collect();
        assert!(ids.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(ids[0].as_uuid().get_version_num(), 7);
    }

    /// WRK-05.
    #[test]
    fn instance_ids_are_time_ordered_and_never_nil() {
        assert_eq!(InstanceId::from_uuid(Uuid::nil()).unwrap_err().problems()[0].field(), "instance_id");
        let (first, second) = (InstanceId::new(), InstanceId::new());
        assert!(first < second);
        assert_eq!(first.as_uuid().get_version_num(), 7);
    }

    #[test]
    fn fences_are_positive_and_differ() {
        let fences: std::collections::HashSet<_> = (0..10_000).map(|_| Fence::new()).collect();
        assert_eq!(fences.len(), 10_000);
        assert!(fences.iter().all(|fence| fence.as_i64() > 0));
    }

    #[test]
    fn a_store_id_has_between_1_and_255_characters() {
        assert!(StoreId::new("").is_err());
        assert!(StoreId::new("ä".repeat(255)).is_ok());
        assert!(StoreId::new("ä".repeat(256)).is_err());
    }
}
