//! The loops that talk to the store: they write verdicts and bring new messages, in one call where both are to be done.

use std::sync::Arc;

use pillarbox_core::lease::Claim;
use pillarbox_core::outbox::Settled;
use pillarbox_core::store::Exchanged;
use pillarbox_core::{Invalid, Message, Served, StoreError, key_hash};

use crate::breadth::{Breadth, Next};
use crate::clock::{Tick, dice};
use crate::config::UnknownTopics;
use crate::dispatcher::Engine;
use crate::queue::Path;
use crate::schedule::{Situation, Step};
use crate::settler::Batch;
use crate::telemetry::TARGET;
use crate::turns::Turn;

/// Follows the schedule. Ends only when it is dropped, which may happen at any await.
pub(crate) async fn run(engine: Arc<Engine>) {
    let mut turn = engine.turn();
    loop {
        match engine.step(engine.may_claim_at()) {
            Step::Claim => engine.claim_or_settle(&mut turn).await,
            Step::Settle => engine.settle_or_claim(&mut turn).await,
            Step::Wait(until) => {
                turn.give_back();
                engine.wait(until).await;
            }
        }
    }
}

impl Engine {
    /// Claims now, whatever the schedule says; how many messages came. None when there is no room for them.
    pub(crate) async fn poll_once(&self) -> Result<usize, StoreError> {
        let reserved = self.reserve(1);
        if reserved == 0 || self.is_closing() {
            self.give_back(Path::Cold, reserved);
            return Ok(0);
        }
        let mut call = CallGuard::new(self, reserved, Batch::default());
        self.know_first_pauses().await;
        let claim = self.claim_of(reserved)?;
        let leased_at = self.clock.now();
        let claimed = self.store.claim(claim).await?;
        let count = claimed.len();
        self.take_in(claimed, leased_at, call.take_room());
        Ok(count)
    }

    /// Writes everything that waits; what a failed call did not write waits on.
    pub(crate) async fn settle_now(&self) -> Result<(), StoreError> {
        while self.verdicts.is_waiting() {
            let batch = self.verdicts.take();
            let mut call = CallGuard::new(self, 0, batch);
            let answers = self.store.settle(self.owner, &call.batch.settlements).await?;
            self.settled(call.take_batch(), &answers);
        }
        Ok(())
    }

    /// A call that claimed nothing has written a batch.
    fn settled(&self, batch: Batch, answers: &[Settled]) {
        if batch.ends_run {
            self.calls.run_ended(false);
        }
        self.applied(batch, answers);
    }

    fn claim_of(&self, limit: usize) -> Result<Claim, Invalid> {
        let claim = Claim::new(self.owner, self.plan.config.lease, limit_of(limit))?;
        Ok(claim.in_order(self.plan.config.order).serving(self.served()).leaving_out(self.obedience.left_out()))
    }

    /// Routes that pause, and keys that are held, put claims off.
    fn may_claim_at(&self) -> Tick {
        let at = self.pauses.may_claim_at();
        let breadth = *self.breadth();
        match breadth.next(self.calls.is_claiming(), || self.holds_keys(), self.clock.now()) {
            Next::Now => at,
            Next::AfterThatClaim => Tick::NEVER,
            Next::AfterTheseKeys(until) => at.max(until),
        }
    }

    fn step(&self, may_claim_at: Tick) -> Step {
        let situation = Situation { has_verdicts: self.verdicts.is_waiting(), may_claim_at };
        self.schedule().step(self.clock.now(), situation)
    }

    /// Places in the cold queue for the next claim; few are not worth a call, and none are to be had while too many bytes are held.
    fn reserve(&self, least: usize) -> usize {
        let limit = usize::try_from(self.plan.config.claim_limit).unwrap_or(usize::MAX);
        match self.affordable(self.pauses.claim_limit(limit, self.clock.now())) {
            0 => 0,
            most => self.queue.reserve_cold(least, most),
        }
    }

    async fn claim_or_settle(&self, turn: &mut Turn) {
        self.take_turn(turn).await;
        let limit = usize::try_from(self.plan.config.claim_limit).unwrap_or(usize::MAX);
        let reserved = self.reserve(limit.min(self.plan.config.cold_capacity) / 2);
        if reserved == 0 {
            // Whoever makes room wakes a loop.
            return match self.step(Tick::NEVER) {
                Step::Settle => self.settle_call(turn).await,
                Step::Wait(until) => {
                    turn.give_back();
                    self.wait(until).await;
                }
                Step::Claim => {}
            };
        }
        let begun = self.schedule().begin_claim(self.clock.now());
        match begun {
            Some(number) => self.claim_call(number, reserved, turn).await,
            None => self.give_back(Path::Cold, reserved),
        }
    }

    /// Settles what there is. Where a run ends with it, what waits behind comes with the same call.
    async fn settle_or_claim(&self, turn: &mut Turn) {
        if self.verdicts.end_runs() {
            self.schedule().nudge();
            if self.step(self.may_claim_at()) == Step::Claim {
                return self.claim_or_settle(turn).await;
            }
        }
        self.settle_call(turn).await;
    }

    async fn claim_call(&self, number: u64, reserved: usize, turn: &mut Turn) {
        let mut call = CallGuard::new(self, reserved, self.verdicts.take());
        let leased_at = self.clock.now();
        match turn.call(self.exchange(&call.batch, reserved)).await {
            Ok(Exchanged { settled, claimed }) => {
                let (count, batch) = (claimed.len(), call.take_batch());
                let carried = !batch.is_empty();
                if batch.ends_run {
                    self.calls.run_ended(true);
                }
                if count == 0 {
                    self.calls.found_nothing();
                }
                turn.found(count > 0);
                self.applied(batch, &settled);
                let is_short = count < reserved;
                let holds_keys = is_short && self.holds_keys();
                let messages = claimed.iter().filter_map(|claimed| claimed.message.as_ref().ok());
                let keys = messages.filter_map(|message| self.lane_of(message));
                let now = self.clock.now();
                *self.breadth() = Breadth::after(keys, is_short, holds_keys, now, now.since(leased_at));
                self.take_in(claimed, leased_at, call.take_room());
                let (now, was_out) = (self.clock.now(), self.schedule().is_out());
                {
                    let mut schedule = self.schedule();
                    if carried {
                        schedule.settled(now, now.since(leased_at));
                    }
                    schedule.claimed(now, number, count, reserved, dice());
                }
                self.call_succeeded(was_out);
            }
            Err(error) => self.call_failed(&error, true),
        }
    }

    async fn exchange(&self, batch: &Batch, limit: usize) -> Result<Exchanged, StoreError> {
        self.know_first_pauses().await;
        let claim = self.claim_of(limit)?;
        if batch.is_empty() {
            return Ok(Exchanged { settled: Vec::new(), claimed: self.store.claim(claim).await? });
        }
        self.store.exchange(&batch.settlements, claim).await
    }

    /// The partitions to claim from; none when from all. Whoever leaves topics to others, may find its own at theirs.
    fn served(&self) -> Option<Served> {
        let leaves_some = self.plan.unknown_topics == UnknownTopics::Leave;
        if leaves_some { None } else { self.plan.member.served() }
    }

    /// Whether a message that waits in the store is claimed here.
    pub(crate) fn serves(&self, message: &Message) -> bool {
        let key = message.get_key().filter(|_| !self.plan.config.order.in_sequence);
        key.is_none_or(|key| self.served().is_none_or(|served| served.has(Some(key_hash(key)))))
    }

    async fn settle_call(&self, turn: &mut Turn) {
        self.take_turn(turn).await;
        let batch = self.verdicts.take();
        if batch.is_empty() {
            return;
        }
        let began = self.clock.now();
        self.schedule().begin_settle(began);
        let mut call = CallGuard::new(self, 0, batch);
        let answers = turn.call(self.store.settle(self.owner, &call.batch.settlements)).await;
        match answers {
            Ok(answers) => {
                self.settled(call.take_batch(), &answers);
                let (now, was_out) = (self.clock.now(), self.schedule().is_out());
                self.schedule().settled(now, now.since(began));
                self.call_succeeded(was_out);
            }
            Err(error) => self.call_failed(&error, false),
        }
    }

    fn call_succeeded(&self, was_out: bool) {
        if was_out {
            tracing::info!(target: TARGET, store = self.store.id().as_str(), "the store is back");
        }
        // Another loop may have something to do now: more to claim, or verdicts that waited for this call.
        self.wake_loop();
        self.tell_depths();
    }

    fn call_failed(&self, error: &StoreError, was_claim: bool) {
        let is_first = self.schedule().failed(self.clock.now(), was_claim, dice());
        if is_first {
            let store = self.store.id().as_str();
            tracing::error!(target: TARGET, %error, store, "the store is away: verdicts are kept, and tried again");
        }
    }

    /// The part of one loop in the turns of a fleet.
    pub(crate) fn turn(&self) -> Turn {
        Turn::new(self.store.id(), self.plan.turns.as_ref())
    }

    /// Waits for a turn. While the store is away its calls are probes, and keep nobody waiting.
    pub(crate) async fn take_turn(&self, turn: &mut Turn) {
        let is_out = self.schedule().is_out();
        if is_out { turn.give_back() } else { turn.take().await }
    }

    async fn wait(&self, until: Tick) {
        match self.clock.instant(until) {
            Some(instant) => {
                let _ = tokio::time::timeout_at(instant, self.loop_woken()).await;
            }
            None => self.loop_woken().await,
        }
    }
}

/// A call to the store. When it fails, or is dropped half-way, its verdicts and its room go back where they came from.
struct CallGuard<'a> {
    engine: &'a Engine,
    number: u64,
    reserved: usize,
    batch: Batch,
}

impl<'a> CallGuard<'a> {
    fn new(engine: &'a Engine, reserved: usize, batch: Batch) -> Self {
        Self { engine, number: engine.calls.begin(reserved > 0), reserved, batch }
    }

    /// The verdicts were written.
    fn take_batch(&mut self) -> Batch {
        std::mem::take(&mut self.batch)
    }

    /// The room is used now.
    fn take_room(&mut self) -> usize {
        std::mem::take(&mut self.reserved)
    }
}

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        if !self.batch.is_empty() {
            self.engine.verdicts.put_back(self.take_batch());
        }
        self.engine.give_back(Path::Cold, self.reserved);
        if self.engine.calls.owes_look(self.number) {
            self.engine.nudge();
        }
        self.engine.calls.end(self.number);
        self.engine.changed.notify_waiters();
    }
}

fn limit_of(reserved: usize) -> u32 {
    u32::try_from(reserved).unwrap_or(u32::MAX)
}
