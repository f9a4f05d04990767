//! Fleets of stores in memory, and a discovery that answers what a test says.

use std::sync::{Arc, Mutex};

use pillarbox::admin::{
    BlockedKey, Ended, Filter, Group, GroupBy, ListQuery, MessageName, Overview, Page, Replay, Replayed, StoredMessage,
    Tally,
};
use pillarbox::inbox::InboxOptions;
use pillarbox::prelude::*;
use pillarbox::schema::SchemaStatus;
use pillarbox::store::BoxFuture;
use pillarbox::{AnyInbox, Discovery, DiscoveryError, Fleet, FleetBuilder, StoreId, StorePlace};
use pillarbox_testing::MemoryStore;
use tokio::sync::mpsc;

use crate::support::{Pace, Watched, hushed, messages};

/// An outbox in memory under a name of its own.
pub(crate) fn memory_named(name: &str) -> Outbox<MemoryStore> {
    let store_id = Some(StoreId::new(name).unwrap());
    Outbox::new(MemoryStore::new(StoreOptions { store_id, ..StoreOptions::default() }))
}

/// A fleet that neither polls nor cleans up by itself: tests nudge.
pub(crate) fn quiet_fleet() -> FleetBuilder {
    hushed(Fleet::builder())
}

/// Watched stores with so many messages each, and a builder that serves them.
pub(crate) async fn watched(stores: &[(&str, usize)], pace: &Arc<Pace>) -> (FleetBuilder, Vec<Watched>) {
    let (mut builder, mut all) = (quiet_fleet(), Vec::new());
    for (name, count) in stores {
        let store = Watched::named(name, pace);
        if *count > 0 {
            store.memory.enqueue(Enqueue::pending(&messages("work", *count))).await.unwrap();
        }
        builder = builder.store(*name, &Outbox::new(store.clone()));
        all.push(store);
    }
    (builder, all)
}

/// A handler that tells which store each message came from.
pub(crate) fn telling<On>(builder: RuntimeBuilder<On>) -> (RuntimeBuilder<On>, mpsc::UnboundedReceiver<String>) {
    let (sender, told) = mpsc::unbounded_channel();
    let builder = builder.on_topic("work", move |cx: Context| {
        let sender = sender.clone();
        async move {
            let key = cx.routing_key().map(ToString::to_string).unwrap_or_default();
            sender.send(key)?;
            Ok(())
        }
    });
    (builder, told)
}

/// A discovery that answers what it was last told to, and counts how often it was asked.
#[derive(Clone)]
pub(crate) struct Listed(Arc<Mutex<List>>);

struct List {
    answer: Result<Vec<StorePlace>, String>,
    asked_count: usize,
}

impl Listed {
    pub(crate) fn new(places: Vec<StorePlace>) -> Self {
        Self(Arc::new(Mutex::new(List { answer: Ok(places), asked_count: 0 })))
    }

    pub(crate) fn answer(&self, answer: Result<Vec<StorePlace>, &str>) {
        self.0.lock().unwrap().answer = answer.map_err(ToOwned::to_owned);
    }

    pub(crate) fn asked_count(&self) -> usize {
        self.0.lock().unwrap().asked_count
    }
}

#[pillarbox::async_trait]
impl Discovery for Listed {
    async fn discover(&self) -> Result<Vec<StorePlace>, DiscoveryError> {
        let answer = {
            let mut listed = self.0.lock().unwrap();
            listed.asked_count += 1;
            listed.answer.clone()
        };
        match answer {
            Err(word) if word == "panic" => panic!("the test says so"),
            answer => answer.map_err(DiscoveryError::new),
        }
    }
}

/// The keys of a list, as texts.
pub(crate) fn names(keys: &[pillarbox::RoutingKey]) -> Vec<&str> {
    keys.iter().map(pillarbox::RoutingKey::as_str).collect()
}

impl Store for Watched {
    fn open_inbox(&self, _: InboxOptions) -> BoxFuture<'_, Result<Arc<dyn AnyInbox>, StoreError>> {
        Box::pin(std::future::ready(Err(StoreError::rejected("a watched store has no inbox"))))
    }
}

#[pillarbox::async_trait]
impl SchemaAdmin for Watched {
    async fn deploy_schema(&self) -> Result<u32, StoreError> {
        self.memory.deploy_schema().await
    }

    async fn check_schema(&self) -> Result<SchemaStatus, StoreError> {
        self.memory.check_schema().await
    }

    fn schema_script(&self) -> String {
        self.memory.schema_script()
    }
}

#[pillarbox::async_trait]
impl OutboxAdmin for Watched {
    async fn overview(&self) -> Result<Overview, StoreError> {
        self.memory.overview().await
    }

    async fn get(&self, name: MessageName) -> Result<Option<StoredMessage>, StoreError> {
        self.memory.get(name).await
    }

    async fn list(&self, query: &ListQuery) -> Result<Page, StoreError> {
        self.memory.list(query).await
    }

    async fn tally(&self, ended: Ended, filter: &Filter) -> Result<Tally, StoreError> {
        self.memory.tally(ended, filter).await
    }

    async fn group_dead(&self, by: GroupBy, filter: &Filter, limit: u32) -> Result<Vec<Group>, StoreError> {
        self.memory.group_dead(by, filter, limit).await
    }

    async fn replay(&self, replay: &Replay) -> Result<Replayed, StoreError> {
        self.memory.replay(replay).await
    }

    async fn delete(&self, filter: &Filter, limit: u32) -> Result<u64, StoreError> {
        self.memory.delete(filter, limit).await
    }

    async fn blocked_keys(&self, limit: u32) -> Result<Vec<BlockedKey>, StoreError> {
        self.memory.blocked_keys(limit).await
    }
}
