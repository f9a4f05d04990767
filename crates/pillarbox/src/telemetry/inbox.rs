//! What is observed of the deliveries to one inbox. What its runtime does is told in the same words as an outbox's.

use pillarbox_core::StoreId;
use pillarbox_core::inbox::{Admission, Incoming, Receipt, Received, Reception, Registered, Sighting};

use super::{
    ENQUEUED_TOTAL, INBOX_CONSUMED_TOTAL, INBOX_DUPLICATE_TOTAL, INBOX_IN_PROGRESS_TOTAL, INBOX_MISMATCH_TOTAL, TARGET,
};
use crate::meters::Counter;

/// What is observed of one inbox by one process.
#[derive(Debug)]
pub(crate) struct InboxTelemetry {
    store_id: StoreId,
    enqueued: Counter,
    consumed: Counter,
    duplicate: Counter,
    in_progress: Counter,
    mismatch: Counter,
}

impl InboxTelemetry {
    pub(crate) fn new(store_id: &StoreId) -> Self {
        let counter = |name| Counter::new(name, store_id.as_str(), None);
        Self {
            store_id: store_id.clone(),
            enqueued: counter(ENQUEUED_TOTAL),
            consumed: counter(INBOX_CONSUMED_TOTAL),
            duplicate: counter(INBOX_DUPLICATE_TOTAL),
            in_progress: counter(INBOX_IN_PROGRESS_TOTAL),
            mismatch: counter(INBOX_MISMATCH_TOTAL),
        }
    }

    /// Somebody asked about a message.
    pub(crate) fn sighted(&self, receipt: &Receipt, sighting: Sighting) {
        let found = sighting.before.map_or("unknown", pillarbox_core::InboxState::as_str);
        self.checked(receipt, found, sighting.is_processed());
        self.content(receipt, sighting.is_mismatch);
    }

    /// A consumer asked whether it may go on; answers what it was told.
    pub(crate) fn admitted(&self, receipt: &Receipt, admission: Admission) -> Registered {
        let found = match admission.registered {
            Registered::New => "new",
            Registered::Duplicate => "duplicate",
            Registered::InProgress => "in progress",
        };
        let is_processed = admission.registered == Registered::Duplicate;
        self.checked(receipt, found, is_processed);
        self.in_progress.add(usize::from(admission.registered == Registered::InProgress));
        self.content(receipt, admission.is_mismatch);
        admission.registered
    }

    /// The effects of a delivery are committed.
    pub(crate) fn consumed(&self) {
        self.consumed.add(1);
    }

    /// Deliveries are stored, and committed.
    pub(crate) fn received(&self, incoming: &[Incoming], received: &[Received]) {
        for (incoming, one) in incoming.iter().zip(received) {
            let (receipt, outcome) = (incoming.receipt(), outcome(one.outcome));
            let counter = match one.outcome {
                Reception::Queued | Reception::Replaced => &self.enqueued,
                Reception::Revised => &self.in_progress,
                Reception::Done => &self.duplicate,
            };
            counter.add(1);
            let (source, message_id, store) = (receipt.source(), receipt.message_id(), self.store_id.as_str());
            let topic = incoming.message().topic();
            tracing::info!(target: TARGET, topic, source, message_id, outcome, store, "received");
            self.content(receipt, one.is_mismatch);
        }
    }

    fn checked(&self, receipt: &Receipt, found: &str, is_processed: bool) {
        self.duplicate.add(usize::from(is_processed));
        let (source, message_id, store) = (receipt.source(), receipt.message_id(), self.store_id.as_str());
        tracing::debug!(target: TARGET, source, message_id, found, is_processed, store, "checked for a duplicate");
    }

    fn content(&self, receipt: &Receipt, is_mismatch: bool) {
        if is_mismatch {
            self.mismatch.add(1);
            let (source, message_id, store) = (receipt.source(), receipt.message_id(), self.store_id.as_str());
            tracing::warn!(target: TARGET, source, message_id, store, "a message came again with another content");
        }
    }
}

fn outcome(reception: Reception) -> &'static str {
    match reception {
        Reception::Queued => "queued",
        Reception::Replaced => "replaced",
        Reception::Revised => "revised",
        Reception::Done => "done",
    }
}
