//! How many instances serve a queue, as `status` and `top` show it.

use pillarbox::instance::STALE_AFTER_DEFAULT;
use pillarbox::message::HORIZON_MAX;
use pillarbox::schema::SchemaStatus;
use pillarbox::{OutboxStore, StoreError};
use serde_json::{Value, json};

/// Those that were heard of lately, and those that went silent without taking leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Instances {
    pub(crate) live: usize,
    pub(crate) stale: usize,
}

impl Instances {
    /// Counts; none where nobody keeps a list.
    pub(crate) async fn of(queue: &dyn OutboxStore) -> Result<Option<Self>, StoreError> {
        let Some(list) = queue.instances() else { return Ok(None) };
        if !matches!(list.check_schema().await?, SchemaStatus::Current(_)) {
            return Ok(None);
        }
        let all = list.live(HORIZON_MAX).await?;
        let live = all.iter().filter(|record| record.silent_for < STALE_AFTER_DEFAULT).count();
        Ok(Some(Self { live, stale: all.len() - live }))
    }

    /// `3 live, 1 stale`.
    pub(crate) fn words(self) -> String {
        match self {
            Self { live, stale: 0 } => format!("{live} live"),
            Self { live, stale } => format!("{live} live, {stale} stale"),
        }
    }

    pub(crate) fn as_json(self) -> Value {
        json!({ "live_count": self.live, "stale_count": self.stale })
    }
}
