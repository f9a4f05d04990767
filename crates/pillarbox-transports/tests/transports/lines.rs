//! Lines of JSON in a directory and on standard output.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use pillarbox_core::{Delivery, Message, Parcel, Transport, wire};
use pillarbox_testing::station::{Arrived, Station, Traits};
use pillarbox_transports::Lines;
use pillarbox_transports::lines::LinesOptions;
use serde_json::Value;
use tempfile::TempDir;

struct LinesStation {
    home: TempDir,
}

impl Station for LinesStation {
    const TRAITS: Traits =
        Traits { knows_ids: false, refuses_nowhere: false, refused_bytes: None, is_durable: true, is_mortal: false };

    async fn open() -> Self {
        Self { home: tempfile::tempdir().expect("a directory can be made") }
    }

    fn transport(&self) -> Arc<dyn Transport> {
        let options = LinesOptions::new().directory(self.home.path()).timeout(Duration::from_secs(5));
        Arc::new(Lines::new(options).expect("the options are good"))
    }

    async fn place(&self, name: &str) -> String {
        format!("below/{name}.jsonl")
    }

    fn nowhere(&self) -> String {
        "nowhere".to_owned()
    }

    async fn arrived(&self, destination: &str, count: usize) -> Vec<Arrived> {
        let text = std::fs::read_to_string(self.home.path().join(destination)).expect("the file is there");
        let arrived: Vec<_> = text.lines().map(read).collect();
        assert!(arrived.len() >= count, "lines are there once they count as delivered");
        arrived
    }

    async fn kill(&mut self) {}

    async fn revive(&mut self) {}
}

/// A line, with its fields under the names that headers would have.
fn read(line: &str) -> Arrived {
    let line: Value = serde_json::from_str(line).expect("a line is JSON");
    let text = |name: &str| line[name].as_str().map(str::to_owned);
    let fields = ["id", "topic", "key", "type", "tenant", "correlation_id", "causation_id", "occurred_at"];
    let fields = fields.into_iter().filter_map(|name| {
        let header = format!("pillarbox-{}", name.replace('_', "-"));
        Some((header, text(name)?))
    });
    let own = line["headers"].as_object().expect("headers are there").iter();
    let own = own.map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned()));
    let body = text("payload").map(String::into_bytes);
    let body = body.or_else(|| STANDARD.decode(text("payload_base64")?).ok()).expect("a payload is there");
    Arrived {
        body: body.into(),
        content_type: text("content_type"),
        headers: fields.chain(own).collect(),
        broker_key: text("key"),
        broker_id: text("id"),
    }
}

mod suite {
    pillarbox_testing::transport_suite!(super::LinesStation);
}

/// Set for the process that writes.
const CHILD: &str = "PILLARBOX_TEST_LINES_CHILD";

/// Runs itself as another process, whose standard output it reads.
#[tokio::test]
async fn lines_go_to_standard_output() {
    let message = Message::new("orders", "a\nb");
    if std::env::var_os(CHILD).is_some() {
        let stdout = Lines::new(LinesOptions::new()).unwrap();
        let parcels = [Parcel::new("-", &message), Parcel::new("orders", &message)];
        assert_eq!(stdout.deliver(&parcels).await, [Ok(Delivery::Taken), Ok(Delivery::Taken)]);
        return;
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "lines::lines_go_to_standard_output", "--nocapture"]).env(CHILD, "1");
    let output = child.output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<_> = text.lines().filter_map(|line| line.find('{').map(|start| read(&line[start..]))).collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(lines.iter().all(|line| line.body == "a\nb" && line.header(wire::TOPIC) == Some("orders")));
}
