//! One call for all of a worker's business with its database: what it finished, what it needs longer, what is new, and more work.

use std::time::Duration;

use crate::id::OwnerToken;
use crate::inbox::{Incoming, Received};
use crate::lease::{CLAIM_LIMIT_MAX, Claim, Held, Lease};
use crate::message::{Limits, Message};
use crate::order::Order;
use crate::outbox::{Settled, Verdict};
use crate::problem::{Invalid, Problem};
use crate::progress::{self, Checkpoint, ReceptorResult, Recorded};
use crate::store::{Claimed, Enqueued, SETTLE_MAX, Settlement};

/// The lease of a batch when nothing else is said.
pub const LEASE_DEFAULT: Duration = Duration::from_secs(300);

/// What is to be done, all of it or nothing.
///
/// What is asked for a message that is not held any more, was settled before or is named twice has no effect, is answered for
/// itself, and harms nothing else. Steps are done in the order of the fields of [`WorkDone`], claims last.
#[derive(Clone, Debug)]
pub struct WorkBatch {
    owner: OwnerToken,
    lease: Duration,
    order: Order,
    outbox: QueueWork,
    inbox: QueueWork,
    messages: Vec<Message>,
    incoming: Vec<Incoming>,
    receptors: Vec<ReceptorResult>,
    checkpoints: Vec<Checkpoint>,
}

impl WorkBatch {
    /// An empty batch of this worker, who settles and renews what it holds, and holds what it claims.
    pub fn new(owner: OwnerToken) -> Self {
        Self {
            owner,
            lease: LEASE_DEFAULT,
            order: Order::default(),
            outbox: QueueWork::default(),
            inbox: QueueWork::default(),
            messages: Vec::new(),
            incoming: Vec::new(),
            receptors: Vec::new(),
            checkpoints: Vec::new(),
        }
    }

    /// How long leases last that are claimed or renewed; [`LEASE_DEFAULT`] when nothing else is said.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// In which order messages are claimed.
    #[must_use]
    pub fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// What is to be done about messages of the outbox.
    #[must_use]
    pub fn outbox(mut self, work: QueueWork) -> Self {
        self.outbox = work;
        self
    }

    /// What is to be done about messages of the inbox's queue.
    #[must_use]
    pub fn inbox(mut self, work: QueueWork) -> Self {
        self.inbox = work;
        self
    }

    /// Stores a message in the outbox. Whoever claims it first has it: this very call, perhaps.
    #[must_use]
    pub fn enqueue(mut self, message: Message) -> Self {
        self.messages.push(message);
        self
    }

    /// Stores a message in the inbox's queue, unless the inbox knows it.
    #[must_use]
    pub fn receive(mut self, incoming: Incoming) -> Self {
        self.incoming.push(incoming);
        self
    }

    /// Stores what a receptor has made of a message.
    #[must_use]
    pub fn receptor(mut self, result: ReceptorResult) -> Self {
        self.receptors.push(result);
        self
    }

    /// Stores how far a perspective has come.
    #[must_use]
    pub fn checkpoint(mut self, checkpoint: Checkpoint) -> Self {
        self.checkpoints.push(checkpoint);
        self
    }

    /// Replaces each message that is to be stored in the outbox.
    #[must_use]
    pub fn map_messages(mut self, change: impl FnMut(Message) -> Message) -> Self {
        self.messages = self.messages.into_iter().map(change).collect();
        self
    }

    /// Checks everything, for queues with these limits, and reports all that is wrong before any I/O.
    pub fn check(&self, outbox: &Limits, inbox: &Limits) -> Result<(), Invalid> {
        let mut problems = Vec::new();
        let mut note = |checked: Result<(), Invalid>| {
            problems.extend(checked.err().iter().flat_map(|invalid| invalid.problems().to_vec()));
        };
        note(Lease::new(self.owner, self.lease).map(drop));
        for work in [&self.outbox, &self.inbox] {
            note(work.check());
        }
        note(outbox.check(&self.messages));
        note(Incoming::check_all(&self.incoming, inbox));
        progress::check_all(&self.receptors, &self.checkpoints, &mut problems);
        Invalid::unless_empty(problems)
    }

    /// Whose work it is.
    pub fn owner(&self) -> OwnerToken {
        self.owner
    }

    /// How long renewed leases last.
    pub fn get_lease(&self) -> Duration {
        self.lease
    }

    /// What is to be done about the outbox.
    pub fn outbox_work(&self) -> &QueueWork {
        &self.outbox
    }

    /// What is to be done about the inbox's queue.
    pub fn inbox_work(&self) -> &QueueWork {
        &self.inbox
    }

    /// New messages of the outbox.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// New messages of the inbox.
    pub fn incoming(&self) -> &[Incoming] {
        &self.incoming
    }

    /// What receptors have done.
    pub fn receptors(&self) -> &[ReceptorResult] {
        &self.receptors
    }

    /// How far perspectives have come.
    pub fn checkpoints(&self) -> &[Checkpoint] {
        &self.checkpoints
    }

    /// Whether anything is to be claimed.
    pub fn claims(&self) -> bool {
        self.outbox.claim_limit > 0 || self.inbox.claim_limit > 0
    }

    /// The claim that belongs to this part of the batch; none where nothing is to be claimed.
    pub fn claim_for(&self, work: &QueueWork) -> Result<Option<Claim>, Invalid> {
        match work.claim_limit {
            0 => Ok(None),
            limit => Ok(Some(Claim::new(self.owner, self.lease, limit)?.in_order(self.order))),
        }
    }
}

/// What is to be done about the messages of one queue.
#[derive(Clone, Debug, Default)]
pub struct QueueWork {
    settlements: Vec<Settlement>,
    renewals: Vec<Held>,
    claim_limit: u32,
}

impl QueueWork {
    /// Nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// The message is done.
    #[must_use]
    pub fn complete(self, held: Held) -> Self {
        self.settle(held, Verdict::Ack)
    }

    /// The message is dead, for this reason.
    #[must_use]
    pub fn fail(self, held: Held, reason: impl Into<String>) -> Self {
        self.settle(held, Verdict::Fail { reason: reason.into() })
    }

    /// The message is to be tried again after the delay; the attempt is spent.
    #[must_use]
    pub fn retry(self, held: Held, delay: Duration, reason: impl Into<String>) -> Self {
        self.settle(held, Verdict::Abandon { delay, reason: reason.into() })
    }

    /// The message was not really tried, and waits for the delay; the attempt is not spent.
    #[must_use]
    pub fn give_back(self, held: Held, delay: Duration) -> Self {
        self.settle(held, Verdict::Release { delay })
    }

    /// What [`decide`](crate::decide) says becomes of the message.
    #[must_use]
    pub fn settle(mut self, held: Held, verdict: Verdict) -> Self {
        self.settlements.push(Settlement { held, verdict });
        self
    }

    /// The message needs longer: its lease lasts for that of the batch from now.
    #[must_use]
    pub fn renew(mut self, held: Held) -> Self {
        self.renewals.push(held);
        self
    }

    /// Claims up to so many messages; none unless this is said.
    #[must_use]
    pub fn claim(mut self, limit: u32) -> Self {
        self.claim_limit = limit;
        self
    }

    /// Verdicts, in the order in which they were added.
    pub fn settlements(&self) -> &[Settlement] {
        &self.settlements
    }

    /// Leases to be renewed, in the order in which they were added.
    pub fn renewals(&self) -> &[Held] {
        &self.renewals
    }

    fn check(&self) -> Result<(), Invalid> {
        let mut problems = Vec::new();
        let claim_limit = usize::try_from(self.claim_limit).unwrap_or(usize::MAX);
        let claim_limit_max = usize::try_from(CLAIM_LIMIT_MAX).unwrap_or(usize::MAX);
        for (field, count, max) in [
            ("settlements", self.settlements.len(), SETTLE_MAX),
            ("renewals", self.renewals.len(), SETTLE_MAX),
            ("limit", claim_limit, claim_limit_max),
        ] {
            if count > max {
                problems.push(Problem::out_of_range(field, max as u64, format!("must be at most {max}, is {count}")));
            }
        }
        Invalid::unless_empty(problems)
    }
}

/// What became of a batch; each list answers in the order of what was asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkDone {
    /// What became of messages of the outbox.
    pub outbox: QueueDone,
    /// What became of messages of the inbox's queue.
    pub inbox: QueueDone,
    /// Where the new messages of the outbox stand.
    pub enqueued: Vec<Enqueued>,
    /// What the inbox made of its new messages.
    pub received: Vec<Received>,
    /// Results of receptors.
    pub receptors: Vec<Recorded>,
    /// Checkpoints of perspectives.
    pub checkpoints: Vec<Recorded>,
}

/// What became of the messages of one queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueDone {
    /// Verdicts.
    pub settled: Vec<Settled>,
    /// Renewals.
    pub renewed: Vec<Settled>,
    /// New work, held by the batch's owner from now on.
    pub claimed: Vec<Claimed>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{Fence, MessageId, WorkId};
    use crate::inbox::Receipt;
    use crate::progress::{Outcome, PROGRESS_MAX};

    fn held() -> Held {
        Held { work_id: WorkId::from_i64(1), fence: Fence::from_i64(1) }
    }

    fn fields(batch: &WorkBatch) -> Vec<&'static str> {
        let limits = Limits::default();
        let problems = batch.check(&limits, &limits).err();
        problems.iter().flat_map(Invalid::problems).map(Problem::field).collect()
    }

    /// WRK-01: everything that is wrong is named at once, before any I/O.
    #[test]
    fn every_problem_of_a_batch_is_named_at_once() {
        let owner = OwnerToken::new();
        assert_eq!(fields(&WorkBatch::new(owner)), [""; 0]);
        let full = QueueWork::new().claim(CLAIM_LIMIT_MAX);
        assert_eq!(fields(&WorkBatch::new(owner).outbox(full.clone()).inbox(full)), [""; 0]);
        let too_much = (0..=SETTLE_MAX)
            .fold(QueueWork::new().claim(CLAIM_LIMIT_MAX + 1), |work, _| work.complete(held()).renew(held()));
        let batch = WorkBatch::new(owner)
            .lease(Duration::ZERO)
            .outbox(too_much.clone())
            .inbox(too_much)
            .enqueue(Message::new("", ""))
            .receive(Incoming::new(Receipt::new("", "1"), Message::new("topic", "")));
        let mut expected = vec!["lease"];
        expected.extend(["settlements", "renewals", "limit"].repeat(2));
        expected.extend(["topic", "source"]);
        assert_eq!(fields(&batch), expected);
    }

    /// WRK-11.
    #[test]
    fn records_are_bounded() {
        let result = ReceptorResult { message_id: MessageId::new(), receptor: "mail".into(), outcome: Outcome::Done };
        let add = |batch: WorkBatch, _| batch.receptor(result.clone());
        assert_eq!(fields(&(0..=PROGRESS_MAX).fold(WorkBatch::new(OwnerToken::new()), add)), ["receptors"]);
    }
}
