//! What users write: every shape of handler, event, route and interceptor, as the public API takes them.

use std::sync::Arc;
use std::time::Duration;

use pillarbox::event::Aggregate;
use pillarbox::prelude::*;
use pillarbox::retry::RetryPolicy;
use pillarbox::{
    AttemptEnd, EventError, FailureKind, Handler, Interceptor, IntoMessage, MessageHandler, UnknownTopics,
};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct OrderCreated {
    id: i64,
}

impl Event for OrderCreated {
    const TOPIC: &'static str = "order.created";

    fn aggregate(&self) -> Option<Aggregate> {
        Some(Aggregate::new(Kind::Order, self.id))
    }
}

enum Kind {
    Order,
}

impl TypeName for Kind {
    fn type_name(&self) -> &str {
        match self {
            Self::Order => "Order",
        }
    }
}

struct Mailer;

impl Mailer {
    async fn send(&self, id: i64) -> Result<(), std::io::Error> {
        if id < 0 { Err(std::io::Error::other("no such order")) } else { Ok(()) }
    }
}

async fn by_function(order: Payload<OrderCreated>, mailer: State<Mailer>) -> HandlerResult {
    mailer.send(order.id).await?;
    Ok(())
}

struct Audit {
    mailer: Mailer,
}

#[pillarbox::async_trait]
impl MessageHandler for Audit {
    async fn handle(&self, cx: Context) -> HandlerResult {
        self.mailer.send(i64::from(cx.attempt())).await?;
        Ok(())
    }
}

#[pillarbox::async_trait]
impl Interceptor for Audit {
    async fn after(&self, _: &Context, end: &AttemptEnd) -> HandlerResult {
        self.mailer.send(i64::from(*end == AttemptEnd::Succeeded)).await?;
        Ok(())
    }
}

fn by_closures(builder: RuntimeBuilder, mailer: Arc<Mailer>) -> RuntimeBuilder {
    builder
        .on(async |order: Payload<OrderCreated>, mailer: State<Mailer>, cx: Context| {
            mailer.send(order.id + i64::from(cx.attempt())).await?;
            Ok(())
        })
        .on_topic("payment.*", async |message: Raw| match message.payload().len() {
            0 => Handled::dead("empty"),
            1 => Handled::retry_after(Duration::from_secs(1), "short"),
            2 => Handled::again_in(Duration::from_secs(60)),
            3 => Handled::unavailable("away"),
            _ => Handled::done(),
        })
        .on_topic(
            "six",
            async |_: Raw, _: Headers, _: Meta, attempt: Attempt, token: CancellationToken, cx: Context| {
                if attempt.0 > 3 || token.is_cancelled() {
                    return Err(Failure::dead(cx.topic()));
                }
                Ok(())
            },
        )
        .on_topic("captures", move |order: Payload<OrderCreated>| {
            let mailer = Arc::clone(&mailer);
            async move {
                mailer.send(order.id).await?;
                Ok(())
            }
        })
}

fn by_names(builder: RuntimeBuilder, chosen: Arc<dyn MessageHandler>) -> RuntimeBuilder {
    builder
        .on(by_function)
        .on_topic("audit", Audit { mailer: Mailer })
        .on_topic("chosen", chosen)
        .on_type("Order", "created", by_function)
        .on_type(Kind::Order, String::from("shipped"), by_function)
        .on_message_type("created", by_function)
        .route(Route::event::<OrderCreated>().name("orders").to(by_function))
        .route(
            Route::topic("slow.**")
                .concurrency_max(2)
                .run_time_max(Duration::from_secs(600))
                .retry(RetryPolicy::default().attempts_max(3))
                .to(by_function),
        )
        .route(Route::types(Kind::Order, "lost").to_batch(10, async |_: Batch| Ok(())))
}

fn by_batches(builder: RuntimeBuilder) -> RuntimeBuilder {
    builder
        .on_batch("audit.*", 500, async |batch: Batch, mailer: State<Mailer>| {
            let (orders, mut outcome) = batch.decode::<OrderCreated>();
            for (index, order) in orders {
                outcome.set(index, mailer.send(order.id).await.map_err(Failure::from));
            }
            Ok(outcome)
        })
        .on_batch("plain", 10, async |batch: Batch| {
            for cx in &batch {
                cx.topic().parse::<u8>()?;
            }
            Ok(())
        })
}

fn around(builder: RuntimeBuilder) -> RuntimeBuilder {
    builder
        .state(Mailer)
        .before(async |cx: Context| if cx.attempt() > 100 { Handled::dead("enough") } else { Ok(()) })
        .after(async |cx: Context, end: AttemptEnd| {
            if end != AttemptEnd::Succeeded {
                cx.topic().parse::<u8>()?;
            }
            Ok(())
        })
        .interceptor(Audit { mailer: Mailer })
        .worker_count(8)
        .unknown_topics(UnknownTopics::Dead)
}

/// OBX-057, HOT-17: shapes that must go on compiling. Only a runtime makes builders, so nothing is called here.
#[test]
fn every_shape_of_handler_is_taken() {
    let _: fn(RuntimeBuilder, Arc<Mailer>) -> RuntimeBuilder = by_closures;
    let _: fn(RuntimeBuilder, Arc<dyn MessageHandler>) -> RuntimeBuilder = by_names;
    let _: [fn(RuntimeBuilder) -> RuntimeBuilder; 2] = [by_batches, around];
}

#[test]
fn handles_can_be_sent_and_shared() {
    fn shared<T: Send + Sync + 'static>() {}
    shared::<Context>();
    shared::<Batch>();
    shared::<Failure>();
    shared::<Payload<OrderCreated>>();
    shared::<State<Mailer>>();
    shared::<CancellationToken>();
    fn sent<T: Send + 'static>() {}
    sent::<RuntimeBuilder>();
    sent::<Route>();
}

/// HOT-17: an event and a message are enqueued alike, and an enum names the aggregate.
#[test]
fn events_and_messages_are_enqueued_alike() -> Result<(), EventError> {
    fn enqueue(message: impl IntoMessage) -> Result<Message, EventError> {
        message.into_message()
    }
    let order = OrderCreated { id: 7 };
    let by_reference = enqueue(&order)?;
    let by_value = enqueue(order)?;
    assert_eq!(by_value.payload(), by_reference.payload());
    assert_eq!((by_value.topic(), by_value.get_aggregate_type()), ("order.created", "Order"));
    let message = enqueue(Message::new("order.created", "7").aggregate_type(Kind::Order))?;
    assert_eq!(message.get_aggregate_type(), by_value.get_aggregate_type());
    Ok(())
}

/// OBX-056: a boxed error is no error of its own, but whatever can be shown can be a reason.
#[test]
fn any_error_can_be_a_failure() {
    let boxed: Result<(), Box<dyn std::error::Error + Send + Sync>> = Err("away".into());
    let failed: HandlerResult = boxed.map_err(Failure::retry);
    assert_eq!(failed.unwrap_err().reason(), "away");
    let failed: HandlerResult = "x".parse::<u8>().map(|_| ()).map_err(Failure::from);
    assert_eq!(failed.unwrap_err().kind(), FailureKind::Retry);
}

/// What a function that is generic over handlers has to say.
#[test]
fn a_handler_can_be_passed_on() {
    fn audited<Args: 'static>(builder: RuntimeBuilder, handler: impl Handler<Args>) -> RuntimeBuilder {
        builder.on_topic("audited", handler)
    }
    let _ = |builder| audited(builder, by_function);
}
