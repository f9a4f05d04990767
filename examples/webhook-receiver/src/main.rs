//! Takes signed webhooks, stores each once, and handles it with retries: `POST /webhooks/stripe`.
//!
//! See README.md for a call with curl.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::time::Duration;

use axum::Router;
use pillarbox::prelude::*;
use pillarbox::signal;
use pillarbox::sqlite::SqliteStore;
use pillarbox::webhook::{Server, Stripe, Webhooks};

#[derive(Deserialize)]
struct PaymentSucceeded {
    data: Data,
}

#[derive(Deserialize)]
struct Data {
    invoice: i64,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("DATABASE_URL").unwrap_or_else(|_| "sqlite:webhooks.db".to_owned());
    let address = std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let secret = std::env::var("STRIPE_SECRET").map_err(|_| "STRIPE_SECRET is not set: any text will do for a try")?;
    let (router, runtime, _) = start(&url, &secret).await?;
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("webhooks: http://{}/webhooks/stripe", listener.local_addr()?);
    Server::new(router).until(signal::terminated()).serve(listener).await?;
    runtime.shutdown(Duration::from_secs(5)).await;
    Ok(())
}

/// The receiver and the handlers of what it takes in, in one process.
async fn start(url: &str, secret: &str) -> Result<(Router, Runtime, Outbox<SqliteStore>), Box<dyn Error>> {
    let outbox = Outbox::sqlite(url).await?;
    sqlx::query("create table if not exists payments (invoice integer not null)")
        .execute(outbox.store().pool())
        .await?;
    let inbox = outbox.inbox().await?;
    let webhooks = Webhooks::new(inbox.clone()).route("stripe", Stripe::secret(secret)?).into_router()?;
    let runtime = inbox.runtime().state(outbox.clone()).on_topic("stripe.payment.succeeded", pay).start().await?;
    Ok((Router::new().nest("/webhooks", webhooks), runtime, outbox))
}

/// Runs again when it fails, so what it does must bear that; to pay and remember in one transaction, use `Inbox::consume`.
async fn pay(event: Payload<PaymentSucceeded>, outbox: State<Outbox<SqliteStore>>, cx: Context) -> HandlerResult {
    let insert = sqlx::query("insert into payments (invoice) values (?)").bind(event.data.invoice);
    insert.execute(outbox.store().pool()).await?;
    println!("invoice {} is paid ({:?})", event.data.invoice, cx.receipt());
    Ok(())
}

#[cfg(test)]
mod tests;
