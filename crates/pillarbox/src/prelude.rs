//! What most programs need: `use pillarbox::prelude::*;`.

pub use pillarbox_core::lease::Claim;
pub use pillarbox_core::retention::Retention;
pub use pillarbox_core::schema::SchemaPolicy;
pub use pillarbox_core::store::{Enqueue, Settlement, StoreOptions};
pub use pillarbox_core::{
    EnqueueIn, Message, MessageId, OutboxAdmin, OutboxStore, OwnerToken, SchemaAdmin, Settled, StoreError,
};

pub use crate::connect::Store;
