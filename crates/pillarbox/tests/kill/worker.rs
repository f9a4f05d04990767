//! The process that is killed: this very test program, started again as one of its tests.

use std::future::pending;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use pillarbox::prelude::*;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::halting::{Halting, Point, REACHED, stand_still};
use super::{Backend, LEASE, Place, TOPIC};

const POINT: &str = "PILLARBOX_KILL_POINT";
const BACKEND: &str = "PILLARBOX_KILL_BACKEND";
const URL: &str = "PILLARBOX_KILL_URL";
const SCHEMA: &str = "PILLARBOX_KILL_SCHEMA";

/// A process that is to be killed. Dropping it kills it.
pub(crate) struct Worker {
    child: Child,
    lines: UnboundedReceiver<String>,
}

impl Worker {
    /// Starts this program again, as the test of this name, which stands still at the point if there is one.
    pub(crate) fn start<B: Backend>(test: &str, place: &Place, point: Option<&str>) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", test, "--nocapture"]);
        command.env(BACKEND, B::NAME).env(URL, &place.url).env(SCHEMA, &place.schema);
        command.envs(point.map(|point| (POINT, point)));
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (sender, lines) = unbounded_channel();
        thread::spawn(move || stderr.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Self { child, lines }
    }

    /// Waits until it has written a line that begins so, and answers the rest of the line.
    pub(crate) async fn said(&mut self, beginning: &str) -> String {
        let mut others = Vec::new();
        while let Some(line) = self.lines.recv().await {
            if let Some(rest) = line.strip_prefix(beginning) {
                return rest.to_owned();
            }
            others.push(line);
        }
        panic!("the process ended before `{beginning}`: {others:#?}");
    }

    #[cfg(all(feature = "postgres", feature = "mysql"))]
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL: nothing of it runs any more when this returns.
    pub(crate) fn kill(mut self) -> ExitStatus {
        self.child.kill().unwrap();
        self.child.wait().unwrap()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a process does until it is killed, on the database that it was told.
pub(crate) trait Part {
    async fn play<B: Backend>(self, place: &Place, point: Option<String>);
}

/// Plays the part if this is a process that is to be killed.
pub(crate) async fn play(part: impl Part) {
    let Ok(backend) = std::env::var(BACKEND) else { return };
    let place = Place { url: std::env::var(URL).unwrap(), schema: std::env::var(SCHEMA).unwrap() };
    let point = std::env::var(POINT).ok();
    match backend.as_str() {
        "sqlite" => part.play::<super::Sqlite>(&place, point).await,
        #[cfg(feature = "postgres")]
        "postgres" => part.play::<super::Postgres>(&place, point).await,
        #[cfg(feature = "mysql")]
        "mysql" => part.play::<super::Mysql>(&place, point).await,
        other => panic!("no backend `{other}`"),
    }
}

/// Where the test below is found.
pub(crate) const WORKER: &str = "worker::a_worker_stands_still_at_its_point";

/// Nothing to prove by itself: in a process of its own it is the worker that the other tests kill.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_stands_still_at_its_point() {
    play(Handling).await;
}

struct Handling;

impl Part for Handling {
    async fn play<B: Backend>(self, place: &Place, point: Option<String>) {
        let point: Point = point.unwrap().parse().unwrap();
        let outbox = Outbox::new(Halting { store: B::open(place).await, point });
        let runtime = Runtime::builder(&outbox)
            .lease(LEASE)
            .worker_count(1)
            .on_topic(TOPIC, move |_: Context| async move {
                match point {
                    Point::InHandler => stand_still(point).await,
                    // Keeps its worker busy, so that the shutdown finds the others unstarted.
                    Point::ShuttingDown => pending().await,
                    _ => {}
                }
                Ok(())
            })
            .start()
            .await
            .unwrap();
        match point {
            Point::Committed => {
                let mut tx = outbox.begin().await.unwrap();
                for number in 0..super::COUNT {
                    tx.enqueue(Message::new(TOPIC, number.to_string())).await.unwrap();
                }
                tx.commit().await.unwrap();
            }
            Point::ShuttingDown => {
                while runtime.stats().running_count == 0 {
                    tokio::task::yield_now().await;
                }
                runtime.shutdown(Duration::from_secs(60)).await;
            }
            _ => {}
        }
        pending::<()>().await;
    }
}

/// Waits until a worker stands at its point.
pub(crate) async fn reached(worker: &mut Worker, point: Point) {
    worker.said(&format!("{REACHED}{point}")).await;
}
