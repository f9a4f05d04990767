//! One outbox, or inbox, among many: found by its key.

use std::any::{Any, type_name};
use std::fmt;
use std::sync::Arc;

use pillarbox_core::{Invalid, RoutingKey, WithInbox};

use crate::connect::Store;
use crate::fleet::Shared;
use crate::fleet::member::Member;
use crate::inbox::{Inbox, RoutedInbox};
use crate::outbox::Outbox;

/// Finds the stores of a [fleet](crate::Fleet) by their keys, texts or UUIDs. Cheap to clone.
///
/// A handle that was found stays good: a store that left the fleet still takes messages, for whoever serves it next. The same
/// key gives the same store for as long as its place does not change: nothing is opened here.
#[derive(Clone)]
pub struct Router {
    pub(crate) shared: Arc<Shared>,
}

/// Why a key leads nowhere.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RouteError {
    /// It is no key at all: empty, or too long.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The fleet has no store of this key.
    #[error("no store of the fleet has the key `{0}`")]
    Unknown(RoutingKey),
    /// The fleet has an inbox of this key, and no outbox.
    #[error("the fleet was given no outbox for the key `{0}`")]
    NoOutbox(RoutingKey),
    /// The fleet has an outbox of this key, and serves no inbox of it.
    #[error("the fleet serves no inbox for the key `{0}`")]
    NoInbox(RoutingKey),
    /// The store is of another kind than was asked for.
    #[error("the store of the key `{key}` is a `{found}`, not a `{wanted}`")]
    OtherStore {
        /// The key.
        key: RoutingKey,
        /// What it is.
        found: &'static str,
        /// What was asked for.
        wanted: &'static str,
    },
}

impl Router {
    /// The outbox of a key, whatever its database.
    pub fn outbox<K>(&self, key: K) -> Result<Outbox<dyn Store>, RouteError>
    where
        K: TryInto<RoutingKey, Error = Invalid>,
    {
        let (key, member) = self.find(key)?;
        Ok(member.outbox.as_ref().ok_or(RouteError::NoOutbox(key))?.any.clone())
    }

    /// The outbox of a key as its database's own type, which can [`begin`](Outbox::begin) transactions.
    pub fn outbox_of<S: Store>(&self, key: impl TryInto<RoutingKey, Error = Invalid>) -> Result<Outbox<S>, RouteError> {
        let (key, member) = self.find(key)?;
        let Some(outbox) = &member.outbox else { return Err(RouteError::NoOutbox(key)) };
        typed::<S, Outbox<S>>(key, &outbox.typed, outbox.store_type)
    }

    /// The inbox of a key, whatever its database.
    pub fn inbox<K>(&self, key: K) -> Result<RoutedInbox, RouteError>
    where
        K: TryInto<RoutingKey, Error = Invalid>,
    {
        let (key, member) = self.find(key)?;
        Ok(member.inbox.as_ref().ok_or(RouteError::NoInbox(key))?.any.clone())
    }

    /// The inbox of a key as its database's own type, which can [`consume`](Inbox::consume) in transactions.
    pub fn inbox_of<S: WithInbox>(
        &self,
        key: impl TryInto<RoutingKey, Error = Invalid>,
    ) -> Result<Inbox<S>, RouteError> {
        let (key, member) = self.find(key)?;
        let Some(inbox) = &member.inbox else { return Err(RouteError::NoInbox(key)) };
        typed::<S, Inbox<S>>(key, &inbox.typed, inbox.store_type)
    }

    /// The keys of all stores, sorted.
    pub fn keys(&self) -> Vec<RoutingKey> {
        self.shared.keys()
    }

    fn find<K>(&self, key: K) -> Result<(RoutingKey, Arc<Member>), RouteError>
    where
        K: TryInto<RoutingKey, Error = Invalid>,
    {
        let key = key.try_into()?;
        match self.shared.member(&key) {
            Some(member) => Ok((key, member)),
            None => Err(RouteError::Unknown(key)),
        }
    }
}

fn typed<S, H: Clone + 'static>(
    key: RoutingKey,
    handle: &Arc<dyn Any + Send + Sync>,
    found: &'static str,
) -> Result<H, RouteError> {
    let handle = handle.downcast_ref::<H>().cloned();
    handle.ok_or(RouteError::OtherStore { key, found, wanted: type_name::<S>() })
}

impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Router").field("keys", &self.keys()).finish()
    }
}
