//! The process that is killed: this very test program, started again with a point to stand still at.

use std::future::pending;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use pillarbox::prelude::*;

use super::halting::{Halting, Point, REACHED, stand_still};
use super::{Backend, LEASE, Place, TOPIC};

const POINT: &str = "PILLARBOX_KILL_POINT";
const BACKEND: &str = "PILLARBOX_KILL_BACKEND";
const URL: &str = "PILLARBOX_KILL_URL";
const SCHEMA: &str = "PILLARBOX_KILL_SCHEMA";

/// A worker process that stands at its point. Dropping it kills it.
pub(crate) struct Worker(Child);

impl Worker {
    /// Starts a worker, and waits until it stands at the point. Blocks.
    pub(crate) fn at(point: Point, backend: &str, place: &Place) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "worker::a_worker_stands_still_at_its_point", "--nocapture"]);
        command.env(POINT, point.to_string()).env(BACKEND, backend).env(URL, &place.url).env(SCHEMA, &place.schema);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let worker = Self(child);
        let mut said = Vec::new();
        for line in stderr.lines() {
            let line = line.unwrap();
            if line == format!("{REACHED}{point}") {
                return worker;
            }
            said.push(line);
        }
        panic!("the worker ended before its point: {said:#?}");
    }

    /// SIGKILL: nothing of it runs any more when this returns.
    pub(crate) fn kill(mut self) -> ExitStatus {
        self.0.kill().unwrap();
        self.0.wait().unwrap()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Nothing to prove by itself: in a process of its own it is the worker that the other tests kill.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_stands_still_at_its_point() {
    let Ok(point) = std::env::var(POINT) else { return };
    let point: Point = point.parse().unwrap();
    let place = Place { url: std::env::var(URL).unwrap(), schema: std::env::var(SCHEMA).unwrap() };
    match std::env::var(BACKEND).unwrap().as_str() {
        "sqlite" => work::<super::Sqlite>(point, &place).await,
        #[cfg(feature = "postgres")]
        "postgres" => work::<super::Postgres>(point, &place).await,
        other => panic!("no backend `{other}`"),
    }
}

async fn work<B: Backend>(point: Point, place: &Place) {
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
