//! A web service whose orders and messages are committed together: `POST /orders`, `GET /orders`.
//!
//! `DATABASE_URL` chooses PostgreSQL or SQLite; see README.md for a call with curl.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

mod orders;

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use pillarbox::{Backend, Context, Failure, Outbox, Payload, Runtime, RuntimeBuilder, extract, signal};
use serde_json::{Value, json};

use orders::{OrderCreated, Orders};

type Shop = Arc<dyn Orders>;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("DATABASE_URL").unwrap_or_else(|_| "sqlite:orders.db".to_owned());
    let address = std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let (router, runtime) = start(&url).await?;
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("orders: http://{}/orders", listener.local_addr()?);
    axum::serve(listener, router).with_graceful_shutdown(signal::terminated()).await?;
    runtime.shutdown(Duration::from_secs(5)).await;
    Ok(())
}

/// The service and the handlers of its messages, in one process.
async fn start(url: &str) -> Result<(Router, Runtime), Box<dyn Error>> {
    let (shop, builder): (Shop, RuntimeBuilder) = match Backend::of_url(url)? {
        Backend::Postgres => {
            let outbox = Outbox::postgres(url).await?;
            (Arc::new(outbox.clone()), Runtime::builder(&outbox))
        }
        _ => {
            let outbox = Outbox::sqlite(url).await?;
            (Arc::new(outbox.clone()), Runtime::builder(&outbox))
        }
    };
    shop.create_tables().await?;
    let router = Router::new().route("/orders", post(place).get(list)).with_state(Arc::clone(&shop));
    Ok((router, builder.state(shop).on(send_mail).start().await?))
}

/// Any error is retried with backoff; the message's id tells a mail server what it has sent already.
async fn send_mail(order: Payload<OrderCreated>, shop: extract::State<Shop>, cx: Context) -> Result<(), Failure> {
    println!("mail to {}: order {} (idempotency key {})", order.customer, order.id, cx.idempotency_key());
    shop.mailed(order.id).await?;
    Ok(())
}

async fn place(State(shop): State<Shop>, Json(order): Json<OrderCreated>) -> (StatusCode, Json<Value>) {
    match shop.place(&order).await {
        Ok(true) => (StatusCode::CREATED, Json(json!({ "id": order.id }))),
        Ok(false) => (StatusCode::CONFLICT, Json(json!({ "error": "there is such an order already" }))),
        Err(failure) => unavailable(failure.reason()),
    }
}

async fn list(State(shop): State<Shop>) -> (StatusCode, Json<Value>) {
    let shown = |(id, customer, total_cents, is_mailed)| json!({ "id": id, "customer": customer, "total_cents": total_cents, "is_mailed": is_mailed });
    match shop.list().await {
        Ok(orders) => (StatusCode::OK, Json(orders.into_iter().map(shown).collect())),
        Err(error) => unavailable(&error.to_string()),
    }
}

/// Says why to the operator, not to the caller.
fn unavailable(why: &str) -> (StatusCode, Json<Value>) {
    println!("database: {why}");
    (StatusCode::SERVICE_UNAVAILABLE, Json(json!({ "error": "the database is away" })))
}

#[cfg(test)]
mod tests;
