//! What happens to the ledger's rows, inside a transaction.

use std::collections::HashSet;

use pillarbox_core::inbox::{
    Admission, ContentHash, InboxState, Incoming, Mark, Marking, Receipt, Received, Reception, Registered, Standing,
    decide, decide_mark, state_of,
};
use pillarbox_core::lease::Lease;
use pillarbox_core::store::{CONFLICT_RETRIES_MAX, Enqueue};
use pillarbox_core::{Fence, MessageId, StoreError, Verdict};
use sqlx::PgConnection;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::PostgresInbox;
use crate::enqueue::{insert_all, revise_all};
use crate::error::store_error;
use crate::parameters::micros;
use crate::row::{get, standing};
use crate::sql::Statement;
use crate::store::PgQuery;

/// What the ledger answers to a delivery.
pub(super) struct Answer {
    pub(super) message_id: MessageId,
    pub(super) is_mismatch: bool,
    /// Whether the delivery wrote the row.
    is_new: bool,
    state: String,
    is_queued: bool,
    place: Option<String>,
}

impl Answer {
    /// Whether only the queue can tell where the message stands.
    pub(super) fn needs_place(&self) -> bool {
        !self.is_new && self.is_queued && self.state != InboxState::Done.as_str()
    }

    /// Adds what the queue says; a message that it does not mention is gone.
    pub(super) fn add_place(&mut self, rows: &[PgRow]) -> Result<(), StoreError> {
        self.place = None;
        for row in rows {
            if get::<Uuid>(row, 0)? == self.message_id.as_uuid() {
                self.place = Some(get(row, 1)?);
            }
        }
        Ok(())
    }

    /// Where the message stood; nothing when the delivery wrote its row.
    pub(super) fn before(&self) -> Result<Option<Standing>, StoreError> {
        if self.is_new {
            return Ok(None);
        }
        standing(&self.state, self.is_queued, self.place.as_deref()).map(Some)
    }
}

/// What a consumer takes a row for.
pub(super) enum Taking {
    /// It is done, under a lease or without one.
    Done(Option<Lease>),
    Lease(Lease),
}

/// The parameters of `inbox_see.sql`.
struct Deliveries<'r> {
    receipts: Vec<&'r Receipt>,
    drawn: Vec<Uuid>,
    state: InboxState,
}

impl<'r> Deliveries<'r> {
    /// New rows get this state, and are queued when it is `Processing`.
    fn new(receipts: Vec<&'r Receipt>, state: InboxState) -> Self {
        let drawn = receipts.iter().map(|_| MessageId::new().as_uuid()).collect();
        Self { receipts, drawn, state }
    }

    fn bind(&self, query: PgQuery) -> PgQuery {
        let query = bind_names(query, &self.receipts).bind(self.drawn.clone());
        let query = bind_hashes(query, &self.receipts);
        query.bind(self.state.as_str()).bind(self.state == InboxState::Processing)
    }

    /// One answer per receipt, in their order; rows come in the order of the input, but nothing promises it.
    fn answers(&self, rows: &[PgRow]) -> Result<Vec<Answer>, StoreError> {
        let mut found = std::collections::HashMap::with_capacity(rows.len());
        for row in rows {
            found.insert((get::<&str>(row, 0)?, get::<&str>(row, 1)?), row);
        }
        let missing = || StoreError::unavailable("the database gave no answer for a receipt");
        let answer = |(receipt, drawn): (&&Receipt, &Uuid)| {
            let row = found.get(&(receipt.source(), receipt.message_id())).ok_or_else(missing)?;
            let (message_id, algorithm): (Uuid, Option<String>) = (get(row, 2)?, get(row, 5)?);
            let first = algorithm.zip(get::<Option<Vec<u8>>>(row, 6)?).map(|(name, hash)| ContentHash::new(name, hash));
            Ok(Answer {
                message_id: MessageId::from_uuid(message_id)?,
                is_mismatch: receipt.get_hash().zip(first).is_some_and(|(hash, first)| hash.contradicts(&first)),
                is_new: message_id == *drawn,
                state: get(row, 3)?,
                is_queued: get(row, 4)?,
                place: None,
            })
        };
        self.receipts.iter().zip(&self.drawn).map(answer).collect()
    }
}

impl PostgresInbox {
    /// Records one delivery, as a transaction of its own.
    pub(super) async fn seen(&self, receipt: &Receipt) -> Result<Answer, StoreError> {
        let deliveries = Deliveries::new(vec![receipt], InboxState::Seen);
        let rows = self.queue.fetch(&self.sql.see, |query| deliveries.bind(query)).await?;
        only(deliveries.answers(&rows)?)
    }

    pub(super) async fn take(
        &self,
        tx: &mut PgConnection,
        receipt: &Receipt,
        taking: Taking,
    ) -> Result<Admission, StoreError> {
        let (state, fence, lease, held) = match taking {
            Taking::Done(held) => (InboxState::Done, Fence::new(), None, held),
            Taking::Lease(lease) => (InboxState::Processing, lease.fence(), Some(lease), None),
        };
        // Most messages are consumed when they come for the first time, without a lease.
        if let Taking::Done(None) = taking
            && self.take_new(tx, receipt).await?
        {
            return Ok(Admission { registered: Registered::New, is_mismatch: false });
        }
        let hash = receipt.get_hash();
        let rows = self
            .run(tx, &self.sql.register, |query| {
                query
                    .bind(receipt.source().to_owned())
                    .bind(receipt.message_id().to_owned())
                    .bind(MessageId::new().as_uuid())
                    .bind(state.as_str())
                    .bind(hash.map(|hash| hash.algorithm().to_owned()))
                    .bind(hash.map(|hash| hash.bytes().to_vec()))
                    .bind(fence.as_i64())
                    .bind(lease.map(|lease| lease.owner().as_uuid()))
                    .bind(lease.map(|lease| micros(lease.duration())))
                    .bind(held.map(|lease| lease.owner().as_uuid()))
                    .bind(held.map(|lease| lease.fence().as_i64()))
            })
            .await?;
        let row = only(rows)?;
        let (is_taken, message_id): (bool, Uuid) = (get(&row, 1)?, get(&row, 0)?);
        let mut answer = Answer {
            message_id: MessageId::from_uuid(message_id)?,
            is_mismatch: get(&row, 4)?,
            is_new: false,
            state: get(&row, 2)?,
            is_queued: get(&row, 3)?,
            place: None,
        };
        if !is_taken && answer.needs_place() {
            self.add_places(tx, [&mut answer].into_iter()).await?;
        }
        let now = standing(&answer.state, answer.is_queued, answer.place.as_deref())?;
        Ok(Admission { registered: Registered::of(is_taken, now), is_mismatch: answer.is_mismatch })
    }

    /// Makes a message done that is not known; whether it was not.
    async fn take_new(&self, tx: &mut PgConnection, receipt: &Receipt) -> Result<bool, StoreError> {
        let hash = receipt.get_hash();
        let query = self.queue.query(&self.sql.register_new, |query| {
            query
                .bind(receipt.source().to_owned())
                .bind(receipt.message_id().to_owned())
                .bind(MessageId::new().as_uuid())
                .bind(hash.map(|hash| hash.algorithm().to_owned()))
                .bind(hash.map(|hash| hash.bytes().to_vec()))
        });
        Ok(query.execute(tx).await.map_err(store_error)?.rows_affected() == 1)
    }

    /// Looks and decides, again when a worker was faster than what was decided.
    pub(super) async fn mark_within(
        &self,
        tx: &mut PgConnection,
        receipt: &Receipt,
        mark: Mark,
    ) -> Result<(Option<Standing>, bool), StoreError> {
        let mut answer = only(self.see(tx, vec![receipt], InboxState::Seen).await?)?;
        let reason = match &mark {
            Mark::Dead(reason) => Verdict::Fail { reason: reason.clone() }.reason().map(String::from),
            Mark::Processing | Mark::Processed => None,
        };
        for _ in 0..=CONFLICT_RETRIES_MAX {
            if answer.needs_place() {
                self.add_places(tx, [&mut answer].into_iter()).await?;
            }
            let (before, id) = (answer.before()?, answer.message_id);
            let is_done = match decide_mark(before, &mark) {
                Marking::Keep => true,
                Marking::Set(state) => {
                    self.set(tx, receipt, state, reason.clone()).await?;
                    true
                }
                Marking::Finish => {
                    let is_gone = !self.leave(tx, vec![id.as_uuid()], true).await?.is_empty();
                    if is_gone {
                        self.set(tx, receipt, InboxState::Done, None).await?;
                    }
                    is_gone
                }
                Marking::Bury => {
                    let bind = |query: PgQuery| query.bind(id.as_uuid()).bind(reason.clone());
                    !self.run(tx, &self.sql.bury, bind).await?.is_empty()
                }
            };
            if is_done {
                return Ok((before, answer.is_mismatch));
            }
        }
        Err(moving())
    }

    pub(crate) async fn receive_within(
        &self,
        tx: &mut PgConnection,
        batch: &[Incoming],
    ) -> Result<Vec<Received>, StoreError> {
        let mut received = vec![None; batch.len()];
        for round in Incoming::rounds(batch) {
            let receipts = round.iter().map(|at| batch[*at].receipt()).collect();
            let mut answers = self.see(tx, receipts, InboxState::Processing).await?;
            self.add_places(tx, answers.iter_mut().filter(|answer| answer.needs_place())).await?;
            let incoming: Vec<_> = round.iter().map(|at| &batch[*at]).collect();
            self.make_room(tx, &incoming, &mut answers).await?;
            let (mut messages, mut queued) = (Vec::new(), Vec::new());
            for (at, answer) in round.into_iter().zip(&answers) {
                let (before, message_id) = (answer.before()?, answer.message_id);
                let outcome = decide(before);
                if matches!(outcome, Reception::Queued | Reception::Replaced) {
                    messages.push(batch[at].queued_as(message_id));
                }
                if outcome != Reception::Done && before.is_some() {
                    queued.push(batch[at].receipt());
                }
                let is_mismatch = answer.is_mismatch;
                received[at] = Some(Received { message_id, before: before.map(state_of), outcome, is_mismatch });
            }
            if !queued.is_empty() {
                self.queue_anew(tx, &queued).await?;
            }
            if !messages.is_empty() {
                insert_all(&self.queue, tx, Enqueue::pending(&messages)).await?;
            }
        }
        Ok(received.into_iter().flatten().collect())
    }

    /// Takes what is to be replaced out of the queue, and gives what is under a lease its new content; looks again at what
    /// a worker has taken or settled in the meantime.
    async fn make_room(
        &self,
        tx: &mut PgConnection,
        incoming: &[&Incoming],
        answers: &mut [Answer],
    ) -> Result<(), StoreError> {
        let mut ready = HashSet::new();
        for _ in 0..=CONFLICT_RETRIES_MAX {
            let (mut replaced, mut revised, mut stale) = (Vec::new(), Vec::new(), Vec::new());
            for (one, answer) in incoming.iter().zip(&mut *answers) {
                let (outcome, id) = (decide(answer.before()?), answer.message_id);
                if !outcome.takes_row() || ready.contains(&id.as_uuid()) {
                    continue;
                }
                match outcome {
                    Reception::Replaced => replaced.push(id.as_uuid()),
                    _ => revised.push(one.queued_as(id)),
                }
                stale.push(answer);
            }
            if stale.is_empty() {
                return Ok(());
            }
            if !replaced.is_empty() {
                ready.extend(self.leave(tx, replaced, false).await?);
            }
            if !revised.is_empty() {
                let revised: Vec<_> = revised.iter().collect();
                ready.extend(revise_all(&self.queue, tx, &self.sql.revise, &revised).await?);
            }
            let missed = stale.into_iter().filter(|answer| !ready.contains(&answer.message_id.as_uuid()));
            self.add_places(tx, missed).await?;
        }
        Err(moving())
    }

    async fn see(
        &self,
        tx: &mut PgConnection,
        receipts: Vec<&Receipt>,
        state: InboxState,
    ) -> Result<Vec<Answer>, StoreError> {
        let deliveries = Deliveries::new(receipts, state);
        let rows = self.run(tx, &self.sql.see, |query| deliveries.bind(query)).await?;
        deliveries.answers(&rows)
    }

    async fn add_places<'a>(
        &self,
        tx: &mut PgConnection,
        answers: impl Iterator<Item = &'a mut Answer>,
    ) -> Result<(), StoreError> {
        let mut answers: Vec<_> = answers.collect();
        if answers.is_empty() {
            return Ok(());
        }
        let ids: Vec<_> = answers.iter().map(|answer| answer.message_id.as_uuid()).collect();
        let rows = self.run(tx, &self.sql.place, |query| query.bind(ids.clone())).await?;
        answers.iter_mut().try_for_each(|answer| answer.add_place(&rows))
    }

    async fn set(
        &self,
        tx: &mut PgConnection,
        receipt: &Receipt,
        state: InboxState,
        reason: Option<String>,
    ) -> Result<(), StoreError> {
        let bind = |query: PgQuery| {
            let query = query.bind(receipt.source().to_owned()).bind(receipt.message_id().to_owned());
            query.bind(state.as_str()).bind(reason.clone())
        };
        self.run(tx, &self.sql.set, bind).await.map(drop)
    }

    /// Known messages stand in the queue, with the contents that these receipts tell of.
    async fn queue_anew(&self, tx: &mut PgConnection, receipts: &[&Receipt]) -> Result<(), StoreError> {
        self.run(tx, &self.sql.queue, |query| bind_hashes(bind_names(query, receipts), receipts)).await.map(drop)
    }

    /// Takes messages out of the queue; answers those that were there to be taken.
    async fn leave(&self, tx: &mut PgConnection, ids: Vec<Uuid>, by_force: bool) -> Result<Vec<Uuid>, StoreError> {
        let rows = self.run(tx, &self.sql.leave, |query| query.bind(ids.clone()).bind(by_force)).await?;
        rows.iter().map(|row| get(row, 0)).collect()
    }

    async fn run(
        &self,
        tx: &mut PgConnection,
        statement: &Statement,
        bind: impl Fn(PgQuery) -> PgQuery,
    ) -> Result<Vec<PgRow>, StoreError> {
        self.queue.query(statement, bind).fetch_all(tx).await.map_err(store_error)
    }
}

fn bind_names(query: PgQuery, receipts: &[&Receipt]) -> PgQuery {
    let texts = |text: fn(&Receipt) -> &str| receipts.iter().map(|one| text(one).to_owned()).collect::<Vec<_>>();
    query.bind(texts(Receipt::source)).bind(texts(Receipt::message_id))
}

fn bind_hashes(query: PgQuery, receipts: &[&Receipt]) -> PgQuery {
    let hashes = || receipts.iter().map(|one| one.get_hash());
    query
        .bind(hashes().map(|hash| hash.map(|hash| hash.algorithm().to_owned())).collect::<Vec<_>>())
        .bind(hashes().map(|hash| hash.map(|hash| hash.bytes().to_vec())).collect::<Vec<_>>())
}

fn only<T>(mut answers: Vec<T>) -> Result<T, StoreError> {
    answers.pop().ok_or_else(|| StoreError::unavailable("the database gave no answer for a receipt"))
}

fn moving() -> StoreError {
    StoreError::conflict("workers were faster than this call again and again")
}
