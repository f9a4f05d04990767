//! What an operator asks and does.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use pillarbox_core::admin::{
    BlockedKey, Counts, Ended, Filter, Group, GroupBy, ListQuery, MessageName, OutboxAdmin, Overview, Page, Replay,
    Replayed, StoredMessage, Tally, TopicCounts,
};
use pillarbox_core::diagnosis::Finding;
use pillarbox_core::{State, StoreError, WorkId};
use sqlx::query::Query;
use sqlx::sqlite::SqliteArguments;
use sqlx::{SqlStr, Sqlite, SqliteConnection};

use crate::diagnosis;
use crate::error::store_error;
use crate::row::{self, id_list, micros, stored, work_id};
use crate::sql::of_end;
use crate::store::SqliteStore;

#[async_trait]
impl OutboxAdmin for SqliteStore {
    async fn overview(&self) -> Result<Overview, StoreError> {
        self.read(|inner, tx| {
            Box::pin(async move {
                let topics = sqlx::query(inner.sql.topics.clone()).fetch_all(&mut *tx).await.map_err(store_error)?;
                let mut counts = BTreeMap::<String, Counts>::new();
                for row in &topics {
                    let topic = String::from_utf8_lossy(row::get(row, 0)?).into_owned();
                    if let Some(state) = State::from_word(row::get(row, 1)?) {
                        *counts.entry(topic).or_default().of_mut(state) += count(row::get(row, 2)?);
                    }
                }
                let leases = sqlx::query(inner.sql.leases.clone()).fetch_one(tx).await.map_err(store_error)?;
                let waited: Option<i64> = row::get(&leases, 2)?;
                Ok(Overview {
                    topics: counts.into_iter().map(|(topic, counts)| TopicCounts { topic, counts }).collect(),
                    oldest_pending: waited.map(|micros| Duration::from_micros(count(micros))),
                    active_lease_count: count(row::get(&leases, 0)?),
                    expired_lease_count: count(row::get(&leases, 1)?),
                })
            })
        })
        .await
    }

    async fn get(&self, name: MessageName) -> Result<Option<StoredMessage>, StoreError> {
        let (work_id, message_id) = match name {
            MessageName::Work(id) => (Some(id.as_i64()), None),
            MessageName::Message(id) => (None, Some(id.as_uuid())),
        };
        let get = sqlx::query(self.inner.sql.get.clone()).bind(work_id).bind(message_id);
        get.fetch_optional(self.pool()).await.map_err(store_error)?.as_ref().map(stored).transpose()
    }

    async fn list(&self, query: &ListQuery) -> Result<Page, StoreError> {
        query.filter.validate(query.limit)?;
        let (filter, state, after) = (query.filter.clone(), query.state, query.after);
        let overfull = query.limit.saturating_add(1);
        let messages = self
            .read(move |inner, tx| {
                Box::pin(async move {
                    let mut found = Vec::new();
                    if matches!(state, State::Pending | State::Processing) {
                        let is_leased = state == State::Processing;
                        let page = filtered(&inner.sql.list_live, after, &filter, overfull).bind(is_leased);
                        fetch(page, tx, &mut found).await?;
                    }
                    let shelf = match state {
                        State::Pending => &inner.sql.list_waiting,
                        State::Done => &inner.sql.list_done,
                        State::Dead => &inner.sql.list_dead,
                        State::Processing => return Ok(found),
                    };
                    fetch(filtered(shelf, after, &filter, overfull), tx, &mut found).await?;
                    found.sort_by_key(|message| message.work_id);
                    Ok(found)
                })
            })
            .await?;
        Ok(Page::from_overfull(messages, query.limit))
    }

    async fn tally(&self, ended: Ended, filter: &Filter) -> Result<Tally, StoreError> {
        filter.validate(1)?;
        let tally = filtered(of_end(&self.inner.sql.tally, ended), None, filter, 0).fetch_one(self.pool()).await;
        row::tally(&tally.map_err(store_error)?)
    }

    async fn group_dead(&self, by: GroupBy, filter: &Filter, limit: u32) -> Result<Vec<Group>, StoreError> {
        filter.validate(limit)?;
        let groups = filtered(&self.inner.sql.group_dead, None, filter, limit).bind(by == GroupBy::Error);
        groups.fetch_all(self.pool()).await.map_err(store_error)?.iter().map(row::group).collect()
    }

    async fn replay(&self, replay: &Replay) -> Result<Replayed, StoreError> {
        replay.validate()?;
        let replay = replay.clone();
        self.write_at_now(move |inner, tx, _| {
            Box::pin(async move {
                let statement = of_end(&inner.sql.replay, replay.ended);
                let statement = filtered(statement, replay.after, &replay.filter, replay.limit);
                let rows = statement.fetch_all(&mut *tx).await.map_err(store_error)?;
                let ids: Vec<WorkId> = rows.iter().map(work_id).collect::<Result<_, _>>()?;
                let last = ids.iter().max().copied();
                let leave = sqlx::query(inner.sql.leave_shelf.clone()).bind(id_list(ids));
                Ok(Replayed { count: leave.execute(tx).await.map_err(store_error)?.rows_affected(), last })
            })
        })
        .await
    }

    async fn delete(&self, filter: &Filter, limit: u32) -> Result<u64, StoreError> {
        filter.validate(limit)?;
        let filter = filter.clone();
        self.write_at_now(move |inner, tx, _| {
            Box::pin(async move {
                let delete = filtered(&inner.sql.delete, None, &filter, limit);
                Ok(delete.execute(tx).await.map_err(store_error)?.rows_affected())
            })
        })
        .await
    }

    async fn blocked_keys(&self, limit: u32) -> Result<Vec<BlockedKey>, StoreError> {
        Filter::check_limit(limit)?;
        let list = sqlx::query(self.inner.sql.blocked_keys.clone()).bind(limit);
        list.fetch_all(self.pool()).await.map_err(store_error)?.iter().map(row::blocked).collect()
    }

    async fn diagnose(&self) -> Result<Vec<Finding>, StoreError> {
        diagnosis::diagnose(self).await
    }
}

/// Binds what all statements with a filter share: start, filter, limit.
fn filtered(
    sql: &SqlStr,
    after: Option<WorkId>,
    filter: &Filter,
    limit: u32,
) -> Query<'static, Sqlite, SqliteArguments> {
    let work_ids = (!filter.work_ids.is_empty()).then(|| id_list(filter.work_ids.iter().copied()));
    sqlx::query(sql.clone())
        .bind(after.map_or(i64::MIN, WorkId::as_i64))
        .bind(work_ids)
        .bind(filter.topic.clone())
        .bind(filter.error_contains.clone())
        .bind(filter.older_than.map(micros))
        .bind(filter.newer_than.map(micros))
        .bind(limit)
        .bind(filter.correlation_id.clone())
}

async fn fetch(
    page: Query<'static, Sqlite, SqliteArguments>,
    tx: &mut SqliteConnection,
    found: &mut Vec<StoredMessage>,
) -> Result<(), StoreError> {
    for row in page.fetch_all(tx).await.map_err(store_error)? {
        found.push(stored(&row)?);
    }
    Ok(())
}

fn count(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}
