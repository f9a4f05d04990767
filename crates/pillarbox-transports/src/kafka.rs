//! Kafka: an idempotent producer, and a consumer that commits an offset once the inbox has all before it.

mod offsets;
mod record;
mod settings;
mod subscription;

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pillarbox_core::{Delivery, DeliveryResult, Invalid, Parcel, Transport, Undelivered};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{DeliveryFuture, FutureProducer, Producer, PurgeConfig};
use tokio::sync::RwLock;
use tokio::time::{Instant, sleep, timeout_at};

pub use offsets::KafkaTag;
pub use settings::{KafkaOptions, KafkaSettings};
pub use subscription::{KafkaSubscription, KafkaSubscriptionOptions};

use self::settings::{Cluster, Hushed};
use crate::batch::Batch;
use crate::link::{Line, Link};

/// How long to wait for room in a queue that others have filled.
const ROOM_INTERVAL: Duration = Duration::from_millis(10);

/// The way to a Kafka cluster.
///
/// The destination is a topic, of 1 to 249 ASCII letters, digits, `.`, `_` and `-`. A message is delivered when all replicas that
/// are in sync have it. Its key is the key of the record, so that messages of one key stand in one partition, in order; fields,
/// headers and content type are headers.
///
/// A topic must be there: where it is not, the message is refused, unless [`KafkaOptions::creates_topics`] is set.
///
/// librdkafka is built without OpenSSL here: TLS and SCRAM are not available, SASL/PLAIN is.
///
/// ```
/// # use pillarbox_transports::kafka::{Kafka, KafkaOptions};
/// # fn main() -> Result<(), pillarbox_core::Invalid> {
/// let kafka = Kafka::connect_to("kafka://broker-1:9092,broker-2:9092")?;
/// let packed = Kafka::with("kafka://user:password@broker", KafkaOptions::default().set("compression.type", "lz4"))?;
/// # Ok(())
/// # }
/// ```
pub struct Kafka {
    cluster: Cluster,
    link: Link<Arc<Sender>>,
    /// Read by all that share the producer, written by whoever must know that it alone is too large.
    sharing: RwLock<()>,
}

impl Kafka {
    /// A transport to `kafka://[user:password@]host[:port][,host[:port]]…`. Connects when it is first used.
    pub fn connect_to(url: &str) -> Result<Self, Invalid> {
        Self::with(url, KafkaOptions::default())
    }

    /// Like [`connect_to`](Self::connect_to), with settings of your own.
    pub fn with(url: &str, options: KafkaOptions) -> Result<Self, Invalid> {
        Ok(Self { cluster: Cluster::parse(url, options)?, link: Link::new(), sharing: RwLock::new(()) })
    }

    /// The producer that all use, made anew after an error that it cannot get over.
    async fn line(&self) -> Result<Line<Arc<Sender>>, Undelivered> {
        let line = self.link.get(async { Sender::new(&self.cluster) }).await?;
        if !line.connection.is_spoiled() {
            return Ok(line);
        }
        self.link.broken(&line).await;
        self.link.get(async { Sender::new(&self.cluster) }).await
    }

    /// Sends all, and leaves unanswered what the time limit cuts off.
    async fn send(&self, batch: &mut Batch<'_>) -> Result<(), Undelivered> {
        let suspects = {
            let _shared = self.sharing.read().await;
            let line = self.line().await?;
            let places = batch.unanswered();
            self.produce(&line.connection.producer, batch, &places).await
        };
        if suspects.is_empty() {
            return Ok(());
        }
        // A broker finds a whole batch of records too large, and does not say which one made it so.
        batch.reopen(&suspects);
        let _alone = self.sharing.write().await;
        for place in batch.unanswered() {
            let line = self.line().await?;
            if !self.produce(&line.connection.producer, batch, &[place]).await.is_empty() {
                let bytes = record::bytes(batch.parcel(place));
                batch.answer(place, Err(Undelivered::TooLarge { bytes, limit: None }));
            }
        }
        Ok(())
    }

    /// Sends these without waiting in between, notes the answers, and tells which were in a batch that is too large.
    async fn produce(&self, producer: &FutureProducer<Hushed>, batch: &mut Batch<'_>, places: &[usize]) -> Vec<usize> {
        let mut pending = VecDeque::with_capacity(places.len());
        let mut suspects = Vec::new();
        for place in places.iter().copied() {
            if !batch.admits(place) {
                continue;
            }
            let parcel = batch.parcel(place);
            let mut record = match record::record(parcel) {
                Ok(record) => record,
                Err(undelivered) => {
                    batch.answer(place, Err(undelivered));
                    continue;
                }
            };
            loop {
                match producer.send_result(record) {
                    Ok(sent) => {
                        pending.push_back((place, sent));
                        break;
                    }
                    Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), returned)) => {
                        record = returned;
                        match pending.pop_front() {
                            Some((place, sent)) => self.note(batch, place, sent, &mut suspects).await,
                            None => sleep(ROOM_INTERVAL).await,
                        }
                    }
                    Err((error, _)) => {
                        batch.answer(place, Err(self.unsent(&error, parcel)));
                        break;
                    }
                }
            }
        }
        for (place, sent) in pending {
            self.note(batch, place, sent, &mut suspects).await;
        }
        suspects
    }

    async fn note(&self, batch: &mut Batch<'_>, place: usize, sent: DeliveryFuture, suspects: &mut Vec<usize>) {
        match sent.await {
            Ok(Ok(_)) => batch.answer(place, Ok(Delivery::Taken)),
            Ok(Err((error, _))) if record::is_too_large(&error) => suspects.push(place),
            Ok(Err((error, _))) => {
                let topic = &batch.parcel(place).destination;
                batch.answer(place, Err(record::undelivered(&error, topic, &self.cluster)));
            }
            Err(_) => {}
        }
    }

    /// Why our own side did not take a record.
    fn unsent(&self, error: &KafkaError, parcel: &Parcel<'_>) -> Undelivered {
        if record::is_too_large(error) {
            let limit = Some(self.cluster.message_bytes_max());
            return Undelivered::TooLarge { bytes: record::bytes(parcel), limit };
        }
        record::undelivered(error, &parcel.destination, &self.cluster)
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.cluster.timeout()
    }

    fn late(&self) -> Undelivered {
        Undelivered::unavailable(format_args!("{}: no answer within {:?}", self.cluster, self.cluster.timeout()))
    }
}

#[async_trait]
impl Transport for Kafka {
    fn kind(&self) -> &'static str {
        "kafka"
    }

    async fn deliver(&self, parcels: &[Parcel<'_>]) -> Vec<DeliveryResult> {
        let mut batch = Batch::new(parcels);
        if parcels.is_empty() {
            return batch.finish(&self.late());
        }
        let missing = match timeout_at(self.deadline(), self.send(&mut batch)).await {
            Ok(Ok(())) => self.late(),
            Ok(Err(undelivered)) => undelivered,
            Err(_) => {
                // Nothing of what was given up is sent later.
                if let Some(sender) = self.link.take().await {
                    sender.give_up();
                }
                self.late()
            }
        };
        batch.finish(&missing)
    }

    async fn probe(&self) -> Result<(), Undelivered> {
        let sender = self.line().await?.connection;
        let timeout = self.cluster.timeout();
        let asked = move || sender.producer.client().fetch_metadata(None, timeout).map(drop);
        match timeout_at(self.deadline(), tokio::task::spawn_blocking(asked)).await {
            Ok(Ok(Ok(()))) => Ok(()),
            Ok(Ok(Err(error))) => Err(Undelivered::unavailable(format_args!("{}: {error}", self.cluster))),
            Ok(Err(_)) | Err(_) => Err(self.late()),
        }
    }

    async fn close(&self) {
        drop(self.link.take().await);
    }
}

impl fmt::Debug for Kafka {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Kafka").field(&self.cluster).finish()
    }
}

/// A producer, which takes its time to end.
struct Sender {
    producer: FutureProducer<Hushed>,
}

impl Sender {
    fn new(cluster: &Cluster) -> Result<Arc<Self>, Undelivered> {
        let made = cluster.producer_config().create_with_context(Hushed);
        let unavailable = |error: KafkaError| {
            Undelivered::unavailable(format_args!("{cluster}: settings {}", settings::complaint(&error)))
        };
        Ok(Arc::new(Self { producer: made.map_err(unavailable)? }))
    }

    /// Whether it met an error after which an idempotent producer sends nothing any more.
    fn is_spoiled(&self) -> bool {
        self.producer.client().fatal_error().is_some()
    }

    /// Drops all that waits or is under way.
    fn give_up(&self) {
        self.producer.purge(PurgeConfig::default().queue().inflight().non_blocking());
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        // The last handle waits for the threads of librdkafka, which must not hold up a task.
        let producer = self.producer.clone();
        std::thread::spawn(move || drop(producer));
    }
}
