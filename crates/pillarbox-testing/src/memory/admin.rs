//! The operator's seam, filled from memory.

use std::collections::BTreeMap;
use std::time::SystemTime;

use async_trait::async_trait;
use pillarbox_core::admin::{
    BlockedKey, Counts, Ended, Filter, Group, GroupBy, ListQuery, MessageName, OutboxAdmin, Overview, Page, Replay,
    Replayed, StoredMessage, Tally, TopicCounts,
};
use pillarbox_core::parts::count_replay;
use pillarbox_core::{AfterDead, StoreError, WorkId};

use super::outbox::Outbox;
use super::row::{Place, Row};
use super::store::MemoryStore;

#[async_trait]
impl OutboxAdmin for MemoryStore {
    async fn overview(&self) -> Result<Overview, StoreError> {
        self.call(|outbox, now| overview(outbox, now))
    }

    async fn get(&self, name: MessageName) -> Result<Option<StoredMessage>, StoreError> {
        self.call(|outbox, _| {
            let row = match name {
                MessageName::Work(id) => outbox.row(id),
                MessageName::Message(id) => outbox.row_of(id),
            };
            row.map(Row::stored)
        })
    }

    async fn list(&self, query: &ListQuery) -> Result<Page, StoreError> {
        query.filter.validate(query.limit)?;
        self.call(|outbox, now| {
            let found = outbox
                .rows()
                .filter(|row| row.state() == query.state && query.after.is_none_or(|after| row.id > after))
                .filter(|row| matches(row, &query.filter, now))
                .take(query.limit as usize + 1)
                .map(Row::stored)
                .collect();
            Page::from_overfull(found, query.limit)
        })
    }

    async fn tally(&self, ended: Ended, filter: &Filter) -> Result<Tally, StoreError> {
        filter.validate(1)?;
        self.call(|outbox, now| {
            let instants: Vec<_> = matching(outbox, ended, filter, now).map(Row::since).collect();
            let all = outbox.rows().filter(|row| row.state() == ended.state() && matches(row, filter, now)).count();
            Tally {
                count: instants.len() as u64,
                oldest: instants.iter().min().copied(),
                newest: instants.iter().max().copied(),
                receipt_count: (all - instants.len()) as u64,
            }
        })
    }

    async fn group_dead(&self, by: GroupBy, filter: &Filter, limit: u32) -> Result<Vec<Group>, StoreError> {
        filter.validate(limit)?;
        self.call(|outbox, now| {
            let mut counts = BTreeMap::<(&str, Option<&str>), u64>::new();
            for row in matching(outbox, Ended::Dead, filter, now) {
                let error = row.last_error.as_deref().filter(|_| by == GroupBy::Error);
                *counts.entry((row.message.topic(), error)).or_default() += 1;
            }
            let group = |((topic, error), count): ((&str, Option<&str>), u64)| Group {
                topic: topic.to_owned(),
                error: error.map(str::to_owned),
                count,
            };
            let mut groups: Vec<_> = counts.into_iter().map(group).collect();
            groups.sort_by_key(|group| std::cmp::Reverse(group.count));
            groups.truncate(limit as usize);
            groups
        })
    }

    async fn replay(&self, replay: &Replay) -> Result<Replayed, StoreError> {
        replay.validate()?;
        self.call(|outbox, now| {
            let found = matching(outbox, replay.ended, &replay.filter, now);
            let found = found.map(|row| row.id).filter(|id| replay.after.is_none_or(|after| *id > after));
            let ids: Vec<WorkId> = found.take(replay.limit as usize).collect();
            for row in outbox.rows_mut().filter(|row| ids.contains(&row.id)) {
                row.attempts = 0;
                row.lost_lease_count = 0;
                row.due_at = None;
                row.expires_at = None;
                row.headers = count_replay(row.headers.as_deref());
                row.put_back();
            }
            Replayed { count: ids.len() as u64, last: ids.last().copied() }
        })
    }

    async fn delete(&self, filter: &Filter, limit: u32) -> Result<u64, StoreError> {
        filter.validate(limit)?;
        self.call(|outbox, now| {
            let found = matching(outbox, Ended::Dead, filter, now).map(|row| row.id);
            let ids: Vec<WorkId> = found.take(limit as usize).collect();
            for id in &ids {
                outbox.remove(*id);
            }
            ids.len() as u64
        })
    }

    async fn blocked_keys(&self, limit: u32) -> Result<Vec<BlockedKey>, StoreError> {
        Filter::check_limit(limit)?;
        self.call(|outbox, _| blocked(outbox, limit as usize))
    }
}

fn blocked(outbox: &Outbox, limit: usize) -> Vec<BlockedKey> {
    let mut blocked = Vec::<BlockedKey>::new();
    for row in outbox.rows() {
        let Some(key) = row.message.get_key() else { continue };
        let is_waiting = row.is_live() || matches!(row.place, Place::Waiting { .. });
        match blocked.iter_mut().find(|known| known.key == key) {
            Some(known) => known.waiting_count += u64::from(is_waiting),
            None if row.holds_back(AfterDead::Block) => blocked.push(BlockedKey {
                key: key.to_owned(),
                head: row.id,
                state: row.state(),
                last_error: row.last_error.clone(),
                due_at: row.due_at.filter(|_| is_waiting),
                waiting_count: 0,
            }),
            None => {}
        }
    }
    blocked.into_iter().filter(|known| known.waiting_count > 0).take(limit).collect()
}

fn overview(outbox: &Outbox, now: SystemTime) -> Overview {
    let mut topics: BTreeMap<&str, Counts> = BTreeMap::new();
    let mut overview = Overview::default();
    for row in outbox.rows() {
        *topics.entry(row.message.topic()).or_default().of_mut(row.state()) += 1;
        match row.place {
            Place::Leased { .. } if row.is_held(now) => overview.active_lease_count += 1,
            Place::Leased { .. } => overview.expired_lease_count += 1,
            Place::Free | Place::Waiting { .. } if row.is_due(now) && !row.is_expired(now) => {
                let waited = now.duration_since(row.due_at.unwrap_or(row.created_at)).unwrap_or_default();
                overview.oldest_pending = overview.oldest_pending.max(Some(waited));
            }
            _ => {}
        }
    }
    overview.topics =
        topics.into_iter().map(|(topic, counts)| TopicCounts { topic: topic.to_owned(), counts }).collect();
    overview
}

/// What can be replayed or deleted: a receipt cannot.
fn matching<'a>(
    outbox: &'a Outbox,
    ended: Ended,
    filter: &'a Filter,
    now: SystemTime,
) -> impl Iterator<Item = &'a Row> {
    let is_whole = |row: &Row| !matches!(row.place, Place::Done { is_receipt: true, .. });
    outbox.rows().filter(move |row| row.state() == ended.state() && is_whole(row) && matches(row, filter, now))
}

fn matches(row: &Row, filter: &Filter, now: SystemTime) -> bool {
    let age = now.duration_since(row.since()).unwrap_or_default();
    let contains = |text: &str| row.last_error.as_ref().is_some_and(|error| error.contains(text));
    (filter.work_ids.is_empty() || filter.work_ids.contains(&row.id))
        && filter.topic.as_ref().is_none_or(|topic| topic == row.message.topic())
        && filter.correlation_id.as_deref().is_none_or(|id| row.message.get_correlation_id() == Some(id))
        && filter.error_contains.as_deref().is_none_or(contains)
        && filter.older_than.is_none_or(|limit| age > limit)
        && filter.newer_than.is_none_or(|limit| age < limit)
}
