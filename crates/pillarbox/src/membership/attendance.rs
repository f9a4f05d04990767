//! Says that the instance is there, looks who else is, and tells what that means.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use pillarbox_core::instance::{Comings, InstanceRecord, InstanceStore};
use pillarbox_core::retention::PurgeLimit;
use pillarbox_core::{Assignment, InstanceId, StoreError, assign};
use tokio::time::{Instant, sleep_until};

use super::lookout::{Place, Rumour};
use super::{Member, Membership};
use crate::clock::{dice, spread};
use crate::dispatcher::Engine;
use crate::telemetry::TARGET;

/// How long instances that never left stay on the list for an operator to see, and how often they are looked for.
const REMEMBER: Duration = Duration::from_secs(24 * 3600);
const FORGET_EVERY: Duration = Duration::from_secs(3600);

/// The part of the interval after which a failed heartbeat is repeated.
const AGAIN: u32 = 4;

/// The least time between two looks because of news: a wake-up may mean no more than that messages wait. And the time between two
/// looks where no news come.
const LOOK_GAP: Duration = Duration::from_secs(1);

/// Attends for as long as the runtime lives, and leaves when it is told to.
pub(crate) async fn run(engine: Arc<Engine>) {
    let member = Arc::clone(&engine.plan.member);
    let (Some(settings), Some(list)) = (&member.settings, engine.store.instances()) else { return };
    let place = engine.plan.turns.as_ref().map(|turns| turns.lookout.join(engine.store.id(), &member));
    let mut attendance = Attendance::new(&engine, &member, settings, list, place);
    loop {
        tokio::select! {
            biased;
            () = member.leaving.cancelled() => break,
            () = sleep_until(attendance.beat_at.min(attendance.look_at)) => attendance.act().await,
            () = member.news.notified() => attendance.hear(),
        }
    }
    attendance.leave().await;
    member.left.cancel();
}

struct Attendance<'e> {
    engine: &'e Engine,
    member: &'e Member,
    settings: &'e Membership,
    list: Arc<dyn InstanceStore>,
    /// The table is there, as far as the store's policy wants to know.
    is_open: bool,
    /// Heartbeats in a row that failed.
    failures: u32,
    heard_at: Option<Instant>,
    beat_at: Instant,
    looked_at: Instant,
    /// Far away unless somebody may have come or gone.
    look_at: Instant,
    forget_at: Instant,
    others: Vec<InstanceRecord>,
    /// Its place in a fleet.
    place: Option<Place<'e>>,
    /// What is said elsewhere and was not seen here yet, and for how long it is looked for.
    rumours: Vec<Rumour>,
    rumours_until: Instant,
}

impl<'e> Attendance<'e> {
    fn new(
        engine: &'e Engine,
        member: &'e Member,
        settings: &'e Membership,
        list: Arc<dyn InstanceStore>,
        place: Option<Place<'e>>,
    ) -> Self {
        let now = Instant::now();
        Self {
            engine,
            member,
            settings,
            list,
            is_open: false,
            failures: 0,
            heard_at: None,
            beat_at: now,
            looked_at: now,
            look_at: now + REMEMBER,
            forget_at: now + FORGET_EVERY.mul_f64(dice()),
            others: Vec::new(),
            place,
            rumours: Vec::new(),
            rumours_until: now,
        }
    }

    /// Does what is due.
    async fn act(&mut self) {
        let is_beat = self.beat_at <= Instant::now();
        let done = if is_beat { self.beat().await } else { self.look().await };
        let now = Instant::now();
        self.look_at = now + REMEMBER;
        match done {
            Ok(()) => self.succeeded(is_beat, now).await,
            Err(error) => self.failed(&error, now),
        }
        if self.is_open && self.forget_at <= now {
            self.forget_at = now + spread(FORGET_EVERY, dice());
            self.forget().await;
        }
    }

    /// Whether a look is due again soon: nobody tells of those who come and go, or something is said that was not seen here
    /// yet. In a fleet one store is looked at for all.
    fn is_watchful(&self, now: Instant) -> bool {
        let hears_nothing = !self.engine.schedule().has_wakeups();
        let watches = self.place.as_ref().is_none_or(Place::is_watchman);
        (hears_nothing && watches) || (!self.rumours.is_empty() && now < self.rumours_until)
    }

    /// Somebody may have come or gone: a look soon, and not one for every message.
    fn hear(&mut self) {
        let told = std::mem::take(&mut *self.member.rumours.lock().unwrap_or_else(PoisonError::into_inner));
        let me = self.settings.instance.id();
        if !told.is_empty() {
            self.rumours.extend(told.into_iter().filter(|rumour| rumour.id != me));
            // Whoever has not been seen by then may not serve this store.
            self.rumours_until = Instant::now() + self.settings.every.max(LOOK_GAP * 10);
        }
        self.look_at = self.look_at.min((self.looked_at + LOOK_GAP).max(Instant::now()));
    }

    async fn beat(&mut self) -> Result<(), StoreError> {
        if !self.is_open {
            self.list.apply_policy(self.engine.store.options().schema).await?;
            self.is_open = true;
        }
        self.list.heartbeat(&self.engine.introduced(&self.settings.instance)).await?;
        self.look().await
    }

    async fn look(&mut self) -> Result<(), StoreError> {
        let live = self.list.live(self.settings.stale_after).await?;
        self.looked_at = Instant::now();
        self.divide(live);
        Ok(())
    }

    async fn succeeded(&mut self, is_beat: bool, now: Instant) {
        if let Some(place) = &self.place {
            place.answers(true);
        }
        self.rumours.retain(|rumour| rumour.came != self.others.iter().any(|one| one.instance.id() == rumour.id));
        if self.is_watchful(now) {
            self.look_at = now + LOOK_GAP;
        }
        if self.failures > 0 {
            tracing::info!(target: TARGET, store = self.name(), failures = self.failures, "the instance is heard again");
        }
        self.failures = 0;
        if !is_beat {
            return;
        }
        let silence = self.heard_at.map(|heard_at| now - heard_at);
        if let Some(silence) = silence.filter(|silence| *silence > self.settings.stale_after) {
            tracing::warn!(
                target: TARGET, store = self.name(), ?silence,
                "the instance was silent for so long that others took its partitions; it is registered again"
            );
        }
        if self.heard_at.is_none() {
            self.tell_others().await;
        }
        self.heard_at = Some(now);
        self.beat_at = now + spread(self.settings.every, dice());
    }

    fn failed(&mut self, error: &StoreError, now: Instant) {
        if self.failures == 0 {
            tracing::warn!(target: TARGET, %error, store = self.name(), "the heartbeat failed; it is repeated");
        }
        self.failures = self.failures.saturating_add(1);
        if let Some(place) = &self.place {
            place.answers(false);
        }
        self.beat_at = now + spread(self.settings.every / AGAIN, dice());
    }

    /// Divides the partitions anew when somebody came or went, and publishes it.
    fn divide(&mut self, live: Vec<InstanceRecord>) {
        let comings = Comings::between(&self.others, &live);
        if comings == Comings::default() {
            return;
        }
        let mut ids: Vec<InstanceId> = live.iter().map(|record| record.instance.id()).collect();
        let me = self.settings.instance.id();
        // Its heartbeat was just written: it is there, whatever a slow list says.
        ids.push(me);
        let count = self.member.assignment.borrow().count();
        let after = assign(&ids, count, self.settings.ceiling);
        let before = self.member.publish(after.clone());
        // What others left may wait already.
        self.engine.nudge();
        self.others = live;
        self.log(&comings, &before, &after);
        if let Some(place) = self.place.as_ref().filter(|place| place.is_watchman()) {
            place.tell(&comings);
        }
    }

    fn log(&self, comings: &Comings, before: &Assignment, after: &Assignment) {
        let (store, me) = (self.name(), self.settings.instance.id());
        for (records, words) in [(&comings.joined, "an instance joined"), (&comings.left, "an instance is gone")] {
            for record in records {
                let instance = &record.instance;
                let (id, service, host, pid) = (instance.id(), instance.service(), instance.host(), instance.pid());
                tracing::info!(target: TARGET, store, %id, service, host, pid, "{words}");
            }
        }
        let (won, lost) = (after.won_since(before, me), before.won_since(after, me));
        let (owned, instances) = (after.partitions_of(me).count(), after.instances().len());
        tracing::info!(target: TARGET, store, instances, owned, won, lost, "partitions were divided anew");
    }

    /// Others need not wait for their next heartbeat, where the store can wake them.
    async fn tell_others(&self) {
        if let Err(error) = self.engine.store.wake_others().await {
            tracing::debug!(target: TARGET, %error, store = self.name(), "others were not woken; they look with their next heartbeat");
        }
    }

    async fn forget(&self) {
        let silent_for = self.settings.stale_after.max(REMEMBER);
        if let Err(error) = self.list.forget(silent_for, PurgeLimit::default()).await {
            tracing::debug!(target: TARGET, %error, store = self.name(), "long gone instances were not forgotten; tried again later");
        }
    }

    async fn leave(&self) {
        if !self.is_open {
            return;
        }
        match self.list.leave(self.settings.instance.id()).await {
            Ok(_) => self.tell_others().await,
            Err(error) => {
                let after = self.settings.stale_after;
                tracing::warn!(target: TARGET, %error, store = self.name(), ?after, "the instance could not leave; others wait for it");
            }
        }
    }

    fn name(&self) -> &str {
        self.engine.store.id().as_str()
    }
}
