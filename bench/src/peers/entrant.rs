//! A contestant that runs: commands to it, and answers.

use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};

use super::install::Start;

/// Longer than any command should take.
const PATIENCE: Duration = Duration::from_secs(1800);

/// How long a program may take to end.
const FAREWELL: Duration = Duration::from_secs(20);

/// What a contestant says, or what went wrong.
pub(crate) type Answer = Result<Value, String>;

/// A running program.
pub(crate) struct Entrant {
    child: Child,
    commands: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Entrant {
    /// Starts it and lets it make its tables.
    pub(crate) async fn prepared(start: &Start, url: &str) -> Result<Self, String> {
        let mut entrant = Self::started(start, url)?;
        entrant.ask(&json!({ "do": "prepare" })).await?;
        Ok(entrant)
    }

    pub(crate) fn started(start: &Start, url: &str) -> Result<Self, String> {
        let mut command = start.command();
        command.env("CONTEST_DATABASE_URL", url).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().map_err(|error| format!("does not start: {error}"))?;
        let commands = child.stdin.take().ok_or("has no input")?;
        let answers = BufReader::new(child.stdout.take().ok_or("has no output")?).lines();
        Ok(Self { child, commands, answers })
    }

    pub(crate) async fn ask(&mut self, command: &Value) -> Answer {
        let exchange = async {
            self.commands.write_all(format!("{command}\n").as_bytes()).await?;
            self.commands.flush().await?;
            self.answers.next_line().await
        };
        let line = match tokio::time::timeout(PATIENCE, exchange).await {
            Ok(Ok(Some(line))) => line,
            Ok(Ok(None)) => return Err("ended without an answer".into()),
            Ok(Err(error)) => return Err(error.to_string()),
            Err(_) => return Err(format!("no answer in {PATIENCE:?}")),
        };
        let answer: Value = serde_json::from_str(&line).map_err(|error| format!("{error} in its answer"))?;
        match answer["error"].as_str() {
            Some(error) => Err(one_line(error)),
            None => Ok(answer),
        }
    }

    /// A figure of an answer.
    pub(crate) async fn figure(&mut self, command: &Value, name: &str) -> Result<f64, String> {
        let answer = self.ask(command).await?;
        answer[name].as_f64().ok_or_else(|| format!("its answer has no {name}"))
    }

    /// Ends its input and waits for its end; one that stays is killed.
    pub(crate) async fn stop(mut self) {
        drop(self.commands);
        if tokio::time::timeout(FAREWELL, self.child.wait()).await.is_err() {
            eprintln!("a contestant did not end by itself");
            let _ = self.child.kill().await;
        }
    }
}

/// The beginning of a message, without line breaks and bars, so that it fits into a table.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "/").chars().take(160).collect()
}
