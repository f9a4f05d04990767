//! The transactional outbox for Rust services: a message is stored by the transaction that changes the data it tells
//! about, and handed out later, under a lease, until somebody acknowledges it.
//!
//! ```
//! use std::time::Duration;
//! use pillarbox::prelude::*;
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize)]
//! struct OrderCreated { id: i64 }
//! impl Event for OrderCreated { const TOPIC: &str = "order.created"; }
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let url = format!("sqlite:{}", folder.path().join("shop.db").display());
//! let outbox = Outbox::sqlite(&url).await?;
//! # sqlx::query("create table orders (id integer primary key)").execute(outbox.store().pool()).await?;
//! let runtime = Runtime::builder(&outbox)
//!     .on(async |order: Payload<OrderCreated>, cx: Context| {
//!         println!("order {} in attempt {}", order.id, cx.attempt()); // any error: retried with backoff
//!         Ok(())
//!     })
//!     .start()
//!     .await?;
//!
//! let mut tx = outbox.begin().await?;
//! sqlx::query("insert into orders (id) values (1)").execute(tx.conn()).await?;
//! tx.enqueue(OrderCreated { id: 1 }).await?;
//! tx.commit().await?; // the order and its message, or neither; handled a moment later
//!
//! # runtime.idle().await;
//! # assert_eq!(outbox.store().overview().await?.total().done, 1);
//! runtime.shutdown(Duration::from_secs(5)).await; // drains, and gives the rest back
//! # Ok(())
//! # }
//! ```
//!
//! # Map
//!
//! | where | what |
//! |---|---|
//! | [`prelude`] | what most programs need, in one line |
//! | [`Outbox`], [`Tx`] | where messages are enqueued, and the transaction that does it |
//! | [`Inbox`] | where messages come in, and take effect once |
//! | [`Intake`], [`Subscription`], [`Bridge`] | from a broker, or another outbox, into the inbox |
//! | [`Coordinator`] | a worker's own loop: one atomic call for what is done, what is new and what comes next |
//! | [`Runtime`] | handles messages in this process; [`Inline`] does so in the caller's task |
//! | [`Fleet`], [`Router`] | one runtime over many stores, and each of them by its key; [`Tenants`], [`SqliteFiles`] find them |
//! | [`event`] | typed messages: a type that knows its topic |
//! | [`RuntimeBuilder`], [`Route`] | which handler gets which messages, and how much of the runtime |
//! | [`handler`], [`extract`], [`batch`], [`InTx`] | what handlers are, and what they can take |
//! | [`relay`], [`Bus`] | messages that go on to a broker, and where each kind goes, said once |
//! | [`Failure`], [`Handled`], [`Interceptor`] | what handlers say, and what runs around them |
//! | [`Stats`], [`ShutdownReport`], [`signal`] | what a runtime does, and how it ends |
//! | [`telemetry`], [`trace`] | what can be observed, and how traces go on |
//! | [`connect`] | a store from its address, whatever the database: for tools, workers and administration |
#![cfg_attr(feature = "sqlite", doc = "| [`sqlite`] | [`SqliteStore`](sqlite::SqliteStore) |")]
#![cfg_attr(feature = "postgres", doc = "| [`postgres`] | [`PostgresStore`](postgres::PostgresStore) |")]
#![cfg_attr(feature = "mysql", doc = "| [`mysql`] | [`MysqlStore`](mysql::MysqlStore), for MySQL and MariaDB |")]
//! | [`message`], [`outbox`], [`retry`], [`lease`], [`retention`] | plain data and pure decisions |
//! | [`progress`] | how far receptors and perspectives have come |
//! | [`pause`] | routes that an operator paused |
//! | [`this_process`], [`instance`], [`partition`] | one of many instances: who is there, and which partitions are whose |
//! | [`store`], [`admin`], [`schema`] | the seams that every backend fills, with their contracts |
//! | [`naming`], [`id`], [`problem`], [`error`] | names, and what can be wrong |
//!
//! # Features
//!
//! `sqlite` (on unless switched off), `postgres`, `mysql`: one per backend, each with its driver. `metrics` (on unless
//! switched off): counters, gauges and histograms through the facade of that name. `webhook`: signed webhooks into the inbox.
//! `amqp`, `http`, `kafka`, `lines`, `mqtt`, `nats`, `rabbitmq`, `redis`: one per broker, each with its client.
//! `tokio-postgres`, `diesel-async`, `sea-orm`: [`Outbox::enqueue`] takes the transactions of these clients, too.
//!
//! What a new backend needs beyond this is in `pillarbox-core`, and the suite that proves it in `pillarbox-testing`.

mod attempt;
mod ballast;
pub mod batch;
mod breadth;
mod breaker;
mod bridge;
mod builder;
mod bus;
mod calls;
mod clock;
mod config;
mod connect;
mod connections;
mod context;
mod coordinator;
mod crew;
mod dispatcher;
mod due;
pub mod event;
mod expiry;
pub mod extract;
mod failure;
mod fleet;
mod flight;
pub mod handler;
mod hot_path;
mod housekeeping;
pub mod inbox;
mod inline;
mod intake;
mod interceptor;
mod lasting;
mod listener;
mod membership;
mod meters;
mod nudge;
mod obedience;
pub mod outbox;
mod pauses;
mod plan;
mod poller;
pub mod prelude;
mod queue;
pub mod relay;
mod renewer;
mod route;
mod router;
mod run;
mod runtime;
mod schedule;
mod settler;
mod shutdown;
pub mod signal;
mod stats;
pub mod telemetry;
pub mod trace;
mod transactional;
mod turns;
mod tx;
mod worker;

pub use batch::{Batch, BatchOutcome};
pub use bridge::Bridge;
pub use builder::{OneStore, RuntimeBuilder};
pub use bus::{Bus, BusBuilder, SendError, Sent, Via};
pub use config::UnknownTopics;
pub use connect::{AnyInbox, Backend, Store, connect};
pub use context::Context;
pub use coordinator::{Coordinator, WorkError};
pub use event::{Event, EventError, IntoMessage};
pub use extract::Payload;
pub use failure::{Failure, FailureKind, Handled, HandlerResult};
pub use fleet::{Fleet, FleetBuilder, FleetStats, ManyStores, RefreshError, Refreshed, Served, SqliteFiles, Tenants};
pub use handler::{Handler, MessageHandler};
pub use inbox::{ConsumeError, Consumed, Inbox, RoutedInbox};
pub use inline::{Drained, Inline};
pub use intake::{Intake, IntakeOptions, IntakeStats};
pub use interceptor::Interceptor;
pub use membership::this_process;
pub use outbox::Outbox;
pub use route::{HandledRoute, Route};
pub use router::{RouteError, Router};
pub use runtime::{Runtime, StartError};
pub use shutdown::ShutdownReport;
pub use stats::Stats;
pub use transactional::InTx;
pub use tx::Tx;

/// Writes the traits of this crate with `async fn`s: `#[pillarbox::async_trait]`.
pub use async_trait::async_trait;
/// Tells a handler to stop; an extractor.
pub use tokio_util::sync::CancellationToken;

pub use pillarbox_core::route::{RouteTable, Selector};
pub use pillarbox_core::{
    AfterDead, Assignment, AttemptEnd, BrokerError, Checkpoint, Checkup, CommitError, ConsumeIn, Coordinated,
    Delivered, Delivery, DeliveryResult, Discovery, DiscoveryError, EnqueueIn, ErrorKind, Fence, InboxStore, Incoming,
    Instance, InstanceId, InstanceStore, Intaken, Invalid, Isolation, Limits, Message, MessageId, OutboxAdmin,
    OutboxStore, Outcome, OwnerToken, Parcel, Partition, PartitionCount, Pause, PauseRecord, PauseStore, Problem,
    ProgressStore, QueueDone, QueueWork, Recall, Recalled, Receipt, ReceptorResult, Recorded, RoutingKey, SchemaAdmin,
    Selection, Settled, StoreError, StoreId, StorePlace, Subscription, Template, Transactional, Transport, TypeName,
    Undelivered, Verdict, WithInbox, WorkBatch, WorkDone, WorkId, decide,
};
pub use pillarbox_core::{
    admin, diagnosis, error, id, instance, lease, message, naming, order, partition, pause, problem, progress,
    retention, retry, schema, store, template, transport, wire,
};

#[cfg(feature = "mysql")]
pub use pillarbox_mysql as mysql;
#[cfg(feature = "postgres")]
pub use pillarbox_postgres as postgres;
#[cfg(feature = "sqlite")]
pub use pillarbox_sqlite as sqlite;
#[cfg(feature = "transports")]
pub use pillarbox_transports as transports;
#[cfg(feature = "webhook")]
pub use pillarbox_webhook as webhook;

/// Compiles and runs what the README shows.
#[cfg(all(doctest, feature = "sqlite"))]
#[doc = include_str!("../../../README.md")]
struct Readme;
