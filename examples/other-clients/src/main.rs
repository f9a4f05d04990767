//! Messages in transactions of other clients than sqlx.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example for people: the terminal is its interface")]

mod with_diesel;
mod with_sea_orm;
mod with_tokio_postgres;

#[cfg(test)]
mod tests;

use std::process::ExitCode;
use std::time::Duration;

use pillarbox::Transactional;
use pillarbox::prelude::*;
use tokio::sync::mpsc;

const TABLE: &str = "create table if not exists orders (id bigint primary key)";

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [client, url] = &arguments[..] else {
        eprintln!("usage: other-clients tokio-postgres|diesel|sea-orm <url>");
        return ExitCode::from(2);
    };
    match run(client, url).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("other-clients: {failure}");
            ExitCode::FAILURE
        }
    }
}

async fn run(client: &str, url: &str) -> Result<(), Failure> {
    match (client, url.split(':').next().unwrap_or_default()) {
        ("tokio-postgres", "postgres") => with_tokio_postgres::run(url).await,
        ("diesel", "postgres") => with_diesel::run_on_postgres(url).await,
        ("diesel", "mysql") => with_diesel::run_on_mysql(url).await,
        ("sea-orm", "postgres") => with_sea_orm::run(url, &Outbox::postgres(url).await?).await,
        ("sea-orm", "mysql") => with_sea_orm::run(url, &Outbox::mysql(url).await?).await,
        ("sea-orm", "sqlite") => with_sea_orm::run(url, &Outbox::sqlite(url).await?).await,
        _ => Err(Failure::dead("no such client, or not for this database")),
    }
}

/// The event about an order.
fn created(id: i64) -> Message {
    Message::new("order.created", serde_json::json!({ "id": id }).to_string()).key(format!("order-{id}"))
}

/// Shows that the message is delivered.
async fn deliver<S: Transactional>(outbox: &Outbox<S>) -> Result<(), Failure> {
    let (delivered, mut payloads) = mpsc::unbounded_channel();
    let runtime = Runtime::builder(outbox)
        .on_topic("order.created", move |message: Raw| {
            let told = delivered.send(String::from_utf8_lossy(message.payload()).into_owned());
            async move { told.map_err(|_| Failure::retry("nobody listens")) }
        })
        .start()
        .await?;
    if let Some(payload) = payloads.recv().await {
        println!("message: {payload}");
    }
    runtime.shutdown(Duration::from_secs(5)).await;
    Ok(())
}
