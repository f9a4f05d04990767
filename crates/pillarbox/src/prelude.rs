//! What most programs need: `use pillarbox::prelude::*;`.

pub use pillarbox_core::lease::Claim;
pub use pillarbox_core::retention::Retention;
pub use pillarbox_core::schema::SchemaPolicy;
pub use pillarbox_core::store::{Enqueue, Settlement, StoreOptions};
pub use pillarbox_core::{
    AfterDead, EnqueueIn, InboxStore, Incoming, Isolation, Message, MessageId, OutboxAdmin, OutboxStore, OwnerToken,
    Receipt, SchemaAdmin, Settled, StoreError, TypeName,
};

pub use serde::{Deserialize, Serialize};

pub use crate::batch::{Batch, BatchOutcome};
pub use crate::builder::RuntimeBuilder;
pub use crate::connect::Store;
pub use crate::context::Context;
pub use crate::event::Event;
pub use crate::extract::{Attempt, Headers, Meta, Payload, Raw, State};
pub use crate::failure::{Failure, Handled, HandlerResult};
pub use crate::inbox::{Consumed, Inbox};
pub use crate::outbox::Outbox;
pub use crate::route::Route;
pub use crate::runtime::Runtime;
pub use crate::transactional::InTx;
pub use crate::tx::Tx;
pub use tokio_util::sync::CancellationToken;
