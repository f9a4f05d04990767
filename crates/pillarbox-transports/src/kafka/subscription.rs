//! A member of a consumer group, as a source of an inbox.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use pillarbox_core::{BrokerError, Delivered, Incoming, Intaken, Invalid, Problem, Receipt, Subscription, wire};
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, Rebalance, StreamConsumer};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Headers, Message};
use rdkafka::topic_partition_list::TopicPartitionListElem;
use rdkafka::{Offset, TopicPartitionList};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::offsets::{KafkaTag, Moves, Offsets};
use super::record::check_topic;
use super::settings::{Cluster, Hushed, KafkaOptions, complaint};
use crate::checks;

/// Characters of a topic whose messages can be told apart by topic, partition and offset in one name of a receipt.
const TOPIC_CHARS_MAX: usize = 220;

/// Characters of a group.
const GROUP_CHARS_MAX: usize = 255;

/// The most that is taken ahead.
const AHEAD_MAX: usize = 100_000;

/// What is read, and how.
#[derive(Clone, Debug)]
pub struct KafkaSubscriptionOptions {
    /// The topic.
    pub topic: String,
    /// The consumer group. Its members share the partitions of the topic; a new group begins with the oldest message.
    pub group: String,
    /// Messages of a partition that are taken ahead; 200 unless set, at most 100000.
    pub ahead: usize,
    /// How the cluster is reached.
    pub connection: KafkaOptions,
}

impl KafkaSubscriptionOptions {
    /// The settings of a member of a group, with everything else as the fields say.
    pub fn new(topic: impl Into<String>, group: impl Into<String>) -> Self {
        let connection = KafkaOptions::default();
        Self { topic: topic.into(), group: group.into(), ahead: 200, connection }
    }

    fn check(&self) -> Result<(), Invalid> {
        let mut problems = Vec::new();
        if let Err(complaint) = check_topic(&self.topic) {
            problems.push(Problem::malformed("topic", complaint));
        } else if self.topic.len() > TOPIC_CHARS_MAX {
            problems.push(Problem::too_long("topic", TOPIC_CHARS_MAX, self.topic.len()));
        }
        let group_chars = self.group.chars().count();
        if self.group.is_empty() {
            problems.push(Problem::empty("group"));
        } else if group_chars > GROUP_CHARS_MAX {
            problems.push(Problem::too_long("group", GROUP_CHARS_MAX, group_chars));
        } else if self.group.contains('\0') {
            problems.push(Problem::malformed("group", "must not contain the character NUL"));
        }
        checks::count("ahead", self.ahead, AHEAD_MAX, &mut problems);
        Invalid::unless_empty(problems)
    }
}

/// Messages of a topic, for [`Inbox::intake`](https://docs.rs/pillarbox), as a member of a consumer group.
///
/// A message is known by its `pillarbox-id`, else by its topic, partition and offset. An offset is committed when everything before
/// it is settled; what is put off is read again, with all that follows it in its partition. Kafka has no place for what the inbox
/// can never take: it is passed over, with a warning that names its offset.
pub struct KafkaSubscription {
    source: String,
    cluster: Cluster,
    options: KafkaSubscriptionOptions,
    member: Option<Member>,
}

impl KafkaSubscription {
    /// Reads from the cluster at `url`, as in [`Kafka::connect_to`](super::Kafka::connect_to). `source` is what the inbox calls it,
    /// and stays the same for good.
    pub fn new(source: impl Into<String>, url: &str, options: KafkaSubscriptionOptions) -> Result<Self, Invalid> {
        let source = source.into();
        Receipt::new(source.clone(), "any").check()?;
        options.check()?;
        let cluster = Cluster::parse(url, options.connection.clone())?;
        Ok(Self { source, cluster, options, member: None })
    }

    fn join(&self) -> Result<Member, BrokerError> {
        let failed = |error: &KafkaError| BrokerError::new(format_args!("{}: {}", self.cluster, complaint(error)));
        let config = self.cluster.consumer_config(&self.options.group, self.options.ahead);
        let watch = Watch::default();
        let consumer: StreamConsumer<Watch> =
            config.create_with_context(watch.clone()).map_err(|error| failed(&error))?;
        let member = Member { consumer: Some(Arc::new(consumer)), offsets: watch.offsets };
        member.consumer()?.subscribe(&[&self.options.topic]).map_err(|error| failed(&error))?;
        Ok(member)
    }

    fn read(&self, message: &BorrowedMessage<'_>, offsets: &mut Offsets) -> Delivered<KafkaTag> {
        let (topic, partition, offset) = (message.topic(), message.partition(), message.offset());
        let headers = message.headers().map(|headers| {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            headers.iter().map(|header| (header.key.to_owned(), header.value.map(text).unwrap_or_default())).collect()
        });
        let headers: Vec<_> = headers.unwrap_or_default();
        let arrival = wire::read(topic, message.payload().unwrap_or_default().to_vec(), None, headers);
        let mut read = arrival.message;
        if let (None, Some(Ok(key))) = (read.get_key(), message.key().map(std::str::from_utf8)) {
            read = read.key(key);
        }
        let name = if arrival.is_named { read.id().to_string() } else { format!("{topic}/{partition}/{offset}") };
        let incoming = Incoming::new(Receipt::new(self.source.clone(), name), read);
        Delivered { tag: offsets.delivered(partition, offset), incoming }
    }

    fn failed(&self, error: &KafkaError) -> BrokerError {
        BrokerError::new(format_args!("{}: {error}", self.cluster))
    }
}

#[async_trait]
impl Subscription for KafkaSubscription {
    type Tag = KafkaTag;

    async fn next(&mut self, limit: usize) -> Result<Vec<Delivered<KafkaTag>>, BrokerError> {
        let member = match self.member.take() {
            Some(member) => self.member.insert(member),
            None => {
                let member = self.join()?;
                self.member.insert(member)
            }
        };
        let (consumer, offsets) = (Arc::clone(member.consumer()?), Arc::clone(&member.offsets));
        loop {
            let mut delivered = Vec::new();
            let mut message = consumer.recv().await;
            loop {
                match message {
                    Ok(message) => delivered.push(self.read(&message, &mut locked(&offsets))),
                    Err(error) if !delivered.is_empty() || is_passing(&error) => {
                        tracing::debug!(%error, cluster = %self.cluster, "reading from Kafka");
                    }
                    Err(error) => {
                        if matches!(error, KafkaError::MessageConsumptionFatal(_)) {
                            self.member = None;
                        }
                        return Err(self.failed(&error));
                    }
                }
                if delivered.len() >= limit {
                    break;
                }
                // No wait from here on: what is read is answered, and is not lost when the call is given up.
                match consumer.recv().now_or_never() {
                    Some(next) => message = next,
                    None => break,
                }
            }
            if !delivered.is_empty() {
                return Ok(delivered);
            }
        }
    }

    async fn settle(&mut self, outcomes: Vec<(KafkaTag, Intaken)>) -> Result<(), BrokerError> {
        // Without a member nothing is ours any more, and all of it comes again.
        let Some(member) = &self.member else { return Ok(()) };
        let settled = outcomes.into_iter().map(|(tag, outcome)| {
            if let Intaken::Refused(invalid) = &outcome {
                let (topic, (partition, offset)) = (&self.options.topic, tag.place());
                tracing::warn!(topic, partition, offset, error = %invalid, "a message is passed over for good");
            }
            (tag, outcome != Intaken::Later)
        });
        let moves = locked(&member.offsets).settle(settled);
        if moves == Moves::default() {
            return Ok(());
        }
        let (consumer, topic, within) =
            (Arc::clone(member.consumer()?), self.options.topic.clone(), self.cluster.timeout());
        let error = match timeout(within, spawn_blocking(move || follow(&consumer, &topic, &moves, within))).await {
            Ok(Ok(Ok(()))) => return Ok(()),
            Ok(Ok(Err(error))) => self.failed(&error),
            Ok(Err(_)) | Err(_) => BrokerError::new(format_args!("{}: no answer within {within:?}", self.cluster)),
        };
        // Whoever comes after this member begins where the cluster thinks that we are.
        self.member = None;
        Err(error)
    }
}

impl fmt::Debug for KafkaSubscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaSubscription")
            .field("source", &self.source)
            .field("cluster", &self.cluster)
            .field("topic", &self.options.topic)
            .field("group", &self.options.group)
            .finish_non_exhaustive()
    }
}

/// Tells the cluster, and goes back where something is to be read again.
fn follow(consumer: &StreamConsumer<Watch>, topic: &str, moves: &Moves, within: Duration) -> KafkaResult<()> {
    let list = |places: &[(i32, i64)]| {
        let mut list = TopicPartitionList::new();
        for (partition, offset) in places {
            list.add_partition_offset(topic, *partition, Offset::Offset(*offset))?;
        }
        Ok::<_, KafkaError>(list)
    };
    if !moves.commits.is_empty() {
        consumer.commit(&list(&moves.commits)?, CommitMode::Sync)?;
    }
    if !moves.rewinds.is_empty() {
        let sought = consumer.seek_partitions(list(&moves.rewinds)?, within)?;
        sought.elements().iter().try_for_each(TopicPartitionListElem::error)?;
    }
    Ok(())
}

/// Whether librdkafka gets over it by itself, with other brokers or another try.
fn is_passing(error: &KafkaError) -> bool {
    use RDKafkaErrorCode as Code;
    let code = error.rdkafka_error_code();
    matches!(code, Some(Code::BrokerTransportFailure | Code::Resolve | Code::OperationTimedOut | Code::PartitionEOF))
}

/// A member of the group, which takes its time to leave it.
struct Member {
    consumer: Option<Arc<StreamConsumer<Watch>>>,
    offsets: Arc<Mutex<Offsets>>,
}

impl Member {
    fn consumer(&self) -> Result<&Arc<StreamConsumer<Watch>>, BrokerError> {
        self.consumer.as_ref().ok_or_else(|| BrokerError::new("the member has left its group"))
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // The last handle waits until the group knows, which must not hold up a task.
        if let Some(consumer) = self.consumer.take() {
            std::thread::spawn(move || drop(consumer));
        }
    }
}

/// Sees partitions go to other members.
#[derive(Clone, Default)]
struct Watch {
    offsets: Arc<Mutex<Offsets>>,
}

impl ClientContext for Watch {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, said: &str) {
        Hushed.log(level, facility, said);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        Hushed.error(error, reason);
    }
}

impl ConsumerContext for Watch {
    fn pre_rebalance(&self, _: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        if let Rebalance::Revoke(list) = rebalance {
            locked(&self.offsets).revoke(list.elements().iter().map(TopicPartitionListElem::partition));
        }
    }
}

fn locked(offsets: &Mutex<Offsets>) -> MutexGuard<'_, Offsets> {
    offsets.lock().unwrap_or_else(PoisonError::into_inner)
}
