//! Routes that an operator paused: their messages stay where they are until the route is resumed.
//!
//! A pause is asked for by the name of a route and kept beside the queue, so that it outlives every process. Nothing is safe
//! because of it: whoever runs a route reads the pauses now and then, and stops to begin its messages.

mod halt;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;

use crate::error::StoreError;
use crate::message::check_text;
use crate::problem::{Invalid, Problem};
use crate::schema::SchemaAdmin;

pub use halt::Halt;

/// Characters of a route's name: that of a selector with its conditions.
pub const ROUTE_CHARS_MAX: usize = 700;

/// Characters of a reason, and of who it was.
pub const REASON_CHARS_MAX: usize = 255;

/// Pauses that one call lists at the most: those that were asked for first.
pub const PAUSES_MAX: u32 = 1000;

/// A route that is to be paused. Everybody who may read the list sees it: no secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pause {
    route: String,
    reason: Option<String>,
    by: Option<String>,
}

impl Pause {
    /// A pause of the route of this name, whether anybody runs it or not.
    pub fn new(route: impl Into<String>) -> Self {
        Self { route: route.into(), reason: None, by: None }
    }

    /// Why, for whoever looks later.
    #[must_use]
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into()).filter(|reason| !reason.is_empty());
        self
    }

    /// Who asked for it.
    #[must_use]
    pub fn by(mut self, by: impl Into<String>) -> Self {
        self.by = Some(by.into()).filter(|by| !by.is_empty());
        self
    }

    /// The name of the route.
    pub fn route(&self) -> &str {
        &self.route
    }

    /// Why, where it was said.
    pub fn get_reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// Who asked for it, where it was said.
    pub fn get_by(&self) -> Option<&str> {
        self.by.as_deref()
    }

    /// Checks every field and reports everything that is wrong, before any I/O.
    pub fn validate(&self) -> Result<(), Invalid> {
        let mut problems = Vec::new();
        note_route(&self.route, &mut problems);
        for (field, text) in [("reason", self.get_reason()), ("by", self.get_by())] {
            check_text(field, text.unwrap_or_default(), REASON_CHARS_MAX, &mut problems);
        }
        Invalid::unless_empty(problems)
    }
}

/// Checks the name of a route.
pub fn check_route(route: &str) -> Result<(), Invalid> {
    let mut problems = Vec::new();
    note_route(route, &mut problems);
    Invalid::unless_empty(problems)
}

fn note_route(route: &str, problems: &mut Vec<Problem>) {
    if route.is_empty() {
        problems.push(Problem::empty("route"));
    }
    check_text("route", route, ROUTE_CHARS_MAX, problems);
}

/// A pause as the list has it, with times of the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PauseRecord {
    /// What was asked for.
    pub pause: Pause,
    /// When.
    pub since: SystemTime,
    /// How long it had lasted when it was listed.
    pub lasts: Duration,
}

/// The routes of one queue that are paused.
///
/// Rules that hold for all methods are those of [`store`](crate::store). The table stands beside those of the queue: both are
/// deployed and checked together, and printed apart.
#[async_trait]
pub trait PauseStore: SchemaAdmin + fmt::Debug + 'static {
    /// Pauses a route; answers the pause that was there before, which then stays as it is.
    async fn pause(&self, pause: &Pause) -> Result<Option<PauseRecord>, StoreError>;

    /// Resumes a route; answers the pause that was there.
    async fn resume(&self, route: &str) -> Result<Option<PauseRecord>, StoreError>;

    /// Every pause, the oldest first and then by name, at most [`PAUSES_MAX`].
    async fn paused(&self) -> Result<Vec<PauseRecord>, StoreError>;
}

/// Topics whose messages a claim leaves where they are. Bounded, and cheap to clone.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct LeftOut(Option<Arc<BTreeSet<String>>>);

impl LeftOut {
    /// Topics at the most.
    pub const MAX: usize = 256;

    /// The first so many of these topics.
    pub fn new(topics: impl IntoIterator<Item = String>) -> Self {
        let mut kept = BTreeSet::new();
        for topic in topics {
            if kept.len() == Self::MAX {
                break;
            }
            kept.insert(topic);
        }
        Self((!kept.is_empty()).then(|| Arc::new(kept)))
    }

    /// With one topic more; none when there is no room for it.
    pub fn and(&self, topic: &str) -> Option<Self> {
        let mut topics = self.0.as_deref().cloned().unwrap_or_default();
        topics.insert(topic.to_owned());
        (topics.len() <= Self::MAX).then(|| Self(Some(Arc::new(topics))))
    }

    /// Whether messages of this topic are left where they are.
    pub fn has(&self, topic: &str) -> bool {
        self.0.as_deref().is_some_and(|topics| topics.contains(topic))
    }

    /// Whether all that the other leaves out is left out here too.
    pub fn covers(&self, other: &Self) -> bool {
        other.topics().all(|topic| self.has(topic))
    }

    /// Whether nothing is left out.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The topics, in order.
    pub fn topics(&self) -> impl Iterator<Item = &str> {
        self.0.iter().flat_map(|topics| topics.iter()).map(String::as_str)
    }
}

impl fmt::Debug for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.topics()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(refused: &Invalid) -> Vec<&'static str> {
        refused.problems().iter().map(Problem::field).collect()
    }

    #[test]
    fn every_problem_of_a_pause_is_named_at_once() {
        assert_eq!(Pause::new("order.* tenant=acme").reason("partner is down").by("root@host").validate(), Ok(()));
        let long = "ä".repeat(REASON_CHARS_MAX + 1);
        assert_eq!(fields(&Pause::new("").reason(&long).by("a\0").validate().unwrap_err()), ["route", "reason", "by"]);
        assert_eq!(fields(&check_route(&"r".repeat(ROUTE_CHARS_MAX + 1)).unwrap_err()), ["route"]);
        assert_eq!(check_route(&"ä".repeat(ROUTE_CHARS_MAX)), Ok(()));
    }

    #[test]
    fn what_is_left_out_is_bounded() {
        let many = LeftOut::new((0..1000).map(|number| number.to_string()));
        assert_eq!(many.topics().count(), LeftOut::MAX);
        assert_eq!(many.and("one more"), None);
        assert_eq!(many.and("7"), Some(many.clone()));
        let one = LeftOut::default().and("a").unwrap();
        assert!(one.has("a") && !one.has("b") && !one.is_empty() && LeftOut::default().is_empty());
        assert!(one.covers(&LeftOut::default()) && !LeftOut::default().covers(&one));
        assert_eq!(LeftOut::new([]), LeftOut::default());
    }
}
