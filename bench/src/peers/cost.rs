//! What a message costs the server, by the server's own counts.

use serde_json::json;

use super::entrant::Entrant;
use super::server::Server;
use super::task::{Task, float};
use super::{Scale, install::Start};

/// The contestant that has no workers: what it writes is all that it costs.
const WRITES_ONLY: &str = "bare";

/// Transactions per second of writers beside workers.
const RATE: u64 = 1000;

/// WAL bytes, transactions and dead tuples per delivered message. The program ends before the counts are read: the server
/// learns of a session's counts when it ends, and nobody else is there meanwhile.
pub(crate) async fn measure(
    task: Task,
    name: &str,
    start: &Start,
    url: &str,
    server: &Server,
    scale: &Scale,
) -> Result<Vec<f64>, String> {
    let mut entrant = Entrant::prepared(start, url).await?;
    let before = server.counters(name).await;
    let worked = work(task, name, &mut entrant, scale).await;
    entrant.stop().await;
    let after = server.final_counters(name).await;
    worked.map(|delivered| after.since(before, delivered))
}

/// How many messages were delivered.
async fn work(task: Task, name: &str, entrant: &mut Entrant, scale: &Scale) -> Result<f64, String> {
    if task == Task::CostInTurn {
        let count = scale.messages / 20;
        entrant.ask(&json!({ "do": "enqueue", "writers": 16, "batch": 1, "count": count })).await?;
        if name != WRITES_ONLY {
            entrant.ask(&json!({ "do": "drain", "count": count })).await?;
        }
        return Ok(float(count));
    }
    let seconds = scale.latency_seconds;
    let command = json!({ "do": "steady", "rate": RATE, "seconds": seconds, "writers": 16 });
    entrant.figure(&command, "delivered").await
}
