//! Worker processes: this program starts itself.

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use pillarbox::prelude::{Context, Runtime};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::Notify;

use super::place::{self, Place};
use crate::runtime::nanos;
use crate::subject::{BATCH, TOPIC};

const URL: &str = "GROWTH_URL";
const NAME: &str = "GROWTH_NAME";
const COUNT: &str = "GROWTH_COUNT";

/// What a worker process says at its end.
pub(crate) struct Worked {
    pub(crate) done: u64,
    pub(crate) ended: i64,
    /// The most memory that the process ever had.
    pub(crate) memory_mib: f64,
}

/// A worker process that is ready and waits for its cue.
pub(crate) struct Worker {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    /// Without a count it works until nothing is left.
    pub(crate) async fn ready(place: &Place, count: Option<usize>) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg("growth-worker").env(URL, &place.url).env(NAME, &place.name);
        command.env(COUNT, count.unwrap_or(usize::MAX).to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(output.next_line().await.unwrap().as_deref(), Some("ready"));
        Self { child, input, output }
    }

    pub(crate) async fn go(&mut self) {
        self.input.write_all(b"go\n").await.unwrap();
        self.input.flush().await.unwrap();
    }

    pub(crate) async fn worked(mut self) -> Worked {
        let line = self.output.next_line().await.unwrap().expect("the worker ended early");
        assert!(self.child.wait().await.unwrap().success());
        let said: Value = serde_json::from_str(&line).unwrap();
        Worked {
            done: said["done"].as_u64().unwrap(),
            ended: said["ended"].as_i64().unwrap(),
            memory_mib: said["memory_kib"].as_f64().unwrap() / 1024.0,
        }
    }
}

/// The worker process itself.
pub(crate) async fn work() {
    let variable = |name: &str| std::env::var(name).expect("started by the benchmark");
    let count: usize = variable(COUNT).parse().unwrap();
    let outbox = place::open(&variable(URL), &variable(NAME)).await;
    println!("ready");
    let mut cue = String::new();
    BufReader::new(tokio::io::stdin()).read_line(&mut cue).await.unwrap();
    let (handled, enough) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let (counted, bell) = (Arc::clone(&handled), Arc::clone(&enough));
    let handler = move |_: Context| {
        if counted.fetch_add(1, Ordering::Relaxed) + 1 == count {
            bell.notify_one();
        }
        async { Ok(()) }
    };
    let builder = Runtime::builder(&outbox).on_topic(TOPIC, handler);
    let runtime = builder.claim_limit(u32::try_from(BATCH).unwrap()).start().await.unwrap();
    tokio::select! {
        () = runtime.idle() => {}
        () = enough.notified() => {}
    }
    let ended = nanos();
    let done = runtime.stats().done_count;
    runtime.shutdown(Duration::from_secs(10)).await;
    println!("{}", json!({ "done": done, "ended": ended, "memory_kib": memory_kib() }));
}

fn memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
