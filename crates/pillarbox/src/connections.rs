//! The connections of the stores that a fleet opened: no more than the budget. Those that were not used for longest make room.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use pillarbox_core::{OutboxStore, StoreId};

/// A connection goes back to its pool a moment after its call; this often that is waited for.
const TRIES_MAX: u32 = 200;
const PAUSE: Duration = Duration::from_millis(1);

/// The pools of a fleet.
#[derive(Debug)]
pub(crate) struct Connections {
    max: usize,
    pools: Mutex<Pools>,
    /// Counts uses, to know the last of each pool.
    uses: AtomicU64,
}

#[derive(Debug, Default)]
struct Pools {
    all: Vec<Arc<Pool>>,
    /// An inbox uses the connections of its outbox. While a store moves there are two of one name, the later one last; where
    /// that cannot be opened, the earlier one is served on.
    by_id: HashMap<StoreId, Vec<Arc<Pool>>>,
}

/// The connections of one store.
struct Pool {
    /// None while it is being opened.
    store: OnceLock<Arc<dyn OutboxStore>>,
    /// Calls under way, of which each has a connection or is about to open one.
    seats: AtomicUsize,
    last_use: AtomicU64,
}

impl Pool {
    fn open_count(&self) -> usize {
        self.store.get().map_or(0, |store| store.connection_count())
    }

    fn seat_count(&self) -> usize {
        self.seats.load(Ordering::Acquire)
    }
}

impl Connections {
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, pools: Mutex::default(), uses: AtomicU64::new(0) })
    }

    /// Takes part from now on, until the answer is dropped.
    pub(crate) fn join(self: &Arc<Self>, id: &StoreId) -> Pooled {
        let pool = Arc::new(Pool {
            store: OnceLock::new(),
            seats: AtomicUsize::new(0),
            last_use: AtomicU64::new(self.uses.fetch_add(1, Ordering::Relaxed)),
        });
        self.lock().all.push(Arc::clone(&pool));
        let pooled = Pooled { pool, connections: Arc::clone(self) };
        pooled.named(id);
        pooled
    }

    /// A place for one call to this store, once there is room for its connection. None for a store whose connections are not
    /// the fleet's to close.
    pub(crate) async fn seat(self: &Arc<Self>, id: &StoreId) -> Option<Seat> {
        let pool = self.lock().by_id.get(id)?.last().cloned()?;
        pool.seats.fetch_add(1, Ordering::AcqRel);
        let seat = Seat { pool, connections: Arc::clone(self) };
        seat.used();
        self.make_room().await;
        Some(seat)
    }

    /// Closes idle connections until there are no more than the budget. What the program uses itself cannot be closed.
    async fn make_room(&self) {
        for _ in 0..TRIES_MAX {
            let Some(spare) = self.spare() else { return };
            let mut has_closed = false;
            for store in spare {
                has_closed = store.close_idle().await;
                if has_closed {
                    break;
                }
            }
            if !has_closed {
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    /// Stores with more connections than calls, the longest unused first; none while there is room.
    fn spare(&self) -> Option<Vec<Arc<dyn OutboxStore>>> {
        let pools = self.lock();
        let (mut seats, mut total) = (0, 0);
        for pool in &pools.all {
            seats += pool.seat_count();
            total += pool.seat_count().max(pool.open_count());
        }
        // Calls without an answer have lent their places to others: there may be more of them than the budget says.
        if total <= self.max.max(seats) {
            return None;
        }
        let mut spare: Vec<_> = pools.all.iter().filter(|pool| pool.open_count() > pool.seat_count()).collect();
        spare.sort_by_key(|pool| pool.last_use.load(Ordering::Relaxed));
        Some(spare.into_iter().filter_map(|pool| pool.store.get().cloned()).collect())
    }

    fn lock(&self) -> MutexGuard<'_, Pools> {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A store's part in the budget.
#[derive(Debug)]
pub(crate) struct Pooled {
    pool: Arc<Pool>,
    connections: Arc<Connections>,
}

impl Pooled {
    /// The store is open: these are its connections.
    pub(crate) fn opened(&self, store: Arc<dyn OutboxStore>) {
        // It is opened once.
        let _ = self.pool.store.set(store);
    }

    /// Takes part under this name too.
    pub(crate) fn named(&self, id: &StoreId) {
        self.connections.lock().by_id.entry(id.clone()).or_default().push(Arc::clone(&self.pool));
    }

    /// Closes everything that nobody uses.
    pub(crate) async fn close_idle(&self) {
        close_idle(self.pool.store.get()).await;
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        let mut pools = self.connections.lock();
        pools.all.retain(|pool| !Arc::ptr_eq(pool, &self.pool));
        pools.by_id.retain(|_, named| {
            named.retain(|pool| !Arc::ptr_eq(pool, &self.pool));
            !named.is_empty()
        });
    }
}

/// Closes the connections of a store that nobody uses; no more than it had when it was asked.
pub(crate) async fn close_idle(store: Option<&Arc<dyn OutboxStore>>) {
    let Some(store) = store else { return };
    for _ in 0..store.connection_count() {
        if !store.close_idle().await {
            return;
        }
    }
}

/// The right to one connection of a store.
#[derive(Debug)]
pub(crate) struct Seat {
    pool: Arc<Pool>,
    connections: Arc<Connections>,
}

impl Seat {
    fn used(&self) {
        self.pool.last_use.store(self.connections.uses.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.pool.seats.fetch_sub(1, Ordering::AcqRel);
        self.used();
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("open", &self.open_count()).field("seats", &self.seat_count()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// OBX-067: a store that could not be opened elsewhere is served where it was, and within the budget.
    #[tokio::test]
    async fn a_move_that_failed_leaves_the_store_in_the_budget() {
        let (connections, id) = (Connections::new(2), StoreId::new("eu").unwrap());
        let served = connections.join(&id);
        drop(connections.join(&id));
        let seat = connections.seat(&id).await;
        assert!(seat.is_some_and(|seat| Arc::ptr_eq(&seat.pool, &served.pool)));
    }

    /// OBX-067: one that moved is counted in its new place, also when the old one is through.
    #[tokio::test]
    async fn a_store_that_moved_is_counted_in_its_new_place() {
        let (connections, id) = (Connections::new(2), StoreId::new("eu").unwrap());
        let (before, after) = (connections.join(&id), connections.join(&id));
        drop(before);
        let seat = connections.seat(&id).await;
        assert!(seat.is_some_and(|seat| Arc::ptr_eq(&seat.pool, &after.pool)));
        drop(after);
        assert!(connections.seat(&id).await.is_none() && connections.lock().by_id.is_empty());
    }
}
