use std::fs;

use pillarbox_core::Message;
use serde_json::{Value, json};

use super::place::Misplaced;
use super::*;

fn lines(options: LinesOptions) -> (tempfile::TempDir, Lines) {
    let home = tempfile::tempdir().unwrap();
    let lines = Lines::new(options.directory(home.path())).unwrap();
    (home, lines)
}

async fn deliver(lines: &Lines, destination: &str, bodies: &[&str]) -> Vec<DeliveryResult> {
    let messages: Vec<_> = bodies.iter().map(|body| Message::new("t", (*body).to_owned())).collect();
    let parcels: Vec<_> = messages.iter().map(|message| Parcel::new(destination, message)).collect();
    lines.deliver(&parcels).await
}

fn payloads(text: &str) -> Vec<String> {
    let read = |line: &str| serde_json::from_str::<Value>(line).ok();
    text.lines().map(|line| read(line).map_or("cut off".to_owned(), |line| line["payload"].to_string())).collect()
}

const TAKEN: DeliveryResult = Ok(Delivery::Taken);

/// BUS-02.
#[tokio::test]
async fn a_line_is_a_message() {
    let (home, lines) = lines(LinesOptions::new().sync(true));
    let full = Message::new("orders", "{\n}")
        .key("k")
        .message_type("OrderCreated")
        .aggregate_type("Order")
        .aggregate_id(7)
        .tenant("acme")
        .correlation_id("c")
        .causation_id("d")
        .content_type("application/json")
        .occurred_at(std::time::UNIX_EPOCH)
        .header("x", "größe");
    let bare = Message::new("t", &b"\xff\n"[..]);
    let parcels = [Parcel::new("acme/orders.jsonl", &full), Parcel::new("acme/orders.jsonl", &bare)];
    assert_eq!(lines.deliver(&parcels).await, [TAKEN, TAKEN]);
    let text = fs::read_to_string(home.path().join("acme/orders.jsonl")).unwrap();
    let found: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let expected = json!([
        {
            "id": full.id().to_string(), "topic": "orders", "key": "k", "type": "OrderCreated", "aggregate_type": "Order",
            "aggregate_id": "7", "tenant": "acme", "correlation_id": "c", "causation_id": "d",
            "occurred_at": "1970-01-01T00:00:00Z", "content_type": "application/json", "headers": {"x": "größe"},
            "payload": "{\n}",
        },
        { "id": bare.id().to_string(), "topic": "t", "headers": {}, "payload_base64": "/wo=" },
    ]);
    assert_eq!(Value::Array(found), expected);
}

/// BUS-02: an event of many lines becomes one line.
#[tokio::test]
async fn a_structured_event_is_one_line() {
    let format = WireFormat::cloud_events_structured("urn:shop").unwrap();
    let (home, lines) = lines(LinesOptions::new().format(format));
    let message = Message::new("t", "{\r\n \"a\": \"b\\n\",\n\"n\": 1.0}").content_type("application/json");
    assert_eq!(lines.deliver(&[Parcel::new("f", &message)]).await, [TAKEN]);
    let text = fs::read_to_string(home.path().join("f")).unwrap();
    assert_eq!(text.matches('\n').count(), 1);
    assert!(text.contains(r#""data":{   "a": "b\n", "n": 1.0}"#), "{text}");
    let event: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&event["data"]["a"], &event["id"]), (&json!("b\n"), &json!(message.id().to_string())));
}

/// A crash in the middle of a line costs that line, never the next one.
#[tokio::test]
async fn a_line_that_was_cut_off_is_ended() {
    let (home, lines) = lines(LinesOptions::new());
    let path = home.path().join("f");
    deliver(&lines, "f", &["a"]).await;
    let whole = fs::read_to_string(&path).unwrap();
    fs::write(&path, format!("{whole}{}", &whole[..10])).unwrap();
    assert_eq!(deliver(&lines, "f", &["b", "c"]).await, [TAKEN, TAKEN]);
    assert_eq!(deliver(&lines, "f", &["d"]).await, [TAKEN]);
    assert_eq!(payloads(&fs::read_to_string(&path).unwrap()), ["\"a\"", "cut off", "\"b\"", "\"c\"", "\"d\""]);
}

#[tokio::test]
async fn a_file_that_was_moved_or_removed_is_made_anew() {
    let (home, lines) = lines(LinesOptions::new());
    let path = home.path().join("below/f");
    for (body, rotate) in [("a", true), ("b", false), ("c", true)] {
        assert_eq!(deliver(&lines, "below/f", &[body]).await, [TAKEN]);
        assert_eq!(payloads(&fs::read_to_string(&path).unwrap()), [format!("\"{body}\"")]);
        if rotate {
            fs::rename(&path, home.path().join("f.1")).unwrap();
        } else {
            fs::remove_dir_all(home.path().join("below")).unwrap();
        }
    }
}

/// H60: nothing is written outside of the directory, whatever a template puts together.
#[tokio::test]
async fn a_destination_outside_of_the_directory_is_rejected() {
    let (home, lines) = lines(LinesOptions::new());
    let (long, deep) = ("x".repeat(256), "x/".repeat(512) + "x");
    let table = [
        ("", Misplaced::Empty),
        ("..", Misplaced::Outside),
        ("../f", Misplaced::Outside),
        ("a/../../f", Misplaced::Outside),
        ("a/../f", Misplaced::Outside),
        ("/etc/passwd", Misplaced::Outside),
        ("//f", Misplaced::Outside),
        ("a//f", Misplaced::Outside),
        ("a/", Misplaced::Outside),
        (".", Misplaced::Outside),
        ("./f", Misplaced::Outside),
        (r"..\f", Misplaced::Odd),
        ("a\0b", Misplaced::Odd),
        ("a\nb", Misplaced::Odd),
        (&long, Misplaced::TooLong),
        (&deep, Misplaced::TooLong),
    ];
    for (destination, misplaced) in table {
        assert_eq!(
            deliver(&lines, destination, &["a"]).await,
            [Err(Undelivered::rejected(misplaced))],
            "{destination}"
        );
    }
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
    for destination in ["...", "..f", "a/b..c", "größe", "-f", "a b"] {
        assert_eq!(deliver(&lines, destination, &["a"]).await, [TAKEN], "{destination}");
    }
}

/// H43: a full disk says nothing about a message, and a directory that is none will not become one.
#[tokio::test]
async fn a_full_disk_is_unavailable() {
    let full = Lines::new(LinesOptions::new().directory("/dev")).unwrap();
    let results = deliver(&full, "full", &["a", "b"]).await;
    assert!(results.iter().all(|result| matches!(result, Err(Undelivered::Unavailable { .. }))), "{results:?}");

    let (home, lines) = lines(LinesOptions::new());
    fs::create_dir(home.path().join("d")).unwrap();
    assert!(matches!(deliver(&lines, "d", &["a"]).await[0], Err(Undelivered::Rejected { .. })));
    assert_eq!(lines.probe().await, Ok(()));
    drop(home);
    for destination in ["f", "below/f"] {
        assert!(matches!(deliver(&lines, destination, &["a"]).await[0], Err(Undelivered::Unavailable { .. })));
    }
    assert!(matches!(lines.probe().await, Err(Undelivered::Unavailable { .. })));
}

/// A call that waits for a reader who never comes ends nevertheless.
#[cfg(unix)]
#[tokio::test]
async fn a_call_ends_within_its_time() {
    let options = LinesOptions::new().timeout(Duration::from_millis(50));
    let (_home, lines) = lines(options);
    let turn = Arc::clone(&lines.turn);
    let (held, is_held) = tokio::sync::oneshot::channel();
    let (release, released) = std::sync::mpsc::channel::<()>();
    let holder = std::thread::spawn(move || {
        let _turn = turn.lock();
        held.send(()).unwrap();
        let _ = released.recv();
    });
    is_held.await.unwrap();
    assert!(matches!(deliver(&lines, "f", &["a"]).await[0], Err(Undelivered::Unavailable { .. })));
    drop(release);
    holder.join().unwrap();
}

#[test]
fn wrong_settings_are_told() {
    let format = WireFormat::cloud_events_binary("urn:shop").unwrap();
    let options = LinesOptions::new().directory("").format(format).timeout(Duration::ZERO);
    let invalid = Lines::new(options).unwrap_err();
    let fields: Vec<_> = invalid.problems().iter().map(Problem::field).collect();
    assert_eq!(fields, ["timeout", "directory", "format"]);
}
