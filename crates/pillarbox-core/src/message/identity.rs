//! Who a message is, and whether anybody can know.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use crate::id::MessageId;

/// An id, and whether it is a secret: drawn here, told to nobody, and no clone of the message is left that could tell it.
///
/// Whoever owns a message with a secret id can store it without looking whether it is stored already: nobody else can have
/// stored it, nobody can be storing it now, and nobody can try it again.
#[derive(Clone)]
pub(super) struct Identity {
    id: MessageId,
    /// Whether it was told, shared by all clones. None where the id came from elsewhere.
    is_told: Option<Arc<AtomicBool>>,
}

impl Identity {
    pub(super) fn drawn() -> Self {
        Self { id: MessageId::new(), is_told: Some(Arc::new(AtomicBool::new(false))) }
    }

    pub(super) fn known(id: MessageId) -> Self {
        Self { id, is_told: None }
    }

    /// The id, for comparisons that tell nobody.
    pub(super) fn peek(&self) -> MessageId {
        self.id
    }

    /// The id, which is no secret from here on.
    pub(super) fn tell(&self) -> MessageId {
        if let Some(told) = &self.is_told {
            told.store(true, Ordering::Relaxed);
        }
        self.id
    }

    /// Whether only the owner of this message can know its id.
    pub(super) fn is_secret(&self) -> bool {
        self.is_told.as_ref().is_some_and(|told| {
            let is_only = Arc::strong_count(told) == 1;
            // What was told through a clone was told before the clone was dropped.
            fence(Ordering::Acquire);
            is_only && !told.load(Ordering::Relaxed)
        })
    }
}

impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for Identity {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_a_secret_until_it_is_told() {
        let identity = Identity::drawn();
        assert!(identity.is_secret());
        assert!(identity.is_secret(), "asking tells nothing");
        let _ = identity.tell();
        assert!(!identity.is_secret());
    }

    #[test]
    fn a_clone_ends_the_secret_while_it_lives() {
        let identity = Identity::drawn();
        let clone = identity.clone();
        assert!(!identity.is_secret());
        assert!(!clone.is_secret());
        drop(clone);
        assert!(identity.is_secret());
    }

    #[test]
    fn what_a_clone_has_told_is_told() {
        let identity = Identity::drawn();
        let clone = identity.clone();
        let told = std::thread::spawn(move || clone.tell()).join().unwrap();
        assert!(!identity.is_secret());
        assert_eq!(told, identity.tell());
    }

    #[test]
    fn an_id_from_elsewhere_never_was_one() {
        assert!(!Identity::known(MessageId::new()).is_secret());
    }
}
