//! What an operator asks and does.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use pillarbox_core::admin::{
    BlockedKey, Counts, Ended, Filter, Group, GroupBy, ListQuery, MessageName, Overview, Page, Replay, Replayed,
    StoredMessage, Tally, TopicCounts,
};
use pillarbox_core::diagnosis::Finding;
use pillarbox_core::{OutboxAdmin, State, StoreError, WorkId};
use sqlx::AssertSqlSafe;
use sqlx::mysql::{MySql, MySqlArguments, MySqlRow};
use sqlx::query::Query;

use crate::diagnosis;
use crate::error::store_error;
use crate::parameters::duration_micros;
use crate::row::{answers, blocked_key, get, group, stored_live, stored_shelf, tally};
use crate::sql::{LIST_MAX, list, of_end, with_ids, with_literal};
use crate::store::{MysqlStore, finished};

#[async_trait]
impl OutboxAdmin for MysqlStore {
    async fn overview(&self) -> Result<Overview, StoreError> {
        let mut topics: BTreeMap<String, Counts> = BTreeMap::new();
        for row in self.read(&self.inner.sql.topics, Vec::new()).await? {
            let state = State::from_word(&get::<String>(&row, 1)?);
            let count = u64::try_from(get::<i64>(&row, 2)?).unwrap_or(0);
            if let Some(state) = state {
                *topics.entry(get(&row, 0)?).or_default().of_mut(state) += count;
            }
        }
        let rows = self.read(&self.inner.sql.leases, Vec::new()).await?;
        let row = rows.first().ok_or_else(|| StoreError::rejected("the lease counts gave no answer"))?;
        let number = |column| get::<Option<i64>>(row, column).map(|n| n.map(|n| u64::try_from(n).unwrap_or(0)));
        Ok(Overview {
            topics: topics.into_iter().map(|(topic, counts)| TopicCounts { topic, counts }).collect(),
            oldest_pending: number(0)?.map(Duration::from_micros),
            active_lease_count: number(1)?.unwrap_or(0),
            expired_lease_count: number(2)?.unwrap_or(0),
        })
    }

    async fn get(&self, name: MessageName) -> Result<Option<StoredMessage>, StoreError> {
        let values = match name {
            MessageName::Work(id) => vec![Value::Number(Some(id.as_i64())), Value::Bytes(None)],
            MessageName::Message(id) => vec![Value::Number(None), Value::Bytes(Some(id.as_uuid().as_bytes().to_vec()))],
        };
        // Twice: the row may move from the one table to the other between two looks.
        for _ in 0..2 {
            if let Some(row) = self.read(&self.inner.sql.get, values.clone()).await?.first() {
                return stored_live(row).map(Some);
            }
            if let Some(row) = self.read(&self.inner.sql.get_shelf, values.clone()).await?.first() {
                return stored_shelf(row).map(Some);
            }
        }
        Ok(None)
    }

    async fn list(&self, query: &ListQuery) -> Result<Page, StoreError> {
        query.filter.validate(query.limit)?;
        let mut messages = Vec::new();
        if matches!(query.state, State::Pending | State::Processing) {
            let kind = Value::Number(Some(i64::from(query.state == State::Processing)));
            for row in self.read_page(&self.inner.sql.list_live, kind, query).await? {
                messages.push(stored_live(&row)?);
            }
        }
        if query.state != State::Processing {
            let kind = Value::Bytes(Some(query.state.as_str().into()));
            for row in self.read_page(&self.inner.sql.list_shelf, kind, query).await? {
                messages.push(stored_shelf(&row)?);
            }
        }
        messages.sort_by_key(|message| message.work_id);
        // A row that moved between the two looks is in both.
        messages.dedup_by_key(|message| message.work_id);
        Ok(Page::from_overfull(messages, query.limit))
    }

    async fn tally(&self, ended: Ended, filter: &Filter) -> Result<Tally, StoreError> {
        filter.validate(1)?;
        let sql = only(&of_end(&self.inner.sql.tally, ended), filter);
        let rows = self.read(&sql, filter_values(filter)).await?;
        rows.first().map_or(Ok(Tally::default()), tally)
    }

    async fn group_dead(&self, by: GroupBy, filter: &Filter, limit: u32) -> Result<Vec<Group>, StoreError> {
        filter.validate(limit)?;
        let mut values = vec![Value::Number(Some(i64::from(by == GroupBy::Error)))];
        values.extend(filter_values(filter));
        values.push(Value::Number(Some(i64::from(limit))));
        let rows = self.read(&only(&self.inner.sql.group_dead, filter), values).await?;
        rows.iter().map(group).collect()
    }

    async fn replay(&self, replay: &Replay) -> Result<Replayed, StoreError> {
        let ids = self.find(replay).await?;
        let sql = &self.inner.sql;
        let [lock, replayed, delete] =
            [&sql.lock_dead, &sql.replay, &sql.delete].map(|step| of_end(step, replay.ended));
        let steps = [lock, replayed, sql.replay_lane.clone(), delete];
        let count = self.change(&ids, &steps).await?;
        self.inner.floor.given_back(ids.first().copied().map(WorkId::from_i64));
        Ok(Replayed { count, last: ids.last().copied().map(WorkId::from_i64) })
    }

    async fn delete(&self, filter: &Filter, limit: u32) -> Result<u64, StoreError> {
        let ids = self.find(&Replay::dead(filter.clone(), limit)).await?;
        self.change(&ids, &[self.inner.sql.lock_dead.clone(), self.inner.sql.delete.clone()]).await
    }

    async fn blocked_keys(&self, limit: u32) -> Result<Vec<BlockedKey>, StoreError> {
        Filter::check_limit(limit)?;
        let rows = self.read(&self.inner.sql.blocked_keys, vec![Value::Number(Some(i64::from(limit)))]).await?;
        rows.iter().map(blocked_key).collect()
    }

    async fn diagnose(&self) -> Result<Vec<Finding>, StoreError> {
        diagnosis::diagnose(self).await
    }
}

/// A value to be bound.
#[derive(Clone)]
enum Value {
    Number(Option<i64>),
    Bytes(Option<Vec<u8>>),
}

impl MysqlStore {
    /// Runs one reading statement to its end.
    async fn read(&self, sql: &str, values: Vec<Value>) -> Result<Vec<MySqlRow>, StoreError> {
        let (pool, sql) = (self.inner.pool.clone(), sql.to_owned());
        finished(async move {
            let query = values.into_iter().fold(sqlx::query(AssertSqlSafe(sql)), bind);
            query.fetch_all(&pool).await.map_err(store_error)
        })
        .await
    }

    async fn read_page(&self, sql: &str, kind: Value, query: &ListQuery) -> Result<Vec<MySqlRow>, StoreError> {
        let after = query.after.map_or(i64::MIN, WorkId::as_i64);
        let mut values = vec![Value::Number(Some(after)), kind];
        values.extend(filter_values(&query.filter));
        values.push(Value::Number(Some(i64::from(query.limit) + 1)));
        self.read(&only(sql, &query.filter), values).await
    }

    async fn find(&self, replay: &Replay) -> Result<Vec<i64>, StoreError> {
        replay.validate()?;
        let mut values = vec![Value::Number(Some(replay.after.map_or(i64::MIN, WorkId::as_i64)))];
        values.extend(filter_values(&replay.filter));
        values.push(Value::Number(Some(i64::from(replay.limit))));
        let sql = only(&of_end(&self.inner.sql.find_dead, replay.ended), &replay.filter);
        let rows = self.read(&sql, values).await?;
        rows.iter().map(|row| get(row, 0)).collect()
    }

    /// Runs the steps for the ids, as one transaction; answers how many had still ended as they were found.
    async fn change(&self, ids: &[i64], steps: &[String]) -> Result<u64, StoreError> {
        if ids.is_empty() {
            return Ok(0);
        }
        let script: Vec<String> = ids
            .chunks(LIST_MAX)
            .flat_map(|ids| steps.iter().map(move |step| with_ids(step, ids.iter().copied())))
            .collect();
        let rows = self.transact(vec![script.join(";\n")]).await?;
        Ok(rows.iter().filter(|row| answers(row, "applied")).count() as u64)
    }
}

fn bind(query: Query<'_, MySql, MySqlArguments>, value: Value) -> Query<'_, MySql, MySqlArguments> {
    match value {
        Value::Number(number) => query.bind(number),
        Value::Bytes(bytes) => query.bind(bytes),
    }
}

/// Narrows a statement to the rows that the filter names.
fn only(sql: &str, filter: &Filter) -> String {
    if filter.work_ids.is_empty() {
        return sql.to_owned();
    }
    let lists: Vec<String> = filter
        .work_ids
        .chunks(LIST_MAX)
        .map(|ids| format!("`id` IN ({})", list(ids.iter().map(|id| id.as_i64()))))
        .collect();
    with_literal(sql, "TRUE /*only*/", &lists.join(" OR "))
}

/// The values of the filter's conditions; each is bound twice, once to ask whether it is set.
fn filter_values(filter: &Filter) -> Vec<Value> {
    let text = |text: &Option<String>| Value::Bytes(text.as_ref().map(|text| text.as_bytes().to_vec()));
    let age = |age: Option<Duration>| Value::Number(age.map(duration_micros));
    let texts = [&filter.topic, &filter.correlation_id, &filter.error_contains].map(text);
    let values = texts.into_iter().chain([filter.older_than, filter.newer_than].map(age));
    values.flat_map(|value| [value.clone(), value]).collect()
}
