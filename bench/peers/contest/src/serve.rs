//! The protocol: a command per line, an answer per line.

use std::io::Write as _;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::{About, Contestant, Result, work};

/// Connections that measure latency: one alone would be busy at the higher rate.
const LATENCY_WRITERS: u64 = 4;

/// Answers commands until standard input ends.
///
/// # Errors
///
/// When standard input or output cannot be used. A command that fails is answered and does not end the program.
pub async fn serve<C: Contestant>(contestant: C) -> Result<()> {
    let contestant = std::sync::Arc::new(contestant);
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        if line.trim().is_empty() {
            continue;
        }
        let contestant = std::sync::Arc::clone(&contestant);
        // In a task, as in a service: the main thread would wait for another one to see every answer of the server.
        let done = tokio::spawn(async move { answer(&*contestant, &line).await }).await;
        let answer = match done {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => json!({ "error": with_causes(&*error) }),
            Err(panic) => json!({ "error": panic.to_string() }),
        };
        let mut out = std::io::stdout().lock();
        writeln!(out, "{answer}")?;
        out.flush()?;
    }
    Ok(())
}

async fn answer<C: Contestant>(contestant: &C, line: &str) -> Result<Value> {
    let command: Value = serde_json::from_str(line)?;
    let number = |name: &str| command[name].as_u64();
    let count = || number("count").ok_or("count is missing");
    let rate = || command["rate"].as_f64().ok_or("rate is missing");
    let seconds = || command["seconds"].as_f64().ok_or("seconds is missing");
    match command["do"].as_str().unwrap_or_default() {
        "hello" => {
            let About { name, version, language, settings } = contestant.about();
            Ok(json!({ "name": name, "version": version, "language": language, "settings": settings }))
        }
        "prepare" => contestant.prepare().await.map(|()| json!({})),
        "clear" => contestant.clear().await.map(|()| json!({})),
        "fill" => work::fill(contestant, count()?).await,
        "drain" => work::drain(contestant, count()?).await,
        "enqueue" => {
            let (writers, batch) = (number("writers").unwrap_or(1), number("batch").unwrap_or(1));
            work::enqueue(contestant, writers, batch, count()?).await
        }
        "latency" => work::latency(contestant, rate()?, seconds()?, number("writers").unwrap_or(LATENCY_WRITERS)).await,
        "steady" => work::steady(contestant, rate()?, seconds()?, number("writers").unwrap_or(16)).await,
        unknown => Err(format!("unknown command: {unknown:?}").into()),
    }
}

/// An error and what caused it, in one line.
fn with_causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut causes = std::iter::successors(Some(error), |error| error.source()).map(ToString::to_string);
    let first = causes.next().unwrap_or_default();
    causes.fold(first, |line, cause| format!("{line}: {cause}"))
}
