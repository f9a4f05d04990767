//! Plain data, pure decisions and the seams of Pillarbox.
//!
//! This crate knows no database driver, no network and no framework. It reads no clock and throws no dice
//! where something is decided: time, attempts and jitter come in as arguments. Only the names of things
//! ([`MessageId`], [`OwnerToken`], [`Fence`]) are drawn at random, because a name decides nothing.
//!
//! In reading order:
//!
//! | module | what it holds |
//! |---|---|
//! | [`id`] | names of messages, rows, owners, fences and stores |
//! | [`problem`] | what is wrong with an argument: field, limit, what was given |
//! | [`message`] | [`Message`] and its limits |
//! | [`parts`] | a message taken apart into columns, and put together again |
//! | [`outbox`] | states, verdicts and the one decision, [`decide`](outbox::decide) |
//! | [`route`] | which handler a message goes to |
//! | [`retry`] | how long to wait before the next attempt |
//! | [`lease`] | what a claim asks for, and when a lease is renewed, trusted or lost |
//! | [`order`] | messages of one key: one at a time, in order |
//! | [`floor`] | where a claim starts to look |
//! | [`clock`] | whether a database's clock was set |
//! | [`retention`] | what becomes of messages that are done |
//! | [`naming`] | validated names of schema and tables |
//! | [`error`] | [`StoreError`] and its three kinds |
//! | [`store`] | the seam that every backend fills, with its contract |
//! | [`admin`] | the seam for the operator |
//! | [`diagnosis`] | what is right and wrong around a store |
//! | [`schema`] | the seam for deploying and checking tables |
//! | [`subscription`] | the seam for messages that a broker delivers |
//! | [`transaction`] | the seam for transactions that a store begins for its user |
//! | [`inbox`] | the seam of the inbox, its receipts, and what another delivery of a message does |
//! | [`wake`] | the seam for wake-ups between processes |
//! | [`transport`] | the seam for the way to a broker |
//! | [`recall`] | what a broker still has of what it took |
//! | [`wire`] | what a message looks like on that way |
//! | [`template`] | where a message goes, written with the names of its fields |
//! | [`instance`] | who serves a queue now, and the seam of the list of them |
//! | [`pause`] | routes that an operator paused, and the seam of the list of them |
//! | [`progress`] | how far receptors and perspectives have come, and the seam of their tables |
//! | [`coordinator`] | one call for all of a worker's business with its database |
//! | [`partition`] | which partition a key belongs to, and which instance a partition |
//! | [`routing`] | the key by which one store among many is found |
//! | [`selection`] | which of many stores gets the next turn |
//! | [`discovery`] | the seam that says which stores there are, and what a new answer changes |

pub mod admin;
pub mod clock;
pub mod coordinator;
pub mod diagnosis;
pub mod discovery;
pub mod error;
pub mod floor;
pub mod id;
pub mod inbox;
pub mod instance;
pub mod lasting;
pub mod lease;
pub mod message;
pub mod naming;
pub mod order;
pub mod outbox;
pub mod partition;
pub mod parts;
pub mod pause;
pub mod problem;
pub mod progress;
pub mod recall;
pub mod retention;
pub mod retry;
pub mod route;
pub mod routing;
pub mod schema;
pub mod selection;
pub mod store;
pub mod subscription;
pub mod template;
pub mod transaction;
pub mod transport;
pub mod wake;
pub mod wire;

pub use admin::OutboxAdmin;
pub use coordinator::{QueueDone, QueueWork, WorkBatch, WorkDone};
pub use discovery::{Discovery, DiscoveryError, StorePlace};
pub use error::{ErrorKind, StoreError};
pub use id::{Fence, InstanceId, MessageId, OwnerToken, StoreId, WorkId};
pub use inbox::{Admission, ConsumeIn, InboxState, InboxStore, Incoming, Receipt, Registered, WithInbox};
pub use instance::{Instance, InstanceRecord, InstanceStore};
pub use message::{Limits, Message, TypeName};
pub use order::{AfterDead, Order};
pub use outbox::{AttemptEnd, Settled, State, Verdict, decide};
pub use partition::{Assignment, Partition, PartitionCount, Served, assign, key_hash, partition_of};
pub use pause::{LeftOut, Pause, PauseRecord, PauseStore};
pub use problem::{Invalid, Problem};
pub use progress::{Checkpoint, Outcome, ProgressStore, ReceptorResult, Recorded};
pub use recall::{Recall, Recalled};
pub use routing::RoutingKey;
pub use schema::SchemaAdmin;
pub use selection::Selection;
pub use store::{EnqueueIn, OutboxStore};
pub use subscription::{BrokerError, Delivered, Intaken, Subscription};
pub use template::Template;
pub use transaction::{
    CommitError, Coordinated, Isolation, ReceiveIn, Savepoint, StoreTransaction, Transactional, WorkTransaction,
};
pub use transport::{Checkup, Delivery, DeliveryResult, Parcel, Transport, Undelivered};
pub use wake::Wakeups;
pub use wire::WireFormat;
