//! Who came and went, in a fleet: one store is watched for all of them.
//!
//! A look every second at each of many idle stores would cost more than everything else. But an instance that serves many stores comes to
//! all of them, and leaves them all: the first store that answers is looked at every second, and what is seen there is told
//! to the others, which look for themselves.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pillarbox_core::instance::Comings;
use pillarbox_core::{InstanceId, StoreId};

use super::Member;

/// The members of a fleet that attend, by their stores.
#[derive(Debug, Default)]
pub(crate) struct Lookout {
    posts: Mutex<Posts>,
    joined_count: AtomicU64,
}

/// By store, and by when they came: two sides of a store may share its name.
type Posts = BTreeMap<Name, Post>;

type Name = (StoreId, u64);

#[derive(Debug)]
struct Post {
    member: Arc<Member>,
    /// Its store does not answer.
    is_silent: bool,
}

/// What is said about an instance elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rumour {
    pub(crate) id: InstanceId,
    /// It came; otherwise it went.
    pub(crate) came: bool,
}

/// A member's place, left when it is dropped.
#[derive(Debug)]
pub(crate) struct Place<'l> {
    lookout: &'l Lookout,
    name: Name,
}

impl Lookout {
    pub(crate) fn join(&self, store: &StoreId, member: &Arc<Member>) -> Place<'_> {
        let name = (store.clone(), self.joined_count.fetch_add(1, Ordering::Relaxed));
        self.posts().insert(name.clone(), Post { member: Arc::clone(member), is_silent: false });
        Place { lookout: self, name }
    }

    fn posts(&self) -> MutexGuard<'_, Posts> {
        self.posts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn watchman(posts: &Posts) -> Option<(&Name, &Post)> {
    posts.iter().find(|(_, post)| !post.is_silent)
}

impl Place<'_> {
    /// Whether this store is the one that is watched.
    pub(crate) fn is_watchman(&self) -> bool {
        watchman(&self.lookout.posts()).is_some_and(|(name, _)| *name == self.name)
    }

    /// Whether the store answers. Another one is watched while it does not.
    pub(crate) fn answers(&self, answers: bool) {
        let mut posts = self.lookout.posts();
        if let Some(post) = posts.get_mut(&self.name) {
            let was_silent = std::mem::replace(&mut post.is_silent, !answers);
            if !answers && !was_silent {
                wake(&posts);
            }
        }
    }

    /// Tells the others what was seen here.
    pub(crate) fn tell(&self, comings: &Comings) {
        let rumour = |came| move |id| Rumour { id, came };
        let joined = comings.joined.iter().map(|record| record.instance.id()).map(rumour(true));
        let left = comings.left.iter().map(|record| record.instance.id()).map(rumour(false));
        let rumours: Vec<_> = joined.chain(left).collect();
        for (_, post) in self.lookout.posts().iter().filter(|(name, _)| **name != self.name) {
            post.member.rumours.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&rumours);
            post.member.news.notify_one();
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut posts = self.lookout.posts();
        posts.remove(&self.name);
        wake(&posts);
    }
}

/// Whoever watches now has to begin.
fn wake(posts: &Posts) {
    if let Some((_, post)) = watchman(posts) {
        post.member.news.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::MembershipDraft;

    fn member() -> Arc<Member> {
        Arc::new(MembershipDraft::default().check(None).unwrap())
    }

    #[test]
    fn the_first_store_that_answers_is_watched() {
        let (lookout, [a, b]) = (Lookout::default(), ["a", "b"].map(|name| StoreId::new(name).unwrap()));
        let second = lookout.join(&b, &member());
        assert!(second.is_watchman());
        let first = lookout.join(&a, &member());
        assert!(first.is_watchman() && !second.is_watchman());
        first.answers(false);
        assert!(second.is_watchman() && !first.is_watchman());
        first.answers(true);
        assert!(first.is_watchman());
        drop(first);
        assert!(second.is_watchman());
        second.answers(false);
        assert!(!second.is_watchman(), "nobody is there to watch");
    }

    #[test]
    fn two_sides_of_a_store_do_not_take_each_others_place() {
        let (lookout, store) = (Lookout::default(), StoreId::new("a").unwrap());
        let (outbox, inbox) = (lookout.join(&store, &member()), lookout.join(&store, &member()));
        assert!(outbox.is_watchman() && !inbox.is_watchman());
        drop(outbox);
        assert!(inbox.is_watchman());
    }
}
