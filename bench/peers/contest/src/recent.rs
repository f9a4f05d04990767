//! Which messages were handled last.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// For libraries that settle by themselves, in batches and in order: only messages that were handled last can still be
/// unsettled, so their ids are all that has to be asked for.
#[derive(Debug)]
pub struct Recent<T> {
    ids: Mutex<VecDeque<T>>,
    capacity: usize,
}

impl<T: Clone> Recent<T> {
    /// Keeps so many: at least as many as the library can have under way.
    #[must_use]
    pub fn of(capacity: usize) -> Self {
        Self { ids: Mutex::new(VecDeque::with_capacity(capacity)), capacity }
    }

    /// To be called before the message is counted as handled.
    pub fn push(&self, id: T) {
        let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        if ids.len() == self.capacity {
            ids.pop_front();
        }
        ids.push_back(id);
    }

    /// The ids of the last messages.
    #[must_use]
    pub fn ids(&self) -> Vec<T> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ids_are_kept_in_order() {
        let recent = Recent::of(3);
        (1..=5).for_each(|id| recent.push(id));
        assert_eq!(recent.ids(), [3, 4, 5]);
    }
}
