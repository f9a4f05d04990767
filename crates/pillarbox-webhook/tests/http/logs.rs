//! What is logged about deliveries.

use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex};

use pillarbox_webhook::AcceptError;
use tracing::field::{Field, Visit};
use tracing::instrument::WithSubscriber;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::exchange::*;
use crate::server::*;

/// Writes down every field of everything that is logged in this task.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<String>>);

impl Subscriber for Log {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        span.record(&mut Fields(&mut self.0.lock().unwrap()));
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        values.record(&mut Fields(&mut self.0.lock().unwrap()));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = self.0.lock().unwrap();
        event.record(&mut Fields(&mut text));
        text.push('\n');
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Fields<'a>(&'a mut String);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        write!(self.0, "{}={value:?} ", field.name()).unwrap();
    }
}

/// H54: reasons are logged; secrets, signatures, header values and payloads are not.
#[tokio::test]
async fn reasons_are_logged_and_nothing_else() {
    let (log, desk) = (Log::default(), Desk::default());
    let said = Arc::clone(&log.0);
    async {
        let app = webhooks(&desk).into_router().unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        // Connections are served by tasks of their own: they all get the log.
        let app = app.layer(axum::middleware::from_fn(move |request, next: axum::middleware::Next| {
            next.run(request).with_subscriber(log.clone())
        }));
        tokio::spawn(async move { axum::serve(listener, app).await });

        let body = r#"{"id":"evt_1","type":"canary-type","note":"canary-payload"}"#;
        let canary = "t=1700000000,v1=ca9a7";
        let post = |signature: &str| Post::to("/stripe", body).with("stripe-signature", signature);
        assert_eq!(post(&stripe_signature(body.as_bytes())).send(address).await.status, 200);
        assert_eq!(post(canary).send(address).await.status, 401);
        let malformed = r#"{"id":["canary-payload"]}"#;
        let signed = stripe_signature(malformed.as_bytes());
        let post = Post::to("/stripe", malformed).with("stripe-signature", signed);
        assert_eq!(post.send(address).await.status, 400);
        desk.fail(AcceptError::Unavailable("the database is away".to_owned()));
        let post = Post::to("/stripe", body).with("stripe-signature", stripe_signature(body.as_bytes()));
        assert_eq!(post.send(address).await.status, 503);
    }
    .await;
    let said = said.lock().unwrap();
    for reason in ["no readable signature", "not the JSON that was expected", "the database is away", "stripe"] {
        assert!(said.contains(reason), "{reason} is missing in {said}");
    }
    let tag = stripe_signature(br#"{"id":["canary-payload"]}"#);
    for secret in ["canary", "ca9a7", &tag[16..]] {
        assert!(!said.contains(secret), "{secret} is in {said}");
    }
}
