//! What happens to the ledger's rows, inside a transaction.

use std::collections::HashMap;

use pillarbox_core::inbox::{
    Admission, ContentHash, InboxState, Incoming, Mark, Marking, Place, Receipt, Received, Reception, Registered,
    Standing, decide, decide_mark, state_of,
};
use pillarbox_core::lease::Lease;
use pillarbox_core::store::Enqueue;
use pillarbox_core::{Fence, MessageId, StoreError, Verdict};
use sqlx::mysql::MySqlRow;
use sqlx::{AssertSqlSafe, MySqlConnection};
use uuid::Uuid;

use super::MysqlInbox;
use crate::enqueue::{NULL_OUTSIDE, guard_first, insert, revise};
use crate::error::store_error;
use crate::parameters::duration_micros;
use crate::row::{get, hash, name, standing};
use crate::sql::{with_literal, with_messages};

/// Receipts in one statement.
const ROWS_MAX: usize = 200;

/// Looks at the queue for a message that moves between its tables; each move needs a claim, so few suffice.
const LOOKS_MAX: u32 = 3;

const ROW: &str = "(?, ?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))";
const CONDITION: &str = "(l.`source` = ? AND l.`source_id` = ?)";

/// What the ledger answers to a delivery.
struct Answer {
    message_id: MessageId,
    /// Where the message stood; nothing when the delivery wrote its row.
    before: Option<Standing>,
    is_mismatch: bool,
}

impl Answer {
    /// Whether only the queue can tell where the message stands.
    fn needs_place(&self) -> bool {
        self.before.is_some_and(|before| before.marked != InboxState::Done && before.place != Place::NotQueued)
    }
}

/// What a consumer takes a row for.
pub(super) enum Taking {
    /// It is done, under a lease or without one.
    Done(Option<Lease>),
    Lease(Lease),
}

impl MysqlInbox {
    /// Records one delivery; where the message stood, and whether its hash contradicts the first one.
    pub(super) async fn see_one(
        &self,
        tx: &mut MySqlConnection,
        receipt: &Receipt,
    ) -> Result<(Option<Standing>, bool), StoreError> {
        let answer = only(self.see(tx, &[receipt], InboxState::Seen).await?)?;
        Ok((answer.before, answer.is_mismatch))
    }

    pub(super) async fn take(
        &self,
        tx: &mut MySqlConnection,
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
        let content = receipt.get_hash();
        let taken = sqlx::query(AssertSqlSafe(self.guarded(tx, &self.sql.register).await?))
            .bind(receipt.source().as_bytes())
            .bind(receipt.message_id().as_bytes())
            .bind(MessageId::new().as_uuid())
            .bind(state.as_str())
            .bind(state.as_str())
            .bind(content.map(|hash| hash.algorithm().as_bytes()))
            .bind(content.map(ContentHash::bytes))
            .bind(fence.as_i64())
            .bind(lease.map(|lease| lease.owner().as_uuid()))
            .bind(lease.map(|lease| duration_micros(lease.duration())))
            .bind(held.map(|lease| lease.owner().as_uuid()))
            .bind(held.map(|lease| lease.fence().as_i64()))
            .execute(&mut *tx)
            .await
            .map_err(store_error)?;
        if taken.rows_affected() == 1 {
            return Ok(Admission { registered: Registered::New, is_mismatch: false });
        }
        let mut row = only(self.find(tx, &[receipt], "").await?)?;
        if get::<i64>(&row, 8)? != fence.as_i64() && standing(&row)?.place == Place::Gone {
            // The snapshot of a stricter isolation level may be older than the queue's row: only a locking read tells.
            row = only(self.find(tx, &[receipt], " LOCK IN SHARE MODE").await?)?;
        }
        let first = hash(&row)?;
        let registered = Registered::of(get::<i64>(&row, 8)? == fence.as_i64(), standing(&row)?);
        let is_mismatch = content.zip(first).is_some_and(|(hash, first)| hash.contradicts(&first));
        Ok(Admission { registered, is_mismatch })
    }

    /// Makes a message done that is not known; whether it was not.
    async fn take_new(&self, tx: &mut MySqlConnection, receipt: &Receipt) -> Result<bool, StoreError> {
        let content = receipt.get_hash();
        let taken = sqlx::query(AssertSqlSafe(self.guarded(tx, &self.sql.register_new).await?))
            .bind(receipt.source().as_bytes())
            .bind(receipt.message_id().as_bytes())
            .bind(MessageId::new().as_uuid())
            .bind(content.map(|hash| hash.algorithm().as_bytes()))
            .bind(content.map(ContentHash::bytes))
            .execute(tx);
        Ok(taken.await.map_err(store_error)?.rows_affected() == 1)
    }

    /// A statement that fails outside a transaction, prepared so that dropping the future does no harm.
    async fn guarded(&self, tx: &mut MySqlConnection, statement: &str) -> Result<String, StoreError> {
        let inner = &self.queue.inner;
        let statement = guard_first(inner, tx, statement, NULL_OUTSIDE).await.map_err(store_error)?;
        inner.spares.prepare(&inner.pool.connect_options(), tx, &statement).await.map_err(store_error)?;
        Ok(statement)
    }

    pub(super) async fn release_within(
        &self,
        tx: &mut MySqlConnection,
        receipt: &Receipt,
        lease: Lease,
    ) -> Result<bool, StoreError> {
        let release = sqlx::query(AssertSqlSafe(self.sql.release.as_str()))
            .bind(receipt.source().as_bytes())
            .bind(receipt.message_id().as_bytes())
            .bind(lease.owner().as_uuid())
            .bind(lease.fence().as_i64());
        Ok(release.execute(tx).await.map_err(store_error)?.rows_affected() > 0)
    }

    pub(super) async fn mark_within(
        &self,
        tx: &mut MySqlConnection,
        receipt: &Receipt,
        mark: Mark,
    ) -> Result<(Option<Standing>, bool), StoreError> {
        let mut answer = self.see(tx, &[receipt], InboxState::Seen).await?;
        self.hold(tx, &mut answer).await?;
        let Answer { message_id, before, is_mismatch } = only(answer)?;
        let marking = decide_mark(before, &mark);
        let reason = match mark {
            Mark::Dead(reason) => Verdict::Fail { reason }.reason().map(String::from),
            Mark::Processing | Mark::Processed => None,
        };
        match marking {
            Marking::Keep => {}
            Marking::Set(state) => self.set(tx, receipt, state, reason).await?,
            Marking::Finish => {
                self.on_messages(tx, &[&self.sql.leave_live, &self.sql.leave_shelf], &[message_id]).await?;
                self.set(tx, receipt, InboxState::Done, None).await?;
            }
            Marking::Bury => {
                self.on_messages(tx, &[&self.sql.bury_live, &self.sql.leave_live], &[message_id]).await?;
                let bury = with_messages(&self.sql.bury, [message_id.as_uuid()]);
                let bury = sqlx::query(AssertSqlSafe(bury)).persistent(false).bind(reason);
                bury.execute(&mut *tx).await.map_err(store_error)?;
                self.on_messages(tx, &[&self.sql.bury_lane], &[message_id]).await?;
            }
        }
        Ok((before, is_mismatch))
    }

    pub(crate) async fn receive_within(
        &self,
        tx: &mut MySqlConnection,
        batch: &[Incoming],
    ) -> Result<Vec<Received>, StoreError> {
        let mut received = vec![None; batch.len()];
        for round in Incoming::rounds(batch) {
            let receipts: Vec<_> = round.iter().map(|at| batch[*at].receipt()).collect();
            let mut answers = self.see(tx, &receipts, InboxState::Processing).await?;
            self.hold(tx, &mut answers).await?;
            let (mut messages, mut replaced) = (Vec::new(), Vec::new());
            for (at, answer) in round.into_iter().zip(&answers) {
                let Answer { message_id, before, is_mismatch } = *answer;
                let outcome = decide(before);
                let message = batch[at].queued_as(message_id);
                if outcome != Reception::Done && before.is_some() {
                    self.queue_anew(tx, batch[at].receipt()).await?;
                }
                match outcome {
                    Reception::Queued => messages.push(message),
                    Reception::Replaced => {
                        replaced.push(message_id);
                        messages.push(message);
                    }
                    Reception::Revised => {
                        let revise = revise(&self.queue.inner, tx, &self.sql.revise, &message);
                        revise.await.map_err(store_error)?;
                    }
                    Reception::Done => {}
                }
                received[at] = Some(Received { message_id, before: before.map(state_of), outcome, is_mismatch });
            }
            self.on_messages(tx, &[&self.sql.leave_live, &self.sql.leave_shelf], &replaced).await?;
            if !messages.is_empty() {
                insert(&self.queue.inner, tx, Enqueue::pending(&messages)).await.map_err(store_error)?;
            }
        }
        Ok(received.into_iter().flatten().collect())
    }

    /// Prepares a statement on a connection that may be the caller's.
    async fn prepare(&self, tx: &mut MySqlConnection, statement: &str) -> Result<(), StoreError> {
        let inner = &self.queue.inner;
        inner.spares.prepare(&inner.pool.connect_options(), tx, statement).await.map_err(store_error)
    }

    /// Rows of the ledger with what the queue knows, in no order.
    pub(super) async fn find(
        &self,
        tx: &mut MySqlConnection,
        receipts: &[&Receipt],
        locking: &str,
    ) -> Result<Vec<MySqlRow>, StoreError> {
        let condition = vec![CONDITION; receipts.len()].join(" OR ");
        let statement = with_literal(&self.sql.find, CONDITION, &condition) + locking;
        self.prepare(tx, &statement).await?;
        let names = receipts.iter().flat_map(|one| [one.source(), one.message_id()]);
        let find = names.fold(sqlx::query(AssertSqlSafe(statement)), |find, name| find.bind(name.as_bytes()));
        find.fetch_all(tx).await.map_err(store_error)
    }

    /// Records deliveries; new rows get this state, and are queued when it is `Processing`. Answers come in their order.
    async fn see(
        &self,
        tx: &mut MySqlConnection,
        receipts: &[&Receipt],
        state: InboxState,
    ) -> Result<Vec<Answer>, StoreError> {
        let mut answers = Vec::with_capacity(receipts.len());
        for chunk in receipts.chunks(ROWS_MAX) {
            let drawn: Vec<_> = chunk.iter().map(|_| MessageId::new()).collect();
            let statement = with_literal(&self.sql.see, ROW, &vec![ROW; chunk.len()].join(", "));
            self.prepare(tx, &statement).await?;
            let mut see = sqlx::query(AssertSqlSafe(statement));
            for (receipt, id) in chunk.iter().zip(&drawn) {
                let content = receipt.get_hash();
                see = see
                    .bind(receipt.source().as_bytes())
                    .bind(receipt.message_id().as_bytes())
                    .bind(id.as_uuid())
                    .bind(state.as_str())
                    .bind(state == InboxState::Processing)
                    .bind(content.map(|hash| hash.algorithm().as_bytes()))
                    .bind(content.map(ContentHash::bytes));
            }
            let seen = see.execute(&mut *tx).await.map_err(store_error)?;
            if seen.rows_affected() == chunk.len() as u64 {
                // A known row counts twice.
                let new = |id: &MessageId| Answer { message_id: *id, before: None, is_mismatch: false };
                answers.extend(drawn.iter().map(new));
                continue;
            }
            answers.extend(matched(chunk, &drawn, &self.find(tx, chunk, "").await?)?);
        }
        Ok(answers)
    }

    /// Holds the queue's rows of these messages until the transaction ends, and corrects where they stand.
    async fn hold(&self, tx: &mut MySqlConnection, answers: &mut [Answer]) -> Result<(), StoreError> {
        let mut open: Vec<_> = answers.iter_mut().filter(|answer| answer.needs_place()).collect();
        for _ in 0..LOOKS_MAX {
            let mut places = HashMap::new();
            for chunk in open.chunks(ROWS_MAX) {
                for sql in [&self.sql.hold_live, &self.sql.hold_shelf] {
                    let sql = with_messages(sql, chunk.iter().map(|answer| answer.message_id.as_uuid()));
                    let rows = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(&mut *tx).await.map_err(store_error)?;
                    for row in &rows {
                        places.insert(get::<Uuid>(row, 0)?, get::<String>(row, 1)?);
                    }
                }
            }
            for answer in &mut open {
                let word = places.get(&answer.message_id.as_uuid()).map(String::as_str);
                if let (Some(before), Some(place)) = (&mut answer.before, Place::of(true, word)) {
                    before.place = place;
                }
            }
            open.retain(|answer| !places.contains_key(&answer.message_id.as_uuid()));
            if open.is_empty() {
                break;
            }
        }
        Ok(())
    }

    async fn set(
        &self,
        tx: &mut MySqlConnection,
        receipt: &Receipt,
        state: InboxState,
        reason: Option<String>,
    ) -> Result<(), StoreError> {
        self.prepare(tx, &self.sql.set).await?;
        let set = sqlx::query(AssertSqlSafe(self.sql.set.as_str())).bind(state.as_str()).bind(reason);
        let set = set.bind(receipt.source().as_bytes()).bind(receipt.message_id().as_bytes());
        set.execute(tx).await.map(drop).map_err(store_error)
    }

    /// A known message stands in the queue, with the content that this receipt tells of.
    async fn queue_anew(&self, tx: &mut MySqlConnection, receipt: &Receipt) -> Result<(), StoreError> {
        self.prepare(tx, &self.sql.queue).await?;
        let content = receipt.get_hash();
        let queue = sqlx::query(AssertSqlSafe(self.sql.queue.as_str()))
            .bind(content.map(|hash| hash.algorithm().as_bytes()))
            .bind(content.map(ContentHash::bytes))
            .bind(receipt.source().as_bytes())
            .bind(receipt.message_id().as_bytes());
        queue.execute(tx).await.map(drop).map_err(store_error)
    }

    /// Runs statements on these messages of the queue, which are held.
    async fn on_messages(
        &self,
        tx: &mut MySqlConnection,
        statements: &[&String],
        ids: &[MessageId],
    ) -> Result<(), StoreError> {
        for chunk in ids.chunks(ROWS_MAX) {
            for sql in statements {
                let sql = with_messages(sql, chunk.iter().map(MessageId::as_uuid));
                sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut *tx).await.map_err(store_error)?;
            }
        }
        Ok(())
    }
}

/// One answer per receipt, in their order.
fn matched(receipts: &[&Receipt], drawn: &[MessageId], rows: &[MySqlRow]) -> Result<Vec<Answer>, StoreError> {
    let mut found = HashMap::with_capacity(rows.len());
    for row in rows {
        found.insert((name(row, 0)?, name(row, 1)?), row);
    }
    let answer = |(receipt, id): (&&Receipt, &MessageId)| {
        let key = (receipt.source().to_owned(), receipt.message_id().to_owned());
        let row = found.get(&key).ok_or_else(missing)?;
        let message_id = MessageId::from_uuid(get(row, 2)?)?;
        let first = hash(row)?;
        Ok(Answer {
            message_id,
            before: if message_id == *id { None } else { Some(standing(row)?) },
            is_mismatch: receipt.get_hash().zip(first).is_some_and(|(hash, first)| hash.contradicts(&first)),
        })
    };
    receipts.iter().zip(drawn).map(answer).collect()
}

fn only<T>(mut answers: Vec<T>) -> Result<T, StoreError> {
    answers.pop().ok_or_else(missing)
}

fn missing() -> StoreError {
    StoreError::unavailable("the database gave no answer for a receipt")
}
