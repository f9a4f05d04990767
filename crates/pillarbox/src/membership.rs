//! One of many: what an instance was told about itself, and which partitions are its own.

use std::num::NonZeroU32;
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::Duration;

use pillarbox_core::instance::{HEARTBEAT_DEFAULT, STALE_AFTER_DEFAULT};
use pillarbox_core::{Assignment, Instance, Invalid, OutboxStore, PartitionCount, Problem, Served};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::builder::RuntimeBuilder;
use crate::config::{INTERVAL_MAX, count_within, time_within};
use crate::runtime::Runtime;
use lookout::Rumour;

pub(crate) mod attendance;
pub(crate) mod lookout;

/// This process as an instance of a service: with the machine's name and the number of the process.
///
/// ```
/// let instance = pillarbox::this_process("orders").version(env!("CARGO_PKG_VERSION")).metadata("zone", "eu-west-1a");
/// assert_eq!(instance.pid(), std::process::id());
/// ```
pub fn this_process(service: impl Into<String>) -> Instance {
    let named = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let named = named.or_else(|| std::env::var("HOSTNAME").ok()).or_else(|| std::env::var("COMPUTERNAME").ok());
    let host: String =
        named.unwrap_or_default().trim().chars().take(pillarbox_core::instance::NAME_CHARS_MAX).collect();
    Instance::new(service, if host.is_empty() { "unknown".to_owned() } else { host }, std::process::id())
}

/// What a builder was told.
#[derive(Clone, Debug, Default)]
pub(crate) struct MembershipDraft {
    instance: Option<Instance>,
    heartbeat: Option<(Duration, Duration)>,
    partition_count: Option<u32>,
    partitions_max: Option<u32>,
}

/// The same, checked.
#[derive(Clone, Debug)]
pub(crate) struct Membership {
    pub(crate) instance: Instance,
    pub(crate) every: Duration,
    pub(crate) stale_after: Duration,
    pub(crate) ceiling: Option<NonZeroU32>,
}

/// One of many instances. Off unless [`instance`](Self::instance) is called: then nothing is registered, asked or stored.
impl<On> RuntimeBuilder<On> {
    /// Registers this instance in a list beside the queue, says again and again that it is there, and divides the partitions of
    /// the queue's keys among all that are: see [`Runtime::assignment`].
    ///
    /// Messages with a key are claimed by the instance that owns the partition of their key; what nobody owns, and whatever has
    /// no key, by all. So all instances of a queue should handle the same topics: one that
    /// [leaves](crate::UnknownTopics::Leave) some to others claims from every partition, and so should those others. Where
    /// [everything is in sequence](Self::in_sequence), partitions have no effect.
    ///
    /// The list is a table of its own, which the first instance deploys if the store deploys its tables; otherwise
    /// `pillarbox migrate --instances` does. An instance that ends by [`Runtime::shutdown`] is off the list at once, others are when
    /// they have been silent for too long. Where no wake-ups are heard, as on any database but PostgreSQL, the rest look for who came
    /// or went every second: until then its keys wait. A fleet looks so at one of its stores for all of them; whoever does not
    /// serve that one is missed with the next heartbeat.
    pub fn instance(mut self, instance: Instance) -> Self {
        self.membership.instance = Some(instance);
        self
    }

    /// How often the instance says that it is there, and for how long others may be silent before they are taken for gone;
    /// 10 s and 60 s unless set. Best the same for all instances of a queue.
    ///
    /// The second must be more than twice the first, so that one heartbeat that got lost changes nothing.
    pub fn heartbeat(mut self, every: Duration, stale_after: Duration) -> Self {
        self.membership.heartbeat = Some((every, stale_after));
        self
    }

    /// Into how many partitions the keys are divided; 1024 unless set. The same for all instances of a queue.
    pub fn partition_count(mut self, count: u32) -> Self {
        self.membership.partition_count = Some(count);
        self
    }

    /// How many partitions this instance should own at the most; no limit unless set. The same for all instances of a queue.
    ///
    /// Where all together could then not serve every partition, the limit is raised for all alike.
    pub fn partitions_max(mut self, count: u32) -> Self {
        self.membership.partitions_max = Some(count);
        self
    }
}

impl Runtime {
    /// Which partitions belong to which instance, as this one sees it; changes are published.
    ///
    /// Nothing is known before the first heartbeat, and nothing ever where [`RuntimeBuilder::instance`] was not called. What
    /// nobody is known to own everybody [serves](Assignment::serves). It is advice: instances learn of each other at different
    /// moments, so that two may own a partition for a while, or nobody. No message depends on it.
    pub fn assignment(&self) -> watch::Receiver<Assignment> {
        self.inner.engine.plan.member.assignment.subscribe()
    }
}

impl MembershipDraft {
    /// Checks everything, also whether the store can keep a list of instances.
    pub(crate) fn check(&self, store: Option<&dyn OutboxStore>) -> Result<Member, Invalid> {
        let mut problems = Vec::new();
        let (every, stale_after) = self.heartbeat.unwrap_or((HEARTBEAT_DEFAULT, STALE_AFTER_DEFAULT));
        time_within("heartbeat", every, Duration::from_millis(1), INTERVAL_MAX, &mut problems);
        if stale_after <= every.saturating_mul(2) || stale_after > INTERVAL_MAX {
            let complaint = format!("must be more than twice the heartbeat, and at most {INTERVAL_MAX:?}");
            problems.push(Problem::out_of_range("stale_after", INTERVAL_MAX.as_secs(), complaint));
        }
        let count = self.partition_count.map_or(Ok(PartitionCount::default()), PartitionCount::new);
        let partitions_max = self.partitions_max.map(|max| usize::try_from(max).unwrap_or(usize::MAX));
        let ceiling_max = usize::try_from(PartitionCount::MAX).unwrap_or(usize::MAX);
        count_within("partitions_max", partitions_max.unwrap_or(1), 1, ceiling_max, &mut problems);
        match &self.instance {
            Some(instance) => {
                if let Err(invalid) = instance.validate() {
                    problems.extend_from_slice(invalid.problems());
                }
                if store.is_some_and(|store| store.instances().is_none()) {
                    problems
                        .push(Problem::malformed("instance", "cannot be registered: the store keeps no list of them"));
                }
            }
            None if self.heartbeat.is_some() || self.partition_count.is_some() || partitions_max.is_some() => {
                problems.push(Problem::malformed("instance", "must be named where heartbeats or partitions are set"));
            }
            None => {}
        }
        problems.extend(count.as_ref().err().into_iter().flat_map(|invalid| invalid.problems().to_vec()));
        Invalid::unless_empty(problems)?;
        let ceiling = self.partitions_max.and_then(NonZeroU32::new);
        let settings = self.instance.clone().map(|instance| Membership { instance, every, stale_after, ceiling });
        Ok(Member::new(settings, count?))
    }
}

/// An instance among others, or one that is alone because nobody said otherwise.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) settings: Option<Membership>,
    pub(crate) assignment: watch::Sender<Assignment>,
    /// What follows from it for this instance; none as long as it serves everything.
    served: RwLock<Option<Served>>,
    /// Somebody may have come or gone.
    pub(crate) news: Notify,
    /// What was seen of instances at another store of the fleet.
    rumours: Mutex<Vec<Rumour>>,
    /// The runtime ends.
    leaving: CancellationToken,
    /// It is off the list, or could not be taken off.
    left: CancellationToken,
}

impl Member {
    fn new(settings: Option<Membership>, count: PartitionCount) -> Self {
        let (leaving, left) = (CancellationToken::new(), CancellationToken::new());
        if settings.is_none() {
            left.cancel();
        }
        let assignment = watch::Sender::new(Assignment::unknown(count));
        let (served, news, rumours) = (RwLock::default(), Notify::new(), Mutex::default());
        Self { settings, assignment, served, news, rumours, leaving, left }
    }

    /// From which partitions the instance claims; none when from all.
    pub(crate) fn served(&self) -> Option<Served> {
        self.served.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Puts a new assignment in place of the one before, which it answers.
    fn publish(&self, after: Assignment) -> Assignment {
        let me = self.settings.as_ref().map(|settings| settings.instance.id());
        let is_alone = after.instances().len() < 2;
        let served = me.filter(|_| !is_alone).map(|me| Served::by(me, &after));
        *self.served.write().unwrap_or_else(PoisonError::into_inner) = served;
        self.assignment.send_replace(after)
    }

    /// Takes the instance off the list, from a task; [`has_left`](Self::has_left) waits for it.
    pub(crate) fn leave(&self) {
        self.leaving.cancel();
    }

    pub(crate) async fn has_left(&self) {
        self.left.cancelled().await;
    }
}
