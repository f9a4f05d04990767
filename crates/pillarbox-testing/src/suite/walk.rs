//! One walk: the steps, taken on both sides.

mod dice;
mod history;
mod view;

use std::collections::HashMap;

use pillarbox_core::Served;
use rand::RngExt as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;

pub(super) use history::History;

use super::support::*;
use super::walks::shard_of;
use crate::{Harness, MemoryDatabase, MemoryStore};

pub(super) const STEPS: usize = 50;

/// The listings are compared every so many steps, and at the end.
pub(super) const LOOK_EVERY: usize = 5;

/// A message handed out at some time, by its row on either side; the fence is the same on both.
#[derive(Clone, Copy)]
struct Handed {
    owner: usize,
    fence: Fence,
    rows: Rows,
}

/// The same message's row on either side.
#[derive(Clone, Copy)]
struct Rows {
    model: WorkId,
    backend: WorkId,
}

/// Which side an answer comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Model,
    Backend,
}

/// A walk in progress.
pub(super) struct Walk<'a, H: Harness> {
    harness: &'a H,
    backend: H::Store,
    model: MemoryStore,
    database: MemoryDatabase,
    rng: StdRng,
    keys: &'static [Option<&'static str>],
    owners: [OwnerToken; 3],
    /// Every message ever tried, in order: its place here is its name in what is compared.
    messages: Vec<Message>,
    labels: HashMap<MessageId, usize>,
    rows: HashMap<usize, Rows>,
    handed: Vec<Handed>,
    history: History,
    delay_count: u64,
}

impl<'a, H: Harness> Walk<'a, H> {
    pub(super) fn new(harness: &'a H, backend: H::Store, options: StoreOptions, seed: u64, mut rng: StdRng) -> Self {
        let model = MemoryStore::new(options);
        let database = model.database().clone();
        let owners = [OwnerToken::new(), OwnerToken::new(), OwnerToken::new()];
        let keys = dice::keys(&mut rng);
        let (messages, labels, rows) = (Vec::new(), HashMap::new(), HashMap::new());
        let (handed, history) = (Vec::new(), History::new("walks", seed, shard_of(seed)));
        Self {
            harness,
            backend,
            model,
            database,
            rng,
            keys,
            owners,
            messages,
            labels,
            rows,
            handed,
            history,
            delay_count: 0,
        }
    }

    pub(super) async fn run(mut self) {
        for step in 1..=STEPS {
            match self.rng.random_range(0..100) {
                0..25 => self.enqueue().await,
                25..45 => self.claim().await,
                45..62 => self.settle().await,
                62..70 => self.exchange().await,
                70..74 => self.renew().await,
                74..80 => self.reap().await,
                80..83 => self.purge().await,
                83..88 => self.replay_or_delete().await,
                _ => self.advance().await,
            }
            if step % LOOK_EVERY == 0 || step == STEPS {
                self.look().await;
            }
        }
    }

    async fn enqueue(&mut self) {
        let batch = self.batch();
        let owner = self.rng.random_range(0..3);
        // A message with a key that is born leased jumps the others of its key: what follows is left to the backend.
        let may_lease = self.rng.random_bool(0.4) && batch.iter().all(|message| message.get_key().is_none());
        let lease = may_lease.then(|| Lease::new(self.owners[owner], LEASE).expect("a legal lease"));
        let enqueue = match lease {
            Some(lease) => Enqueue::leased(&batch, lease),
            None => Enqueue::pending(&batch),
        };
        let (model, backend, stored) = match self.rng.random_range(0..3) {
            0 => {
                let model = self.model.enqueue(enqueue).await.expect("the reference stores it");
                (model, self.backend.enqueue(enqueue).await.expect("the backend stores it"), true)
            }
            kind => {
                use pillarbox_core::EnqueueIn as _;
                let mut tx = self.database.begin();
                let model = self.model.enqueue_in(&mut tx, enqueue).await.expect("the reference stores it");
                let mut theirs = self.harness.begin().await;
                let backend = self.harness.enqueue_in(&mut theirs, enqueue).await.expect("the backend stores it");
                if kind == 1 {
                    tx.commit();
                    self.harness.commit(theirs).await;
                } else {
                    tx.rollback();
                    self.harness.rollback(theirs).await;
                }
                (model, backend, kind == 1)
            }
        };
        for message in &batch {
            if !self.labels.contains_key(&message.id()) {
                self.labels.insert(message.id(), self.messages.len());
                self.messages.push(message.clone());
            }
        }
        let kind = |placement: &Placement| match placement {
            Placement::Pending(_) => "pending",
            Placement::Leased(_) => "leased",
            Placement::Duplicate => "duplicate",
        };
        let show = |answer: &[pillarbox_core::store::Enqueued]| -> Vec<_> {
            answer.iter().map(|one| (self.labels[&one.message_id], kind(&one.placement))).collect()
        };
        let what = format!(
            "enqueue {batch_len} born leased: {}, committed: {stored}",
            lease.is_some(),
            batch_len = batch.len()
        );
        self.compare(&what, show(&model), show(&backend));
        if stored {
            for (mine, theirs) in model.iter().zip(&backend) {
                let (Some(model), Some(backend)) = (mine.placement.work_id(), theirs.placement.work_id()) else {
                    continue;
                };
                let rows = Rows { model, backend };
                self.rows.insert(self.labels[&mine.message_id], rows);
                if let Placement::Leased(held) = mine.placement {
                    self.handed.push(Handed { owner, fence: held.fence, rows });
                }
            }
        }
    }

    async fn claim(&mut self) {
        let owner = self.rng.random_range(0..3);
        let claim = self.next_claim(owner).serving(self.served()).leaving_out(self.left_out());
        let model = self.model.claim(claim.clone()).await.expect("the reference claims");
        let backend = self.backend.claim(claim.clone()).await.expect("the backend claims");
        let what = format!(
            "claim {} for owner {owner}, lease {:?}, {:?}, {:?}, without {:?}",
            claim.limit(),
            claim.lease().duration(),
            claim.order(),
            claim.served().map(Served::as_bytes),
            claim.left_out()
        );
        self.compare(&what, self.claimed(&model, Side::Model), self.claimed(&backend, Side::Backend));
        self.hand_out(owner, &model, &backend);
    }

    async fn settle(&mut self) {
        let owner = self.rng.random_range(0..3);
        let asked = self.settlements(owner, true);
        let model =
            self.model.settle(self.owners[owner], &on(Side::Model, &asked)).await.expect("the reference settles");
        let backend = self.backend.settle(self.owners[owner], &on(Side::Backend, &asked)).await;
        let what = format!("settle by owner {owner}: {}", self.verdicts(&asked));
        self.compare(&what, model, backend.expect("the backend settles"));
    }

    async fn exchange(&mut self) {
        let owner = self.rng.random_range(0..3);
        // What the call itself gives back at once may or may not be in its claim: such verdicts are left to settle.
        let asked = self.settlements(owner, false);
        let claim = self.next_claim(owner).serving(self.served()).leaving_out(self.left_out());
        let model =
            self.model.exchange(&on(Side::Model, &asked), claim.clone()).await.expect("the reference exchanges");
        let backend =
            self.backend.exchange(&on(Side::Backend, &asked), claim.clone()).await.expect("the backend exchanges");
        let what = format!(
            "exchange by owner {owner}: {}, claim {} {:?}, {:?}, without {:?}",
            self.verdicts(&asked),
            claim.limit(),
            claim.order(),
            claim.served().map(Served::as_bytes),
            claim.left_out()
        );
        let seen = (model.settled, self.claimed(&model.claimed, Side::Model));
        self.compare(&what, seen, (backend.settled, self.claimed(&backend.claimed, Side::Backend)));
        self.hand_out(owner, &model.claimed, &backend.claimed);
    }

    async fn renew(&mut self) {
        let owner = self.rng.random_range(0..3);
        let asked = self.settlements(owner, true);
        let held = |side| on(side, &asked).iter().map(|one| one.held).collect::<Vec<_>>();
        let (mine, theirs, lease) = (held(Side::Model), held(Side::Backend), self.span().min(DAY));
        let model = self.model.renew(self.owners[owner], &mine, lease).await.expect("the reference renews");
        let backend = self.backend.renew(self.owners[owner], &theirs, lease).await.expect("the backend renews");
        self.compare(&format!("renew by owner {owner}: {}, {lease:?}", self.verdicts(&asked)), model, backend);
    }

    async fn reap(&mut self) {
        let window = *[1, 2, 5, 10_000].choose(&mut self.rng).expect("there is a choice");
        let labels: Vec<_> = self.rows.keys().copied().collect();
        let label = labels.iter().copied().max().filter(|_| self.rng.random_bool(0.3)).map(|max| {
            let drawn = self.rng.random_range(0..=max);
            (drawn..=max).find(|label| self.rows.contains_key(label)).unwrap_or(max)
        });
        let after = label.map(|label| self.rows[&label]);
        let after_dead = self.after_dead();
        let model = self.model.reap(Reap { after: after.map(|rows| rows.model), window, after_dead }).await;
        let backend = self.backend.reap(Reap { after: after.map(|rows| rows.backend), window, after_dead }).await;
        let show = |reaped: Reaped, side| {
            let next = reaped.next.map(|row| self.label(side, row));
            (reaped.released, reaped.lost, reaped.expired, reaped.parked, next)
        };
        let model = show(model.expect("the reference reaps"), Side::Model);
        let backend = show(backend.expect("the backend reaps"), Side::Backend);
        self.compare(&format!("reap {window} rows after m{label:?}, {after_dead:?}"), model, backend);
    }

    async fn purge(&mut self) {
        let limit = PurgeLimit::new(*[1, 3, 10_000].choose(&mut self.rng).expect("there is a choice")).expect("legal");
        let model = self.model.purge(limit).await.expect("the reference purges");
        let backend = self.backend.purge(limit).await.expect("the backend purges");
        self.compare(&format!("purge {limit:?}"), model, backend);
    }

    async fn replay_or_delete(&mut self) {
        let mut filter = Filter::all();
        match self.rng.random_range(0..4) {
            0 => filter.topic = Some("a".into()),
            1 => {
                filter.error_contains =
                    Some(["e1", "lease lost", "expired"].choose(&mut self.rng).copied().unwrap_or("").into());
            }
            2 => filter.older_than = Some(HOUR / 2 + MINUTE / 2),
            _ => {}
        }
        let limit = *[1, 2, 100].choose(&mut self.rng).expect("there is a choice");
        let ended = if self.rng.random_bool(0.6) { Ended::Dead } else { Ended::Done };
        let (model, backend) = (tally(&self.model, ended, &filter).await, tally(&self.backend, ended, &filter).await);
        self.compare(
            &format!("tally {ended:?} {filter:?}"),
            (model.count, model.receipt_count),
            (backend.count, backend.receipt_count),
        );
        self.groups(&filter, limit).await;
        if self.rng.random_bool(0.7) {
            let replay = Replay { ended, filter, after: None, limit };
            let model = self.model.replay(&replay).await.expect("the reference replays");
            let backend = self.backend.replay(&replay).await.expect("the backend replays");
            self.compare(&format!("{replay:?}"), model.count, backend.count);
        } else {
            let model = self.model.delete(&filter, limit).await.expect("the reference deletes");
            let backend = self.backend.delete(&filter, limit).await.expect("the backend deletes");
            self.compare(&format!("delete {limit}"), model, backend);
        }
    }

    async fn groups(&mut self, filter: &Filter, limit: u32) {
        for by in [GroupBy::Topic, GroupBy::Error] {
            let model = self.model.group_dead(by, filter, limit).await.expect("the reference groups");
            let backend = self.backend.group_dead(by, filter, limit).await.expect("the backend groups");
            self.compare(&format!("groups by {by:?}"), model, backend);
        }
    }

    async fn advance(&mut self) {
        let by = self.span();
        self.database.advance(by);
        self.harness.advance(by).await;
        self.history.note(format!("advance {by:?}"));
    }

    /// Compares everything that an operator can see.
    async fn look(&mut self) {
        let model = self.model.blocked_keys(100).await.expect("the reference lists keys");
        let backend = self.backend.blocked_keys(100).await.expect("the backend lists keys");
        let show = |keys: Vec<BlockedKey>, side| {
            let show = |key: BlockedKey| {
                (
                    key.key,
                    self.label(side, key.head),
                    key.state,
                    key.last_error,
                    key.due_at.is_some(),
                    key.waiting_count,
                )
            };
            keys.into_iter().map(show).collect::<Vec<_>>()
        };
        self.compare("blocked keys", show(model, Side::Model), show(backend, Side::Backend));
        for state in State::ALL {
            let model = list(&self.model, state, Filter::all()).await;
            let backend = list(&self.backend, state, Filter::all()).await;
            let show = |rows: &[StoredMessage]| rows.iter().map(|row| self.shown(row)).collect::<Vec<_>>();
            self.compare(&format!("list {state:?}"), show(&model), show(&backend));
        }
        let mut model = self.model.overview().await.expect("the reference counts");
        let mut backend = self.backend.overview().await.expect("the backend counts");
        let (mine, theirs) = (model.oldest_pending.take(), backend.oldest_pending.take());
        let is_near = mine.unwrap_or_default().abs_diff(theirs.unwrap_or_default()) < MINUTE;
        self.compare("overview", (model, mine.is_some()), (backend, theirs.is_some()));
        assert!(is_near, "{}", self.history.report("oldest pending", &mine, &theirs));
    }

    fn hand_out(&mut self, owner: usize, model: &[Claimed], backend: &[Claimed]) {
        for (mine, theirs) in model.iter().zip(backend) {
            let rows = Rows { model: mine.held.work_id, backend: theirs.held.work_id };
            self.handed.push(Handed { owner, fence: mine.held.fence, rows });
        }
    }
}

fn on(side: Side, asked: &[(Handed, Verdict)]) -> Vec<Settlement> {
    let row = |rows: Rows| if side == Side::Model { rows.model } else { rows.backend };
    asked
        .iter()
        .map(|(handed, verdict)| Settlement {
            held: Held { work_id: row(handed.rows), fence: handed.fence },
            verdict: verdict.clone(),
        })
        .collect()
}
