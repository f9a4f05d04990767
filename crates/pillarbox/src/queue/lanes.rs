//! The order in which entries leave the queue. Pure: no lock, no waking.

use std::collections::VecDeque;

use super::Depths;

/// How a message came into memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    /// Handed over by the transaction that wrote it.
    Hot,
    /// Claimed from the store.
    Cold,
}

/// What a worker gets.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Work<E> {
    /// The route of all entries.
    pub(crate) route: usize,
    /// At least one; more only for a route that takes batches.
    pub(crate) entries: Entries<E>,
    /// There is room in the cold queue again, and somebody waits for it.
    pub(crate) made_room: bool,
}

/// One entry without the cost of a list, or a list.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Entries<E> {
    /// For a route that takes one message at a time.
    One(E),
    /// For a route that takes batches.
    Batch(Vec<E>),
}

impl<E> Entries<E> {
    pub(crate) fn as_slice(&self) -> &[E] {
        match self {
            Self::One(entry) => std::slice::from_ref(entry),
            Self::Batch(entries) => entries,
        }
    }
}

/// Which routes have a list of their own: those with a limit, and those that take batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Entries go straight into the queue.
    Shared,
    /// Entries wait in the route's own list, and a ticket for the route goes into the queue.
    Own {
        /// Handlers at once.
        concurrency_max: usize,
        /// Entries for one handler; none when it takes single messages.
        batch_max: Option<usize>,
    },
}

#[derive(Debug)]
enum Item<E> {
    Entry(usize, E),
    Ticket(usize),
}

#[derive(Debug)]
struct Side<E> {
    items: VecDeque<Item<E>>,
    /// Entries in `items` and in the routes' own lists.
    count: usize,
    reserved: usize,
    capacity: usize,
}

#[derive(Debug)]
struct Own<E> {
    waiting: VecDeque<(Path, E)>,
    running: usize,
    tickets: usize,
    concurrency_max: usize,
    batch_max: Option<usize>,
}

/// Both queues, and the lists of the routes.
#[derive(Debug)]
pub(super) struct Lanes<E> {
    hot: Side<E>,
    cold: Side<E>,
    routes: Vec<Option<Own<E>>>,
    /// Hot entries since the last cold one.
    hot_streak: u8,
    /// Somebody waits for that much room in the cold queue.
    room_wanted: Option<usize>,
    is_closed: bool,
}

/// HOT-08: hot entries for each cold one, while there are both.
const HOT_PER_COLD: u8 = 2;

impl<E> Lanes<E> {
    pub(super) fn new(hot_capacity: usize, cold_capacity: usize, routes: Vec<Lane>) -> Self {
        let side = |capacity| Side { items: VecDeque::new(), count: 0, reserved: 0, capacity };
        let own = |lane| match lane {
            Lane::Shared => None,
            Lane::Own { concurrency_max, batch_max } => Some(Own {
                waiting: VecDeque::new(),
                running: 0,
                tickets: 0,
                concurrency_max: concurrency_max.max(1),
                batch_max: batch_max.map(|max| max.max(1)),
            }),
        };
        Self {
            hot: side(hot_capacity),
            cold: side(cold_capacity),
            routes: routes.into_iter().map(own).collect(),
            hot_streak: 0,
            room_wanted: None,
            is_closed: false,
        }
    }

    pub(super) fn reserve(&mut self, path: Path, count: usize) -> usize {
        if self.is_closed {
            return 0;
        }
        let side = self.side(path);
        let granted = side.room().min(count);
        side.reserved += granted;
        granted
    }

    pub(super) fn reserve_cold(&mut self, least: usize, most: usize) -> usize {
        let least = least.min(self.cold.capacity).max(1);
        if self.cold.room() < least {
            self.room_wanted = Some(least);
            return 0;
        }
        self.reserve(Path::Cold, most)
    }

    pub(super) fn give_back(&mut self, path: Path, count: usize) {
        let side = self.side(path);
        side.reserved = side.reserved.saturating_sub(count);
    }

    /// Whether room that somebody waits for is there now; said once.
    pub(super) fn take_room_news(&mut self) -> bool {
        let is_there = self.room_wanted.is_some_and(|wanted| self.cold.room() >= wanted);
        if is_there {
            self.room_wanted = None;
        }
        is_there
    }

    /// Puts one entry into reserved room; whether that is one more piece of work for a worker.
    pub(super) fn push(&mut self, path: Path, route: usize, entry: E) -> bool {
        let side = self.side(path);
        side.reserved = side.reserved.saturating_sub(1);
        side.count += 1;
        match self.routes.get_mut(route).and_then(Option::as_mut) {
            None => {
                self.side(path).items.push_back(Item::Entry(route, entry));
                true
            }
            Some(own) => {
                own.waiting.push_back((path, entry));
                self.ticket(route)
            }
        }
    }

    /// Takes the next piece of work: two hot ones for each cold one, while there are both.
    pub(super) fn pop(&mut self) -> Option<Work<E>> {
        loop {
            let path = match (self.hot.items.is_empty(), self.cold.items.is_empty()) {
                (true, true) => return None,
                (false, true) => Path::Hot,
                (true, false) => Path::Cold,
                (false, false) if self.hot_streak < HOT_PER_COLD => Path::Hot,
                (false, false) => Path::Cold,
            };
            self.hot_streak = if path == Path::Hot { (self.hot_streak + 1).min(HOT_PER_COLD) } else { 0 };
            let side = self.side(path);
            match side.items.pop_front()? {
                Item::Entry(route, entry) => {
                    side.count -= 1;
                    let made_room = self.take_room_news();
                    return Some(Work { route, entries: Entries::One(entry), made_room });
                }
                Item::Ticket(route) => {
                    if let Some(work) = self.redeem(route) {
                        return Some(work);
                    }
                }
            }
        }
    }

    /// A handler of the route ended; whether that makes one more piece of work for a worker.
    pub(super) fn finished(&mut self, route: usize) -> bool {
        let Some(own) = self.routes.get_mut(route).and_then(Option::as_mut) else { return false };
        own.running = own.running.saturating_sub(1);
        self.ticket(route)
    }

    /// Takes everything that waits. Nothing is accepted afterwards.
    pub(super) fn close(&mut self) -> Vec<E> {
        self.is_closed = true;
        let mut entries = Vec::new();
        for side in [&mut self.hot, &mut self.cold] {
            side.count = 0;
            entries.extend(side.items.drain(..).filter_map(|item| match item {
                Item::Entry(_, entry) => Some(entry),
                Item::Ticket(_) => None,
            }));
        }
        for own in self.routes.iter_mut().flatten() {
            own.tickets = 0;
            entries.extend(own.waiting.drain(..).map(|(_, entry)| entry));
        }
        entries
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    pub(super) fn depths(&self) -> Depths {
        Depths { hot: self.hot.count, cold: self.cold.count }
    }

    fn redeem(&mut self, route: usize) -> Option<Work<E>> {
        let own = self.routes.get_mut(route).and_then(Option::as_mut)?;
        own.tickets = own.tickets.saturating_sub(1);
        let taken = own.batch_max.unwrap_or(1).min(own.waiting.len());
        let taken: Vec<(Path, E)> = own.waiting.drain(..taken).collect();
        own.running += usize::from(!taken.is_empty());
        let is_batch = own.batch_max.is_some();
        let mut entries = Vec::with_capacity(taken.len());
        for (path, entry) in taken {
            self.side(path).count -= 1;
            entries.push(entry);
        }
        self.ticket(route);
        let made_room = self.take_room_news();
        let entries = if is_batch { Entries::Batch(entries) } else { Entries::One(entries.pop()?) };
        match &entries {
            Entries::Batch(none) if none.is_empty() => None,
            _ => Some(Work { route, entries, made_room }),
        }
    }

    /// Puts a ticket for the route into the queue when more of it waits than is spoken for and the limit allows it.
    fn ticket(&mut self, route: usize) -> bool {
        let Some(own) = self.routes.get_mut(route).and_then(Option::as_mut) else { return false };
        let size = own.batch_max.unwrap_or(1);
        let is_needed = own.waiting.len() > own.tickets.saturating_mul(size);
        if !is_needed || own.running + own.tickets >= own.concurrency_max {
            return false;
        }
        let spoken_for = (own.tickets * size).min(own.waiting.len() - 1);
        let path = own.waiting[spoken_for].0;
        own.tickets += 1;
        self.side(path).items.push_back(Item::Ticket(route));
        true
    }

    fn side(&mut self, path: Path) -> &mut Side<E> {
        match path {
            Path::Hot => &mut self.hot,
            Path::Cold => &mut self.cold,
        }
    }
}

impl<E> Side<E> {
    fn room(&self) -> usize {
        self.capacity.saturating_sub(self.count + self.reserved)
    }
}
