//! One walk through an inbox: the steps, taken on both sides.

use std::time::Duration;

use pillarbox_core::StoreTransaction;
use pillarbox_core::inbox::{MESSAGE_ID_HEADER, SOURCE_HEADER};
use rand::RngExt as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;

use super::support::*;
use super::walk::{History, LOOK_EVERY, STEPS};
use super::walks::shard_of;
use crate::harness::Inbox;
use crate::{Harness, MemoryDatabase, MemoryInbox, MemoryStore};

/// What the messages of a walk are called, in the order of their bytes; some differ in little.
pub(super) const NAMES: [(&str, &str); 6] = [("A", "1"), ("a", "1"), ("a", "1 "), ("a", "2"), ("a ", "1"), ("b", "1")];

/// A message that was handed out at some time, by its row on either side; the fence is the same on both.
#[derive(Clone, Copy, Debug)]
struct Handed {
    owner: usize,
    model: Held,
    backend: Held,
}

/// A walk in progress.
pub(super) struct InboxWalk<'a, H: Harness> {
    harness: &'a H,
    backend: Inbox<H>,
    model: MemoryInbox,
    database: MemoryDatabase,
    rng: StdRng,
    owners: [OwnerToken; 2],
    handed: Vec<Handed>,
    /// Leases that consumers asked for at some time, whether they got them or not.
    leases: Vec<(usize, Lease)>,
    history: History,
    delay_count: u64,
}

impl<'a, H: Harness> InboxWalk<'a, H> {
    pub(super) async fn new(harness: &'a H, backend: Inbox<H>, seed: u64, rng: StdRng) -> Self {
        let store = MemoryStore::new(options());
        let model = store.inbox(InboxOptions::default()).await.expect("the reference opens an inbox");
        let owners = [OwnerToken::new(), OwnerToken::new()];
        let history = History::new("inbox_walks", seed, shard_of(seed));
        let database = store.database().clone();
        let (handed, leases) = (Vec::new(), Vec::new());
        Self { harness, backend, model, database, rng, owners, handed, leases, history, delay_count: 0 }
    }

    pub(super) async fn run(mut self) {
        for step in 1..=STEPS {
            match self.rng.random_range(0..100) {
                0..10 => self.see().await,
                10..20 => self.mark().await,
                20..42 => self.receive().await,
                42..55 => self.claim().await,
                55..68 => self.settle().await,
                68..76 => self.register().await,
                76..81 => self.lease().await,
                81..85 => self.reap_or_replay().await,
                85..89 => self.purge().await,
                _ => self.advance().await,
            }
            if step % LOOK_EVERY == 0 || step == STEPS {
                self.look().await;
            }
        }
    }

    async fn see(&mut self) {
        let one = self.receipt();
        let (model, backend) = (see(&self.model, &one).await, see(&self.backend, &one).await);
        self.history.compare(&format!("see {one:?}"), model, backend);
    }

    async fn mark(&mut self) {
        let one = self.receipt();
        let marks = [Mark::Processing, Mark::Processed, Mark::Dead("by hand".into()), Mark::Dead(String::new())];
        let as_what = marks.choose(&mut self.rng).cloned().expect("there is a choice");
        let model = mark(&self.model, &one, as_what.clone()).await;
        let backend = mark(&self.backend, &one, as_what.clone()).await;
        self.history.compare(&format!("mark {one:?} {as_what:?}"), model, backend);
    }

    /// One to three messages. In the order of their names: in which order others get their rows is left to the backend.
    async fn receive(&mut self) {
        let mut batch = Vec::new();
        let delay = self.rng.random_bool(0.3).then(|| self.delay());
        for name in 0..NAMES.len() {
            if batch.len() < 3 && self.rng.random_bool(0.3) {
                let message = Message::new("topic", format!("payload {}", self.rng.random_range(0..100)));
                let message = match delay {
                    Some(delay) if batch.is_empty() => message.delay(delay),
                    _ => message,
                };
                batch.push(Incoming::new(self.receipt_of(name), message));
            }
            if delay.is_some() && !batch.is_empty() {
                break;
            }
        }
        let model = self.model.receive(&batch).await.expect("the reference receives");
        let backend = self.backend.receive(&batch).await.expect("the backend receives");
        let show = |received: &[Received]| -> Vec<_> {
            received.iter().map(|one| (one.before, one.outcome, one.is_mismatch)).collect()
        };
        let names: Vec<_> = batch.iter().map(Incoming::receipt).collect();
        self.history.compare(&format!("receive {names:?}, delay {delay:?}"), show(&model), show(&backend));
    }

    async fn claim(&mut self) {
        let owner = self.rng.random_range(0..2);
        let claim = claim_of(self.owners[owner], self.rng.random_range(1..=4));
        let model = self.model.queue().claim(claim.clone()).await.expect("the reference claims");
        let backend = self.backend.queue().claim(claim.clone()).await.expect("the backend claims");
        let show = |claimed: &[Claimed]| -> Vec<String> { claimed.iter().map(shown).collect() };
        self.history.compare(&format!("claim {} for {owner}", claim.limit()), show(&model), show(&backend));
        let pairs = model.iter().zip(&backend);
        self.handed.extend(pairs.map(|(mine, theirs)| Handed { owner, model: mine.held, backend: theirs.held }));
    }

    /// Mostly what was handed out last, sometimes what is long stale.
    async fn settle(&mut self) {
        let recent = self.handed.len().saturating_sub(if self.rng.random_bool(0.8) { 4 } else { 100 });
        let Some(handed) = self.handed[recent..].choose(&mut self.rng).copied() else { return };
        let delay = if self.rng.random_bool(0.5) { Duration::ZERO } else { self.delay() };
        let verdict = match self.rng.random_range(0..6) {
            0..3 => Verdict::Ack,
            3 => fail("poison"),
            4 => release(delay),
            _ => abandon(delay, "busy"),
        };
        let owner = self.owners[handed.owner];
        let on = |held| [Settlement { held, verdict: verdict.clone() }];
        let model = self.model.queue().settle(owner, &on(handed.model)).await.expect("the reference settles");
        let backend = self.backend.queue().settle(owner, &on(handed.backend)).await.expect("the backend settles");
        self.history.compare(&format!("settle for {} {verdict:?}", handed.owner), model, backend);
    }

    /// Registers a message, perhaps under a lease, and keeps that or not.
    async fn register(&mut self) {
        let (name, lease) = match self.leases.choose(&mut self.rng).copied() {
            Some((name, lease)) if self.rng.random_bool(0.4) => (name, Some(lease)),
            _ => (self.rng.random_range(0..NAMES.len()), None),
        };
        let (one, is_kept) = (self.receipt_of(name), self.rng.random_bool(0.7));
        let mut mine = self.database.begin();
        let model = self.model.register_under(&mut mine, &one, lease).await.expect("the reference registers");
        let mut theirs = begin(self.harness).await;
        let backend = self.backend.register_under(&mut theirs, &one, lease).await.expect("the backend registers");
        if is_kept {
            mine.commit();
            theirs.commit().await.expect("it can be committed");
        } else {
            mine.rollback();
            theirs.rollback().await.expect("it can be rolled back");
        }
        let is_leased = lease.is_some();
        self.history.compare(&format!("register {one:?}, leased: {is_leased}, kept: {is_kept}"), model, backend);
    }

    /// Takes a consumer's lease, or gives one back.
    async fn lease(&mut self) {
        if let Some((name, lease)) = self.leases.choose(&mut self.rng).copied()
            && self.rng.random_bool(0.4)
        {
            let one = self.receipt_of(name);
            let model = self.model.release(&one, lease).await.expect("the reference gives back");
            let backend = self.backend.release(&one, lease).await.expect("the backend gives back");
            return self.history.compare(&format!("give back {one:?}"), model, backend);
        }
        let name = self.rng.random_range(0..NAMES.len());
        let (one, lease) = (self.receipt_of(name), Lease::new(self.owners[0], LEASE).expect("the lease is legal"));
        let model = self.model.lease(&one, lease).await.expect("the reference leases");
        let backend = self.backend.lease(&one, lease).await.expect("the backend leases");
        self.leases.push((name, lease));
        self.history.compare(&format!("lease {one:?}"), model, backend);
    }

    async fn reap_or_replay(&mut self) {
        let filter = Filter::all();
        match self.rng.random_range(0..4) {
            0..2 => {
                let shown = |reaped: Reaped| (reaped.released, reaped.lost, reaped.expired);
                let (model, backend) = (reap_all(&*self.model.queue()).await, reap_all(&*self.backend.queue()).await);
                self.history.compare("reap", shown(model), shown(backend));
            }
            2 => {
                let model =
                    self.model.admin().replay(&Replay::dead(filter.clone(), 10)).await.expect("the reference replays");
                let backend =
                    self.backend.admin().replay(&Replay::dead(filter.clone(), 10)).await.expect("the backend replays");
                self.history.compare("replay", model.count, backend.count);
            }
            _ => {
                let model = self.model.admin().delete(&filter, 10).await.expect("the reference deletes");
                let backend = self.backend.admin().delete(&filter, 10).await.expect("the backend deletes");
                self.history.compare("delete", model, backend);
            }
        }
    }

    async fn purge(&mut self) {
        let limit = PurgeLimit::default();
        let model = self.model.purge(limit).await.expect("the reference purges");
        let backend = self.backend.purge(limit).await.expect("the backend purges");
        self.history.compare("purge", model, backend);
    }

    async fn advance(&mut self) {
        let by = *[MINUTE, LEASE, LEASE, HOUR, DAY, 31 * DAY].choose(&mut self.rng).expect("there is a choice");
        self.database.advance(by);
        self.harness.advance(by).await;
        self.history.note(format!("advance {by:?}"));
    }

    /// Compares everything that is known of every message.
    async fn look(&mut self) {
        for (source, id) in NAMES {
            let model = self.model.get(source, id).await.expect("the reference looks up");
            let backend = self.backend.get(source, id).await.expect("the backend looks up");
            self.history.compare(&format!("get {source:?} {id:?}"), model.map(known), backend.map(known));
        }
        let (model, backend) = (counts(&*self.model.admin()).await, counts(&*self.backend.admin()).await);
        self.history.compare("counts", model, backend);
    }

    fn receipt(&mut self) -> Receipt {
        let name = self.rng.random_range(0..NAMES.len());
        self.receipt_of(name)
    }

    /// A receipt with one of two hashes, of either of two algorithms, or without.
    fn receipt_of(&mut self, name: usize) -> Receipt {
        let (source, id) = NAMES[name];
        let one = Receipt::new(source, id);
        match self.rng.random_range(0..8) {
            0..4 => one,
            4..6 => one.hash(ContentHash::new("sha256", "one")),
            6 => one.hash(ContentHash::new("sha256", "two")),
            _ => one.hash(ContentHash::new("blake3", "one")),
        }
    }

    /// Every delay ends after the one drawn before it: a database whose clock counts milliseconds would see two calls at one
    /// moment, where the model sees them one after the other.
    fn delay(&mut self) -> Duration {
        self.delay_count += 1;
        let span = *[MINUTE, HOUR, DAY].choose(&mut self.rng).expect("there is a choice");
        span.saturating_sub(Duration::from_micros(1_000_u64.saturating_sub(self.delay_count)))
    }
}

/// A message of the queue by its name, with what a handler sees of it.
fn shown(claimed: &Claimed) -> String {
    let message = claimed.message.as_ref().expect("the message can be read");
    let headers = message.get_headers();
    format!(
        "{:?} {:?} attempts {} lost {} error {:?} payload {:?}",
        headers[SOURCE_HEADER],
        headers[MESSAGE_ID_HEADER],
        claimed.attempts,
        claimed.lost_lease_count,
        claimed.last_error,
        message.payload(),
    )
}

/// What is known of a message, without what the two sides draw for themselves.
fn known(record: InboxRecord) -> String {
    let waits = record.state == InboxState::Processing && record.due_at.is_some();
    let minutes = record.last_seen_at.duration_since(record.first_seen_at).unwrap_or_default().as_secs_f64() / 60.0;
    format!(
        "{:?} attempts {} error {:?} topic {:?} hash {:?} mismatches {} waits {waits} for {minutes:.0} minutes",
        record.state,
        record.attempts,
        record.last_error,
        record.topic,
        record.hash.map(|hash| (hash.algorithm().to_owned(), hash.bytes().to_vec())),
        record.mismatch_count,
    )
}
