//! What most messages do not have.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::time::SystemTime;

use super::When;

/// Fields that are seldom all in use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Extras {
    pub(super) message_type: Option<String>,
    /// None stands for the global aggregate.
    pub(super) aggregate_type: Option<String>,
    pub(super) aggregate_id: Option<String>,
    pub(super) tenant: Option<String>,
    pub(super) key: Option<String>,
    pub(super) correlation_id: Option<String>,
    pub(super) causation_id: Option<String>,
    pub(super) headers: BTreeMap<String, String>,
    pub(super) occurred_at: Option<SystemTime>,
    pub(super) due: Option<When>,
    pub(super) expires: Option<When>,
    pub(super) priority: i16,
}

static NONE: Extras = Extras {
    message_type: None,
    aggregate_type: None,
    aggregate_id: None,
    tenant: None,
    key: None,
    correlation_id: None,
    causation_id: None,
    headers: BTreeMap::new(),
    occurred_at: None,
    due: None,
    expires: None,
    priority: 0,
};

/// Extras, which take no room in a message that has none: on its way from a row to its handler a message is moved many times.
#[derive(Clone, Default)]
pub(super) struct Aside(Option<Box<Extras>>);

impl Aside {
    pub(super) fn of(extras: Extras) -> Self {
        Self((extras != NONE).then(|| Box::new(extras)))
    }
}

impl Deref for Aside {
    type Target = Extras;

    fn deref(&self) -> &Extras {
        self.0.as_deref().unwrap_or(&NONE)
    }
}

impl DerefMut for Aside {
    fn deref_mut(&mut self) -> &mut Extras {
        self.0.get_or_insert_default()
    }
}

impl PartialEq for Aside {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Aside {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_extras_take_no_room_and_equal_empty_ones() {
        assert!(Aside::of(Extras::default()).0.is_none());
        let mut touched = Aside::of(Extras::default());
        touched.key = None;
        assert!(touched.0.is_some() && touched == Aside::default());
        touched.priority = 1;
        assert!(touched != Aside::default() && touched == Aside::of(Extras { priority: 1, ..Extras::default() }));
    }
}
