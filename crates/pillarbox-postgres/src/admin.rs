//! What an operator can ask and do.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use pillarbox_core::admin::{
    BlockedKey, Counts, Ended, Filter, Group, GroupBy, ListQuery, MessageName, OutboxAdmin, Overview, Page, Replay,
    Replayed, StoredMessage, Tally, TopicCounts,
};
use pillarbox_core::diagnosis::Finding;
use pillarbox_core::{State, StoreError, WorkId};
use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::diagnosis;
use crate::error::store_error;
use crate::parameters::micros;
use crate::row;
use crate::store::{PgQuery, PostgresStore};

#[async_trait]
impl OutboxAdmin for PostgresStore {
    async fn overview(&self) -> Result<Overview, StoreError> {
        let topics = self.fetch(&self.sql().topics, |query| query).await?;
        let leases = self.fetch(&self.sql().leases, |query| query).await?;
        read_overview(&topics, leases.first()).map_err(store_error)
    }

    async fn get(&self, name: MessageName) -> Result<Option<StoredMessage>, StoreError> {
        let (work_id, message_id) = match name {
            MessageName::Work(work_id) => (Some(work_id.as_i64()), None),
            MessageName::Message(message_id) => (None, Some(message_id.as_uuid())),
        };
        let rows = self.fetch(&self.sql().get, |query| query.bind(work_id).bind(message_id)).await?;
        rows.first().map(row::stored).transpose()
    }

    async fn list(&self, query: &ListQuery) -> Result<Page, StoreError> {
        query.filter.validate(query.limit)?;
        let mut messages = Vec::new();
        if matches!(query.state, State::Pending | State::Processing) {
            let leased = query.state == State::Processing;
            let rows = self.fetch(&self.sql().list_live, |sql| bind_page(sql, query).bind(leased)).await?;
            messages.extend(rows);
        }
        let shelf = match query.state {
            State::Pending => Some(&self.sql().list_pending_shelf),
            State::Done => Some(&self.sql().list_done),
            State::Dead => Some(&self.sql().list_dead),
            State::Processing => None,
        };
        if let Some(sql) = shelf {
            messages.extend(self.fetch(sql, |sql| bind_page(sql, query)).await?);
        }
        let mut messages = messages.iter().map(row::stored).collect::<Result<Vec<_>, _>>()?;
        messages.sort_by_key(|message| message.work_id);
        Ok(Page::from_overfull(messages, query.limit))
    }

    async fn tally(&self, ended: Ended, filter: &Filter) -> Result<Tally, StoreError> {
        filter.validate(1)?;
        let rows = self.fetch(self.sql().tally.of(ended), |query| bind_filter(query, filter)).await?;
        rows.first().map_or(Ok(Tally::default()), row::tally)
    }

    async fn group_dead(&self, by: GroupBy, filter: &Filter, limit: u32) -> Result<Vec<Group>, StoreError> {
        filter.validate(limit)?;
        let with_error = by == GroupBy::Error;
        let bind = |query| bind_filter(query, filter).bind(with_error).bind(i64::from(limit));
        let rows = self.fetch(&self.sql().group_dead, bind).await?;
        rows.iter().map(row::group).collect()
    }

    async fn replay(&self, replay: &Replay) -> Result<Replayed, StoreError> {
        replay.validate()?;
        let (after, limit) = (replay.after.map_or(i64::MIN, WorkId::as_i64), i64::from(replay.limit));
        let bind = |query| bind_filter(query, &replay.filter).bind(after).bind(limit);
        let rows = self.fetch(self.sql().replay.of(replay.ended), bind).await?;
        let Some(row) = rows.first() else { return Ok(Replayed::default()) };
        let (replayed, lowest) = row::replayed(row)?;
        self.floor().given_back(lowest);
        Ok(replayed)
    }

    async fn delete(&self, filter: &Filter, limit: u32) -> Result<u64, StoreError> {
        filter.validate(limit)?;
        self.execute(&self.sql().delete, |query| bind_filter(query, filter).bind(i64::from(limit))).await
    }

    async fn blocked_keys(&self, limit: u32) -> Result<Vec<BlockedKey>, StoreError> {
        Filter::check_limit(limit)?;
        let rows = self.fetch(&self.sql().blocked_keys, |query| query.bind(i64::from(limit))).await?;
        rows.iter().map(row::blocked).collect()
    }

    async fn diagnose(&self) -> Result<Vec<Finding>, StoreError> {
        diagnosis::diagnose(self).await
    }
}

fn bind_filter(query: PgQuery, filter: &Filter) -> PgQuery {
    let ids: Vec<i64> = filter.work_ids.iter().map(|id| id.as_i64()).collect();
    query
        .bind((!ids.is_empty()).then_some(ids))
        .bind(filter.topic.as_deref())
        .bind(filter.error_contains.as_deref())
        .bind(filter.older_than.map(micros))
        .bind(filter.newer_than.map(micros))
        .bind(filter.correlation_id.as_deref())
}

/// One message more than asked for tells whether there is another page.
fn bind_page(sql: PgQuery, query: &ListQuery) -> PgQuery {
    bind_filter(sql, &query.filter).bind(query.after.map_or(0, WorkId::as_i64)).bind(i64::from(query.limit) + 1)
}

fn read_overview(topics: &[PgRow], leases: Option<&PgRow>) -> Result<Overview, sqlx::Error> {
    let mut counts: BTreeMap<String, Counts> = BTreeMap::new();
    for row in topics {
        let Some(state) = State::from_word(row.try_get(1)?) else { continue };
        *counts.entry(row.try_get(0)?).or_default().of_mut(state) = row.try_get::<i64, _>(2)?.unsigned_abs();
    }
    let mut overview = Overview {
        topics: counts.into_iter().map(|(topic, counts)| TopicCounts { topic, counts }).collect(),
        ..Overview::default()
    };
    if let Some(row) = leases {
        let age: Option<i64> = row.try_get(0)?;
        overview.oldest_pending = age.map(|age| Duration::from_micros(u64::try_from(age).unwrap_or(0)));
        overview.active_lease_count = row.try_get::<i64, _>(1)?.unsigned_abs();
        overview.expired_lease_count = row.try_get::<i64, _>(2)?.unsigned_abs();
    }
    Ok(overview)
}
