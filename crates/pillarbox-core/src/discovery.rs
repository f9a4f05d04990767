//! Where the stores of a fleet are, and what a new answer to that question changes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use async_trait::async_trait;

use crate::error::StoreError;
use crate::naming::Naming;
use crate::problem::Invalid;
use crate::routing::RoutingKey;

/// Says which stores there are: all of them, every time.
#[async_trait]
pub trait Discovery: Send + Sync + 'static {
    /// Every store that should be served now. What is missing in an answer is drained and let go.
    ///
    /// An error changes nothing: who is not sure should say so, and not answer with what it has.
    async fn discover(&self) -> Result<Vec<StorePlace>, DiscoveryError>;
}

/// One store: its key, and how it is opened.
///
/// The address may hold a password; it is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct StorePlace {
    key: RoutingKey,
    address: String,
    naming: Option<Naming>,
    content: Option<String>,
    problem: Option<String>,
}

impl StorePlace {
    /// The store at an address such as `postgres://…`.
    pub fn new(key: impl TryInto<RoutingKey, Error = Invalid>, address: impl Into<String>) -> Result<Self, Invalid> {
        Ok(Self { key: key.try_into()?, address: address.into(), naming: None, content: None, problem: None })
    }

    /// A store that there is, though what is known of it is wrong. It is not opened: where it is served already it stays, and
    /// whoever refreshes is told. The problem must not quote a secret.
    pub fn spoilt(key: impl TryInto<RoutingKey, Error = Invalid>, problem: impl fmt::Display) -> Result<Self, Invalid> {
        Ok(Self { problem: Some(problem.to_string()), ..Self::new(key, "")? })
    }

    /// What lies at the address, where that may be replaced under the same address: another content is another store.
    #[must_use]
    pub fn content(mut self, content: impl Into<String>) -> Self {
        self.content = Some(content.into());
        self
    }

    /// Names of schema and tables of its own, where many stores share a database.
    #[must_use]
    pub fn naming(mut self, naming: Naming) -> Self {
        self.naming = Some(naming);
        self
    }

    /// What it is asked for by.
    pub fn key(&self) -> &RoutingKey {
        &self.key
    }

    /// How it is opened. Not for logs.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Why it cannot be opened, if it is [spoilt](Self::spoilt).
    pub fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// Its own names of schema and tables.
    pub fn get_naming(&self) -> Option<&Naming> {
        self.naming.as_ref()
    }
}

impl fmt::Debug for StorePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StorePlace").field("key", &self.key).field("naming", &self.naming).finish_non_exhaustive()
    }
}

/// Why stores could not be discovered. Never carries a secret.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct DiscoveryError(String);

impl DiscoveryError {
    /// An error in words.
    pub fn new(what: impl fmt::Display) -> Self {
        Self(what.to_string())
    }
}

impl From<StoreError> for DiscoveryError {
    fn from(error: StoreError) -> Self {
        Self::new(error)
    }
}

/// What a new answer changes, each in the order of the keys.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Stores that are new.
    pub added: Vec<StorePlace>,
    /// Stores that are opened another way than before.
    pub changed: Vec<StorePlace>,
    /// Stores that are no more.
    pub removed: Vec<RoutingKey>,
    /// Stores that are as they were.
    pub kept: Vec<RoutingKey>,
    /// Keys that were answered with two places: nothing is done about them.
    pub ambiguous: Vec<RoutingKey>,
}

/// Compares what is known with what was found.
pub fn changes(known: &BTreeMap<RoutingKey, StorePlace>, found: Vec<StorePlace>) -> Changes {
    let mut places: BTreeMap<RoutingKey, StorePlace> = BTreeMap::new();
    let mut ambiguous = BTreeSet::new();
    for place in found {
        match places.get(&place.key) {
            Some(other) if *other != place => drop(ambiguous.insert(place.key)),
            Some(_) => {}
            None => drop(places.insert(place.key.clone(), place)),
        }
    }
    let mut changes = Changes::default();
    changes.removed.extend(known.keys().filter(|key| !places.contains_key(*key)).cloned());
    for (key, place) in places {
        match known.get(&key) {
            _ if ambiguous.contains(&key) => {}
            None => changes.added.push(place),
            Some(before) if *before == place => changes.kept.push(key),
            Some(_) => changes.changed.push(place),
        }
    }
    changes.ambiguous.extend(ambiguous);
    changes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn place(key: &str, address: &str) -> StorePlace {
        StorePlace::new(key, address).unwrap()
    }

    fn known(places: &[StorePlace]) -> BTreeMap<RoutingKey, StorePlace> {
        places.iter().map(|place| (place.key.clone(), place.clone())).collect()
    }

    fn names(keys: &[RoutingKey]) -> Vec<&str> {
        keys.iter().map(RoutingKey::as_str).collect()
    }

    /// OBX-077, OBX-078, OBX-079, IBX-095, IBX-096, IBX-097.
    #[test]
    fn an_answer_is_sorted_into_new_changed_gone_and_kept() {
        let replaced = |content: &str| place("replaced", "6").content(content);
        let before =
            [place("gone", "1"), place("kept", "2"), place("moved", "3"), place("renamed", "4"), replaced("a")];
        let before = known(&before);
        let own = Naming::new("tenant", "outbox").unwrap();
        let found = vec![
            replaced("b"),
            place("renamed", "4").naming(own),
            place("new", "5"),
            place("moved", "33"),
            place("kept", "2"),
            place("kept", "2"),
        ];
        let changes = changes(&before, found);
        assert_eq!(changes.added, [place("new", "5")]);
        assert_eq!(
            changes.changed.iter().map(|place| place.key.as_str()).collect::<Vec<_>>(),
            ["moved", "renamed", "replaced"]
        );
        assert_eq!(names(&changes.removed), ["gone"]);
        assert_eq!(names(&changes.kept), ["kept"]);
        assert!(changes.ambiguous.is_empty());
    }

    #[test]
    fn two_places_for_one_key_change_nothing_about_it() {
        let before = known(&[place("known", "1")]);
        let found =
            vec![place("known", "1"), place("known", "2"), place("new", "3"), place("new", "4"), place("b", "5")];
        let changes = changes(&before, found);
        assert_eq!(names(&changes.ambiguous), ["known", "new"]);
        assert_eq!((changes.added, changes.changed, changes.removed.len()), (vec![place("b", "5")], vec![], 0));
    }

    /// OBX-078: whoever is spoilt is there: nothing is drained because of it.
    #[test]
    fn a_spoilt_store_is_not_gone() {
        let before = known(&[place("known", "1")]);
        let spoilt = StorePlace::spoilt("known", "its name is none").unwrap();
        assert_eq!(spoilt.problem(), Some("its name is none"));
        let changes = changes(&before, vec![spoilt.clone()]);
        assert_eq!((changes.removed.len(), changes.changed), (0, vec![spoilt]));
    }

    /// Whatever the answer, following it leads to it, and asking again changes nothing.
    #[test]
    fn following_the_changes_leads_to_what_was_found() {
        let places = || proptest::collection::vec((0_u8..12, 0_u8..3), 0..20);
        let build = |pairs: Vec<(u8, u8)>| -> BTreeMap<_, _> {
            known(&pairs.iter().map(|(key, to)| place(&format!("k{key}"), &to.to_string())).collect::<Vec<_>>())
        };
        proptest!(|(before in places(), found in places())| {
            let (mut now, found) = (build(before), build(found));
            let step = changes(&now, found.values().cloned().collect());
            step.removed.iter().for_each(|key| drop(now.remove(key)));
            for place in step.added.into_iter().chain(step.changed) {
                now.insert(place.key.clone(), place);
            }
            prop_assert_eq!(&now, &found);
            let again = changes(&now, found.into_values().collect());
            prop_assert!(again.added.is_empty() && again.changed.is_empty() && again.removed.is_empty());
        });
    }

    /// H54.
    #[test]
    fn no_debug_text_shows_the_address() {
        let place = place("tenant", "postgres://user:canary@db/shop");
        assert!(!format!("{place:?}").contains("canary"));
        assert!(format!("{place:?}").contains("tenant"));
    }
}
