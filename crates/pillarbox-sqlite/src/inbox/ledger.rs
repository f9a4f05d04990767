//! What happens to the ledger's rows, inside a transaction.

use pillarbox_core::inbox::{
    Admission, InboxState, Incoming, Mark, Marking, Receipt, Received, Reception, Registered, Sighting, Standing,
    decide, decide_mark, state_of,
};
use pillarbox_core::lease::Lease;
use pillarbox_core::{Fence, MessageId, StoreError, Verdict};
use sqlx::query::Query;
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{SqlStr, Sqlite, SqliteConnection};

use crate::error::store_error;
use crate::row::{self, micros, standing};
use crate::sql::InboxStatements;

/// What the ledger answers to a delivery or a registration.
pub(super) struct Answer {
    pub(super) message_id: MessageId,
    /// Whether the call wrote the row, or took it.
    is_ours: bool,
    standing: Standing,
    is_mismatch: bool,
}

impl Answer {
    fn of(row: &SqliteRow) -> Result<Self, StoreError> {
        Ok(Self {
            message_id: MessageId::from_uuid(row::get(row, 0)?)?,
            is_ours: row::get(row, 1)?,
            standing: standing(row, 2)?,
            is_mismatch: row::get(row, 5)?,
        })
    }

    /// Where a delivered message stood; nothing when the delivery wrote its row.
    pub(super) fn before(&self) -> Option<Standing> {
        (!self.is_ours).then_some(self.standing)
    }

    pub(super) fn sighting(&self) -> Sighting {
        Sighting { before: self.before().map(state_of), is_mismatch: self.is_mismatch }
    }

    pub(super) fn admission(&self) -> Admission {
        Admission { registered: Registered::of(self.is_ours, self.standing), is_mismatch: self.is_mismatch }
    }
}

/// What a consumer takes a row for.
pub(super) enum Taking {
    /// It is done, under a lease or without one.
    Done(Option<Lease>),
    Lease(Lease),
}

/// Records a delivery; a new row gets this state, and is queued when that is `Processing`.
pub(super) async fn see(
    sql: &InboxStatements,
    tx: &mut SqliteConnection,
    receipt: &Receipt,
    state: InboxState,
) -> Result<Answer, StoreError> {
    let hash = receipt.get_hash();
    let see = named(&sql.see, receipt)
        .bind(MessageId::new().as_uuid())
        .bind(state.as_str())
        .bind(state == InboxState::Processing)
        .bind(hash.map(|hash| hash.algorithm().to_owned()))
        .bind(hash.map(|hash| hash.bytes().to_vec()));
    Answer::of(&see.fetch_one(tx).await.map_err(store_error)?)
}

/// Makes a message done that is not known; whether it was not.
pub(super) async fn take_new(
    sql: &InboxStatements,
    tx: &mut SqliteConnection,
    receipt: &Receipt,
) -> Result<bool, StoreError> {
    let hash = receipt.get_hash();
    let take = named(&sql.register_new, receipt)
        .bind(MessageId::new().as_uuid())
        .bind(hash.map(|hash| hash.algorithm().to_owned()))
        .bind(hash.map(|hash| hash.bytes().to_vec()));
    Ok(take.execute(tx).await.map_err(store_error)?.rows_affected() == 1)
}

pub(super) async fn take(
    sql: &InboxStatements,
    tx: &mut SqliteConnection,
    receipt: &Receipt,
    taking: Taking,
) -> Result<Answer, StoreError> {
    let (state, fence, lease, held) = match taking {
        Taking::Done(held) => (InboxState::Done, Fence::new(), None, held),
        Taking::Lease(lease) => (InboxState::Processing, lease.fence(), Some(lease), None),
    };
    let hash = receipt.get_hash();
    let take = named(&sql.register, receipt)
        .bind(MessageId::new().as_uuid())
        .bind(state.as_str())
        .bind(hash.map(|hash| hash.algorithm().to_owned()))
        .bind(hash.map(|hash| hash.bytes().to_vec()))
        .bind(fence.as_i64())
        .bind(lease.map(|lease| lease.owner().as_uuid()))
        .bind(lease.map(|lease| micros(lease.duration())))
        .bind(held.map(|lease| lease.owner().as_uuid()))
        .bind(held.map(|lease| lease.fence().as_i64()));
    Answer::of(&take.fetch_one(tx).await.map_err(store_error)?)
}

/// Does to ledger and queue what a delivery asks for, but for the new row in the queue.
pub(super) async fn receive_one(
    sql: &InboxStatements,
    tx: &mut SqliteConnection,
    incoming: &Incoming,
) -> Result<Received, StoreError> {
    let answer = see(sql, tx, incoming.receipt(), InboxState::Processing).await?;
    let outcome = decide(answer.before());
    if outcome != Reception::Done && !answer.is_ours {
        let hash = incoming.receipt().get_hash();
        let queue = named(&sql.queue, incoming.receipt())
            .bind(hash.map(|hash| hash.algorithm().to_owned()))
            .bind(hash.map(|hash| hash.bytes().to_vec()));
        queue.execute(&mut *tx).await.map_err(store_error)?;
    }
    if outcome == Reception::Replaced {
        leave(sql, tx, answer.message_id).await?;
    }
    let Answer { message_id, is_mismatch, .. } = answer;
    Ok(Received { message_id, before: answer.before().map(state_of), outcome, is_mismatch })
}

pub(super) async fn mark_within(
    sql: &InboxStatements,
    tx: &mut SqliteConnection,
    receipt: &Receipt,
    answer: &Answer,
    mark: Mark,
) -> Result<(), StoreError> {
    let marking = decide_mark(answer.before(), &mark);
    let verdict = match mark {
        Mark::Dead(reason) => Verdict::Fail { reason },
        Mark::Processing | Mark::Processed => Verdict::Ack,
    };
    let (id, reason) = (answer.message_id, verdict.reason().map(String::from));
    match marking {
        Marking::Keep => {}
        Marking::Set(state) => set(sql, tx, receipt, state, reason).await?,
        Marking::Finish => {
            leave(sql, tx, id).await?;
            set(sql, tx, receipt, InboxState::Done, None).await?;
        }
        Marking::Bury => {
            for statement in [&sql.bury_live, &sql.leave_live] {
                sqlx::query(statement.clone()).bind(id.as_uuid()).execute(&mut *tx).await.map_err(store_error)?;
            }
            let bury = sqlx::query(sql.bury.clone()).bind(id.as_uuid()).bind(reason);
            bury.execute(tx).await.map_err(store_error)?;
        }
    }
    Ok(())
}

/// Writes the ledger's word.
async fn set(
    sql: &InboxStatements,
    tx: &mut SqliteConnection,
    receipt: &Receipt,
    state: InboxState,
    reason: Option<String>,
) -> Result<(), StoreError> {
    let set = named(&sql.set, receipt).bind(state.as_str()).bind(reason);
    set.execute(tx).await.map_err(store_error)?;
    Ok(())
}

/// Takes a message out of the queue, wherever it stands.
async fn leave(sql: &InboxStatements, tx: &mut SqliteConnection, id: MessageId) -> Result<(), StoreError> {
    for statement in [&sql.leave_live, &sql.leave_shelf] {
        sqlx::query(statement.clone()).bind(id.as_uuid()).execute(&mut *tx).await.map_err(store_error)?;
    }
    Ok(())
}

/// A statement whose first two parameters are the receipt's name.
pub(super) fn named(sql: &SqlStr, receipt: &Receipt) -> Query<'static, Sqlite, SqliteArguments> {
    sqlx::query(sql.clone()).bind(receipt.source().to_owned()).bind(receipt.message_id().to_owned())
}
