//! Messages are enqueued in transactions of other clients: tokio-postgres, diesel-async, SeaORM. BUS-12.

mod with_diesel;
mod with_sea_orm;
mod with_tokio_postgres;

use std::time::Duration;

use pillarbox::admin::MessageName;
use pillarbox::naming::Naming;
use pillarbox::prelude::*;
use pillarbox::store::{Enqueued, Placement};
use pillarbox::{StoreError, Transactional};
use tempfile::TempDir;

const HOUR: Duration = Duration::from_secs(3600);

/// The user's side: a transaction of a client, on a database with an outbox and a table of the user's own.
trait Session: Sized {
    type Store: Transactional + OutboxAdmin;

    /// Whether an error of one statement makes all that follow fail.
    const ERRORS_ABORT: bool = false;

    async fn open(place: &Place, options: StoreOptions) -> Result<Outbox<Self::Store>, StoreError>;
    async fn begin(place: &Place) -> Self;
    /// Runs a statement of the user's own.
    async fn run(&mut self, sql: &str) -> Result<(), String>;
    async fn enqueue(
        &mut self,
        outbox: &Outbox<Self::Store>,
        messages: Vec<Message>,
    ) -> Result<Vec<Enqueued>, StoreError>;
    async fn commit(self);
    async fn rollback(self);
}

/// Where a test works.
struct Place {
    naming: Naming,
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        let schema = format!("c_{}", &MessageId::new().as_uuid().simple().to_string()[16..]);
        Self { naming: Naming::new(schema, "outbox").unwrap(), folder: tempfile::tempdir().unwrap() }
    }

    fn options(&self) -> StoreOptions {
        StoreOptions { naming: self.naming.clone(), schema: SchemaPolicy::Deploy, ..StoreOptions::default() }
    }

    /// The user's table.
    fn table(&self) -> String {
        format!("{}_orders", self.naming.schema())
    }

    fn insert(&self, id: u8) -> String {
        format!("INSERT INTO {} (id) VALUES ({id})", self.table())
    }

    fn sqlite(&self) -> String {
        format!("sqlite:{}", self.folder.path().join("shop.db").display())
    }
}

async fn start<C: Session>() -> (Place, Outbox<C::Store>) {
    let place = Place::new();
    let outbox = C::open(&place, place.options()).await.unwrap();
    let mut session = C::begin(&place).await;
    session.run(&format!("CREATE TABLE {} (id BIGINT PRIMARY KEY)", place.table())).await.unwrap();
    session.commit().await;
    (place, outbox)
}

fn full(topic: &str) -> Message {
    Message::new(topic, vec![0, 1, 255])
        .key("customer-7")
        .message_type("shop.OrderCreated")
        .tenant("acme")
        .correlation_id("request-4711")
        .causation_id("basket-12")
        .content_type("application/json")
        .header("source", "ü \"quoted\"")
        .priority(-3)
}

async fn stored<S: OutboxAdmin>(outbox: &Outbox<S>, id: MessageId) -> Option<Message> {
    let found = outbox.store().get(MessageName::Message(id)).await.unwrap();
    found.map(|found| found.message.unwrap())
}

/// Whether the user's row is there: then it cannot be inserted again.
async fn has_row<C: Session>(place: &Place) -> bool {
    let mut session = C::begin(place).await;
    let inserted = session.run(&place.insert(1)).await;
    session.rollback().await;
    inserted.is_err()
}

async fn a_commit_keeps_the_row_and_its_messages<C: Session>() {
    let (place, outbox) = start::<C>().await;
    let messages =
        vec![full("order.created"), Message::new("order.mailed", "2").delay(HOUR), Message::new("plain", "")];
    let mut session = C::begin(&place).await;
    session.run(&place.insert(1)).await.unwrap();
    let answers = session.enqueue(&outbox, messages.clone()).await.unwrap();
    assert!(answers.iter().all(|answer| matches!(answer.placement, Placement::Pending(_))), "{answers:?}");
    session.commit().await;
    outbox.nudge();
    assert_eq!(stored(&outbox, messages[0].id()).await.unwrap(), messages[0]);
    assert_eq!(stored(&outbox, messages[2].id()).await.unwrap(), messages[2]);
    let delayed = outbox.store().get(MessageName::Message(messages[1].id())).await.unwrap().unwrap();
    assert_eq!(delayed.due_at.unwrap().duration_since(delayed.created_at).unwrap(), HOUR);
    assert_eq!(outbox.store().overview().await.unwrap().total().pending, 3);
    assert!(has_row::<C>(&place).await);
}

async fn a_rollback_leaves_nothing<C: Session>() {
    let (place, outbox) = start::<C>().await;
    let mut session = C::begin(&place).await;
    session.run(&place.insert(1)).await.unwrap();
    session.enqueue(&outbox, vec![full("order.created"), Message::new("later", "").delay(HOUR)]).await.unwrap();
    session.rollback().await;
    assert_eq!(outbox.store().overview().await.unwrap().total().pending, 0);
    assert!(!has_row::<C>(&place).await);
}

async fn a_known_message_is_told<C: Session>() {
    let (place, outbox) = start::<C>().await;
    let message = full("order.created");
    for expected in [true, false] {
        let mut session = C::begin(&place).await;
        let twice = session.enqueue(&outbox, vec![message.clone(), message.clone()]).await.unwrap();
        let new: Vec<_> = twice.iter().map(|answer| answer.placement != Placement::Duplicate).collect();
        assert_eq!(new, [expected, false]);
        session.run(&place.insert(u8::from(expected))).await.unwrap();
        session.commit().await;
    }
    assert_eq!(outbox.store().overview().await.unwrap().total().pending, 1);
}

async fn bad_input_is_refused_before_anything_is_sent<C: Session>() {
    let (place, outbox) = start::<C>().await;
    let mut session = C::begin(&place).await;
    let refused = session.enqueue(&outbox, vec![Message::new("", "canary")]).await.unwrap_err();
    assert_eq!(refused.problems()[0].field(), "topic");
    session.run(&place.insert(1)).await.unwrap();
    session.enqueue(&outbox, vec![Message::new("t", "")]).await.unwrap();
    session.commit().await;
    assert_eq!(outbox.store().overview().await.unwrap().total().pending, 1);
}

async fn an_error_of_the_database_is_told_and_nothing_is_half_done<C: Session>() {
    let (place, outbox) = start::<C>().await;
    let naming = Naming::new(place.naming.schema().as_str(), "missing").unwrap();
    let missing = StoreOptions { naming, schema: SchemaPolicy::Assume, ..StoreOptions::default() };
    let nowhere = C::open(&place, missing).await.unwrap();
    let mut session = C::begin(&place).await;
    session.enqueue(&outbox, vec![full("order.created")]).await.unwrap();
    let refused = session.enqueue(&nowhere, vec![Message::new("t", "canary")]).await.unwrap_err();
    assert!(!refused.is_transient() && !format!("{refused} {refused:?}").contains("canary"), "{refused:?}");
    assert_eq!(session.run(&place.insert(1)).await.is_err(), C::ERRORS_ABORT);
    session.rollback().await;
    assert_eq!(outbox.store().overview().await.unwrap().total().pending, 0);
}

/// Every scenario for one client.
macro_rules! scenarios {
    ($session:ty: $($scenario:ident)*) => {
        $(
            /// BUS-12.
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $scenario() {
                crate::tests::$scenario::<$session>().await;
            }
        )*
    };
    ($session:ty) => {
        crate::tests::scenarios! { $session:
            a_commit_keeps_the_row_and_its_messages
            a_rollback_leaves_nothing
            a_known_message_is_told
            bad_input_is_refused_before_anything_is_sent
            an_error_of_the_database_is_told_and_nothing_is_half_done
        }
    };
}

use scenarios;

fn url(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run `cargo xtask test`"))
}
